#include "proto/limits.h"
#include "trainer/option_groups.h"

namespace ddprun::trainer {
namespace {

constexpr float kDeviationMin = 1e-6F;

}  // namespace

OptionGroup data_group(Options& o) {
    return {
        "Data",
        {
            {"--data",
             "KIND[:DIR]",
             "imagefolder:DIR (train/ and val/ as of ImageNet), packed:DIR (made by trainer "
             "pack), cifar10:DIR (binary version), "
             "fashion-mnist[:DIR] (Debian's package dataset-fashion-mnist without DIR) or "
             "synthetic[:COUNT] [synthetic:1281167]",
             data_source(o.data)},
            {"--image_size",
             "N",
             "Height and width of the pictures [those of the data]",
             whole_number(o.image_size, 1, limits::kImageSizeMax)},
            {"--limit_train",
             "N",
             "Use only the first N pictures of the training split",
             whole_number(o.limit_train, 1, limits::kSamplesMax)},
            {"--limit_test",
             "N",
             "Use only the first N pictures of the test split",
             whole_number(o.limit_test, 1, limits::kSamplesMax)},
            {"--augment",
             "NAME",
             "none or standard: random crops and mirroring of training pictures [none]",
             one_of<Augment>(
                 o.augment, {{"none", Augment::none}, {"standard", Augment::standard}}
             )},
            {"--mean",
             "R,G,B",
             "Subtracted from pictures of 0 to 1; one number for all [usual for the data]",
             channel_numbers(o.mean, 0.0F)},
            {"--std",
             "R,G,B",
             "Divides pictures after --mean [usual for the data]",
             channel_numbers(o.std, kDeviationMin)},
            {"--max_bad_samples",
             "N",
             "Broken pictures that each worker skips and names [10]",
             whole_number(o.max_bad_samples, 0, limits::kBadSamplesMax)},
            {"--no_jpeg_scaling",
             "",
             "Decode JPEGs in full where a random crop is made much smaller",
             flag(o.jpeg_scaling, false)},
            {"--bench_data",
             "",
             "Only read the training data, once or for --epochs or --steps; print images/s",
             flag(o.bench_data, true)},
            {"--workers",
             "N",
             "Loader threads; 0 loads in the training thread [2]",
             whole_number(o.workers, 0, limits::kLoaderThreadsMax)},
        }};
}

}  // namespace ddprun::trainer
