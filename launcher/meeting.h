// Where the nodes of a job meet: this process finds out whether its node hosts the rendezvous,
// binds the endpoint where nobody has done so yet, and else links to whoever has. As long as nobody
// answers both are tried again, name resolution included, until the join time-out.
//
// Everything happens on the io_context's one thread.
#pragma once

#include "proto/log.h"
#include "rendezvous/endpoint.h"
#include "rendezvous/host.h"
#include "rendezvous/link.h"
#include "rendezvous/store_server.h"

#include <boost/asio/io_context.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ddprun::launcher {

struct MeetingOptions {
    Endpoint endpoint;
    JobId job;
    std::string host_name;        ///< of this machine
    std::optional<bool> is_host;  ///< --rdzv_conf is_host
    bool one_node = false;        ///< the job has one node
    /// The node that hosts gets group rank 0 unless it asks for another: its endpoint is also
    /// MASTER_ADDR:MASTER_PORT (back end static).
    bool host_is_first = false;
    std::chrono::milliseconds join_timeout{600'000};
    std::chrono::milliseconds lost_timeout{60'000};
    std::int32_t heartbeat_misses = 3;
};

class Meeting {
public:
    Meeting(boost::asio::io_context& io_context, MeetingOptions options, Log& log);
    Meeting(const Meeting&) = delete;
    Meeting& operator=(const Meeting&) = delete;
    ~Meeting();

    /// A job of this node alone, which nobody else can join: no port is opened.
    [[nodiscard]] std::unique_ptr<RendezvousLink> alone();

    /// Once. The errors of its on_lost say what this node resolved, or who holds the port.
    [[nodiscard]] std::unique_ptr<RendezvousLink> link();

    /// The rendezvous where this process hosts it, else null.
    [[nodiscard]] RendezvousHost* host() const;

    /// The server at the endpoint where this process hosts, else null.
    [[nodiscard]] StoreServer* server() const;

    class Implementation;

private:
    std::shared_ptr<Implementation> implementation_;
};

/// The address of this node that others reach: one of `resolved`, loopback only where there is no
/// other.
[[nodiscard]] std::string published_address(
    const std::vector<std::string>& resolved, const std::vector<std::string>& own, bool everywhere
);

}  // namespace ddprun::launcher
