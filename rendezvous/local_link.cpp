#include "rendezvous/local_link.h"

#include <boost/asio/post.hpp>

#include <utility>

namespace ddprun {

namespace asio = boost::asio;

namespace {

class LocalPeer final : public AgentPeer, public std::enable_shared_from_this<LocalPeer> {
public:
    LocalPeer(
        asio::io_context& io_context, std::weak_ptr<AgentPeerOwner> owner, std::string local_address
    )
        : io_context_(io_context),
          owner_(std::move(owner)),
          local_address_(std::move(local_address)) {}

    // ---- the host's end

    void send(const ServerMessage& message) override {
        post([message](LocalPeer& self) {
            // A copy: the handler may close the link.
            const auto handler = self.handlers_.on_message;
            if (handler) {
                handler(message);
            }
        });
    }

    void close() override {
        post([](LocalPeer& self) { self.host_closed(); });
    }

    [[nodiscard]] const std::string& name() const override { return name_; }

    [[nodiscard]] bool is_local() const override { return true; }

    // ---- the agent's end

    void start(RendezvousLink::Handlers handlers) {
        handlers_ = std::move(handlers);
        post([](LocalPeer& self) {
            const auto handler = self.handlers_.on_connected;
            if (handler) {
                handler(self.local_address_);
            }
        });
    }

    void send_to_host(const AgentMessage& message) {
        post([message](LocalPeer& self) {
            const std::shared_ptr<AgentPeerOwner> owner = self.owner_.lock();
            if (owner != nullptr && !self.host_closed_) {
                owner->on_message(self.shared_from_this(), message);
            }
        });
    }

    void close_from_agent(std::function<void()> done) {
        handlers_ = {};
        post([done = std::move(done)](LocalPeer& self) {
            self.tell_host_closed();
            if (done) {
                done();
            }
        });
    }

    void abandon() {
        handlers_ = {};
        post([](LocalPeer& self) { self.tell_host_closed(); });
    }

private:
    template <class Work>
    void post(Work work) {
        asio::post(io_context_, [self = shared_from_this(), work = std::move(work)] {
            work(*self);
        });
    }

    void tell_host_closed() {
        const std::shared_ptr<AgentPeerOwner> owner = owner_.lock();
        if (owner != nullptr && !std::exchange(host_closed_, true)) {
            owner->on_closed(shared_from_this(), Error{Errc::closed, "the local agent has closed"});
        }
    }

    void host_closed() {
        if (std::exchange(host_closed_, true)) {
            return;
        }
        const auto handler = handlers_.on_disconnected;
        if (handler) {
            handler(Error{Errc::closed, "the rendezvous in this process has closed"});
        }
    }

    asio::io_context& io_context_;
    std::weak_ptr<AgentPeerOwner> owner_;
    std::string local_address_;
    std::string name_ = "the local agent";
    RendezvousLink::Handlers handlers_;  ///< empty before start and after close
    bool host_closed_ = false;
};

class LocalLink final : public RendezvousLink {
public:
    explicit LocalLink(std::shared_ptr<LocalPeer> peer) : peer_(std::move(peer)) {}

    ~LocalLink() override { peer_->abandon(); }

    void start(Handlers handlers) override { peer_->start(std::move(handlers)); }

    void send(const AgentMessage& message) override { peer_->send_to_host(message); }

    void close(std::function<void()> done) override { peer_->close_from_agent(std::move(done)); }

private:
    std::shared_ptr<LocalPeer> peer_;
};

}  // namespace

std::unique_ptr<RendezvousLink> make_local_link(
    asio::io_context& io_context, std::weak_ptr<AgentPeerOwner> owner, std::string local_address
) {
    return std::make_unique<LocalLink>(
        std::make_shared<LocalPeer>(io_context, std::move(owner), std::move(local_address))
    );
}

}  // namespace ddprun
