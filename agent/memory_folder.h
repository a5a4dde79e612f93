// A folder in shared memory for what workers leave to their next life on this node (the trainer's
// --memory_checkpoint): it outlives them, and is removed at the agent's end. What an agent left
// that was killed, the next one of the same user removes: memory is not given back by itself.
#pragma once

#include "proto/log.h"

#include <string>

namespace ddprun {

class MemoryFolder {
public:
    /// Below `base`, which is /dev/shm but in tests. Where none can be made, path() is empty;
    /// nobody has asked for it yet, so that isn't worth a line.
    explicit MemoryFolder(Log& log, std::string base = "/dev/shm");
    MemoryFolder(const MemoryFolder&) = delete;
    MemoryFolder& operator=(const MemoryFolder&) = delete;
    /// remove()
    ~MemoryFolder();

    [[nodiscard]] const std::string& path() const { return path_; }

    /// Removes it and all in it.
    void remove();

private:
    void remove_left_behind() const;

    Log& log_;
    std::string base_;
    std::string path_;
};

}  // namespace ddprun
