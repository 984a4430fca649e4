#include "client/gateway/http/http.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/common/stale_socket.h"
#include "client/gateway/base/clock.h"
#include "client/gateway/http/server.h"

#define BACKLOG 128
#define RESERVE 256        /* connections above the limit, while others are being closed for them */
#define MEMORY_BYTES 16384 /* of a connection, its request's head included */
#define SILENT_MS 30000    /* without a byte in or out while a request is served */
#define HEADERS 64
#define TARGET_BYTES 4096
#define TOKEN_LEAST 16

/* ---- who may ask ---- */

static bool is_secret(struct gb_gateway_http *http, struct gb_gateway_http_text given,
                      const char *secret)
{
    bool same;

    pthread_mutex_lock(&http->secret_lock);
    same = gb_gateway_http_secret_same(given, secret, strlen(secret));
    pthread_mutex_unlock(&http->secret_lock);
    return same;
}

static bool authorized(struct gb_gateway_http *http, struct MHD_Connection *peer)
{
    struct gb_gateway_http_text given = gb_gateway_header(peer, "Authorization");

    if (!http->options->token_file)
        return true;
    if (given.length > 7 && memcmp(given.text, "Bearer ", 7) == 0)
        return is_secret(http, (struct gb_gateway_http_text){given.text + 7, given.length - 7},
                         http->token);
    return is_secret(http, gb_gateway_http_cookie(gb_gateway_header(peer, "Cookie"), "gpubufd"),
                     http->cookie);
}

struct headers {
    size_t bytes; /* of their lines */
    unsigned count, hosts, origins, authorizations, cookies, lengths;
    bool bad;
};

/* A header that is used here must occur once only: a proxy in between may have read the other
   one. */
static enum MHD_Result count_header(void *arg, enum MHD_ValueKind kind, const char *key,
                                    size_t key_length, const char *value, size_t value_length)
{
    struct headers *headers = arg;
    struct gb_gateway_http_text name = {key, key_length};

    headers->count++;
    headers->bytes += key_length + strlen(": \r\n") + value_length;
    headers->hosts += gb_gateway_http_is_nocase(name, "Host");
    headers->origins += gb_gateway_http_is_nocase(name, "Origin");
    headers->authorizations += gb_gateway_http_is_nocase(name, "Authorization");
    headers->cookies += gb_gateway_http_is_nocase(name, "Cookie");
    headers->lengths += gb_gateway_http_is_nocase(name, "Content-Length");
    for (size_t i = 0; i < value_length; i++)
        headers->bad |= ((unsigned char)value[i] < ' ' && value[i] != '\t') || value[i] == 0x7f;
    for (size_t i = 0; i < key_length; i++)
        headers->bad |= (unsigned char)key[i] <= ' ' || key[i] == 0x7f;
    return MHD_YES;
}

/* Whether the head had more than what libmicrohttpd tells of it: it cuts a value at a NUL and at a
   line that is folded, where another server reads on. More than one space before a value counts as
   well. */
static bool is_cut(struct MHD_Connection *peer, const struct gb_gateway_request *request,
                   const struct headers *headers)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(peer, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    size_t first = strlen(request->method) + strlen(request->target) + strlen("  HTTP/1.1\r\n");

    return !info || info->header_size > first + headers->bytes + strlen("\r\n");
}

/* 0; or the status for a request that is refused since its head can be read in more than one
   way. */
static unsigned check_head(struct MHD_Connection *peer, struct gb_gateway_request *request)
{
    struct gb_gateway_http_text length = gb_gateway_header(peer, "Content-Length");
    struct headers headers = {0};
    uint64_t bytes = 0;

    MHD_get_connection_values_n(peer, MHD_HEADER_KIND, count_header, &headers);
    if (headers.count > HEADERS)
        return 431;
    if (gb_gateway_header(peer, "Transfer-Encoding").text)
        return 501;
    if (headers.bad || headers.hosts != 1 || headers.origins > 1 || headers.authorizations > 1 ||
        headers.cookies > 1 || headers.lengths > 1)
        return 400;
    for (size_t i = 0; i < length.length; i++) {
        if (length.text[i] < '0' || length.text[i] > '9' || i > 14)
            return 400;
        bytes = bytes * 10 + (uint64_t)(length.text[i] - '0');
    }
    if (bytes > GB_GATEWAY_BODY_BYTES)
        return 413;
    if (!request->target || request->target[0] != '/')
        return 400;
    for (const char *c = request->target; *c; c++)
        if (*c <= ' ' || *c >= 0x7f)
            return 400;
    if (strlen(request->target) > TARGET_BYTES)
        return 414;
    return is_cut(peer, request, &headers) ? 400 : 0;
}

static enum MHD_Result take_token(struct gb_gateway_door *door, struct MHD_Connection *peer,
                                  const struct gb_gateway_request *request)
{
    struct gb_gateway_http *http = door->http;
    struct gb_gateway_http_text form = {request->body, request->body_length};
    char token[GB_GATEWAY_TOKEN_BYTES], cookie[sizeof(http->cookie)];
    long length = gb_gateway_http_parameter(form, "token", token, sizeof(token));
    bool same;

    if (length < 0 || !http->options->token_file)
        return gb_gateway_respond_form(door, peer, 401);
    pthread_mutex_lock(&http->secret_lock); /* locked once, so that token and cookie belong
                                               together */
    same = gb_gateway_http_secret_same((struct gb_gateway_http_text){token, (size_t)length},
                                       http->token, strlen(http->token));
    memcpy(cookie, http->cookie, sizeof(cookie));
    pthread_mutex_unlock(&http->secret_lock);
    return same ? gb_gateway_respond_signed_in(door, peer, cookie)
                : gb_gateway_respond_form(door, peer, 401);
}

/* The files of the sign-in page are no secret. */
static bool is_dress(const struct gb_gateway_request *request)
{
    return gb_gateway_http_is(request->path, "/page.css") ||
           gb_gateway_http_is(request->path, "/icon.svg");
}

/* Metrics and health are answered even if all else is refused: they tell operators what is
   wrong. */
static bool is_vital(const struct gb_gateway_request *request)
{
    return gb_gateway_http_is(request->path, "/metrics") ||
           gb_gateway_http_is(request->path, "/healthz");
}

static enum MHD_Result answer(struct gb_gateway_door *door, struct MHD_Connection *peer,
                              struct gb_gateway_request *request, const char *method)
{
    struct gb_gateway_http *http = door->http;
    struct gb_gateway_http_text host = gb_gateway_header(peer, "Host"),
                                origin = gb_gateway_header(peer, "Origin");

    if (!gb_gateway_connection_serve(&door->connections, request->connection) && !is_vital(request))
        return gb_gateway_respond_text(door, peer, 503, "too many connections\n");
    if (!gb_gateway_http_host_known(host, door->port, (const char *const *)http->options->names))
        return gb_gateway_respond_text(door, peer, 421,
                                       "this server is not known by that Host; see --http-name\n");
    if (origin.text && !gb_gateway_http_origin_same(origin, host))
        return gb_gateway_respond_text(door, peer, 403,
                                       "requests of other sites' pages are refused\n");
    if (gb_gateway_http_is(request->path, "/healthz"))
        return atomic_load(&http->feed->up)
                   ? gb_gateway_respond_text(door, peer, 200, "ok\n")
                   : gb_gateway_respond_text(door, peer, 503, "the daemon does not answer\n");
    if (strcmp(method, "POST") == 0 && gb_gateway_http_is(request->path, "/login"))
        return take_token(door, peer, request);
    request->era = atomic_load(&http->era);
    if (!authorized(http, peer) && !is_dress(request))
        return gb_gateway_respond_form(door, peer, 401);
    return gb_gateway_respond(door, peer, request, method);
}

/* ---- libmicrohttpd's side ---- */

/* The first line has arrived. libmicrohttpd will decode it, so its target is kept as it came. */
static void *on_target(void *arg, const char *target, struct MHD_Connection *peer)
{
    struct gb_gateway_request *request = calloc(1, sizeof(*request));
    const char *mark;
    size_t length;

    if (!request)
        return NULL;
    request->since_ms = gb_gateway_clock_ms();
    request->target = strdup(target);
    if (!request->target)
        return request;
    length = strlen(request->target);
    mark = memchr(request->target, '?', length);
    request->path.text = request->target;
    request->path.length = mark ? (size_t)(mark - request->target) : length;
    if (mark)
        request->query = (struct gb_gateway_http_text){mark + 1, strlen(mark + 1)};
    return request;
}

/* Called once with the head, then with each piece of a body, then when the request is complete. */
static enum MHD_Result on_request(void *arg, struct MHD_Connection *peer, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *length, void **context)
{
    struct gb_gateway_door *door = arg;
    struct gb_gateway_request *request = *context;
    unsigned status;

    if (!request || !(request->connection = gb_gateway_connection_of(peer)))
        return MHD_NO;
    if (!request->begun) {
        request->begun = true;
        request->connection->status = 0;
        snprintf(request->method, sizeof(request->method), "%s", method);
        status = check_head(peer, request);
        return status ? gb_gateway_respond_text(door, peer, status, "the request cannot be read\n")
                      : MHD_YES;
    }
    if (*length > 0) {
        if (*length > sizeof(request->body) - request->body_length)
            return MHD_NO;
        memcpy(request->body + request->body_length, data, *length);
        request->body_length += *length;
        *length = 0;
        return MHD_YES;
    }
    return answer(door, peer, request, method);
}

/* A part of a request, made fit for the log. */
static void shown(struct gb_gateway_http_text text, char *out, size_t size)
{
    size_t length = text.length < size ? text.length : size - 1;

    for (size_t i = 0; i < length; i++) {
        char c = text.text[i];
        out[i] = c > ' ' && c < 0x7f ? c : '?';
    }
    out[length] = '\0';
}

/* The query is left out: it may have a token in it, by mistake. */
static void say_request(struct MHD_Connection *peer, const struct gb_gateway_request *request)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(peer, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *address = info ? info->client_addr : NULL;
    char from[INET6_ADDRSTRLEN] = "unix", method[sizeof(request->method)], path[513];

    if (address && address->sa_family == AF_INET)
        inet_ntop(AF_INET, &((const struct sockaddr_in *)address)->sin_addr, from, sizeof(from));
    else if (address && address->sa_family == AF_INET6)
        inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)address)->sin6_addr, from, sizeof(from));
    shown((struct gb_gateway_http_text){request->method, strlen(request->method)}, method,
          sizeof(method));
    shown(request->path, path, sizeof(path));
    gb_log(GB_LOG_INFO, "request", GB_LOG_TEXT("from", from), GB_LOG_TEXT("method", method),
           GB_LOG_TEXT("path", path), GB_LOG_NUMBER("status", request->connection->status),
           GB_LOG_NUMBER("ms", gb_gateway_clock_ms() - request->since_ms));
}

static void on_completed(void *arg, struct MHD_Connection *peer, void **context,
                         enum MHD_RequestTerminationCode why)
{
    struct gb_gateway_door *door = arg;
    struct gb_gateway_request *request = *context;
    struct gb_gateway_connection *connection = gb_gateway_connection_of(peer);

    if (door->http->options->access_log && request && request->connection)
        say_request(peer, request);
    if (connection)
        gb_gateway_connection_idle(&door->connections, connection);
    if (request)
        free(request->target);
    free(request);
    *context = NULL;
}

static void on_connection(void *arg, struct MHD_Connection *peer, void **context,
                          enum MHD_ConnectionNotificationCode what)
{
    struct gb_gateway_door *door = arg;
    const union MHD_ConnectionInfo *fd, *address;

    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (*context)
            gb_gateway_connection_end(&door->connections, *context);
        *context = NULL;
        return;
    }
    fd = MHD_get_connection_info(peer, MHD_CONNECTION_INFO_CONNECTION_FD);
    address = MHD_get_connection_info(peer, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    if (fd)
        *context = gb_gateway_connection_begin(&door->connections, fd->connect_fd,
                                               address ? address->client_addr : NULL);
}

/* ---- where we listen ---- */

static int parse_tcp(const char *text, struct sockaddr_storage *address, socklen_t *length,
                     bool *loopback, struct gb_error *error)
{
    struct sockaddr_in *four = (struct sockaddr_in *)address;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)address;
    const char *colon = strrchr(text, ':');
    size_t host_length = colon ? (size_t)(colon - text) : 0;
    char host[64], *end = NULL;
    unsigned long port = colon ? strtoul(colon + 1, &end, 10) : 0;

    if (host_length > 1 && text[0] == '[' && text[host_length - 1] == ']') {
        text++;
        host_length -= 2;
    }
    if (!colon || host_length == 0 || host_length >= sizeof(host) || colon[1] < '0' ||
        colon[1] > '9' || *end || port > 65535)
        return gb_fail(error, GPUBUF_E_INVALID,
                       "--http %s is no address and port such as 127.0.0.1:9464, nor unix:/PATH",
                       text);
    memcpy(host, text, host_length);
    host[host_length] = '\0';
    if (strcmp(host, "localhost") == 0)
        strcpy(host, "127.0.0.1");
    if (inet_pton(AF_INET, host, &four->sin_addr) == 1) {
        four->sin_family = AF_INET;
        four->sin_port = htons((uint16_t)port);
        *length = sizeof(*four);
        *loopback = ntohl(four->sin_addr.s_addr) >> 24 == 127;
        return 0;
    }
    if (inet_pton(AF_INET6, host, &six->sin6_addr) == 1) {
        six->sin6_family = AF_INET6;
        six->sin6_port = htons((uint16_t)port);
        *length = sizeof(*six);
        *loopback = IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
        return 0;
    }
    return gb_fail(error, GPUBUF_E_INVALID, "--http %s: \"%s\" is no IP address", text, host);
}

static int bind_unix(struct gb_gateway_door *door, const char *path, struct gb_error *error)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    mode_t mask;
    int r;

    if (path[0] != '/' || strlen(path) >= sizeof(address.sun_path))
        return gb_fail(error, GPUBUF_E_INVALID,
                       "--http unix:%s: expected an absolute path of at most %zu bytes", path,
                       sizeof(address.sun_path) - 1);
    strcpy(address.sun_path, path);
    gb_remove_stale_socket(&address);
    door->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    mask = umask(0117); /* 0660 */
    r = door->fd < 0 ? -1 : bind(door->fd, (struct sockaddr *)&address, sizeof(address));
    umask(mask);
    if (r == 0 && !(door->path = strdup(path)))
        return gb_fail_memory(error);
    if (r < 0 || listen(door->fd, BACKLOG) < 0)
        return gb_fail_errno(error, "cannot listen at --http unix:%s", path);
    door->port = 80; /* a Host header without a port means this one */
    return 0;
}

static int bind_tcp(struct gb_gateway_door *door, const char *text, struct gb_error *error)
{
    struct sockaddr_storage address = {0};
    socklen_t length = 0;
    bool loopback = false;
    int on = 1, r = parse_tcp(text, &address, &length, &loopback, error);

    if (r < 0)
        return r;
    if (!loopback && !door->http->options->token_file)
        return gb_fail(error, GPUBUF_E_INVALID,
                       "--http %s can be reached from other machines: give --http-token-file too",
                       text);
    door->fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (door->fd >= 0)
        setsockopt(door->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (door->fd < 0 || bind(door->fd, (struct sockaddr *)&address, length) < 0 ||
        listen(door->fd, BACKLOG) < 0 ||
        getsockname(door->fd, (struct sockaddr *)&address, &length) < 0)
        return gb_fail_errno(error, "cannot listen at --http %s", text);
    door->port = ntohs(address.ss_family == AF_INET ? ((struct sockaddr_in *)&address)->sin_port
                                                    : ((struct sockaddr_in6 *)&address)->sin6_port);
    return 0;
}

static void say_where(const struct gb_gateway_door *door, const char *text)
{
    const char *token = door->http->options->token_file ? "asked for" : "none";
    char url[128];

    if (door->path) {
        gb_log(GB_LOG_INFO, "serving http", GB_LOG_TEXT("path", door->path));
        return;
    }
    snprintf(url, sizeof(url), "http://%.*s:%u/", (int)(strrchr(text, ':') - text), text,
             door->port);
    gb_log(GB_LOG_INFO, "serving http", GB_LOG_TEXT("url", url), GB_LOG_TEXT("token", token));
}

static void on_complaint(void *arg, const char *format, va_list arguments)
{
    (void)arguments; /* mostly about peers that hung up */
}

static int open_door(struct gb_gateway_door *door, const char *text, struct gb_error *error)
{
    unsigned most = door->http->options->connections;
    int r = strncmp(text, "unix:", 5) == 0 ? bind_unix(door, text + 5, error)
                                           : bind_tcp(door, text, error);

    if (r < 0)
        return r;
    if (gb_gateway_connections_start(&door->connections, most) < 0)
        return gb_fail(error, GPUBUF_E_SYSTEM, "cannot start a thread");
    door->daemon = MHD_start_daemon(
        MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION | MHD_USE_POLL |
            MHD_USE_ITC | MHD_USE_ERROR_LOG,
        0, NULL, NULL, on_request, door, MHD_OPTION_EXTERNAL_LOGGER, on_complaint, NULL,
        MHD_OPTION_LISTEN_SOCKET, door->fd, MHD_OPTION_CONNECTION_LIMIT, most + RESERVE,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)(gb_gateway_deadline_ms(SILENT_MS) / 1000),
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)MEMORY_BYTES, MHD_OPTION_THREAD_STACK_SIZE,
        (size_t)256 << 10, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_URI_LOG_CALLBACK, on_target,
        door, MHD_OPTION_NOTIFY_COMPLETED, on_completed, door, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, door, MHD_OPTION_END);
    if (!door->daemon)
        return gb_fail(error, GPUBUF_E_SYSTEM, "cannot serve --http %s", text);
    say_where(door, text);
    return 0;
}

/* ---- starting and ending ---- */

static int check_token(const char *path, char *text, struct gb_error *error)
{
    text[strcspn(text, "\r\n")] = '\0';
    if (strlen(text) < TOKEN_LEAST)
        return gb_fail(error, GPUBUF_E_INVALID,
                       "%s: expected a token of at least %d characters in the first line", path,
                       TOKEN_LEAST);
    for (const char *c = text; *c; c++)
        if (*c <= ' ' || *c > '~')
            return gb_fail(error, GPUBUF_E_INVALID,
                           "%s: the token may only have letters, digits and signs", path);
    return 0;
}

static int read_token(const char *path, char *text, struct gb_error *error)
{
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = -1;

    if (fd >= 0 && fstat(fd, &status) == 0)
        n = read(fd, text, GB_GATEWAY_TOKEN_BYTES - 1);
    if (fd < 0 || n < 0) {
        (void)gb_fail_errno(error, "cannot read the token file %s", path);
        if (fd >= 0)
            close(fd);
        return error->code;
    }
    close(fd);
    if (status.st_mode & 077)
        return gb_fail(error, GPUBUF_E_INVALID,
                       "%s can be read by others than its owner; chmod 600 it", path);
    text[n] = '\0';
    return check_token(path, text, error);
}

static int draw_cookie(char *cookie, struct gb_error *error)
{
    unsigned char random[16];

    if (getrandom(random, sizeof(random), 0) != sizeof(random))
        return gb_fail_errno(error, "cannot draw a random cookie");
    for (size_t i = 0; i < sizeof(random); i++)
        snprintf(cookie + 2 * i, 3, "%02x", random[i]);
    return 0;
}

/* Reads the token and draws a cookie. A new token ends cookies and live events of the old one. */
static int take_secrets(struct gb_gateway_http *http, bool *changed, struct gb_error *error)
{
    char token[GB_GATEWAY_TOKEN_BYTES] = "", cookie[sizeof(http->cookie)];

    if (http->options->token_file && read_token(http->options->token_file, token, error) < 0)
        return error->code;
    if (draw_cookie(cookie, error) < 0)
        return error->code;
    pthread_mutex_lock(&http->secret_lock);
    *changed = strcmp(token, http->token) != 0;
    if (*changed || !*http->cookie) {
        memcpy(http->token, token, sizeof(token));
        memcpy(http->cookie, cookie, sizeof(cookie));
        atomic_fetch_add(&http->era, 1);
    }
    pthread_mutex_unlock(&http->secret_lock);
    return 0;
}

void gb_gateway_http_reload(struct gb_gateway_http *http)
{
    struct gb_error error;
    bool changed;

    if (!http || !http->options->token_file)
        gb_log(GB_LOG_INFO, "nothing to reload");
    else if (take_secrets(http, &changed, &error) < 0)
        gb_log(GB_LOG_ERROR, "token not reloaded", GB_LOG_TEXT("why", error.message));
    else
        gb_log(GB_LOG_INFO, "token reloaded", GB_LOG_TEXT("changed", changed ? "yes" : "no"));
}

int gb_gateway_http_new(const struct gb_gateway_options *options, struct gb_gateway_ring *ring,
                        struct gb_gateway_feed *feed, struct gb_gateway_publish *publish,
                        struct gb_gateway_http **out, struct gb_error *error)
{
    struct gb_gateway_http *http = calloc(1, sizeof(*http));
    bool changed;
    int r;

    if (!http)
        return gb_fail_memory(error);
    http->options = options;
    http->ring = ring;
    http->feed = feed;
    http->publish = publish;
    gb_gateway_ask_init(&http->ask, options->socket);
    pthread_mutex_init(&http->secret_lock, NULL);
    pthread_mutex_init(&http->metrics_lock, NULL);
    gb_writer_init(&http->metrics, 0);
    r = take_secrets(http, &changed, error);
    for (unsigned i = 0; options->http[i] && r == 0; i++) {
        struct gb_gateway_door *door = &http->doors[http->door_count++];

        door->http = http;
        door->fd = -1;
        r = open_door(door, options->http[i], error);
    }
    if (r < 0) {
        gb_gateway_http_free(http);
        return r;
    }
    *out = http;
    return 0;
}

static void close_door(struct gb_gateway_door *door)
{
    if (door->daemon)
        MHD_stop_daemon(door->daemon); /* closes the socket, too */
    else if (door->fd >= 0)
        close(door->fd);
    if (door->path)
        unlink(door->path);
    free(door->path);
    gb_gateway_connections_end(&door->connections);
}

void gb_gateway_http_free(struct gb_gateway_http *http)
{
    if (!http)
        return;
    for (unsigned i = 0; i < http->door_count; i++)
        close_door(&http->doors[i]);
    gb_gateway_ask_end(&http->ask);
    pthread_mutex_destroy(&http->secret_lock);
    pthread_mutex_destroy(&http->metrics_lock);
    gb_writer_end(&http->metrics);
    free(http);
}
