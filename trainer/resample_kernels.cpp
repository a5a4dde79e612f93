#include "trainer/resample_kernels.h"

#include "trainer/picture.h"

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace ddprun::trainer {

namespace {

constexpr std::int32_t kHalf = 1 << (kWeightBits - 1);

std::uint8_t rounded(std::int32_t sum) {
    // Weights are positive and add up to 2^22 but for their own rounding: no value leaves 0 ...
    // 255.
    return static_cast<std::uint8_t>(sum >> kWeightBits);
}

void narrow_portable(
    const std::uint8_t* row,
    const int* first,
    int origin,
    const std::int32_t* weights,
    int taps,
    int outputs,
    std::uint8_t* out
) {
    for (int i = 0; i < outputs; ++i) {
        const std::uint8_t* in = row + static_cast<std::size_t>(first[i] - origin) * kPixelBytes;
        std::int32_t red = kHalf;
        std::int32_t green = kHalf;
        std::int32_t blue = kHalf;
        for (int k = 0; k < taps; ++k) {
            const std::int32_t weight = weights[k];
            red += weight * in[0];
            green += weight * in[1];
            blue += weight * in[2];
            in += kPixelBytes;
        }
        out[0] = rounded(red);
        out[1] = rounded(green);
        out[2] = rounded(blue);
        out += kPixelBytes;
        weights += taps;
    }
}

void blend_portable(
    const std::uint8_t* rows,
    std::size_t stride,
    const std::int32_t* weights,
    int taps,
    std::size_t bytes,
    std::uint8_t* out
) {
    constexpr std::size_t kBlock = 64;
    std::array<std::int32_t, kBlock> sums{};
    for (std::size_t begin = 0; begin < bytes; begin += kBlock) {
        const std::size_t count = std::min(kBlock, bytes - begin);
        sums.fill(kHalf);
        const std::uint8_t* in = rows + begin;
        for (int k = 0; k < taps; ++k, in += stride) {
            for (std::size_t i = 0; i < count; ++i) {
                sums[i] += weights[k] * in[i];
            }
        }
        for (std::size_t i = 0; i < count; ++i) {
            out[begin + i] = rounded(sums[i]);
        }
    }
}

// Two pixels of three bytes fill six of eight 32-bit lanes: R0 G0 B0 R1 G1 B1. The weights stand as
// k0 k0 k0 k1 k1 k1 beside them, and at the end the upper three lanes are added to the lower.
__attribute__((target("avx2"))) void narrow_avx2(
    const std::uint8_t* row,
    const int* first,
    int origin,
    const std::int32_t* weights,
    int taps,
    int outputs,
    std::uint8_t* out
) {
    const __m256i spread = _mm256_setr_epi32(0, 0, 0, 1, 1, 1, 0, 0);
    const __m256i upper = _mm256_setr_epi32(3, 4, 5, 3, 3, 3, 3, 3);
    const __m128i half = _mm_set1_epi32(kHalf);
    for (int i = 0; i < outputs; ++i) {
        const std::uint8_t* in = row + static_cast<std::size_t>(first[i] - origin) * kPixelBytes;
        __m256i sum = _mm256_setzero_si256();
        for (int k = 0; k < taps; k += 2) {
            const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(in));
            const __m128i pair = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(weights + k));
            const __m256i factors =
                _mm256_permutevar8x32_epi32(_mm256_castsi128_si256(pair), spread);
            sum = _mm256_add_epi32(sum, _mm256_mullo_epi32(_mm256_cvtepu8_epi32(bytes), factors));
            in += 2 * kPixelBytes;
        }
        const __m256i moved = _mm256_permutevar8x32_epi32(sum, upper);
        __m128i pixel = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_castsi256_si128(moved));
        pixel = _mm_srai_epi32(_mm_add_epi32(pixel, half), kWeightBits);
        pixel = _mm_packus_epi16(_mm_packs_epi32(pixel, pixel), pixel);
        const int four = _mm_cvtsi128_si32(pixel);
        std::memcpy(out, &four, sizeof four);
        out += kPixelBytes;
        weights += taps;
    }
}

__attribute__((target("avx2"))) void blend_avx2(
    const std::uint8_t* rows,
    std::size_t stride,
    const std::int32_t* weights,
    int taps,
    std::size_t bytes,
    std::uint8_t* out
) {
    constexpr std::size_t kStep = 16;
    const __m256i half = _mm256_set1_epi32(kHalf);
    for (std::size_t i = 0; i < bytes; i += kStep) {
        __m256i low = half;
        __m256i high = half;
        const std::uint8_t* in = rows + i;
        for (int k = 0; k < taps; ++k) {
            const __m256i weight = _mm256_set1_epi32(weights[k]);
            const __m128i values = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in));
            const __m256i first = _mm256_cvtepu8_epi32(values);
            const __m256i second = _mm256_cvtepu8_epi32(_mm_unpackhi_epi64(values, values));
            low = _mm256_add_epi32(low, _mm256_mullo_epi32(first, weight));
            high = _mm256_add_epi32(high, _mm256_mullo_epi32(second, weight));
            in += stride;
        }
        low = _mm256_srai_epi32(low, kWeightBits);
        high = _mm256_srai_epi32(high, kWeightBits);
        // The packing works within halves of 128 bits; the permutation puts them in order.
        __m256i packed = _mm256_packs_epi32(low, high);
        packed = _mm256_permute4x64_epi64(packed, 0xd8);
        const __m128i result =
            _mm_packus_epi16(_mm256_castsi256_si128(packed), _mm256_extracti128_si256(packed, 1));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), result);
    }
}

constexpr ResampleKernels kPortable{narrow_portable, blend_portable};
constexpr ResampleKernels kAvx2{narrow_avx2, blend_avx2};

}  // namespace

const ResampleKernels& portable_kernels() {
    return kPortable;
}

const ResampleKernels& best_kernels() {
    static const bool kHasAvx2 = __builtin_cpu_supports("avx2") != 0;
    return kHasAvx2 ? kAvx2 : kPortable;
}

}  // namespace ddprun::trainer
