#include "agent/worker_streams.h"

namespace ddprun {

namespace {

/// The folder of an attempt's worker without the worker: what all workers of the attempt share.
std::string attempt_folder_of(const std::string& worker_folder) {
    return worker_folder.substr(0, worker_folder.rfind('/'));
}

StreamTargets targets_of(
    const OutputSettings& settings,
    const WorkerRanks& ranks,
    StreamKind kind,
    const std::string& worker_folder
) {
    const bool is_out = kind == StreamKind::out;
    const bool has_files = !worker_folder.empty();
    const bool teed = has_files && settings.tee.has(ranks.local_rank, kind);
    const bool redirected = has_files && !teed && settings.redirects.has(ranks.local_rank, kind);
    const bool rank_is_shown =
        (settings.shown_ranks.empty() || settings.shown_ranks.contains(ranks.local_rank)) &&
        (settings.shown_global_ranks.empty() || settings.shown_global_ranks.contains(ranks.rank));
    StreamTargets targets;
    targets.shown = rank_is_shown && !redirected;
    if (teed || redirected) {
        targets.file = worker_folder + (is_out ? "/stdout.log" : "/stderr.log");
    }
    const auto& filters = is_out ? settings.stdout_filters : settings.stderr_filters;
    if (teed && !filters.empty()) {
        targets.filters = filters;
        targets.filtered_file = attempt_folder_of(worker_folder) +
                                (is_out ? "/filtered_stdout.log" : "/filtered_stderr.log");
    }
    return targets;
}

}  // namespace

WorkerStreams streams_of(
    const OutputSettings& settings, const PrefixValues& values, const std::string& worker_folder
) {
    WorkerStreams streams;
    const bool several = values.ranks.local_world_size > LocalWorldSize{1};
    const bool raw = !several && settings.prefix_template.empty();
    streams.mode = raw ? LineSplitter::Mode::raw : LineSplitter::Mode::lines;
    streams.prefix = raw ? std::string{} : expand_prefix(settings.prefix_template, values);
    for (const StreamKind kind : {StreamKind::out, StreamKind::err}) {
        streams.targets[static_cast<std::size_t>(kind)] =
            targets_of(settings, values.ranks, kind, worker_folder);
    }
    return streams;
}

}  // namespace ddprun
