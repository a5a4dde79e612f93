/* A worker that times a restart by its own clock, the same under any launcher that sets RANK and
 * WORLD_SIZE.
 *   stamp FOLDER
 * First life: every rank writes FOLDER/ready.RANK; rank 0 waits until all have, writes the time
 * into FOLDER/failed and exits with 1, the others wait to be stopped. Second life, which is told by
 * that file (torchrun's restart count stays 0 on the node that didn't fail): every rank writes the
 * time at which it began into FOLDER/back.RANK and exits with 0. Times: CLOCK_MONOTONIC,
 * nanoseconds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static long long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (long long)t.tv_sec * 1000000000LL + t.tv_nsec;
}

static const char* variable(const char* name) {
    const char* value = getenv(name);
    if (value == NULL) {
        fprintf(stderr, "stamp: no %s in the environment\n", name);
        exit(2);
    }
    return value;
}

static void write_stamp(const char* folder, const char* name, long long stamp) {
    char path[4096];
    char partial[4200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    snprintf(partial, sizeof partial, "%s.part", path);
    FILE* file = fopen(partial, "w");
    if (file == NULL || fprintf(file, "%lld\n", stamp) < 0 || fclose(file) != 0 ||
        rename(partial, path) != 0) {
        perror(path);
        exit(2);
    }
}

static void wait_for_all(const char* folder, int world_size) {
    const struct timespec pause_time = {0, 1000000};
    for (int rank = 0; rank < world_size;) {
        char path[4096];
        snprintf(path, sizeof path, "%s/ready.%d", folder, rank);
        if (access(path, F_OK) == 0) {
            ++rank;
        } else {
            nanosleep(&pause_time, NULL);
        }
    }
}

int main(int argc, char** argv) {
    const long long start = now();
    if (argc != 2) {
        fprintf(stderr, "usage: stamp FOLDER\n");
        return 2;
    }
    const char* rank = variable("RANK");
    char name[64];
    char failed[4096];
    snprintf(failed, sizeof failed, "%s/failed", argv[1]);
    if (access(failed, F_OK) == 0) {
        snprintf(name, sizeof name, "back.%s", rank);
        write_stamp(argv[1], name, start);
        return 0;
    }
    snprintf(name, sizeof name, "ready.%s", rank);
    write_stamp(argv[1], name, start);
    if (strcmp(rank, "0") != 0) {
        for (;;) {
            pause();
        }
    }
    wait_for_all(argv[1], atoi(variable("WORLD_SIZE")));
    write_stamp(argv[1], "failed", now());
    return 1;
}
