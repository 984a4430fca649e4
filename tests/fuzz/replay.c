/*
 * main() for a fuzz target where there is no libFuzzer: runs it over every file named, and over
 * every file of each directory named. Prints how many it ran; none is a failure, since a replay of
 * nothing proves nothing.
 */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t runs;

/* The input lies in a block of exactly its size, so that ASan sees a read of one byte too many. */
static int replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return -1;
    }
    int result = -1;
    uint8_t *data = NULL;
    struct stat status;
    if (fstat(fileno(file), &status) < 0)
        goto out;
    size_t size = (size_t)status.st_size;
    data = malloc(size ? size : 1);
    if (!data || fread(data, 1, size, file) != size)
        goto out;
    LLVMFuzzerTestOneInput(data, size);
    runs++;
    result = 0;
out:
    if (result < 0)
        fprintf(stderr, "%s: cannot be read\n", path);
    free(data);
    fclose(file);
    return result;
}

static int replay_directory(const char *path)
{
    DIR *directory = opendir(path);
    if (!directory) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return -1;
    }
    int result = 0;
    struct dirent *entry;
    while ((entry = readdir(directory))) {
        char name[PATH_MAX];
        if (entry->d_name[0] == '.')
            continue;
        int length = snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
        if (length < 0 || (size_t)length >= sizeof(name) || replay_file(name) < 0)
            result = -1;
    }
    closedir(directory);
    return result;
}

int main(int argc, char **argv)
{
    int result = 0;
    for (int i = 1; i < argc; i++) {
        struct stat status;
        if (stat(argv[i], &status) == 0 && S_ISDIR(status.st_mode))
            result |= replay_directory(argv[i]);
        else
            result |= replay_file(argv[i]);
    }
    printf("replayed %zu inputs\n", runs);
    return result || runs == 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
