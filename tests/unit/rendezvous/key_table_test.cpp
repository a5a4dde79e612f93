#include "rendezvous/key_table.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace ddprun {
namespace {

std::string name_of(int number) {
    return "/key/" + std::to_string(number);
}

TEST_SUITE_BEGIN("rendezvous/key_table");

TEST_CASE("a value is found under its own name only") {
    KeyTable table;
    table.add(StoreValue::named("a", "1"));
    table.add(StoreValue::named("", "of the empty key"));

    REQUIRE(table.find("a") != nullptr);
    CHECK(table.find("a")->view() == "1");
    CHECK(table.find("")->view() == "of the empty key");
    CHECK(table.find("b") == nullptr);
    CHECK(table.find("1") == nullptr);
    CHECK(table.size() == 2);
}

TEST_CASE("a value in the place of another is found and the other lives on with its holders") {
    KeyTable table;
    table.add(StoreValue::named("a", "1"));
    const StoreValue held = *table.find("a");

    *table.find("a") = StoreValue::named("a", "2");

    CHECK(table.find("a")->view() == "2");
    CHECK(held.view() == "1");
    CHECK(table.size() == 1);
}

TEST_CASE("very many keys come and go and each that stays is found") {
    constexpr int kKeys = 100'000;
    constexpr int kKept = 1'000;  // each of so many stays
    KeyTable table;
    for (int i = 0; i < kKeys; ++i) {
        table.add(StoreValue::named(name_of(i), std::to_string(i)));
    }
    for (int i = 0; i < kKeys; ++i) {
        if (i % kKept != 0) {
            table.erase(name_of(i));
        }
    }

    REQUIRE(table.size() == kKeys / kKept);
    for (int i = 0; i < kKeys; i += kKept) {
        REQUIRE(table.find(name_of(i)) != nullptr);
        CHECK(table.find(name_of(i))->view() == std::to_string(i));
        CHECK(table.find(name_of(i + 1)) == nullptr);
    }
}

TEST_CASE("a key may be removed by the name in its own value") {
    KeyTable table;
    table.add(StoreValue::named("a", "1"));

    table.erase(table.find("a")->name());

    CHECK(table.size() == 0);
}

TEST_CASE("each key is told once") {
    KeyTable table;
    table.add(StoreValue::named("a", "1"));
    table.add(StoreValue::named("b", "2"));

    std::vector<std::string> keys;
    table.for_each_key([&](auto key) { keys.emplace_back(key); });

    const bool is_in_order = keys == std::vector<std::string>{"a", "b"};
    const bool is_the_other_way_round = keys == std::vector<std::string>{"b", "a"};
    CHECK((is_in_order || is_the_other_way_round));
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun
