#include "client/peer/local/query.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/common/stale_socket.h"
#include "client/peer/content/described.h"
#include "client/peer/link/tls.h"
#include "client/peer/options.h"
#include "proto/base/limits.h"
#include "proto/base/list.h"

enum {
    ASKERS_MOST = 32, /* connections */
    KEPT_MOST = 64,   /* these, and those that have ended while their question is under way */
    LINE_BYTES = 8192,
    PAGE = 256,
    BACKLOG = 32
};

/* A connection. It is freed once its handle is closed and no question is under way. */
struct asker {
    uv_pipe_t pipe;
    struct gb_link of_query;
    struct gb_peer_query *query;
    char line[LINE_BYTES];
    size_t length;
    bool busy;   /* a question is under way */
    bool closed; /* its handle is */
    uv_write_t write;
    char *answer;
    char *name; /* for `where` */
    struct gb_pool pool;
    struct gb_peer_described
        described; /* for `where`: this machine's object; version 0: it has none */
};

struct gb_peer_query {
    const struct gb_peer_parts *parts;
    gb_peer_metrics_cb metrics;
    void *user;
    uv_pipe_t pipe;
    struct gb_link askers; /* struct asker, newer ones first */
    unsigned uses;         /* askers, also those that have ended, and its own handle */
};

struct question {
    struct gb_string method, name, prefix, after;
};

static void answer_next(struct asker *asker);

/* ---- the end of a connection ---- */

static void drop(struct gb_peer_query *query)
{
    if (--query->uses > 0)
        return;
    free(query);
}

static void free_asker(struct asker *asker)
{
    drop(asker->query);
    gb_pool_end(&asker->pool);
    free(asker->answer);
    free(asker->name);
    free(asker);
}

static void on_asker_closed(uv_handle_t *handle)
{
    struct asker *asker = handle->data;

    asker->closed = true;
    if (!asker->busy)
        free_asker(asker);
}

static void end(struct asker *asker)
{
    if (uv_is_closing((uv_handle_t *)&asker->pipe))
        return;
    gb_list_remove(&asker->of_query);
    uv_close((uv_handle_t *)&asker->pipe, on_asker_closed);
}

/* Whether the connection still awaits the answer. If not, the question has ended, and the asker may
   have been freed. */
static bool is_awaited(struct asker *asker)
{
    if (!uv_is_closing((uv_handle_t *)&asker->pipe))
        return true;
    asker->busy = false;
    if (asker->closed)
        free_asker(asker);
    return false;
}

/* ---- answers ---- */

static void on_written(uv_write_t *write, int status)
{
    struct asker *asker = write->data;

    if (!is_awaited(asker)) /* it was written, and yet is told when the connection is closed */
        return;
    asker->busy = false;
    if (status < 0)
        end(asker);
    else
        answer_next(asker);
}

/* Sends the answer, and ends the writer. The next question is read when the answer was sent. */
static void answer(struct asker *asker, struct gb_writer *writer)
{
    size_t length;

    gb_write_char(writer, '\n');
    free(asker->answer);
    asker->answer = gb_writer_take(writer, &length);
    gb_writer_end(writer);
    uv_buf_t buffer = uv_buf_init(asker->answer, (unsigned)length);
    asker->write.data = asker;
    if (!asker->answer ||
        uv_write(&asker->write, (uv_stream_t *)&asker->pipe, &buffer, 1, on_written) < 0) {
        asker->busy = false;
        end(asker);
    }
}

static void answer_error(struct asker *asker, int status, const char *message)
{
    struct gb_writer writer;

    gb_writer_init(&writer, 0);
    gb_write_pattern(&writer, "{'error':{'kind':%s,'message':%s}}", gb_error_kind(status), message);
    answer(asker, &writer);
}

/* ---- where ---- */

static void write_place(struct gb_writer *writer, const struct gb_peer_place *place)
{
    gb_write_pattern(writer, "{'node':%s", place->node);
    if (place->port)
        gb_write_pattern(writer, ",'host':%s,'port':%u", place->host, place->port);
    gb_write_pattern(writer,
                     ",'origin':%s,'version':%" PRIu64 ",'bytes':%" PRIu64 ",'since':%" PRIu64 "}",
                     place->origin, place->version, place->bytes, place->since_ms);
}

static void write_own(struct gb_writer *writer, const struct asker *asker)
{
    const struct gb_peer_parts *parts = asker->query->parts;
    const struct gb_peer_described *described = &asker->described;
    const struct gb_peer_copy *copy = gb_peer_copies_find(parts->copies, asker->name);
    struct gb_peer_place place = {.version = described->version,
                                  .bytes = described->bytes,
                                  .since_ms = described->created_ms};

    snprintf(place.node, sizeof(place.node), "%s", parts->tls->node);
    snprintf(place.origin, sizeof(place.origin), "%s",
             copy && copy->version == described->version ? copy->origin : parts->tls->node);
    write_place(writer, &place);
}

static void on_found(void *user, int status, const struct gb_peer_place *places, size_t count,
                     const struct gb_error *error)
{
    struct asker *asker = user;
    bool here = asker->described.version != 0;
    struct gb_writer writer;

    if (!is_awaited(asker))
        return;
    if (status < 0 && !here) {
        answer_error(asker, status, error->message);
        return;
    }
    gb_writer_init(&writer, 0);
    gb_write_pattern(&writer, "{'node':%s,'places':[", asker->query->parts->tls->node);
    if (here)
        write_own(&writer, asker);
    for (size_t i = 0; i < count; i++) {
        if (here || i)
            gb_write_char(&writer, ',');
        write_place(&writer, &places[i]);
    }
    gb_write_char(&writer, ']');
    if (status < 0 && status != GPUBUF_E_NOT_FOUND)
        gb_write_pattern(&writer, ",'why':%s", error->message);
    gb_write_char(&writer, '}');
    answer(asker, &writer);
}

static void on_stat(struct gpubuf_client *client, int status, const char *result, size_t length,
                    void *arg)
{
    struct asker *asker = arg;
    struct gb_error error;

    if (!is_awaited(asker))
        return;
    struct gb_peer_directory *directory = asker->query->parts->directory;
    if (status < 0 ||
        gb_peer_described_answer(result, length, &asker->pool, &asker->described, &error) < 0 ||
        !gb_peer_described_shared(&asker->described, asker->query->parts->copies))
        asker->described.version = 0;
    if (!directory->methods->find(directory, asker->name, on_found, asker))
        answer_error(asker, GPUBUF_E_NO_MEMORY, "the peer is out of memory");
}

/* Asks the daemon whether this machine has the name, then the directory for the others. */
static void where(struct asker *asker, const struct question *question)
{
    if (!question->name.length) {
        answer_error(asker, GPUBUF_E_INVALID, "name is missing");
        return;
    }
    asker->described = (struct gb_peer_described){0};
    free(asker->name);
    asker->name = strdup(question->name.text);
    int r = asker->name
                ? gb_peer_described_ask(asker->query->parts->client, asker->name, on_stat, asker)
                : GPUBUF_E_NO_MEMORY;
    if (r < 0)
        answer_error(asker, r, gpubuf_strerror(r));
}

/* ---- list, peers, metrics ---- */

static void list(struct asker *asker, const struct question *question)
{
    struct gb_peer_directory *directory = asker->query->parts->directory;
    struct gb_peer_listed listed[PAGE];
    struct gb_writer writer;
    struct gb_error error;

    int count =
        directory->methods->list(directory, question->prefix.text ? question->prefix.text : "",
                                 question->after.text, listed, PAGE, &error);
    if (count < 0) {
        answer_error(asker, count, error.message);
        return;
    }
    gb_writer_init(&writer, 0);
    gb_write_pattern(&writer, "{'node':%s,'names':[", asker->query->parts->tls->node);
    for (int i = 0; i < count; i++) {
        gb_write_text(&writer, i ? "," : "");
        gb_write_pattern(&writer,
                         "{'name':%s,'node':%s,'version':%" PRIu64 ",'bytes':%" PRIu64
                         ",'since':%" PRIu64 ",'copies':%zu}",
                         listed[i].name, listed[i].node, listed[i].version, listed[i].bytes,
                         listed[i].since_ms, listed[i].copies);
    }
    gb_write_char(&writer, ']');
    if (count == PAGE)
        gb_write_pattern(&writer, ",'after':%s", listed[count - 1].name);
    gb_write_char(&writer, '}');
    answer(asker, &writer);
}

struct telling {
    struct gb_writer *writer;
    const char *self;
    bool any;
};

static void write_machine(void *user, const char *node, const char *host, uint16_t port)
{
    struct telling *telling = user;

    if (strcmp(node, telling->self) == 0)
        return;
    gb_write_text(telling->writer, telling->any ? "," : "");
    gb_write_pattern(telling->writer, "{'node':%s,'host':%s,'port':%u}", node, host, port);
    telling->any = true;
}

static void peers(struct asker *asker)
{
    struct gb_peer_directory *directory = asker->query->parts->directory;
    struct gb_writer writer;
    struct gb_error error;
    struct telling telling = {&writer, asker->query->parts->tls->node, false};

    gb_writer_init(&writer, 0);
    gb_write_pattern(&writer, "{'node':%s,'peers':[", telling.self);
    int r = directory->methods->machines(directory, write_machine, &telling, &error);
    if (r < 0) {
        gb_writer_end(&writer);
        answer_error(asker, r, error.message);
        return;
    }
    GB_WRITE_LITERAL(&writer, "]}");
    answer(asker, &writer);
}

static void metrics(struct asker *asker)
{
    struct gb_writer writer;

    gb_writer_init(&writer, 0);
    GB_WRITE_LITERAL(&writer, "{\"families\":[");
    asker->query->metrics(&writer, asker->query->user);
    GB_WRITE_LITERAL(&writer, "]}");
    answer(asker, &writer);
}

/* ---- questions ---- */

static void ask(struct asker *asker, const char *text, size_t length)
{
    static const struct gb_field fields[] = {
        GB_FIELD(struct question, method, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, 16),
        GB_FIELD(struct question, name, GB_FIELD_STRING, 0, 0, GB_LIMIT(name_bytes)),
        GB_FIELD(struct question, prefix, GB_FIELD_STRING, 0, 0, GB_LIMIT(name_bytes)),
        GB_FIELD(struct question, after, GB_FIELD_STRING, 0, 0, GB_LIMIT(name_bytes)),
    };
    struct question question = {0};
    struct gb_error error;

    gb_pool_reset(&asker->pool);
    int r = gb_json_read_text(text, length, fields, 4, "question", &asker->pool, &question, &error);
    asker->busy = true;
    if (r < 0)
        answer_error(asker, r, error.message);
    else if (strcmp(question.method.text, "where") == 0)
        where(asker, &question);
    else if (strcmp(question.method.text, "list") == 0)
        list(asker, &question);
    else if (strcmp(question.method.text, "peers") == 0)
        peers(asker);
    else if (strcmp(question.method.text, "metrics") == 0)
        metrics(asker);
    else
        answer_error(asker, GPUBUF_E_METHOD, "there is no such question");
}

static void on_room(uv_handle_t *handle, size_t wanted, uv_buf_t *buffer)
{
    struct asker *asker = handle->data;

    *buffer = uv_buf_init(asker->line + asker->length, (unsigned)(LINE_BYTES - asker->length));
}

static void on_read(uv_stream_t *stream, ssize_t got, const uv_buf_t *buffer)
{
    struct asker *asker = stream->data;

    if (got < 0) {
        end(asker);
        return;
    }
    asker->length += (size_t)got;
    answer_next(asker);
}

/* Answers the next line, or reads on. */
static void answer_next(struct asker *asker)
{
    char *newline = memchr(asker->line, '\n', asker->length), line[LINE_BYTES];

    (void)uv_read_stop((uv_stream_t *)&asker->pipe);
    if (!newline && asker->length == LINE_BYTES) {
        end(asker); /* no question is that long */
    } else if (!newline) {
        (void)uv_read_start((uv_stream_t *)&asker->pipe, on_room, on_read);
    } else {
        size_t length = (size_t)(newline - asker->line);
        memcpy(line, asker->line, length);
        asker->length -= length + 1;
        memmove(asker->line, newline + 1, asker->length);
        ask(asker, line, length);
    }
}

/* ---- connections ---- */

static void on_refused(uv_handle_t *handle)
{
    free(handle);
}

/* Its questions would wait for what others wait for who have hung up. */
static void refuse(uv_stream_t *stream, struct asker *asker)
{
    (void)uv_accept(stream, (uv_stream_t *)&asker->pipe);
    uv_close((uv_handle_t *)&asker->pipe, on_refused);
}

/* If there are too many connections, ends the oldest. */
static void make_place(struct gb_peer_query *query)
{
    struct asker *oldest = NULL;
    unsigned count = 0;

    GB_LIST_EACH(&query->askers, struct asker, asker, of_query) {
        oldest = asker;
        count++;
    }
    if (count >= ASKERS_MOST)
        end(oldest);
}

static void on_connection(uv_stream_t *stream, int status)
{
    struct gb_peer_query *query = stream->data;
    struct asker *asker = status < 0 ? NULL : calloc(1, sizeof(*asker));

    if (!asker)
        return;
    (void)uv_pipe_init(query->parts->loop, &asker->pipe, 0); /* cannot fail */
    asker->pipe.data = asker;
    if (query->uses > KEPT_MOST) {
        refuse(stream, asker);
        return;
    }
    make_place(query);
    asker->query = query;
    query->uses++;
    gb_list_prepend(&query->askers, &asker->of_query);
    if (uv_accept(stream, (uv_stream_t *)&asker->pipe) < 0)
        end(asker);
    else
        answer_next(asker);
}

/* ---- listening ---- */

static int bind_socket(const char *path, int *out, struct gb_error *error)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    if (path[0] != '/' || strlen(path) >= sizeof(address.sun_path))
        return gb_fail(error, GPUBUF_E_INVALID,
                       "--query %s: expected an absolute path of at most %zu bytes", path,
                       sizeof(address.sun_path) - 1);
    strcpy(address.sun_path, path);
    gb_remove_stale_socket(&address);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    mode_t mask = umask(0117); /* 0660 */
    int r = fd < 0 ? -1 : bind(fd, (struct sockaddr *)&address, sizeof(address));
    umask(mask);
    if (r < 0) {
        r = gb_fail_errno(error, "cannot listen at --query %s", path);
        if (fd >= 0)
            close(fd);
        return r;
    }
    *out = fd;
    return 0;
}

static void on_closed(uv_handle_t *handle)
{
    drop(handle->data);
}

int gb_peer_query_new(struct gb_peer_query **result, const struct gb_peer_parts *parts,
                      gb_peer_metrics_cb families, void *user, struct gb_error *error)
{
    struct gb_peer_query *query = calloc(1, sizeof(*query));
    const char *path = parts->options->query;
    int fd = -1;

    if (!query)
        return gb_fail_memory(error);
    query->parts = parts;
    query->metrics = families;
    query->user = user;
    query->uses = 1;
    int r = bind_socket(path, &fd, error);
    if (r < 0) {
        free(query);
        return r;
    }
    (void)uv_pipe_init(parts->loop, &query->pipe, 0); /* cannot fail */
    query->pipe.data = query;
    r = uv_pipe_open(&query->pipe, fd);
    if (r < 0)
        close(fd);
    else
        r = uv_listen((uv_stream_t *)&query->pipe, BACKLOG, on_connection);
    if (r < 0) {
        (void)gb_fail(error, GPUBUF_E_SYSTEM, "cannot listen at --query %s: %s", path,
                      uv_strerror(r));
        gb_peer_query_close(query);
        return error->code;
    }
    *result = query;
    return 0;
}

void gb_peer_query_close(struct gb_peer_query *query)
{
    if (!query)
        return;
    GB_LIST_EACH(&query->askers, struct asker, asker, of_query)
        end(asker);
    (void)unlink(query->parts->options->query);
    uv_close((uv_handle_t *)&query->pipe, on_closed);
}
