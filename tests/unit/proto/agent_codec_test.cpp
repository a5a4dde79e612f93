#include "proto/agent_codec.h"

#include "proto/bytes.h"
#include "proto/limits.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <fstream>
#include <memory>
#include <sstream>

namespace ddprun {
namespace {

// ---- the examples of docs/wire.md

WorkerFailure example_failure() {
    WorkerFailure failure;
    failure.host = "node2";
    failure.group_rank = GroupRank{1};
    failure.rank = Rank{3};
    failure.local_rank = LocalRank{1};
    failure.pid = 4711;
    failure.kind = FailureKind::signaled;
    failure.code = 9;
    failure.wall_time_ms = 1'700'000'000'000;
    failure.uptime_ms = 1'500;
    failure.stderr_tail = "oops";
    return failure;
}

Join example_join() {
    Join join;
    join.job = JobId{"job"};
    join.node = NodeId{"node1"};
    join.incarnation = Incarnation{0x1122334455667788};
    join.info = NodeInfo{"node1", "10.0.0.1", 4242, LocalWorldSize{4}, "default"};
    join.spec.min_nodes = NodeCount{1};
    join.spec.max_nodes = NodeCount{2};
    join.spec.max_restarts = RestartCount{3};
    join.spec.no_restart_codes = {42};
    join.spec.restart_delay = std::chrono::milliseconds(500);
    join.spec.min_uptime = std::chrono::milliseconds(10'000);
    join.requested_rank = GroupRank{1};
    join.job_began = true;
    join.newest_round = Round{2};
    join.claim =
        RoundClaim{Round{2}, GroupRank{1}, NodeCount{2}, RestartCount{1}, "10.0.0.1", Port{29501}};
    return join;
}

RoundPlan example_plan() {
    RoundPlan plan;
    plan.round = Round{1};
    plan.reason = RoundReason::node_lost;
    plan.reason_text = "lost";
    plan.restart_count = RestartCount{2};
    plan.max_restarts = RestartCount{3};
    plan.master_address = "10.0.0.1";
    plan.master_port = Port{29501};
    plan.nodes = NodeCount{2};
    plan.world_size = WorldSize{6};
    return plan;
}

NodePlace example_place() {
    return NodePlace{GroupRank{1}, LocalWorldSize{2}, Rank{4}, Rank{4}, WorldSize{6}};
}

struct AgentExample {
    const char* name;
    AgentMessage message;
};

std::vector<AgentExample> agent_examples() {
    return {
        {"Join", example_join()},
        {"Heartbeat", Heartbeat{}},
        {"StoreReady", StoreReady{SequenceNumber{1}, Round{2}, Port{29501}}},
        {"WorkerFailed", WorkerFailed{SequenceNumber{2}, Round{2}, example_failure()}},
        {"WorkersSucceeded", WorkersSucceeded{SequenceNumber{3}, Round{2}}},
        {"RoundStopped",
         RoundStopped{SequenceNumber{4}, Round{2}, {example_failure()}, {{Rank{0}, true}}}},
        {"StopJob", StopJob{SequenceNumber{5}, 15}},
        {"Bye", Bye{SequenceNumber{6}}},
        {"Leave", Leave{SequenceNumber{7}, 15}},
    };
}

struct ServerExample {
    const char* name;
    ServerMessage message;
};

std::vector<ServerExample> server_examples() {
    return {
        {"Welcome", Welcome{std::chrono::milliseconds(1'000), true, "node0"}},
        {"Refused", Refused{RefusalReason::rank_taken, "node_rank 1 is taken by node2"}},
        {"Waiting", Waiting{{"node1", "node2"}, NodeCount{2}, NodeCount{2}, false, {}, {"node"}}},
        {"PrepareRound", PrepareRound{Round{2}}},
        {"BeginRound", BeginRound{example_plan(), example_place()}},
        {"StopRound", StopRound{Round{2}, "why", example_failure(), 0, false, StopKind::node_lost}},
        {"Ack", Ack{SequenceNumber{5}}},
        {"EndJob", EndJob{137, "why", {example_failure()}, RestartCount{1}, {{Rank{0}, true}}}},
    };
}

int nibble(char digit) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    const std::size_t value = kDigits.find(digit);
    REQUIRE(value != std::string_view::npos);
    return static_cast<int>(value);
}

/// The bytes of the block ```hex under the heading "### NAME ".
std::string documented_bytes(const std::string& name) {
    std::ifstream file(DDPRUN_SOURCE_DIR "/docs/wire.md");
    REQUIRE_MESSAGE(file.is_open(), "docs/wire.md");
    std::string line;
    while (std::getline(file, line) && line.rfind("### " + name + " ", 0) != 0) {
    }
    while (std::getline(file, line) && line != "```hex") {
    }
    std::string bytes;
    while (std::getline(file, line) && line != "```") {
        std::istringstream words(line.substr(0, line.find('#')));
        for (std::string word; words >> word;) {
            REQUIRE(word.size() == 2);
            bytes.push_back(static_cast<char>(nibble(word[0]) * 16 + nibble(word[1])));
        }
    }
    return bytes;
}

template <class Message>
std::string encoded(const Message& message) {
    std::string bytes;
    encode(message, bytes);
    return bytes;
}

Frame frame_of(std::string_view bytes) {
    FrameReader reader(FrameReader::Start::frames, limits::kServerFrameBytesMax);
    reader.push(bytes);
    auto frame = reader.next();
    REQUIRE(frame);
    REQUIRE(frame->has_value());
    return **frame;
}

Frame cut_copy(const Frame& frame, std::size_t size) {
    // An exact-size heap buffer, so that the address sanitizer sees any overread.
    return Frame{
        frame.type,
        std::string(
            frame.payload.begin(), frame.payload.begin() + static_cast<std::ptrdiff_t>(size)
        )};
}

TEST_SUITE_BEGIN("proto/agent_codec");

TEST_CASE("the opening is the documented one") {
    CHECK(agent_opening() == documented_bytes("Opening"));
}

TEST_CASE("every message of an agent has its documented bytes, both ways") {
    for (const AgentExample& example : agent_examples()) {
        CAPTURE(std::string(example.name));
        const std::string documented = documented_bytes(example.name);

        CHECK(encoded(example.message) == documented);
        const auto decoded = decode_agent_message(frame_of(documented));
        REQUIRE(decoded);
        CHECK((*decoded == example.message));
    }
}

TEST_CASE("every message of the rendezvous has its documented bytes, both ways") {
    for (const ServerExample& example : server_examples()) {
        CAPTURE(std::string(example.name));
        const std::string documented = documented_bytes(example.name);

        CHECK(encoded(example.message) == documented);
        const auto decoded = decode_server_message(frame_of(documented));
        REQUIRE(decoded);
        CHECK((*decoded == example.message));
    }
}

TEST_CASE("a payload cut at any byte or with one too many is malformed") {
    for (const AgentExample& example : agent_examples()) {
        CAPTURE(std::string(example.name));
        const Frame frame = frame_of(encoded(example.message));
        for (std::size_t size = 0; size < frame.payload.size(); ++size) {
            CHECK_FALSE(decode_agent_message(cut_copy(frame, size)));
        }
        CHECK_FALSE(decode_agent_message(Frame{frame.type, frame.payload + "x"}));
    }
    for (const ServerExample& example : server_examples()) {
        CAPTURE(std::string(example.name));
        const Frame frame = frame_of(encoded(example.message));
        for (std::size_t size = 0; size < frame.payload.size(); ++size) {
            CHECK_FALSE(decode_server_message(cut_copy(frame, size)));
        }
        CHECK_FALSE(decode_server_message(Frame{frame.type, frame.payload + "x"}));
    }
}

TEST_CASE("frames come out the same however the bytes are cut") {
    std::string bytes = agent_opening();
    for (const AgentExample& example : agent_examples()) {
        encode(example.message, bytes);
    }
    for (const std::size_t piece :
         {std::size_t{1}, std::size_t{3}, std::size_t{64}, bytes.size()}) {
        FrameReader reader(FrameReader::Start::opening, limits::kAgentFrameBytesMax);
        std::size_t count = 0;
        for (std::size_t at = 0; at < bytes.size(); at += piece) {
            reader.push(std::string_view{bytes}.substr(at, piece));
            for (auto frame = reader.next(); frame && *frame; frame = reader.next()) {
                const auto message = decode_agent_message(**frame);
                REQUIRE(message);
                CHECK((*message == agent_examples().at(count).message));
                ++count;
            }
        }
        CHECK(count == agent_examples().size());
    }
}

TEST_CASE("an opening that isn't ours is known by its first wrong byte") {
    FrameReader reader(FrameReader::Start::opening, limits::kAgentFrameBytesMax);
    reader.push("\xDDX");

    const auto frame = reader.next();

    REQUIRE_FALSE(frame);
    CHECK(frame.error().code == Errc::malformed);
}

TEST_CASE("another version is an error that names both versions") {
    FrameReader reader(FrameReader::Start::opening, limits::kAgentFrameBytesMax);
    std::string bytes(kAgentMagic, sizeof kAgentMagic);
    ByteWriter(bytes).u16(7);
    reader.push(bytes);

    const auto frame = reader.next();

    REQUIRE_FALSE(frame);
    CHECK(frame.error().code == Errc::version_mismatch);
    const Refused refused = refused_for_version(frame.error());
    CHECK(refused.reason == RefusalReason::version);
    CHECK(refused.text.find("this node speaks version 7") != std::string::npos);
    CHECK(refused.text.find("version 1") != std::string::npos);
}

TEST_CASE("a frame above the bound is an error before its bytes have come") {
    FrameReader reader(FrameReader::Start::frames, 100);
    std::string bytes;
    ByteWriter(bytes).u32(101);
    reader.push(bytes);

    const auto frame = reader.next();

    REQUIRE_FALSE(frame);
    CHECK(frame.error().code == Errc::limit_exceeded);
}

TEST_CASE("an empty frame is malformed") {
    FrameReader reader(FrameReader::Start::frames, 100);
    reader.push(std::string(4, '\0'));

    CHECK_FALSE(reader.next());
}

TEST_CASE("a type of the other direction or of nobody is malformed") {
    for (const int type : {0x00, 0x09, 0x80, 0x89, 0xff}) {
        CHECK_FALSE(decode_agent_message(Frame{static_cast<std::uint8_t>(type), ""}));
        CHECK_FALSE(decode_server_message(Frame{static_cast<std::uint8_t>(type), ""}));
    }
    CHECK_FALSE(decode_server_message(frame_of(encoded(AgentMessage{Heartbeat{}}))));
    CHECK_FALSE(decode_agent_message(frame_of(encoded(ServerMessage{Ack{SequenceNumber{1}}}))));
}

TEST_CASE("an enumerator or a bool out of its range is malformed") {
    Frame begin = frame_of(encoded(ServerMessage{BeginRound{}}));
    begin.payload[12] = 4;
    CHECK_FALSE(decode_server_message(begin));

    Frame waiting = frame_of(encoded(ServerMessage{Waiting{}}));
    waiting.payload[waiting.payload.size() - 13] = 2;
    CHECK_FALSE(decode_server_message(waiting));
}

TEST_CASE("a refusal for a reason that this version doesn't know can still be read") {
    Frame refused = frame_of(encoded(ServerMessage{Refused{RefusalReason::version, "why"}}));
    refused.payload[0] = '\x7f';

    const auto message = decode_server_message(refused);

    REQUIRE(message);
    CHECK(std::get<Refused>(*message) == Refused{RefusalReason::malformed, "why"});
}

TEST_CASE("a huge announced count allocates nothing and is malformed") {
    Frame waiting = frame_of(encoded(ServerMessage{Waiting{}}));
    waiting.payload[3] = '\x7f';

    CHECK_FALSE(decode_server_message(waiting));
}

TEST_CASE("the largest report that agents may make fits its frame and is read again") {
    RoundStopped report;
    WorkerFailure failure = example_failure();
    failure.host = std::string(limits::kNameBytesMax + 1, 'h');
    failure.message = std::string(limits::kTextBytesMax + 1, 'm');
    failure.traceback = failure.message;
    failure.stderr_tail = failure.message;
    report.later_failures.assign(
        static_cast<std::size_t>(limits::kFailuresPerReportMax) + 1, failure
    );
    report.stopped.assign(limits::kStoppedWorkersMax + 1, StoppedWorker{Rank{7}, true});

    const std::string bytes = encoded(AgentMessage{report});

    CHECK(bytes.size() <= limits::kAgentFrameBytesMax);
    const auto decoded = decode_agent_message(frame_of(bytes));
    REQUIRE(decoded);
    const auto& read = std::get<RoundStopped>(*decoded);
    CHECK(read.later_failures.size() == static_cast<std::size_t>(limits::kFailuresPerReportMax));
    CHECK(read.later_failures[0].message.size() == limits::kTextBytesMax);
    CHECK(read.later_failures[1].message.size() == limits::kListedTextBytesMax);
    CHECK(read.stopped.size() == limits::kStoppedWorkersMax);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun
