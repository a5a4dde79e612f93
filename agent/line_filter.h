// Which whole lines of a stream contain one of some texts, as a pure core: torchrun's
// --duplicate_stdout_filters. A line longer than limits::kLineBytesMax is judged in pieces.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

class LineFilter {
public:
    /// Without texts no line matches. `prefix` is put before each line that does.
    LineFilter(std::vector<std::string> texts, std::string prefix);

    /// Takes what a worker wrote and appends the lines that match to `out`.
    void feed(std::string_view bytes, std::string& out);

    /// The stream has ended: judges an unfinished line, which is ended where it matches.
    void finish(std::string& out);

private:
    void judge(std::string_view line, std::string& out) const;

    std::vector<std::string> texts_;
    std::string prefix_;
    std::string partial_;
};

}  // namespace ddprun
