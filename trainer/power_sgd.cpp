#include "trainer/power_sgd.h"

#include "trainer/collectives.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/torch.h>

#include <algorithm>
#include <map>
#include <random>
#include <utility>
#include <vector>

namespace ddprun::trainer {
namespace {

/// What is kept for a bucket from step to step.
struct BucketState {
    at::Tensor error;
    at::Tensor p;
    at::Tensor q;
};

/// A gradient as [rows, columns], and its two factors.
struct Factors {
    at::Tensor matrix;
    at::Tensor p;  ///< [rows, rank], a view into all P of the bucket
    at::Tensor q;  ///< [columns, rank]
};

void orthogonalize(at::Tensor matrix, double epsilon) {
    const std::int64_t columns = matrix.size(1);
    if (columns > 2 && matrix.scalar_type() != at::kHalf && matrix.scalar_type() != at::kBFloat16) {
        matrix.copy_(std::get<0>(at::linalg_qr(matrix)));
        return;
    }
    for (std::int64_t i = 0; i < columns; ++i) {
        at::Tensor column = matrix.narrow(1, i, 1);
        column.div_(at::linalg_vector_norm(column, 2, at::IntArrayRef{0}, true) + epsilon);
        if (i + 1 < columns) {
            at::Tensor rest = matrix.narrow(1, i + 1, columns - i - 1);
            rest.sub_((column * rest).sum(0, true) * column);
        }
    }
}

class PowerSgdHook final
    : public c10d::CppCommHookInterface<c10::intrusive_ptr<c10d::ProcessGroup>> {
public:
    PowerSgdHook(c10::intrusive_ptr<c10d::ProcessGroup> group, const PowerSgdOptions& options)
        : CppCommHookInterface(std::move(group)),
          options_(options),
          random_(options.seed) {}

    c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
        const torch::NoGradGuard no_grad;
        at::Tensor buffer = bucket.getBuffer();
        if (step_ < options_.start_step) {
            count(bucket);
            std::vector<at::Tensor> whole{buffer.div_(world())};
            return state_->allreduce(whole)->getFuture();
        }
        compress(bucket, buffer);
        count(bucket);
        auto done = c10::make_intrusive<c10::ivalue::Future>(
            c10::TensorType::get(),
            buffer.is_cuda() ? std::vector<c10::Device>{buffer.device()}
                             : std::vector<c10::Device>{}
        );
        done->markCompleted(c10::IValue(buffer));
        return done;
    }

private:
    [[nodiscard]] double world() const { return static_cast<double>(state_->getSize()); }

    void count(const c10d::GradBucket& bucket) {
        if (bucket.isLast()) {
            ++step_;
        }
    }

    void compress(c10d::GradBucket& bucket, at::Tensor& buffer) {
        BucketState& kept = kept_[bucket.getIndex()];
        at::Tensor wanted;
        if (options_.error_feedback) {
            if (kept.error.defined()) {
                buffer.add_(kept.error);
            }
            wanted = buffer.clone();
        }
        std::vector<at::Tensor> plain;
        std::vector<Factors> factors;
        sort_out(bucket.getGradients(), plain, factors);
        make_factors(kept, factors, buffer.options());
        for (Factors& each : factors) {
            at::mm_out(each.p, each.matrix, each.q);
        }
        send_plain(plain, buffer.options());
        all_reduce_sum(state_, kept.p);
        for (Factors& each : factors) {
            orthogonalize(each.p, options_.orthogonalization_epsilon);
            at::mm_out(each.q, each.matrix.t(), each.p);
        }
        all_reduce_sum(state_, kept.q);
        kept.q.div_(world());
        for (Factors& each : factors) {
            at::mm_out(each.matrix, each.p, each.q.t());
        }
        if (options_.error_feedback) {
            kept.error = wanted - buffer;
        }
        if (!options_.warm_start) {
            kept.p = at::Tensor();
            kept.q = at::Tensor();
        }
    }

    /// Matrices that are worth it become factors, those of one shape together, in the order of the
    /// shapes' first matrices: the order of the random numbers.
    void sort_out(
        const std::vector<at::Tensor>& gradients,
        std::vector<at::Tensor>& plain,
        std::vector<Factors>& factors
    ) const {
        std::vector<std::vector<at::Tensor>> by_shape;
        for (const at::Tensor& gradient : gradients) {
            const at::Tensor matrix = gradient.view({gradient.size(0), -1});
            const std::int64_t rank = rank_of(matrix);
            const auto compressed = static_cast<double>((matrix.size(0) + matrix.size(1)) * rank);
            if (compressed * options_.min_compression_rate >= static_cast<double>(matrix.numel())) {
                plain.push_back(gradient);
                continue;
            }
            const auto same =
                std::find_if(by_shape.begin(), by_shape.end(), [&matrix](const auto& others) {
                    return others.front().sizes() == matrix.sizes();
                });
            if (same == by_shape.end()) {
                by_shape.push_back({matrix});
            } else {
                same->push_back(matrix);
            }
        }
        for (const auto& matrices : by_shape) {
            for (const auto& matrix : matrices) {
                factors.push_back({.matrix = matrix, .p = {}, .q = {}});
            }
        }
    }

    [[nodiscard]] std::int64_t rank_of(const at::Tensor& matrix) const {
        return std::min({matrix.size(0), matrix.size(1), options_.rank});
    }

    void make_factors(
        BucketState& kept, std::vector<Factors>& factors, const at::TensorOptions& options
    ) {
        std::int64_t p_size = 0;
        std::int64_t q_size = 0;
        for (const Factors& each : factors) {
            p_size += each.matrix.size(0) * rank_of(each.matrix);
            q_size += each.matrix.size(1) * rank_of(each.matrix);
        }
        const bool fresh = !kept.q.defined() || kept.q.numel() != q_size;
        if (fresh) {
            kept.p = torch::empty({p_size}, options);
            kept.q = torch::empty({q_size}, options);
        }
        at::Generator generator;
        if (fresh) {
            generator = at::make_generator<at::CPUGeneratorImpl>(next_seed());
        }
        std::int64_t p_at = 0;
        std::int64_t q_at = 0;
        for (Factors& each : factors) {
            const std::int64_t rank = rank_of(each.matrix);
            const std::int64_t rows = each.matrix.size(0);
            const std::int64_t columns = each.matrix.size(1);
            each.p = kept.p.narrow(0, p_at, rows * rank).view({rows, rank});
            each.q = kept.q.narrow(0, q_at, columns * rank).view({columns, rank});
            p_at += rows * rank;
            q_at += columns * rank;
            if (fresh) {
                each.q.copy_(
                    torch::randn({1, columns, rank}, generator, options.device(at::kCPU)).squeeze(0)
                );
            }
            orthogonalize(each.q, options_.orthogonalization_epsilon);
        }
    }

    /// numpy's RandomState(seed).randint(1000000000): draws of 30 bits until one is small enough.
    std::uint64_t next_seed() {
        constexpr std::uint32_t kMask = (1U << 30U) - 1;
        constexpr std::uint32_t kEnd = 1'000'000'000;
        std::uint32_t draw = kEnd;
        while (draw >= kEnd) {
            draw = static_cast<std::uint32_t>(random_()) & kMask;
        }
        return draw;
    }

    void send_plain(std::vector<at::Tensor>& plain, const at::TensorOptions& options) {
        if (plain.empty()) {
            return;
        }
        std::vector<at::Tensor> flat;
        for (const auto& tensor : plain) {
            flat.push_back(tensor.reshape({-1}));
        }
        at::Tensor all = torch::cat(flat).to(options.dtype());
        all_reduce_sum(state_, all);
        all.div_(world());
        std::int64_t at = 0;
        for (auto& tensor : plain) {
            tensor.copy_(all.narrow(0, at, tensor.numel()).view_as(tensor));
            at += tensor.numel();
        }
    }

    PowerSgdOptions options_;
    std::mt19937 random_;
    std::int64_t step_ = 0;
    std::map<std::size_t, BucketState> kept_;
};

}  // namespace

std::unique_ptr<c10d::CommHookInterface> make_power_sgd_hook(
    const c10::intrusive_ptr<c10d::ProcessGroup>& group, const PowerSgdOptions& options
) {
    return std::make_unique<PowerSgdHook>(group, options);
}

}  // namespace ddprun::trainer
