// What the trainer's data path makes of a file or folder, on stdout, for a comparison with PIL and
// torchvision:
//
//   data_probe decode FILE                                the pixels: width, height (32 bits), RGB
//   data_probe centre FILE SIZE                           an evaluated picture, floats
//   data_probe crop FILE LEFT TOP WIDTH HEIGHT SIZE FLIP SCALE   a cut-out as floats of 0 ... 1
//   data_probe plans WIDTH HEIGHT COUNT                   random crops, a line each
//   data_probe list DIR                                   paths and labels, a line each
#include "trainer/image_folder.h"
#include "trainer/image_list.h"
#include "trainer/render.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

using namespace ddprun;
using namespace ddprun::trainer;

template <class T>
void put(const T* data, std::size_t count) {
    std::fwrite(data, sizeof(T), count, stdout);
}

int failed(const Error& error) {
    std::fprintf(stderr, "%s\n", error.context.c_str());
    return 1;
}

struct Arguments {
    std::vector<std::string> words;

    [[nodiscard]] int number(std::size_t i) const { return std::atoi(words.at(i).c_str()); }
};

int decode_all(PictureDecoder& decoder) {
    const Size size = decoder.size();
    Pixels pixels;
    if (auto decoded = decoder.decode(whole(size), 1, pixels); !decoded) {
        return failed(decoded.error());
    }
    const std::uint32_t sides[] = {
        static_cast<std::uint32_t>(size.width), static_cast<std::uint32_t>(size.height)};
    put(sides, 2);
    put(pixels.view().data, size.pixels() * kPixelBytes);
    return 0;
}

int render(
    PictureDecoder& decoder, const PicturePlan& plan, bool scale, const Normalisation& normalisation
) {
    std::vector<float> out(plan.kept.size().pixels() * kPixelBytes);
    Renderer renderer;
    const NormaliseTable table(normalisation);
    if (auto rendered = renderer.render(decoder, plan, scale, table, out); !rendered) {
        return failed(rendered.error());
    }
    put(out.data(), out.size());
    return 0;
}

int picture(const Arguments& arguments) {
    std::vector<std::uint8_t> file;
    if (auto read = read_picture_file(arguments.words.at(1), file); !read) {
        return failed(read.error());
    }
    auto opened = open_picture(file);
    if (!opened) {
        return failed(opened.error());
    }
    PictureDecoder& decoder = **opened;
    if (arguments.words[0] == "decode") {
        return decode_all(decoder);
    }
    if (arguments.words[0] == "centre") {
        const PicturePlan plan = centre_plan(decoder.size(), arguments.number(2));
        return render(decoder, plan, false, kImageNetNormalisation);
    }
    const int side = arguments.number(6);
    PicturePlan plan;
    plan.crop = {
        arguments.number(2), arguments.number(3), arguments.number(4), arguments.number(5)};
    plan.resized = {side, side};
    plan.kept = whole(plan.resized);
    plan.flip = arguments.number(7) != 0;
    return render(decoder, plan, arguments.number(8) != 0, {});
}

int plans(const Arguments& arguments) {
    const Size size{arguments.number(1), arguments.number(2)};
    for (int i = 0; i < arguments.number(3); ++i) {
        SampleRandom random(0, 0, i);
        const Box crop = random_crop_plan(size, 224, random).crop;
        std::printf("%d %d %d %d\n", crop.top, crop.left, crop.height, crop.width);
    }
    return 0;
}

int list(const Arguments& arguments) {
    const auto classes = list_classes(arguments.words.at(1));
    if (!classes) {
        return failed(classes.error());
    }
    const auto pictures = ImageList::read(arguments.words.at(1), *classes);
    if (!pictures) {
        return failed(pictures.error());
    }
    for (std::int64_t i = 0; i < pictures->size(); ++i) {
        std::printf("%s %d\n", pictures->path(i).c_str(), static_cast<int>(pictures->label(i)));
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    const Arguments arguments{{argv + 1, argv + argc}};
    if (arguments.words.size() < 2) {
        return 2;
    }
    const std::string& what = arguments.words[0];
    return what == "plans"  ? plans(arguments)
           : what == "list" ? list(arguments)
                            : picture(arguments);
}
