#include "rendezvous/store_server.h"

#include "rendezvous/block_pool.h"
#include "rendezvous/connection_source.h"
#include "rendezvous/heap_trimmer.h"
#include "rendezvous/line_limit.h"
#include "rendezvous/listen_socket.h"
#include "rendezvous/readiness.h"
#include "rendezvous/store_connection.h"

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <variant>

namespace ddprun {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

/// That of the next look at the client, where there are several.
std::array<DeadlineQueues::Clock::duration, DeadlineQueues::kKinds> lengths_of(
    const StoreDeadlines& deadlines
) {
    return {
        deadlines.handshake,
        DeadlineQueues::Clock::duration{deadlines.progress} / limits::kProgressLooks,
        deadlines.request,
    };
}

}  // namespace

class StoreServer::Implementation final : public StoreConnectionHost,
                                          public std::enable_shared_from_this<Implementation> {
public:
    Implementation(
        asio::io_context& io_context,
        StoreServerOptions options,
        Log& log,
        std::vector<tcp::acceptor> acceptors,
        std::shared_ptr<Readiness> readiness
    )
        : io_context_(io_context),
          options_(std::move(options)),
          log_(log),
          source_(std::make_shared<ConnectionSource>(
              std::move(acceptors),
              ConnectionSource::Handlers{
                  [this](Accepted accepted) { admit(std::move(accepted)); },
                  [this] { note_turned_away(); },
              }
          )),
          readiness_(std::move(readiness)),
          state_(options_.kv_limits),
          deadlines_(std::make_shared<DeadlineQueues>(
              io_context,
              lengths_of(options_.deadlines),
              DeadlineQueues::Handlers{
                  [this](DeadlineQueues::Member& member, DeadlineQueues::Kind kind) {
                      on_late(static_cast<StoreConnection&>(member), kind);
                  },
                  [this](Clock::time_point now) { return expire(now); },
              }
          )),
          stop_timer_(io_context),
          trimmer_(std::make_shared<HeapTrimmer>(io_context)),
          read_buffer_(std::make_unique_for_overwrite<char[]>(limits::kReadChunkBytes)),
          closed_lines_timer_(io_context) {}

    void start() { source_->start(); }

    void shut_down() {
        source_->close();
        done_ = {};
        close_connections();
        end_waits();
    }

    void begin_round(std::vector<std::string> addresses) {
        close_connections();
        state_ = KvState{options_.kv_limits};
        note_memory();
        round_addresses_ = std::move(addresses);
    }

    void stop(std::function<void()> done) {
        done_ = std::move(done);
        source_->close();
        stop_timer_.expires_after(options_.deadlines.stop);
        stop_timer_.async_wait([weak = weak_from_this()](const error_code& error) {
            const auto self = weak.lock();
            if (!error && self != nullptr) {
                self->close_connections();
            }
        });
        std::vector<std::shared_ptr<StoreConnection>> all;
        for (const auto& [id, connection] : connections_) {
            all.push_back(connection);
        }
        for (const auto& connection : all) {
            connection->finish();
        }
        finish_if_empty();
    }

    [[nodiscard]] const tcp::endpoint& endpoint() const { return source_->endpoint(); }

    [[nodiscard]] const KvCounters& kv_counters() const { return state_.counters(); }

    // ---- what connections need

    Readiness& readiness() override { return *readiness_; }

    std::span<char> read_buffer() override { return {read_buffer_.get(), limits::kReadChunkBytes}; }

    [[nodiscard]] const StoreServerOptions& options() const override { return options_; }

    StoreCounters& counters() override { return counters_; }

    DeadlineQueues& deadlines() override { return *deadlines_; }

    void apply(ClientId client, std::string_view request, KvEffects& effects) override;
    void hand_over(
        StoreConnection& connection,
        const StoreServerOptions::Handover& handover,
        std::string_view first_bytes
    ) override;
    void note_memory() override;
    void closed(StoreConnection& connection, std::string_view reason) override;

private:
    using Clock = DeadlineQueues::Clock;

    void admit(Accepted accepted);
    void note_turned_away();
    void log_closed(const StoreConnection& connection, std::string_view reason);
    void log_closed_rest();
    void log_closed_later();
    void close_connections();
    void on_late(StoreConnection& connection, DeadlineQueues::Kind kind);
    std::optional<Clock::time_point> expire(Clock::time_point now);
    void keep_for_a_while(std::shared_ptr<StoreConnection> connection);
    void end_waits();
    void finish_if_empty();
    [[nodiscard]] bool is_of_round(ClientId client) const;

    asio::io_context& io_context_;
    StoreServerOptions options_;
    Log& log_;
    std::shared_ptr<ConnectionSource> source_;
    std::shared_ptr<Readiness> readiness_;
    KvState state_;
    StoreCounters counters_;
    std::shared_ptr<BlockPool> connection_blocks_ = std::make_shared<BlockPool>();
    std::unordered_map<ClientId, std::shared_ptr<StoreConnection>> connections_;
    std::vector<std::shared_ptr<StoreConnection>> gone_;  ///< in this turn of the loop
    std::uint64_t last_id_ = 0;
    std::shared_ptr<DeadlineQueues> deadlines_;
    asio::steady_timer stop_timer_;
    std::shared_ptr<HeapTrimmer> trimmer_;
    std::unique_ptr<char[]> read_buffer_;  ///< its pages are there once they are used
    LineLimit closed_lines_{limits::kClosedLinesMax, limits::kClosedLinesTime};
    asio::steady_timer closed_lines_timer_;
    bool closed_lines_wait_ = false;  ///< the timer is set
    std::function<void()> done_;
    std::optional<std::vector<std::string>> round_addresses_;  ///< who may use the store
};

// ---- accepting

void StoreServer::Implementation::note_turned_away() {
    if (++counters_.refused_full > 1) {
        return;  // said once; the counter tells how often
    }
    log_.warning(
        "store port={}: a connection was turned away: no descriptor is left (try: ulimit -n)",
        endpoint().port()
    );
}

void StoreServer::Implementation::admit(Accepted accepted) {
    ++counters_.accepted;
    if (connections_.size() >= options_.connections_max ||
        counters_.unvalidated >= options_.unvalidated_max) {
        ++counters_.refused_full;
        log_.debug(
            "store port={} peer={}: turned away, too many connections",
            endpoint().port(),
            text_of(accepted.peer)
        );
        return;
    }
    const ClientId id{++last_id_};
    const auto connection = std::allocate_shared<StoreConnection>(
        PoolAllocator<StoreConnection>{connection_blocks_}, std::move(accepted), id, *this
    );
    connections_.emplace(id, connection);
    counters_.connections = connections_.size();
    ++counters_.unvalidated;
    connection->start();
}

// ---- connections

void StoreServer::Implementation::close_connections() {
    while (!connections_.empty()) {
        connections_.begin()->second->close({});
    }
}

void StoreServer::Implementation::apply(
    ClientId client, std::string_view request, KvEffects& effects
) {
    const auto decoded = decode_request(request);
    if (!decoded) {
        effects.offence = "malformed request";
        return;
    }
    if (std::holds_alternative<ValidateRequest>(*decoded) && !is_of_round(client)) {
        effects.offence = "its address is none of the round's nodes";
        return;
    }
    state_.apply(client, *decoded, effects);
    for (const ClientId released : effects.released) {
        const auto found = connections_.find(released);
        if (found != connections_.end()) {
            const std::shared_ptr<StoreConnection> waiting = found->second;
            waiting->release();
            if (released != client) {
                waiting->flush();
            }
        }
    }
}

bool StoreServer::Implementation::is_of_round(ClientId client) const {
    if (!round_addresses_) {
        return true;
    }
    const auto found = connections_.find(client);
    return found != connections_.end() &&
           std::ranges::any_of(*round_addresses_, [&](const std::string& address) {
               return found->second->comes_from(address);
           });
}

void StoreServer::Implementation::hand_over(
    StoreConnection& connection,
    const StoreServerOptions::Handover& handover,
    std::string_view first_bytes
) {
    ++counters_.handed_over;
    std::string first{first_bytes};  // close() frees what they may be part of
    Accepted taken = connection.take_socket();
    connection.close({});
    tcp::socket socket{io_context_};
    error_code error;
    socket.assign(taken.peer.protocol(), taken.socket.get(), error);
    if (error) {
        log_.warning(
            "store port={} peer={}: closed: {}",
            endpoint().port(),
            text_of(taken.peer),
            error.message()
        );
        return;
    }
    static_cast<void>(taken.socket.release());
    socket.non_blocking(true, error);
    // From the loop, so that the handler may do what it likes with this server.
    asio::post(
        io_context_,
        [handover, socket = std::move(socket), first = std::move(first)]() mutable {
            handover(std::move(socket), std::move(first));
        }
    );
}

/// The caller may be a member function of the connection: it lives until that has returned.
void StoreServer::Implementation::keep_for_a_while(std::shared_ptr<StoreConnection> connection) {
    if (gone_.empty()) {
        asio::post(io_context_, [weak = weak_from_this()] {
            if (const auto self = weak.lock()) {
                std::vector<std::shared_ptr<StoreConnection>>{}.swap(self->gone_);
            }
        });
    }
    gone_.push_back(std::move(connection));
}

void StoreServer::Implementation::closed(StoreConnection& connection, std::string_view reason) {
    if (!reason.empty()) {
        log_closed(connection, reason);
    }
    deadlines_->clear_all(connection);
    state_.client_gone(connection.id(), Clock::now());
    deadlines_->wake_by(state_.next_expiry());
    counters_.unvalidated -= connection.is_validated() ? 0 : 1;
    const auto found = connections_.find(connection.id());
    keep_for_a_while(std::move(found->second));
    connections_.erase(found);
    counters_.connections = connections_.size();
    note_memory();
    finish_if_empty();
}

/// Nothing of ours keeps the loop from running out of work.
void StoreServer::Implementation::end_waits() {
    readiness_->close();
    deadlines_->close();
    stop_timer_.cancel();
    closed_lines_timer_.cancel();
    trimmer_->close();
    log_closed_rest();
}

void StoreServer::Implementation::log_closed(
    const StoreConnection& connection, std::string_view reason
) {
    const std::optional<std::size_t> left_out =
        log_.enabled(LogLevel::debug) ? 0 : closed_lines_.let_through(Clock::now());
    if (!left_out) {
        log_closed_later();
        return;
    }
    log_.info(
        "store port={} peer={}: closed: {}{}",
        endpoint().port(),
        connection.peer(),
        reason,
        *left_out > 0 ? fmt::format("; before it {} more, without a line each", *left_out) : ""
    );
}

/// What no further line may come to tell.
void StoreServer::Implementation::log_closed_later() {
    if (std::exchange(closed_lines_wait_, true)) {
        return;
    }
    closed_lines_timer_.expires_at(closed_lines_.due());
    closed_lines_timer_.async_wait([weak = weak_from_this()](const error_code& error) {
        const auto self = weak.lock();
        if (self != nullptr) {
            self->closed_lines_wait_ = false;
            if (!error) {
                self->log_closed_rest();
            }
        }
    });
}

void StoreServer::Implementation::log_closed_rest() {
    if (const std::size_t rest = closed_lines_.rest(); rest > 0) {
        log_.info(
            "store port={}: {} more were closed, without a line each", endpoint().port(), rest
        );
    }
}

void StoreServer::Implementation::finish_if_empty() {
    if (done_ && connections_.empty()) {
        end_waits();
        asio::post(io_context_, std::exchange(done_, {}));
    }
}

// ---- deadlines

void StoreServer::Implementation::on_late(StoreConnection& connection, DeadlineQueues::Kind kind) {
    using enum DeadlineQueues::Kind;
    if (kind == progress && connection.is_going_on()) {
        return;
    }
    ++(kind == handshake ? counters_.closed_handshake : counters_.closed_stalled);
    switch (kind) {
        case handshake: connection.close("it didn't say what it is in time"); return;
        case progress: connection.close("no progress in a request or in taking a reply"); return;
        case request: connection.close("a request took too long as a whole"); return;
    }
}

std::optional<DeadlineQueues::Clock::time_point> StoreServer::Implementation::expire(
    Clock::time_point now
) {
    state_.expire(now);
    note_memory();
    return state_.next_expiry();
}

// ---- memory

void StoreServer::Implementation::note_memory() {
    constexpr std::size_t kKeyBytes = 45;  // besides the key and its value
    state_.tidy();
    constexpr std::size_t kConnectionBytes = 500;
    constexpr std::size_t kConnectionPieces = 4;
    const KvCounters& state = state_.counters();
    const std::size_t small = state.keys + state.queues + 2 * state.registrations;
    trimmer_->holds(
        state.bytes + kKeyBytes * small + kConnectionBytes * counters_.connections +
            counters_.partial_bytes + counters_.unsent_bytes,
        small + kConnectionPieces * counters_.connections
    );
}

// ---- the public face

namespace {

Result<std::vector<tcp::acceptor>> open_sockets(
    asio::io_context& io_context, const StoreServerOptions& options
) {
    if (!options.listening.empty()) {
        return adopt_listening(io_context, options.listening);
    }
    if (options.port_range && options.port == Port{0}) {
        return listen_in_range(io_context, options.addresses, *options.port_range);
    }
    return listen_on(io_context, options.addresses, options.port);
}

}  // namespace

Result<std::unique_ptr<StoreServer>> StoreServer::listen(
    asio::io_context& io_context, StoreServerOptions options, Log& log
) {
    raise_descriptor_limit();
    auto acceptors = open_sockets(io_context, options);
    if (!acceptors) {
        return fail(acceptors.error());
    }
    auto readiness = Readiness::open(io_context);
    if (!readiness) {
        return fail(readiness.error());
    }
    auto implementation = std::make_shared<Implementation>(
        io_context, std::move(options), log, std::move(*acceptors), std::move(*readiness)
    );
    implementation->start();
    return std::unique_ptr<StoreServer>{new StoreServer{std::move(implementation)}};
}

StoreServer::StoreServer(std::shared_ptr<Implementation> implementation)
    : implementation_(std::move(implementation)) {}

StoreServer::~StoreServer() {
    implementation_->shut_down();
}

Port StoreServer::port() const {
    return Port{implementation_->endpoint().port()};
}

std::string StoreServer::address() const {
    const asio::ip::address address = implementation_->endpoint().address();
    return address.is_v6() ? fmt::format("[{}]", address.to_string()) : address.to_string();
}

const StoreCounters& StoreServer::counters() const {
    return implementation_->counters();
}

const KvCounters& StoreServer::kv_counters() const {
    return implementation_->kv_counters();
}

void StoreServer::begin_round(std::vector<std::string> addresses) {
    implementation_->begin_round(std::move(addresses));
}

void StoreServer::stop(std::function<void()> done) {
    implementation_->stop(std::move(done));
}

}  // namespace ddprun
