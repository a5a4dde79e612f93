// The program's Log: lines on stderr by spdlog, which only the source file of this header knows.
#pragma once

#include "proto/log.h"
#include "proto/result.h"

#include <memory>
#include <string>
#include <string_view>

namespace ddprun::launcher {

/// Lines like "[ddprun 05:44:55.123 W] text" on stderr, from `level` on. `name` is the program's.
[[nodiscard]] std::unique_ptr<Log> make_stderr_log(std::string_view name, LogLevel level);

/// A Log whose file may be moved away while it is written.
class FileLog : public Log {
public:
    /// Goes on in a fresh file of the same name. Errors: io_error; the old file is kept then.
    [[nodiscard]] virtual Result<void> reopen() = 0;
};

/// The same lines with dates, appended to the file. Errors: io_error with the path.
[[nodiscard]] Result<std::unique_ptr<FileLog>> make_file_log(
    std::string_view name, LogLevel level, const std::string& path
);

}  // namespace ddprun::launcher
