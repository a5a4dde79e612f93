/* A worker whose output is awkward, for tests of the logs. Each leaves the checksum (FNV-1a) of
 * what it wrote, without line ends, in FOLDER/sum.RANK. output_worker FOLDER pieces LINES lines in
 * writes of 3 bytes output_worker FOLDER lines LINES BYTES   lines of BYTES bytes, all of one
 * letter */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint64_t checksum = 14695981039346656037ULL;

static void add(const char* bytes, size_t size) {
    for (size_t i = 0; i < size; ++i) {
        if (bytes[i] != '\n') {
            checksum = (checksum ^ (unsigned char)bytes[i]) * 1099511628211ULL;
        }
    }
}

static int write_all(const char* bytes, size_t size, size_t piece) {
    add(bytes, size);
    while (size > 0) {
        const ssize_t written = write(STDOUT_FILENO, bytes, size < piece ? size : piece);
        if (written < 0) {
            return 0;
        }
        bytes += written;
        size -= (size_t)written;
    }
    return 1;
}

int main(int argc, char** argv) {
    const char* rank = getenv("RANK");
    if (argc < 4 || rank == NULL) {
        return 2;
    }
    const int lines = atoi(argv[3]);
    const int in_pieces = strcmp(argv[2], "pieces") == 0;
    const size_t size = argc > 4 ? (size_t)atol(argv[4]) : 128;
    char* line = malloc(size + 1);
    if (line == NULL) {
        return 3;
    }
    for (int i = 0; i < lines; ++i) {
        size_t length = size;
        if (in_pieces) {
            length = (size_t)snprintf(line, size, "rank %s line %d %0*d", rank, i, i % 60, i);
        } else {
            memset(line, 'a' + atoi(rank) % 26, size);
        }
        line[length] = '\n';
        if (!write_all(line, length + 1, in_pieces ? 3 : length + 1)) {
            free(line);
            return 1;
        }
    }
    free(line);
    char path[4096];
    snprintf(path, sizeof path, "%s/sum.%s", argv[1], rank);
    FILE* file = fopen(path, "w");
    if (file == NULL || fprintf(file, "%016llx", (unsigned long long)checksum) < 0) {
        return 4;
    }
    return fclose(file) == 0 ? 0 : 4;
}
