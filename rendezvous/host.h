// The rendezvous on the server's side: an Asio shell around the membership cores (one per job) and
// the liveness core. It gets its connections from a StoreServer's on_agent, and one link without a
// socket for the agent of the same process. It decides nothing: events go to the cores, their
// actions become messages, timers and log lines.
//
// Everything happens on the io_context's one thread. Destroying the host closes every connection at
// once; stop() waits until every node has left.
#pragma once

#include "proto/limits.h"
#include "proto/log.h"
#include "proto/types.h"
#include "rendezvous/link.h"
#include "rendezvous/membership_state.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace ddprun {

struct RendezvousHostOptions {
    /// The one job that is served, others are refused; without it any job (a daemon), each by its
    /// id.
    std::optional<JobId> job;
    /// What a local link reports as its address: the one by which other nodes reach this one.
    std::string local_address = "127.0.0.1";
    std::string host_name{};  ///< of this machine, for the messages of agents
    /// For a connection's opening and Join.
    std::chrono::milliseconds join_message_timeout = limits::kJoinMessageTimeout;
};

class RendezvousHost {
public:
    RendezvousHost(boost::asio::io_context& io_context, RendezvousHostOptions options, Log& log);
    RendezvousHost(const RendezvousHost&) = delete;
    RendezvousHost& operator=(const RendezvousHost&) = delete;
    ~RendezvousHost();

    /// Takes over a connection of which `first_bytes` have been read.
    void accept(boost::asio::ip::tcp::socket socket, std::string first_bytes);

    /// For the agent in this process; may outlive the host, then it is down.
    [[nodiscard]] std::unique_ptr<RendezvousLink> local_link();

    /// Called each time when the last job has ended and all its nodes have left.
    void on_all_jobs_over(std::function<void()> callback);

    /// `done` is called when no job has a node left; unknown nodes are refused meanwhile.
    void stop(std::function<void()> done);

    /// Of all jobs together.
    [[nodiscard]] std::size_t nodes() const;

    /// The state of a job, or null.
    [[nodiscard]] const MembershipState* job(const JobId& id) const;

    class Implementation;

private:
    std::shared_ptr<Implementation> implementation_;
};

}  // namespace ddprun
