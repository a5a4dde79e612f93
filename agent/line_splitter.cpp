#include "agent/line_splitter.h"

#include "proto/limits.h"

namespace ddprun {

namespace {

constexpr std::string_view kTimeMacro = "${time}";

}  // namespace

LineSplitter::LineSplitter(Mode mode, std::string_view prefix, ConsoleLine& console)
    : mode_(mode),
      console_(console) {
    for (std::size_t at = prefix.find(kTimeMacro); at != std::string_view::npos;
         at = prefix.find(kTimeMacro)) {
        pieces_.emplace_back(prefix.substr(0, at));
        prefix.remove_prefix(at + kTimeMacro.size());
    }
    pieces_.emplace_back(prefix);
}

void LineSplitter::feed(std::string_view bytes, TimePoint now, std::string& out) {
    if (mode_ == Mode::raw) {
        out += bytes;
        note_passed(bytes);
        return;
    }
    last_bytes_ = now;
    std::size_t end = bytes.find('\n');
    if (end != std::string_view::npos && !partial_.empty()) {
        partial_ += bytes.substr(0, end + 1);
        show_partial(out);
        bytes.remove_prefix(end + 1);
        end = bytes.find('\n');
    }
    while (end != std::string_view::npos) {
        append(bytes.substr(0, end + 1), out);
        bytes.remove_prefix(end + 1);
        end = bytes.find('\n');
    }
    keep(bytes);
    if (partial_.size() > limits::kLineBytesMax) {
        show_partial(out);
    }
}

void LineSplitter::keep(std::string_view rest) {
    if (partial_.empty()) {
        first_bytes_ = last_bytes_;
    }
    redraws_ = redraws_ || rest.find('\r') != std::string_view::npos;
    partial_ += rest;
}

void LineSplitter::note_passed(std::string_view bytes) {
    console_.owner = bytes.empty() || bytes.back() == '\n' ? nullptr : this;
}

std::optional<TimePoint> LineSplitter::due() const {
    if (partial_.empty()) {
        return std::nullopt;
    }
    return (redraws_ ? first_bytes_ : last_bytes_) + limits::kPartialLineSilence;
}

void LineSplitter::show_partial(std::string& out) {
    if (!partial_.empty()) {
        append(partial_, out);
        partial_.clear();
        redraws_ = false;
    }
}

void LineSplitter::finish(std::string& out) {
    show_partial(out);
    if (mode_ == Mode::lines && console_.owner == this) {
        out += '\n';
        console_.owner = nullptr;
    }
}

void LineSplitter::append(std::string_view text, std::string& out) {
    if (console_.owner != this) {
        if (console_.owner != nullptr) {
            out += '\n';
        }
        out += pieces_.front();
        for (std::size_t i = 1; i < pieces_.size(); ++i) {
            out += console_.time;
            out += pieces_[i];
        }
    }
    out += text;
    console_.owner = text.back() == '\n' ? nullptr : this;
}

}  // namespace ddprun
