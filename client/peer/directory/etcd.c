#include "client/peer/directory/etcd.h"

#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/list.h"

/* The largest answer, and the largest line of a stream. */
#define REPLY_MOST (32u << 20)

struct gb_peer_etcd {
    uv_loop_t *loop;
    CURLM *multi;
    uv_timer_t timer;
    struct curl_slist *headers;
    struct gb_peer_etcd_settings settings;
    size_t current;       /* endpoint */
    struct gb_link calls; /* struct gb_peer_etcd_call: that have begun, newest first */
};

struct gb_peer_etcd_call {
    struct gb_peer_etcd *etcd;
    struct gb_link of_etcd;
    CURL *easy;
    char url_path[64];
    char *body;
    size_t body_length;
    gb_peer_etcd_cb callback; /* NULL: cancelled */
    void *user;
    bool stream, running; /* running: its callback */
    uint64_t begun_ns;
    size_t endpoint, tries;
    struct gb_writer received;
    char why[CURL_ERROR_SIZE]; /* libcurl's own sentence, such as the reason of TLS */
};

/* A socket of libcurl's, polled; freed when its handle has closed. */
struct polled {
    uv_poll_t poll;
    struct gb_peer_etcd *etcd;
    curl_socket_t socket;
};

static void drive(struct gb_peer_etcd *etcd);

/* ---- libcurl's sockets and timer on the loop ---- */

static void on_polled_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct polled *polled = poll->data;
    struct gb_peer_etcd *etcd = polled->etcd;
    int flags = status < 0 ? CURL_CSELECT_ERR : 0;
    int still;

    if (events & UV_READABLE)
        flags |= CURL_CSELECT_IN;
    if (events & UV_WRITABLE)
        flags |= CURL_CSELECT_OUT;
    curl_multi_socket_action(etcd->multi, polled->socket, flags, &still);
    drive(etcd);
}

static struct polled *poll_begin(struct gb_peer_etcd *etcd, curl_socket_t socket)
{
    struct polled *polled = calloc(1, sizeof(*polled));

    if (!polled)
        return NULL;
    polled->etcd = etcd;
    polled->socket = socket;
    polled->poll.data = polled;
    if (uv_poll_init_socket(etcd->loop, &polled->poll, socket) < 0) {
        free(polled);
        return NULL;
    }
    curl_multi_assign(etcd->multi, socket, polled);
    return polled;
}

static int on_socket(CURL *easy, curl_socket_t socket, int what, void *user, void *of_socket)
{
    struct gb_peer_etcd *etcd = user;
    struct polled *polled = of_socket;
    int events = 0;

    if (what == CURL_POLL_REMOVE) {
        if (polled) {
            curl_multi_assign(etcd->multi, socket, NULL);
            uv_close((uv_handle_t *)&polled->poll, on_polled_closed);
        }
        return 0;
    }
    if (!polled)
        polled = poll_begin(etcd, socket);
    if (!polled)
        return -1;
    if (what & CURL_POLL_IN)
        events |= UV_READABLE;
    if (what & CURL_POLL_OUT)
        events |= UV_WRITABLE;
    return uv_poll_start(&polled->poll, events, on_poll) < 0 ? -1 : 0;
}

static void on_timer(uv_timer_t *timer)
{
    struct gb_peer_etcd *etcd = timer->data;
    int still;

    curl_multi_socket_action(etcd->multi, CURL_SOCKET_TIMEOUT, 0, &still);
    drive(etcd);
}

static int on_timeout(CURLM *multi, long timeout_ms, void *user)
{
    struct gb_peer_etcd *etcd = user;

    if (timeout_ms < 0)
        uv_timer_stop(&etcd->timer);
    else
        uv_timer_start(&etcd->timer, on_timer, (uint64_t)timeout_ms, 0);
    return 0;
}

/* ---- one request ---- */

static size_t on_received(char *data, size_t size, size_t count, void *user)
{
    struct gb_peer_etcd_call *call = user;

    gb_write(&call->received, data, count);
    return call->received.failed ? 0 : count;
}

static void call_free(struct gb_peer_etcd_call *call)
{
    struct gb_peer_etcd *etcd = call->etcd;

    gb_list_remove(&call->of_etcd);
    if (call->easy) {
        curl_multi_remove_handle(etcd->multi, call->easy);
        curl_easy_cleanup(call->easy);
    }
    gb_writer_end(&call->received);
    free(call->body);
    free(call);
}

/* Sets the options that are the same for every endpoint. */
static bool easy_prepare(struct gb_peer_etcd_call *call)
{
    const struct gb_peer_etcd *etcd = call->etcd;
    CURL *easy = call->easy;
    CURLcode r = curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");

    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_PROXY, ""); /* also if the environment names a proxy */
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)etcd->settings.timeout_ms);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, call->stream ? 0L : (long)etcd->settings.timeout_ms);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPIDLE, 5L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPINTVL, 2L);
    curl_easy_setopt(easy, CURLOPT_POST, 1L);
    curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)call->body_length);
    curl_easy_setopt(easy, CURLOPT_POSTFIELDS, call->body);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, etcd->headers);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_received);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, call);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, call);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, call->why);
    curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    if (r == CURLE_OK && etcd->settings.ca)
        r = curl_easy_setopt(easy, CURLOPT_CAINFO, etcd->settings.ca);
    if (r == CURLE_OK && etcd->settings.certificate)
        r = curl_easy_setopt(easy, CURLOPT_SSLCERT, etcd->settings.certificate);
    if (r == CURLE_OK && etcd->settings.key)
        r = curl_easy_setopt(easy, CURLOPT_SSLKEY, etcd->settings.key);
    return r == CURLE_OK;
}

/* Sends the request to call->endpoint. The easy handle must not be in the multi handle. */
static bool call_send(struct gb_peer_etcd_call *call)
{
    const char *endpoint = call->etcd->settings.endpoints[call->endpoint];
    size_t length = strlen(endpoint);
    char url[512];

    call->tries++;
    gb_writer_reset(&call->received);
    if (length > 0 && endpoint[length - 1] == '/')
        length--;
    if ((size_t)snprintf(url, sizeof(url), "%.*s/v3/%s", (int)length, endpoint, call->url_path) >=
        sizeof(url))
        return false;
    return curl_easy_setopt(call->easy, CURLOPT_URL, url) == CURLE_OK &&
           curl_multi_add_handle(call->etcd->multi, call->easy) == CURLM_OK;
}

static bool call_begin(struct gb_peer_etcd_call *call)
{
    struct gb_peer_etcd *etcd = call->etcd;

    call->begun_ns = uv_hrtime();
    call->endpoint = etcd->current;
    call->easy = curl_easy_init();
    if (!call->easy || !easy_prepare(call) || !call_send(call)) {
        curl_easy_cleanup(call->easy);
        call->easy = NULL;
        return false;
    }
    gb_list_prepend(&etcd->calls, &call->of_etcd);
    return true;
}

/* NULL: it cannot begin. */
static struct gb_peer_etcd_call *call_new(struct gb_peer_etcd *etcd, const char *method,
                                          struct gb_writer *body, bool stream,
                                          gb_peer_etcd_cb callback, void *user)
{
    struct gb_peer_etcd_call *call = calloc(1, sizeof(*call));

    if (!call) {
        gb_writer_end(body);
        return NULL;
    }
    *call = (struct gb_peer_etcd_call){
        .etcd = etcd, .callback = callback, .user = user, .stream = stream};
    snprintf(call->url_path, sizeof(call->url_path), "%s", method);
    gb_writer_init(&call->received, REPLY_MOST);
    call->body = gb_writer_take(body, &call->body_length);
    if (call->body && call_begin(call))
        return call;
    call_free(call);
    return NULL;
}

struct gb_peer_etcd_call *gb_peer_etcd_call(struct gb_peer_etcd *etcd, const char *method,
                                            struct gb_writer *body, gb_peer_etcd_cb callback,
                                            void *user)
{
    return call_new(etcd, method, body, false, callback, user);
}

struct gb_peer_etcd_call *gb_peer_etcd_stream(struct gb_peer_etcd *etcd, const char *method,
                                              struct gb_writer *body, gb_peer_etcd_cb callback,
                                              void *user)
{
    return call_new(etcd, method, body, true, callback, user);
}

void gb_peer_etcd_cancel(struct gb_peer_etcd_call *call)
{
    if (!call)
        return;
    call->callback = NULL;
    if (call->running)
        return; /* it is freed after its callback */
    call_free(call);
}

/* ---- answers ---- */

/* The code for one of gRPC's. */
static int code_of_grpc(uint64_t code)
{
    switch (code) {
    case 5: /* not found */
        return GPUBUF_E_NOT_FOUND;
    case 7:  /* permission denied */
    case 16: /* unauthenticated */
        return GPUBUF_E_DENIED;
    default:
        return GPUBUF_E_UNAVAILABLE;
    }
}

/* Whether another endpoint might do better. */
static bool grpc_elsewhere(uint64_t code)
{
    return code == 4 || code == 14; /* deadline exceeded, unavailable */
}

/* Reads one value, an answer or a line. *grpc is gRPC's code if the value is an error, else 0. */
static int answer_read(struct gb_peer_etcd_call *call, const char *text, size_t length,
                       struct gb_pool *pool, struct gb_json *value, uint64_t *grpc,
                       struct gb_error *error)
{
    const char *endpoint = call->etcd->settings.endpoints[call->endpoint];
    struct gb_json refused, message, code;
    struct gb_string said = {"no reason given", 15};
    struct gb_error unread;

    *grpc = 0;
    if (gb_json_check(text, length, pool, value, error) < 0)
        return gb_fail(error, GPUBUF_E_PROTOCOL, "etcd at %s: the answer is not JSON", endpoint);
    refused = gb_peer_etcd_member(*value, "error");
    if (!refused.text)
        return 0;
    /* In a stream the error is an object; in an answer it is a string, with the code beside it. */
    message = gb_peer_etcd_member(refused, "message");
    code = gb_peer_etcd_member(refused, "grpc_code");
    if (gb_json_type(refused) != GB_JSON_OBJECT) {
        message = refused;
        code = gb_peer_etcd_member(*value, "code");
    }
    *grpc = 2; /* unknown */
    if (code.text && gb_json_type(code) == GB_JSON_NUMBER)
        (void)gb_json_uint(code, 0, 100, NULL, grpc, &unread);
    if (message.text && gb_json_type(message) == GB_JSON_STRING)
        (void)gb_json_string(message, 0, NULL, pool, &said, &unread);
    return gb_fail(error, code_of_grpc(*grpc), "etcd at %s: %.300s", endpoint, said.text);
}

static void call_end(struct gb_peer_etcd_call *call, int code, struct gb_json value,
                     struct gb_pool *pool, const struct gb_error *error)
{
    struct gb_peer_etcd *etcd = call->etcd;
    struct gb_peer_figures *figures = etcd->settings.figures;

    if (figures && !call->stream) {
        figures->etcd_requests++;
        figures->etcd_failures += code < 0;
        figures->etcd_ns += uv_hrtime() - call->begun_ns;
    }
    call->running = true;
    if (call->callback)
        call->callback(call->user, code, value, pool, error);
    call_free(call);
}

/* Tries the next endpoint, if there is one that has not been asked. */
static bool call_again(struct gb_peer_etcd_call *call)
{
    struct gb_peer_etcd *etcd = call->etcd;
    size_t next = (call->endpoint + 1) % etcd->settings.endpoint_count;

    if (etcd->current == call->endpoint)
        etcd->current = next;
    if (call->stream || call->tries >= etcd->settings.endpoint_count)
        return false;
    call->endpoint = next;
    return call_send(call);
}

/* If the other side refuses our certificate, TLS says so only when something is sent or received.
   libcurl's sentences about other failures have times in them, so each would be a new line in the
   log. */
static bool tls_failed(CURLcode result)
{
    return result == CURLE_SSL_CONNECT_ERROR || result == CURLE_PEER_FAILED_VERIFICATION ||
           result == CURLE_SEND_ERROR || result == CURLE_RECV_ERROR;
}

/* The transfer is over: with an answer, or with libcurl's failure. */
static void call_done(struct gb_peer_etcd_call *call, CURLcode result)
{
    const char *endpoint = call->etcd->settings.endpoints[call->endpoint];
    struct gb_json value = {0};
    struct gb_pool pool = {0};
    struct gb_error error = {0};
    uint64_t grpc = 14;
    int r;

    curl_multi_remove_handle(call->etcd->multi, call->easy);
    if (result != CURLE_OK)
        r = gb_fail(&error, GPUBUF_E_UNAVAILABLE, "etcd at %s: %s", endpoint,
                    tls_failed(result) && *call->why ? call->why : curl_easy_strerror(result));
    else if (call->stream && !call->received.length)
        r = gb_fail(&error, GPUBUF_E_UNAVAILABLE, "etcd at %s: the stream has ended", endpoint);
    else
        r = answer_read(call, call->received.data ? call->received.data : "", call->received.length,
                        &pool, &value, &grpc, &error);
    if (r == GPUBUF_E_PROTOCOL || (r < 0 && grpc_elsewhere(grpc))) {
        if (call_again(call)) {
            gb_pool_end(&pool);
            return;
        }
    }
    if (r == 0 && call->stream)
        r = gb_fail(&error, GPUBUF_E_UNAVAILABLE, "etcd at %s: the stream has ended", endpoint);
    if (r < 0)
        value.text = NULL;
    call_end(call, r, value, &pool, &error);
    gb_pool_end(&pool);
}

/* Delivers a stream's next line. False: there is no whole line. The call may be freed by this. */
static bool stream_line(struct gb_peer_etcd_call *call)
{
    struct gb_writer *received = &call->received;
    const char *end = received->length ? memchr(received->data, '\n', received->length) : NULL;
    struct gb_json value = {0};
    struct gb_pool pool = {0};
    struct gb_error error = {0};
    uint64_t grpc;
    size_t length;
    char *line;
    int r;

    if (!end)
        return false;
    length = (size_t)(end - received->data);
    line = strndup(received->data, length);
    if (!line)
        r = gb_fail(&error, GPUBUF_E_UNAVAILABLE, "out of memory");
    else
        r = answer_read(call, line, length, &pool, &value, &grpc, &error);
    memmove(received->data, end + 1, received->length - length - 1);
    received->length -= length + 1;
    if (r < 0) {
        value.text = NULL;
        call_end(call, r, value, &pool, &error);
    } else {
        call->running = true;
        call->callback(call->user, 0, value, &pool, &error);
        call->running = false;
        if (!call->callback)
            call_free(call);
    }
    gb_pool_end(&pool);
    free(line);
    return true;
}

/* Delivers a line of some stream that has one. */
static bool any_line(struct gb_peer_etcd *etcd)
{
    GB_LIST_EACH(&etcd->calls, struct gb_peer_etcd_call, call, of_etcd)
        if (call->stream && stream_line(call))
            return true; /* the list may have changed */
    return false;
}

/* Runs the callbacks of lines and answers that have come. They must not run inside libcurl's own
   callbacks, where libcurl forbids calls. */
static void drive(struct gb_peer_etcd *etcd)
{
    struct gb_peer_etcd_call *call;
    CURLMsg *message;
    int left;

    while (any_line(etcd))
        ;
    while ((message = curl_multi_info_read(etcd->multi, &left))) {
        if (message->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &call);
        call_done(call, message->data.result);
    }
}

/* ---- the client ---- */

static void on_closed(uv_handle_t *handle)
{
    struct gb_peer_etcd *etcd = handle->data;

    curl_slist_free_all(etcd->headers);
    free(etcd);
    curl_global_cleanup();
}

static bool prepare(struct gb_peer_etcd *etcd)
{
    etcd->headers = curl_slist_append(NULL, "Content-Type: application/json");
    etcd->multi = curl_multi_init();
    if (!etcd->headers || !etcd->multi)
        return false;
    curl_multi_setopt(etcd->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(etcd->multi, CURLMOPT_SOCKETDATA, etcd);
    curl_multi_setopt(etcd->multi, CURLMOPT_TIMERFUNCTION, on_timeout);
    curl_multi_setopt(etcd->multi, CURLMOPT_TIMERDATA, etcd);
    return true;
}

int gb_peer_etcd_create(uv_loop_t *loop, const struct gb_peer_etcd_settings *settings,
                        struct gb_peer_etcd **out, struct gb_error *error)
{
    struct gb_peer_etcd *etcd;

    if (!settings->endpoint_count || settings->endpoint_count > GB_PEER_ETCD_ENDPOINTS)
        return gb_fail(error, GPUBUF_E_INVALID, "etcd: %zu endpoints, expected 1 to %d",
                       settings->endpoint_count, GB_PEER_ETCD_ENDPOINTS);
    etcd = calloc(1, sizeof(*etcd));
    if (!etcd || curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        free(etcd);
        return gb_fail(error, GPUBUF_E_NO_MEMORY, "etcd: out of memory");
    }
    etcd->loop = loop;
    etcd->settings = *settings;
    etcd->timer.data = etcd;
    uv_timer_init(loop, &etcd->timer);
    if (!prepare(etcd)) {
        gb_peer_etcd_destroy(etcd);
        return gb_fail(error, GPUBUF_E_NO_MEMORY, "etcd: out of memory");
    }
    *out = etcd;
    return 0;
}

void gb_peer_etcd_destroy(struct gb_peer_etcd *etcd)
{
    if (!etcd)
        return;
    GB_LIST_EACH(&etcd->calls, struct gb_peer_etcd_call, call, of_etcd)
        call_free(call);
    if (etcd->multi)
        curl_multi_cleanup(etcd->multi);
    uv_close((uv_handle_t *)&etcd->timer, on_closed);
}

const char *gb_peer_etcd_endpoint(const struct gb_peer_etcd *etcd)
{
    return etcd->settings.endpoints[etcd->current];
}

/* ---- what requests and answers are made of ---- */

void gb_peer_etcd_write_bytes(struct gb_writer *writer, const char *name, const void *bytes,
                              size_t length)
{
    gb_write_cstring(writer, name);
    gb_write_char(writer, ':');
    gb_write_base64(writer, bytes, length);
}

struct gb_json gb_peer_etcd_member(struct gb_json object, const char *name)
{
    struct gb_json absent = {0}, key, item;
    struct gb_json_walk walk;

    if (!object.text || gb_json_type(object) != GB_JSON_OBJECT)
        return absent;
    walk = gb_json_walk(object);
    while (gb_json_next(&walk, &key, &item))
        if (gb_json_is(key, name))
            return item;
    return absent;
}

uint64_t gb_peer_etcd_number(struct gb_json value)
{
    char digits[24];
    size_t length;

    if (!value.text || gb_json_type(value) != GB_JSON_STRING)
        return 0;
    length = gb_json_length(value) - 2;
    if (length >= sizeof(digits))
        return 0;
    memcpy(digits, value.text + 1, length);
    digits[length] = '\0';
    return strtoull(digits, NULL, 10);
}

uint64_t gb_peer_etcd_revision(struct gb_json answer)
{
    return gb_peer_etcd_number(
        gb_peer_etcd_member(gb_peer_etcd_member(answer, "header"), "revision"));
}

bool gb_peer_etcd_is_true(struct gb_json value)
{
    return value.text && gb_json_length(value) == 4 && memcmp(value.text, "true", 4) == 0;
}

char *gb_peer_etcd_bytes(struct gb_json value, struct gb_pool *pool, size_t *length)
{
    struct gb_string text;
    struct gb_error unread;
    char *bytes;
    long got;

    if (!value.text || gb_json_type(value) != GB_JSON_STRING ||
        gb_json_string(value, 0, NULL, pool, &text, &unread) < 0)
        return NULL;
    bytes = gb_pool_alloc(pool, text.length / 4 * 3 + 4);
    if (!bytes)
        return NULL;
    got = gb_base64_decode(text.text, text.length, bytes, text.length / 4 * 3 + 3);
    if (got < 0)
        return NULL;
    bytes[got] = '\0';
    *length = (size_t)got;
    return bytes;
}
