#include "agent/line_filter.h"

#include "proto/limits.h"

#include <algorithm>

namespace ddprun {

LineFilter::LineFilter(std::vector<std::string> texts, std::string prefix)
    : texts_(std::move(texts)),
      prefix_(std::move(prefix)) {}

void LineFilter::feed(std::string_view bytes, std::string& out) {
    if (texts_.empty()) {
        return;
    }
    for (std::size_t end = bytes.find('\n'); end != std::string_view::npos;
         end = bytes.find('\n')) {
        if (partial_.empty()) {
            judge(bytes.substr(0, end + 1), out);
        } else {
            partial_ += bytes.substr(0, end + 1);
            judge(partial_, out);
            partial_.clear();
        }
        bytes.remove_prefix(end + 1);
    }
    partial_ += bytes;
    if (partial_.size() > limits::kLineBytesMax) {
        finish(out);
    }
}

void LineFilter::finish(std::string& out) {
    if (!partial_.empty()) {
        partial_ += '\n';
        judge(partial_, out);
        partial_.clear();
    }
}

void LineFilter::judge(std::string_view line, std::string& out) const {
    const bool matches = std::any_of(texts_.begin(), texts_.end(), [&](const std::string& text) {
        return line.find(text) != std::string_view::npos;
    });
    if (matches) {
        out += prefix_;
        out += line;
    }
}

}  // namespace ddprun
