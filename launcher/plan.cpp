#include "launcher/plan.h"

#include "agent/agent_setup.h"
#include "agent/expand_arguments.h"
#include "agent/worker_environment.h"
#include "proto/worker_env.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

namespace ddprun::launcher {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kLoopback = "127.0.0.1";

/// Variables whose values are known only when the job runs.
std::set<std::string_view> open_variables(
    const LaunchCommand& command, const AgentSettings& settings
) {
    std::set<std::string_view> open{worker_env::kMasterPort, worker_env::kWorkerMark};
    if (settings.output.has_folder) {
        open.insert(worker_env::kErrorFile);
    }
    if (command.standalone) {
        open.insert(worker_env::kRunId);
        return open;
    }
    open.insert(worker_env::kMasterAddr);
    if (command.spec.max_nodes > NodeCount{1}) {
        open.insert({
            worker_env::kRank,
            worker_env::kGroupRank,
            worker_env::kRoleRank,
            worker_env::kWorldSize,
            worker_env::kRoleWorldSize,
        });
    }
    if (command.spec.min_nodes < command.spec.max_nodes) {
        open.insert(worker_env::kGroupWorldSize);
    }
    return open;
}

struct FirstRound {
    RoundPlan plan;
    NodePlace place;
};

/// The first round as far as it is known: this node as often as there are nodes.
FirstRound first_round(const LaunchCommand& command, const AgentSettings& settings) {
    const std::vector<const NodeInfo*> nodes(
        static_cast<std::size_t>(command.spec.max_nodes.value()), &settings.info
    );
    const std::vector<NodePlace> places = places_of(nodes);
    RoundPlan plan;
    plan.round = Round{0};
    plan.max_restarts = command.spec.max_restarts;
    plan.master_address = kLoopback;
    plan.nodes = command.spec.max_nodes;
    plan.world_size = world_size_of(places);
    return {std::move(plan), places.front()};
}

std::string_view name_of(std::string_view entry) {
    return entry.substr(0, entry.find('='));
}

PlannedWorker planned(
    const LaunchCommand& command,
    const AgentSettings& settings,
    const PlanFacts& facts,
    const EnvironmentSettings& environment,
    LocalRank local_rank
) {
    PlannedWorker worker;
    worker.local_rank = local_rank;
    worker.argv = settings.argv;
    for (std::size_t i = settings.expand_from.value_or(worker.argv.size()); i < worker.argv.size();
         ++i) {
        worker.argv[i] = expand_argument(worker.argv[i], local_rank);
    }
    const auto open = open_variables(command, settings);
    const std::set<std::string> inherited{
        environment.inherited.begin(), environment.inherited.end()};
    const FirstRound round = first_round(command, settings);
    for (const std::string& entry :
         worker_environment(environment, round.plan, round.place, local_rank)) {
        const std::string name{name_of(entry)};
        if (open.contains(name)) {
            worker.environment.emplace_back(name, std::nullopt);
        } else if (!inherited.contains(entry) || !facts.own_environment.contains(entry)) {
            worker.environment.emplace_back(name, entry.substr(name.size() + 1));
        }
    }
    worker.environment.emplace_back(worker_env::kMemoryDir, std::nullopt);
    const auto place = static_cast<std::size_t>(local_rank.value());
    worker.cpus = facts.allowed_cpus;
    if (place < settings.bindings.size()) {
        worker.cpus = settings.bindings[place].cpus;
        worker.memory_nodes = settings.bindings[place].memory_nodes;
    }
    if (place < facts.gpus.size()) {
        worker.own_device = facts.gpus[place];
    }
    if (!settings.virtual_local_rank) {
        for (const UsableGpu& gpu : facts.gpus) {
            worker.devices.push_back(gpu.name);
        }
    } else if (worker.own_device) {
        worker.devices = {worker.own_device->name};
    }
    return worker;
}

std::string device_text(const PlannedWorker& worker) {
    if (!worker.own_device) {
        return worker.devices.empty() ? "none"
                                      : fmt::format("sees GPU {}", fmt::join(worker.devices, ","));
    }
    std::string text = fmt::format("GPU {}", worker.own_device->name);
    if (const auto& gpu = worker.own_device->gpu; gpu) {
        for (const std::string& part : {gpu->uuid, gpu->pci_address}) {
            text += part.empty() ? "" : " " + part;
        }
    }
    return worker.devices.size() > 1
               ? fmt::format("{} (sees {})", text, fmt::join(worker.devices, ","))
               : text;
}

std::string worker_text(const PlannedWorker& worker) {
    constexpr std::string_view kLine = "  {:<12} {}\n";
    std::vector<std::string> words;
    words.reserve(worker.argv.size());
    for (const std::string& word : worker.argv) {
        words.push_back(shell_quoted(word));
    }
    std::string text = fmt::format("\nlocal rank {}\n", worker.local_rank);
    text += fmt::format(kLine, "command", fmt::join(words, " "));
    text += fmt::format(kLine, "CPUs", number_list(worker.cpus));
    if (!worker.memory_nodes.empty()) {
        text += fmt::format(kLine, "memory", "NUMA node " + number_list(worker.memory_nodes));
    }
    text += fmt::format(kLine, "devices", device_text(worker));
    std::string_view label = "environment";
    for (const auto& [name, value] : worker.environment) {
        text += fmt::format(
            kLine,
            label,
            value ? fmt::format("{}={}", name, shell_quoted(*value))
                  : fmt::format("{} (known when the job runs)", name)
        );
        label = "";
    }
    return text;
}

Json worker_json(const PlannedWorker& worker) {
    Json json;
    json["local_rank"] = worker.local_rank.value();
    json["argv"] = worker.argv;
    Json& environment = json["environment"] = Json::object();
    for (const auto& [name, value] : worker.environment) {
        environment[name] = value ? Json(*value) : Json(nullptr);
    }
    json["cpus"] = worker.cpus;
    json["memory_nodes"] = worker.memory_nodes;
    json["devices"] = worker.devices;
    json["own_device"] = nullptr;
    if (worker.own_device) {
        const Gpu gpu = worker.own_device->gpu.value_or(Gpu{});
        json["own_device"] = {
            {"name", worker.own_device->name},
            {"uuid", gpu.uuid.empty() ? Json(nullptr) : Json(gpu.uuid)},
            {"pci_address", gpu.pci_address.empty() ? Json(nullptr) : Json(gpu.pci_address)},
        };
    }
    return json;
}

}  // namespace

LaunchPlan plan_of(
    const LaunchCommand& command, const AgentSettings& settings, const PlanFacts& facts
) {
    LaunchPlan plan;
    plan.program = settings.program;
    plan.working_folder = facts.working_folder;
    if (!command.standalone) {
        plan.job = std::string{command.job.value()};
        plan.rendezvous = to_string(command.endpoint);
    }
    plan.min_nodes = command.spec.min_nodes;
    plan.max_nodes = command.spec.max_nodes;
    plan.max_restarts = command.spec.max_restarts;
    const AgentCoreSettings core = core_settings(settings, settings.output.run_folder, {});
    const std::set<std::string> inherited{
        core.environment.inherited.begin(), core.environment.inherited.end()};
    for (const std::string& entry : settings.environment) {
        if (!inherited.contains(entry)) {
            plan.unset.emplace_back(name_of(entry));
        }
    }
    for (std::int32_t rank = 0; rank < settings.info.local_world_size.value(); ++rank) {
        plan.workers.push_back(planned(command, settings, facts, core.environment, LocalRank{rank})
        );
    }
    return plan;
}

std::string plan_text(const LaunchPlan& plan) {
    constexpr std::string_view kLine = "{:<14} {}\n";
    std::string text;
    text += fmt::format(kLine, "program", shell_quoted(plan.program));
    text += fmt::format(kLine, "folder", shell_quoted(plan.working_folder));
    text += fmt::format(
        kLine, "job", plan.job ? shell_quoted(*plan.job) : "of this node alone, with a random id"
    );
    if (!plan.rendezvous.empty()) {
        text += fmt::format(kLine, "rendezvous", plan.rendezvous);
        text += fmt::format(
            kLine,
            "nodes",
            plan.min_nodes == plan.max_nodes
                ? fmt::format("{}", plan.min_nodes)
                : fmt::format("{} to {}", plan.min_nodes, plan.max_nodes)
        );
    }
    text += fmt::format(kLine, "restarts", fmt::format("at most {}", plan.max_restarts));
    text += fmt::format(kLine, "workers here", plan.workers.size());
    if (!plan.unset.empty()) {
        text += fmt::format(kLine, "not inherited", fmt::join(plan.unset, " "));
    }
    for (const PlannedWorker& worker : plan.workers) {
        text += worker_text(worker);
    }
    return text;
}

std::string plan_json(const LaunchPlan& plan) {
    Json json;
    json["version"] = DDPRUN_VERSION;
    json["program"] = plan.program;
    json["working_folder"] = plan.working_folder;
    json["job_id"] = plan.job ? Json(*plan.job) : Json(nullptr);
    json["rendezvous"] = plan.rendezvous.empty() ? Json(nullptr) : Json(plan.rendezvous);
    json["min_nodes"] = plan.min_nodes.value();
    json["max_nodes"] = plan.max_nodes.value();
    json["max_restarts"] = plan.max_restarts.value();
    json["not_inherited"] = plan.unset;
    Json& workers = json["workers"] = Json::array();
    for (const PlannedWorker& worker : plan.workers) {
        workers.push_back(worker_json(worker));
    }
    constexpr int kIndent = 2;
    return json.dump(kIndent, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string shell_quoted(std::string_view word) {
    constexpr std::string_view kPlain = "_-+=:,./@%^";
    constexpr unsigned char kBlank = 0x20;
    constexpr unsigned char kDelete = 0x7f;
    const auto is_plain = [&](unsigned char byte) {
        const bool is_letter = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
        return is_letter || (byte >= '0' && byte <= '9') ||
               kPlain.find(static_cast<char>(byte)) != std::string_view::npos;
    };
    const auto is_printable = [](unsigned char byte) { return byte >= kBlank && byte < kDelete; };
    if (!word.empty() && std::ranges::all_of(word, is_plain)) {
        return std::string{word};
    }
    const bool needs_escapes = !std::ranges::all_of(word, is_printable);
    std::string quoted = needs_escapes ? "$'" : "'";
    for (const char letter : word) {
        const auto byte = static_cast<unsigned char>(letter);
        if (!needs_escapes) {
            quoted += letter == '\'' ? std::string{"'\\''"} : std::string(1, letter);
        } else if (letter == '\n') {
            quoted += "\\n";
        } else if (letter == '\'' || letter == '\\') {
            quoted += '\\';
            quoted += letter;
        } else if (!is_printable(byte)) {
            quoted += fmt::format("\\{:03o}", byte);
        } else {
            quoted += letter;
        }
    }
    return quoted + "'";
}

}  // namespace ddprun::launcher
