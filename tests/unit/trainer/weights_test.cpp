#include "trainer/weights.h"

#include "tests/unit/trainer/checkpoint_samples.h"
#include "trainer/safetensors_file.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

namespace ddprun::trainer {
namespace {

TEST_SUITE_BEGIN("trainer/weights");

TEST_CASE("safetensors come back as they were, and damage is noticed") {
    const TempFolder folder;
    const NamedTensors tensors{
        {"a", torch::randn({2, 3}).t()},
        {"n", torch::tensor(std::int64_t{7})},
        {"h", torch::randn({4}).to(torch::kBFloat16)},
        {"none", torch::zeros({0})}};
    const fs::path path = folder / "w.safetensors";
    REQUIRE(write_safetensors(tensors, path).has_value());

    const auto back = read_weights(path);

    REQUIRE_MESSAGE(back.has_value(), back.error().context);
    REQUIRE(back->size() == tensors.size());
    for (const auto& [name, tensor] : *back) {
        const auto same = std::find_if(tensors.begin(), tensors.end(), [&name = name](auto& t) {
            return t.first == name;
        });
        REQUIRE(same != tensors.end());
        CHECK(tensor.equal(same->second));
    }
    const std::string whole = read_file(path);
    for (const std::size_t size : {0UL, 7UL, 8UL, 50UL, whole.size() - 1}) {
        write_file(path, std::string_view(whole).substr(0, size));
        CHECK(read_weights(path).error().code == Errc::malformed);
    }
    CHECK(read_weights(folder / "no.safetensors").error().code == Errc::not_found);
}

TEST_CASE("weights of another floating-point type are converted with a note") {
    const NamedTensors model{{"a", torch::zeros({2})}};
    LineLog log;

    REQUIRE(load_weights(model, {{"a", torch::ones({2}, torch::kDouble)}}, "w.pth", &log));

    CHECK(model[0].second.equal(torch::ones({2})));
    REQUIRE(log.lines.size() == 1);
    CHECK(log.lines[0].find("w.pth") != std::string::npos);
    CHECK(log.lines[0].find("Double") != std::string::npos);
}

TEST_CASE("a long list of keys is cut and counted") {
    NamedTensors model;
    for (int i = 0; i < 30; ++i) {
        model.emplace_back(fmt::format("layer{}", i), torch::zeros({1}));
    }

    const auto loaded = load_weights(model, {}, "w.pth");

    REQUIRE(!loaded.has_value());
    CHECK(loaded.error().context.find("30 missing (layer0, ") != std::string::npos);
    CHECK(loaded.error().context.find("and 22 more") != std::string::npos);
}

TEST_CASE("weights are copied in place and converted to the model's type") {
    const NamedTensors model{
        {"w", torch::zeros({2, 2}).requires_grad_()}, {"n", torch::tensor(std::int64_t{0})}};
    const NamedTensors weights{
        {"n", torch::tensor(std::int64_t{5})}, {"w", torch::full({2, 2}, 1.5, torch::kDouble)}};

    REQUIRE(load_weights(model, weights, "w.pth").has_value());

    CHECK(torch::equal(model[0].second.detach(), torch::full({2, 2}, 1.5F)));
    CHECK(model[1].second.item<std::int64_t>() == 5);
}

TEST_CASE("counters of batches may be missing, as in old state_dicts, and begin at 0") {
    const NamedTensors model{
        {"bn.weight", torch::zeros({2})},
        {"bn.num_batches_tracked", torch::tensor(std::int64_t{9})}};

    REQUIRE(load_weights(model, {{"bn.weight", torch::ones({2})}}, "w.pth").has_value());

    CHECK(model[0].second.equal(torch::ones({2})));
    CHECK(model[1].second.item<std::int64_t>() == 0);
}

TEST_CASE("safetensors of a model in DistributedDataParallel have their prefix taken off") {
    const TempFolder folder;
    const fs::path path = folder / "w.safetensors";
    REQUIRE(
        write_safetensors({{"module.a", torch::ones({1})}, {"module.b", torch::ones({2})}}, path)
    );

    const auto back = read_weights(path);

    REQUIRE(back.has_value());
    CHECK((*back)[0].first == "a");
    CHECK((*back)[1].first == "b");
}

TEST_CASE("weights that don't fit change nothing") {
    const NamedTensors model{{"a", torch::zeros({2})}, {"b", torch::zeros({2})}};

    const auto loaded =
        load_weights(model, {{"a", torch::ones({2})}, {"b", torch::ones({3})}}, "w.pth");

    CHECK(!loaded.has_value());
    CHECK(torch::equal(model[0].second, torch::zeros({2})));
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::trainer
