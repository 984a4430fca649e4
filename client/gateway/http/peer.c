#include "client/gateway/http/peer.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/gateway/base/clock.h"
#include "client/gateway/http/api.h"

#define ANSWER_MS 2000
#define ANSWER_MOST (256u << 10)

static int connect_to(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd;

    if (strlen(path) >= sizeof(address.sun_path))
        return -1;
    strcpy(address.sun_path, path);
    /* Without blocking: a stopped peer with a full queue of connections counts as absent. */
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* Asks for the metrics, and reads the line of the answer. False: there is none. */
static bool exchange(int fd, struct gb_writer *line)
{
    static const char question[] = "{\"method\":\"metrics\"}\n";
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    int64_t until = gb_gateway_clock_ms() + gb_gateway_deadline_ms(ANSWER_MS), left;
    char buffer[16384];
    ssize_t got;

    if (send(fd, question, sizeof(question) - 1, MSG_NOSIGNAL) != (ssize_t)sizeof(question) - 1)
        return false;
    while ((left = until - gb_gateway_clock_ms()) > 0) {
        if (poll(&ready, 1, (int)left) <= 0)
            continue;
        got = recv(fd, buffer, sizeof(buffer), 0);
        if (got <= 0)
            return false;
        gb_write(line, buffer, (size_t)got);
        if (buffer[got - 1] == '\n')
            return !line->failed;
    }
    return false;
}

void gb_gateway_peer_metrics(const char *path, struct gb_writer *writer)
{
    int fd = connect_to(path);
    struct gb_writer line, written;
    struct gb_error error;

    gb_writer_init(&line, ANSWER_MOST);
    gb_writer_init(&written, 0);
    if (fd >= 0 && exchange(fd, &line) &&
        gb_gateway_api_families(line.data, line.length, &written, &error) == 0 && !written.failed)
        gb_write(writer, written.data, written.length);
    else
        GB_WRITE_LITERAL(writer, "# HELP gpubufd_peer_up 1 if gpubufd-peer answers.\n"
                                 "# TYPE gpubufd_peer_up gauge\ngpubufd_peer_up 0\n");
    gb_writer_end(&line);
    gb_writer_end(&written);
    if (fd >= 0)
        close(fd);
}
