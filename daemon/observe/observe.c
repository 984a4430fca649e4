#include "daemon/observe/observe.h"

#include "daemon/config.h"
#include "daemon/observe/http.h"
#include "daemon/observe/publisher.h"
#include "daemon/observe/trace.h"
#include "daemon/serve/session.h"

#define TICK_MS 1000

static struct gb_observe *of(struct gb_observer *observer)
{
    return GB_CONTAINER(observer, struct gb_observe, observer);
}

/* ---- what the server tells ---- */

static void on_event(struct gb_observer *observer, enum gb_event event, struct gb_object *object)
{
    struct gb_observe *observe = of(observer);

    gb_events_note(&observe->events, observe->server->seq, event, object);
}

static void on_session(struct gb_observer *observer, const struct gb_session *session)
{
    gb_trace_session(of(observer)->trace, session->id, session->pid, session->client);
}

static void on_request(struct gb_observer *observer, const struct gb_session *session,
                       const char *method, const char *result, uint64_t begun_ns, uint64_t ns,
                       bool waited)
{
    gb_trace_request(of(observer)->trace, session->id, method, result, begun_ns, ns, waited);
}

static void on_gathered(uv_timer_t *handle)
{
    struct gb_observe *observe = handle->data;

    gb_events_flush(&observe->events);
}

static void on_turn(struct gb_observer *observer)
{
    struct gb_observe *observe = of(observer);

    if (gb_events_turn(&observe->events, observe->server->registry.now_ms) &&
        !uv_is_active((uv_handle_t *)&observe->gather))
        uv_timer_start(&observe->gather, on_gathered, GB_EVENTS_GATHER_MS, 0);
    gb_trace_flush(observe->trace);
}

static void on_tick(uv_timer_t *handle)
{
    struct gb_observe *observe = handle->data;

    gb_events_tick(&observe->events, observe->server);
    gb_trace_flush(observe->trace);
}

static void on_copied(void *arg, const struct gb_moved *moved)
{
    gb_trace_move(arg, moved->what, moved->device->id, gb_tier_name(moved->tier), moved->bytes,
                  uv_hrtime() - moved->ns, moved->ns);
}

/* ---- beginning and ending ---- */

static int begin_trace(struct gb_observe *observe, struct gb_error *error)
{
    struct gb_server *server = observe->server;
    int r = gb_trace_new(server->config->trace, &observe->trace, error);

    if (r < 0)
        return r;
    server->spill.on_copied = on_copied;
    server->spill.on_copied_arg = observe->trace;
    return 0;
}

static int begin_publisher(struct gb_observe *observe, struct gb_error *error)
{
    const struct gb_config *config = observe->server->config;
    int r = gb_publisher_new(config->events, config->event_count, &observe->publisher, error);

    if (r == 0)
        gb_events_attach(&observe->events, gb_publisher_outlet(observe->publisher));
    return r;
}

static int begin_http(struct gb_observe *observe, struct gb_error *error)
{
    int r = gb_http_new(observe->server, observe->publisher, &observe->http, error);

    if (r == 0)
        gb_events_attach(&observe->events, gb_http_outlet(observe->http));
    return r;
}

static void begin_timers(struct gb_observe *observe)
{
    uv_loop_t *loop = observe->server->loop;

    uv_timer_init(loop, &observe->gather);
    observe->gather.data = observe;
    uv_timer_init(loop, &observe->tick);
    observe->tick.data = observe;
    uv_timer_start(&observe->tick, on_tick, TICK_MS, TICK_MS);
}

int gb_observe_begin(struct gb_observe *observe, struct gb_server *server, struct gb_error *error)
{
    const struct gb_config *config = server->config;
    int r = 0;

    if (!config->trace && !config->http && config->event_count == 0)
        return 0;
    observe->server = server;
    observe->observer = (struct gb_observer){
        .event = on_event, .session = on_session, .request = on_request, .turn = on_turn};
    gb_events_init(&observe->events);
    if (config->trace)
        r = begin_trace(observe, error);
    if (r == 0 && config->event_count > 0)
        r = begin_publisher(observe, error);
    if (r == 0 && config->http)
        r = begin_http(observe, error);
    if (r < 0)
        return r;
    begin_timers(observe);
    server->observer = &observe->observer;
    return 0;
}

void gb_observe_stop(struct gb_observe *observe)
{
    if (!observe->server)
        return;
    observe->server->observer = NULL;
    gb_http_stop(observe->http);
    gb_events_flush(&observe->events); /* the last words of sessions that ended */
}

void gb_observe_end(struct gb_observe *observe)
{
    gb_http_free(observe->http);
    gb_publisher_end(observe->publisher);
    gb_trace_end(observe->trace);
    gb_events_end(&observe->events);
}
