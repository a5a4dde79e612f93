#include "launcher/meeting.h"

#include "launcher/port_holder.h"
#include "rendezvous/tcp_link.h"

#include <boost/asio/post.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <variant>

namespace ddprun::launcher {

namespace asio = boost::asio;

namespace {

constexpr const char* kLoopback = "127.0.0.1";

bool is_v6(const std::string& address) {
    return address.find(':') != std::string::npos;
}

}  // namespace

std::string published_address(
    const std::vector<std::string>& resolved, const std::vector<std::string>& own, bool everywhere
) {
    std::string best;
    for (const std::string& address : resolved) {
        const bool is_own = is_loopback(address) || std::ranges::find(own, address) != own.end();
        if (is_own && (best.empty() || is_loopback(best))) {
            best = address;
        }
    }
    if (everywhere && (best.empty() || is_loopback(best))) {
        const auto other = std::ranges::find_if_not(own, is_loopback);
        best = other == own.end() ? best : *other;
    }
    return best.empty() ? kLoopback : best;
}

class Meeting::Implementation : public std::enable_shared_from_this<Implementation> {
public:
    Implementation(asio::io_context& io_context, MeetingOptions options, Log& log)
        : io_context_(io_context),
          options_(std::move(options)),
          log_(log) {}

    void start(RendezvousLink::Handlers handlers);
    void send(const AgentMessage& message);
    void close(std::function<void()> done);
    void abandon();
    std::unique_ptr<RendezvousLink> embed(std::string address);

    std::unique_ptr<RendezvousHost> host;
    std::unique_ptr<StoreServer> server;

private:
    bool try_to_host(const std::vector<std::string>& resolved);
    [[nodiscard]] std::string address_for_others(const std::string& local) const;
    [[nodiscard]] Error explained(Error error) const;

    [[nodiscard]] RendezvousLink& active() { return local_ == nullptr ? *remote_ : *local_; }

    asio::io_context& io_context_;
    MeetingOptions options_;
    Log& log_;
    RendezvousLink::Handlers handlers_;
    std::unique_ptr<RendezvousLink> remote_;
    std::unique_ptr<RendezvousLink> local_;
    HostDecision decision_;
    std::optional<Error> trouble_;  ///< of the last attempt to bind
};

std::unique_ptr<RendezvousLink> Meeting::Implementation::embed(std::string address) {
    host = std::make_unique<RendezvousHost>(
        io_context_,
        RendezvousHostOptions{
            .job = options_.job,
            .local_address = std::move(address),
            .host_name = options_.host_name,
        },
        log_
    );
    return host->local_link();
}

void Meeting::Implementation::start(RendezvousLink::Handlers handlers) {
    handlers_ = std::move(handlers);
    TcpLinkOptions options{
        .host = options_.endpoint.host,
        .port = options_.endpoint.port,
        .connect_timeout = options_.join_timeout,
        .lost_timeout = options_.lost_timeout,
        .heartbeat_misses = options_.heartbeat_misses,
    };
    options.superseded = [weak = weak_from_this()](const std::vector<std::string>& addresses) {
        const auto self = weak.lock();
        return self == nullptr || self->try_to_host(addresses);
    };
    remote_ = make_tcp_link(io_context_, std::move(options), log_);
    RendezvousLink::Handlers wrapped = handlers_;
    wrapped.on_connected = [this](const std::string& local) {
        handlers_.on_connected(address_for_others(local));
    };
    wrapped.on_lost = [this](const Error& error) { handlers_.on_lost(explained(error)); };
    remote_->start(std::move(wrapped));
}

/// True where no link to another node is needed any more.
bool Meeting::Implementation::try_to_host(const std::vector<std::string>& resolved) {
    const std::vector<std::string> own = own_addresses();
    decision_ = decide_host(HostFacts{
        .endpoint = options_.endpoint,
        .resolved = resolved,
        .own = own,
        .is_host = options_.is_host,
        .one_node = options_.one_node,
    });
    if (!decision_.hosts) {
        return false;
    }
    StoreServerOptions server_options;
    server_options.addresses = decision_.listen;
    server_options.port = options_.endpoint.port;
    server_options.on_agent =
        [weak = weak_from_this()](asio::ip::tcp::socket socket, std::string first_bytes) {
            const auto self = weak.lock();
            if (self != nullptr && self->host != nullptr) {
                self->host->accept(std::move(socket), std::move(first_bytes));
            }
        };
    auto listening = StoreServer::listen(io_context_, std::move(server_options), log_);
    if (!listening) {
        // Another agent of this machine may be first, or a stranger: the link finds out.
        trouble_ = listening.error();
        return false;
    }
    trouble_.reset();
    server = std::move(*listening);
    local_ = embed(published_address(resolved, own, decision_.listen.empty()));
    log_.info("hosting the rendezvous at {}: {}", to_string(options_.endpoint), decision_.why);
    asio::post(io_context_, [self = shared_from_this()] {
        if (self->local_ != nullptr) {
            self->local_->start(self->handlers_);
        }
    });
    return true;
}

/// Other nodes can't reach a loopback address, even where this one reaches the host by it.
std::string Meeting::Implementation::address_for_others(const std::string& local) const {
    const std::string& host_name = options_.endpoint.host;
    if (!is_loopback(local) || host_name == "localhost" || is_loopback(host_name)) {
        return local;
    }
    const std::vector<std::string> own = own_addresses();
    const auto other = std::ranges::find_if(own, [&](const std::string& address) {
        return !is_loopback(address) && is_v6(address) == is_v6(local);
    });
    return other == own.end() ? local : *other;
}

Error Meeting::Implementation::explained(Error error) const {
    if (trouble_) {
        error.context += fmt::format(
            "; this node hosts, but could not: {}; {}",
            trouble_->context,
            holder_of_port(options_.endpoint.port)
        );
    } else if (!decision_.hosts && !decision_.why.empty()) {
        error.context += fmt::format("; this node doesn't host: {}", decision_.why);
    }
    return error;
}

void Meeting::Implementation::send(const AgentMessage& message) {
    const Join* join = std::get_if<Join>(&message);
    if (join != nullptr && local_ != nullptr && options_.host_is_first && !join->requested_rank) {
        Join first = *join;
        first.requested_rank = GroupRank{0};
        local_->send(first);
        return;
    }
    active().send(message);
}

void Meeting::Implementation::close(std::function<void()> done) {
    active().close(std::move(done));
}

void Meeting::Implementation::abandon() {
    remote_.reset();
    local_.reset();
    handlers_ = {};
}

namespace {

class MeetingLink final : public RendezvousLink {
public:
    explicit MeetingLink(std::shared_ptr<Meeting::Implementation> meeting)
        : meeting_(std::move(meeting)) {}

    ~MeetingLink() override { meeting_->abandon(); }

    void start(Handlers handlers) override { meeting_->start(std::move(handlers)); }

    void send(const AgentMessage& message) override { meeting_->send(message); }

    void close(std::function<void()> done) override { meeting_->close(std::move(done)); }

private:
    std::shared_ptr<Meeting::Implementation> meeting_;
};

}  // namespace

Meeting::Meeting(asio::io_context& io_context, MeetingOptions options, Log& log)
    : implementation_(std::make_shared<Implementation>(io_context, std::move(options), log)) {}

Meeting::~Meeting() {
    implementation_->abandon();
}

std::unique_ptr<RendezvousLink> Meeting::alone() {
    return implementation_->embed(kLoopback);
}

std::unique_ptr<RendezvousLink> Meeting::link() {
    return std::make_unique<MeetingLink>(implementation_);
}

RendezvousHost* Meeting::host() const {
    return implementation_->host.get();
}

StoreServer* Meeting::server() const {
    return implementation_->server.get();
}

}  // namespace ddprun::launcher
