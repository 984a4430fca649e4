#include "client/peer/link/lane.h"

#include <stdlib.h>
#include <string.h>

#include "client/peer/link/ucx.h"
#include "proto/base/list.h"

enum {
    TURN = 256,         /* steps of UCX in one turn of the loop */
    CLOSE_TURNS = 10000 /* steps to wait for an endpoint to close; the worker ends in any case */
};

/* A message under way. */
struct message {
    struct gb_link of_lane;
    void *request; /* UCX's; NULL: UCX refused it */
    bool receives, over;
    ucs_status_t status;
    size_t bytes, came;
    gb_peer_lane_cb callback;
    void *user;
};

struct gb_peer_lane {
    const struct gb_peer_ucx *ucx;
    ucp_worker_h worker;     /* NULL: it is closed */
    ucp_ep_h endpoint;       /* NULL: it is not connected */
    struct gb_link messages; /* struct message */
    bool spoilt;             /* something came that nobody awaits */
    uv_poll_t poll;
    uv_idle_t more; /* runs while UCX has more to do */
    unsigned handles;
};

static int fail(const struct gb_peer_lane *lane, ucs_status_t status, struct gb_error *error)
{
    return gb_fail(error, status == UCS_ERR_CANCELED ? GPUBUF_E_CANCELED : GPUBUF_E_UNAVAILABLE,
                   "UCX: %s", lane->ucx->ucs_status_string(status));
}

/* ---- messages ---- */

static void answer(const struct gb_peer_lane *lane, struct message *message)
{
    struct gb_error error;
    int status = 0;

    if (lane->spoilt)
        status = gb_fail(&error, GPUBUF_E_PROTOCOL, "UCX: a message came that nobody awaits");
    else if (message->status != UCS_OK)
        status = fail(lane, message->status, &error);
    else if (message->came != message->bytes)
        status = gb_fail(&error, GPUBUF_E_PROTOCOL, "%zu bytes came in place of %zu", message->came,
                         message->bytes);
    gb_list_remove(&message->of_lane);
    message->callback(message->user, status, status < 0 ? &error : NULL);
    free(message);
}

/* The first message that is over; NULL: none. */
static struct message *next_over(const struct gb_peer_lane *lane)
{
    GB_LIST_EACH(&lane->messages, struct message, message, of_lane)
        if (message->over)
            return message;
    return NULL;
}

/* Answers the messages that are over. A callback may close the lane. */
static bool answer_over(struct gb_peer_lane *lane)
{
    struct message *message;
    bool any = false;

    while (lane->worker && (message = next_over(lane))) {
        if (message->request)
            lane->ucx->ucp_request_free(message->request);
        answer(lane, message);
        any = true;
    }
    return any;
}

static void cancel_receives(struct gb_peer_lane *lane)
{
    GB_LIST_EACH(&lane->messages, const struct message, message, of_lane)
        if (message->receives && !message->over)
            lane->ucx->ucp_request_cancel(lane->worker, message->request);
}

static void finish(struct message *message, ucs_status_t status, size_t came)
{
    message->over = true;
    message->status = status;
    message->came = came;
}

static void on_sent(void *request, ucs_status_t status, void *user)
{
    struct message *message = user;

    finish(message, status, message->bytes);
}

static void on_received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info,
                        void *user)
{
    finish(user, status, status == UCS_OK ? info->length : 0);
}

/* ---- turns ---- */

static void run_worker(struct gb_peer_lane *lane);

static void on_more(uv_idle_t *more)
{
    run_worker(more->data);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    run_worker(poll->data);
}

/* A receive begins before the other side is asked to send. So a message that nobody awaits is a
   stray, and all receives fail. */
static void look_for_strays(struct gb_peer_lane *lane)
{
    ucp_tag_recv_info_t info;

    if (!lane->ucx->ucp_tag_probe_nb(lane->worker, 0, 0, 0, &info))
        return;
    lane->spoilt = true;
    cancel_receives(lane);
}

/* UCX signals its descriptor only after it was armed with nothing left to do. */
static void run_worker(struct gb_peer_lane *lane)
{
    unsigned turns = 0;

    while (turns < TURN && lane->ucx->ucp_worker_progress(lane->worker) > 0)
        turns++;
    look_for_strays(lane);
    if (answer_over(lane) || turns == TURN || lane->ucx->ucp_worker_arm(lane->worker) != UCS_OK) {
        if (lane->worker)
            (void)uv_idle_start(&lane->more, on_more);
        return;
    }
    (void)uv_idle_stop(&lane->more);
}

/* Begins a message. The memory is written to only if it receives. */
static bool begin(struct gb_peer_lane *lane, bool receives, uint64_t tag, void *memory,
                  size_t bytes, gb_peer_lane_cb callback, void *user)
{
    const struct gb_peer_ucx *ucx = lane->ucx;
    struct message *message = calloc(1, sizeof(*message));
    ucp_request_param_t params = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
        .user_data = message,
    };
    void *request;

    if (!message)
        return false;
    *message =
        (struct message){.receives = receives, .bytes = bytes, .callback = callback, .user = user};
    if (receives) {
        params.cb.recv = on_received;
        request = ucx->ucp_tag_recv_nbx(lane->worker, memory, bytes, tag, UINT64_MAX, &params);
    } else {
        params.cb.send = on_sent;
        request = ucx->ucp_tag_send_nbx(lane->endpoint, memory, bytes, tag, &params);
    }
    if (UCS_PTR_IS_ERR(request))
        finish(message, UCS_PTR_STATUS(request), 0);
    else
        message->request = request;
    gb_list_append(&lane->messages, &message->of_lane);
    (void)uv_idle_start(&lane->more, on_more);
    return true;
}

bool gb_peer_lane_receive(struct gb_peer_lane *lane, uint64_t tag, void *memory, size_t bytes,
                          gb_peer_lane_cb callback, void *user)
{
    return begin(lane, true, tag, memory, bytes, callback, user);
}

bool gb_peer_lane_send(struct gb_peer_lane *lane, uint64_t tag, const void *memory, size_t bytes,
                       gb_peer_lane_cb callback, void *user)
{
    return begin(lane, false, tag, (void *)(uintptr_t)memory, bytes, callback, user);
}

/* ---- addresses ---- */

void gb_peer_lane_write(const struct gb_peer_lane *lane, struct gb_writer *writer)
{
    ucp_address_t *address;
    size_t length;

    if (lane->ucx->ucp_worker_get_address(lane->worker, &address, &length) != UCS_OK) {
        writer->failed = true;
        return;
    }
    GB_WRITE_LITERAL(writer, "\"address\":");
    gb_write_base64(writer, address, length);
    lane->ucx->ucp_worker_release_address(lane->worker, address);
}

/* ---- beginning and end ---- */

/* Nothing to do: UCX completes the endpoint's messages with the error. */
static void on_endpoint_error(void *user, ucp_ep_h endpoint, ucs_status_t status)
{
}

int gb_peer_lane_connect(struct gb_peer_lane *lane, const char *text, struct gb_error *error)
{
    _Alignas(16) unsigned char address[GB_PEER_LANE_ADDRESS_MOST / 4 * 3];

    if (gb_base64_decode(text, strlen(text), address, sizeof(address)) <= 0)
        return gb_fail(error, GPUBUF_E_INVALID, "the address of UCX is malformed");
    const ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = (const ucp_address_t *)address,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler.cb = on_endpoint_error,
    };
    ucs_status_t status = lane->ucx->ucp_ep_create(lane->worker, &params, &lane->endpoint);
    (void)uv_idle_start(&lane->more, on_more);
    return status == UCS_OK ? 0 : fail(lane, status, error);
}

static int make_worker(struct gb_peer_lane *lane, int *fd, struct gb_error *error)
{
    const ucp_worker_params_t params = {
        .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_FLAGS,
        .thread_mode = UCS_THREAD_MODE_SINGLE,
        .flags = UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK,
    };
    ucs_status_t status = lane->ucx->ucp_worker_create(lane->ucx->context, &params, &lane->worker);

    if (status == UCS_OK)
        status = lane->ucx->ucp_worker_get_efd(lane->worker, fd);
    return status == UCS_OK ? 0 : fail(lane, status, error);
}

static void on_closed(uv_handle_t *handle)
{
    struct gb_peer_lane *lane = handle->data;

    if (--lane->handles == 0)
        free(lane);
}

/* Waits until the endpoint has ended its messages. A worker that is destroyed in the middle of one
   calls abort(). */
static void close_endpoint(struct gb_peer_lane *lane)
{
    const ucp_request_param_t params = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
        .flags = UCP_EP_CLOSE_FLAG_FORCE,
    };
    void *request = lane->endpoint ? lane->ucx->ucp_ep_close_nbx(lane->endpoint, &params) : NULL;

    if (!UCS_PTR_IS_PTR(request))
        return;
    for (int i = 0;
         i < CLOSE_TURNS && lane->ucx->ucp_request_check_status(request) == UCS_INPROGRESS; i++)
        (void)lane->ucx->ucp_worker_progress(lane->worker);
    lane->ucx->ucp_request_free(request);
}

void gb_peer_lane_close(struct gb_peer_lane *lane)
{
    struct gb_link messages = {NULL};
    struct message *message;

    if (!lane)
        return;
    cancel_receives(lane);
    close_endpoint(lane);
    GB_LIST_EACH(&lane->messages, const struct message, done, of_lane)
        if (done->over && done->request)
            lane->ucx->ucp_request_free(done->request);
    if (lane->handles == 2)
        uv_close((uv_handle_t *)&lane->poll, on_closed);
    if (lane->worker)
        lane->ucx->ucp_worker_destroy(lane->worker);
    lane->worker = NULL;
    gb_list_move(&lane->messages, &messages);
    while ((message = GB_LIST_FIRST(&messages, struct message, of_lane))) {
        message->status = UCS_ERR_CANCELED;
        answer(lane, message);
    }
    uv_close((uv_handle_t *)&lane->more, on_closed);
}

struct gb_peer_lane *gb_peer_lane_new(const struct gb_peer_ucx *ucx, uv_loop_t *loop,
                                      struct gb_error *error)
{
    struct gb_peer_lane *lane = calloc(1, sizeof(*lane));
    int fd = -1;

    if (!lane) {
        (void)gb_fail_memory(error);
        return NULL;
    }
    lane->ucx = ucx;
    lane->handles = 1;
    (void)uv_idle_init(loop, &lane->more); /* cannot fail */
    lane->more.data = lane->poll.data = lane;
    int r = make_worker(lane, &fd, error);
    if (r == 0 && uv_poll_init(loop, &lane->poll, fd) != 0)
        r = gb_fail(error, GPUBUF_E_SYSTEM, "the loop cannot watch UCX");
    if (r < 0) {
        gb_peer_lane_close(lane);
        return NULL;
    }
    lane->handles = 2;
    lane->poll.data = lane;
    (void)uv_poll_start(&lane->poll, UV_READABLE, on_poll);
    (void)uv_idle_start(&lane->more, on_more); /* on_more arms it */
    return lane;
}
