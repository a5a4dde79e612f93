#include "proto/limits.h"
#include "trainer/option_groups.h"

namespace ddprun::trainer {
namespace {

constexpr double kBucketMegabytesMax = 65'536.0;

Setter profile_window(std::optional<ProfileWindow>& target) {
    const auto set = [&target](std::string_view value) -> Complaint {
        const std::size_t colon = value.find(':');
        const auto first = parse_number<std::int64_t>(value.substr(0, colon));
        auto last = colon == std::string_view::npos
                        ? first
                        : parse_number<std::int64_t>(value.substr(colon + 1));
        if (!first || !last || *first < 1 || *last < *first ||
            (colon == std::string_view::npos ? *first - 1 : *last - *first) >=
                limits::kProfiledStepsMax) {
            return fmt::format(
                "not a count of steps or FIRST:LAST, at most {} steps", limits::kProfiledStepsMax
            );
        }
        // The first steps of a life are not like the others: a count begins after them.
        constexpr std::int64_t kSkipped = 2;
        target = colon == std::string_view::npos ? ProfileWindow{kSkipped + 1, kSkipped + *first}
                                                 : ProfileWindow{*first, *last};
        return std::nullopt;
    };
    return {set, [&target]() -> std::optional<std::string> {
                return target ? std::optional(fmt::format("{}:{}", target->first, target->last))
                              : std::nullopt;
            }};
}

std::vector<OptionRow> bucket_rows(Options& o) {
    return {
        {"--bucket_cap_mb",
         "MB",
         "Size of a bucket of gradients [25]",
         real_number(o.bucket_cap_mb, 1e-6, kBucketMegabytesMax)},
        {"--find_unused_parameters",
         "",
         "Some parameters get no gradient in some steps",
         flag(o.find_unused_parameters, true)},
        {"--static_graph",
         "",
         "Every step uses the same parameters in the same order",
         flag(o.static_graph, true)},
        {"--no_broadcast_buffers",
         "",
         "Each rank keeps its own batch norm statistics",
         flag(o.broadcast_buffers, false)},
        {"--no_gradient_as_bucket_view",
         "",
         "Gradients have memory of their own",
         flag(o.gradient_as_bucket_view, false)},
    };
}

}  // namespace

OptionGroup device_group(Options& o) {
    return {
        "Device",
        {
            {"--device",
             "NAME",
             "cpu, cuda or auto (a GPU where there is one) [auto]",
             one_of<DeviceChoice>(
                 o.device,
                 {{"cpu", DeviceChoice::cpu},
                  {"cuda", DeviceChoice::cuda},
                  {"auto", DeviceChoice::automatic}}
             )},
            {"--threads",
             "N",
             "Threads of each rank's operators [OMP_NUM_THREADS, else all CPUs]",
             whole_number(o.threads, 1, limits::kLoaderThreadsMax)},
            {"--channels_last",
             "",
             "Keep pictures and weights with the channels innermost",
             flag(o.channels_last, true)},
            {"--amp",
             "NAME",
             "Mixed precision: none, bf16, or fp16 with a scaled loss [none]",
             one_of<Precision>(
                 o.amp,
                 {{"none", Precision::fp32}, {"bf16", Precision::bf16}, {"fp16", Precision::fp16}}
             )},
            {"--tf32",
             "NAME",
             "On a GPU TF32 for fp32 operators: none, conv or all [conv]",
             one_of<Tf32>(
                 o.tf32, {{"none", Tf32::none}, {"conv", Tf32::convolutions}, {"all", Tf32::all}}
             )},
            {"--cuda_graph",
             "",
             "On a GPU record a whole step once and replay it",
             flag(o.cuda_graph, true)},
        }};
}

OptionGroup parallel_group(Options& o) {
    OptionGroup group{
        "Parallel",
        {
            {"--init_timeout",
             "SECONDS",
             "For all ranks to connect to each other [60]",
             seconds_number(o.init_timeout)},
            {"--spawn",
             "N",
             "Without a launcher: start N workers of this node",
             whole_number(o.spawn, 0, limits::kSpawnedMax)},
            {"--model_parallel",
             "N",
             "Parts (1 or 2) that the model is cut into, each on a device of its own [1]",
             whole_number(o.model_parallel, 1, 2)},
            {"--data_parallel",
             "N",
             "Replicas in each process, each on a device of its own [1]",
             whole_number(o.data_parallel, 1, limits::kReplicasMax)},
            {"--ddp",
             "",
             "Use DDP for a launcher's only worker, too, to see what it costs",
             flag(o.ddp, true)},
            {"--sync_bn", "", "Batch norms count the pictures of all ranks", flag(o.sync_bn, true)},
        }};
    for (auto& row : bucket_rows(o)) {
        group.rows.push_back(std::move(row));
    }
    group.rows.push_back(
        {"--comm_hook",
         "NAME",
         "How gradients travel: none, allreduce, fp16, bf16 or powersgd [none]",
         one_of<GradientHook>(
             o.comm_hook,
             {{"none", GradientHook::none},
              {"allreduce", GradientHook::allreduce},
              {"fp16", GradientHook::fp16_compress},
              {"bf16", GradientHook::bf16_compress},
              {"powersgd", GradientHook::power_sgd}}
         )}
    );
    group.rows.push_back(
        {"--powersgd_rank",
         "N",
         "Rank of the matrices that stand for a gradient [1]",
         whole_number(o.powersgd_rank, 1, limits::kPowerSgdRankMax)}
    );
    group.rows.push_back(
        {"--powersgd_start",
         "N",
         "Steps with whole gradients before the first compressed one, at least 2 [1000]",
         whole_number(o.powersgd_start, 2, limits::kStepsMax)}
    );
    return group;
}

OptionGroup checkpoint_group(Options& o) {
    return {
        "Checkpoints",
        {
            {"--checkpoint_dir,--output_dir",
             "DIR",
             "Write checkpoints here, and go on from the newest one",
             any_text(o.checkpoint_dir)},
            {"--checkpoint_every",
             "N",
             "Steps between checkpoints, beside those at the start, after epochs and at the end",
             whole_number(o.checkpoint_every, 0, limits::kStepsMax)},
            {"--keep",
             "N",
             "Newest checkpoints that stay [3]",
             whole_number(o.keep, 1, limits::kCheckpointsKeptMax)},
            {"--resume",
             "FILE",
             "Start from this one where --checkpoint_dir has none",
             any_text(o.resume)},
            {"--memory_checkpoint",
             "",
             "Keep the last state in shared memory too, for restarts under ddprun",
             flag(o.memory_checkpoint, true)},
        }};
}

OptionGroup report_group(Options& o) {
    return {
        "Reports",
        {
            {"--log_json",
             "FILE",
             "A JSON object a line for every step and evaluation",
             any_text(o.log_json)},
            {"--log_interval,--print_freq",
             "N",
             "Steps between progress lines [10]",
             whole_number(o.log_interval, 1, limits::kStepsMax)},
            {"--tensorboard", "DIR", "Event files for TensorBoard", any_text(o.tensorboard)},
            {"--profile",
             "STEPS",
             "Chrome trace of N steps, or of FIRST:LAST, of each rank",
             profile_window(o.profile)},
            {"--profile_dir", "DIR", "Folder of the traces [.]", any_text(o.profile_dir)},
            {"--memory_summary",
             "",
             "Where the memory went, at the end",
             flag(o.memory_summary, true)},
            {"--load_svg", "FILE", "Picture of the ranks' load", any_text(o.load_svg)},
            {"--gpu_monitor",
             "",
             "Use and memory of the GPUs, by NVML, in progress lines",
             flag(o.gpu_monitor, true)},
        }};
}

}  // namespace ddprun::trainer
