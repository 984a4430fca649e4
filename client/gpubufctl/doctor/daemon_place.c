#include "client/gpubufctl/doctor/daemon_place.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/base/place.h"

void gb_daemon_place_find(struct gb_daemon_place *place, const struct gb_cli *cli)
{
    *place = (struct gb_daemon_place){0};
    place->path =
        gb_place_of_client(cli->socket, place->buffer, sizeof(place->buffer), &place->why);
    if (cli->socket)
        place->why = "--socket";
}

/* Whether a file below /proc begins so. */
static bool begins(pid_t pid, const char *file, const char *words)
{
    char path[64], text[64] = "";

    (void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
    FILE *stream = fopen(path, "re");
    if (!stream)
        return false;
    size_t length = fread(text, 1, sizeof(text) - 1, stream);
    (void)fclose(stream);
    return length >= strlen(words) && strncmp(text, words, strlen(words)) == 0;
}

int gb_daemon_place_ask(struct gb_daemon_place *place)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t length = sizeof(place->peer);
    int error = 0;

    if (strlen(place->path) >= sizeof(address.sun_path))
        return ENAMETOOLONG;
    memcpy(address.sun_path, place->path, strlen(place->path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return errno;
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &place->peer, &length) < 0)
        error = errno;
    close(fd);
    place->is_gpubufd = begins(place->peer.pid, "comm", "gpubufd");
    place->is_supervisor = begins(place->peer.pid, "cmdline", "gpubufd: supervisor");
    return error;
}
