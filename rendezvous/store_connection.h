// One client's connection to a StoreServer: reads, finds requests, hands them to the server's
// state, writes replies. Internal to the server.
#pragma once

#include "proto/store_parser.h"
#include "rendezvous/deadline_queues.h"
#include "rendezvous/kv_state.h"
#include "rendezvous/listen_socket.h"
#include "rendezvous/readiness.h"
#include "rendezvous/store_server.h"
#include "rendezvous/unique_fd.h"

#include <boost/asio/ip/tcp.hpp>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ddprun {

class StoreConnection;

/// What a connection needs of its server.
class StoreConnectionHost {
public:
    virtual ~StoreConnectionHost() = default;

    [[nodiscard]] virtual Readiness& readiness() = 0;

    /// What is read goes through it, whoever reads.
    [[nodiscard]] virtual std::span<char> read_buffer() = 0;
    [[nodiscard]] virtual const StoreServerOptions& options() const = 0;
    [[nodiscard]] virtual StoreCounters& counters() = 0;

    /// Applies a whole request; its effects on others are carried out, the reply is the caller's.
    virtual void apply(ClientId client, std::string_view request, KvEffects& effects) = 0;

    [[nodiscard]] virtual DeadlineQueues& deadlines() = 0;

    /// The connection speaks another dialect: its socket goes to `handover`.
    virtual void hand_over(
        StoreConnection& connection,
        const StoreServerOptions::Handover& handover,
        std::string_view first_bytes
    ) = 0;

    /// What this connection holds has changed, and so may what the state does.
    virtual void note_memory() = 0;

    /// Logs the reason and forgets the connection. `reason` empty: the client went by itself.
    virtual void closed(StoreConnection& connection, std::string_view reason) = 0;
};

class StoreConnection final : public Readiness::Watcher, public DeadlineQueues::Member {
public:
    StoreConnection(Accepted accepted, ClientId id, StoreConnectionHost& host);
    StoreConnection(const StoreConnection&) = delete;
    StoreConnection& operator=(const StoreConnection&) = delete;
    ~StoreConnection() = default;

    void start();

    void on_ready(Ready ready) override;

    /// Queues the one byte that ends a wait; flush() sends it.
    void release();
    void flush();

    /// Closes with a reason for the log, from outside or inside. Harmless when closed already.
    void close(std::string_view reason);

    /// Reads no more and closes once what is due has been written.
    void finish();

    /// Its socket, for somebody else; close() comes next.
    [[nodiscard]] Accepted take_socket();

    [[nodiscard]] ClientId id() const { return id_; }

    [[nodiscard]] std::string peer() const { return text_of(peer_); }

    /// Its peer's address is this numeric one.
    [[nodiscard]] bool comes_from(const std::string& address) const {
        const std::string text = peer();
        const std::size_t port = text.rfind(':');
        const bool has_brackets = text.front() == '[';
        return text.substr(has_brackets ? 1 : 0, port - (has_brackets ? 2 : 0)) == address;
    }

    /// At the deadline for progress: it takes its replies slowly, or has time left. Sets the
    /// deadline anew where it holds.
    [[nodiscard]] bool is_going_on();

    [[nodiscard]] bool is_validated() const { return is_validated_; }

private:
    void on_readable();
    void on_writable();
    void want();
    void expect_progress();
    [[nodiscard]] bool has_moved();
    void wait_writable();
    void take(std::string_view bytes);
    std::size_t handle_requests(std::string_view bytes);
    bool handle_opening(std::string_view bytes);
    void answer_http();
    void keep_partial(std::string_view rest);
    [[nodiscard]] bool holds_too_much() const;
    void update_partial_deadlines(bool is_partial);
    bool handle_request(std::string_view request);
    void close_offender(std::string_view reason);
    bool write_some();
    void count_unsent();
    [[nodiscard]] bool is_full() const;

    UniqueFd socket_;
    Ready wanted_;  ///< what the socket is watched for
    ClientId id_;
    boost::asio::ip::tcp::endpoint peer_;
    StoreConnectionHost* host_;  ///< null once closed
    StoreParser parser_;
    std::string partial_;  ///< the beginning of a request that isn't whole
    ReplyBuffer unsent_;
    std::size_t turn_requests_ = 0;      ///< handled in this turn of the loop
    std::size_t turn_replies_ = 0;       ///< bytes of replies made in it
    std::size_t unsent_counted_ = 0;     ///< what of unsent_ the counters hold
    int looks_ = 0;                      ///< in a row, at the deadline, that saw no progress
    std::optional<int> unacknowledged_;  ///< bytes in the kernel's buffer at the last look
    bool is_validated_ = false;
    bool is_writing_ = false;  ///< waits for room in the socket's buffer
    bool is_paused_ = false;   ///< not read from until its turn comes, or it has taken its replies
    bool is_finishing_ = false;  ///< closes when its replies are written
};

}  // namespace ddprun
