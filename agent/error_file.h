// What a worker says about its own failure: the JSON file that torch's `record` decorator (or any
// program) writes to TORCHELASTIC_ERROR_FILE. Tolerant: whatever is in the file, the agent goes on
// and says what it can.
#pragma once

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

/// Empty where there is no file; at most kErrorFileBytesMax of it are read.
[[nodiscard]] ErrorFileContent read_error_file(const std::string& path);

}  // namespace ddprun
