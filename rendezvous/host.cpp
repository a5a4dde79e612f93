#include "rendezvous/host.h"

#include "rendezvous/agent_session.h"
#include "rendezvous/held_joins.h"
#include "rendezvous/liveness.h"
#include "rendezvous/local_link.h"
#include "rendezvous/membership.h"

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <variant>

namespace ddprun {

namespace asio = boost::asio;
using boost::system::error_code;
using PeerPointer = std::shared_ptr<AgentPeer>;

class RendezvousHost::Implementation final : public AgentPeerOwner,
                                             public std::enable_shared_from_this<Implementation> {
public:
    Implementation(asio::io_context& io_context, RendezvousHostOptions options, Log& log)
        : io_context_(io_context),
          options_(std::move(options)),
          log_(log),
          timer_(io_context),
          began_(std::chrono::steady_clock::now()) {}

    void accept(asio::ip::tcp::socket socket, std::string first_bytes);
    std::unique_ptr<RendezvousLink> local_link();
    void stop(std::function<void()> done);
    void shut();

    void on_message(const PeerPointer& peer, const AgentMessage& message) override;
    void on_closed(const PeerPointer& peer, const Error& reason) override;

    std::function<void()> on_all_jobs_over;
    std::map<JobId, Membership> jobs;

private:
    void on_join(const PeerPointer& peer, const Join& join);
    [[nodiscard]] std::optional<Refused> refusal_of(const Join& join) const;
    void refuse(const PeerPointer& peer, const Refused& refused);
    bool hold_if_taken(const PeerPointer& peer, const Join& join);
    void decline(const HeldJoin& held);
    void give_place(const LiveKey& key);
    void bind(const PeerPointer& peer, const Join& join);
    void feed(const JobId& job, const MembershipEvent& event);
    void perform(const JobId& job, const Actions& actions);
    void perform(const JobId& job, const Send& action);
    void perform(const JobId& job, const Refuse& action);
    void perform(const JobId& job, const Happened& action);
    void perform(const JobId& job, const JobEnded& action);
    [[nodiscard]] PeerPointer peer_of(const LiveKey& key, Incarnation incarnation) const;
    void end_if_over(const JobId& job);
    void finish_stop();
    void arm();
    void on_timer();
    [[nodiscard]] Stamp now() const;

    asio::io_context& io_context_;
    RendezvousHostOptions options_;
    Log& log_;
    asio::steady_timer timer_;
    std::optional<Stamp> armed_for_;
    std::chrono::steady_clock::time_point began_;

    Liveness liveness_;
    std::map<LiveKey, PeerPointer> bound_;  ///< the present connection of each node
    HeldJoins held_;
    std::set<PeerPointer> unjoined_;  ///< TCP connections before their Join
    bool stopping_ = false;
    std::function<void()> stopped_;
};

// ---- connections

void RendezvousHost::Implementation::accept(asio::ip::tcp::socket socket, std::string first_bytes) {
    if (unjoined_.size() >= limits::kUnjoinedConnectionsMax) {
        log_.warning("rendezvous: connection dropped, {} others have not joined", unjoined_.size());
        return;  // the socket closes itself
    }
    const auto session = std::make_shared<AgentSession>(std::move(socket), weak_from_this());
    unjoined_.insert(session);
    session->start(std::move(first_bytes), options_.join_message_timeout);
}

std::unique_ptr<RendezvousLink> RendezvousHost::Implementation::local_link() {
    return make_local_link(io_context_, weak_from_this(), options_.local_address);
}

void RendezvousHost::Implementation::on_closed(const PeerPointer& peer, const Error& reason) {
    unjoined_.erase(peer);
    held_.forget(peer);
    if (!peer->identity) {
        log_.debug("rendezvous: {} closed before it joined: {}", peer->name(), reason.context);
        return;
    }
    const LiveKey key{peer->identity->job, peer->identity->node};
    const auto bound = bound_.find(key);
    if (bound == bound_.end() || bound->second != peer) {
        return;  // another connection has taken its place, or its node has left
    }
    log_.debug("rendezvous: connection of {} closed: {}", key.node, reason.context);
    bound_.erase(bound);
    if (peer->is_local()) {
        // It shares our fate; it has closed on purpose.
        feed(
            key.job,
            {key.node, peer->identity->incarnation, NodeLost{NodeLost::Cause::closed, now()}}
        );
        give_place(key);
    } else {
        liveness_.connection_closed(key, peer->identity->incarnation, now());
    }
    arm();
}

void RendezvousHost::Implementation::on_message(
    const PeerPointer& peer, const AgentMessage& message
) {
    if (const Join* join = std::get_if<Join>(&message)) {
        on_join(peer, *join);
        return;
    }
    if (!peer->identity) {
        refuse(peer, Refused{RefusalReason::malformed, "the first message isn't a join"});
        return;
    }
    const AgentPeer::Identity identity = *peer->identity;
    const LiveKey key{identity.job, identity.node};
    liveness_.heard(key, identity.incarnation, now());
    if (const auto held = held_.refused_by_words(key, now())) {
        decline(*held);
    }
    std::visit(
        [&](const auto& report) {
            using Report = std::decay_t<decltype(report)>;
            if constexpr (!std::is_same_v<Report, Join> && !std::is_same_v<Report, Heartbeat>) {
                feed(identity.job, {identity.node, identity.incarnation, report});
            }
        },
        message
    );
    if (std::holds_alternative<Heartbeat>(message) && !peer->is_local()) {
        peer->send(Ack{});  // acknowledges nothing: we are there
    }
    if (std::holds_alternative<Bye>(message)) {
        liveness_.forget(key, identity.incarnation);
        const auto bound = bound_.find(key);
        if (bound != bound_.end() && bound->second == peer) {
            bound_.erase(bound);
        }
        give_place(key);
    }
    arm();
}

void RendezvousHost::Implementation::on_join(const PeerPointer& peer, const Join& join) {
    if (peer->identity) {
        refuse(peer, Refused{RefusalReason::malformed, "a second join on one connection"});
        return;
    }
    if (const std::optional<Refused> refused = refusal_of(join)) {
        log_.warning("rendezvous: {} refused: {}", join.node, refused->text);
        refuse(peer, *refused);
        return;
    }
    if (hold_if_taken(peer, join)) {
        return;
    }
    // Where one job is served, it is that job which refuses nodes of another: its nodes are told.
    const JobId& id = options_.job ? *options_.job : join.job;
    Membership& job = jobs.try_emplace(id, id, options_.host_name).first->second;
    const MembershipEvent event{join.node, join.incarnation, join};
    const Actions actions = job.step(event, now());
    const auto refused = std::find_if(actions.begin(), actions.end(), [&](const Action& action) {
        const auto* refuse = std::get_if<Refuse>(&action);
        return refuse != nullptr && refuse->node == join.node &&
               refuse->incarnation == join.incarnation;
    });
    if (refused != actions.end()) {
        refuse(peer, std::get<Refuse>(*refused).refused);
        perform(id, actions);
        if (job.state().nodes.empty() && !job.state().spec) {
            jobs.erase(id);  // nobody was ever in it
        }
        arm();
        return;
    }
    bind(peer, join);
    perform(id, actions);
    arm();
}

/// True where the place's present agent must be heard first, or is known to live.
bool RendezvousHost::Implementation::hold_if_taken(const PeerPointer& peer, const Join& join) {
    const LiveKey key{join.job, join.node};
    const auto bound = bound_.find(key);
    if (bound == bound_.end() || bound->second->identity->incarnation == join.incarnation) {
        return false;
    }
    const auto& replaced = jobs.at(join.job).state().replaced;
    if (std::ranges::find(replaced, join.incarnation) != replaced.end()) {
        return false;  // an old self, which the job refuses
    }
    HeldJoin held{peer, join, now()};
    if (bound->second->is_local() || !held_.hold(key, held)) {
        decline(held);
    }
    return true;
}

void RendezvousHost::Implementation::decline(const HeldJoin& held) {
    const Actions actions = jobs.at(held.join.job).decline(held.join, now());
    for (const Action& action : actions) {
        if (const auto* refused = std::get_if<Refuse>(&action)) {
            refuse(held.peer, refused->refused);
        }
    }
    perform(held.join.job, actions);
    arm();
}

void RendezvousHost::Implementation::give_place(const LiveKey& key) {
    if (const auto held = held_.take(key)) {
        on_join(held->peer, held->join);
    }
}

std::optional<Refused> RendezvousHost::Implementation::refusal_of(const Join& join) const {
    const JobId& id = options_.job ? *options_.job : join.job;
    const bool known = jobs.contains(id);
    if (!known && stopping_) {
        return Refused{RefusalReason::job_over, "the rendezvous is stopping"};
    }
    if (!known && jobs.size() >= static_cast<std::size_t>(limits::kJobsMax)) {
        return Refused{
            RefusalReason::foreign_job,
            fmt::format("this rendezvous serves its largest number of jobs, {}", limits::kJobsMax)};
    }
    return std::nullopt;
}

void RendezvousHost::Implementation::refuse(const PeerPointer& peer, const Refused& refused) {
    unjoined_.erase(peer);
    peer->send(refused);
    peer->close();
    if (peer->identity) {
        on_closed(peer, Error{Errc::refused, refused.text});
    }
}

void RendezvousHost::Implementation::bind(const PeerPointer& peer, const Join& join) {
    unjoined_.erase(peer);
    peer->identity = AgentPeer::Identity{join.job, join.node, join.incarnation};
    const LiveKey key{join.job, join.node};
    PeerPointer& bound = bound_[key];
    const PeerPointer former = std::exchange(bound, peer);
    if (former != nullptr) {
        if (former->identity->incarnation != join.incarnation) {
            former->send(Refused{
                RefusalReason::replaced, "a newer agent of this node has taken its place"});
        }
        former->close();
    }
    if (!peer->is_local()) {
        const JobSpec& spec = *jobs.at(join.job).state().spec;
        liveness_.watch(
            key, join.incarnation, {spec.heartbeat_interval, spec.heartbeat_misses}, now()
        );
    }
}

// ---- cores

void RendezvousHost::Implementation::feed(const JobId& job, const MembershipEvent& event) {
    const auto found = jobs.find(job);
    if (found == jobs.end()) {
        return;
    }
    const Actions actions = found->second.step(event, now());
    perform(job, actions);
    end_if_over(job);
    finish_stop();
}

void RendezvousHost::Implementation::perform(const JobId& job, const Actions& actions) {
    for (const Action& action : actions) {
        std::visit([&](const auto& each) { perform(job, each); }, action);
    }
}

PeerPointer RendezvousHost::Implementation::peer_of(const LiveKey& key, Incarnation incarnation)
    const {
    const auto bound = bound_.find(key);
    if (bound == bound_.end() || bound->second->identity->incarnation != incarnation) {
        return nullptr;
    }
    return bound->second;
}

void RendezvousHost::Implementation::perform(const JobId& job, const Send& action) {
    // A node without a connection joins again and is then told again.
    if (const PeerPointer peer = peer_of({job, action.node}, action.incarnation)) {
        peer->send(action.message);
    }
}

void RendezvousHost::Implementation::perform(const JobId& job, const Refuse& action) {
    // The newcomer that this may be about isn't bound, and was refused by on_join.
    if (const PeerPointer peer = peer_of({job, action.node}, action.incarnation)) {
        peer->send(action.refused);
        peer->close();
        bound_.erase({job, action.node});
        liveness_.forget({job, action.node}, action.incarnation);
    }
}

void RendezvousHost::Implementation::perform(const JobId& job, const Happened& action) {
    const bool is_notable =
        action.what == Happened::What::node_lost || action.what == Happened::What::node_refused;
    const LogLevel level = is_notable ? LogLevel::warning : LogLevel::debug;
    if (log_.enabled(level)) {
        log_.write(
            level, fmt::format("rendezvous: job={} round={} {}", job, action.round, action.text)
        );
    }
}

void RendezvousHost::Implementation::perform(const JobId& job, const JobEnded& action) {
    log_.debug("rendezvous: job={} ended status={}", job, action.exit_status);
}

void RendezvousHost::Implementation::end_if_over(const JobId& job) {
    const auto found = jobs.find(job);
    if (found == jobs.end()) {
        return;
    }
    // A job that all nodes have left is forgotten, except the only one that is served: who comes
    // late to it is told that it is over.
    const bool over = found->second.over();
    if (!over) {
        return;
    }
    if (!options_.job) {
        jobs.erase(found);
    }
    const bool all_over =
        std::all_of(jobs.begin(), jobs.end(), [](const auto& each) { return each.second.over(); });
    if (all_over && on_all_jobs_over) {
        asio::post(io_context_, on_all_jobs_over);
    }
}

void RendezvousHost::Implementation::stop(std::function<void()> done) {
    stopping_ = true;
    stopped_ = std::move(done);
    finish_stop();
}

void RendezvousHost::Implementation::finish_stop() {
    if (!stopping_ || !stopped_) {
        return;
    }
    const bool empty = std::all_of(jobs.begin(), jobs.end(), [](const auto& each) {
        return each.second.state().nodes.empty();
    });
    if (empty) {
        timer_.cancel();
        asio::post(io_context_, std::exchange(stopped_, nullptr));
    }
}

void RendezvousHost::Implementation::shut() {
    timer_.cancel();
    on_all_jobs_over = nullptr;
    stopped_ = nullptr;
    for (const auto& [key, peer] : std::exchange(bound_, {})) {
        peer->close();
    }
    for (const PeerPointer& peer : std::exchange(unjoined_, {})) {
        peer->close();
    }
}

// ---- time

Stamp RendezvousHost::Implementation::now() const {
    const auto elapsed = std::chrono::steady_clock::now() - began_;
    return Stamp{std::chrono::duration_cast<std::chrono::milliseconds>(elapsed).count()};
}

void RendezvousHost::Implementation::arm() {
    std::optional<Stamp> earliest = liveness_.deadline();
    for (const auto& [id, job] : jobs) {
        const std::optional<Stamp> deadline = job.deadline();
        if (deadline && (!earliest || *deadline < *earliest)) {
            earliest = deadline;
        }
    }
    // A timer that rings too early costs less than one that is set anew at each heartbeat.
    if (!earliest || (armed_for_ && *armed_for_ <= *earliest)) {
        return;
    }
    armed_for_ = earliest;
    timer_.expires_at(began_ + std::chrono::milliseconds(earliest->value()));
    timer_.async_wait([weak = weak_from_this()](const error_code& error) {
        const auto self = weak.lock();
        if (!error && self != nullptr) {
            self->on_timer();
        }
    });
}

void RendezvousHost::Implementation::on_timer() {
    armed_for_.reset();
    for (const Liveness::Lost& lost : liveness_.expire(now())) {
        if (const PeerPointer peer = peer_of(lost.key, lost.incarnation)) {
            peer->close();
            bound_.erase(lost.key);
        }
        feed(lost.key.job, {lost.key.node, lost.incarnation, lost.lost});
        give_place(lost.key);
    }
    std::vector<JobId> due;
    const Stamp time = now();
    for (const auto& [id, job] : jobs) {
        const std::optional<Stamp> deadline = job.deadline();
        if (deadline && *deadline <= time) {
            due.push_back(id);
        }
    }
    for (const JobId& id : due) {
        feed(id, {NodeId{}, Incarnation{}, DeadlineExpired{}});
    }
    arm();
}

// ---- the public face

RendezvousHost::RendezvousHost(
    asio::io_context& io_context, RendezvousHostOptions options, Log& log
)
    : implementation_(std::make_shared<Implementation>(io_context, std::move(options), log)) {}

RendezvousHost::~RendezvousHost() {
    implementation_->shut();
}

void RendezvousHost::accept(asio::ip::tcp::socket socket, std::string first_bytes) {
    implementation_->accept(std::move(socket), std::move(first_bytes));
}

std::unique_ptr<RendezvousLink> RendezvousHost::local_link() {
    return implementation_->local_link();
}

void RendezvousHost::on_all_jobs_over(std::function<void()> callback) {
    implementation_->on_all_jobs_over = std::move(callback);
}

void RendezvousHost::stop(std::function<void()> done) {
    implementation_->stop(std::move(done));
}

std::size_t RendezvousHost::nodes() const {
    std::size_t count = 0;
    for (const auto& [id, job] : implementation_->jobs) {
        count += job.state().nodes.size();
    }
    return count;
}

const MembershipState* RendezvousHost::job(const JobId& id) const {
    const auto found = implementation_->jobs.find(id);
    return found == implementation_->jobs.end() ? nullptr : &found->second.state();
}

}  // namespace ddprun
