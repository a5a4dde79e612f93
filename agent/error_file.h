// What a worker says about its own failure: the JSON file that torch's `record` decorator (or any
// program) writes to TORCHELASTIC_ERROR_FILE. Tolerant: whatever is in the file, the agent goes on
// and says what it can.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ddprun {

struct ErrorFileContent {
    std::string message;
    std::string traceback;
};

/// Both known forms: {"message": {"message": ..., "extraInfo": {"py_callstack": ...}}} and
/// {"message": "..."}. Anything else gives a message that says that the file is damaged.
[[nodiscard]] ErrorFileContent parse_error_file(std::string_view text);

/// The file with the worker's exit code in it, as a launcher that was itself started by one leaves
/// it to that one; only the dict form has room for it. `code` is negative for a signal.
[[nodiscard]] std::string with_error_code(std::string_view text, std::int32_t code);

/// The bytes of a regular file, at most kErrorFileBytesMax; empty where there is none.
[[nodiscard]] std::string read_error_text(const std::string& path);

/// Empty where there is no file; at most kErrorFileBytesMax of it are read.
[[nodiscard]] ErrorFileContent read_error_file(const std::string& path);

}  // namespace ddprun
