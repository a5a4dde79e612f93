// What a child does between vfork and exec. Internal to ChildBatch.
#pragma once

#include "agent/child_process.h"

#include <sys/types.h>

#include <cstdint>
#include <string_view>
#include <vector>

namespace ddprun {

/// Steps in the child, in order; the names are for messages.
enum class StartStep : std::int32_t {
    process_group,
    death_signal,
    standard_streams,
    terminal,
    close_descriptors,
    pass_descriptors,
    folder,
    cpus,
    memory,
    execute,
};

/// For a message: "enter the folder of".
[[nodiscard]] std::string_view to_string(StartStep step);

/// What a child writes to the batch's pipe; below PIPE_BUF, so records never mix.
struct StartRecord {
    std::int32_t index = 0;
    StartStep step = StartStep::execute;
    std::int32_t error_number = 0;
};

/// In memory that the child shares with its parent: system calls only, and nothing of ours is
/// changed.
class StartSteps {
public:
    StartSteps(
        const ChildSpec& spec, const std::vector<int>& ignored_now, std::int32_t index, int error_fd
    );

    /// Executes the program, or writes a StartRecord to the descriptor for errors and ends.
    [[noreturn]] void become_program() const;

private:
    void lead_a_group() const;
    void die_with_parent() const;
    void connect_streams() const;
    void restore_state() const;
    void bind() const;
    [[noreturn]] void fail_in_child(StartStep step, int error_number) const;

    const ChildSpec& spec_;
    std::vector<char*> argv_;
    std::vector<char*> environment_;
    pid_t parent_;
    std::int32_t index_;
    int error_fd_;
    int memory_mode_;
    std::vector<int> defaulted_;
};

}  // namespace ddprun
