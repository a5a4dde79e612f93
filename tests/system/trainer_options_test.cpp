// What the trainer does by its options, and what scripts rely on: files, lines, statuses, signals.
#include "tests/support/command.h"
#include "tests/support/system.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

namespace ddprun::test {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

constexpr auto kDeadline = 240s;

using Words = std::vector<std::string>;

/// A tiny training on synthetic pictures.
Words tiny(const Words& more) {
    Words words{
        "--model=resnet18",
        "--data=synthetic:640",
        "--limit_train=64",
        "--image_size=32",
        "--num_classes=10",
        "--batch_size=4",
        "--lr=0.01",
        "--momentum=0.9",
        "--threads=1",
        "--limit_test=8"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

CommandResult train(const Words& more) {
    Words argv{program("trainer")};
    const Words words = tiny(more);
    argv.insert(argv.end(), words.begin(), words.end());
    return run_command({
        .argv = argv,
        .unset_env = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"},
        .deadline = kDeadline,
    });
}

CommandResult train_on(int ranks, const Words& more) {
    Words argv = ddprun({"--standalone", "--nproc_per_node=" + std::to_string(ranks), "trainer"});
    const Words words = tiny(more);
    argv.insert(argv.end(), words.begin(), words.end());
    return run_command({.argv = argv, .env = {"OMP_NUM_THREADS=1"}, .deadline = kDeadline});
}

CommandResult python(const std::string& script, const Words& arguments) {
    Words argv{DDPRUN_PYTHON, "-c", script};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    return run_command({.argv = argv, .deadline = kDeadline});
}

void check_ok(const CommandResult& result) {
    REQUIRE_MESSAGE(result.exit_code == 0, describe(result) << result.out << result.err);
}

TEST_SUITE_BEGIN("system/trainer_options");

TEST_CASE("step 0 alone writes the first checkpoint, and its weights are torchvision's") {
    const TemporaryFolder folder;

    check_ok(train({"--steps=0", "--seed=11", "--checkpoint_dir=" + folder.path()}));

    const CommandResult same = python(
        "import sys, torch, torchvision\n"
        "c = torch.load(sys.argv[1], weights_only=True)\n"
        "assert (c['epoch'], c['step'], c['position']) == (-1, 0, 0)\n"
        "torch.manual_seed(11)\n"
        "m = torchvision.models.resnet18(num_classes=10).state_dict()\n"
        "assert list(m) == list(c['model'])\n"
        "assert all(torch.equal(v, c['model'][k]) for k, v in m.items())\n",
        {folder.path("step-00000000.pt")}
    );
    CHECK_MESSAGE(same.exit_code == 0, same.err);
    CHECK(!fs::exists(folder.path("step-00000001.pt")));
}

TEST_CASE("an epoch leaves its checkpoint, the best one, and lines with the documented fields") {
    const TemporaryFolder folder;

    const CommandResult result = train(
        {"--epochs=1",
         "--checkpoint_dir=" + folder.path(),
         "--log_json=" + folder.path("log.json"),
         "--log_interval=1",
         "--model_ema",
         "--model_ema_steps=4",
         "--load_svg=" + folder.path("load.svg"),
         "--memory_summary"}
    );

    check_ok(result);
    CHECK(fs::exists(folder.path("step-00000016.pt")));
    CHECK(fs::exists(folder.path("best.pt")));
    const std::string log = read_file(folder.path("log.json"));
    CHECK(count_of(log, "\"step\":") == 16);
    CHECK(log.starts_with("{\"step\":1,\"epoch\":0,\"loss\":"));
    CHECK(log.find("{\"epoch\":0,\"top1\":") != std::string::npos);
    CHECK(log.find("\"top5\":") != std::string::npos);
    CHECK(log.find("\"ema_top1\":") != std::string::npos);
    CHECK(log.find("\"count\":8,") != std::string::npos);
    CHECK(result.out.find("top1 ") != std::string::npos);
    CHECK(result.out.find("  eta ") != std::string::npos);
    CHECK(result.out.find("rank 0: memory ") != std::string::npos);
    CHECK(read_file(folder.path("load.svg")).starts_with("<svg "));
}

TEST_CASE("an unmodified script of Python resumes from the trainer's file, and the trainer from its"
) {
    const TemporaryFolder folder;
    check_ok(train(
        {"--epochs=1",
         "--lr_scheduler=step",
         "--lr_step_size=1",
         "--checkpoint_dir=" + folder.path()}
    ));

    // What torchvision's references/classification/train.py does between --resume and its end.
    const CommandResult there = python(
        "import sys, torch, torchvision\n"
        "m = torchvision.models.resnet18(num_classes=10)\n"
        "o = torch.optim.SGD(m.parameters(), lr=0.01, momentum=0.9)\n"
        "s = torch.optim.lr_scheduler.StepLR(o, step_size=1, gamma=0.1)\n"
        "c = torch.load(sys.argv[1], map_location='cpu', weights_only=True)\n"
        "m.load_state_dict(c['model']); o.load_state_dict(c['optimizer'])\n"
        "s.load_state_dict(c['lr_scheduler'])\n"
        "epoch = c['epoch'] + 1\n"
        "assert epoch == 1 and abs(o.param_groups[0]['lr'] - 0.001) < 1e-12, "
        "o.param_groups[0]['lr']\n"
        "o.zero_grad(); m(torch.randn(4, 3, 32, 32)).sum().backward(); o.step(); s.step()\n"
        "torch.save({'model': m.state_dict(), 'optimizer': o.state_dict(),\n"
        "            'lr_scheduler': s.state_dict(), 'epoch': epoch, 'args': {}}, sys.argv[2])\n",
        {folder.path("step-00000016.pt"), folder.path("python.pth")}
    );
    REQUIRE_MESSAGE(there.exit_code == 0, there.err);
    const CommandResult back = train(
        {"--epochs=3",
         "--lr_scheduler=step",
         "--lr_step_size=1",
         "--resume=" + folder.path("python.pth"),
         "--log_json=" + folder.path("log.json")}
    );

    check_ok(back);
    CHECK(back.err.find("python.pth at step 32") != std::string::npos);
    CHECK(read_file(folder.path("log.json")).starts_with("{\"step\":33,\"epoch\":2,"));
}

TEST_CASE("USR1 saves after the step and training goes on; TERM saves and ends with 143") {
    const TemporaryFolder folder;
    Words argv{program("trainer")};
    const Words words = tiny(
        {"--steps=100000",
         "--checkpoint_dir=" + folder.path(),
         "--log_interval=1",
         "--data=synthetic:1000000"}
    );
    argv.insert(argv.end(), words.begin(), words.end());
    Command job({
        .argv = argv,
        .unset_env = {"RANK", "WORLD_SIZE"},
        .deadline = kDeadline,
    });
    const auto checkpoints = [&folder] {
        return std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator{});
    };
    REQUIRE(job.wait_for_line("step 2/", 1, 60s));
    job.send_signal(SIGUSR1);
    const auto end = std::chrono::steady_clock::now() + 60s;
    while (checkpoints() < 2 && std::chrono::steady_clock::now() < end) {
        static_cast<void>(job.wait_for_line("never written", 1, 50ms));
    }
    CHECK(checkpoints() == 2);
    job.send_signal(SIGTERM);
    const CommandResult result = job.finish();

    CHECK_MESSAGE(result.exit_code == 128 + SIGTERM, describe(result) << result.err);
    CHECK(checkpoints() == 3);
    for (const auto& entry : fs::directory_iterator(folder.path())) {
        CHECK(entry.path().extension() == ".pt");
    }
}

TEST_CASE("a run resumed with another number of ranks sees the rest of the epoch, each picture once"
) {
    const TemporaryFolder folder;
    check_ok(train_on(2, {"--steps=3", "--checkpoint_dir=" + folder.path()}));

    const CommandResult result = train(
        {"--epochs=1", "--checkpoint_dir=" + folder.path(), "--log_json=" + folder.path("log.json")}
    );

    check_ok(result);
    // 64 pictures, 24 seen: 10 batches of 4 are left.
    const std::string log = read_file(folder.path("log.json"));
    CHECK(log.starts_with("{\"step\":4,\"epoch\":0,"));
    CHECK(count_of(log, "\"step\":") == 10);
}

TEST_CASE("accumulated batches count as one step, and the last of an epoch takes what is left") {
    const TemporaryFolder folder;
    check_ok(train_on(
        2,
        {"--epochs=1",
         "--grad_accum_steps=3",
         "--log_json=" + folder.path("log.json"),
         "--checkpoint_dir=" + folder.path()}
    ));
    // 64 pictures on two ranks: 8 batches each, in steps of 3, 3 and 2.
    CHECK(count_of(read_file(folder.path("log.json")), "\"step\":") == 3);
    CHECK(fs::exists(folder.path("step-00000003.pt")));
}

TEST_CASE("every way to train runs, alone and on two ranks") {
    const std::vector<Words> alone{
        {"--amp=bf16"},
        {"--amp=fp16"},
        {"--optimizer=adamw", "--lr=0.001", "--weight_decay=0.1", "--norm_weight_decay=0"},
        {"--optimizer=lars", "--clip_grad_norm=1", "--channels_last"},
        {"--mixup_alpha=0.2", "--cutmix_alpha=1", "--label_smoothing=0.1"},
        {"--model_parallel=2"},
        {"--data_parallel=2"},
        {"--recipe=torchvision-v2", "--batch_size=4", "--epochs=2"},
    };
    for (const Words& words : alone) {
        CAPTURE(words[0]);
        Words more = words;
        more.emplace_back("--steps=3");
        check_ok(train(more));
    }
    const std::vector<Words> two{
        {"--sync_bn", "--amp=bf16"},
        {"--comm_hook=powersgd", "--powersgd_start=2"},
        {"--comm_hook=bf16", "--no_broadcast_buffers", "--model_parallel=2"},
    };
    for (const Words& words : two) {
        CAPTURE(words[0]);
        Words more = words;
        more.emplace_back("--steps=4");
        check_ok(train_on(2, more));
    }
}

TEST_CASE("fp16's scale and the average go on where they were") {
    const TemporaryFolder folder;
    const Words words{
        "--amp=fp16", "--model_ema", "--model_ema_steps=1", "--checkpoint_dir=" + folder.path()};
    const auto with = [&words](const std::string& steps) {
        Words all = words;
        all.push_back("--steps=" + steps);
        return all;
    };
    check_ok(train(with("2")));
    check_ok(train(with("4")));

    const CommandResult read = python(
        "import sys, torch\n"
        "c = torch.load(sys.argv[1], weights_only=True)\n"
        "assert c['scaler']['_growth_tracker'] + 0 <= 4 and c['scaler']['scale'] > 1\n"
        "assert int(c['model_ema']['n_averaged']) == 4, c['model_ema']['n_averaged']\n",
        {folder.path("step-00000004.pt")}
    );
    CHECK_MESSAGE(read.exit_code == 0, read.err);
}

TEST_CASE("--test_only evaluates weights of a .pth and of the exported safetensors alike") {
    const TemporaryFolder folder;
    check_ok(train({"--epochs=1", "--checkpoint_dir=" + folder.path()}));
    const CommandResult exported = run_command({
        .argv =
            {program("trainer"),
             "export",
             "--format=safetensors",
             folder.path("step-00000016.pt"),
             folder.path("w.safetensors")},
        .deadline = kDeadline,
    });
    check_ok(exported);
    const auto accuracy = [&folder](const std::string& file) {
        const CommandResult result =
            train({"--test_only", "--weights=" + folder.path(file), "--limit_test=50"});
        check_ok(result);
        return result.out.substr(result.out.find("accuracy"));
    };

    const std::string of_checkpoint = accuracy("step-00000016.pt");

    CHECK(of_checkpoint.find("of 50 test pictures") != std::string::npos);
    CHECK(accuracy("w.safetensors") == of_checkpoint);
}

TEST_CASE("an exported TorchScript gives torchvision's logits in Python, for both kinds of blocks"
) {
    for (const std::string model : {"resnet18", "resnet50"}) {
        CAPTURE(model);
        const TemporaryFolder folder;
        check_ok(train({"--model=" + model, "--steps=0", "--checkpoint_dir=" + folder.path()}));
        check_ok(run_command({
            .argv =
                {program("trainer"),
                 "export",
                 "--format=torchscript",
                 folder.path("step-00000000.pt"),
                 folder.path("m.pt")},
            .deadline = kDeadline,
        }));
        const CommandResult same = python(
            "import sys, torch, torchvision\n"
            "m = getattr(torchvision.models, sys.argv[3])(num_classes=10).eval()\n"
            "m.load_state_dict(torch.load(sys.argv[1], weights_only=True)['model'])\n"
            "s = torch.jit.load(sys.argv[2])\n"
            "assert list(s.state_dict()) == list(m.state_dict())\n"
            "x = torch.randn(2, 3, 64, 64)\n"
            "with torch.no_grad():\n"
            "    assert torch.allclose(s(x), m(x), rtol=1e-4, atol=1e-5)\n",
            {folder.path("step-00000000.pt"), folder.path("m.pt"), model}
        );
        CHECK_MESSAGE(same.exit_code == 0, same.err);
    }
}

TEST_CASE("weights in double are taken with a note; export of a missing file is status 66") {
    const TemporaryFolder folder;
    const CommandResult made = python(
        "import sys, torch, torchvision\n"
        "m = torchvision.models.resnet18(num_classes=10).double()\n"
        "torch.save({'module.' + k: v for k, v in m.state_dict().items()}, sys.argv[1])\n",
        {folder.path("w.pth")}
    );
    REQUIRE_MESSAGE(made.exit_code == 0, made.err);

    const CommandResult result = train({"--test_only", "--weights=" + folder.path("w.pth")});

    check_ok(result);
    CHECK(result.err.find("of type Double converted") != std::string::npos);
    const CommandResult missing = run_command({
        .argv = {program("trainer"), "export", "--format=safetensors", "/no/such.pt", "/tmp/x"},
        .deadline = kDeadline,
    });
    CHECK(missing.exit_code == 66);
    CHECK(missing.err.find("/no/such.pt") != std::string::npos);
}

TEST_CASE("TensorBoard itself reads the event files") {
    const TemporaryFolder folder;
    check_ok(train({"--epochs=1", "--tensorboard=" + folder.path("events")}));

    const CommandResult read = python(
        "import sys\n"
        "from tensorboard.backend.event_processing import event_accumulator as e\n"
        "a = e.EventAccumulator(sys.argv[1]); a.Reload()\n"
        "loss = a.Scalars('train/loss')\n"
        "assert [s.step for s in loss] == list(range(1, 17)), loss\n"
        "assert all(0 < s.value < 100 for s in loss)\n"
        "assert len(a.Scalars('test/top1')) == 1\n",
        {folder.path("events")}
    );
    CHECK_MESSAGE(read.exit_code == 0, read.err);
}

TEST_CASE("--profile writes a Chrome trace of each rank with its operators and collectives") {
    const TemporaryFolder folder;
    check_ok(train_on(2, {"--steps=6", "--profile=3:4", "--profile_dir=" + folder.path("traces")}));

    const CommandResult read = python(
        "import json, sys\n"
        "for rank in range(2):\n"
        "    names = {e.get('name') for e in "
        "json.load(open(f'{sys.argv[1]}/trace-rank{rank}.json'))['traceEvents']}\n"
        "    assert 'aten::conv2d' in names and any('gloo' in (n or '') or 'allreduce' in (n or "
        "'') for n in names), names\n",
        {folder.path("traces")}
    );
    CHECK_MESSAGE(read.exit_code == 0, read.err);
}

TEST_CASE("--spawn trains on two workers without a launcher, and a lost one ends both") {
    const CommandResult result = train({"--spawn=2", "--steps=3", "--log_interval=1"});

    check_ok(result);
    CHECK(result.out.find("2 workers x batch 4") != std::string::npos);
    CHECK(result.out.find("the busiest rank") != std::string::npos);

    Words argv{program("trainer")};
    const Words words = tiny({"--spawn=2", "--steps=100000", "--log_interval=1"});
    argv.insert(argv.end(), words.begin(), words.end());
    Command job({.argv = argv, .unset_env = {"RANK", "WORLD_SIZE"}, .deadline = kDeadline});
    REQUIRE(job.wait_for_line("step 2/", 1, 60s));
    const auto workers = Command::children_of(job.pid());
    REQUIRE(workers.size() == 2);
    REQUIRE(::kill(workers.back(), SIGKILL) == 0);
    const CommandResult killed = job.finish();

    CHECK_MESSAGE(killed.exit_code == 128 + SIGKILL, describe(killed) << killed.err);
    CHECK(killed.err.find("ended with status 137") != std::string::npos);
    CHECK(job.left_behind() == "");
}

TEST_CASE("kill -9 of a --spawn parent leaves no worker behind") {
    Words argv{program("trainer")};
    const Words words = tiny({"--spawn=2", "--steps=100000", "--log_interval=1"});
    argv.insert(argv.end(), words.begin(), words.end());
    Command job({.argv = argv, .unset_env = {"RANK", "WORLD_SIZE"}, .deadline = kDeadline});
    REQUIRE(job.wait_for_line("step 2/", 1, 60s));
    job.send_signal(SIGKILL);
    static_cast<void>(job.finish());

    CHECK(job.left_behind(10s) == "");
}

TEST_CASE("scripts/scaling has a line for each number of ranks, and draws them") {
    const TemporaryFolder folder;
    Words argv{
        DDPRUN_PYTHON,
        DDPRUN_SOURCE_DIR "/scripts/scaling",
        "--bin=" + fs::path(program("trainer")).parent_path().string(),
        "--ranks=2",
        "--steps=6",
        "--svg=" + folder.path("s.svg")};
    const Words words = tiny({});
    argv.insert(argv.end(), words.begin(), words.end());

    const CommandResult result = run_command({.argv = argv, .deadline = kDeadline});

    check_ok(result);
    CHECK(result.out.find("\n    1 ") != std::string::npos);
    CHECK(result.out.find("\n    2 ") != std::string::npos);
    CHECK(count_of(result.out, "100%") >= 2);  // of one rank
    const std::string svg = read_file(folder.path("s.svg"));
    CHECK(svg.starts_with("<svg "));
    CHECK(count_of(svg, "<circle ") == 4);
    CHECK(svg.ends_with("</svg>\n"));
}

TEST_CASE("scripts/scaling says in a line what is wrong with a step count or a folder") {
    const CommandResult few = run_command({
        .argv = {DDPRUN_PYTHON, DDPRUN_SOURCE_DIR "/scripts/scaling", "--steps=5"},
        .deadline = kDeadline,
    });
    CHECK(few.exit_code == 2);
    CHECK(few.err.find("--steps: more than the 5") != std::string::npos);
    const TemporaryFolder folder;
    const CommandResult unbuilt = run_command({
        .argv = {DDPRUN_PYTHON, DDPRUN_SOURCE_DIR "/scripts/scaling", "--bin=" + folder.path()},
        .deadline = kDeadline,
    });
    CHECK(unbuilt.exit_code == 1);
    CHECK(unbuilt.err.find("run scripts/build first") != std::string::npos);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::test
