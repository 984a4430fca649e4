#include "client/gpubufctl/answers/cluster.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/gpubufctl/answers/table.h"
#include "client/gpubufctl/output/json_print.h"
#include "proto/wire/json.h"

static const char *socket_path(void)
{
    const char *told = getenv("GPUBUFD_PEER_SOCKET");

    return told && *told ? told : GB_CLUSTER_SOCKET;
}

static int connect_to(const char *path)
{
    const struct timeval patience = {.tv_sec = GB_CLI_CALL_MS / 1000};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (strlen(path) >= sizeof(address.sun_path)) {
        errno = ENAMETOOLONG;
    } else {
        strcpy(address.sun_path, path);
        if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 &&
            setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) == 0)
            return fd;
    }
    gb_cli_fail(GB_STATUS_NO_DAEMON, "cannot ask gpubufd-peer at %s: %s; %s", path, strerror(errno),
                errno == EACCES
                    ? "are you in the group of its socket, gpubufd?"
                    : "does it run, with --query? $GPUBUFD_PEER_SOCKET names its socket");
}

/* Sends the text and a newline, and reads a line. False: errno says why, 0: the peer hung up. */
static bool exchange(int fd, const char *text, struct gb_writer *line)
{
    char buffer[65536];

    if (send(fd, text, strlen(text), MSG_NOSIGNAL) != (ssize_t)strlen(text) ||
        send(fd, "\n", 1, MSG_NOSIGNAL) != 1)
        return false;
    for (bool whole = false; !whole;) {
        ssize_t got = recv(fd, buffer, sizeof(buffer), 0);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            errno = got == 0 ? 0 : errno;
            return false;
        }
        gb_write(line, buffer, (size_t)got);
        whole = buffer[got - 1] == '\n';
    }
    return true;
}

cJSON *gb_cluster_ask(const cJSON *question)
{
    struct gb_writer line;
    int fd = connect_to(socket_path());
    char *text = gb_cjson_text(question);

    gb_writer_init(&line, 0);
    if (!exchange(fd, text, &line))
        gb_cli_fail(GB_STATUS_FAILED, "gpubufd-peer does not answer: %s",
                    errno ? strerror(errno) : "it has hung up");
    cJSON *answer = gb_cjson_parse(gb_writer_text(&line));
    close(fd);
    free(text);
    gb_writer_end(&line);
    const cJSON *error = gb_cjson_member(answer, "error");
    if (error)
        gb_cli_fail(GB_STATUS_FAILED, "%s", gb_cjson_string_of(error, "message", "no reason"));
    if (!cJSON_IsObject(answer))
        gb_cli_fail(GB_STATUS_FAILED, "the answer of gpubufd-peer makes no sense");
    return answer;
}

/* ---- ls --cluster ---- */

static void print_names(const struct gb_cli *cli, const cJSON *names)
{
    static const struct gb_table_column columns[] = {
        {"name", "name", .style = GB_STYLE_BOLD, .flexible = true},
        {"node", "node", .cell = GB_CELL_TEXT},
        {"size", "bytes", .cell = GB_CELL_SIZE},
        {"version", "version", .cell = GB_CELL_NUMBER},
        {"copies", "copies", .cell = GB_CELL_COUNT},
        {"age", "since", .cell = GB_CELL_SINCE},
    };

    gb_table_print(cli, GB_TABLE(columns), names);
}

/* Appends the names of every page to `all`. */
static void read_pages(const char *prefix, cJSON *all)
{
    cJSON *question = gb_cjson("{'method':'list','prefix':%s}", prefix ? prefix : "");

    for (bool more = true; more;) {
        cJSON *answer = gb_cluster_ask(question), *names = gb_cjson_member(answer, "names");
        more = gb_cjson_member(answer, "after") != NULL;
        cJSON_DeleteItemFromObject(question, "after");
        if (more)
            cJSON_AddStringToObject(question, "after", gb_cjson_string_of(answer, "after", ""));
        while (names && names->child)
            cJSON_AddItemToArray(all, cJSON_DetachItemViaPointer(names, names->child));
        cJSON_Delete(answer);
    }
    cJSON_Delete(question);
}

void gb_cluster_ls(struct gb_cli *cli, const char *prefix, bool names)
{
    cJSON *document = cJSON_CreateObject(), *all = cJSON_AddArrayToObject(document, "names");

    read_pages(prefix, all);
    if (cli->json) {
        gb_cjson_print(document, true);
    } else if (names) {
        GB_CJSON_EACH(name, all)
            puts(gb_cjson_string_of(name, "name", ""));
    } else if (all->child) {
        print_names(cli, all);
    }
    cJSON_Delete(document);
}
