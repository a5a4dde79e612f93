// Mixed precision: autocast for the forward pass, and for fp16 a loss that is scaled so that small
// gradients don't vanish, with the rules (and the state) of torch.amp.GradScaler.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace ddprun::trainer {

/// While it lives, operators of `device` compute in `type` where autocast's lists say so; with no
/// type nothing changes. One thread.
class Autocast {
public:
    Autocast(c10::DeviceType device, std::optional<c10::ScalarType> type);
    Autocast(const Autocast&) = delete;
    Autocast& operator=(const Autocast&) = delete;
    ~Autocast();

private:
    c10::DeviceType device_;
    bool active_;
    bool was_enabled_ = false;
    c10::ScalarType before_ = c10::ScalarType::Undefined;
};

struct GradScalerState {
    double scale = 65'536.0;
    double growth_factor = 2.0;
    double backoff_factor = 0.5;
    std::int64_t growth_interval = 2'000;
    std::int64_t growth_tracker = 0;  ///< steps since the scale last changed

    friend bool operator==(const GradScalerState&, const GradScalerState&) = default;
};

class GradScaler {
public:
    explicit GradScaler(const GradScalerState& state = {}) : state_(state) {}

    /// The loss to run backward from.
    [[nodiscard]] at::Tensor scale(const at::Tensor& loss) const { return loss * state_.scale; }

    /// Divides the gradients of `parameters` by the scale. True if all are finite: else the step
    /// is to be skipped. Call update() after the step, or its omission.
    [[nodiscard]] bool unscale(const std::vector<at::Tensor>& parameters);

    /// Halves the scale after gradients that weren't finite, doubles it after a long time without.
    void update();

    [[nodiscard]] const GradScalerState& state() const { return state_; }

    void restore(const GradScalerState& state) { state_ = state; }

private:
    GradScalerState state_;
    bool finite_ = true;
};

}  // namespace ddprun::trainer
