#include "proto/base/place.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define OWN_BYTES 32 /* of "/tmp/gpubufd-UID" */

/* NULL: not set, or empty. */
static const char *variable(const char *name)
{
    const char *value = getenv(name);

    return value && *value ? value : NULL;
}

static bool join(char *buffer, size_t size, const char *directory)
{
    int length = snprintf(buffer, size, "%s/gpubufd.sock", directory);

    return length > 0 && (size_t)length < size;
}

/* $XDG_RUNTIME_DIR, or where that is not set a directory of the user's own below /tmp; or NULL. */
static const char *own_directory(char buffer[OWN_BYTES], bool make)
{
    const char *runtime = variable("XDG_RUNTIME_DIR");
    struct stat found;

    if (runtime)
        return runtime;
    snprintf(buffer, OWN_BYTES, "/tmp/gpubufd-%u", (unsigned)geteuid());
    if (make)
        (void)mkdir(buffer, 0700); /* what is there instead is looked at */
    return lstat(buffer, &found) == 0 && S_ISDIR(found.st_mode) && found.st_uid == geteuid() &&
                   (found.st_mode & 077) == 0
               ? buffer
               : NULL;
}

const char *gb_place_of_client(const char *given, char *buffer, size_t size, const char **why)
{
    const char *said = variable("GPUBUFD_SOCKET"), *claim = variable(GB_CLAIM_VARIABLE), *own,
               *unused;
    char directory[OWN_BYTES];

    if (!why)
        why = &unused;
    *why = "$GPUBUFD_SOCKET";
    if (given || said)
        return given ? given : said;
    *why = "in $" GB_CLAIM_VARIABLE;
    if (claim && join(buffer, size, claim) && access(buffer, F_OK) == 0)
        return buffer;
    *why = "the usual place";
    own = own_directory(directory, false);
    if (access(GB_SYSTEM_SOCKET, F_OK) == 0 || !own || !join(buffer, size, own))
        return GB_SYSTEM_SOCKET;
    *why = own == directory ? "the user's own, as " GB_SYSTEM_SOCKET " does not exist"
                            : "in $XDG_RUNTIME_DIR, as " GB_SYSTEM_SOCKET " does not exist";
    return buffer;
}

char *gb_place_of_daemon(bool *nowhere)
{
    const char *said = variable("GPUBUFD_SOCKET"), *claim = variable(GB_CLAIM_VARIABLE),
               *directory = NULL;
    char own[OWN_BYTES], *path;

    if (claim && access(claim, W_OK) == 0)
        directory = claim;
    else if (access(GB_SYSTEM_DIRECTORY, W_OK) == 0)
        directory = GB_SYSTEM_DIRECTORY;
    else if (!said)
        directory = own_directory(own, true);
    *nowhere = !said && !directory;
    if (*nowhere ||
        asprintf(&path, "%s%s", said ? said : directory, said ? "" : "/gpubufd.sock") < 0)
        return NULL;
    return path;
}
