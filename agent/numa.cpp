#include "agent/numa.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <optional>
#include <utility>

namespace ddprun {

namespace {

constexpr std::int32_t kBitsPerWord = sizeof(unsigned long) * CHAR_BIT;

std::optional<std::int32_t> number_of(std::string_view text, std::int32_t largest) {
    std::int32_t value = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    const bool is_number = error == std::errc{} && stop == end && value >= 0 && value <= largest;
    return is_number ? std::optional{value} : std::nullopt;
}

NumberSet intersection(const NumberSet& a, const NumberSet& b) {
    NumberSet both;
    std::ranges::set_intersection(a, b, std::inserter(both, both.end()));
    return both;
}

std::int32_t package_of(const Topology& topology, const NumberSet& cpus) {
    const auto found = cpus.empty() ? topology.cpus.end() : topology.cpus.find(*cpus.begin());
    return found == topology.cpus.end() ? -1 : found->second.package;
}

/// `cpus` in groups of those for which `key` names the same set, by its lowest number.
std::vector<NumberSet> grouped(
    const Topology& topology, const NumberSet& cpus, NumberSet Topology::Cpu::*key
) {
    std::map<std::int32_t, NumberSet> groups;
    for (const std::int32_t cpu : cpus) {
        const auto found = topology.cpus.find(cpu);
        const bool known = found != topology.cpus.end() && !(found->second.*key).empty();
        groups[known ? *(found->second.*key).begin() : cpu].insert(cpu);
    }
    std::vector<NumberSet> result;
    result.reserve(groups.size());
    for (auto& [lowest, group] : groups) {
        result.push_back(std::move(group));
    }
    return result;
}

/// Binds one device after another; what they have in common.
class Binder {
public:
    Binder(const Topology& topology, const BindingRequest& request)
        : topology_(topology),
          request_(request),
          devices_(nodes_of_devices()) {}

    Result<std::vector<WorkerBinding>> bind() const {
        std::vector<WorkerBinding> bindings;
        for (std::size_t worker = 0; worker < static_cast<std::size_t>(request_.workers);
             ++worker) {
            auto binding = bind_to_device(worker);
            if (!binding) {
                return fail(
                    binding.error().code,
                    fmt::format("local rank {}: {}", worker, binding.error().context)
                );
            }
            bindings.push_back(std::move(*binding));
        }
        share_out(bindings);
        return bindings;
    }

private:
    std::vector<std::int32_t> nodes_of_devices() const {
        const auto workers = static_cast<std::size_t>(request_.workers);
        std::vector<std::int32_t> devices;
        if (request_.device_nodes.size() >= workers) {
            for (const std::int32_t node : request_.device_nodes) {
                devices.push_back(std::max(node, 0));
            }
            return devices;
        }
        std::vector<std::int32_t> usable;
        for (const auto& [node, cpus] : topology_.nodes) {
            if (!intersection(cpus, request_.allowed_cpus).empty()) {
                usable.push_back(node);
            }
        }
        for (std::size_t worker = 0; worker < workers; ++worker) {
            devices.push_back(usable.empty() ? 0 : usable[worker * usable.size() / workers]);
        }
        return devices;
    }

    Result<WorkerBinding> bind_to_device(std::size_t device) const {
        const std::int32_t node = devices_[device];
        const auto found = topology_.nodes.find(node);
        if (found == topology_.nodes.end()) {
            return fail(
                Errc::not_found,
                fmt::format("its GPU is at NUMA node {}, which sysfs doesn't list", node)
            );
        }
        NumberSet nodes{node};
        if (request_.mode == NumaMode::socket) {
            const std::int32_t package = package_of(topology_, found->second);
            for (const auto& [other, cpus] : topology_.nodes) {
                if (package >= 0 && package_of(topology_, cpus) == package) {
                    nodes.insert(other);
                }
            }
        }
        NumberSet cpus;
        for (const std::int32_t each : nodes) {
            cpus.merge(intersection(topology_.nodes.at(each), request_.allowed_cpus));
        }
        if (cpus.empty()) {
            return fail(
                Errc::not_found,
                fmt::format(
                    "NUMA node {} has no CPU that may be used here (its own: {}; allowed: {})",
                    node,
                    number_list(found->second),
                    number_list(request_.allowed_cpus)
                )
            );
        }
        auto part = part_of(cpus, device);
        if (!part) {
            return fail(part.error());
        }
        return WorkerBinding{std::move(*part), intersection(nodes, request_.allowed_memory), 1};
    }

    /// What of its node's CPUs is for this device.
    Result<NumberSet> part_of(const NumberSet& cpus, std::size_t device) const {
        switch (request_.mode) {
            case NumaMode::node:
            case NumaMode::socket: return cpus;
            case NumaMode::exclusive: return own_cores(cpus, device);
            case NumaMode::core_complex: break;
        }
        std::vector<NumberSet> complexes = grouped(topology_, cpus, &Topology::Cpu::sharers);
        std::ranges::stable_sort(complexes, [](const NumberSet& a, const NumberSet& b) {
            return a.size() > b.size();
        });
        return complexes[place_at_node(device) % complexes.size()];
    }

    Result<NumberSet> own_cores(const NumberSet& cpus, std::size_t device) const {
        const std::vector<NumberSet> cores = grouped(topology_, cpus, &Topology::Cpu::siblings);
        const auto sharing =
            static_cast<std::size_t>(std::ranges::count(devices_, devices_[device]));
        if (cores.size() < sharing) {
            return fail(
                Errc::limit_exceeded,
                fmt::format(
                    "NUMA node {} has {} cores that may be used for {} workers; use "
                    "--numa_binding=node",
                    devices_[device],
                    cores.size(),
                    sharing
                )
            );
        }
        const std::size_t place = place_at_node(device);
        const std::size_t each = cores.size() / sharing;
        const std::size_t left_over = cores.size() % sharing;  // one more for the first ones
        const std::size_t first = place * each + std::min(place, left_over);
        const std::size_t count = each + (place < left_over ? 1 : 0);
        NumberSet own;
        for (std::size_t core = first; core < first + count; ++core) {
            own.insert(cores[core].begin(), cores[core].end());
        }
        return own;
    }

    /// The number of this device among those of its node.
    std::size_t place_at_node(std::size_t device) const {
        const auto end = devices_.begin() + static_cast<std::ptrdiff_t>(device);
        return static_cast<std::size_t>(std::count(devices_.begin(), end, devices_[device]));
    }

    static void share_out(std::vector<WorkerBinding>& bindings) {
        std::map<std::int32_t, double> users;
        for (const WorkerBinding& binding : bindings) {
            for (const std::int32_t cpu : binding.cpus) {
                users[cpu] += 1;
            }
        }
        constexpr double kRounding = 1e-6;  // a third three times is one
        for (WorkerBinding& binding : bindings) {
            double share = kRounding;
            for (const std::int32_t cpu : binding.cpus) {
                share += 1 / users[cpu];
            }
            binding.threads = std::max(1, static_cast<std::int32_t>(share));
        }
    }

    const Topology& topology_;
    const BindingRequest& request_;
    std::vector<std::int32_t> devices_;  ///< the node of each
};

}  // namespace

Result<NumberSet> parse_number_list(std::string_view text, std::int32_t largest) {
    NumberSet numbers;
    while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) {
        text.remove_suffix(1);
    }
    while (!text.empty()) {
        const std::size_t comma = std::min(text.find(','), text.size());
        const std::string_view part = text.substr(0, comma);
        const std::size_t hyphen = part.find('-');
        const auto first = number_of(part.substr(0, hyphen), largest);
        const auto last =
            hyphen == std::string_view::npos ? first : number_of(part.substr(hyphen + 1), largest);
        const bool is_last_part = comma == text.size();
        text.remove_prefix(is_last_part ? comma : comma + 1);
        if (!first || !last || *first > *last || (!is_last_part && text.empty())) {
            return fail(
                Errc::invalid_argument,
                fmt::format("'{}' is no list of numbers up to {}, as 0-3,8", part, largest)
            );
        }
        for (std::int32_t number = *first; number <= *last; ++number) {
            numbers.insert(numbers.end(), number);
        }
    }
    return numbers;
}

std::string number_list(const NumberSet& numbers) {
    std::string text;
    for (auto at = numbers.begin(); at != numbers.end();) {
        const std::int32_t first = *at;
        std::int32_t last = first;
        for (++at; at != numbers.end() && *at == last + 1; ++at) {
            last = *at;
        }
        text += text.empty() ? "" : ",";
        text += first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
    }
    return text;
}

std::vector<unsigned long> bit_mask(const NumberSet& numbers) {
    std::vector<unsigned long> mask;
    for (const std::int32_t number : numbers) {
        const auto word = static_cast<std::size_t>(number / kBitsPerWord);
        mask.resize(std::max(mask.size(), word + 1));
        mask[word] |= 1UL << static_cast<unsigned>(number % kBitsPerWord);
    }
    return mask;
}

Result<std::vector<WorkerBinding>> bind_workers(
    const Topology& topology, const BindingRequest& request
) {
    return Binder{topology, request}.bind();
}

}  // namespace ddprun
