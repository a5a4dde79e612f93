// The signals of this process as events of the io_context, by signalfd: no handler runs anywhere,
// so none can run in a child between fork and exec. Construct it before any thread is made.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <signal.h>

#include <functional>
#include <set>

namespace ddprun {

class SignalInbox {
public:
    /// Blocks `signals` from now on; they are kept until start().
    SignalInbox(boost::asio::io_context& io_context, const std::set<int>& signals);
    SignalInbox(const SignalInbox&) = delete;
    SignalInbox& operator=(const SignalInbox&) = delete;
    /// Gives the signals back to the process.
    ~SignalInbox();

    void start(std::function<void(int signal)> handler);

    /// No handler is called afterwards.
    void stop();

private:
    void wait();
    void read_all();

    boost::asio::posix::stream_descriptor descriptor_;
    sigset_t before_{};
    std::function<void(int)> handler_;
};

}  // namespace ddprun
