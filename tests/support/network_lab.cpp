#include "tests/support/network_lab.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

namespace ddprun::test {

namespace {

constexpr int kNamespaces = CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWUTS;

const std::string& localhost_lines() {
    static const std::string lines = "127.0.0.1 localhost\n::1 localhost\n";
    return lines;
}

bool bind_over(const std::string& source, const char* target) {
    return ::mount(source.c_str(), target, nullptr, MS_BIND, nullptr) == 0;
}

/// What is mounted from now on stays in this process's namespace. In a chroot, whose root is no
/// mount that could be made private, that depends on what is above it: mounts_stay_private() tries
/// it.
bool make_mounts_private() {
    return ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 || errno == EINVAL;
}

/// Whether a mount in a child's namespace is not seen in ours.
bool mounts_stay_private() {
    const TemporaryFolder folder;
    const std::string covering = folder.file("covering", "covering");
    const std::string covered = folder.file("covered", "covered");
    const pid_t child = ::fork();
    if (child == 0) {
        const bool is_bound = ::unshare(kNamespaces) == 0 && make_mounts_private() &&
                              bind_over(covering, covered.c_str());
        ::_exit(is_bound ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    const bool is_private = read_file(covered) == "covered";
    if (!is_private) {
        ::umount2(covered.c_str(), MNT_DETACH);
    }
    return status == 0 && is_private;
}

/// In the child that is to keep a node; the step that failed, or null.
const char* become_node(const std::string& host, const std::string& folder) {
    if (::unshare(kNamespaces) != 0) {
        return "unshare";
    }
    if (::sethostname(host.data(), host.size()) != 0) {
        return "sethostname";
    }
    if (!make_mounts_private()) {
        return "make mounts private";
    }
    const std::string hosts = fmt::format("{}/{}.hosts", folder, host);
    if (!bind_over(hosts, "/etc/hosts") ||
        !bind_over(folder + "/resolv.conf", "/etc/resolv.conf")) {
        return "bind over /etc";
    }
    return nullptr;
}

int open_namespace(pid_t pid, const char* kind) {
    const std::string path = fmt::format("/proc/{}/ns/{}", pid, kind);
    return ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
}

std::string address_of(const std::string& with_prefix) {
    return with_prefix.substr(0, with_prefix.find('/'));
}

}  // namespace

LabNode lab_node(int number) {
    LabNode node;
    node.addresses = {fmt::format("10.77.0.{}/16", number), fmt::format("fd77::{}/64", number)};
    return node;
}

std::string NetworkLab::unavailable() {
    if (::geteuid() != 0) {
        return "network namespaces need root";
    }
    const pid_t child = ::fork();
    if (child == 0) {
        ::_exit(::unshare(kNamespaces) == 0 ? 0 : errno);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        return fmt::format("no network namespaces: {}", std::strerror(WEXITSTATUS(status)));
    }
    if (!mounts_stay_private()) {
        return "mounts in a namespace of our own would be seen outside of it";
    }
    const CommandResult tool = run_command({.argv = {"ip", "-V"}});
    return tool.exit_code == 0 ? "" : "there is no ip (package iproute2)";
}

bool no_lab() {
    const std::string why = NetworkLab::unavailable();
    if (!why.empty()) {
        MESSAGE("skipped: ", why);
    }
    return !why.empty();
}

NetworkLab::NetworkLab(int nodes)
    : NetworkLab([nodes] {
          std::vector<LabNode> all;
          for (int number = 1; number <= nodes; ++number) {
              all.push_back(lab_node(number));
          }
          return all;
      }()) {}

NetworkLab::NetworkLab(std::vector<LabNode> nodes) {
    // Nobody answers there, at once: what the hosts file lacks doesn't exist.
    static_cast<void>(folder_.file("resolv.conf", "nameserver 127.0.0.1\n"));
    std::string hosts;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        for (const std::string& address : nodes[i].addresses) {
            hosts += fmt::format("{} node{}\n", address_of(address), i + 1);
        }
        static_cast<void>(folder_.file(fmt::format("node{}.hosts", i + 1), ""));
    }
    static_cast<void>(folder_.file("switch.hosts", localhost_lines()));
    switch_ = keep("switch");
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        keepers_.push_back(keep(fmt::format("node{}", i + 1)));
    }
    set_hosts(hosts);
    connect(nodes);
}

NetworkLab::~NetworkLab() {
    keepers_.push_back(switch_);
    for (const Keeper& keeper : keepers_) {
        if (keeper.pid > 0) {
            ::kill(keeper.pid, SIGKILL);
            ::waitpid(keeper.pid, nullptr, 0);
        }
        for (const int fd : {keeper.net, keeper.uts, keeper.mnt, keeper.root}) {
            ::close(fd);
        }
    }
}

NetworkLab::Keeper NetworkLab::keep(const std::string& host) const {
    int ready[2];
    REQUIRE(::pipe2(ready, O_CLOEXEC) == 0);
    const pid_t parent = ::getpid();
    Keeper keeper;
    keeper.pid = ::fork();
    REQUIRE(keeper.pid >= 0);
    if (keeper.pid == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != parent) {
            ::_exit(1);
        }
        const char* failed = become_node(host, folder_.path());
        const std::string word = failed == nullptr ? "ready" : failed;
        static_cast<void>(::write(ready[1], word.data(), word.size()));
        while (failed == nullptr) {
            ::pause();
        }
        ::_exit(1);
    }
    ::close(ready[1]);
    char word[64] = {};
    const ssize_t size = ::read(ready[0], word, sizeof word - 1);
    ::close(ready[0]);
    REQUIRE_MESSAGE((size > 0 && std::string{word} == "ready"), host, ": ", word);
    keeper.net = open_namespace(keeper.pid, "net");
    keeper.uts = open_namespace(keeper.pid, "uts");
    keeper.mnt = open_namespace(keeper.pid, "mnt");
    keeper.root =
        ::open(fmt::format("/proc/{}/root", keeper.pid).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    REQUIRE((keeper.net >= 0 && keeper.uts >= 0 && keeper.mnt >= 0 && keeper.root >= 0));
    return keeper;
}

CommandOptions NetworkLab::inside(const Keeper& keeper, std::vector<std::string> argv) const {
    CommandOptions options;
    options.argv = std::move(argv);
    options.in_child = [keeper] {
        if (::setns(keeper.net, CLONE_NEWNET) != 0 || ::setns(keeper.uts, CLONE_NEWUTS) != 0 ||
            ::setns(keeper.mnt, CLONE_NEWNS) != 0 || ::fchdir(keeper.root) != 0 ||
            ::chroot(".") != 0) {  // a mount namespace begins at the machine's own root
            ::_exit(125);
        }
    };
    return options;
}

CommandOptions NetworkLab::on(int number, std::vector<std::string> argv) const {
    return inside(keepers_.at(static_cast<std::size_t>(number) - 1), std::move(argv));
}

void NetworkLab::set_hosts(int number, const std::string& lines) const {
    // In place: the mount shows this file, not its name.
    std::ofstream{folder_.path(fmt::format("node{}.hosts", number))} << localhost_lines() << lines;
}

void NetworkLab::set_hosts(const std::string& lines) const {
    for (std::size_t i = 0; i < keepers_.size(); ++i) {
        set_hosts(static_cast<int>(i) + 1, lines);
    }
}

void NetworkLab::ip(const Keeper& keeper, const std::string& lines) const {
    CommandOptions options = inside(keeper, {"ip", "-batch", "-"});
    options.stdin_text = lines;
    const CommandResult result = run_command(std::move(options));
    REQUIRE_MESSAGE(result.exit_code == 0, describe(result), " ", result.err, lines);
}

void NetworkLab::connect(const std::vector<LabNode>& nodes) const {
    std::string lines =
        "link add br0 type bridge\nlink set br0 up\nlink add br1 type bridge\nlink set br1 up\n";
    const auto plug = [&](const char* port, const char* bridge, std::size_t i, const char* nic) {
        lines += fmt::format(
            "link add {0}{1} type veth peer name {2} netns {3}\n"
            "link set {0}{1} master {4}\nlink set {0}{1} up\n",
            port,
            i + 1,
            nic,
            keepers_[i].pid,
            bridge
        );
    };
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        plug("p", "br0", i, "eth0");
        if (!nodes[i].second_addresses.empty()) {
            plug("q", "br1", i, "eth1");
        }
    }
    ip(switch_, lines);
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        std::string node = "link set lo up\n";
        const auto give = [&node](const std::vector<std::string>& addresses, const char* nic) {
            for (const std::string& address : addresses) {
                const bool is_v6 = address.find(':') != std::string::npos;
                // Without nodad the address can't be used for a second or two.
                node += fmt::format("addr add {} dev {}{}\n", address, nic, is_v6 ? " nodad" : "");
            }
            node += addresses.empty() ? "" : fmt::format("link set {} up\n", nic);
        };
        give(nodes[i].addresses, "eth0");
        give(nodes[i].second_addresses, "eth1");
        ip(keepers_[i], node);
    }
}

void NetworkLab::cut(int number) const {
    ip(switch_, fmt::format("link set p{} down\n", number));
}

void NetworkLab::heal(int number) const {
    ip(switch_, fmt::format("link set p{} up\n", number));
}

}  // namespace ddprun::test
