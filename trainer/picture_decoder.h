// Decoders of JPEG and PNG files that are in memory. What a file is shows in its first bytes, not
// in its name. Pixels are what PIL's Image.open(...).convert("RGB") gives: no gamma, no colour
// profile, no rotation by EXIF, alpha dropped.
//
//   auto decoder = open_picture(bytes);             // reads the header
//   plan from (*decoder)->size() ...
//   (*decoder)->decode(area, 1, pixels);            // once
//
// `bytes` must outlive the decoder. Errors name what is wrong, not the file, which the caller
// knows.
#pragma once

#include "proto/result.h"
#include "trainer/picture.h"

#include <cstdint>
#include <memory>
#include <span>

namespace ddprun::trainer {

class PictureDecoder {
public:
    PictureDecoder() = default;
    PictureDecoder(const PictureDecoder&) = delete;
    PictureDecoder& operator=(const PictureDecoder&) = delete;
    virtual ~PictureDecoder() = default;

    [[nodiscard]] virtual Size size() const = 0;

    /// Whether decode() takes denominators 2, 4 and 8, for a fraction of the work.
    [[nodiscard]] virtual bool can_scale() const { return false; }

    /// Size of the picture at 1/`denominator`: rounded up.
    [[nodiscard]] Size scaled_size(int denominator) const {
        const Size full = size();
        return {
            (full.width + denominator - 1) / denominator,
            (full.height + denominator - 1) / denominator};
    }

    /// Decodes `area` (in pixels of scaled_size(denominator)), maybe with something around it. The
    /// pixels do not depend on what else is decoded, and a file that is cut off anywhere is an
    /// error whatever the area is. Only once. Errors: malformed, unsupported.
    [[nodiscard]] virtual Result<void> decode(Box area, int denominator, Pixels& out) = 0;
};

/// Errors: malformed (damaged, or neither JPEG nor PNG), unsupported (a variant that PIL doesn't
/// read either), limit_exceeded (more than limits::kPicturePixelsMax pixels).
[[nodiscard]] Result<std::unique_ptr<PictureDecoder>> open_picture(
    std::span<const std::uint8_t> bytes
);

/// Of one kind, for open_picture.
[[nodiscard]] Result<std::unique_ptr<PictureDecoder>> open_jpeg(std::span<const std::uint8_t> bytes
);
[[nodiscard]] Result<std::unique_ptr<PictureDecoder>> open_png(std::span<const std::uint8_t> bytes);

/// Whether a picture of this size may be decoded.
[[nodiscard]] Result<void> check_picture_size(std::uint64_t width, std::uint64_t height);

}  // namespace ddprun::trainer
