#include "trainer/train.h"

#include "trainer/data.h"
#include "trainer/loader.h"
#include "trainer/sampler.h"
#include "trainer/stop_signal.h"
#include "trainer/trace_range.h"
#include "trainer/training.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <csignal>

namespace ddprun::trainer {

Outcome<int> Training::run() {
    if (options_.test_only) {
        return test_only();
    }
    if (auto saved = save_if_wanted(false); !saved) {
        return tl::unexpected<Failure>(saved.error());
    }
    // An earlier life may have ended between the last step and telling what it had reached.
    if (position_.step >= total_steps_ && position_.step > 0 && position_.consumed == 0) {
        if (auto evaluated = evaluate_model(position_.epoch); !evaluated) {
            return tl::unexpected<Failure>(evaluated.error());
        }
    }
    while (!over()) {
        if (auto trained = run_epoch(); !trained) {
            return tl::unexpected<Failure>(trained.error());
        }
    }
    auto saved = save_if_wanted(false);
    if (saved) {
        saved = finish_saving();
    }
    if (!saved) {
        return tl::unexpected<Failure>(saved.error());
    }
    // Rank 0 may be the server of the store, and all wait until its checkpoint is on the disk.
    barrier(group_.group);
    if (auto reported = report_end(); !reported) {
        return tl::unexpected<Failure>(reported.error());
    }
    return stopped_by_ != 0 ? exit_code::from_signal(stopped_by_) : exit_code::kSuccess;
}

Outcome<int> Training::test_only() {
    auto evaluated = evaluate_model(std::max<std::int64_t>(position_.epoch, 0));
    if (!evaluated) {
        return tl::unexpected<Failure>(evaluated.error());
    }
    barrier(group_.group);
    if (reporter_) {
        reporter_->finish();
    }
    return stopped_by_ != 0 ? exit_code::from_signal(stopped_by_) : exit_code::kSuccess;
}

/// From the position in the epoch to its end, or until the job is over.
Outcome<void> Training::run_epoch() {
    model_->train();
    Loader loader(
        *train_data_,
        sampler_->indices(epoch(), position_.consumed),
        {.batch_size = options_.batch_size,
         .workers = options_.workers,
         .training = true,
         .epoch = epoch(),
         .bad = &*bad_train_,
         .make_memory = pinned_memory(device_.device)}
    );
    DeviceBatches batches(loader, batch_form(train_data_->shape()));
    const auto epoch_begin = Clock::now();
    std::int64_t left = loader.batches();
    while (left > 0 && !over()) {
        const std::int64_t parts = std::min(options_.grad_accum_steps, left);
        auto done = run_step(batches, parts);
        if (!done) {
            return tl::unexpected<Failure>(done.error());
        }
        left -= parts;
        if (left == 0) {
            report_loading(loader, Clock::now() - epoch_begin);
            return finish_epoch();
        }
        const bool due =
            options_.checkpoint_every > 0 && position_.step % options_.checkpoint_every == 0;
        if ((due || save_wished_) && !over()) {
            if (auto saved = save_if_wanted(false); !saved) {
                return saved;
            }
        }
    }
    return loader.batches() == 0 ? finish_epoch() : Outcome<void>{};
}

/// With a graph the optimizer's part is in it.
BatchResult Training::run_batch(
    const BatchPlace& place, const DeviceBatch& batch, double learning_rate
) {
    return graphed_ ? graphed_->run(place, batch.images, batch.labels, learning_rate)
                    : step_->backward(place, batch.images, batch.labels);
}

/// One step of `parts` batches, and what the ranks tell each other after it.
Outcome<void> Training::run_step(DeviceBatches& batches, std::int64_t parts) {
    begin_profile();
    const std::int64_t place_in_schedule = position_.step + schedule_.shift;
    const double lr = learning_rate(schedule_.options, place_in_schedule);
    StepSums sums;
    StepClock clock;
    for (std::int64_t part = 0; part < parts; ++part) {
        auto batch = [&batches] {
            const TraceRange range("data");
            return batches.next();
        }();
        if (!batch) {
            return input_failed(batch.error());
        }
        clock.lap(sums.load.data);
        const auto result =
            run_batch({.step = position_.step + 1, .part = part, .parts = parts}, **batch, lr);
        sums.add(result, (*batch)->size);
        clock.lap(sums.load.compute);
    }
    position_.step += 1;
    position_.consumed += sums.load.pictures * place_.world_size;
    if (!graphed_) {
        step_->update(lr);
    }
    step_->average(position_.step, place_in_schedule < schedule_.options.warmup_steps);
    clock.lap(sums.load.update);
    return after_step(sums, clock, lr);
}

/// What any rank was told, all know now.
void Training::agree_to_stop(bool terminate, bool interrupt) {
    if (terminate) {
        stopped_by_ = SIGTERM;
    } else if (interrupt) {
        stopped_by_ = SIGINT;
    }
}

Outcome<void> Training::finish_epoch() {
    if (stopped_by_ != 0) {
        return {};  // the next life evaluates
    }
    auto top1 = evaluate_model(epoch());
    if (!top1 || stopped_by_ != 0) {
        return top1 ? Outcome<void>{} : tl::unexpected<Failure>(top1.error());
    }
    position_.epoch += 1;
    position_.consumed = 0;
    saved_step_ = -1;  // the same step, but now the epoch is over
    const bool best = *top1 > position_.best_top1;
    position_.best_top1 = std::max(position_.best_top1, *top1);
    return save_if_wanted(best);
}

/// Accuracy on the test split, that of the moving average where there is one.
Outcome<double> Training::evaluate_model(std::int64_t epoch) {
    if (ddp_) {
        ddp_->sync_buffers();
    }
    model_->eval();
    const EvaluationJob job{
        options_, place_, group_.group, *test_data_, batch_form(test_data_->shape()), *bad_test_};
    auto result = evaluate(job, *step_);
    if (!result) {
        return tl::unexpected<Failure>(result.error());
    }
    agree_to_stop(result->terminate, result->interrupt);
    EvaluationRecord record{
        .epoch = epoch, .top1 = result->top1, .top5 = result->top5, .count = result->count};
    if (ema_ && stopped_by_ == 0) {
        ema_->swap();
        auto average = evaluate(job, *step_);
        ema_->swap();
        if (!average) {
            return tl::unexpected<Failure>(average.error());
        }
        agree_to_stop(average->terminate, average->interrupt);
        record.ema_top1 = average->top1;
        record.ema_top5 = average->top5;
    }
    // Stopped in the middle: the next life evaluates.
    if (reporter_ && stopped_by_ == 0) {
        if (auto told = reporter_->evaluation(record, position_.step); !told) {
            return tl::unexpected<Failure>(told.error());
        }
    }
    return record.ema_top1.value_or(record.top1);
}

Outcome<void> Training::save_if_wanted(bool best) {
    save_wished_ = false;
    if (!saver_ || saved_step_ == position_.step) {
        return {};
    }
    if (auto begun = saver_->begin(state(), best); !begun) {
        return output_failed(begun.error());
    }
    saved_step_ = position_.step;
    return {};
}

Outcome<void> Training::finish_saving() {
    for (auto* saver : {saver_.get(), memory_saver_.get()}) {
        if (saver == nullptr) {
            continue;
        }
        if (auto done = saver->wait(); !done) {
            return output_failed(done.error());
        }
    }
    return {};
}

int train(const Options& options, const WorkerPlace& place, Log& log) {
    stop_signal::catch_save_wish();
    // Left behind on purpose: after a failure a peer may be gone, and the destructors of its
    // connections would wait for it. main ends the process without them.
    auto* training = new Training(options, place, log);
    try {
        Outcome<int> status = 0;
        if (auto started = training->start(); !started) {
            status = tl::unexpected<Failure>(started.error());
        } else {
            stop_signal::catch_all();
            status = training->run();
        }
        if (!status) {
            if (!status.error().line.empty()) {
                log.error("{}", status.error().line);
            }
            return status.error().status;
        }
        return *status;
    } catch (const std::exception& exception) {
        // LibTorch reports a lost peer so, and everything that it did not expect.
        log.error("rank {}: {}", place.rank, describe(exception));
        return place.alone() ? exit_code::kInternal : exit_code::kUnavailable;
    }
}

}  // namespace ddprun::trainer
