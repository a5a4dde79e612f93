#include "trainer/spawn.h"

#include "proto/exit_codes.h"
#include "proto/worker_env.h"

#include <fmt/format.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <map>
#include <optional>
#include <utility>

namespace ddprun::trainer {
namespace {

constexpr std::array kPassedOn = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
/// For the others to end after one has failed.
constexpr time_t kGraceSeconds = 30;

struct Listener {
    int fd = -1;
    std::uint16_t port = 0;
};

/// A socket on a free port of loopback, bound once and handed down.
Result<Listener> listen_on_loopback() {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const plain = reinterpret_cast<sockaddr*>(&address);
    constexpr int kBacklog = 1'024;
    if (fd < 0 || ::bind(fd, plain, size) != 0 || ::listen(fd, kBacklog) != 0 ||
        ::getsockname(fd, plain, &size) != 0) {
        const int error = errno;
        if (fd >= 0) {
            ::close(fd);
        }
        return fail(from_errno(error, "listen on loopback for --spawn"));
    }
    return Listener{fd, ntohs(address.sin_port)};
}

std::vector<std::string> environment_of(int rank, int count, const Listener& listener) {
    std::vector<std::string> variables;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        variables.emplace_back(*entry);
    }
    const auto set = [&variables](std::string_view name, const auto& value) {
        const std::string begin = fmt::format("{}=", name);
        std::erase_if(variables, [&](const auto& entry) { return entry.starts_with(begin); });
        variables.push_back(fmt::format("{}{}", begin, value));
    };
    set(worker_env::kRank, rank);
    set(worker_env::kLocalRank, rank);
    set(worker_env::kWorldSize, count);
    set(worker_env::kLocalWorldSize, count);
    set(worker_env::kMasterAddr, "127.0.0.1");
    set(worker_env::kMasterPort, listener.port);
    set(kSpawnedVariable, ::getpid());
    if (rank == 0) {
        set(worker_env::kListenFd, listener.fd);
    }
    return variables;
}

std::vector<char*> pointers_of(std::vector<std::string>& texts) {
    std::vector<char*> pointers;
    for (std::string& text : texts) {
        pointers.push_back(text.data());
    }
    pointers.push_back(nullptr);
    return pointers;
}

/// Starts one worker with no signal blocked. A number of errno on failure.
int start(
    std::vector<std::string> arguments,
    std::vector<std::string> environment,
    std::optional<int> inherited,
    pid_t& pid
) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawnattr_init(&attributes);
    if (inherited) {
        // Onto itself: the copy stays open.
        ::posix_spawn_file_actions_adddup2(&actions, *inherited, *inherited);
    }
    sigset_t none;
    ::sigemptyset(&none);
    ::posix_spawnattr_setsigmask(&attributes, &none);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    const int error = ::posix_spawn(
        &pid,
        "/proc/self/exe",
        &actions,
        &attributes,
        pointers_of(arguments).data(),
        pointers_of(environment).data()
    );
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
    return error;
}

int status_of(int wait_status) {
    return WIFSIGNALED(wait_status) ? exit_code::from_signal(WTERMSIG(wait_status))
                                    : WEXITSTATUS(wait_status);
}

class Workers {
public:
    explicit Workers(Log& log) : log_(log) {}

    void add(pid_t pid, int rank) { living_.emplace(pid, rank); }

    void send(int signal) const {
        for (const auto& [pid, rank] : living_) {
            ::kill(pid, signal);
        }
    }

    /// Takes note of all that have ended; the first failure stops the others.
    void reap() {
        int wait_status = 0;
        for (pid_t pid = ::waitpid(-1, &wait_status, WNOHANG); pid > 0;
             pid = ::waitpid(-1, &wait_status, WNOHANG)) {
            const int rank = living_.contains(pid) ? living_.at(pid) : -1;
            living_.erase(pid);
            const int status = status_of(wait_status);
            if (status != 0 && first_failure_ == 0) {
                first_failure_ = status;
                log_.error("--spawn: rank {} ended with status {}", rank, status);
                stop();
            }
        }
    }

    void stop() {
        send(SIGTERM);
        stopping_ = true;
    }

    [[nodiscard]] bool done() const { return living_.empty(); }

    [[nodiscard]] bool stopping() const { return stopping_; }

    [[nodiscard]] int status() const { return first_failure_; }

    void fail_with(int status) {
        if (first_failure_ == 0) {
            first_failure_ = status;
        }
    }

private:
    Log& log_;
    std::map<pid_t, int> living_;  ///< and their ranks
    int first_failure_ = 0;
    bool stopping_ = false;
};

void wait_for_all(Workers& workers, const sigset_t& awaited) {
    while (!workers.done()) {
        siginfo_t info{};
        const timespec grace{kGraceSeconds, 0};
        const int signal = workers.stopping() ? ::sigtimedwait(&awaited, &info, &grace)
                                              : ::sigwaitinfo(&awaited, &info);
        if (signal == SIGCHLD) {
            workers.reap();
        } else if (signal > 0) {
            // A terminal's Ctrl-C has reached the workers already.
            if (info.si_code != SI_KERNEL) {
                workers.send(signal);
            }
        } else if (errno == EAGAIN) {
            workers.send(SIGKILL);
        }
    }
}

}  // namespace

Result<int> spawn_workers(const std::vector<std::string>& arguments, int count, Log& log) {
    sigset_t awaited;
    ::sigemptyset(&awaited);
    ::sigaddset(&awaited, SIGCHLD);
    for (const int signal : kPassedOn) {
        ::sigaddset(&awaited, signal);
    }
    ::sigprocmask(SIG_BLOCK, &awaited, nullptr);
    auto listener = listen_on_loopback();
    if (!listener) {
        return fail(listener.error());
    }
    std::vector<std::string> argv{"trainer"};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    Workers workers(log);
    for (int rank = 0; rank < count; ++rank) {
        pid_t pid = -1;
        const auto inherited = rank == 0 ? std::optional(listener->fd) : std::nullopt;
        const int error = start(argv, environment_of(rank, count, *listener), inherited, pid);
        if (error != 0) {
            log.error("--spawn: start rank {}: {}", rank, from_errno(error, "posix_spawn").context);
            workers.fail_with(exit_code::kInternal);
            workers.stop();
            break;
        }
        workers.add(pid, rank);
    }
    ::close(listener->fd);
    wait_for_all(workers, awaited);
    return workers.status();
}

bool tie_to_parent(const std::string& parent_pid) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    return std::to_string(::getppid()) == parent_pid;
}

}  // namespace ddprun::trainer
