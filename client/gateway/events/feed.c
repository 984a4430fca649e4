#include "client/gateway/events/feed.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/gateway/base/answer.h"
#include "client/gateway/base/ask.h"
#include "client/gateway/base/clock.h"
#include "proto/wire/log.h"

#define TICK_MS 1000
#define CONNECT_MS 1000
#define AGAIN_MS 300   /* until the next try to connect */
#define ANSWER_MS 5000 /* without an answer; then the daemon counts as down */

/* ---- telling ---- */

static void publish_event(struct gb_gateway_feed *feed, struct gb_gateway_told *told,
                          const char *topic, size_t topic_length, const char *public_topic)
{
    /* Memory is out: the gap in the numbers shows the loss. */
    if (!told->text[0] || !told->text[1] || !topic) {
        if (told->text[0] != told->text[1])
            free(told->text[1]);
        free(told->text[0]);
        return;
    }
    if (feed->publish)
        gb_gateway_publish(feed->publish, told, topic, topic_length, public_topic);
    gb_gateway_ring_put(feed->ring, told);
}

/* Tells all readers the same. */
static void publish_to_all(struct gb_gateway_feed *feed, struct gb_writer *writer,
                           struct gb_gateway_told *told, const char *topic)
{
    told->text[0] = told->text[1] = gb_writer_take(writer, &told->length[0]);
    told->length[1] = told->length[0];
    publish_event(feed, told, topic, strlen(topic), topic);
}

/* The daemon did not tell the events up to `seq`, which concern objects that the gateway may not
   see. Tells how many they were. */
static void tell_hidden(struct gb_gateway_feed *feed, uint64_t seq)
{
    struct gb_gateway_told told = {.seq = seq, .before = feed->seq};
    struct gb_writer writer;

    if (!feed->counting || seq <= feed->seq)
        return;
    gb_writer_init(&writer, 0);
    gb_write_format(&writer,
                    "{\"seq\":%" PRIu64 ",\"count\":%" PRIu64 ",\"time_ms\":%" PRIi64
                    ",\"kind\":\"private\",\"private\":true}",
                    seq, seq - feed->seq, gb_gateway_wall_ms());
    publish_to_all(feed, &writer, &told, "private ");
    feed->seq = seq;
}

struct event {
    uint64_t seq;
    struct gb_string kind;
    struct gb_json object, placements, lost;
};

struct object {
    struct gb_string name, mode, device;
};

static void write_head(struct gb_writer *writer, const struct event *event)
{
    gb_writer_init(writer, 0);
    gb_write_format(writer, "{\"seq\":%" PRIu64 ",\"time_ms\":%" PRIi64 ",\"kind\":\"%s\"",
                    event->seq, gb_gateway_wall_ms(), event->kind.text);
}

static char *whole(const struct event *event, size_t *length)
{
    struct gb_writer writer;

    write_head(&writer, event);
    GB_WRITE_LITERAL(&writer, ",\"object\":");
    gb_gateway_write_copy(&writer, event->object);
    if (event->placements.text) {
        GB_WRITE_LITERAL(&writer, ",\"placements\":");
        gb_gateway_write_copy(&writer, event->placements);
    }
    if (event->lost.text)
        GB_WRITE_LITERAL(&writer, ",\"lost\":true");
    gb_write_char(&writer, '}');
    return gb_writer_take(&writer, length);
}

/* The event about a private object, for everybody: its kind and the device, without the name. */
static char *nameless(const struct event *event, const struct object *object, size_t *length)
{
    struct gb_writer writer;

    write_head(&writer, event);
    GB_WRITE_LITERAL(&writer, ",\"private\":true,\"device\":");
    gb_write_string(&writer, object->device.text, object->device.length);
    gb_write_char(&writer, '}');
    return gb_writer_take(&writer, length);
}

static void tell_event(struct gb_gateway_feed *feed, const struct event *event,
                       const struct object *object)
{
    struct gb_gateway_told told = {.seq = event->seq,
                                   .before = feed->counting ? feed->seq : event->seq - 1};
    struct gb_writer topic;
    char kind[32];
    bool same = gb_gateway_is_public(&object->mode);

    told.text[GB_GATEWAY_AUDIENCE_ALL] = whole(event, &told.length[GB_GATEWAY_AUDIENCE_ALL]);
    if (same) {
        told.text[GB_GATEWAY_AUDIENCE_PUBLIC] = told.text[GB_GATEWAY_AUDIENCE_ALL];
        told.length[GB_GATEWAY_AUDIENCE_PUBLIC] = told.length[GB_GATEWAY_AUDIENCE_ALL];
    } else {
        told.text[GB_GATEWAY_AUDIENCE_PUBLIC] =
            nameless(event, object, &told.length[GB_GATEWAY_AUDIENCE_PUBLIC]);
    }
    gb_writer_init(&topic, 0);
    gb_write_format(&topic, "%s ", event->kind.text);
    snprintf(kind, sizeof(kind), "%s ", event->kind.text);
    gb_write(&topic, object->name.text, object->name.length);
    publish_event(feed, &told, topic.failed ? NULL : topic.data, topic.length, same ? NULL : kind);
    gb_writer_end(&topic);
    feed->seq = event->seq;
    feed->counting = true;
}

static void on_event(struct gpubuf_client *client, const char *text, size_t length, void *arg)
{
    static const struct gb_field event_fields[] = {
        GB_FIELD(struct event, seq, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct event, kind, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, 16),
        GB_FIELD(struct event, object, GB_FIELD_OBJECT, 0, 0, 0),
        GB_FIELD(struct event, placements, GB_FIELD_ARRAY, 0, 0, 0),
        GB_FIELD(struct event, lost, GB_FIELD_ANY, 0, 0, 0),
    };
    static const struct gb_field object_fields[] = {
        GB_FIELD(struct object, name, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct object, mode, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct object, device, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, 0),
    };
    struct gb_gateway_feed *feed = arg;
    struct gb_path path = {.key = "event"};
    struct event event = {0};
    struct object object = {0};
    struct gb_error error;

    gb_pool_reset(&feed->pool);
    if (gb_json_read_text(text, length, event_fields, 5, "event", &feed->pool, &event, &error) <
            0 ||
        !event.object.text ||
        gb_json_read(event.object, object_fields, 3, GB_UNKNOWN_IGNORE, &path, &feed->pool, &object,
                     NULL, &error) < 0)
        return; /* an event of a later version: its number is missing */
    if (feed->counting && event.seq <= feed->seq)
        return;
    tell_hidden(feed, event.seq - 1);
    tell_event(feed, &event, &object);
}

/* ---- figures ---- */

static void tell_stats(struct gb_gateway_feed *feed, const struct gb_gateway_stats *stats)
{
    struct gb_gateway_told told = {.seq = stats->seq, .before = stats->seq, .stats = true};
    struct gb_writer writer;

    gb_writer_init(&writer, 0);
    gb_gateway_stats_write(&writer, stats);
    publish_to_all(feed, &writer, &told, "stats ");
}

struct device {
    struct gb_string id;
    uint64_t used;
};

static void note_devices(struct gb_gateway_feed *feed, struct gb_json devices)
{
    static const struct gb_field fields[] = {
        GB_FIELD(struct device, id, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct device, used, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0),
    };
    struct gb_json_walk walk = gb_json_walk(devices);
    struct gb_path path = {.key = "devices"};
    int64_t now = gb_gateway_wall_ms();
    struct gb_error error;
    struct gb_json item;

    while (gb_json_next(&walk, NULL, &item)) {
        struct device device = {0};

        if (gb_json_read(item, fields, 2, GB_UNKNOWN_IGNORE, &path, &feed->pool, &device, NULL,
                         &error) == 0)
            gb_gateway_history_note(feed->history, &device.id, device.used, now);
    }
}

static void on_stats(struct gpubuf_client *client, int status, const char *result, size_t length,
                     void *arg)
{
    struct gb_gateway_feed *feed = arg;
    struct gb_gateway_stats stats;
    struct gb_error error;

    feed->asked = false;
    atomic_store(&feed->up, true);
    gb_pool_reset(&feed->pool);
    if (status < 0 || gb_gateway_stats_read(result, length, &feed->pool, &stats, &error) < 0)
        return;
    if (strcmp(feed->instance, stats.instance.text) != 0) {
        gb_gateway_ring_clear(feed->ring);
        gb_gateway_history_clear(feed->history);
        strcpy(feed->instance, stats.instance.text);
        feed->counting = false;
    }
    tell_hidden(feed, stats.seq);
    feed->seq = stats.seq;
    feed->counting = true;
    tell_stats(feed, &stats);
    note_devices(feed, stats.devices);
}

/* ---- the connection ---- */

static int connect_to(struct gb_gateway_feed *feed)
{
    struct gpubuf_connect_options options = {
        .size = sizeof(options),
        .path = feed->socket,
        .client_name = GB_GATEWAY_NAME,
        .timeout_ms = (int)gb_gateway_deadline_ms(CONNECT_MS),
        .resume_ms = GPUBUF_NO_RESUME,
    };
    int r = gpubuf_connect(&feed->client, &options);

    if (r < 0) {
        if (!feed->complained)
            gb_log(GB_LOG_WARNING, "no daemon yet, trying again",
                   GB_LOG_TEXT("why", gpubuf_errmsg(NULL)));
        feed->complained = true;
        return r;
    }
    feed->counting = feed->asked = false;
    if (strcmp(feed->instance, gpubuf_instance(feed->client)) != 0) {
        gb_gateway_ring_clear(feed->ring);
        gb_gateway_history_clear(feed->history);
    }
    snprintf(feed->instance, sizeof(feed->instance), "%s", gpubuf_instance(feed->client));
    r = gpubuf_watch_json(feed->client, "{\"existing\":false,\"placements\":true}", on_event, feed,
                          NULL);
    if (r < 0) {
        gb_log(GB_LOG_WARNING, "cannot watch the daemon",
               GB_LOG_TEXT("why", gpubuf_errmsg(feed->client)));
        gpubuf_disconnect(feed->client);
        return r;
    }
    gb_log(GB_LOG_INFO, "connected", GB_LOG_TEXT("instance", feed->instance));
    feed->complained = false;
    atomic_store(&feed->up, true);
    return 0;
}

/* Sleeps. True: the thread is to end. */
static bool pause_until(struct gb_gateway_feed *feed, int64_t ms)
{
    struct pollfd stop = {feed->stop_fd, POLLIN, 0};

    return poll(&stop, 1, (int)ms) > 0;
}

/* Follows one connection to its end. True: the thread is to end. */
static bool follow(struct gb_gateway_feed *feed)
{
    int64_t tick = gb_gateway_clock_ms();

    for (;;) {
        int64_t now = gb_gateway_clock_ms();
        struct pollfd polled[2] = {{feed->stop_fd, POLLIN, 0}, {gpubuf_fd(feed->client), 0, 0}};

        if (now >= tick) {
            /* One question at a time: the next one waits for the answer. */
            if (!feed->asked &&
                gpubuf_call_async(feed->client, "stats", NULL, on_stats, feed, NULL) == 0) {
                feed->asked = true;
                feed->asked_ms = now;
            }
            if (feed->asked && now - feed->asked_ms >= gb_gateway_deadline_ms(ANSWER_MS))
                atomic_store(&feed->up, false);
            tick = now + TICK_MS;
        }
        polled[1].events = gpubuf_events(feed->client);
        poll(polled, 2, (int)(tick - now));
        if (polled[0].revents)
            return true;
        if (gpubuf_dispatch(feed->client) < 0)
            return false;
    }
}

static void *run(void *arg)
{
    struct gb_gateway_feed *feed = arg;
    bool stop = false;

    while (!stop) {
        if (connect_to(feed) < 0) {
            stop = pause_until(feed, AGAIN_MS);
            continue;
        }
        stop = follow(feed);
        atomic_store(&feed->up, false);
        if (!stop)
            gb_log(GB_LOG_WARNING, "daemon disconnected, trying again",
                   GB_LOG_TEXT("why", gpubuf_errmsg(feed->client)));
        gpubuf_disconnect(feed->client);
        feed->client = NULL;
        stop = stop || pause_until(feed, AGAIN_MS);
    }
    return NULL;
}

int gb_gateway_feed_start(struct gb_gateway_feed *feed, struct gb_error *error)
{
    feed->stop_fd = eventfd(0, EFD_CLOEXEC);
    if (feed->stop_fd < 0)
        return gb_fail_errno(error, "cannot make an event descriptor");
    if (pthread_create(&feed->thread, NULL, run, feed) != 0) {
        close(feed->stop_fd);
        return gb_fail(error, GPUBUF_E_SYSTEM, "cannot start a thread");
    }
    return 0;
}

void gb_gateway_feed_stop(struct gb_gateway_feed *feed)
{
    uint64_t one = 1;

    (void)!write(feed->stop_fd, &one, sizeof(one));
    pthread_join(feed->thread, NULL);
    close(feed->stop_fd);
    gb_pool_end(&feed->pool);
}
