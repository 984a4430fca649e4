/*
 * Any bytes as questions of this machine's programs to the peer: each line has one answer, which is
 * a line of JSON, whatever the daemon and the directory say and whoever hangs up meanwhile; and
 * nothing is left of a connection that has ended.
 *
 * Each line of the input is a step; its first character says which, the rest is TEXT:
 *
 *     c       a program connects; the further steps are about the newest connection
 *     o       they are about the next older one
 *     q p     it sends TEXT, with a newline (q) or without
 *     g G     its answer has gone, or could not be sent
 *     h       it hangs up
 *     s S     the daemon's answer to `stat` is TEXT, or a refusal
 *     f n F   the directory has found a place of that name; none; or fails with that sentence
 *     d D     the directory, or the daemon, is away from now on, or there again
 *     t       a turn of the loop: what was closed is
 *     x       the peer stops: no connection stays
 */
#include "client/peer/local/local.h"
#include "client/peer/local/query.c"
#include "demand.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CONNECTIONS_MOST = 64, NAMES = 300 };

/* A connection as libuv and the program at its other end see it. */
struct connection {
    struct asker *asker; /* which may be no more once it is closed */
    bool closed;
    bool over;  /* it may be closed: it hung up, or took no answer */
    char *sent; /* and not read yet */
    size_t length;
    size_t lines, answers;
    uv_read_cb read; /* NULL: nobody reads */
    uv_alloc_cb room;
    uv_write_t *write; /* under way, or NULL */
    uv_write_cb written;
    uv_close_cb close; /* it is being closed, or is */
    gpubuf_call_cb stat;
    gb_peer_found_cb found;
};

static struct connection connections[CONNECTIONS_MOST];
static unsigned count, current;
static bool daemon_away, directory_away;
static bool any_may_go; /* for a newer connection, or since the peer stops */

/* The newest: an asker may lie where one lay that is no more. */
static struct connection *connection_for(const struct asker *asker)
{
    for (unsigned i = count; i > 0; i--)
        if (connections[i - 1].asker == asker)
            return &connections[i - 1];
    __builtin_trap();
}

static struct connection *connection_of(const void *stream)
{
    return connection_for(((const uv_handle_t *)stream)->data);
}

/* ---- in place of libuv ---- */

int __wrap_uv_pipe_init(uv_loop_t *loop, uv_pipe_t *pipe, int ipc);
int __wrap_uv_accept(uv_stream_t *server, uv_stream_t *stream);
int __wrap_uv_read_start(uv_stream_t *stream, uv_alloc_cb room, uv_read_cb read);
int __wrap_uv_read_stop(uv_stream_t *stream);
int __wrap_uv_write(uv_write_t *write, uv_stream_t *stream, const uv_buf_t buffers[],
                    unsigned buffer_count, uv_write_cb written);
int __wrap_uv_is_closing(const uv_handle_t *handle);
void __wrap_uv_close(uv_handle_t *handle, uv_close_cb close);

int __wrap_uv_pipe_init(uv_loop_t *loop, uv_pipe_t *pipe, int ipc)
{
    return 0;
}

int __wrap_uv_accept(uv_stream_t *server, uv_stream_t *stream)
{
    connections[count++] = (struct connection){.asker = stream->data};
    current = count - 1;
    return 0;
}

int __wrap_uv_read_start(uv_stream_t *stream, uv_alloc_cb room, uv_read_cb read)
{
    struct connection *connection = connection_of(stream);

    DEMAND(!connection->close && !connection->write);
    connection->room = room;
    connection->read = read;
    return 0;
}

int __wrap_uv_read_stop(uv_stream_t *stream)
{
    connection_of(stream)->read = NULL;
    return 0;
}

static void check_answer(const uv_buf_t *answer)
{
    static const char *const begins[] = {
        "{\"error\":{\"kind\":\"", "{\"node\":\"self\",\"places\":[",
        "{\"node\":\"self\",\"names\":[", "{\"node\":\"self\",\"peers\":[", "{\"families\":["};
    struct gb_pool pool = {0};
    struct gb_json value;
    struct gb_error error;
    bool known = false;

    DEMAND(answer->len > 1 &&
           memchr(answer->base, '\n', answer->len) == answer->base + answer->len - 1);
    DEMAND(gb_json_check(answer->base, answer->len - 1, &pool, &value, &error) == 0);
    for (size_t i = 0; i < sizeof(begins) / sizeof(begins[0]); i++)
        known = known || strncmp(answer->base, begins[i], strlen(begins[i])) == 0;
    DEMAND(known);
    gb_pool_end(&pool);
}

int __wrap_uv_write(uv_write_t *write, uv_stream_t *stream, const uv_buf_t buffers[],
                    unsigned buffer_count, uv_write_cb written)
{
    struct connection *connection = connection_of(stream);

    DEMAND(!connection->close && !connection->write && buffer_count == 1);
    check_answer(&buffers[0]);
    connection->write = write;
    connection->written = written;
    DEMAND(++connection->answers <= connection->lines);
    return 0;
}

int __wrap_uv_is_closing(const uv_handle_t *handle)
{
    return connection_of(handle)->close != NULL;
}

void __wrap_uv_close(uv_handle_t *handle, uv_close_cb close)
{
    struct connection *connection = connection_of(handle);

    DEMAND(!connection->close);
    DEMAND(connection->over || any_may_go || connection->asker->length == LINE_BYTES);
    connection->close = close;
    connection->read = NULL;
}

static void deliver(struct connection *connection)
{
    uv_buf_t buffer;

    while (connection->read && connection->length > 0) {
        connection->room((uv_handle_t *)&connection->asker->pipe, 65536, &buffer);
        DEMAND(buffer.len > 0);
        size_t length = connection->length < buffer.len ? connection->length : buffer.len;
        memcpy(buffer.base, connection->sent, length);
        connection->length -= length;
        memmove(connection->sent, connection->sent + length, connection->length);
        connection->read((uv_stream_t *)&connection->asker->pipe, (ssize_t)length, &buffer);
    }
}

static void send_bytes(struct connection *connection, const char *text, size_t length)
{
    connection->sent = realloc(connection->sent, connection->length + length + 1);
    DEMAND(connection->sent);
    memcpy(connection->sent + connection->length, text, length);
    connection->length += length;
    for (size_t i = 0; i < length; i++)
        connection->lines += text[i] == '\n';
    deliver(connection);
}

static void written(struct connection *connection, int status)
{
    uv_write_t *write = connection->write;

    connection->write = NULL;
    connection->over = connection->over || status < 0;
    if (write)
        connection->written(write, status);
    deliver(connection);
}

static void turn(void)
{
    for (unsigned i = 0; i < count; i++) {
        struct connection *connection = &connections[i];
        if (!connection->close || connection->closed)
            continue;
        written(connection, UV_ECANCELED);
        connection->closed = true;
        connection->close((uv_handle_t *)&connection->asker->pipe);
    }
}

/* ---- in place of the daemon and the directory ---- */

int __wrap_gpubuf_call_async(struct gpubuf_client *client, const char *method, const char *params,
                             gpubuf_call_cb callback, void *arg, uint64_t *request);
int __wrap_gpubuf_call_async(struct gpubuf_client *client, const char *method, const char *params,
                             gpubuf_call_cb callback, void *arg, uint64_t *request)
{
    struct connection *connection = connection_for(arg);
    struct gb_pool pool = {0};
    struct gb_json value;
    struct gb_error error;

    DEMAND(gb_json_check(params, strlen(params), &pool, &value, &error) == 0);
    gb_pool_end(&pool);
    DEMAND(!connection->stat && !connection->found);
    if (daemon_away)
        return GPUBUF_E_CLOSED;
    connection->stat = callback;
    return 0;
}

static bool fuzz_find(struct gb_peer_directory *directory, const char *name,
                      gb_peer_found_cb callback, void *user)
{
    struct connection *connection = connection_for(user);

    DEMAND(strlen(name) > 0 && !connection->stat && !connection->found);
    if (!directory_away)
        connection->found = callback;
    return !directory_away;
}

static int fuzz_list(struct gb_peer_directory *directory, const char *prefix, const char *after,
                     struct gb_peer_listed *listed, size_t most, struct gb_error *error)
{
    static char names[NAMES][8];
    size_t found = 0;

    if (directory_away)
        return gb_fail(error, GPUBUF_E_UNAVAILABLE, "the directory is away");
    for (unsigned i = 0; i < NAMES && found < most; i++) {
        snprintf(names[i], sizeof(names[i]), "n/%03u", i);
        if (strncmp(names[i], prefix, strlen(prefix)) == 0 &&
            (!after || strcmp(names[i], after) > 0))
            listed[found++] = (struct gb_peer_listed){names[i], "other", i, i, i, i, i % 3};
    }
    return (int)found;
}

static int fuzz_machines(struct gb_peer_directory *directory, gb_peer_machine_cb each, void *user,
                         struct gb_error *error)
{
    if (directory_away)
        return gb_fail(error, GPUBUF_E_UNAVAILABLE, "the directory is away");
    each(user, "self", "here", 1);
    each(user, "other", "there", 2);
    return 0;
}

static void fuzz_metrics(struct gb_writer *writer, void *user)
{
    GB_WRITE_LITERAL(writer, "{\"name\":\"gpubufd_peer_up\"}");
}

static void stat_answered(struct connection *connection, int status, const char *text)
{
    gpubuf_call_cb callback = connection->stat;

    connection->stat = NULL;
    if (callback)
        callback(NULL, status, status < 0 ? NULL : text, status < 0 ? 0 : strlen(text),
                 connection->asker);
}

/* The strings of a place came as JSON, so they are UTF-8. */
static void find_answered(struct connection *connection, int status, const char *text)
{
    gb_peer_found_cb callback = connection->found;
    struct gb_peer_place place = {.port = 1, .version = 2, .bytes = 3, .since_ms = 4};
    struct gb_error error;

    connection->found = NULL;
    if (!callback)
        return;
    (void)gb_fail(&error, status, "%.*s", (int)sizeof(place.node) - 1, text);
    strcpy(place.node, error.message);
    memcpy(place.host, place.node, sizeof(place.node));
    memcpy(place.origin, place.node, sizeof(place.node));
    if (status < 0)
        (void)gb_fail(&error, status, "%s", text);
    callback(connection->asker, status, status < 0 ? NULL : &place, status == 0,
             status < 0 ? &error : NULL);
}

/* ---- a line ---- */

static void connect_one(struct gb_peer_query *query)
{
    any_may_go = true;
    on_connection((uv_stream_t *)&query->pipe, 0);
    any_may_go = false;
}

static void stop(struct gb_peer_query *query)
{
    any_may_go = true;
    GB_LIST_EACH(&query->askers, struct asker, asker, of_query)
        end(asker);
    any_may_go = false;
}

/* One that has asked is not read, so that nobody sees that it has hung up. */
static void hang_up(struct connection *connection)
{
    if (!connection->read)
        return;
    connection->over = true;
    connection->read((uv_stream_t *)&connection->asker->pipe, UV_EOF, NULL);
}

static void step(struct gb_peer_query *query, char kind, const char *text, size_t length)
{
    struct connection *connection = &connections[current];
    bool open = !connection->close;

    if (kind == 'c' && count < CONNECTIONS_MOST)
        connect_one(query);
    else if (kind == 'o')
        current = current ? current - 1 : count - 1;
    else if ((kind == 'q' || kind == 'p') && open)
        send_bytes(connection, text, length + (kind == 'q'));
    else if (kind == 'h' && open)
        hang_up(connection);
    else if ((kind == 'g' || kind == 'G') && open)
        written(connection, kind == 'g' ? 0 : UV_EPIPE);
    else if (kind == 's' || kind == 'S')
        stat_answered(connection, kind == 's' ? 0 : GPUBUF_E_NOT_FOUND, text);
    else if (kind == 'f')
        find_answered(connection, 0, text);
    else if (kind == 'n' || kind == 'F')
        find_answered(connection, kind == 'n' ? GPUBUF_E_NOT_FOUND : GPUBUF_E_UNAVAILABLE, text);
    else if (kind == 'd')
        directory_away = !directory_away;
    else if (kind == 'D')
        daemon_away = !daemon_away;
    else if (kind == 't')
        turn();
    else if (kind == 'x')
        stop(query);
}

/* All that waits for an answer gets one: then each line of a connection that stands has had its. */
static void finish(struct gb_peer_query *query)
{
    for (unsigned i = 0; i < count; i++) {
        struct connection *connection = &connections[i];
        while (connection->write || connection->stat || connection->found) {
            stat_answered(connection, GPUBUF_E_CLOSED, "");
            find_answered(connection, GPUBUF_E_UNAVAILABLE, "it is closed");
            if (!connection->close)
                written(connection, 0);
            else
                turn();
        }
        DEMAND(connection->close || connection->answers == connection->lines);
    }
    stop(query);
    turn();
    for (unsigned i = 0; i < count; i++)
        free(connections[i].sent);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct gb_peer_directory_methods methods = {
        .find = fuzz_find, .list = fuzz_list, .machines = fuzz_machines};
    struct gb_peer_directory directory = {.methods = &methods};
    static struct gb_peer_copies copies;
    const struct gb_peer_tls tls = {.node = "self"};
    const struct gb_peer_parts parts = {.directory = &directory, .copies = &copies, .tls = &tls};
    struct gb_peer_query query = {
        .uses = 1, /* this function's */
        .parts = &parts,
        .metrics = fuzz_metrics,
    };
    char *text = malloc(size + 2);

    DEMAND(text && gb_peer_copies_add(&copies, "x", 7, "other", 3));
    memcpy(text, data, size);
    memcpy(text + size, "\n", 2);
    count = current = 0;
    daemon_away = directory_away = false;
    query.pipe.data = &query;
    connect_one(&query);
    for (char *line = text, *newline; line < text + size; line = newline + 1) {
        newline = memchr(line, '\n', (size_t)(text + size + 1 - line));
        if (newline > line && *line == 'q')
            step(&query, *line, line + 1, (size_t)(newline - line - 1));
        else if (newline > line) {
            *newline = '\0'; /* what is sent without one ends before it */
            step(&query, *line, line + 1, (size_t)(newline - line - 1));
        }
    }
    finish(&query);
    DEMAND(query.uses == 1);
    gb_peer_copies_end(&copies);
    free(text);
    return 0;
}
