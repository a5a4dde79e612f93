#include "rendezvous/endpoint.h"

#include "proto/limits.h"

#include <fmt/format.h>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <memory>
#include <utility>

namespace ddprun {

namespace {

constexpr int kPortMax = 65'535;

bool is_v6(const std::string& text) {
    in6_addr address{};
    return ::inet_pton(AF_INET6, text.c_str(), &address) == 1;
}

bool is_numeric(const std::string& text) {
    in_addr address{};
    return ::inet_pton(AF_INET, text.c_str(), &address) == 1 || is_v6(text);
}

/// Whatever resolvers may know, but no space, and no sign that belongs to a URL or to a list.
bool may_be_in_host(char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x80 || std::isalnum(byte) != 0 || c == '-' || c == '.' || c == '_' ||
           c == ':' || c == '%';
}

Result<Port> parse_port(std::string_view text, std::string_view whole, PortZero port_zero) {
    int value = -1;
    const char* end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data(), end, value);
    if (text.empty() || parsed.ec != std::errc{} || parsed.ptr != end || value < 0 ||
        value > kPortMax) {
        return fail(
            Errc::invalid_argument,
            fmt::format(
                "endpoint '{}': '{}' is no port, use {} to {}",
                whole,
                text,
                port_zero == PortZero::allowed ? 0 : 1,
                kPortMax
            )
        );
    }
    if (value == 0 && port_zero == PortZero::refused) {
        return fail(
            Errc::invalid_argument,
            fmt::format(
                "endpoint '{}': port 0 would be another port on each node, give one from 1 to {}",
                whole,
                kPortMax
            )
        );
    }
    return Port{static_cast<std::uint16_t>(value)};
}

bool contains(const std::vector<std::string>& addresses, const std::string& address) {
    return std::find(addresses.begin(), addresses.end(), address) != addresses.end();
}

std::string numeric(const sockaddr* address) {
    char text[INET6_ADDRSTRLEN] = {};
    if (address->sa_family == AF_INET) {
        const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
        static_cast<void>(::inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text));
    } else if (address->sa_family == AF_INET6) {
        const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
        static_cast<void>(::inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text));
    }
    return text;
}

/// Name and address, in the system's order.
std::vector<std::pair<std::string, std::string>> interface_addresses() {
    ifaddrs* found = nullptr;
    if (::getifaddrs(&found) != 0) {
        return {};
    }
    const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owned(found, ::freeifaddrs);
    std::vector<std::pair<std::string, std::string>> addresses;
    for (const ifaddrs* each = found; each != nullptr; each = each->ifa_next) {
        if (each->ifa_addr == nullptr || (each->ifa_flags & IFF_UP) == 0) {
            continue;
        }
        const std::string address = numeric(each->ifa_addr);
        in6_addr v6{};
        const bool is_for_one_link =
            ::inet_pton(AF_INET6, address.c_str(), &v6) == 1 && IN6_IS_ADDR_LINKLOCAL(&v6);
        if (!address.empty() && !is_for_one_link) {
            addresses.emplace_back(each->ifa_name, address);
        }
    }
    return addresses;
}

}  // namespace

Result<Endpoint> parse_endpoint(std::string_view text, PortZero port_zero) {
    Endpoint endpoint;
    std::string_view port;
    bool has_port = false;
    if (!text.empty() && text.front() == '[') {
        const std::size_t end = text.find(']');
        const std::string_view rest =
            end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
        if (end == std::string_view::npos || (!rest.empty() && rest.front() != ':')) {
            return fail(
                Errc::invalid_argument,
                fmt::format("endpoint '{}': write IPv6 as [ADDRESS]:PORT", text)
            );
        }
        endpoint.host = text.substr(1, end - 1);
        if (!is_v6(endpoint.host)) {
            return fail(
                Errc::invalid_argument,
                fmt::format("endpoint '{}': '{}' is no IPv6 address", text, endpoint.host)
            );
        }
        has_port = !rest.empty();
        port = has_port ? rest.substr(1) : rest;
    } else {
        const std::size_t colon = text.find(':');
        if (colon != std::string_view::npos &&
            text.find(':', colon + 1) != std::string_view::npos) {
            return fail(
                Errc::invalid_argument,
                fmt::format(
                    "endpoint '{}': put an IPv6 address in brackets, for example [::1]:{}",
                    text,
                    kDefaultRendezvousPort
                )
            );
        }
        endpoint.host = text.substr(0, colon);
        has_port = colon != std::string_view::npos;
        port = has_port ? text.substr(colon + 1) : std::string_view{};
    }
    const auto wrong = std::ranges::find_if_not(endpoint.host, may_be_in_host);
    if (wrong != endpoint.host.end()) {
        return fail(
            Errc::invalid_argument,
            fmt::format(
                "endpoint '{}': '{}' is in no host name; give it as HOST[:PORT]", text, *wrong
            )
        );
    }
    if (endpoint.host.empty() || endpoint.host.size() > limits::kNameBytesMax) {
        return fail(
            Errc::invalid_argument, fmt::format("endpoint '{}': give it as HOST[:PORT]", text)
        );
    }
    if (has_port) {
        const Result<Port> parsed = parse_port(port, text, port_zero);
        if (!parsed) {
            return fail(parsed.error());
        }
        endpoint.port = *parsed;
    }
    return endpoint;
}

std::string to_string(const Endpoint& endpoint) {
    const bool brackets = endpoint.host.find(':') != std::string::npos;
    return brackets ? fmt::format("[{}]:{}", endpoint.host, endpoint.port)
                    : fmt::format("{}:{}", endpoint.host, endpoint.port);
}

bool is_loopback(const std::string& address) {
    constexpr std::uint32_t kLoopbackNet = 127;
    in_addr v4{};
    if (::inet_pton(AF_INET, address.c_str(), &v4) == 1) {
        return ntohl(v4.s_addr) >> 24 == kLoopbackNet;
    }
    in6_addr v6{};
    return ::inet_pton(AF_INET6, address.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

HostDecision decide_host(const HostFacts& facts) {
    const std::string& host = facts.endpoint.host;
    std::vector<std::string> own;
    std::vector<std::string> own_loopback;
    for (const std::string& address : facts.resolved) {
        if (is_loopback(address)) {
            own_loopback.push_back(address);
        } else if (contains(facts.own, address)) {
            own.push_back(address);
        }
    }
    HostDecision decision;
    const bool is_own = !own.empty() || !own_loopback.empty();
    decision.hosts = facts.is_host.value_or(is_own);
    if (!decision.hosts) {
        decision.why = facts.is_host ? fmt::format("is_host=false leaves {} to another node", host)
                       : facts.resolved.empty()
                           ? fmt::format("{} resolves to nothing here", host)
                           : fmt::format(
                                 "none of the addresses of {} ({}) is this node's",
                                 host,
                                 fmt::join(facts.resolved, ", ")
                             );
        return decision;
    }
    if (facts.one_node) {
        decision.listen =
            own_loopback.empty() ? std::vector<std::string>{"127.0.0.1"} : own_loopback;
        decision.why = "a job of one node listens on loopback only";
        return decision;
    }
    const bool asked_for_loopback = host == "localhost" || is_loopback(host);
    if (asked_for_loopback && !own_loopback.empty()) {
        decision.listen = own_loopback;
        decision.why = fmt::format("{} is loopback, only this machine can join", host);
        return decision;
    }
    if (own_loopback.empty() && !own.empty()) {
        decision.listen = own;
        decision.why = fmt::format("{} is an address of this node", host);
        return decision;
    }
    decision.why = fmt::format(
        "{} resolves to {}, {}: listening on every interface",
        host,
        facts.resolved.empty() ? "nothing" : fmt::format("{}", fmt::join(facts.resolved, ", ")),
        own_loopback.empty() ? "which is not this node's address" : "which other nodes can't reach"
    );
    return decision;
}

Result<std::vector<std::string>> resolve_host(const std::string& host) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = is_numeric(host) ? AI_NUMERICHOST : 0;
    addrinfo* found = nullptr;
    const int code = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
    if (code != 0) {
        return fail(
            Errc::not_found,
            fmt::format(
                "resolve {}: {}; check the name, or give an address", host, gai_strerror(code)
            )
        );
    }
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, ::freeaddrinfo);
    std::vector<std::string> addresses;
    for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
        const std::string address = numeric(each->ai_addr);
        if (!address.empty() && !contains(addresses, address)) {
            addresses.push_back(address);
        }
    }
    return addresses;
}

std::vector<std::string> own_addresses() {
    std::vector<std::string> addresses;
    for (const auto& [name, address] : interface_addresses()) {
        if (!contains(addresses, address)) {
            addresses.push_back(address);
        }
    }
    return addresses;
}

Result<std::vector<std::string>> addresses_of_interface(const std::string& name) {
    std::vector<std::string> addresses;
    std::vector<std::string> names;
    for (const auto& [interface, address] : interface_addresses()) {
        if (!contains(names, interface)) {
            names.push_back(interface);
        }
        if (interface == name) {
            addresses.push_back(address);
        }
    }
    if (addresses.empty()) {
        return fail(
            Errc::not_found,
            fmt::format(
                "no interface {} with an address is up; there are: {}", name, fmt::join(names, ", ")
            )
        );
    }
    return addresses;
}

}  // namespace ddprun
