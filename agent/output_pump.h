// The workers' stdout and stderr: pipes that the agent reads, forwarded to our stdout and stderr in
// whole lines and to log files as they are, the end of each stderr kept for the failure report.
// While our reader or the disk is slow the pipes are not read (the workers wait, memory stays
// flat). One pump serves all rounds.
//
// What comes now and then is passed on at once. Pipes that small pieces come from in quick
// succession are looked at together, every limits::kOutputRest, so that thousands of lines a second
// don't cost a wake-up each.
#pragma once

#include "agent/line_splitter.h"
#include "agent/log_files.h"
#include "agent/output_sink.h"
#include "agent/worker_streams.h"
#include "proto/log.h"
#include "proto/result.h"
#include "rendezvous/unique_fd.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <functional>
#include <map>
#include <memory>
#include <string>

namespace ddprun {

struct OutputSettings;

class OutputPump {
public:
    /// The ends that the worker gets.
    struct WorkerEnds {
        UniqueFd out;
        UniqueFd err;
    };

    OutputPump(boost::asio::io_context& io_context, const OutputSettings& settings, Log& log);
    OutputPump(const OutputPump&) = delete;
    OutputPump& operator=(const OutputPump&) = delete;
    ~OutputPump();

    /// Makes the pipes of a worker and begins to read them; where `read_from` has a descriptor it
    /// is read instead, and the worker's end of that stream is none.
    Result<WorkerEnds> add(
        WorkerId worker, const WorkerStreams& streams, WorkerEnds read_from = {}
    );

    /// Takes what the worker's pipes hold now; the last lines of its stderr. For a worker that has
    /// ended.
    std::string take_tail(WorkerId worker);

    /// A worker has ended: its pipes are read for at most kDrainAfterEnd longer.
    void worker_ended(WorkerId worker);

    /// Calls `done` when all pipes are closed and everything is written: pipes that a grandchild
    /// holds are left after kDrainAfterEnd, a disk after kLogFlushAtEnd. A reader of ours that
    /// stands still is waited for, as by any program in a pipe, until hurry() or expect_progress().
    void drain(std::function<void()> done);

    /// From now on a reader that is too slow has kSlowReaderAtEnd at the end of drain(); what it
    /// leaves is counted.
    void hurry();

    /// From now on a reader that takes nothing at all for kSlowReaderAtEnd at the end is left.
    void expect_progress() { expects_progress_ = true; }

    /// Ends what a worker has begun on stderr, for a line of the log to follow.
    void end_line();

    /// Writes lines of our own to stderr, never into a worker's line.
    void write_own(std::string_view text);

private:
    struct Stream;
    struct Worker;

    OutputSink& sink(StreamKind kind);
    ConsoleLine& console(StreamKind kind);
    Result<UniqueFd> open_stream(Stream& stream, UniqueFd read_from);
    void arm(Stream& stream);
    void readable(Stream& stream);
    std::size_t read_once(Stream& stream);
    void rest(Stream& stream);
    void look_at_resting();
    [[nodiscard]] bool held_up(Stream& stream);
    void take(Stream& stream, std::string_view bytes);
    void show(Stream& stream, std::string_view bytes);
    void close(Stream& stream);
    void resume();
    void arm_partials(TimePoint due);
    void show_partials();
    void retire_expired();
    void finish_if_drained();
    [[nodiscard]] bool reader_stands_still();
    void set_drain_timer(std::chrono::milliseconds after);
    [[nodiscard]] bool reader_is_slow() const;
    void give_up();

    boost::asio::io_context& io_context_;
    Log& log_;
    bool same_console_;
    ConsoleLine lines_[2];
    OutputSink sinks_[2];
    LogFiles files_;
    std::string filtered_;           ///< scratch of take() and close()
    std::unique_ptr<char[]> chunk_;  ///< its pages are there once they are used
    std::map<WorkerId, std::unique_ptr<Worker>> workers_;
    boost::asio::steady_timer partial_timer_;
    bool partial_armed_ = false;
    boost::asio::steady_timer rest_timer_;
    bool rest_armed_ = false;
    bool gathering_ = false;  ///< several streams are read before the sinks are flushed
    TimePoint last_read_{};
    boost::asio::steady_timer retire_timer_;
    boost::asio::steady_timer drain_timer_;
    std::function<void()> drained_;
    bool hurried_ = false;
    bool expects_progress_ = false;
    std::uint64_t taken_ = 0;    ///< by our readers, when it was looked at last
    TimePoint last_progress_{};  ///< at the end: when they were seen to have taken something
    bool pipes_given_up_ = false;
    bool files_finishing_ = false;
    bool gone_told_ = false;
};

}  // namespace ddprun
