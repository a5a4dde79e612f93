#include "trainer/options.h"

#include "tests/unit/trainer/temp_folder.h"
#include "trainer/data.h"
#include "trainer/recipes.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::trainer {
namespace {

Result<CommandLine> parse(std::initializer_list<std::string> arguments) {
    return parse_options(std::vector<std::string>(arguments));
}

Options options_of(std::initializer_list<std::string> arguments) {
    const auto parsed = parse(arguments);
    REQUIRE_MESSAGE(parsed.has_value(), parsed.error().context);
    REQUIRE(std::holds_alternative<Options>(*parsed));
    return std::get<Options>(*parsed);
}

/// The complaint, which must be one of usage and a single line.
std::string complaint_of(std::initializer_list<std::string> arguments) {
    const auto parsed = parse(arguments);
    REQUIRE(!parsed.has_value());
    CHECK(parsed.error().code == Errc::invalid_argument);
    CHECK(parsed.error().context.find('\n') == std::string::npos);
    return parsed.error().context;
}

TEST_SUITE_BEGIN("trainer/options");

TEST_CASE("without options the documented defaults hold") {
    const Options options = options_of({});

    CHECK(options.model == "resnet50");
    CHECK(options.data.kind == DataKind::synthetic);
    CHECK(options.batch_size == 32);
    CHECK(options.lr == 0.1);
    CHECK(options.momentum == 0.0);
    CHECK(options.weight_decay == 0.0);
    CHECK(options.keep == 3);
    CHECK(options.init_timeout.count() == 60);
    CHECK(options.gradient_as_bucket_view);
    CHECK(options.broadcast_buffers);
    CHECK(!options.deterministic);
    CHECK(!options.epochs);
    CHECK(!options.steps);
}

TEST_CASE("names take underscores and hyphens, with a space and with an equals sign") {
    CHECK(options_of({"--batch_size", "7"}).batch_size == 7);
    CHECK(options_of({"--batch-size", "7"}).batch_size == 7);
    CHECK(options_of({"--batch_size=7"}).batch_size == 7);
    CHECK(options_of({"--batch-size=7"}).batch_size == 7);
    CHECK(options_of({"--no-gradient_as-bucket-view"}).gradient_as_bucket_view == false);
}

TEST_CASE("hyphens in values stay as they are") {
    CHECK(options_of({"--checkpoint-dir=a-b-c"}).checkpoint_dir == "a-b-c");
    CHECK(options_of({"--checkpoint-dir", "a-b=c-d"}).checkpoint_dir == "a-b=c-d");
}

TEST_CASE("every option reaches its field") {
    const Options options = options_of(
        {"--model=resnet18",
         "--num_classes=12",
         "--zero_init_residual",
         "--data=synthetic:99",
         "--image_size=64",
         "--limit_train=50",
         "--limit_test=5",
         "--workers=0",
         "--epochs=3",
         "--steps=17",
         "--lr=.5",
         "--momentum=0.9",
         "--weight_decay=1e-4",
         "--nesterov",
         "--seed=18446744073709551615",
         "--deterministic",
         "--device=cpu",
         "--threads=3",
         "--channels_last",
         "--init_timeout=5",
         "--bucket_cap_mb=1.5",
         "--static_graph",
         "--no_broadcast_buffers",
         "--comm_hook=fp16",
         "--checkpoint_dir=c",
         "--checkpoint_every=4",
         "--keep=9",
         "--resume=r.pt",
         "--log_json=l",
         "--log_interval=2"}
    );

    CHECK(options.model == "resnet18");
    CHECK(options.num_classes == 12);
    CHECK(options.zero_init_residual);
    CHECK(options.data.synthetic_size == 99);
    CHECK(options.image_size == 64);
    CHECK(options.limit_train == 50);
    CHECK(options.limit_test == 5);
    CHECK(options.workers == 0);
    CHECK(options.epochs == 3);
    CHECK(options.steps == 17);
    CHECK(options.lr == 0.5);
    CHECK(options.momentum == 0.9);
    CHECK(options.weight_decay == 1e-4);
    CHECK(options.nesterov);
    CHECK(options.seed == 18446744073709551615U);
    CHECK(options.deterministic);
    CHECK(options.device == DeviceChoice::cpu);
    CHECK(options.threads == 3);
    CHECK(options.channels_last);
    CHECK(options.init_timeout.count() == 5);
    CHECK(options.bucket_cap_mb == 1.5);
    CHECK(options.static_graph);
    CHECK(!options.broadcast_buffers);
    CHECK(options.comm_hook == GradientHook::fp16_compress);
    CHECK(options.checkpoint_dir == "c");
    CHECK(options.checkpoint_every == 4);
    CHECK(options.keep == 9);
    CHECK(options.resume == "r.pt");
    CHECK(options.log_json == "l");
    CHECK(options.log_interval == 2);
}

TEST_CASE("the last of several wins") {
    CHECK(options_of({"--lr=1", "--lr=2"}).lr == 2.0);
    CHECK(!options_of({"--deterministic", "--deterministic=false"}).deterministic);
}

TEST_CASE("torchvision's name of the log interval is taken") {
    CHECK(options_of({"--print-freq", "5"}).log_interval == 5);
}

TEST_CASE("folders of pictures and CIFAR-10 need a folder") {
    const Options folder = options_of({"--data=imagefolder:/data/imagenet"});
    const Options cifar = options_of({"--data=cifar10:/data/c"});

    CHECK(folder.data.kind == DataKind::image_folder);
    CHECK(folder.data.dir == "/data/imagenet");
    CHECK(cifar.data.kind == DataKind::cifar10);
    CHECK(to_string(cifar.data) == "cifar10:/data/c");
    CHECK(
        complaint_of({"--data=imagefolder"}) ==
        "--data=imagefolder: needs a folder: imagefolder:DIR"
    );
    CHECK(complaint_of({"--data=cifar10:"}).starts_with("--data=cifar10:: no folder"));
}

TEST_CASE("mean and deviation are one number or three") {
    const Options options = options_of({"--mean=0.1,0.2,0.3", "--std=0.5", "--augment=standard"});
    using Three = std::array<float, 3>;

    CHECK(options.mean == Three{0.1F, 0.2F, 0.3F});
    CHECK(options.std == Three{0.5F, 0.5F, 0.5F});
    CHECK(options.augment == Augment::standard);
    for (const char* value : {"1,2", "1,2,3,4", "1,,3", "x", "-1", "nan"}) {
        CHECK(complaint_of({std::string("--mean=") + value}).starts_with("--mean="));
    }
    CHECK(complaint_of({"--std=0"}).starts_with("--std=0: "));
}

TEST_CASE("data is a kind and a folder") {
    const Options with_folder = options_of({"--data=fashion-mnist:/some/where:else"});
    const Options without = options_of({"--data=fashion-mnist"});

    CHECK(with_folder.data.kind == DataKind::fashion_mnist);
    CHECK(with_folder.data.dir == "/some/where:else");
    CHECK(without.data.dir == "/usr/share/datasets/fashion-mnist");
}

TEST_CASE("a bad value is named with its option") {
    CHECK(
        complaint_of({"--batch_size=abc"}) == "--batch_size=abc: not a whole number from 1 to 65536"
    );
    CHECK(complaint_of({"--batch-size", "0"}).starts_with("--batch_size=0: "));
    CHECK(complaint_of({"--epochs=1e3"}).starts_with("--epochs=1e3: "));
    CHECK(complaint_of({"--steps=-1"}).starts_with("--steps=-1: "));
    CHECK(complaint_of({"--lr=nan"}).starts_with("--lr=nan: "));
    CHECK(complaint_of({"--lr=inf"}).starts_with("--lr=inf: "));
    CHECK(complaint_of({"--lr", "0.1x"}).starts_with("--lr=0.1x: "));
    CHECK(complaint_of({"--momentum=2"}).starts_with("--momentum=2: "));
    CHECK(complaint_of({"--seed=-3"}).starts_with("--seed=-3: "));
    CHECK(complaint_of({"--seed=18446744073709551616"}).starts_with("--seed=1844"));
    CHECK(complaint_of({"--keep=0"}).starts_with("--keep=0: "));
    CHECK(complaint_of({"--device=tpu"}) == "--device=tpu: not one of cpu, cuda, auto");
    CHECK(complaint_of({"--init_timeout=0"}).starts_with("--init_timeout=0: "));
    CHECK(complaint_of({"--data=cifar"}).starts_with("--data=cifar: not a kind of data"));
    CHECK(complaint_of({"--data=fashion-mnist:"}).starts_with("--data=fashion-mnist:: no folder"));
    CHECK(complaint_of({"--data=synthetic:0"}).starts_with("--data=synthetic:0: "));
    CHECK(
        complaint_of({"--model=vgg"}) ==
        "--model=vgg: not one of resnet18, resnet34, resnet50, resnet101, resnet152"
    );
}

TEST_CASE("a missing value is said to be missing") {
    CHECK(complaint_of({"--batch-size"}) == "--batch_size: needs a value");
    CHECK(complaint_of({"--lr="}) == "--lr: needs a value");
}

TEST_CASE("an unknown option and a stray argument are named") {
    CHECK(
        complaint_of({"--bogus=1"}) == "unknown option --bogus=1; trainer --help lists the options"
    );
    CHECK(complaint_of({"train.py"}).starts_with("unexpected argument train.py"));
}

TEST_CASE("options that exclude or need each other are refused") {
    CHECK(complaint_of({"--nesterov"}).starts_with("--nesterov: needs"));
    for (const char* option :
         {"--device=cpu",
          "--amp=fp16",
          "--grad_accum_steps=2",
          "--model_parallel=2",
          "--data_parallel=2",
          "--sync_bn",
          "--find_unused_parameters",
          "--comm_hook=powersgd"}) {
        CHECK(complaint_of({"--cuda_graph", option}).starts_with("--cuda_graph: not together with")
        );
    }
    CHECK(complaint_of({"--tf32=some"}).starts_with("--tf32=some:"));
    CHECK(complaint_of({"--find_unused_parameters", "--static_graph"})
              .starts_with("--find_unused_parameters: not together with --static_graph"));
    CHECK(complaint_of({"--static_graph", "--grad_accum_steps=2"})
              .starts_with("--static_graph: not together with --grad_accum_steps"));
}

TEST_CASE("help lists every group, and version names the program") {
    const auto help = parse({"--help"});
    const auto version = parse({"--version"});

    REQUIRE(help.has_value());
    REQUIRE(std::holds_alternative<InformationText>(*help));
    const std::string& text = std::get<InformationText>(*help).text;
    for (const char* group :
         {"Model:",
          "Data:",
          "Training:",
          "Device:",
          "Optimizer:",
          "Schedule of the learning rate:",
          "Regularization:",
          "Parallel:",
          "Checkpoints:",
          "Reports:"}) {
        CHECK_MESSAGE(text.find(group) != std::string::npos, group);
    }
    REQUIRE(version.has_value());
    CHECK(std::get<InformationText>(*version).text.starts_with("trainer "));
}

TEST_CASE("of epochs and steps the smaller wins") {
    CHECK(total_steps(options_of({}), 10) == 900);
    CHECK(total_steps(options_of({"--epochs=2"}), 10) == 20);
    CHECK(total_steps(options_of({"--steps=7"}), 10) == 7);
    CHECK(total_steps(options_of({"--steps=700"}), 10) == 700);
    CHECK(total_steps(options_of({"--steps=7", "--epochs=2"}), 10) == 7);
    CHECK(total_steps(options_of({"--steps=25", "--epochs=2"}), 10) == 20);
    CHECK(total_steps(options_of({"--steps=0"}), 10) == 0);
    CHECK(
        total_steps(options_of({"--epochs=1000000000000"}), 1'000'000'000) == 9223372036854775807
    );
}

TEST_CASE("the description for a checkpoint has what is in force, and no more") {
    const auto described = describe_options(options_of({"--model=resnet18", "--steps=5"}));

    std::string steps;
    for (const auto& [name, value] : described) {
        CHECK(name != "epochs");
        CHECK(name != "resume");
        if (name == "steps") {
            steps = value;
        }
    }
    CHECK(steps == "5");
}

TEST_CASE("an unknown recipe is refused with the names that there are") {
    CHECK(
        complaint_of({"--recipe=best"}) ==
        "--recipe=best: not one of torchvision-v1, torchvision-v2, nvidia-90, ffcv-16"
    );
}

TEST_CASE("a job that goes on with as many ranks is where it was in its schedule") {
    CHECK(schedule_shift(0, -1, 10, 10) == 0);
    CHECK(schedule_shift(7, -1, 3, 10) == 0);
    CHECK(schedule_shift(10, 0, 10, 10) == 0);
    CHECK(schedule_shift(25, 1, 5, 10) == 0);
}

TEST_CASE("a job that goes on with other ranks ends with the epoch that it was to end with") {
    // 3 steps of 8 pictures of 64 are done, 10 steps of 4 are left.
    const std::int64_t shift = schedule_shift(3, -1, 10, 16);
    CHECK(shift == 3);
    CHECK(total_steps(options_of({"--epochs=1"}), 16, shift) == 13);
    CHECK(total_steps(options_of({"--epochs=2"}), 16, shift) == 29);
    CHECK(total_steps(options_of({"--epochs=2", "--steps=9"}), 16, shift) == 9);
    // 6 steps of 4 are done, 5 steps of 8 are left.
    CHECK(total_steps(options_of({"--epochs=1"}), 8, schedule_shift(6, -1, 5, 8)) == 11);
}

TEST_CASE("every setting of every recipe is an option that takes it") {
    for (const std::string_view name : recipe_names()) {
        CAPTURE(name);
        const Options options = options_of({"--recipe=" + std::string(name)});
        const auto described = describe_options(options);
        const auto settings = recipe_settings(name).value();
        for (const auto& [option, value] : settings) {
            const std::string wanted(option);
            CAPTURE(wanted);
            CHECK(std::any_of(described.begin(), described.end(), [&](const auto& entry) {
                return entry.first == option;
            }));
        }
        CHECK(options.lr_scheduler != ScheduleKind::constant);
        CHECK(options.momentum > 0.8);
    }
}

TEST_CASE("an option overrides its recipe, before and after it") {
    CHECK(options_of({"--recipe=torchvision-v1"}).lr_step_size == 30.0);
    CHECK(options_of({"--recipe=torchvision-v1", "--lr=0.2"}).lr == 0.2);
    CHECK(options_of({"--lr=0.2", "--recipe=torchvision-v1"}).lr == 0.2);
}

TEST_CASE("a file gives options, which the command line overrides and which override the recipe") {
    const TempFolder folder;
    const std::string path = (folder / "a.conf").string();
    write_file(
        path, "# a comment\nbatch-size = 7\nlr_scheduler=cosine\nnesterov = true\nmomentum=0.9\n"
    );

    const Options options = options_of({"--config=" + path, "--momentum=0.8"});
    const Options of_recipe = options_of({"--recipe=torchvision-v1", "--config", path});

    CHECK(options.batch_size == 7);
    CHECK(options.lr_scheduler == ScheduleKind::cosine);
    CHECK(options.nesterov);
    CHECK(options.momentum == 0.8);
    CHECK(of_recipe.batch_size == 7);
    CHECK(of_recipe.weight_decay == 1e-4);
}

TEST_CASE("what is wrong with a file of options is one line that names it") {
    const TempFolder folder;
    const std::string path = (folder / "a.conf").string();
    const std::pair<const char*, const char*> lines[] = {
        {"no_such_option = 7", "line 3: no_such_option: no such option"},
        {"no-such-option = 7", "line 3: no_such_option: no such option"},
        {"recipe = ffcv-16", "line 3: recipe: no such option"},
        {"batch_size 7", "line 3: batch_size 7: expected name = value"},
        {"[section]", "line 3: [section]: expected name = value"},
        {"= 7", "line 3: : no such option"},
    };
    for (const auto& [line, complaint] : lines) {
        CAPTURE(line);
        write_file(path, fmt::format("# a comment\nsteps = 5\n{}\nlr = 0.1\n", line));
        const auto wrong = parse({"--config=" + path});
        REQUIRE(!wrong.has_value());
        CHECK(wrong.error().code == Errc::invalid_argument);
        CHECK(wrong.error().context.starts_with(fmt::format("--config={}: {}", path, complaint)));
    }

    write_file(path, "steps = 5\nbatch-size = many\n");
    const std::string complaint = complaint_of({"--config=" + path});
    CHECK(complaint.starts_with("--batch_size=many: "));
    CHECK(complaint.ends_with(fmt::format(" ({}, line 2)", path)));
    CHECK(complaint_of({"--config=" + path, "--batch-size=few"}).find("line") == std::string::npos);

    const auto missing = parse({"--config=/no/such/file"});
    REQUIRE(!missing.has_value());
    CHECK(missing.error().code == Errc::not_found);
    CHECK(missing.error().context.find("/no/such/file") != std::string::npos);
}

TEST_CASE("what --print_config shows is read by --config, and means the same") {
    const TempFolder folder;
    const std::string path = (folder / "a.conf").string();
    const std::vector<std::string> arguments{
        "--recipe=torchvision-v2",
        "--data=fashion-mnist",
        "--amp=bf16",
        "--profile=3",
        "--no_broadcast_buffers",
        "--checkpoint_dir=a b"};
    auto printing = arguments;
    printing.emplace_back("--print_config");
    const auto shown = parse_options(printing);
    REQUIRE(shown.has_value());
    REQUIRE(std::holds_alternative<InformationText>(*shown));
    write_file(path, std::get<InformationText>(*shown).text);

    const auto direct = parse_options(arguments);
    const auto read = parse({"--config=" + path});

    REQUIRE_MESSAGE(read.has_value(), read.error().context);
    // What was usual for the data is said now.
    Options told = std::get<Options>(*direct);
    const Normalisation usual = usual_normalisation(told.data.kind);
    told.mean = usual.mean;
    told.std = usual.deviation;
    CHECK(describe_options(std::get<Options>(*read)) == describe_options(told));
    CHECK(std::get<Options>(*read).model_ema);
    CHECK(!std::get<Options>(*read).broadcast_buffers);
    CHECK(std::get<Options>(*read).checkpoint_dir == "a b");
}

TEST_CASE("a schedule's length comes from epochs, and its rate from the size of a step") {
    const auto schedule = schedule_of(
        options_of(
            {"--epochs=10",
             "--lr=1",
             "--lr_batch=100",
             "--lr_scheduler=step",
             "--lr_step_size=3",
             "--lr_warmup_epochs=0.5"}
        ),
        20,
        250
    );

    CHECK(schedule.lr == 2.5);
    CHECK(schedule.total_steps == 200);
    CHECK(schedule.warmup_steps == 10);
    CHECK(schedule.period == 60);
}

TEST_CASE("a profile's steps are a count after the first two, or a range") {
    CHECK(options_of({"--profile=5"}).profile->first == 3);
    CHECK(options_of({"--profile=5"}).profile->last == 7);
    CHECK(options_of({"--profile=2:4"}).profile->first == 2);
    CHECK(options_of({"--profile=2:4"}).profile->last == 4);
    CHECK(complaint_of({"--profile=4:2"}).starts_with("--profile=4:2: "));
    CHECK(complaint_of({"--profile=0"}).starts_with("--profile=0: "));
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::trainer
