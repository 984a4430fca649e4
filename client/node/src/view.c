#include "client/node/src/view.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "client/lib/wire/client.h"
#include "client/node/src/client.h"
#include "client/node/src/completion.h"
#include "client/node/src/job.h"
#include "client/node/src/table.h"
#include "client/node/src/values.h"

/* A view, for JavaScript and for its jobs. */
struct followed {
    _Atomic size_t references;
    struct gpubuf_view *view;
};

/* JavaScript's handle. */
struct handle {
    struct gb_addon *addon;
    struct followed *followed; /* NULL once it is closed */
};

enum what { FOLLOW, EDIT, SWITCH, PARK, RESUME };

struct showing {
    struct gb_node_job job;
    enum what what;
    struct gpubuf_client *client; /* counted; of FOLLOW and EDIT */
    char *name, *label;
    struct followed *followed;
    struct gpubuf_object *edited;
    struct gpubuf_open_options options;
    void **streams;
    size_t stream_count;
    bool same; /* it was so already */
};

static void followed_drop(struct followed *followed)
{
    if (!followed || atomic_fetch_sub(&followed->references, 1) > 1)
        return;
    gpubuf_unfollow(followed->view);
    free(followed);
}

static void showing_end(struct gb_node_job *job)
{
    struct showing *showing = (struct showing *)job;

    followed_drop(showing->followed);
    gpubuf_release(showing->edited);
    if (showing->client)
        gb_client_release(showing->client);
    free(showing->name);
    free(showing->label);
    free((void *)showing->streams);
}

static int showing_run(struct gb_node_job *job)
{
    struct showing *showing = (struct showing *)job;
    struct followed *followed = showing->followed;
    struct gpubuf_client *client = showing->client;
    int r = GPUBUF_E_INTERNAL;

    switch (showing->what) {
    case FOLLOW:
        r = gpubuf_follow(client, showing->name, &showing->options, &followed->view);
        break;
    case EDIT:
        r = gpubuf_edit(client, showing->name, &showing->options, &showing->edited);
        break;
    case SWITCH:
        r = gpubuf_switch(followed->view, &showing->options, showing->streams,
                          showing->stream_count);
        break;
    case PARK:
        r = gpubuf_park(followed->view, showing->streams, showing->stream_count);
        break;
    case RESUME:
        r = gpubuf_resume(followed->view, showing->options.wait_ms);
        break;
    }
    showing->same = r == 1;
    if (r < 0)
        job->message = gb_copy(client ? gpubuf_errmsg(client)
                                      : gpubuf_object_errmsg(gpubuf_view_object(followed->view)));
    if (showing->what != FOLLOW) { /* the view is JavaScript's again, which may close it now */
        followed_drop(followed);
        showing->followed = NULL;
    }
    return r < 0 ? r : 0;
}

static void on_handle_collected(napi_env env, void *data, void *hint)
{
    struct handle *handle = data;

    (void)env;
    (void)hint;
    followed_drop(handle->followed);
    gb_addon_release(handle->addon);
    free(handle);
}

/* [the view's handle, its object's index times 8, plus its kind] */
static napi_value followed_value(struct showing *showing)
{
    struct gb_addon *addon = showing->job.addon;
    napi_env env = addon->env;
    napi_value pair = NULL, external = NULL;
    struct handle *handle = calloc(1, sizeof(*handle));

    if (!handle)
        return NULL;
    *handle = (struct handle){addon, showing->followed};
    if (napi_create_external(env, handle, on_handle_collected, NULL, &external) != napi_ok) {
        free(handle);
        return NULL;
    }
    addon->references++;
    showing->followed = NULL;
    struct gpubuf_object *object = gpubuf_retain(gpubuf_view_object(handle->followed->view));
    if (napi_create_array_with_length(env, 2, &pair) != napi_ok) {
        gpubuf_release(object);
        return NULL;
    }
    (void)napi_set_element(env, pair, 0, external);
    (void)napi_set_element(env, pair, 1, gb_number(env, gb_object_number(addon, object)));
    return pair;
}

static napi_value showing_settle(struct gb_node_job *job)
{
    struct showing *showing = (struct showing *)job;

    if (showing->what == FOLLOW)
        return followed_value(showing);
    if (showing->what == EDIT) {
        struct gpubuf_object *object = showing->edited;
        showing->edited = NULL;
        return gb_number(job->addon->env, gb_object_number(job->addon, object));
    }
    return gb_flag(job->addon->env, !showing->same);
}

static struct showing *showing_new(struct gb_addon *addon, enum what what)
{
    struct showing *showing = calloc(1, sizeof(*showing));

    if (!showing) {
        (void)gb_throw_memory(addon->env);
        return NULL;
    }
    showing->job.run = showing_run;
    showing->job.settle = showing_settle;
    showing->job.end = showing_end;
    showing->what = what;
    showing->options.size = sizeof(showing->options);
    return showing;
}

/* The version, label and time to wait of three arguments. */
static bool read_options(napi_env env, const napi_value *values, struct showing *showing)
{
    uint64_t wait;

    if (!gb_read_index(env, values[0], "the version", &showing->options.version) ||
        !gb_read_text(env, values[1], "the label", &showing->label) ||
        !gb_read_index(env, values[2], "the timeout", &wait))
        return false;
    showing->options.label = showing->label;
    showing->options.wait_ms = (int64_t)wait;
    return true;
}

static napi_value open_by_job(napi_env env, napi_callback_info info, enum what what)
{
    napi_value values[GB_ARGUMENTS_MAX];
    struct gb_addon *addon = gb_arguments(env, info, values);
    const struct gb_node_client *client = gb_client_at(addon, values[0]);
    struct showing *showing = client ? showing_new(addon, what) : NULL;

    if (!showing)
        return NULL;
    showing->client = client->client;
    gb_client_retain(showing->client);
    if (!gb_read_text(env, values[2], "the name", &showing->name) ||
        !read_options(env, values + 3, showing)) {
        gb_job_free(&showing->job);
        return NULL;
    }
    if (what == FOLLOW) {
        showing->followed = calloc(1, sizeof(*showing->followed));
        if (!showing->followed) {
            gb_job_free(&showing->job);
            return gb_throw_memory(env);
        }
        atomic_init(&showing->followed->references, 1);
    }
    return gb_job_begin(addon, values[1], &showing->job);
}

/* follow(client, id, name, version, label or undefined, waitMs): completes with [view, object] */
napi_value gb_js_follow(napi_env env, napi_callback_info info)
{
    return open_by_job(env, info, FOLLOW);
}

/* edit(client, id, name, version, label or undefined, waitMs): completes with an object's index
   times 8, plus its kind */
napi_value gb_js_edit(napi_env env, napi_callback_info info)
{
    return open_by_job(env, info, EDIT);
}

static bool read_streams(napi_env env, napi_value array, struct showing *showing)
{
    uint32_t count = gb_array_length(env, array);

    showing->streams = calloc((size_t)count + 1, sizeof(*showing->streams));
    if (!showing->streams) {
        (void)gb_throw_memory(env);
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        napi_value item;
        if (napi_get_element(env, array, i, &item) != napi_ok ||
            !gb_read_stream(env, item, &showing->streams[i]))
            return false;
    }
    showing->stream_count = count;
    return true;
}

static struct handle *handle_at(napi_env env, napi_value value)
{
    void *handle = NULL;

    if (napi_get_value_external(env, value, &handle) != napi_ok ||
        !((struct handle *)handle)->followed) {
        (void)gb_throw(env, GPUBUF_E_CLOSED, "the view is closed");
        return NULL;
    }
    return handle;
}

/* show(view, id, what, version, label or undefined, waitMs, streams): `what` is 0 to switch, 1 to
   park, 2 to resume. Completes with whether anything has changed. */
napi_value gb_js_show(napi_env env, napi_callback_info info)
{
    napi_value values[GB_ARGUMENTS_MAX];
    struct gb_addon *addon = gb_arguments(env, info, values);
    const struct handle *handle = handle_at(env, values[0]);
    uint64_t what;

    if (!handle || !gb_read_index(env, values[2], "what", &what))
        return NULL;
    struct showing *showing = showing_new(addon, what == 0 ? SWITCH : what == 1 ? PARK : RESUME);
    if (!showing)
        return NULL;
    showing->followed = handle->followed;
    (void)atomic_fetch_add(&showing->followed->references, 1);
    if (!read_options(env, values + 3, showing) || !read_streams(env, values[6], showing)) {
        gb_job_free(&showing->job);
        return NULL;
    }
    return gb_job_begin(addon, values[1], &showing->job);
}

/* unfollow(view): it ends with the last of its jobs and its objects */
napi_value gb_js_unfollow(napi_env env, napi_callback_info info)
{
    napi_value values[GB_ARGUMENTS_MAX];

    (void)gb_arguments(env, info, values);
    struct handle *handle = handle_at(env, values[0]);
    if (!handle)
        return NULL;
    followed_drop(handle->followed);
    handle->followed = NULL;
    return NULL;
}
