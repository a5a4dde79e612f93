#include "launcher/launch_checks.h"

#include "agent/job_report.h"
#include "launcher/option_reader.h"
#include "proto/error.h"
#include "rendezvous/endpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace ddprun::launcher {

namespace {

Result<void> check_log_folder(const LaunchCommand& command) {
    const std::string& folder = command.logs.folder;
    if (folder.empty() || folder == "/dev/null") {
        return {};
    }
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (!error && !std::filesystem::is_directory(folder, error)) {
        error = std::make_error_code(std::errc::not_a_directory);
    }
    if (!error && ::access(folder.c_str(), W_OK | X_OK) != 0) {
        error = std::error_code{errno, std::generic_category()};
    }
    if (error) {
        return fail(wrong(
            {folder, command.origin("log_dir")},
            fmt::format(
                "no folder to write logs to: {}; name another, or /dev/null for none",
                error.message()
            )
        ));
    }
    return {};
}

/// Of several addresses one by which others reach this node.
std::string best_of(const std::vector<std::string>& addresses) {
    const auto found = std::ranges::find_if_not(addresses, is_loopback);
    return found == addresses.end() ? addresses.front() : *found;
}

}  // namespace

Result<void> check_files(const LaunchCommand& command) {
    const Supervision& supervision = command.supervision;
    for (const int fd : supervision.passed_fds) {
        if (::fcntl(fd, F_GETFD) < 0) {
            return fail(wrong(
                {std::to_string(fd), command.origin("pass_fds")}, "this descriptor isn't open here"
            ));
        }
    }
    if (!supervision.report_file.empty()) {
        const Result<void> usable = check_report_file(supervision.report_file);
        if (!usable) {
            return fail(
                wrong({supervision.report_file, command.origin("report")}, usable.error().context)
            );
        }
    }
    return command.print_plan ? Result<void>{} : check_log_folder(command);
}

Result<void> check_workers(
    const LaunchCommand& command, const Environment& environment, LocalWorldSize workers
) {
    const std::string_view plural = workers == LocalWorldSize{1} ? "worker" : "workers";
    if (command.stdin_rank && command.stdin_rank->value() >= workers.value()) {
        return fail(wrong(
            {fmt::format("{}", *command.stdin_rank), command.origin("stdin")},
            fmt::format(
                "this node has {} {}, local ranks from 0 to {}",
                workers,
                plural,
                workers.value() - 1
            )
        ));
    }
    const auto devices = environment.find("CUDA_VISIBLE_DEVICES");
    if (!command.virtual_local_rank || devices == environment.end()) {
        return {};
    }
    const std::string& list = devices->second;
    const auto count = list.empty() ? 0 : 1 + std::ranges::count(list, ',');
    if (count < workers.value()) {
        return fail(
            Errc::invalid_argument,
            fmt::format(
                "{}: CUDA_VISIBLE_DEVICES={} has {} {} for {} {}",
                command.origin("virtual_local_rank"),
                list,
                count,
                count == 1 ? "device" : "devices",
                workers,
                plural
            )
        );
    }
    return {};
}

Result<std::string> asked_address(const LaunchCommand& command) {
    if (!command.interface.empty()) {
        const auto addresses = addresses_of_interface(command.interface);
        if (!addresses) {
            return fail(
                wrong({command.interface, command.origin("iface")}, addresses.error().context)
            );
        }
        return addresses->front();
    }
    if (command.local_addr.empty()) {
        return std::string{};
    }
    const Sourced local_addr{command.local_addr, command.origin("local_addr")};
    const auto resolved = resolve_host(command.local_addr);
    if (!resolved) {
        return fail(wrong(local_addr, resolved.error().context));
    }
    const std::vector<std::string> own = own_addresses();
    std::vector<std::string> usable;
    std::ranges::copy_if(*resolved, std::back_inserter(usable), [&](const std::string& address) {
        return is_loopback(address) || std::ranges::find(own, address) != own.end();
    });
    if (usable.empty()) {
        return fail(wrong(
            local_addr,
            fmt::format(
                "{} is no address of this node, which has {}",
                fmt::join(*resolved, ", "),
                fmt::join(own, ", ")
            )
        ));
    }
    return best_of(usable);
}

}  // namespace ddprun::launcher
