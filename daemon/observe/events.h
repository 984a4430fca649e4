/*
 * Events for those who are no session: operators' tools, the page. Every event has a number, which
 * the server gives whether anybody listens or not. What is to be told is rendered on the loop's
 * thread, gathered in a batch, and handed to the outlets every few milliseconds; whatever becomes
 * of it there costs the loop nothing.
 */
#ifndef GB_EVENTS_H
#define GB_EVENTS_H

#include "daemon/objects/registry.h"
#include "daemon/observe/feed.h"
#include "proto/json.h"

#define GB_EVENTS_OUTLETS 2

struct gb_server;

struct gb_events {
    struct gb_outlet *outlets[GB_EVENTS_OUTLETS]; /* the caller's */
    unsigned outlet_count;
    struct gb_batch *batch; /* not handed over yet; NULL: nothing */
    uint64_t flushed_ms;
    struct gb_writer writer;
};

void gb_events_init(struct gb_events *events);
void gb_events_end(struct gb_events *events);
/* From now on every batch goes to the outlet too, while it has takers. */
void gb_events_attach(struct gb_events *events, struct gb_outlet *outlet);
/* A name has got its object, or is about to lose it: the event of that number. */
void gb_events_note(struct gb_events *events, uint64_t seq, enum gb_event event,
                    const struct gb_object *object);
/* The figures of the moment, for all who listen: `stats`, with the number of the last event. */
void gb_events_tick(struct gb_events *events, struct gb_server *server);
/* Hands over what has been noted. */
void gb_events_flush(struct gb_events *events);
/* The end of a turn: hands over what has been noted if that is due. If it is not, true: the caller
   is to call gb_events_flush in GB_EVENTS_GATHER_MS. Waking another thread costs more than a dozen
   events. */
bool gb_events_turn(struct gb_events *events, uint64_t now_ms);
#define GB_EVENTS_GATHER_MS 2

#endif
