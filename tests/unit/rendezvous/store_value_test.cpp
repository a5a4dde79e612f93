#include "rendezvous/store_value.h"

#include <doctest/doctest.h>

#include <string>
#include <utility>

namespace ddprun {
namespace {

TEST_SUITE_BEGIN("rendezvous/store_value");

TEST_CASE("no value is not the empty value and both have no bytes") {
    const StoreValue none;
    const StoreValue empty{""};

    CHECK_FALSE(none.is_there());
    CHECK(empty.is_there());
    CHECK(none.view().empty());
    CHECK(empty.view().empty());
    CHECK(none.holders() == 0);
}

TEST_CASE("a value holds any bytes and what is put behind them") {
    const std::string bytes{"\0\xff text", 7};

    CHECK(StoreValue{bytes}.view() == bytes);
    CHECK(StoreValue{bytes, "more"}.view() == bytes + "more");
    CHECK(StoreValue{bytes, "more"}.size() == bytes.size() + 4);
}

TEST_CASE("copies share the bytes and the last holder frees them") {
    StoreValue first{"value"};
    {
        const StoreValue second = first;
        CHECK(second.view().data() == first.view().data());
        CHECK(first.holders() == 2);
    }

    CHECK(first.holders() == 1);
    const StoreValue moved = std::move(first);
    CHECK(moved.holders() == 1);
    CHECK(moved.view() == "value");
}

TEST_CASE("assignment lets the old value go and may be to itself") {
    StoreValue value{"one"};
    const StoreValue other{"two"};
    const StoreValue& same = value;

    value = same;
    CHECK(value.view() == "one");
    value = other;

    CHECK(value.view() == "two");
    CHECK(other.holders() == 2);
}

TEST_CASE("a value knows the key that it was stored under") {
    const StoreValue value = StoreValue::named("key", "va", "lue");

    CHECK(value.name() == "key");
    CHECK(value.view() == "value");
    CHECK(value.size() == 5);
    CHECK(StoreValue::named("key", "").name() == "key");
    CHECK(StoreValue{"value"}.name().empty());
    CHECK(StoreValue{}.name().empty());
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun
