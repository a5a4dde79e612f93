// The two inner loops of resampling, for any x86-64 and for AVX2, chosen once when the program
// runs. Both give the same bytes. Sums are 32-bit: 255 x 2^22 fits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ddprun::trainer {

/// Bits behind the point of a weight.
inline constexpr int kWeightBits = 22;

struct ResampleKernels {
    /// Makes `outputs` pixels of one row. Output i is the sum of `taps` (even) pixels from
    /// pixel `first[i] - origin` of `row` on, with the weights `weights[i * taps ...]`. Reads up to
    /// kReadBeyond bytes behind the last pixel; writes up to 2 bytes behind the last output.
    void (*narrow
    )(const std::uint8_t* row,
      const int* first,
      int origin,
      const std::int32_t* weights,
      int taps,
      int outputs,
      std::uint8_t* out);

    /// out[i] = sum of weights[k] x rows[k * stride + i], i below `bytes`. Reads and writes up to
    /// 31 bytes behind.
    void (*blend
    )(const std::uint8_t* rows,
      std::size_t stride,
      const std::int32_t* weights,
      int taps,
      std::size_t bytes,
      std::uint8_t* out);
};

/// Bytes that `blend` and `narrow` may touch behind what they are asked for.
inline constexpr std::size_t kKernelSlack = 32;

[[nodiscard]] const ResampleKernels& portable_kernels();

/// Those of the widest instructions that this CPU has.
[[nodiscard]] const ResampleKernels& best_kernels();

}  // namespace ddprun::trainer
