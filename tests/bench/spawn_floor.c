/* The floor below every launcher: posix_spawn of COUNT copies of PROGRAM, then wait for all.
 *   spawn_floor COUNT PROGRAM
 * Status 0 if all ended with 0. */
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

extern char** environ;

int main(int argc, char** argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: spawn_floor COUNT PROGRAM\n");
        return 2;
    }
    const int count = atoi(argv[1]);
    char* const arguments[] = {argv[2], NULL};
    for (int i = 0; i < count; ++i) {
        pid_t pid = 0;
        if (posix_spawn(&pid, argv[2], NULL, NULL, arguments, environ) != 0) {
            perror(argv[2]);
            return 1;
        }
    }
    int failed = 0;
    for (int i = 0; i < count; ++i) {
        int status = 0;
        if (wait(&status) < 0 || status != 0) {
            failed = 1;
        }
    }
    return failed;
}
