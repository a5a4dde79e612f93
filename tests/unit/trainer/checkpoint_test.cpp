#include "trainer/checkpoint.h"

#include "tests/support/command.h"
#include "tests/unit/trainer/temp_folder.h"
#include "trainer/checkpoint_reader.h"
#include "trainer/resnet.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <vector>

namespace ddprun::trainer {
namespace {

namespace fs = std::filesystem;

/// Keeps the lines for a look afterwards.
class LineLog final : public Log {
public:
    void write(LogLevel, std::string_view line) override { lines.emplace_back(line); }

    [[nodiscard]] bool enabled(LogLevel) const override { return true; }

    std::vector<std::string> lines;
};

TrainingState small_state() {
    torch::manual_seed(3);
    TrainingState state;
    state.model = {
        {"conv.weight", torch::randn({4, 3, 2, 2}).contiguous(at::MemoryFormat::ChannelsLast)},
        {"bn.num_batches_tracked", torch::tensor(std::int64_t{17})},
        {"fc.weight", torch::randn({2, 4}).t()},
        {"fc.bias", torch::randn({4}, torch::kDouble)},
    };
    state.momentum_buffers = {torch::randn({4, 3, 2, 2}), at::Tensor{}, torch::randn({4})};
    state.lr = 0.05;
    state.momentum = 0.9;
    state.weight_decay = 1e-4;
    state.nesterov = true;
    state.epoch = 2;
    state.step = 123;
    state.position = 4'096;
    state.rng = torch::randint(0, 255, {64}, torch::kUInt8);
    state.ddp_buckets = {{2, 1}, {0}};
    state.args = {{"model", "resnet18"}, {"seed", "0"}};
    return state;
}

void check_equal(const NamedTensors& left, const NamedTensors& right) {
    REQUIRE(left.size() == right.size());
    for (std::size_t i = 0; i < left.size(); ++i) {
        CHECK(left[i].first == right[i].first);
        CHECK(left[i].second.dtype() == right[i].second.dtype());
        CHECK_MESSAGE(torch::equal(left[i].second, right[i].second), left[i].first);
    }
}

NamedTensors state_dict_of(const torch::nn::Module& module) {
    NamedTensors named;
    for (const auto& entry : module.named_parameters()) {
        named.emplace_back(entry.key(), entry.value());
    }
    for (const auto& entry : module.named_buffers()) {
        named.emplace_back(entry.key(), entry.value());
    }
    return named;
}

std::vector<std::string> names_in(const fs::path& folder) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder)) {
        names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
}

std::string run_python(const std::string& program, const std::vector<std::string>& arguments) {
    std::vector<std::string> argv{DDPRUN_PYTHON, "-c", program};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    const auto result =
        test::run_command({.argv = std::move(argv), .deadline = std::chrono::seconds(90)});
    REQUIRE_MESSAGE(result.exit_code == 0, test::describe(result), result.err);
    return result.out;
}

bool has_python() {
    return !std::string_view(DDPRUN_PYTHON).empty();
}

TEST_SUITE_BEGIN("trainer/checkpoint");

TEST_CASE("a state comes back as it was") {
    const TempFolder folder;
    const TrainingState state = small_state();

    REQUIRE(write_checkpoint(state, folder / "a.pt").has_value());
    const auto back = read_checkpoint(folder / "a.pt");

    REQUIRE_MESSAGE(back.has_value(), back.error().context);
    check_equal(back->model, state.model);
    REQUIRE(back->momentum_buffers.size() == 3);
    CHECK(torch::equal(back->momentum_buffers[0], state.momentum_buffers[0]));
    CHECK(!back->momentum_buffers[1].defined());
    CHECK(torch::equal(back->momentum_buffers[2], state.momentum_buffers[2]));
    CHECK(back->lr == state.lr);
    CHECK(back->momentum == state.momentum);
    CHECK(back->weight_decay == state.weight_decay);
    CHECK(back->nesterov);
    CHECK(back->epoch == 2);
    CHECK(back->step == 123);
    CHECK(back->position == 4'096);
    CHECK(torch::equal(back->rng, state.rng));
    CHECK(back->ddp_buckets == state.ddp_buckets);
    CHECK(back->args == state.args);
}

TEST_CASE("the state at step 0 comes back as it was") {
    const TempFolder folder;
    TrainingState state;
    state.model = {{"w", torch::zeros({2})}};
    state.momentum_buffers = {at::Tensor{}};

    REQUIRE(write_checkpoint(state, folder / "a.pt").has_value());
    const auto back = read_checkpoint(folder / "a.pt");

    REQUIRE(back.has_value());
    CHECK(back->epoch == -1);
    CHECK(back->step == 0);
    CHECK(!back->rng.defined());
    CHECK(back->ddp_buckets.empty());
}

TEST_CASE("every truncation is noticed") {
    const TempFolder folder;
    REQUIRE(write_checkpoint(small_state(), folder / "a.pt").has_value());
    const std::string whole = read_file(folder / "a.pt");
    for (std::size_t size = 0; size < whole.size(); size += 1 + size / 40) {
        CAPTURE(size);
        write_file(folder / "a.pt", std::string_view(whole).substr(0, size));

        const auto back = read_checkpoint(folder / "a.pt");

        REQUIRE(!back.has_value());
        CHECK(back.error().code == Errc::malformed);
        CHECK(back.error().context.find("a.pt") != std::string::npos);
        CHECK(back.error().context.find('\n') == std::string::npos);
    }
}

TEST_CASE("a cut by one to a hundred bytes is noticed, and so is what was added") {
    const TempFolder folder;
    REQUIRE(write_checkpoint(small_state(), folder / "a.pt").has_value());
    const std::string whole = read_file(folder / "a.pt");
    for (std::size_t cut = 1; cut <= 100; ++cut) {
        write_file(folder / "a.pt", std::string_view(whole).substr(0, whole.size() - cut));
        CHECK(read_checkpoint(folder / "a.pt").error().code == Errc::malformed);
    }
    write_file(folder / "a.pt", whole + "x");
    CHECK(!read_checkpoint(folder / "a.pt").has_value());
}

TEST_CASE("a flipped bit is noticed wherever it is") {
    const TempFolder folder;
    REQUIRE(write_checkpoint(small_state(), folder / "a.pt").has_value());
    const std::string whole = read_file(folder / "a.pt");
    for (std::size_t at = 0; at < whole.size(); at += at + 200 < whole.size() ? 23 : 1) {
        CAPTURE(at);
        std::string flipped = whole;
        flipped[at] = static_cast<char>(flipped[at] ^ (1 << (at % 8)));
        write_file(folder / "a.pt", flipped);

        const auto back = read_checkpoint(folder / "a.pt");

        REQUIRE(!back.has_value());
        CHECK(back.error().code == Errc::malformed);
    }
}

TEST_CASE("a disk that is full while a checkpoint is written leaves no file and the old one") {
    const TempFolder folder;
    const fs::path path = folder / checkpoint_name(123);
    write_file(path, "the one before");
    TrainingState state = small_state();
    state.model.emplace_back("big", torch::zeros({100'000}));

    // A limit on the size of files fails like a full disk, with EFBIG, and needs no rights.
    struct sigaction ignore {};

    ignore.sa_handler = SIG_IGN;
    ::sigaction(SIGXFSZ, &ignore, nullptr);
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
    for (const rlim_t bytes : {1'000U, 50'000U, 400'000U}) {
        const rlimit small{bytes, before.rlim_max};
        REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
        const auto saved = save_checkpoint(state, folder.path(), 3);
        ::setrlimit(RLIMIT_FSIZE, &before);

        REQUIRE(!saved.has_value());
        CHECK(saved.error().context.starts_with("write " + path.string() + ": "));
        CHECK(saved.error().context.find('\n') == std::string::npos);
        CHECK(names_in(folder.path()) == std::vector<std::string>{checkpoint_name(123)});
        CHECK(read_file(path) == "the one before");
    }
}

TEST_CASE("the folder is made, the newest are kept and remnants of an earlier life removed") {
    const TempFolder folder;
    const fs::path dir = folder / "new/checkpoints";
    TrainingState state = small_state();
    for (const std::int64_t step : {0, 9, 10, 11}) {
        state.step = step;
        REQUIRE(save_checkpoint(state, dir, 2).has_value());
        write_file(dir / (checkpoint_name(7) + ".99.part"), "half");
    }
    write_file(dir / "best.pt", "not ours to remove");
    state.step = 12;

    const auto saved = save_checkpoint(state, dir, 2);

    REQUIRE(saved.has_value());
    CHECK(*saved == dir / "step-00000012.pt");
    CHECK(
        names_in(dir) == std::vector<std::string>{"best.pt", "step-00000011.pt", "step-00000012.pt"}
    );
}

TEST_CASE("a damaged later checkpoint doesn't push the new one out") {
    const TempFolder folder;
    write_file(folder / checkpoint_name(500), "damaged");

    REQUIRE(save_checkpoint(small_state(), folder.path(), 1).has_value());

    CHECK(fs::exists(folder / checkpoint_name(123)));
}

TEST_CASE("the newest checkpoint is found") {
    const TempFolder folder;
    TrainingState state = small_state();
    for (const std::int64_t step : {5, 100'000'000, 99}) {
        state.step = step;
        REQUIRE(write_checkpoint(state, folder / checkpoint_name(step)).has_value());
    }
    LineLog log;

    const auto found = newest_good_checkpoint(folder.path(), state.model, log);

    REQUIRE(found.has_value());
    REQUIRE(found->has_value());
    CHECK((*found)->state.step == 100'000'000);
    CHECK((*found)->path == folder / "step-100000000.pt");
    CHECK(log.lines.empty());
}

TEST_CASE("a damaged checkpoint is skipped with a warning that names it") {
    const TempFolder folder;
    TrainingState state = small_state();
    for (const std::int64_t step : {5, 10}) {
        state.step = step;
        REQUIRE(write_checkpoint(state, folder / checkpoint_name(step)).has_value());
    }
    const std::string whole = read_file(folder / checkpoint_name(10));
    write_file(folder / checkpoint_name(10), std::string_view(whole).substr(0, whole.size() / 2));
    LineLog log;

    const auto found = newest_good_checkpoint(folder.path(), state.model, log);

    REQUIRE(found.has_value());
    REQUIRE(found->has_value());
    CHECK((*found)->state.step == 5);
    REQUIRE(log.lines.size() == 1);
    CHECK(log.lines[0].find(checkpoint_name(10)) != std::string::npos);
}

TEST_CASE("without a folder or without checkpoints there is none") {
    const TempFolder folder;
    write_file(folder / "best.pt", "x");
    write_file(folder / "step-1.pt", "x");  // not a name that we give
    LineLog log;

    const auto none = newest_good_checkpoint(folder.path(), small_state().model, log);
    const auto missing = newest_good_checkpoint(folder / "no", small_state().model, log);

    REQUIRE(none.has_value());
    CHECK(!none->has_value());
    REQUIRE(missing.has_value());
    CHECK(!missing->has_value());
}

TEST_CASE("only damaged checkpoints are an error, not a fresh start") {
    const TempFolder folder;
    write_file(folder / checkpoint_name(1), "x");
    write_file(folder / checkpoint_name(2), "");
    LineLog log;

    const auto found = newest_good_checkpoint(folder.path(), small_state().model, log);

    REQUIRE(!found.has_value());
    CHECK(found.error().code == Errc::malformed);
    CHECK(log.lines.size() == 2);
}

TEST_CASE("a checkpoint of another model is an error that lists what differs") {
    const TempFolder folder;
    TrainingState state = small_state();
    REQUIRE(write_checkpoint(state, folder / checkpoint_name(1)).has_value());
    NamedTensors other = state.model;
    other[2] = {"fc.weight", torch::zeros({7, 2})};
    other[3] = {"head.bias", torch::zeros({4})};
    LineLog log;

    const auto found = newest_good_checkpoint(folder.path(), other, log);

    REQUIRE(!found.has_value());
    CHECK(found.error().code == Errc::malformed);
    const std::string& text = found.error().context;
    CHECK(text.find(checkpoint_name(1)) != std::string::npos);
    CHECK(text.find("1 missing (head.bias)") != std::string::npos);
    CHECK(text.find("1 unexpected (fc.bias)") != std::string::npos);
    CHECK(text.find("fc.weight is [4, 2] instead of [7, 2]") != std::string::npos);
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

TEST_CASE("weights that don't fit change nothing") {
    const NamedTensors model{{"a", torch::zeros({2})}, {"b", torch::zeros({2})}};

    const auto loaded =
        load_weights(model, {{"a", torch::ones({2})}, {"b", torch::ones({3})}}, "w.pth");

    CHECK(!loaded.has_value());
    CHECK(torch::equal(model[0].second, torch::zeros({2})));
}

TEST_CASE("missing files and files of another kind are told apart") {
    const TempFolder folder;
    write_file(folder / "text.pt", "hello\n");
    fs::create_directory(folder / "folder.pt");

    CHECK(read_checkpoint(folder / "no.pt").error().code == Errc::not_found);
    CHECK(read_checkpoint(folder / "text.pt").error().code == Errc::malformed);
    CHECK(!read_checkpoint(folder / "folder.pt").has_value());
}

TEST_CASE("Python loads a checkpoint with weights_only and torchvision takes the model strictly") {
    if (!has_python()) {
        return;
    }
    const TempFolder folder;
    torch::manual_seed(5);
    ResNetOptions options;
    options.shape = resnet_shape("resnet18").value();
    options.num_classes = 10;
    const auto model = std::make_shared<ResNet>(options);
    model->eval();
    TrainingState state = small_state();
    state.model = state_dict_of(*model);
    state.momentum_buffers.clear();
    for (const at::Tensor& parameter : model->parameters()) {
        state.momentum_buffers.push_back(torch::full_like(parameter, 0.25));
    }
    REQUIRE(write_checkpoint(state, folder / "a.pt").has_value());
    const torch::NoGradGuard no_grad;
    const at::Tensor logits = model->forward(torch::ones({1, 3, 64, 64})).to(torch::kDouble);

    const std::string out = run_python(
        R"(
import sys, torch, torchvision
c = torch.load(sys.argv[1], weights_only=True)
assert [k for k in ("model", "optimizer", "lr_scheduler", "epoch", "args") if k not in c] == []
assert type(c["args"]) is dict and c["args"]["model"] == "resnet18"
assert c["epoch"] == 2 and c["step"] == 123 and c["position"] == 4096
assert c["ddp_buckets"] == [[2, 1], [0]] and c["rng"].dtype == torch.uint8
m = torchvision.models.resnet18(num_classes=10)
m.load_state_dict(c["model"], strict=True)
o = torch.optim.SGD(m.parameters(), lr=1.0)
o.load_state_dict(c["optimizer"])
g = o.param_groups[0]
assert (g["lr"], g["momentum"], g["weight_decay"], g["nesterov"]) == (0.05, 0.9, 1e-4, True)
for p in m.parameters():
    assert bool((o.state[p]["momentum_buffer"] == 0.25).all())
    p.grad = torch.zeros_like(p)
s = torch.optim.lr_scheduler.StepLR(o, step_size=30)
s.load_state_dict(c["lr_scheduler"])
m.eval()
with torch.no_grad():
    print(" ".join("%.17g" % v for v in m(torch.ones(1, 3, 64, 64))[0].double().tolist()))
o.step(); s.step()
)",
        {(folder / "a.pt").string()}
    );

    std::istringstream numbers(out);
    for (int i = 0; i < 10; ++i) {
        double value = 0.0;
        REQUIRE((numbers >> value));
        CHECK(value == doctest::Approx(logits[0][i].item<double>()).epsilon(1e-5));
    }
}

TEST_CASE("a checkpoint of torchvision's scripts is read with its optimizer and its epoch") {
    if (!has_python()) {
        return;
    }
    const TempFolder folder;
    run_python(
        R"(
import argparse, sys, torch, torchvision
torch.manual_seed(5)
m = torchvision.models.resnet18(num_classes=10)
o = torch.optim.SGD(m.parameters(), lr=0.2, momentum=0.8, weight_decay=1e-3, nesterov=True)
m(torch.ones(2, 3, 64, 64)).sum().backward()
o.step()
s = torch.optim.lr_scheduler.StepLR(o, step_size=30)
torch.save({"model": m.state_dict(), "optimizer": o.state_dict(), "lr_scheduler": s.state_dict(),
            "epoch": 4, "args": argparse.Namespace(model="resnet18", lr=0.2, big=1 << 100)}, sys.argv[1])
d = {("module." + k): v for k, v in m.state_dict().items()}
torch.save(d, sys.argv[2])
torch.save({"state_dict": d, "other": {1, 2}}, sys.argv[3])
torch.save(m.half().state_dict(), sys.argv[4])
)",
        {(folder / "a.pt").string(),
         (folder / "ddp.pth").string(),
         (folder / "level.pth").string(),
         (folder / "half.pth").string()}
    );
    ResNetOptions options;
    options.shape = resnet_shape("resnet18").value();
    options.num_classes = 10;
    const auto model = std::make_shared<ResNet>(options);
    const NamedTensors target = state_dict_of(*model);

    const auto state = read_checkpoint(folder / "a.pt");

    REQUIRE_MESSAGE(state.has_value(), state.error().context);
    CHECK(state->epoch == 4);
    CHECK(state->lr == 0.2);
    CHECK(state->momentum == 0.8);
    CHECK(state->weight_decay == 1e-3);
    CHECK(state->nesterov);
    CHECK(state->momentum_buffers.size() == model->parameters().size());
    CHECK(state->momentum_buffers[0].sizes() == model->parameters()[0].sizes());
    REQUIRE(load_weights(target, state->model, "a.pt").has_value());
    for (const char* name : {"ddp.pth", "level.pth"}) {
        const auto weights = read_weights(folder / name);
        REQUIRE_MESSAGE(weights.has_value(), weights.error().context);
        check_equal(*weights, state->model);
    }
    const auto half = read_weights(folder / "half.pth");
    REQUIRE(half.has_value());
    CHECK(load_weights(target, *half, "half.pth").has_value());
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::trainer
