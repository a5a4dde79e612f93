// An agent's TCP connection on the host's side: bytes to messages and back, with bounds on time
// (the opening and Join), on frames and on output that the agent doesn't read. Decides nothing. Its
// handlers keep it alive; it holds its owner weakly.
#pragma once

#include "proto/agent_codec.h"
#include "rendezvous/agent_peer.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/system/error_code.hpp>

#include <array>
#include <cstddef>
#include <deque>
#include <memory>
#include <string>

namespace ddprun {

class AgentSession final : public AgentPeer, public std::enable_shared_from_this<AgentSession> {
public:
    AgentSession(boost::asio::ip::tcp::socket socket, std::weak_ptr<AgentPeerOwner> owner);

    /// Begins with the bytes that were read before. Once. Time is up at `join_deadline`, if no Join
    /// has come by then.
    void start(std::string first_bytes, std::chrono::milliseconds join_timeout);

    void send(const ServerMessage& message) override;
    void close() override;

    [[nodiscard]] const std::string& name() const override { return name_; }

    [[nodiscard]] bool is_local() const override { return false; }

private:
    void take_bytes(std::string_view bytes);
    void read();
    void write();
    void on_read(const boost::system::error_code& error, std::size_t size);
    void on_written(const boost::system::error_code& error);
    void reject(const Error& error);
    void fail_with(const Error& reason);
    void shut();

    boost::asio::ip::tcp::socket socket_;
    boost::asio::steady_timer timer_;  ///< for the Join, later for the close
    std::weak_ptr<AgentPeerOwner> owner_;
    std::string name_;
    FrameReader reader_;
    std::array<char, 16 * 1024> input_{};
    std::deque<std::string> output_;
    std::size_t output_bytes_ = 0;
    bool writing_ = false;
    bool closing_ = false;  ///< no more input; closes when the output is written
    bool closed_ = false;
};

}  // namespace ddprun
