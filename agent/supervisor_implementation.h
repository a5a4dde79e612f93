// The inside of Supervisor, for its two sources: supervisor.cpp has the link, the front and the
// end, supervisor_workers.cpp the workers. Nothing else includes it.
#pragma once

#include "agent/agent_core.h"
#include "agent/agent_settings.h"
#include "agent/child_process.h"
#include "agent/job_folder.h"
#include "agent/job_report.h"
#include "agent/memory_folder.h"
#include "agent/out_of_memory.h"
#include "agent/output_pump.h"
#include "agent/signal_inbox.h"
#include "agent/store_probe.h"
#include "agent/supervisor.h"
#include "agent/sweeper.h"
#include "agent/terminal.h"
#include "agent/worker_cgroup.h"
#include "rendezvous/unique_fd.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <sys/types.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace ddprun {

class Supervisor::Implementation {
public:
    Implementation(
        boost::asio::io_context& io_context,
        AgentSettings settings,
        std::unique_ptr<RendezvousLink> link,
        Log& log
    );
    Implementation(const Implementation&) = delete;
    Implementation& operator=(const Implementation&) = delete;
    ~Implementation();

    void run(std::function<void(int)> done);

private:
    struct Worker {
        LocalRank local_rank;
        std::optional<agent_action::Assign> assignment;  ///< until it is started
        std::string error_file;
        std::unique_ptr<ChildProcess> child;
        double started = 0;   ///< seconds after the boot
        bool killed = false;  ///< by us
    };

    void step(const AgentEvent& event);
    void perform(const agent_action::Send& action);
    void perform(const agent_action::BindStore& action);
    void perform(const agent_action::ReachStore& action);
    void perform(const agent_action::DropStoresBefore& action);
    void perform(const agent_action::PrepareWorkers& action);
    void perform(const agent_action::Spawn& action);
    void perform(agent_action::Assign& action);
    void perform(const agent_action::SignalWorker& action);
    void perform(const agent_action::KillGroup& action);
    void perform(const agent_action::GiveUp& action);
    void perform(const agent_action::Sweep& action);
    void perform(const agent_action::Tell& action);
    void perform(const agent_action::PrintReport& action);
    void perform(const agent_action::Finish& action);

    void arm_timer();
    void start_assigned();
    Result<void> start(WorkerId id, Worker& worker);
    [[nodiscard]] bool reads_input(const Worker& worker) const;
    Result<Terminal::WorkerEnds> terminal_of(const Worker& worker);
    void results_known(const std::vector<StartError>& errors);
    void worker_ended(WorkerId id, ExitStatus status);
    void watch_front();
    [[noreturn]] void end_with_front();
    [[nodiscard]] std::set<pid_t> owned_children() const;
    void write_report(const EndJob& outcome);
    void hand_on_error_file(const EndJob& outcome);
    void finish_step();

    boost::asio::io_context& io_context_;
    AgentSettings settings_;
    std::unique_ptr<RendezvousLink> link_;
    Log& log_;
    Terminal terminal_;
    SignalInbox signals_;
    JobFolder folder_;
    MemoryFolder memory_;
    OutputPump pump_;
    AgentCore core_;
    boost::asio::steady_timer timer_;
    std::optional<TimePoint> timer_due_;
    UniqueFd null_;

    std::optional<RoundPlan> plan_;
    std::map<WorkerId, Worker> workers_;
    OutOfMemoryWatch out_of_memory_ = OutOfMemoryWatch::of_machine();
    std::set<pid_t> hung_;  ///< lived on after SIGKILL and were given up
    bool assigned_ = false;
    std::unique_ptr<ChildBatch> batch_;
    std::vector<WorkerId> batch_ids_;  ///< by index of the batch
    std::vector<StartFailure> start_failures_;
    std::map<Round, std::shared_ptr<void>> stores_;
    std::unique_ptr<StoreProbe> probe_;  ///< of another node's store, before a round

    WorkerCgroup cgroup_;
    Sweeper sweeper_;
    boost::asio::posix::stream_descriptor front_;

    std::int64_t started_ms_ = 0;
    std::string handed_on_path_;  ///< this launcher's own error file, where it was given one
    /// What failed workers of the newest round left as error files, by their pids.
    std::map<std::int32_t, std::string> error_files_;
    std::vector<ReportedRound> rounds_;
    std::string report_;
    int exit_status_ = 0;
    int finish_waits_ = 0;
    std::function<void(int)> done_;
};

}  // namespace ddprun
