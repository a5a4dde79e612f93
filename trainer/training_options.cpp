#include "proto/limits.h"
#include "trainer/option_groups.h"

namespace ddprun::trainer {
namespace {

constexpr double kRateMax = 1e6;
constexpr double kEpochsMax = 1e6;

}  // namespace

OptionGroup training_group(Options& o) {
    return {
        "Training",
        {
            {"--batch_size",
             "N",
             "Pictures in a batch of each rank [32]",
             whole_number(o.batch_size, 1, limits::kBatchSizeMax)},
            {"--grad_accum_steps",
             "N",
             "Batches of each rank that make one step, synchronised once [1]",
             whole_number(o.grad_accum_steps, 1, limits::kAccumulationMax)},
            {"--epochs",
             "N",
             "Passes over the data [90, or as many as --steps needs]",
             whole_number(o.epochs, 0, limits::kStepsMax)},
            {"--steps",
             "N",
             "Steps of the job, over all restarts; 0 only writes a checkpoint",
             whole_number(o.steps, 0, limits::kStepsMax)},
            {"--test_only", "", "Evaluate the weights and end", flag(o.test_only, true)},
            {"--seed",
             "N",
             "Of the first weights and of the order of the data [0]",
             seed_number(o.seed)},
            {"--deterministic", "", "The same bits in every run", flag(o.deterministic, true)},
        }};
}

OptionGroup optimizer_group(Options& o) {
    return {
        "Optimizer",
        {
            {"--optimizer,--opt",
             "NAME",
             "sgd, lars or adamw [sgd]",
             one_of<OptimizerChoice>(
                 o.optimizer,
                 {{"sgd", OptimizerChoice::sgd},
                  {"lars", OptimizerChoice::lars},
                  {"adamw", OptimizerChoice::adamw}}
             )},
            {"--lr", "RATE", "Learning rate [0.1]", real_number(o.lr, 0.0, kRateMax)},
            {"--lr_batch",
             "N",
             "--lr is meant for N pictures a step, and scaled to those of the job [as it is]",
             whole_number(o.lr_batch, 1, limits::kStepsMax)},
            {"--momentum", "M", "Of SGD and LARS [0]", real_number(o.momentum, 0.0, 1.0)},
            {"--nesterov", "", "Nesterov momentum", flag(o.nesterov, true)},
            {"--weight_decay", "W", "Weight decay [0]", real_number(o.weight_decay, 0.0, kRateMax)},
            {"--norm_weight_decay",
             "W",
             "That of batch norms [--weight_decay]",
             real_number(o.norm_weight_decay, 0.0, kRateMax)},
            {"--bias_weight_decay",
             "W",
             "That of biases, those of batch norms included [--weight_decay]",
             real_number(o.bias_weight_decay, 0.0, kRateMax)},
            {"--beta1", "B", "Of AdamW [0.9]", real_number(o.beta1, 0.0, 1.0)},
            {"--beta2", "B", "Of AdamW [0.999]", real_number(o.beta2, 0.0, 1.0)},
            {"--eps", "E", "Of AdamW and LARS [1e-08]", real_number(o.eps, 0.0, 1.0)},
            {"--lars_trust",
             "T",
             "Trust coefficient of LARS [0.001]",
             real_number(o.lars_trust, 0.0, kRateMax)},
            {"--clip_grad_norm",
             "N",
             "Largest norm of all gradients together [none]",
             real_number(o.clip_grad_norm, 0.0, kRateMax)},
        }};
}

OptionGroup schedule_group(Options& o) {
    return {
        "Schedule of the learning rate",
        {
            {"--lr_scheduler",
             "NAME",
             "constant, step, exponential, cosine or polynomial [constant]",
             one_of<ScheduleKind>(
                 o.lr_scheduler,
                 {{"constant", ScheduleKind::constant},
                  {"step", ScheduleKind::step},
                  {"exponential", ScheduleKind::exponential},
                  {"cosine", ScheduleKind::cosine},
                  {"polynomial", ScheduleKind::polynomial},
                  // torchvision's names
                  {"steplr", ScheduleKind::step},
                  {"exponentiallr", ScheduleKind::exponential},
                  {"cosineannealinglr", ScheduleKind::cosine}}
             )},
            {"--lr_warmup_epochs",
             "E",
             "Length of the warm-up, which goes step by step [0]",
             real_number(o.lr_warmup_epochs, 0.0, kEpochsMax)},
            {"--lr_warmup_method",
             "NAME",
             "linear or constant [linear]",
             one_of<WarmupKind>(
                 o.lr_warmup_method,
                 {{"linear", WarmupKind::linear}, {"constant", WarmupKind::constant}}
             )},
            {"--lr_warmup_decay",
             "F",
             "Factor of --lr where the warm-up begins [0.01]",
             real_number(o.lr_warmup_decay, 0.0, 1.0)},
            {"--lr_step_size",
             "E",
             "Epochs between decreases of step [30]",
             real_number(o.lr_step_size, 1e-3, kEpochsMax)},
            {"--lr_gamma",
             "F",
             "Factor of each decrease of step, of each epoch of exponential [0.1]",
             real_number(o.lr_gamma, 0.0, 1.0)},
            {"--lr_power", "P", "Power of polynomial [2]", real_number(o.lr_power, 0.0, 100.0)},
            {"--lr_min",
             "RATE",
             "End of cosine, least of exponential [0]",
             real_number(o.lr_min, 0.0, kRateMax)},
        }};
}

OptionGroup regularization_group(Options& o) {
    constexpr double kAlphaMax = 1e3;
    return {
        "Regularization",
        {
            {"--label_smoothing",
             "S",
             "Share of the target that goes to all classes [0]",
             real_number(o.label_smoothing, 0.0, 1.0)},
            {"--mixup_alpha",
             "A",
             "Mix whole pictures, weights of Beta(A, A) [0, off]",
             real_number(o.mixup_alpha, 0.0, kAlphaMax)},
            {"--cutmix_alpha",
             "A",
             "Mix parts of pictures; with both, one of them by chance [0, off]",
             real_number(o.cutmix_alpha, 0.0, kAlphaMax)},
            {"--model_ema",
             "",
             "Keep an exponential moving average of the model, and evaluate it too",
             flag(o.model_ema, true)},
            {"--model_ema_steps",
             "N",
             "Steps between its updates [32]",
             whole_number(o.model_ema_steps, 1, limits::kStepsMax)},
            {"--model_ema_decay",
             "D",
             "Its decay, adjusted to epochs and batch as torchvision does [0.99998]",
             real_number(o.model_ema_decay, 0.0, 1.0)},
        }};
}

}  // namespace ddprun::trainer
