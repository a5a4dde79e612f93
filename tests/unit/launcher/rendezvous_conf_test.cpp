#include "launcher/rendezvous_conf.h"

#include <doctest/doctest.h>

#include <string>
#include <string_view>

namespace ddprun::launcher {
namespace {

using std::chrono::milliseconds;

RendezvousConf conf_of(std::string_view text) {
    RendezvousConf conf;
    const auto added = add_rendezvous_conf(conf, text);
    REQUIRE_MESSAGE(added.has_value(), (added ? "" : added.error().context));
    return conf;
}

std::string error_of(std::string_view text) {
    RendezvousConf conf;
    const auto added = add_rendezvous_conf(conf, text);
    REQUIRE_FALSE(added.has_value());
    return added.error().context;
}

TEST_SUITE_BEGIN("launcher/rendezvous_conf");

TEST_CASE("each key sets its own field") {
    const RendezvousConf conf = conf_of(
        "join_timeout=5,last_call_timeout=0.5,heartbeat_interval=0.25,heartbeat_misses=4,"
        "lost_timeout=7,membership_rounds_max=9,is_host=yes"
    );

    CHECK(conf.join_timeout == milliseconds{5'000});
    CHECK(conf.last_call_timeout == milliseconds{500});
    CHECK(conf.heartbeat_interval == milliseconds{250});
    CHECK(conf.heartbeat_misses == 4);
    CHECK(conf.lost_timeout == milliseconds{7'000});
    CHECK(conf.membership_rounds_max == 9);
    CHECK(conf.is_host == true);
    CHECK(conf.notes.empty());
}

TEST_CASE("blanks around keys and values don't count, an empty text is fine") {
    CHECK(conf_of(" join_timeout = 5 , is_host = F ").is_host == false);
    CHECK_FALSE(conf_of("").join_timeout.has_value());
}

TEST_CASE("torchrun's names stand for ours") {
    const RendezvousConf conf =
        conf_of("timeout=8,keep_alive_interval=2,keep_alive_max_attempt=5,rank=3");

    CHECK(conf.join_timeout == milliseconds{8'000});
    CHECK(conf.heartbeat_interval == milliseconds{2'000});
    CHECK(conf.heartbeat_misses == 5);
    CHECK(conf.node_rank == GroupRank{3});
}

TEST_CASE("torchrun's keys without a meaning here are noted, one sentence each") {
    const RendezvousConf conf = conf_of("close_timeout=30,read_timeout=60,store_type=tcp");

    CHECK(conf.notes.size() == 3);
    CHECK(conf.notes[0] == "rdzv_conf close_timeout has no effect in ddprun");
}

TEST_CASE("a later pair wins over an earlier one") {
    RendezvousConf conf = conf_of("join_timeout=5,is_host=1");
    REQUIRE(add_rendezvous_conf(conf, "join_timeout=6").has_value());

    CHECK(conf.join_timeout == milliseconds{6'000});
    CHECK(conf.is_host == true);
}

TEST_CASE("an unknown key is refused by name") {
    CHECK(error_of("jion_timeout=5").starts_with("rdzv_conf jion_timeout: unknown key"));
}

TEST_CASE("a pair without key or value is refused") {
    CHECK(
        error_of("join_timeout") ==
        "rdzv_conf \"join_timeout\": expected KEY=VALUE, separated by commas"
    );
    CHECK(error_of("=5").starts_with("rdzv_conf \"=5\""));
    CHECK(error_of("join_timeout=").starts_with("rdzv_conf \"join_timeout=\""));
    CHECK(error_of("is_host=1,,").starts_with("rdzv_conf \"\""));
}

TEST_CASE("a value that doesn't fit its key is refused with what fits") {
    CHECK(
        error_of("join_timeout=soon") ==
        "rdzv_conf join_timeout=soon: expected seconds from 0 to 31536000"
    );
    CHECK(error_of("join_timeout=-1").starts_with("rdzv_conf join_timeout=-1: expected seconds"));
    CHECK(error_of("join_timeout=nan").starts_with("rdzv_conf join_timeout=nan: expected seconds"));
    CHECK(error_of("join_timeout=0") == "rdzv_conf join_timeout=0: must be more than 0 seconds");
    CHECK(error_of("heartbeat_misses=0")
              .starts_with("rdzv_conf heartbeat_misses=0: expected a number"));
    CHECK(error_of("is_host=maybe") == "rdzv_conf is_host=maybe: expected true or false");
    CHECK(error_of("store_type=file").starts_with("rdzv_conf store_type=file: only tcp exists"));
}

TEST_SUITE_END();

}  // namespace
}  // namespace ddprun::launcher
