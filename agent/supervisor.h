// The agent of one node: joins the job over a link to the rendezvous, starts the workers of each
// round, watches and stops them, forwards their output, reports. A shell: it performs what
// AgentCore decides, on one io_context and one thread, and blocks on nothing.
//
// Construct it on the main thread (the parent-death signal of workers follows the thread that forks
// them) before any other thread exists: it takes over HUP, INT, QUIT, TERM, USR1, USR2 and CHLD
// (those that were ignored stay ignored), ignores PIPE, and makes this process the reaper of its
// descendants. One Supervisor per process at a time.
#pragma once

#include "agent/agent_settings.h"
#include "proto/log.h"
#include "rendezvous/link.h"

#include <boost/asio/io_context.hpp>

#include <functional>
#include <memory>

namespace ddprun {

class Supervisor {
public:
    Supervisor(
        boost::asio::io_context& io_context,
        AgentSettings settings,
        std::unique_ptr<RendezvousLink> link,
        Log& log
    );
    Supervisor(const Supervisor&) = delete;
    Supervisor& operator=(const Supervisor&) = delete;
    ~Supervisor();

    /// Begins; once. `done` is called from the io_context when the job is over here: no worker and
    /// nothing that a worker left behind is alive, all output is written, the link is closed.
    void run(std::function<void(int exit_status)> done);

private:
    class Implementation;
    std::unique_ptr<Implementation> implementation_;
};

}  // namespace ddprun
