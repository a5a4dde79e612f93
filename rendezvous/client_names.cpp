#include "rendezvous/client_names.h"

#include <fmt/format.h>

#include <netdb.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <system_error>
#include <thread>

namespace ddprun {

namespace {

/// 0 and the addresses, or a code for gai_strerror().
int look_up(
    const std::string& host, std::uint16_t port, int flags, HostLookUp::Addresses& addresses
) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV | flags;
    addrinfo* list = nullptr;
    const int code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
    if (code != 0) {
        return code;
    }
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner{list, &::freeaddrinfo};
    for (const addrinfo* each = list; each != nullptr; each = each->ai_next) {
        HostAddress address;
        address.size = std::min<socklen_t>(each->ai_addrlen, sizeof address.storage);
        std::memcpy(&address.storage, each->ai_addr, address.size);
        addresses.push_back(address);
    }
    return addresses.empty() ? EAI_NONAME : 0;
}

}  // namespace

/// Shared by those who wait and the thread that fills it in.
struct HostLookUp::Answer {
    std::mutex mutex;
    std::condition_variable filled;
    bool is_there = false;
    int code = 0;
    Addresses addresses;
};

HostLookUp::HostLookUp(std::string host, std::uint16_t port)
    : host_(std::move(host)),
      port_(port) {}

/// The look-up that runs, or one that begins now.
Result<std::shared_ptr<HostLookUp::Answer>> HostLookUp::ask() {
    const std::lock_guard lock{mutex_};
    if (running_ != nullptr) {
        return running_;
    }
    auto answer = std::make_shared<Answer>();
    try {
        // Nobody can end getaddrinfo(): the thread owns all that it touches and is waited for by
        // its answer alone.
        std::thread{[answer, host = host_, port = port_] {
            Addresses addresses;
            const int code = look_up(host, port, 0, addresses);
            const std::lock_guard filling{answer->mutex};
            answer->code = code;
            answer->addresses = std::move(addresses);
            answer->is_there = true;
            answer->filled.notify_all();
        }}.detach();
    } catch (const std::system_error& error) {
        return fail(
            from_error_code(error.code(), fmt::format("start a thread to look up {}", host_))
        );
    }
    running_ = answer;
    return answer;
}

Result<HostLookUp::Addresses> HostLookUp::find(Deadline deadline) {
    Addresses numeric;
    if (look_up(host_, port_, AI_NUMERICHOST, numeric) == 0) {
        return numeric;
    }
    const auto answer = ask();
    if (!answer) {
        return fail(answer.error());
    }
    std::unique_lock lock{(*answer)->mutex};
    const bool is_there =
        (*answer)->filled.wait_until(lock, deadline, [&] { return (*answer)->is_there; });
    const int code = (*answer)->code;
    Addresses addresses = (*answer)->addresses;
    lock.unlock();
    if (!is_there) {
        return fail(
            Errc::timed_out,
            fmt::format("look up the name {}: no answer from the resolver in time", host_)
        );
    }
    {
        const std::lock_guard lock_running{mutex_};
        if (running_ == *answer) {
            running_.reset();  // the next one asks again: the address may have changed
        }
    }
    if (code != 0) {
        return fail(
            Errc::not_found, fmt::format("look up the name {}: {}", host_, ::gai_strerror(code))
        );
    }
    return addresses;
}

}  // namespace ddprun
