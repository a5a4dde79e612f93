/* A worker that tells when rounds begin and end, by its own clock, under any launcher that sets
 * RANK. round_stamp FOLDER It writes the time of its start into FOLDER/begun.LIFE.RANK (LIFE counts
 * from 0, for each rank) and that of a SIGTERM into FOLDER/term.RANK, which ends it. Rank 0 of the
 * first life waits for FOLDER/fail, writes FOLDER/failed and exits with 1; all others wait for
 * FOLDER/end and exit with 0. Times: CLOCK_MONOTONIC, nanoseconds. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char* folder;
static const char* rank;
static volatile sig_atomic_t terminated;
static long long terminated_at;

static long long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (long long)t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void on_term(int signal) {
    (void)signal;
    terminated_at = now();
    terminated = 1;
}

static void path_of(char* path, size_t size, const char* name) {
    snprintf(path, size, "%s/%s", folder, name);
}

static void write_stamp(const char* name, long long stamp) {
    char path[4096];
    char partial[4200];
    path_of(path, sizeof path, name);
    snprintf(partial, sizeof partial, "%s.part.%s", path, rank);
    FILE* file = fopen(partial, "w");
    if (file == NULL || fprintf(file, "%lld\n", stamp) < 0 || fclose(file) != 0 ||
        rename(partial, path) != 0) {
        perror(path);
        exit(2);
    }
}

static int is_there(const char* name) {
    char path[4096];
    path_of(path, sizeof path, name);
    return access(path, F_OK) == 0;
}

int main(int argc, char** argv) {
    const long long begun = now();
    rank = getenv("RANK");
    if (argc != 2 || rank == NULL) {
        fprintf(stderr, "usage: RANK=N round_stamp FOLDER\n");
        return 2;
    }
    folder = argv[1];
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_term;
    sigaction(SIGTERM, &action, NULL);

    int life = 0;
    char name[64];
    do {
        snprintf(name, sizeof name, "begun.%d.%s", life++, rank);
    } while (is_there(name));
    write_stamp(name, begun);

    const int fails = life == 1 && strcmp(rank, "0") == 0;
    const struct timespec pause = {0, 500000};
    while (!terminated && !is_there("end")) {
        if (fails && is_there("fail")) {
            write_stamp("failed", now());
            return 1;
        }
        nanosleep(&pause, NULL);
    }
    if (terminated) {
        snprintf(name, sizeof name, "term.%s", rank);
        write_stamp(name, terminated_at);
        return 143;
    }
    return 0;
}
