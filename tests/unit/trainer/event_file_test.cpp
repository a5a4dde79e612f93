#include "trainer/event_file.h"

#include "tests/unit/trainer/temp_folder.h"

#include <doctest/doctest.h>

#include <string>

namespace ddprun::trainer {
namespace {

TEST_SUITE_BEGIN("trainer/event_file");

TEST_CASE("the checksum is CRC-32C, masked as TFRecord masks it") {
    // CRC-32C of "123456789" is e3069283.
    constexpr std::uint32_t kPlain = 0xe3069283;
    CHECK(masked_checksum("123456789") == ((kPlain >> 15U | kPlain << 17U) + 0xa282ead8U));
}

TEST_CASE("a record has its length in front, and checksums after the length and the bytes") {
    const std::string record = frame_record("abc");

    REQUIRE(record.size() == 8 + 4 + 3 + 4);
    CHECK(record.substr(0, 8) == std::string("\x03\0\0\0\0\0\0\0", 8));
    CHECK(record.substr(12, 3) == "abc");
}

TEST_CASE("scalars are an Event with a Summary, byte for byte") {
    const std::string event = encode_scalars(1.0, 300, {{"a", 0.5}});

    const std::string expected = std::string("\x09\0\0\0\0\0\0\xf0\x3f", 9) +  // wall_time = 1.0
                                 std::string("\x10\xac\x02", 3) +              // step = 300
                                 std::string("\x2a\x0a", 2) +                  // summary, 10 bytes
                                 std::string(
                                     "\x0a\x08\x0a\x01"
                                     "a\x15\0\0\0\x3f",
                                     10
                                 );  // value {tag, simple_value}
    CHECK(event == expected);
}

TEST_CASE("a file begins with its version and has each event at once") {
    const TempFolder folder;
    const std::string dir = (folder / "new/events").string();
    auto file = EventFile::create(dir);
    REQUIRE(file.has_value());

    REQUIRE(file->write(1, {{"train/loss", 2.0}}).has_value());

    std::string content;
    for (const auto& entry : std::filesystem::directory_iterator(dir)) {
        CHECK(entry.path().filename().string().starts_with("events.out.tfevents."));
        content = read_file(entry.path());
    }
    CHECK(content.find("brain.Event:2") != std::string::npos);
    CHECK(content.find("train/loss") != std::string::npos);
}

TEST_CASE("a folder that can't be made is an error that names it") {
    const auto file = EventFile::create("/proc/none/events");
    REQUIRE(!file.has_value());
    CHECK(file.error().context.find("/proc/none/events") != std::string::npos);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::trainer
