#include "trainer/local_address.h"

#include <fmt/format.h>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>
#include <optional>

namespace ddprun::trainer {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;
using InterfaceList = std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)>;

bool is_loopback(const sockaddr* address) {
    constexpr std::uint32_t kLoopbackNetwork = 127;
    constexpr int kNetworkShift = 24;
    if (address->sa_family == AF_INET) {
        const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
        return (ntohl(v4->sin_addr.s_addr) >> kNetworkShift) == kLoopbackNetwork;
    }
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
    return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr) != 0;
}

std::string to_text(const sockaddr* address) {
    std::array<char, INET6_ADDRSTRLEN> text{};
    const void* bytes =
        address->sa_family == AF_INET
            ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(address)->sin_addr)
            : &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
    ::inet_ntop(address->sa_family, bytes, text.data(), text.size());
    return text.data();
}

bool is_numeric(const std::string& host) {
    in6_addr address{};
    return ::inet_pton(AF_INET, host.c_str(), &address) == 1 ||
           ::inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

/// The source address that the kernel would take; a datagram socket sends nothing to find out.
std::optional<sockaddr_storage> source_towards(const addrinfo& target) {
    const int fd = ::socket(target.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return std::nullopt;
    }
    sockaddr_storage source{};
    socklen_t length = sizeof(source);
    const bool found = ::connect(fd, target.ai_addr, target.ai_addrlen) == 0 &&
                       ::getsockname(fd, reinterpret_cast<sockaddr*>(&source), &length) == 0;
    ::close(fd);
    return found ? std::optional(source) : std::nullopt;
}

std::optional<std::string> first_outer_address() {
    ifaddrs* raw = nullptr;
    if (::getifaddrs(&raw) != 0) {
        return std::nullopt;
    }
    const InterfaceList list(raw, &::freeifaddrs);
    for (const ifaddrs* i = list.get(); i != nullptr; i = i->ifa_next) {
        if (i->ifa_addr != nullptr && i->ifa_addr->sa_family == AF_INET &&
            (i->ifa_flags & IFF_UP) != 0U && !is_loopback(i->ifa_addr)) {
            return to_text(i->ifa_addr);
        }
    }
    return std::nullopt;
}

}  // namespace

Result<std::string> local_address_towards(
    const std::string& host, std::uint16_t port, bool several_nodes
) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_DGRAM;
    addrinfo* raw = nullptr;
    const int code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &raw);
    if (code != 0) {
        return fail(
            Errc::not_found,
            fmt::format("look up the master address {}: {}", host, ::gai_strerror(code))
        );
    }
    const AddressList list(raw, &::freeaddrinfo);
    for (const addrinfo* target = list.get(); target != nullptr; target = target->ai_next) {
        const auto source = source_towards(*target);
        if (!source) {
            continue;
        }
        const auto* address = reinterpret_cast<const sockaddr*>(&*source);
        if (is_loopback(address) && several_nodes && !is_numeric(host) && host != "localhost") {
            if (auto outer = first_outer_address()) {
                return *outer;
            }
        }
        return to_text(address);
    }
    return fail(from_errno(errno, fmt::format("find the interface towards {}", host)));
}

}  // namespace ddprun::trainer
