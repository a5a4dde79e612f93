#include "agent/error_file.h"

#include "proto/limits.h"
#include "rendezvous/unique_fd.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace ddprun {

namespace {

using Json = nlohmann::json;

/// The text of a string value; other kinds of values as JSON, nothing for none.
std::string text_of(const Json& object, const char* name) {
    const auto found = object.is_object() ? object.find(name) : object.end();
    if (!object.is_object() || found == object.end() || found->is_null()) {
        return {};
    }
    std::string text = found->is_string()
                           ? found->get<std::string>()
                           : found->dump(-1, ' ', false, Json::error_handler_t::replace);
    text.resize(std::min(text.size(), limits::kTextBytesMax));
    return text;
}

/// A traceback ends with what matters, so it is cut at the front.
std::string last_part(std::string text) {
    if (text.size() > limits::kTextBytesMax) {
        text.erase(0, text.size() - limits::kTextBytesMax);
    }
    return text;
}

}  // namespace

ErrorFileContent parse_error_file(std::string_view text) {
    const Json root = Json::parse(text, nullptr, false);
    if (root.is_discarded() || !root.is_object() || !root.contains("message")) {
        return {.message = "(the worker's error file is damaged)", .traceback = {}};
    }
    const Json& message = root["message"];
    if (!message.is_object()) {
        return {.message = text_of(root, "message"), .traceback = {}};
    }
    ErrorFileContent content{.message = text_of(message, "message"), .traceback = {}};
    const auto extra = message.find("extraInfo");
    if (extra != message.end() && extra->is_object()) {
        const auto stack = extra->find("py_callstack");
        if (stack != extra->end() && stack->is_string()) {
            content.traceback = last_part(stack->get<std::string>());
        }
    }
    return content;
}

std::string with_error_code(std::string_view text, std::int32_t code) {
    Json root = Json::parse(text, nullptr, false);
    if (root.is_discarded() || !root.is_object() || !root.contains("message") ||
        !root["message"].is_object()) {
        return std::string{text};
    }
    root["message"]["errorCode"] = code;
    return root.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string read_error_text(const std::string& path) {
    // Not a device, fifo or link to one: opening it must not hold the agent.
    UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));

    struct stat status {};

    if (!file.valid() || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
        return {};
    }
    std::string text(limits::kErrorFileBytesMax, '\0');
    std::size_t size = 0;
    while (size < text.size()) {
        const ssize_t more = ::read(file.get(), text.data() + size, text.size() - size);
        if (more <= 0) {
            break;
        }
        size += static_cast<std::size_t>(more);
    }
    text.resize(size);
    return text;
}

ErrorFileContent read_error_file(const std::string& path) {
    const std::string text = read_error_text(path);
    return text.empty() ? ErrorFileContent{} : parse_error_file(text);
}

}  // namespace ddprun
