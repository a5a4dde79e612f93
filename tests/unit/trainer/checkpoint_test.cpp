#include "trainer/checkpoint.h"

#include "tests/unit/trainer/checkpoint_samples.h"
#include "trainer/checkpoint_reader.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <sys/resource.h>

#include <csignal>

namespace ddprun::trainer {
namespace {

TEST_SUITE_BEGIN("trainer/checkpoint");

TEST_CASE("a state comes back as it was") {
    const TempFolder folder;
    const TrainingState state = small_state();

    REQUIRE(write_checkpoint(state, folder / "a.pt").has_value());
    const auto back = read_checkpoint(folder / "a.pt");

    REQUIRE_MESSAGE(back.has_value(), back.error().context);
    check_equal(back->model, state.model);
    REQUIRE(back->optimizer.state.size() == 3);
    check_equal(back->optimizer.state[0], state.optimizer.state[0]);
    CHECK(back->optimizer.state[1].empty());
    check_equal(back->optimizer.state[2], state.optimizer.state[2]);
    CHECK((back->optimizer.groups == state.optimizer.groups));
    CHECK(back->optimizer.options.momentum == 0.9);
    CHECK(back->optimizer.options.nesterov);
    CHECK((back->scaler == state.scaler));
    check_equal(back->model_ema, state.model_ema);
    CHECK(back->ema_updates == 5);
    CHECK(back->best_top1 == 71.25);
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
    state.optimizer.groups = {{.parameters = 1}};
    state.optimizer.state = {{}};

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

TEST_CASE("missing files and files of another kind are told apart") {
    const TempFolder folder;
    write_file(folder / "text.pt", "hello\n");
    fs::create_directory(folder / "folder.pt");

    CHECK(read_checkpoint(folder / "no.pt").error().code == Errc::not_found);
    CHECK(read_checkpoint(folder / "text.pt").error().code == Errc::malformed);
    CHECK(!read_checkpoint(folder / "folder.pt").has_value());
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::trainer
