#include "trainer/zip_checksum.h"

#include "tests/support/filled.h"
#include "tests/unit/trainer/temp_folder.h"
#include "trainer/atomic_file.h"

#include <doctest/doctest.h>

#include <string>

namespace ddprun::trainer {
namespace {

/// Content of an archive and the end record of a zip without a comment.
std::string archive() {
    std::string bytes = test::filled(3'000, 'x');
    bytes += "PK\x05\x06";
    bytes += test::filled(18, '\0');
    return bytes;
}

/// What comes out when the archive is written in pieces of `step` bytes.
std::string written_in_pieces(std::size_t step) {
    std::string out;
    ZipChecksumWriter writer([&out](std::string_view bytes) -> Result<void> {
        out += bytes;
        return {};
    });
    const std::string whole = archive();
    for (std::size_t at = 0; at < whole.size(); at += step) {
        REQUIRE(writer.write(std::string_view(whole).substr(at, step)).has_value());
    }
    REQUIRE(writer.finish().has_value());
    return out;
}

TEST_SUITE_BEGIN("trainer/zip_checksum");

TEST_CASE("the archive stays as it is but for its comment") {
    const std::string out = written_in_pieces(100);

    CHECK(out.substr(0, archive().size() - 2) == archive().substr(0, archive().size() - 2));
    const std::string comment = out.substr(archive().size());
    CHECK(comment.starts_with("ddprun crc32 "));
    CHECK(static_cast<std::size_t>(out[archive().size() - 2]) == comment.size());
}

TEST_CASE("it doesn't matter in which pieces it is written") {
    for (const std::size_t step : {1U, 7U, 21U, 22U, 23U, 5'000U}) {
        CHECK(written_in_pieces(step) == written_in_pieces(100));
    }
}

TEST_CASE("what was written is found right") {
    const TempFolder folder;
    write_file(folder / "a", written_in_pieces(100));

    CHECK(check_zip_checksum(folder / "a").value() == ZipChecksum::right);
}

TEST_CASE("a file without our comment has no checksum") {
    const TempFolder folder;
    write_file(folder / "a", archive());
    write_file(folder / "empty", "");

    CHECK(check_zip_checksum(folder / "a").value() == ZipChecksum::absent);
    CHECK(check_zip_checksum(folder / "empty").value() == ZipChecksum::absent);
}

TEST_CASE("a flipped bit anywhere is malformed or takes the comment away") {
    const TempFolder folder;
    const std::string whole = written_in_pieces(100);
    const std::size_t comment_at = archive().size();
    for (std::size_t at = 0; at < whole.size(); at += at < comment_at - 100 ? 97 : 1) {
        CAPTURE(at);
        std::string flipped = whole;
        flipped[at] = static_cast<char>(flipped[at] ^ 1);
        write_file(folder / "a", flipped);

        const auto checked = check_zip_checksum(folder / "a");
        if (checked) {
            CHECK(*checked == ZipChecksum::absent);
            CHECK(at >= comment_at);
        } else {
            CHECK(checked.error().code == Errc::malformed);
        }
    }
}

TEST_CASE("a missing file is not found") {
    CHECK(check_zip_checksum("/nonexistent/file").error().code == Errc::not_found);
}

TEST_CASE("an archive that doesn't end as one is refused") {
    ZipChecksumWriter writer([](std::string_view) -> Result<void> { return {}; });
    REQUIRE(writer.write("not a zip").has_value());

    CHECK(writer.finish().error().code == Errc::internal);
}

TEST_SUITE_END();

TEST_SUITE_BEGIN("trainer/atomic_file");

TEST_CASE("a file appears with its commit, and no other file stays") {
    const TempFolder folder;
    auto file = AtomicFile::create(folder / "a");
    REQUIRE(file.has_value());
    REQUIRE(file->write("one ").has_value());
    REQUIRE(file->write("two").has_value());
    CHECK(!std::filesystem::exists(folder / "a"));

    REQUIRE(file->commit().has_value());

    CHECK(read_file(folder / "a") == "one two");
    CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("without a commit the old file stays and nothing else") {
    const TempFolder folder;
    write_file(folder / "a", "old");
    {
        auto file = AtomicFile::create(folder / "a");
        REQUIRE(file.has_value());
        REQUIRE(file->write("new").has_value());
    }

    CHECK(read_file(folder / "a") == "old");
    CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("a missing folder is an error that names the file") {
    const auto file = AtomicFile::create("/nonexistent/folder/a");

    REQUIRE(!file.has_value());
    CHECK(file.error().code == Errc::not_found);
    CHECK(file.error().context.starts_with("write /nonexistent/folder/a: "));
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::trainer
