#include "trainer/pickle.h"

#include <doctest/doctest.h>

#include <limits>
#include <random>
#include <string>

namespace ddprun::trainer {
namespace {

using namespace std::string_literals;

PickleValue read(const std::string& bytes) {
    auto value = read_pickle(bytes);
    REQUIRE_MESSAGE(value.has_value(), value.error().context);
    return *value;
}

template <class T>
T round_trip(T value) {
    const PickleValue back = read(write_pickle(PickleValue{value}));
    REQUIRE(back.as<T>() != nullptr);
    return *back.as<T>();
}

Errc error_of(const std::string& bytes) {
    const auto value = read_pickle(bytes);
    REQUIRE(!value.has_value());
    return value.error().code;
}

PickleValue example() {
    PickleDict inner;
    inner.ordered = true;
    inner.items.push_back(
        {PickleValue{"weight"s},
         PickleValue{PickledTensor{"FloatStorage", "0", 6, 0, {2, 3}, {3, 1}}}}
    );
    PickleDict root;
    root.items = {
        {PickleValue{"model"s}, PickleValue{inner}},
        {PickleValue{std::int64_t{3}}, PickleValue{2.5}},
        {PickleValue{"list"s},
         PickleValue{PickleList{PickleValue{true}, PickleValue{PickleNone{}}}}},
        {PickleValue{"tuple"s}, PickleValue{PickleTuple{{PickleValue{std::int64_t{1}}}}}},
    };
    return PickleValue{root};
}

TEST_SUITE_BEGIN("trainer/pickle");

TEST_CASE("plain values come back as they were") {
    CHECK(round_trip(true));
    CHECK(!round_trip(false));
    for (const std::int64_t value :
         {std::int64_t{0},
          std::int64_t{-1},
          std::int64_t{255},
          std::int64_t{2147483647},
          std::int64_t{2147483648},
          std::int64_t{-2147483649},
          std::numeric_limits<std::int64_t>::max(),
          std::numeric_limits<std::int64_t>::min()}) {
        CHECK(round_trip(value) == value);
    }
    CHECK(round_trip(0.1) == 0.1);
    CHECK(round_trip(-1e300) == -1e300);
    CHECK(round_trip("gr\xc3\xbc\xc3\x9f"s) == "gr\xc3\xbc\xc3\x9f");
    CHECK(round_trip(""s).empty());
}

TEST_CASE("containers and tensors come back as they were") {
    const PickleValue back = read(write_pickle(example()));

    const auto* const root = back.as<PickleDict>();
    REQUIRE(root != nullptr);
    REQUIRE(root->items.size() == 4);
    CHECK(!root->ordered);
    const auto* const model = root->find("model")->as<PickleDict>();
    REQUIRE(model != nullptr);
    CHECK(model->ordered);
    REQUIRE(model->find("weight") != nullptr);
    CHECK(
        *model->find("weight")->as<PickledTensor>() ==
        PickledTensor{"FloatStorage", "0", 6, 0, {2, 3}, {3, 1}}
    );
    CHECK(*root->items[1].key.as<std::int64_t>() == 3);
    REQUIRE(root->find("list")->as<PickleList>() != nullptr);
    CHECK(root->find("list")->as<PickleList>()->size() == 2);
    CHECK(root->find("tuple")->as<PickleTuple>()->items.size() == 1);
    CHECK(root->find("nothing") == nullptr);
}

TEST_CASE("a pickle that is cut at any byte is malformed") {
    const std::string whole = write_pickle(example());
    for (std::size_t size = 0; size < whole.size(); ++size) {
        CAPTURE(size);
        CHECK(error_of(whole.substr(0, size)) == Errc::malformed);
    }
}

TEST_CASE("changed bytes give a value or an error, never more") {
    const std::string whole = write_pickle(example());
    std::mt19937 random(1);
    for (int i = 0; i < 20'000; ++i) {
        std::string bytes = whole;
        for (int k = 0; k < 3; ++k) {
            bytes[random() % bytes.size()] = static_cast<char>(random());
        }
        const auto value = read_pickle(bytes);
        if (!value) {
            CHECK(value.error().context.starts_with("pickle: "));
        }
    }
}

TEST_CASE("the short forms of newer protocols are understood") {
    CHECK(*read("\x80\x04\x95\x05\0\0\0\0\0\0\0\x8c\x02hi\x94."s).as<std::string>() == "hi");
    CHECK(*read("M\x02\x01."s).as<std::int64_t>() == 258);
    CHECK(*read("\x8a\x01\xff."s).as<std::int64_t>() == -1);
    CHECK(*read("\x8a\0."s).as<std::int64_t>() == 0);
}

TEST_CASE("the memo gives a value again") {
    const PickleValue value = read("(U\1aq\1h\1t."s);

    REQUIRE(value.as<PickleTuple>() != nullptr);
    CHECK(*value.as<PickleTuple>()->items[1].as<std::string>() == "a");
}

TEST_CASE("an unknown class is kept by name and nothing of it runs") {
    const PickleValue value = read("cos\nsystem\nU\2ls\x85R."s);
    const PickleValue with_state = read(
        "\x80\x02"
        "cargparse\nNamespace\n)\x81}U\1aK\1sb."s
    );

    REQUIRE(value.as<PickleGlobal>() != nullptr);
    CHECK(value.as<PickleGlobal>()->name == "os.system");
    CHECK(with_state.as<PickleGlobal>()->name == "argparse.Namespace");
}

TEST_CASE("attributes of a dict are passed over") {
    const PickleValue value = read("ccollections\nOrderedDict\n)R(U\1aK\1u}U\x09_metadata}sb."s);

    REQUIRE(value.as<PickleDict>() != nullptr);
    CHECK(value.as<PickleDict>()->items.size() == 1);
}

TEST_CASE("a parameter is the tensor that it holds") {
    const std::string tensor =
        "ctorch._utils\n_rebuild_tensor_v2\n((U\7storagectorch\nFloatStorage\nU\0010U\3cpuK\4tQ"
        "K\0K\4\x85K\1\x85\x89}tR"s;

    const PickleValue value = read("ctorch._utils\n_rebuild_parameter\n("s + tensor + "\x89}tR."s);

    REQUIRE(value.as<PickledTensor>() != nullptr);
    CHECK(value.as<PickledTensor>()->sizes == std::vector<std::int64_t>{4});
}

TEST_CASE("a container that holds itself is refused") {
    CHECK(error_of("]q\0h\0a."s) == Errc::limit_exceeded);
}

TEST_CASE("shared containers can't blow up") {
    // Each list holds the one before it ten times.
    std::string bytes = "]q\0"s;
    for (char level = 1; level < 20; ++level) {
        bytes += "](";
        for (int i = 0; i < 10; ++i) {
            bytes += std::string("h") + static_cast<char>(level - 1);
        }
        bytes += std::string("eq") + level;
    }
    bytes += ".";

    CHECK(error_of(bytes) == Errc::limit_exceeded);
}

TEST_CASE("operations without their operands are malformed") {
    for (const std::string& bytes :
         {"."s,
          "a."s,
          "e."s,
          "t."s,
          "\x85."s,
          "R."s,
          "s."s,
          "(a."s,
          "h\1."s,
          "q\1."s,
          "Q."s,
          "K\1K\2a."s,
          "}(K\1u."s,
          "\xff."s,
          "K\1Q."s,
          "(."s}) {
        CHECK(error_of(bytes) == Errc::malformed);
    }
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::trainer
