#include "launcher/man_page.h"

#include "launcher/option_table.h"
#include "proto/exit_codes.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

namespace ddprun::launcher {

namespace {

struct Status {
    int code;
    std::string_view meaning;
};

constexpr auto kStatuses = std::to_array<Status>({
    {exit_code::kSuccess, "Success."},
    {exit_code::kTorchrunFailure, "Any failure, with --exit_code=torchrun."},
    {exit_code::kUsage, "Wrong command line, variable or configuration; nothing was started."},
    {exit_code::kUnavailable, "The endpoint can't be reached, or nobody hosts it."},
    {exit_code::kInternal, "A bug, or the system refused what an agent can't do without."},
    {exit_code::kRendezvousLost, "The rendezvous, or the node that hosts it, was lost."},
    {exit_code::kJoinTimeout, "Not all nodes that the job needs came in time."},
    {exit_code::kRefused, "The rendezvous declined this node."},
    {exit_code::kNotExecutable, "The program is there but can't be executed."},
    {exit_code::kNotFound, "There is no such program."},
});

/// Text as roff shows it unchanged, also at the start of a line.
std::string roff(std::string_view text) {
    std::string result;
    if (text.starts_with('.') || text.starts_with('\'')) {
        result += "\\&";
    }
    for (const char letter : text) {
        switch (letter) {
            case '\\': result += "\\e"; break;
            case '-': result += "\\-"; break;
            case '\'': result += "\\(aq"; break;
            case '`': result += "\\(ga"; break;
            case '^': result += "\\(ha"; break;
            case '~': result += "\\(ti"; break;
            default: result += letter;
        }
    }
    return result;
}

std::string heading_of(const OptionDefinition& option) {
    const std::string value = option.metavar.empty() ? "" : roff(option.metavar);
    std::string text = ".TP\n";
    if (option.short_name != '\0') {
        text += fmt::format("\\fB\\-{}\\fR", option.short_name);
        text += value.empty() ? ", " : fmt::format(" \\fI{}\\fR, ", value);
    }
    text += fmt::format("\\fB\\-\\-{}\\fR", roff(option.name));
    if (!option.alone.empty()) {
        text += fmt::format("[=\\fI{}\\fR]", value);
    } else if (!value.empty()) {
        text += fmt::format(" \\fI{}\\fR", value);
    }
    return text + "\n";
}

std::string options_of(OptionGroup group) {
    std::string text;
    for (const OptionDefinition& option : option_table()) {
        if (option.hidden || option.group != group) {
            continue;
        }
        text += heading_of(option) + roff(option.help) + ".\n";
        if (!option.variable.empty()) {
            text += fmt::format("Variable: \\fB{}\\fR.\n", roff(option.variable));
        }
    }
    return text;
}

constexpr std::string_view kBegin =
    R"(.\" Made by ddprun --print_man from its table of options.
.TH DDPRUN 1 "" "ddprun {0}" "User Commands"
.SH NAME
ddprun \- start and watch the workers of a distributed training job
.SH SYNOPSIS
.B ddprun
[\fIOPTIONS\fR] \fIPROGRAM\fR [\fIARGUMENTS\fR...]
.SH DESCRIPTION
.B ddprun
runs on each node of a job. It meets the other nodes at an endpoint, starts the workers of its own
node with the environment that torchrun gives them, forwards their output, stops and restarts them
together, and reports the first failure of the job.
.PP
A program whose name ends in .py is given to python3, any other is executed, from PATH or from the
folder of
.B ddprun
itself. What follows PROGRAM on the command line reaches it byte for byte.
.SH OPTIONS
Names may be spelled with hyphens and abbreviated; values follow as the next argument or after an
equals sign. The first argument that is no option is PROGRAM; \fB\-\-\fR may stand before it. A
variable gives an option's default, as \fBPET_\fINAME\fR does for torchrun; what the command line
says wins.
)";

constexpr std::string_view kEnd =
    R"(.SH ENVIRONMENT
Besides the variables of the options:
.TP
.B PYTHON_EXEC
The Python that runs .py files and modules, instead of python3.
.TP
.B CUDA_VISIBLE_DEVICES
Cuts down the GPUs that are counted, as CUDA reads it.
.TP
.B OMP_NUM_THREADS
Is passed on; where it is not set the workers get their share of the CPUs that may be used.
.TP
.BR TORCH_ELASTIC_SHUTDOWN_TIMEOUT ", " TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE
Count below the PET_ variables of \-\-shutdown_timeout and \-\-log_line_prefix_template.
.PP
Workers find in their environment what torchrun sets, among it RANK, LOCAL_RANK, WORLD_SIZE,
MASTER_ADDR and MASTER_PORT, and DDPRUN_ROUND, the number of the round.
)";

constexpr std::string_view kExamples =
    R"(.SH EXAMPLES
Four workers on this machine:
.PP
.RS
.EX
ddprun \-\-standalone \-\-nproc_per_node=4 train.py
.EE
.RE
.PP
The same command on each of two nodes:
.PP
.RS
.EX
ddprun \-\-nnodes=2 \-\-nproc_per_node=8 \-\-rdzv_endpoint=node0:29400 train.py
.EE
.RE
)";

}  // namespace

std::string man_page() {
    using enum OptionGroup;
    std::string text = fmt::format(kBegin, DDPRUN_VERSION);
    for (const OptionGroup group : {job, rendezvous, workers, logs, other}) {
        text += fmt::format(".SS {}\n{}", title_of(group), options_of(group));
    }
    text += kEnd;
    text +=
        ".SH EXIT STATUS\nThe first failing worker's own exit status, or 128 + n where signal n "
        "ended it or the job; else:\n";
    for (const Status& status : kStatuses) {
        text += fmt::format(".TP\n.B {}\n{}\n", status.code, roff(status.meaning));
    }
    return text.append(kExamples);
}

}  // namespace ddprun::launcher
