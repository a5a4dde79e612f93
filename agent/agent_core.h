// An agent's life as a pure core: joins, runs the rounds that it is told, reports with sequence
// numbers and again after a reconnect, answers signals in every phase, ends. No socket, process or
// clock: step(event, now) -> actions, which the Supervisor performs in order.
//
// Signals: HUP, INT, QUIT, TERM (stop signals) end the whole job with 128 + signal; local workers
// get the signal at once, without a way over the network. A second INT kills at once; a second TERM
// changes nothing. All other signals that come here are forwarded. Where the settings say so a TERM
// ends this agent alone, with 143: it stops its workers and says that it leaves.
//
// A rendezvous that was lost may come back knowing nothing. Until then workers run on; then the
// agent claims its place in the round and sends what it reported of that round again.
#pragma once

#include "agent/worker_environment.h"
#include "agent/worker_group.h"
#include "proto/agent_messages.h"
#include "proto/error.h"
#include "proto/limits.h"
#include "proto/log.h"

#include <deque>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace ddprun {

namespace agent_event {

struct LinkUp {
    std::string local_address;
};

struct LinkDown {
    Error reason;
};

struct LinkLost {
    Error reason;
};

struct FromServer {
    ServerMessage message;
};

struct StoreBound {
    Round round;
    Port port;
};

struct StoreFailed {
    Round round;
    Error reason;
    std::int64_t wall_time_ms = 0;
};

/// MASTER_ADDR:MASTER_PORT of the round takes connections.
struct StoreReached {
    Round round;
};

struct StoreUnreachable {
    Round round;
    Error reason;
    std::int64_t wall_time_ms = 0;
};

struct Signal {
    int signal = 0;
};

struct WorkersStarted {
    group_event::Started started;
};

struct WorkerEnded {
    WorkerEnd end;
};

struct WorkerHangs {
    group_event::Hangs hangs;
};

struct Swept {};

struct Tick {};

}  // namespace agent_event

using AgentEvent = std::variant<
    agent_event::LinkUp,
    agent_event::LinkDown,
    agent_event::LinkLost,
    agent_event::FromServer,
    agent_event::StoreBound,
    agent_event::StoreFailed,
    agent_event::StoreReached,
    agent_event::StoreUnreachable,
    agent_event::Signal,
    agent_event::WorkersStarted,
    agent_event::WorkerEnded,
    agent_event::WorkerHangs,
    agent_event::Swept,
    agent_event::Tick>;

namespace agent_action {

struct Send {
    AgentMessage message;
};

struct BindStore {
    Round round;
    std::string address;  ///< the one that we published
};

/// Find out whether another node's worker store can be reached from here, before workers start.
struct ReachStore {
    Round round;
    std::string address;
    Port port;
};

/// Close the worker stores of rounds before `round`.
struct DropStoresBefore {
    Round round;
};

/// A round begins; its workers follow. Folders for error files and logs are made here.
struct PrepareWorkers {
    RoundPlan plan;
    NodePlace place;
};

struct Spawn {
    WorkerId id;
    LocalRank local_rank;
};

/// What Spawn's worker is. All workers of a round are assigned in one list of actions; their exec
/// results come back in one WorkersStarted.
struct Assign {
    WorkerId id;
    Round round;
    WorkerRanks ranks;
    std::vector<std::string> environment;
};

struct SignalWorker {
    WorkerId id;
    int signal = 0;
};

struct KillGroup {
    WorkerId id;
};

/// Await it no longer, and answer WorkerHangs.
struct GiveUp {
    WorkerId id;
};

struct Sweep {};

struct Tell {
    LogLevel level = LogLevel::info;
    std::string text;
};

/// Several lines for people, on stderr after all output of the workers.
struct PrintReport {
    std::string text;
};

/// The last action: flush and close the link, drain the output, end with this status. `outcome` is
/// what the rendezvous said, or what is known here where it could not.
struct Finish {
    int exit_status = 0;
    EndJob outcome;
};

}  // namespace agent_action

using AgentAction = std::variant<
    agent_action::Send,
    agent_action::BindStore,
    agent_action::ReachStore,
    agent_action::DropStoresBefore,
    agent_action::PrepareWorkers,
    agent_action::Spawn,
    agent_action::Assign,
    agent_action::SignalWorker,
    agent_action::KillGroup,
    agent_action::GiveUp,
    agent_action::Sweep,
    agent_action::Tell,
    agent_action::PrintReport,
    agent_action::Finish>;

using AgentActions = std::vector<AgentAction>;

/// HUP, INT, QUIT or TERM.
[[nodiscard]] bool is_stop_signal(int signal);

struct AgentCoreSettings {
    Join join;  ///< who we are; current_round is filled in by the core
    EnvironmentSettings environment;
    GroupSettings group;
    bool leaves_on_term = false;  ///< a TERM ends this agent alone
};

class AgentCore {
public:
    explicit AgentCore(AgentCoreSettings settings);

    [[nodiscard]] AgentActions step(const AgentEvent& event, TimePoint now);

    /// When Tick is due next.
    [[nodiscard]] std::optional<TimePoint> deadline() const;

    /// Finish was given; nothing is to follow.
    [[nodiscard]] bool finished() const { return finished_; }

private:
    /// How the job ends here, once that is known; carried out when no worker is alive.
    struct Ending {
        EndJob outcome;
        bool is_reported = false;  ///< on stderr
        bool of_spare = false;     ///< whose own status is 0, whatever the job's is
    };

    struct PendingRound {
        RoundPlan plan;
        NodePlace place;
        bool reached = false;  ///< its store answers from here
        bool stopped =
            false;  ///< before it began; still to be answered when the old workers are gone
    };

    struct Report {
        std::uint64_t sequence = 0;
        AgentMessage message;
        bool acknowledged = false;
    };

    void on(const agent_event::LinkUp& event);
    void on(const agent_event::LinkDown& event);
    void on(const agent_event::LinkLost& event);
    void on(const agent_event::FromServer& event);
    void on(const agent_event::StoreBound& event);
    void on(const agent_event::StoreFailed& event);
    void on(const agent_event::StoreReached& event);
    void on(const agent_event::StoreUnreachable& event);
    void on(const agent_event::Signal& event);
    void on(const agent_event::WorkersStarted& event);
    void on(const agent_event::WorkerEnded& event);
    void on(const agent_event::WorkerHangs& event);
    void on(const agent_event::Swept& event);
    void on(const agent_event::Tick& event);

    void take(const Welcome& message);
    void take(const Refused& message);
    void take(const Waiting& message);
    void take(const PrepareRound& message);
    void take(const BeginRound& message);
    void take(const StopRound& message);
    void take(const Ack& message);
    void take(const EndJob& message);

    void take_stop_signal(int signal);
    void leave(int signal);
    [[nodiscard]] std::optional<RoundClaim> claim() const;
    [[nodiscard]] std::optional<Round> newest_round() const;
    void try_begin();
    void begin_round(PendingRound round);
    void report_store_trouble(Round round, const Error& reason, std::int64_t wall_time_ms);
    void step_group(const GroupEvent& event);
    void perform(const GroupActions& group_actions);
    void perform(const group_action::Spawn& action);
    void perform(const group_action::Assign& action);
    void perform(const group_action::SignalWorker& action);
    void perform(const group_action::KillGroup& action);
    void perform(const group_action::GiveUp& action);
    void perform(const group_action::Sweep& action);
    void perform(const group_action::Failed& action);
    void perform(const group_action::Succeeded& action);
    void perform(const group_action::Stopped& action);

    [[nodiscard]] Ending left_job() const;
    void end_without_word(int exit_status, std::string reason, int stop_signal);
    void end_with(Ending ending, int stop_signal);
    void finish_if_over();
    [[nodiscard]] bool workers_present() const;

    template <class Body>
    void report(Body message);
    void send(AgentMessage message);
    void tell(LogLevel level, std::string text);

    AgentCoreSettings settings_;
    TimePoint now_{};
    AgentActions actions_;

    std::string address_;  ///< published in Join
    bool link_up_ = false;
    bool welcomed_ = false;  ///< on the present connection
    bool ever_welcomed_ = false;
    bool is_spare_ = false;
    bool is_away_ = false;  ///< from the rendezvous, which was told
    std::chrono::milliseconds heartbeat_interval_{1'000};
    std::optional<TimePoint> next_heartbeat_;
    std::uint64_t last_sequence_ = 0;
    /// Those that the rendezvous hasn't acknowledged, and all of the present round.
    std::deque<Report> reports_;
    std::string rendezvous_host_;  ///< as the rendezvous says
    bool job_began_ = false;       ///< a round has begun, here or without us

    std::optional<Round> prepared_;     ///< the newest round whose store was asked for
    std::optional<Round> newest_seen_;  ///< the newest round that began or was stopped here
    std::optional<WorkerGroup> group_;
    std::optional<RoundPlan> plan_;
    NodePlace place_;
    std::optional<PendingRound> pending_;
    std::uint64_t next_worker_id_ = 1;

    int stop_signal_ = 0;  ///< the first stop signal that we got
    bool leaving_ = false;
    int interrupts_ = 0;
    std::optional<TimePoint> give_up_;  ///< when to end without hearing from the rendezvous
    std::optional<Ending> ending_;
    bool job_over_ = false;  ///< the rendezvous said so; it needs no report but Bye
    bool finished_ = false;
};

template <class Body>
void AgentCore::report(Body message) {
    message.sequence = SequenceNumber{++last_sequence_};
    if (reports_.size() == limits::kUnacknowledgedMax) {
        reports_.pop_front();
    }
    reports_.push_back(Report{last_sequence_, message, false});
    if (welcomed_) {
        send(std::move(message));
    }
}

}  // namespace ddprun
