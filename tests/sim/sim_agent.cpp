#include "tests/sim/sim_agent.h"

#include <signal.h>

#include <algorithm>
#include <utility>
#include <variant>

namespace ddprun::sim {

namespace {

constexpr Round kUnassigned{-1};
constexpr std::int64_t kLostTimeout = 10'000;
constexpr std::int64_t kUserTimeout = 1'500;  // TCP gives up where nothing is acknowledged

AgentCoreSettings settings_of(const Join& join) {
    AgentCoreSettings settings;
    settings.join = join;
    settings.environment.job = join.job;
    settings.group.host = join.info.host;
    settings.group.program = "worker";
    settings.group.grace = std::chrono::milliseconds(500);
    // Different lives behave differently, a seed's always the same.
    settings.group.membership_signal = join.incarnation.value() % 2 == 0 ? SIGUSR1 : 0;
    settings.group.membership_grace = std::chrono::milliseconds(300);
    settings.leaves_on_term =
        join.spec.min_nodes != join.spec.max_nodes && join.incarnation.value() % 3 != 0;
    return settings;
}

}  // namespace

SimAgent::SimAgent(
    World& world, SimHost& host, Network& network, const WorkerHabits& habits, Join join
)
    : world_(world),
      host_(host),
      network_(network),
      habits_(habits),
      join_(std::move(join)),
      core_(settings_of(join_)) {}

void SimAgent::start() {
    world_.tell("{}: the agent starts", name());
    link_deadline_ = world_.now().value() + join_.spec.join_timeout.count();
    connect();
}

// ---- the link

void SimAgent::connect() {
    if (world_.now().value() < network_.blocked_until || !host_.up()) {
        if (world_.now().value() >= link_deadline_) {
            step(agent_event::LinkLost{Error{Errc::timed_out, "nobody answers"}});
            return;
        }
        after(world_.random.between(10, 500), [this] { connect(); });
        return;
    }
    connection_ = std::make_shared<Connection>(world_, network_);
    const std::weak_ptr<Connection> weak = connection_;
    connection_->at_agent = [self = weak_from_this(), weak](const ServerMessage& message) {
        const auto agent = self.lock();
        if (agent == nullptr || agent->connection_ != weak.lock() || agent->crashed_) {
            return;
        }
        agent->final_word_ = agent->final_word_ || std::holds_alternative<EndJob>(message) ||
                             std::holds_alternative<Refused>(message);
        if (const auto* end = std::get_if<EndJob>(&message)) {
            agent->end_ = *end;
        }
        agent->step(agent_event::FromServer{message});
    };
    connection_->agent_sees_end = [self = weak_from_this(), weak] {
        const auto agent = self.lock();
        if (agent != nullptr && agent->connection_ == weak.lock()) {
            agent->on_link_down();
        }
    };
    host_.accept(connection_);
    step(agent_event::LinkUp{"10.0.0.1"});
}

void SimAgent::on_link_down() {
    connection_ = nullptr;
    if (over()) {
        return;
    }
    world_.tell("{}: the connection is gone", name());
    link_deadline_ = world_.now().value() + kLostTimeout;
    step(agent_event::LinkDown{Error{Errc::connection_lost, "gone"}});
    if (!final_word_) {
        after(world_.random.between(0, 5), [this] { connect(); });
    }
}

void SimAgent::cut_connection() {
    if (connection_ != nullptr && !over()) {
        world_.tell("{}: its connection is cut", name());
        connection_->cut();
    }
}

void SimAgent::crash(bool machine_too) {
    if (over()) {
        return;
    }
    world_.tell("{}: the {} dies", name(), machine_too ? "machine" : "agent");
    crashed_ = true;
    for (auto& [id, worker] : workers_) {
        if (std::exchange(worker.alive, false)) {
            host_.broken_rounds.insert(worker.store);
        }
    }
    if (connection_ != nullptr) {
        connection_->agent_died(machine_too);
    }
}

void SimAgent::signal(int number) {
    if (!over()) {
        world_.tell("{}: gets signal {}", name(), number);
        step(agent_event::Signal{number});
    }
}

// ---- the core

TimePoint SimAgent::now() const {
    return TimePoint(std::chrono::milliseconds(world_.now().value()));
}

void SimAgent::after(std::int64_t milliseconds, std::function<void()> what) {
    world_.after(milliseconds, [self = weak_from_this(), what = std::move(what)] {
        const auto agent = self.lock();
        if (agent != nullptr && !agent->over()) {
            what();
        }
    });
}

void SimAgent::step(const AgentEvent& event) {
    if (over()) {
        return;
    }
    for (const AgentAction& action : core_.step(event, now())) {
        perform(action);
    }
    if (!spawned_.empty()) {
        start_workers();
    }
    arm();
}

void SimAgent::arm() {
    const std::optional<TimePoint> deadline = core_.deadline();
    if (!deadline || (armed_for_ && *armed_for_ <= *deadline && *armed_for_ > now())) {
        return;
    }
    armed_for_ = deadline;
    const auto delay = std::chrono::duration_cast<std::chrono::milliseconds>(*deadline - now());
    after(std::max<std::int64_t>(delay.count(), 0), [this, stamp = *deadline] {
        if (armed_for_ != stamp) {
            return;
        }
        armed_for_.reset();
        // A network that is down for long is noticed by the heartbeats that nobody acknowledges.
        if (connection_ != nullptr &&
            network_.blocked_until - world_.now().value() > kUserTimeout) {
            connection_->cut();
        }
        step(agent_event::Tick{});
    });
}

void SimAgent::perform(const AgentAction& action) {
    if (const auto* send = std::get_if<agent_action::Send>(&action)) {
        if (connection_ != nullptr) {
            connection_->to_host(send->message);
        }
    } else if (const auto* bind = std::get_if<agent_action::BindStore>(&action)) {
        const Round round = bind->round;
        const bool fails = world_.random.percent(habits_.store_failures_percent);
        after(world_.random.between(0, 3), [this, round, fails] {
            if (fails) {
                ++failures;
                step(agent_event::StoreFailed{round, Error{Errc::io_error, "no port"}});
            } else {
                step(agent_event::StoreBound{round, host_.fresh_port()});
            }
        });
    } else if (const auto* reach = std::get_if<agent_action::ReachStore>(&action)) {
        after(world_.random.between(0, 3), [this, round = reach->round] {
            step(agent_event::StoreReached{round});
        });
    } else if (const auto* prepare = std::get_if<agent_action::PrepareWorkers>(&action)) {
        store_ = prepare->plan.master_port;
        ++rounds;
    } else if (const auto* spawn = std::get_if<agent_action::Spawn>(&action)) {
        workers_[spawn->id] = Worker{kUnassigned, store_, true, false};
        spawned_.push_back(spawn->id);
    } else if (const auto* assign = std::get_if<agent_action::Assign>(&action)) {
        workers_[assign->id].round = assign->round;
        for (const auto& [id, other] : workers_) {
            world_.require(
                !other.alive || other.round == assign->round || other.round == kUnassigned,
                "{}: a worker of round {} lives beside one of round {}",
                name(),
                other.round,
                assign->round
            );
        }
    } else if (const auto* stop = std::get_if<agent_action::SignalWorker>(&action)) {
        const auto worker = workers_.find(stop->id);
        if (worker != workers_.end() && worker->second.alive && !worker->second.stubborn) {
            after(world_.random.between(0, 30), [this, id = stop->id, number = stop->signal] {
                end_worker(id, ExitStatus::signaled(number, false), false);
            });
        }
    } else if (const auto* kill = std::get_if<agent_action::KillGroup>(&action)) {
        after(1, [this, id = kill->id] {
            end_worker(id, ExitStatus::signaled(SIGKILL, false), false);
        });
    } else if (std::holds_alternative<agent_action::Sweep>(action)) {
        after(world_.random.between(0, 2), [this] { step(agent_event::Swept{}); });
    } else if (const auto* finish = std::get_if<agent_action::Finish>(&action)) {
        exit_status_ = finish->exit_status;
        world_.tell("{}: the agent ends with status {}", name(), finish->exit_status);
        world_.require(workers_alive() == 0, "{}: ends with living workers", name());
        if (connection_ != nullptr) {
            connection_->close_from_agent();
        }
    }
}

// ---- workers

std::int64_t SimAgent::workers_alive() const {
    return std::count_if(workers_.begin(), workers_.end(), [](const auto& each) {
        return each.second.alive;
    });
}

void SimAgent::start_workers() {
    group_event::Started started;
    for (const WorkerId id : std::exchange(spawned_, {})) {
        Worker& worker = workers_[id];
        if (world_.random.percent(habits_.exec_failures_percent)) {
            worker.alive = false;
            ++failures;
            host_.broken_rounds.insert(worker.store);
            started.failures.push_back({id, std::string(kExecuteStep), ENOENT, {}});
            continue;
        }
        started.pids.emplace_back(id, static_cast<std::int32_t>(id.value()) + 100);
        worker.stubborn = world_.random.percent(habits_.stubborn_percent);
        const std::int64_t life = world_.random.between(20, habits_.time_max);
        const bool fails = world_.random.percent(habits_.failures_percent);
        const ExitStatus status = !fails                    ? ExitStatus::exited(0)
                                  : world_.random.one_in(2) ? ExitStatus::exited(3)
                                                            : ExitStatus::signaled(SIGSEGV, true);
        after(life, [this, id, status] { end_worker(id, status, true); });
    }
    after(world_.random.between(0, 4), [this, started] {
        step(agent_event::WorkersStarted{started});
    });
}

void SimAgent::fail_some_worker() {
    for (const auto& [id, worker] : workers_) {
        if (worker.alive) {
            end_worker(id, ExitStatus::exited(1), true);
            return;
        }
    }
}

void SimAgent::end_worker(WorkerId id, ExitStatus status, bool by_itself) {
    const auto worker = workers_.find(id);
    if (worker == workers_.end() || !worker->second.alive) {
        return;
    }
    if (by_itself && status.succeeded() && host_.broken_rounds.contains(worker->second.store)) {
        return;  // it waits for a dead peer until it is stopped
    }
    worker->second.alive = false;
    if (!status.succeeded()) {
        host_.broken_rounds.insert(worker->second.store);
    }
    if (by_itself && !status.succeeded()) {
        ++failures;
        world_.tell("{}: a worker of round {} fails", name(), worker->second.round);
    }
    WorkerEnd end;
    end.id = id;
    end.status = status;
    step(agent_event::WorkerEnded{end});
}

}  // namespace ddprun::sim
