#include "proto/place.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

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

const char *gb_place_of_client(const char *given, char *buffer, size_t size, const char **why)
{
    const char *said = variable("GPUBUFD_SOCKET"), *claim = variable(GB_CLAIM_VARIABLE),
               *runtime = variable("XDG_RUNTIME_DIR"), *unused;

    if (!why)
        why = &unused;
    *why = "$GPUBUFD_SOCKET";
    if (given || said)
        return given ? given : said;
    *why = "in $" GB_CLAIM_VARIABLE;
    if (claim && join(buffer, size, claim) && access(buffer, F_OK) == 0)
        return buffer;
    *why = "the usual place";
    if (access(GB_SYSTEM_SOCKET, F_OK) == 0 || !runtime || !join(buffer, size, runtime))
        return GB_SYSTEM_SOCKET;
    *why = "in $XDG_RUNTIME_DIR, as " GB_SYSTEM_SOCKET " does not exist";
    return buffer;
}

char *gb_place_of_daemon(bool *nowhere)
{
    const char *said = variable("GPUBUFD_SOCKET"), *claim = variable(GB_CLAIM_VARIABLE),
               *directory = variable("XDG_RUNTIME_DIR");
    char *path;

    if (claim && access(claim, W_OK) == 0)
        directory = claim;
    else if (access(GB_SYSTEM_DIRECTORY, W_OK) == 0)
        directory = GB_SYSTEM_DIRECTORY;
    *nowhere = !said && !directory;
    if (*nowhere ||
        asprintf(&path, "%s%s", said ? said : directory, said ? "" : "/gpubufd.sock") < 0)
        return NULL;
    return path;
}
