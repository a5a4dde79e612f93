// A small cluster on this machine: each node is a network namespace with its own addresses, host
// name and /etc/hosts, joined by a switch in a namespace of its own, so that nothing touches the
// machine's own network. Needs root: a test leaves first of all where no_lab().
//
// The namespaces have no names: they live as long as the processes that keep them, which end with
// the test program, however it ends. Nothing has to be cleaned up after a crash.
//
//   NetworkLab lab(4);  // node1 to node4, 10.77.0.1 to 10.77.0.4
//   Command first(lab.on(1, ddprun({"--nnodes=4", "--rdzv_endpoint=node1", ...})));
#pragma once

#include "tests/support/command.h"
#include "tests/support/system.h"

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

namespace ddprun::test {

struct LabNode {
    std::vector<std::string> addresses{};         ///< of eth0, with prefix: "10.77.0.1/16"
    std::vector<std::string> second_addresses{};  ///< of eth1, on a switch of its own; may be none
};

/// The usual addresses of node `number`: one of each family.
[[nodiscard]] LabNode lab_node(int number);

/// There can be no lab here; the test is told to be skipped, with the reason.
[[nodiscard]] bool no_lab();

class NetworkLab {
public:
    /// Why there can be no lab here, or empty.
    [[nodiscard]] static std::string unavailable();

    explicit NetworkLab(int nodes);
    explicit NetworkLab(std::vector<LabNode> nodes);
    NetworkLab(const NetworkLab&) = delete;
    NetworkLab& operator=(const NetworkLab&) = delete;
    ~NetworkLab();

    /// What runs `argv` on node `number`, from 1.
    [[nodiscard]] CommandOptions on(int number, std::vector<std::string> argv) const;

    /// Replaces the node's /etc/hosts; the lines for localhost are added.
    void set_hosts(int number, const std::string& lines) const;

    /// The same for all nodes.
    void set_hosts(const std::string& lines) const;

    /// Nothing gets through to the node's eth0 any more, without an error for anybody; and back.
    void cut(int number) const;
    void heal(int number) const;

private:
    struct Keeper {
        pid_t pid = -1;
        int net = -1;
        int uts = -1;
        int mnt = -1;
        int root = -1;
    };

    [[nodiscard]] Keeper keep(const std::string& host) const;
    [[nodiscard]] CommandOptions inside(const Keeper& keeper, std::vector<std::string> argv) const;
    void ip(const Keeper& keeper, const std::string& lines) const;
    void connect(const std::vector<LabNode>& nodes) const;

    TemporaryFolder folder_;
    Keeper switch_;
    std::vector<Keeper> keepers_;  ///< of the nodes
};

}  // namespace ddprun::test
