#include "tests/support/command.h"

#include "tests/support/system.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <stdexcept>

namespace ddprun::test {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kMarkName = "DDPRUN_TEST_MARK=";

int open_pidfd(pid_t pid) {
    return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
}

int milliseconds_until(Clock::time_point when) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(when - Clock::now()).count();
    return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
}

/// The fields of /proc/PID/stat after the command's name: state, parent, ...; empty for none.
std::string stat_after_name(pid_t pid) {
    const std::string stat = read_file(fmt::format("/proc/{}/stat", pid));
    const std::size_t end = stat.rfind(')');
    return end == std::string::npos || end + 2 > stat.size() ? std::string{} : stat.substr(end + 2);
}

bool is_alive(pid_t pid) {
    const std::string stat = stat_after_name(pid);
    return !stat.empty() && stat[0] != 'Z' && stat[0] != 'X';
}

std::vector<pid_t> all_pids() {
    std::vector<pid_t> pids;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
        const std::string name = entry.path().filename();
        if (name.find_first_not_of("0123456789") == std::string::npos) {
            pids.push_back(static_cast<pid_t>(std::stol(name)));
        }
    }
    std::sort(pids.begin(), pids.end());
    return pids;
}

bool carries(pid_t pid, const std::string& mark) {
    std::string environment(1, '\0');
    environment += read_file(fmt::format("/proc/{}/environ", pid));
    environment.push_back('\0');
    std::string needle(1, '\0');
    needle += mark;
    needle.push_back('\0');
    return environment.find(needle) != std::string::npos;
}

std::string fresh_mark() {
    static std::atomic<int> count{0};
    return fmt::format(
        "{}{}-{}-{}", kMarkName, ::getpid(), ++count, Clock::now().time_since_epoch().count()
    );
}

std::vector<std::string> merged_environment(
    const CommandOptions& options, const std::string& mark
) {
    const auto name_of = [](const std::string& entry) { return entry.substr(0, entry.find('=')); };
    std::vector<std::string> added = options.env;
    added.push_back(mark);
    std::vector<std::string> merged;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string name = name_of(*entry);
        const bool replaced = std::any_of(added.begin(), added.end(), [&](const std::string& a) {
            return name_of(a) == name;
        });
        const auto& unset = options.unset_env;
        if (!replaced && std::find(unset.begin(), unset.end(), name) == unset.end()) {
            merged.emplace_back(*entry);
        }
    }
    merged.insert(merged.end(), added.begin(), added.end());
    return merged;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
    std::vector<char*> result;
    for (std::string& string : strings) {
        result.push_back(string.data());
    }
    result.push_back(nullptr);
    return result;
}

void make_pipe(int (&fds)[2]) {
    if (::pipe2(fds, O_CLOEXEC) != 0) {
        throw std::runtime_error(fmt::format("pipe: {}", std::strerror(errno)));
    }
}

/// The `occurrence`-th whole line of `text` that contains `needle`; `occurrence` counts down over
/// several texts.
std::optional<std::string> find_line(
    const std::string& text, std::string_view needle, int& occurrence
) {
    std::size_t begin = 0;
    for (std::size_t end = text.find('\n'); end != std::string::npos;
         end = text.find('\n', begin)) {
        const std::string_view line = std::string_view(text).substr(begin, end - begin);
        if (line.find(needle) != std::string_view::npos && --occurrence == 0) {
            return std::string(line);
        }
        begin = end + 1;
    }
    return std::nullopt;
}

}  // namespace

std::string describe(const CommandResult& result) {
    if (result.timed_out) {
        return "timed out";
    }
    return result.exit_code ? fmt::format("exit {}", *result.exit_code)
                            : fmt::format("signal {}", result.signal);
}

Command::Command(CommandOptions options) : options_(std::move(options)), mark_(fresh_mark()) {
    start();
}

Command::~Command() {
    kill_everything();
    if (!reaped_) {
        ::kill(pid_, SIGKILL);
        reap();
    }
    for (const int fd : {pidfd_, stdin_fd_, stdout_fd_, stderr_fd_}) {
        if (fd >= 0) {
            ::close(fd);
        }
    }
}

void Command::start() {
    std::vector<std::string> environment = merged_environment(options_, mark_);
    std::vector<char*> argv = pointers(options_.argv);
    std::vector<char*> envp = pointers(environment);
    int in[2];
    int out[2];
    int err[2];
    make_pipe(in);
    make_pipe(out);
    make_pipe(err);
    started_ = Clock::now();
    pid_ = ::fork();
    if (pid_ == 0) {
        ::setpgid(0, 0);
        sigset_t none;
        sigemptyset(&none);
        ::sigprocmask(SIG_SETMASK, &none, nullptr);
        ::signal(SIGPIPE, SIG_DFL);
        ::dup2(in[0], STDIN_FILENO);
        ::dup2(out[1], STDOUT_FILENO);
        ::dup2(err[1], STDERR_FILENO);
        if (!options_.cwd.empty() && ::chdir(options_.cwd.c_str()) != 0) {
            ::_exit(125);
        }
        if (options_.in_child) {
            options_.in_child();
        }
        ::execvpe(argv[0], argv.data(), envp.data());
        ::_exit(127);
    }
    ::close(in[0]);
    ::close(out[1]);
    ::close(err[1]);
    stdin_fd_ = in[1];
    stdout_fd_ = out[0];
    stderr_fd_ = err[0];
    if (pid_ < 0) {
        throw std::runtime_error(fmt::format("fork: {}", std::strerror(errno)));
    }
    ::setpgid(pid_, pid_);
    pidfd_ = open_pidfd(pid_);
    for (const int fd : {stdin_fd_, stdout_fd_, stderr_fd_}) {
        ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
    }
    feed_stdin();
}

void Command::feed_stdin() {
    if (stdin_fd_ < 0) {
        return;
    }

    struct sigaction ignore {};

    struct sigaction before {};

    ignore.sa_handler = SIG_IGN;
    ::sigaction(SIGPIPE, &ignore, &before);
    bool over = stdin_sent_ == options_.stdin_text.size();
    while (!over) {
        const std::string_view rest = std::string_view(options_.stdin_text).substr(stdin_sent_);
        const ssize_t written = ::write(stdin_fd_, rest.data(), rest.size());
        if (written < 0) {
            over = errno != EAGAIN;
            break;
        }
        stdin_sent_ += static_cast<std::size_t>(written);
        over = stdin_sent_ == options_.stdin_text.size();
    }
    ::sigaction(SIGPIPE, &before, nullptr);
    if (over) {
        ::close(stdin_fd_);
        stdin_fd_ = -1;
    }
}

bool Command::read_some(int& fd, std::string& into) {
    char buffer[65'536];
    const ssize_t size = ::read(fd, buffer, sizeof buffer);
    if (size > 0) {
        into.append(buffer, static_cast<std::size_t>(size));
        return true;
    }
    if (size == 0 || (errno != EAGAIN && errno != EINTR)) {
        ::close(fd);
        fd = -1;
    }
    return false;
}

/// One round of poll(2) up to `until`; false when nothing came or nothing is left to wait for.
bool Command::pump(Clock::time_point until, bool watch_exit) {
    pollfd fds[4] = {
        {stdout_fd_, POLLIN, 0},
        {stderr_fd_, POLLIN, 0},
        {stdin_fd_, POLLOUT, 0},
        {watch_exit && !reaped_ ? pidfd_ : -1, POLLIN, 0},
    };
    if (std::all_of(std::begin(fds), std::end(fds), [](const pollfd& p) { return p.fd < 0; })) {
        return false;
    }
    if (::poll(fds, std::size(fds), milliseconds_until(until)) <= 0) {
        return Clock::now() < until;
    }
    if (fds[0].revents != 0) {
        read_some(stdout_fd_, out_);
    }
    if (fds[1].revents != 0) {
        read_some(stderr_fd_, err_);
    }
    if (fds[2].revents != 0) {
        feed_stdin();
    }
    if (fds[3].revents != 0) {
        reap();
    }
    return true;
}

void Command::reap() {
    siginfo_t info{};
    while (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED) != 0 && errno == EINTR) {
    }
    ended_ = Clock::now();
    reaped_ = true;
    if (info.si_code == CLD_EXITED) {
        result_.exit_code = info.si_status;
    } else {
        result_.signal = info.si_status;
    }
}

std::optional<std::string> Command::wait_for_line(
    std::string_view text, int occurrence, std::chrono::milliseconds timeout
) {
    const Clock::time_point until = std::min(Clock::now() + timeout, started_ + options_.deadline);
    while (true) {
        int left = occurrence;
        if (auto line = find_line(out_, text, left)) {
            return line;
        }
        if (auto line = find_line(err_, text, left)) {
            return line;
        }
        if ((stdout_fd_ < 0 && stderr_fd_ < 0) || !pump(until, false)) {
            return std::nullopt;
        }
    }
}

bool Command::wait_for_text(std::string_view text, std::chrono::milliseconds timeout) {
    const Clock::time_point until = std::min(Clock::now() + timeout, started_ + options_.deadline);
    while (out_.find(text) == std::string::npos) {
        if ((stdout_fd_ < 0 && stderr_fd_ < 0) || !pump(until, false)) {
            return false;
        }
    }
    return true;
}

void Command::send_signal(int signal) const {
    ::syscall(SYS_pidfd_send_signal, pidfd_, signal, nullptr, 0);
}

void Command::close_stdout() {
    for (int* fd : {&stdout_fd_, &stderr_fd_}) {
        if (*fd >= 0) {
            ::close(*fd);
            *fd = -1;
        }
    }
}

CommandResult Command::finish() {
    while (!reaped_ && pump(started_ + options_.deadline, true)) {
    }
    if (!reaped_) {
        result_.timed_out = true;
        kill_everything();
        ::kill(pid_, SIGKILL);
        reap();
    }
    const Clock::time_point drained = Clock::now() + std::chrono::seconds(1);
    while ((stdout_fd_ >= 0 || stderr_fd_ >= 0) && pump(drained, false)) {
    }
    result_.out = out_;
    result_.err = err_;
    result_.wall = std::chrono::duration_cast<std::chrono::microseconds>(ended_ - started_);
    return result_;
}

std::vector<pid_t> Command::living() const {
    std::vector<pid_t> result;
    for (const pid_t pid : all_pids()) {
        if (carries(pid, mark_) && is_alive(pid)) {
            result.push_back(pid);
        }
    }
    return result;
}

std::vector<pid_t> Command::children_of(pid_t parent) {
    std::vector<pid_t> result;
    const std::string wanted = fmt::format(" {} ", parent);
    for (const pid_t pid : all_pids()) {
        const std::string stat = stat_after_name(pid);
        if (stat.size() > 2 && stat[0] != 'Z' && stat.compare(1, wanted.size(), wanted) == 0) {
            result.push_back(pid);
        }
    }
    return result;
}

std::string Command::left_behind(std::chrono::milliseconds timeout) const {
    const Clock::time_point until = Clock::now() + timeout;
    std::vector<pid_t> pids = living();
    while (!pids.empty() && Clock::now() < until) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
        if (wait_until_dead(pids.front(), left)) {
            pids = living();
        }
    }
    std::string text;
    for (const pid_t pid : pids) {
        std::string command = read_file(fmt::format("/proc/{}/cmdline", pid));
        std::replace(command.begin(), command.end(), '\0', ' ');
        text += fmt::format("{} {}; ", pid, command);
    }
    return text;
}

void Command::kill_everything() const {
    // A process that forks while we look is found by the next look; a fork bomb is no test of ours.
    constexpr int kLooksMax = 20;
    for (int look = 0; look < kLooksMax; ++look) {
        const std::vector<pid_t> pids = living();
        if (pids.empty()) {
            return;
        }
        for (const pid_t pid : pids) {
            ::kill(pid, SIGKILL);
        }
        for (const pid_t pid : pids) {
            static_cast<void>(wait_until_dead(pid, std::chrono::milliseconds(500)));
        }
    }
}

CommandResult run_command(CommandOptions options) {
    Command command(std::move(options));
    return command.finish();
}

bool wait_until_dead(pid_t pid, std::chrono::milliseconds timeout) {
    const int fd = open_pidfd(pid);
    if (fd < 0) {
        return true;
    }
    // A pidfd becomes readable when its process is a zombie, too.
    pollfd watched{fd, POLLIN, 0};
    const int ready = ::poll(&watched, 1, static_cast<int>(timeout.count()));
    ::close(fd);
    return ready > 0;
}

}  // namespace ddprun::test
