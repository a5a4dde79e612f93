// The workers of one round on this node, as a pure core: what to start, whose failure is the first,
// whom to stop and when to stop asking. One group lives for one round:
//
//   spawning --all executed--> running --failure, stop--> stopping --all dead--> sweeping ->
//   stopped
//       \--one not executed------------------------------/   (a group that succeeded stays running
//                                                             until it is stopped)
//
// The first failure wins. Workers are stopped with one signal to all at once and killed, with
// everything in their process groups, when the grace time is over; one that lives on even then
// hangs in the kernel and is given up, so that the agent can end. Ends that arrive before the
// results of exec are held back, so that a failed exec is never taken for an exit code.
#pragma once

#include "agent/exit_status.h"
#include "proto/agent_messages.h"
#include "proto/failure.h"
#include "proto/round_plan.h"
#include "proto/types.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace ddprun {

/// One life of a worker process, unique within an agent. It isn't a rank: that is assigned to it.
using WorkerId = Strong<struct WorkerIdTag, std::uint64_t>;

using TimePoint = std::chrono::steady_clock::time_point;

/// The step of a start in which the program itself can't be executed; the others fail for reasons
/// of this machine.
inline constexpr std::string_view kExecuteStep = "execute";

/// Why a worker could not be started.
struct StartFailure {
    WorkerId id;
    std::string step;       ///< what failed: kExecuteStep, "fork", ...
    int error_number = 0;   ///< errno, where the child reported it
    std::string message{};  ///< instead of errno's words

    friend bool operator==(const StartFailure&, const StartFailure&) = default;
};

/// What a worker's end left to know.
struct WorkerEnd {
    WorkerId id;
    ExitStatus status;
    std::int64_t wall_time_ms = 0;
    bool out_of_memory = false;
    std::string message;    ///< of its error file
    std::string traceback;  ///< of its error file
    std::string stderr_tail;

    friend bool operator==(const WorkerEnd&, const WorkerEnd&) = default;
};

namespace group_event {

/// Exec results of all spawned workers, in one event: `pids` of those that were forked.
struct Started {
    std::vector<std::pair<WorkerId, std::int32_t>> pids;
    std::vector<StartFailure> failures;
    std::int64_t wall_time_ms = 0;
};

struct Ended {
    WorkerEnd end;
};

/// Stop with `signal`; the grace time runs from the first stop on.
struct Stop {
    enum class Origin {
        failure,     ///< of a worker or a node
        membership,  ///< nodes come or go: workers may save first, where they are given a signal
                     ///< and time for that
        user,        ///< the job is stopped by a signal: whoever exits then does as it was asked
    };

    int signal = 0;
    Origin origin = Origin::failure;
};

/// Kill whatever is alive, now.
struct Kill {};

/// Pass a signal on; the group goes on.
struct Forward {
    int signal = 0;
};

/// Answer to GiveUp: the worker lives on after SIGKILL. `where` says what the kernel does with it.
struct Hangs {
    WorkerId id;
    std::string where;
    std::int64_t wall_time_ms = 0;
};

/// Nothing that the workers left behind is alive.
struct Swept {};

/// Time has passed.
struct Tick {};

}  // namespace group_event

using GroupEvent = std::variant<
    group_event::Started,
    group_event::Ended,
    group_event::Stop,
    group_event::Kill,
    group_event::Forward,
    group_event::Hangs,
    group_event::Swept,
    group_event::Tick>;

namespace group_action {

struct Spawn {
    WorkerId id;
    LocalRank local_rank;
    friend bool operator==(const Spawn&, const Spawn&) = default;
};

struct Assign {
    WorkerId id;
    Round round;
    WorkerRanks ranks;
    friend bool operator==(const Assign&, const Assign&) = default;
};

/// To the worker itself.
struct SignalWorker {
    WorkerId id;
    int signal = 0;
    friend bool operator==(const SignalWorker&, const SignalWorker&) = default;
};

/// SIGKILL to the worker's whole process group.
struct KillGroup {
    WorkerId id;
    friend bool operator==(const KillGroup&, const KillGroup&) = default;
};

/// It has not died of SIGKILL for kKillTimeMax: find out where it hangs, await it no longer, and
/// answer Hangs.
struct GiveUp {
    WorkerId id;
    friend bool operator==(const GiveUp&, const GiveUp&) = default;
};

/// Kill what ended workers left behind, then report Swept.
struct Sweep {
    friend bool operator==(const Sweep&, const Sweep&) = default;
};

/// The first failure: to be reported before the others are stopped.
struct Failed {
    WorkerFailure failure;
    friend bool operator==(const Failed&, const Failed&) = default;
};

struct Succeeded {
    friend bool operator==(const Succeeded&, const Succeeded&) = default;
};

struct Stopped {
    std::vector<WorkerFailure> later_failures;
    std::vector<StoppedWorker> stopped{};
    friend bool operator==(const Stopped&, const Stopped&) = default;
};

}  // namespace group_action

using GroupAction = std::variant<
    group_action::Spawn,
    group_action::Assign,
    group_action::SignalWorker,
    group_action::KillGroup,
    group_action::GiveUp,
    group_action::Sweep,
    group_action::Failed,
    group_action::Succeeded,
    group_action::Stopped>;

using GroupActions = std::vector<GroupAction>;

struct GroupSettings {
    std::string host;
    std::string program;  ///< for messages
    std::chrono::milliseconds grace{30'000};
    int membership_signal = 0;  ///< before the stop for a change of nodes; 0: none
    std::chrono::milliseconds membership_grace{10'000};  ///< from that signal to the stop
};

class WorkerGroup {
public:
    enum class State : std::uint8_t { spawning, running, stopping, sweeping, stopped };

    /// `first_id` and the numbers after it become the workers' ids.
    WorkerGroup(
        const RoundPlan& plan, const NodePlace& place, GroupSettings settings, WorkerId first_id
    );

    /// The actions that start it. Once, before any event.
    [[nodiscard]] GroupActions begin(TimePoint now);

    [[nodiscard]] GroupActions step(const GroupEvent& event, TimePoint now);

    [[nodiscard]] State state() const { return state_; }

    [[nodiscard]] Round round() const { return round_; }

    /// When Tick is due.
    [[nodiscard]] std::optional<TimePoint> deadline() const {
        return notice_until_ ? notice_until_ : deadline_;
    }

    /// All workers have ended with 0, and nothing has stopped the group since.
    [[nodiscard]] bool succeeded() const { return success_reported_; }

    [[nodiscard]] std::size_t size() const { return workers_.size(); }

    /// Workers that have not ended.
    [[nodiscard]] std::size_t alive() const;

private:
    struct Worker {
        WorkerId id;
        WorkerRanks ranks;
        std::int32_t pid = 0;
        TimePoint started;
        bool ended = false;
        bool failed_start = false;
        int signaled_with = 0;  ///< the last signal by which we asked it to stop
        bool killed = false;
    };

    void on(const group_event::Started& event, TimePoint now, GroupActions& actions);
    void on(const group_event::Ended& event, TimePoint now, GroupActions& actions);
    void on(const group_event::Stop& event, TimePoint now, GroupActions& actions);
    void on(const group_event::Kill& event, TimePoint now, GroupActions& actions);
    void on(const group_event::Forward& event, TimePoint now, GroupActions& actions);
    void on(const group_event::Hangs& event, TimePoint now, GroupActions& actions);
    void on(const group_event::Swept& event, TimePoint now, GroupActions& actions);
    void on(const group_event::Tick& event, TimePoint now, GroupActions& actions);

    Worker* find(WorkerId id);
    void take_end(const WorkerEnd& end, TimePoint now, GroupActions& actions);
    void take_failure(WorkerFailure failure, TimePoint now, GroupActions& actions);
    void give_notice(TimePoint now, GroupActions& actions);
    void stop_all(int signal, TimePoint now, GroupActions& actions);
    void kill_all(TimePoint now, GroupActions& actions);
    void give_up_all(GroupActions& actions);
    void settle(GroupActions& actions);
    [[nodiscard]] bool was_stopped_by_us(const Worker& worker, const ExitStatus& status) const;
    [[nodiscard]] WorkerFailure describe(const Worker& worker) const;
    [[nodiscard]] WorkerFailure failure_of(
        const Worker& worker, const WorkerEnd& end, TimePoint now
    ) const;
    [[nodiscard]] WorkerFailure failure_of(
        const Worker& worker, const StartFailure& start, std::int64_t wall_time_ms
    ) const;

    Round round_;
    GroupSettings settings_;
    std::vector<Worker> workers_;
    State state_ = State::spawning;
    std::optional<TimePoint> deadline_;
    std::optional<TimePoint> notice_until_;  ///< whoever ends before has done as it was asked
    std::vector<WorkerEnd> held_ends_;
    std::vector<int> held_signals_;
    bool stop_requested_ = false;
    bool stopped_by_user_ = false;
    bool failed_ = false;
    bool success_reported_ = false;
    bool killed_ = false;
    std::vector<WorkerFailure> later_failures_;
    std::vector<StoppedWorker> stopped_;
};

}  // namespace ddprun
