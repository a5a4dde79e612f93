/* A worker that writes: COUNT lines of BYTES bytes each on stdout, in blocks of 64 KiB; with RATE,
 * that many lines a second instead, each by a write of its own.
 *   lines COUNT BYTES [RATE] */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 65536, NANOSECONDS = 1000000000 };

static int write_all(const char* data, size_t size) {
    while (size > 0) {
        const ssize_t written = write(STDOUT_FILENO, data, size);
        if (written < 0) {
            return 0;
        }
        data += written;
        size -= (size_t)written;
    }
    return 1;
}

int main(int argc, char** argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: lines COUNT BYTES [RATE]\n");
        return 2;
    }
    long count = atol(argv[1]);
    const size_t bytes = (size_t)atol(argv[2]);
    const long rate = argc > 3 ? atol(argv[3]) : 0;
    if (bytes == 0 || bytes > BLOCK) {
        fprintf(stderr, "lines: BYTES must be from 1 to %d\n", BLOCK);
        return 2;
    }
    static char block[BLOCK];
    const size_t in_block = rate > 0 ? 1 : BLOCK / bytes;
    memset(block, 'x', sizeof block);
    for (size_t line = 1; line <= in_block; ++line) {
        block[line * bytes - 1] = '\n';
    }
    struct timespec due;
    clock_gettime(CLOCK_MONOTONIC, &due);
    while (count > 0) {
        const size_t lines = (size_t)count < in_block ? (size_t)count : in_block;
        if (!write_all(block, lines * bytes)) {
            return 1;
        }
        count -= (long)lines;
        if (rate > 0) {
            due.tv_nsec += NANOSECONDS / rate;
            due.tv_sec += due.tv_nsec / NANOSECONDS;
            due.tv_nsec %= NANOSECONDS;
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
        }
    }
    return 0;
}
