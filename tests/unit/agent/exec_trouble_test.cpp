#include "agent/exec_trouble.h"

#include <doctest/doctest.h>

#include <cerrno>
#include <string>

using namespace ddprun;

TEST_SUITE("agent/exec_trouble") {
    TEST_CASE("a script whose interpreter is missing names it") {
        for (const std::string head : {"#!/no/sh\necho", "#! /no/sh -e\n", "#!\t/no/sh"}) {
            CAPTURE(head);
            CHECK(
                describe_exec_trouble("./x", head, ENOENT) ==
                "execute ./x: its interpreter /no/sh is missing"
            );
        }
    }

    TEST_CASE("a carriage return that became part of the interpreter's name is said") {
        const std::string text = describe_exec_trouble("./x", "#!/bin/sh\r\necho\r\n", ENOENT);

        CHECK(text.find("/bin/sh is missing, as its lines end with carriage returns") != text.npos);
        CHECK(text.find('\r') == text.npos);
    }

    TEST_CASE("a script that names no interpreter is told how to begin") {
        CHECK(
            describe_exec_trouble("./x", "echo hi\n", ENOEXEC).find("begin it with #!") !=
            std::string::npos
        );
    }

    TEST_CASE("a program for another system misses its loader") {
        CHECK(
            describe_exec_trouble(
                "./x",
                "\x7f"
                "ELF\x02",
                ENOENT
            )
                .find("dynamic loader") != std::string::npos
        );
    }

    TEST_CASE("where the system's words say it they are left alone") {
        CHECK(describe_exec_trouble("./x", "", ENOENT).empty());
        CHECK(describe_exec_trouble(
                  "./x",
                  "\x7f"
                  "ELF",
                  EACCES
        )
                  .empty());
        CHECK(describe_exec_trouble("./x", "#!/bin/sh\n", E2BIG).empty());
        CHECK(describe_exec_trouble("./x", "#!\n", ENOENT).empty());
        CHECK(exec_trouble_of("/no/such/file", ENOENT).empty());
    }
}
