#include "trainer/checkpoint_folder.h"

#include "tests/unit/trainer/checkpoint_samples.h"
#include "trainer/checkpoint_reader.h"
#include "trainer/checkpoint_saver.h"

#include <doctest/doctest.h>

namespace ddprun::trainer {
namespace {

TEST_SUITE_BEGIN("trainer/checkpoint_folder");

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
    write_file(folder / "notes.txt", "x");
    write_file(folder / "step-00000001.pt.99.part", "x");
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

TEST_CASE("where all numbered checkpoints are damaged, the best one is taken") {
    const TempFolder folder;
    TrainingState state = small_state();
    state.step = 5;
    const auto saved = save_checkpoint(state, folder.path(), 3);
    REQUIRE(saved.has_value());
    REQUIRE(mark_best(*saved).has_value());
    fs::remove(*saved);
    write_file(folder / checkpoint_name(9), "x");
    LineLog log;

    const auto found = newest_good_checkpoint(folder.path(), state.model, log);

    REQUIRE(found.has_value());
    REQUIRE(found->has_value());
    CHECK((*found)->path == folder / "best.pt");
    CHECK((*found)->state.step == 5);
}

TEST_CASE("the best checkpoint stays when the newest ones push its own out") {
    const TempFolder folder;
    TrainingState state = small_state();
    for (const std::int64_t step : {1, 2, 3}) {
        state.step = step;
        const auto saved = save_checkpoint(state, folder.path(), 1);
        REQUIRE(saved.has_value());
        if (step < 3) {
            REQUIRE(mark_best(*saved).has_value());
        }
    }

    CHECK(names_in(folder.path()) == std::vector<std::string>{"best.pt", "step-00000003.pt"});
    CHECK(read_checkpoint(folder / "best.pt")->step == 2);
}

TEST_CASE("a file of torch.save that is no checkpoint is an error, never a fresh start") {
    if (!has_python()) {
        return;
    }
    const TempFolder folder;
    static_cast<void>(run_python(
        "import sys, torch; torch.save({'weights': torch.zeros(3)}, sys.argv[1])",
        {(folder / "other.pt").string()}
    ));
    LineLog log;

    const auto found = newest_good_checkpoint(folder.path(), small_state().model, log);

    REQUIRE(!found.has_value());
    CHECK(found.error().code == Errc::unsupported);
    CHECK(found.error().context.find("other.pt") != std::string::npos);
    CHECK(log.lines.empty());
}

TEST_CASE("a checkpoint is written while the state changes, as it was when it began") {
    const TempFolder folder;
    TrainingState state = small_state();
    const at::Tensor before = state.model[0].second.clone();
    CheckpointSaver saver(folder.path(), 3);

    REQUIRE(saver.begin(state, true).has_value());
    state.model[0].second.zero_();
    REQUIRE(saver.wait().has_value());

    const auto back = read_checkpoint(folder / checkpoint_name(123));
    REQUIRE(back.has_value());
    CHECK(back->model[0].second.equal(before));
    CHECK(fs::exists(folder / "best.pt"));
    CHECK(saver.idle());
}

TEST_CASE("what kept a checkpoint from being written is told by the next call") {
    CheckpointSaver saver("/proc/no/such/folder", 3);

    REQUIRE(saver.begin(small_state(), false).has_value());
    const auto next = saver.begin(small_state(), false);

    REQUIRE(!next.has_value());
    CHECK(next.error().context.find("/proc/no/such/folder") != std::string::npos);
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

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::trainer
