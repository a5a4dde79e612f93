// The user's terminal, while this agent has it: the one worker that may read it gets what the user
// types, and the user's terminal is as it was when the agent ends.
//
// Where standard input and output are a terminal and the worker is the only one, the worker gets
// pseudo-terminals: prompts, line editing, colours and window size work as without ddprun. The
// user's terminal passes every key on then, but Ctrl-C and Ctrl-\ still make signals, which come to
// the agent and stop the job. Elsewhere the worker gets a pipe, and the user's terminal edits
// lines.
//
// The agent has to be the terminal's foreground process group to read it; a job in the background
// leaves the terminal alone, and its workers read nothing. Destroying the object gives the terminal
// back.
#pragma once

#include "agent/pseudo_terminal.h"
#include "proto/result.h"
#include "rendezvous/unique_fd.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <sys/types.h>
#include <termios.h>

#include <optional>
#include <string>

namespace ddprun {

class Terminal {
public:
    /// What a worker gets, close-on-exec: `worker_*` are its ends, `our_*` what we read from.
    struct WorkerEnds {
        UniqueFd input;      ///< its standard input
        UniqueFd error;      ///< its standard error; none: a pipe
        UniqueFd our_out;    ///< of standard input and output together; none: a pipe
        UniqueFd our_error;  ///< of standard error; none: a pipe
    };

    enum class Kind { none, pipe, pseudo_terminal };

    /// Looks at standard input, output and error; nothing is changed.
    explicit Terminal(boost::asio::io_context& io_context);
    Terminal(const Terminal&) = delete;
    Terminal& operator=(const Terminal&) = delete;
    ~Terminal();

    /// What the reading worker should get: a pseudo-terminal only where it `is_alone` and its
    /// output goes to the console; none where standard input is no terminal of ours.
    [[nodiscard]] Kind kind_for(bool is_alone) const;

    /// Standard input is a terminal that another process group has: ours is in the background.
    [[nodiscard]] bool is_of_others() const { return foreground_ > 0 && !is_ours_to_take_; }

    /// Takes the terminal, where that isn't done, and makes a worker's ends. What the user types
    /// goes to the last worker for which this was called.
    Result<WorkerEnds> open(Kind kind);

    /// The user's window has another size.
    void window_changed();

    /// The terminal as it was; nothing is read from it afterwards.
    void give_back();

private:
    void take(Kind kind);
    void read_more();
    void read_once();
    void write_more();
    void close_target();

    boost::asio::posix::stream_descriptor input_;
    boost::asio::posix::stream_descriptor target_;  ///< the worker's standard input
    UniqueFd error_side_;                           ///< of its standard error, for the window size
    std::string queue_;                             ///< typed, not yet taken by the worker
    termios modes_{};                               ///< as they were
    pid_t foreground_ = -1;                         ///< process group that had the terminal
    bool is_ours_to_take_ = false;
    bool output_is_terminal_ = false;
    bool error_is_terminal_ = false;
    bool taken_ = false;
    bool reading_ = false;
    bool writing_ = false;
    bool ended_ = false;  ///< the user has ended the input
};

}  // namespace ddprun
