#include "trainer/safetensors_header.h"

#include <doctest/doctest.h>

#include <string>
#include <string_view>

namespace ddprun::trainer {
namespace {

const std::vector<SafetensorsEntry> kEntries{
    {"a.weight", "F32", {2, 3}, 0, 24},
    {"n", "I64", {}, 24, 32},
};

/// The JSON behind the length.
std::string_view json_of(const std::string& header) {
    return std::string_view(header).substr(kSafetensorsLengthBytes);
}

TEST_SUITE_BEGIN("trainer/safetensors_header");

TEST_CASE("a header comes back as it was, aligned to eight bytes") {
    const std::string header = write_safetensors_header(kEntries);

    CHECK(header.size() % 8 == 0);
    CHECK(safetensors_header_length(header).value() == header.size() - 8);
    CHECK(parse_safetensors_header(json_of(header), 32).value() == kEntries);
}

TEST_CASE("tensors that overlap, leave holes or end elsewhere than the file are damage") {
    const auto with = [](std::uint64_t begin, std::uint64_t end, std::uint64_t bytes) {
        const std::string header =
            write_safetensors_header({kEntries[0], {"n", "I64", {}, begin, end}});
        return parse_safetensors_header(json_of(header), bytes);
    };
    CHECK(with(24, 32, 32).has_value());
    CHECK(with(16, 24, 24).error().code == Errc::malformed);
    CHECK(with(25, 33, 33).error().code == Errc::malformed);
    CHECK(with(24, 32, 31).error().code == Errc::malformed);
    CHECK(with(24, 20, 24).error().code == Errc::malformed);
}

TEST_CASE("every truncation of the JSON is damage") {
    const std::string header = write_safetensors_header(kEntries);
    const std::string_view json = json_of(header);
    const std::size_t end = json.find_last_of('}');
    for (std::size_t size = 0; size < end; ++size) {
        CAPTURE(size);
        CHECK(!parse_safetensors_header(json.substr(0, size), 32).has_value());
    }
}

TEST_CASE("fields of another type are damage") {
    for (const char* json :
         {R"([])",
          R"({"a":1})",
          R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})",
          R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})",
          R"({"a":{"dtype":3,"shape":[1],"data_offsets":[0,4]}})",
          R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})"}) {
        CAPTURE(json);
        CHECK(parse_safetensors_header(json, 4).error().code == Errc::malformed);
    }
}

TEST_CASE("an announced length beyond the format's bound is refused before it is read") {
    CHECK(!safetensors_header_length("short").has_value());
    CHECK(!safetensors_header_length(std::string(8, '\xff')).has_value());
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::trainer
