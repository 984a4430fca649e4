#include "client/node/src/stream.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "client/lib/objects/stream.h"
#include "client/node/src/completion.h"
#include "client/node/src/job.h"
#include "client/node/src/table.h"
#include "client/node/src/values.h"

/* A stream, for JavaScript and for its jobs. */
struct flow {
    _Atomic size_t references;
    struct gpubuf_stream *stream;
    bool writes;
    _Atomic bool stop; /* what waits is to end */
};

/* JavaScript's handle, in the addon's list. */
struct gb_flow {
    struct gb_addon *addon;
    struct gb_flow *next, **link;
    struct flow *flow; /* NULL once it is closed */
};

enum what { BEGIN, WAIT };

struct flowing {
    struct gb_node_job job;
    enum what what;
    struct flow *flow;
    struct gpubuf_object *object; /* BEGIN: counted */
    struct gpubuf_stream_options options;
    uint64_t timeout_ms; /* WAIT */
    bool for_ever;
};

static void flow_drop(struct flow *flow)
{
    if (!flow || atomic_fetch_sub(&flow->references, 1) > 1)
        return;
    gpubuf_stream_close(flow->stream);
    free(flow);
}

static void flowing_end(struct gb_node_job *job)
{
    struct flowing *flowing = (struct flowing *)job;

    flow_drop(flowing->flow);
    gpubuf_release(flowing->object);
}

static int flowing_run(struct gb_node_job *job)
{
    struct flowing *flowing = (struct flowing *)job;
    struct flow *flow = flowing->flow;
    const struct gpubuf_object *object = flowing->object;
    int r;

    if (flowing->what == BEGIN) {
        r = gb_stream_begin(gpubuf_retain(flowing->object), flow->writes, &flowing->options,
                            &flow->stream);
    } else {
        int64_t timeout = flowing->for_ever ? -1 : (int64_t)flowing->timeout_ms;
        r = gb_stream_wait(flow->stream, timeout, &flow->stop);
    }
    if (r < 0)
        job->message =
            gb_copy(gpubuf_object_errmsg(object ? object : gpubuf_stream_object(flow->stream)));
    if (flowing->what != BEGIN) { /* the stream is JavaScript's again, which may close it now */
        flow_drop(flow);
        flowing->flow = NULL;
    }
    return r;
}

static struct flowing *flowing_new(struct gb_addon *addon, enum what what, struct flow *flow)
{
    struct flowing *flowing = calloc(1, sizeof(*flowing));

    if (!flowing) {
        (void)gb_throw_memory(addon->env);
        return NULL;
    }
    flowing->job.run = flowing_run;
    flowing->job.end = flowing_end;
    flowing->what = what;
    flowing->flow = flow;
    if (flow)
        (void)atomic_fetch_add(&flow->references, 1);
    return flowing;
}

/* ---- beginning and end ---- */

static void handle_close(struct gb_flow *handle)
{
    if (!handle->flow)
        return;
    atomic_store(&handle->flow->stop, true);
    flow_drop(handle->flow);
    handle->flow = NULL;
    *handle->link = handle->next;
    if (handle->next)
        handle->next->link = handle->link;
}

static void on_handle_collected(napi_env env, void *data, void *hint)
{
    struct gb_flow *handle = data;

    (void)env;
    (void)hint;
    handle_close(handle);
    gb_addon_release(handle->addon);
    free(handle);
}

static napi_value begin_settle(struct gb_node_job *job)
{
    struct flowing *flowing = (struct flowing *)job;
    struct gb_addon *addon = job->addon;
    napi_value external = NULL;
    struct gb_flow *handle = calloc(1, sizeof(*handle));

    if (!handle)
        return NULL;
    if (napi_create_external(addon->env, handle, on_handle_collected, NULL, &external) != napi_ok) {
        free(handle);
        return NULL;
    }
    *handle = (struct gb_flow){addon, addon->flows, &addon->flows, flowing->flow};
    if (addon->flows)
        addon->flows->link = &handle->next;
    addon->flows = handle;
    addon->references++;
    flowing->flow = NULL;
    return external;
}

void gb_streams_end(struct gb_addon *addon)
{
    while (addon->flows)
        handle_close(addon->flows);
}

static bool read_small(napi_env env, napi_value value, const char *what, unsigned *number)
{
    uint64_t given;

    if (!gb_read_index(env, value, what, &given))
        return false;
    *number = given < UINT32_MAX ? (unsigned)given : UINT32_MAX; /* the library refuses that */
    return true;
}

/* stream(id, object, writes, each, waits, lag, hold, ahead): completes with the stream of an array
   that was opened, or claimed. */
napi_value gb_js_stream(napi_env env, napi_callback_info info)
{
    napi_value values[GB_ARGUMENTS_MAX];
    struct gb_addon *addon = gb_arguments(env, info, values);
    struct gpubuf_object *object = gb_object_at(addon, values[1], NULL);
    struct gpubuf_stream_options options = {.size = sizeof(options)};

    if (!object || !read_small(env, values[5], "lag", &options.lag) ||
        !read_small(env, values[6], "hold", &options.hold))
        return NULL;
    options.each = gb_read_flag(env, values[3]);
    options.waits = gb_read_flag(env, values[4]);
    options.ahead = gb_read_flag(env, values[7]);
    struct flow *flow = calloc(1, sizeof(*flow));
    struct flowing *flowing = flow ? flowing_new(addon, BEGIN, NULL) : NULL;
    if (!flowing) {
        free(flow);
        return flow ? NULL : gb_throw_memory(env);
    }
    atomic_init(&flow->references, 1);
    flow->writes = gb_read_flag(env, values[2]);
    flowing->flow = flow;
    flowing->object = gpubuf_retain(object);
    flowing->options = options;
    flowing->job.settle = begin_settle;
    return gb_job_begin(addon, values[0], &flowing->job);
}

static struct gb_flow *handle_at(napi_env env, napi_value value)
{
    void *handle = NULL;

    if (napi_get_value_external(env, value, &handle) != napi_ok ||
        !((struct gb_flow *)handle)->flow) {
        (void)gb_throw(env, GPUBUF_E_CLOSED, "the stream is closed");
        return NULL;
    }
    return handle;
}

/* streamClose(stream): it ends with the last of its jobs */
napi_value gb_js_stream_close(napi_env env, napi_callback_info info)
{
    napi_value values[GB_ARGUMENTS_MAX];

    (void)gb_arguments(env, info, values);
    struct gb_flow *handle = handle_at(env, values[0]);
    if (handle)
        handle_close(handle);
    return NULL;
}

/* ---- frames ---- */

static napi_value throw_failure(napi_env env, const struct gb_flow *handle, int r)
{
    return gb_throw(env, r, gpubuf_object_errmsg(gpubuf_stream_object(handle->flow->stream)));
}

static napi_value bigint(napi_env env, uint64_t number)
{
    napi_value value = NULL;

    (void)napi_create_bigint_uint64(env, number, &value);
    return value;
}

static napi_value frame_value(napi_env env, const struct gpubuf_frame *frame)
{
    napi_value array = NULL;

    if (napi_create_array_with_length(env, 5, &array) != napi_ok)
        return NULL;
    (void)napi_set_element(env, array, 0, gb_number(env, frame->slot));
    (void)napi_set_element(env, array, 1, gb_number(env, (double)frame->bytes));
    (void)napi_set_element(env, array, 2, bigint(env, frame->number));
    (void)napi_set_element(env, array, 3, bigint(env, frame->time_ns));
    (void)napi_set_element(env, array, 4, gb_number(env, (double)frame->missed));
    return array;
}

/* streamNow(stream, waits): the frame to read or to write, as [slot, bytes, number, time, missed];
   undefined: streamWait() is to be called. */
napi_value gb_js_stream_now(napi_env env, napi_callback_info info)
{
    napi_value values[GB_ARGUMENTS_MAX];

    (void)gb_arguments(env, info, values);
    struct gb_flow *handle = handle_at(env, values[0]);
    struct gpubuf_frame frame;

    if (!handle)
        return NULL;
    int r = handle->flow->writes
                ? gb_stream_next_now(handle->flow->stream, gb_read_flag(env, values[1]), &frame)
                : gb_stream_read_now(handle->flow->stream, &frame);
    if (r == GPUBUF_E_AGAIN)
        return NULL;
    return r < 0 ? throw_failure(env, handle, r) : frame_value(env, &frame);
}

/* streamWait(stream, id, ms or undefined): completes when there may be a frame. Until then no other
   streamWait(), and no streamNow(), of this stream. */
napi_value gb_js_stream_wait(napi_env env, napi_callback_info info)
{
    napi_value values[GB_ARGUMENTS_MAX];
    struct gb_addon *addon = gb_arguments(env, info, values);
    struct gb_flow *handle = handle_at(env, values[0]);
    uint64_t timeout = 0;

    if (!handle ||
        (!gb_is_absent(env, values[2]) && !gb_read_index(env, values[2], "the timeout", &timeout)))
        return NULL;
    struct flowing *flowing = flowing_new(addon, WAIT, handle->flow);
    if (!flowing)
        return NULL;
    flowing->timeout_ms = timeout;
    flowing->for_ever = gb_is_absent(env, values[2]);
    atomic_store(&handle->flow->stop, false);
    return gb_job_begin(addon, values[1], &flowing->job);
}

/* streamStop(stream): what waits completes in a moment */
napi_value gb_js_stream_stop(napi_env env, napi_callback_info info)
{
    napi_value values[GB_ARGUMENTS_MAX];

    (void)gb_arguments(env, info, values);
    struct gb_flow *handle = handle_at(env, values[0]);
    if (handle)
        atomic_store(&handle->flow->stop, true);
    return NULL;
}

/* Reads (stream, slot, bytes, number, work or undefined). NULL: an exception is pending. */
static struct gb_flow *read_frame(napi_env env, napi_callback_info info, struct gpubuf_frame *frame,
                                  void **work)
{
    napi_value values[GB_ARGUMENTS_MAX];

    (void)gb_arguments(env, info, values);
    struct gb_flow *handle = handle_at(env, values[0]);
    bool lossless;

    if (!handle || !read_small(env, values[1], "the slot", &frame->slot) ||
        !gb_read_index(env, values[2], "the frame's bytes", &frame->bytes) ||
        !gb_read_stream(env, values[4], work))
        return NULL;
    if (napi_get_value_bigint_uint64(env, values[3], &frame->number, &lossless) == napi_ok)
        return handle;
    (void)gb_throw(env, GPUBUF_E_INVALID, "the frame's number is not a bigint");
    return NULL;
}

/* streamPass(frame): publishes it, or gives it back. The GPU does so itself after its work. */
napi_value gb_js_stream_pass(napi_env env, napi_callback_info info)
{
    struct gpubuf_frame frame = {0};
    void *work;
    struct gb_flow *handle = read_frame(env, info, &frame, &work);

    if (!handle)
        return NULL;
    struct gpubuf_stream *stream = handle->flow->stream;
    int r = handle->flow->writes ? gpubuf_stream_publish(stream, &frame, work)
                                 : gpubuf_stream_done(stream, &frame, work);
    return r < 0 ? throw_failure(env, handle, r) : NULL;
}

/* streamOrder(frame): work that is queued from now on begins when the frame is complete. */
napi_value gb_js_stream_order(napi_env env, napi_callback_info info)
{
    struct gpubuf_frame frame = {0};
    void *work;
    struct gb_flow *handle = read_frame(env, info, &frame, &work);
    int r = handle ? gpubuf_stream_wait(handle->flow->stream, &frame, work) : 0;

    return r < 0 ? throw_failure(env, handle, r) : NULL;
}
