// A Supervisor as a program of its own, so that tests can do to it what users do to ddprun:
//   agent_probe NPROC MAX_RESTARTS SHUTDOWN_TIMEOUT_MS PROGRAM ARGUMENTS...
// Its rendezvous is the one-node one of the tests.
#include "agent/supervisor.h"
#include "tests/unit/agent/one_node_rendezvous.h"

#include <fmt/format.h>

#include <unistd.h>

#include <cstdlib>
#include <string>

namespace {

class StderrLog final : public ddprun::Log {
public:
    void write(ddprun::LogLevel, std::string_view line) override {
        const std::string text = fmt::format("probe: {}\n", line);
        static_cast<void>(!::write(STDERR_FILENO, text.data(), text.size()));
    }

    [[nodiscard]] bool enabled(ddprun::LogLevel level) const override {
        return level != ddprun::LogLevel::debug;
    }
};

}  // namespace

int main(int argc, char** argv) {
    if (argc < 5) {
        return 2;
    }
    boost::asio::io_context io_context(1);
    StderrLog log;
    ddprun::AgentSettings settings;
    settings.job = ddprun::JobId{"probe"};
    settings.node = ddprun::NodeId{"host/1"};
    settings.incarnation = ddprun::Incarnation{0xAB};
    settings.info.host = "host";
    settings.info.pid = ::getpid();
    settings.info.local_world_size = ddprun::LocalWorldSize{std::atoi(argv[1])};
    settings.spec.max_restarts = ddprun::RestartCount{std::atoi(argv[2])};
    settings.shutdown_timeout = std::chrono::milliseconds(std::atoi(argv[3]));
    settings.program = argv[4];
    settings.argv.assign(argv + 4, argv + argc);
    for (char** entry = environ; *entry != nullptr; ++entry) {
        settings.environment.emplace_back(*entry);
    }
    settings.bind_store = [](ddprun::Round round,
                             const std::string&) -> ddprun::Result<ddprun::BoundStore> {
        const auto port = static_cast<std::uint16_t>(1000 + round.value());
        return ddprun::BoundStore{ddprun::Port{port}, nullptr};
    };
    auto link =
        std::make_unique<ddprun::test::OneNodeRendezvous>(io_context, settings.spec.max_restarts);
    ddprun::Supervisor supervisor(io_context, std::move(settings), std::move(link), log);
    int exit_status = 70;
    supervisor.run([&](int status) {
        exit_status = status;
        io_context.stop();
    });
    io_context.run();
    return exit_status;
}
