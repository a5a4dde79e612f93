// The part of an agent's core that answers signals and ends.
#include "agent/agent_core.h"
#include "agent/exit_status.h"
#include "agent/failure_report.h"
#include "proto/exit_codes.h"

#include <fmt/format.h>

#include <signal.h>

#include <utility>

namespace ddprun {

bool is_stop_signal(int signal) {
    return signal == SIGHUP || signal == SIGINT || signal == SIGQUIT || signal == SIGTERM;
}

// ---- signals
// -------------------------------------------------------------------------------------

void AgentCore::on(const agent_event::Signal& event) {
    if (is_stop_signal(event.signal)) {
        take_stop_signal(event.signal);
    } else {
        step_group(group_event::Forward{event.signal});
    }
}

void AgentCore::take_stop_signal(int signal) {
    interrupts_ += signal == SIGINT ? 1 : 0;
    const bool kill_now = signal == SIGINT && interrupts_ > 1;
    if (stop_signal_ != 0) {
        if (kill_now) {
            tell(LogLevel::warning, "interrupted again, killing the workers");
            step_group(group_event::Kill{});
            give_up_ = now_ + limits::kGiveUpAfterKill;
        } else if (signal == SIGINT) {
            step_group(group_event::Stop{signal, group_event::Stop::Origin::user});
        }
        return;
    }
    stop_signal_ = signal;
    if (signal == SIGTERM && settings_.leaves_on_term && welcomed_ && !ending_) {
        leave(signal);
        return;
    }
    tell(LogLevel::warning, fmt::format("got {}, stopping the job", signal_name(signal)));
    step_group(group_event::Stop{signal, group_event::Stop::Origin::user});
    if (ending_) {
        return;
    }
    if (!welcomed_) {
        // Nobody to tell: the rendezvous will see us leave.
        end_without_word(
            exit_code::from_signal(signal),
            fmt::format("stopped by {} before the job began", signal_name(signal)),
            signal
        );
        return;
    }
    report(StopJob{.sequence = {}, .signal = signal});
    // Other nodes' workers have the same grace time; after that somebody is not there any more.
    give_up_ = now_ + (group_ ? settings_.group.grace : std::chrono::milliseconds(0)) +
               limits::kGiveUpAfterStop;
}

void AgentCore::leave(int signal) {
    leaving_ = true;
    tell(
        LogLevel::warning,
        fmt::format("got {}, leaving the job; the other nodes go on", signal_name(signal))
    );
    report(Leave{.sequence = {}, .signal = signal});
    if (pending_) {
        const Round round = pending_->plan.round;
        pending_.reset();
        report(RoundStopped{.sequence = {}, .round = round, .later_failures = {}});
    }
    if (workers_present()) {
        step_group(group_event::Stop{signal, group_event::Stop::Origin::membership});
    } else {
        ending_ = left_job();
    }
}

// ---- the end
// -------------------------------------------------------------------------------------

void AgentCore::take(const EndJob& message) {
    if (ending_) {
        return;
    }
    job_over_ = true;
    const bool failed = message.exit_status != exit_code::kSuccess;
    Ending ending{message, failed && !leaving_, false};
    if (is_spare_ && failed && stop_signal_ == 0) {
        ending.is_reported = false;
        ending.of_spare = true;
        tell(
            LogLevel::info,
            fmt::format(
                "the job has ended with status {}, this node was a spare to the end: {}",
                message.exit_status,
                message.reason
            )
        );
    }
    if (leaving_) {
        ending.outcome.exit_status = exit_code::from_signal(stop_signal_);
    }
    end_with(std::move(ending), SIGTERM);
}

void AgentCore::end_without_word(int exit_status, std::string reason, int stop_signal) {
    Ending ending;
    ending.outcome.exit_status = exit_status;
    ending.outcome.reason = std::move(reason);
    end_with(std::move(ending), stop_signal);
}

AgentCore::Ending AgentCore::left_job() const {
    Ending ending;
    ending.outcome.exit_status = exit_code::from_signal(stop_signal_);
    ending.outcome.reason = fmt::format("left the job on {}", signal_name(stop_signal_));
    return ending;
}

void AgentCore::end_with(Ending ending, int stop_signal) {
    ending_ = std::move(ending);
    pending_.reset();
    if (workers_present() && group_->state() < WorkerGroup::State::stopping) {
        step_group(group_event::Stop{stop_signal});
    }
}

void AgentCore::finish_if_over() {
    if (!ending_ || workers_present() || finished_) {
        return;
    }
    if (job_over_ || leaving_) {
        report(Bye{});
    }
    const EndJob& outcome = ending_->outcome;
    if (ending_->is_reported) {
        actions_.emplace_back(agent_action::PrintReport{
            format_failure_report(settings_.join.job, outcome)});
    }
    finished_ = true;
    const int exit_status = ending_->of_spare ? exit_code::kSuccess : outcome.exit_status;
    actions_.emplace_back(agent_action::Finish{exit_status, outcome});
}

}  // namespace ddprun
