// The rendezvous endpoint that users give: its text, who of the nodes hosts it, and on what the
// host listens. The decisions are pure; only the functions at the end ask the system. No reverse
// look-ups.
#pragma once

#include "proto/result.h"
#include "proto/types.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

inline constexpr Port kDefaultRendezvousPort{29400};

struct Endpoint {
    std::string host;  ///< a name or a numeric address, without brackets
    Port port = kDefaultRendezvousPort;

    friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

enum class PortZero { refused, allowed };  ///< allowed for a job of one node

/// "host", "host:port", "[v6]" or "[v6]:port". Errors: invalid_argument, with a sentence.
[[nodiscard]] Result<Endpoint> parse_endpoint(std::string_view text, PortZero port_zero);

/// "host:port", IPv6 in brackets.
[[nodiscard]] std::string to_string(const Endpoint& endpoint);

struct HostFacts {
    Endpoint endpoint;
    std::vector<std::string> resolved;  ///< numeric addresses of the endpoint's host
    std::vector<std::string> own;       ///< numeric addresses of this node
    std::optional<bool> is_host;        ///< --rdzv_conf is_host
    bool one_node = false;              ///< the job has one node
};

struct HostDecision {
    bool hosts = false;
    /// What to listen on, numeric; empty means every interface.
    std::vector<std::string> listen;
    std::string why;  ///< in plain words, for the log
};

/// A node hosts where one of the resolved addresses is its own (any 127.x and ::1 are), or where
/// is_host says so.
[[nodiscard]] HostDecision decide_host(const HostFacts& facts);

[[nodiscard]] bool is_loopback(const std::string& address);

/// Numeric addresses of a host name or of a numeric address, without repetition, in the system's
/// order. Blocks. Errors: not_found.
[[nodiscard]] Result<std::vector<std::string>> resolve_host(const std::string& host);

/// Numeric addresses of all interfaces that are up, without those that are good for one link only
/// (IPv6 fe80::).
[[nodiscard]] std::vector<std::string> own_addresses();

/// Those of one interface. Errors: not_found, with the interfaces that there are.
[[nodiscard]] Result<std::vector<std::string>> addresses_of_interface(const std::string& name);

}  // namespace ddprun
