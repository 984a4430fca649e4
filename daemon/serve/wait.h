/*
 * Requests that wait: an `open` waits for names to appear, or for an object to come back to its
 * device; a `create` waits for space. A waiting request keeps its message. It is tried again as a
 * whole when the thing that it waits for may be there, and for the last time when its time is up.
 * Users take turns at that, a request each. It belongs to its session and ends with it.
 *
 * Those that wait for a device, for its space, its driver, or room in a tier below it, are in its
 * queue: evict.c says in which order they are tried.
 */
#ifndef GB_WAIT_H
#define GB_WAIT_H

#include "daemon/base/timer.h"
#include "daemon/spill/evict.h"
#include "proto/wire/json.h"

struct gb_server;
struct gb_session;
struct gb_object;
struct gb_task;
struct gb_missing;

/* The reason to wait, besides names. */
enum gb_wait_for { FOR_NOTHING, FOR_MOVE, FOR_WRITER, FOR_DEVICE };

struct gb_wait {
    struct gb_link of_session, woken;
    struct gb_queued queued; /* for a device; its serial is the order of arrival */
    struct gb_link watching; /* in the list for its storage; of those that wait to write it, in the
                                order of arrival, until they are answered */
    const struct gb_storage *storage;
    struct gb_session *session;
    enum gb_wait_for waits_for;
    struct gb_timer timer;
    uint64_t since_ms, begun_ns; /* by the clock of the metrics; without them 0 */
    struct gb_charge charge;
    uint64_t driver_since;    /* while it waits for a driver to make memory; else 0 */
    struct gb_making making;  /* its part in a job that makes memory for it */
    struct gb_storage **held; /* owned, with a reference and a hold each */
    size_t held_count;
    struct gb_pool pool; /* of the message and the names */
    const char *line;
    size_t length;
    struct gb_task *task; /* has read the message, in place of `line`; owned */
    struct gb_awaited *awaited;
    size_t awaited_count; /* entered in the table */
    int fds[GB_LIMIT(fds)];
    unsigned fd_count;
    bool claims; /* it waits to be the only writer */
    bool late;   /* its time is up: it is tried for the last time */
    bool over;   /* it only waits to leave its names */
};

/* Puts a request aside; `line` NULL: a task has the message, and its user is charged with `length`
   bytes. NULL: memory is out. */
struct gb_wait *gb_wait_new(struct gb_session *session, const char *line, size_t length);
/* Takes over the request's descriptors. */
void gb_wait_take_fds(struct gb_wait *wait, const int *fds, unsigned count);
/* Has names, which are copied, wake the request when they appear, unless it waits for names
   already: a request that waited for content to come back may lack a name by then. `asks`:
   providers may be asked for them. GPUBUF_E_NO_MEMORY. */
int gb_wait_for_names(struct gb_wait *wait, const struct gb_string *names, size_t count, bool asks);
/* Ends the wait, and frees it with its message and descriptors. */
void gb_wait_end(struct gb_wait *wait);

/* The bytes that a user is charged with for a request of `length` bytes that waits for `count`
   names. */
uint64_t gb_wait_bytes(size_t length, size_t count);

/* ---- the reason to wait, besides names: one of these at a time ---- */

/* Waits for the device: for `need` bytes of its space; or, if that is 0, for its driver, room in a
   tier, or any change. `arriving`: the daemon's own work will bring the bytes, and no lease has to
   end for them. Claims room in the tier `full_tier`, which it lacks (GB_TIERS: in none). */
void gb_wait_for_device(struct gb_wait *wait, struct gb_device *device, uint64_t need,
                        bool arriving, enum gb_tier_kind full_tier);
/* Whether it waits for nothing but the daemon's own work. */
bool gb_wait_comes(const struct gb_wait *wait);
/* Waits for the end of a storage's move. */
void gb_wait_for_move(struct gb_wait *wait, struct gb_storage *storage);
/* Besides, wakes the request with those that wait for the storage's move: it needs its content, and
   waits for room, until it waits for something else. */
void gb_wait_watch(struct gb_wait *wait, struct gb_storage *storage);
/* Waits to write a live object (`claims`: as its only writer): for its turn among requests that do,
   or for the name's next object. */
void gb_wait_to_write(struct gb_wait *wait, struct gb_storage *storage, bool claims);
/* The first request that waits to write the object, came before this one (NULL: a new one), and
   must not be overtaken by it: either of them claims it. NULL: there is none. */
const struct gb_wait *gb_wait_to_write_before(struct gb_server *server,
                                              const struct gb_storage *storage,
                                              const struct gb_wait *wait, bool claims);

/* Waits for none of these any more, since a name has to appear first, and holds nothing. */
void gb_wait_for_names_only(struct gb_wait *wait);

/* Holds a storage where it is until the wait ends, or the request waits for a device or
   names only: no request holds memory while it waits for others'. Does nothing if the wait holds
   it already. GPUBUF_E_NO_MEMORY. */
int gb_wait_hold(struct gb_wait *wait, struct gb_storage *storage);

/* Why the content of a storage that the wait holds was lost; NULL if none was. */
const struct gb_error *gb_wait_failure(const struct gb_wait *wait);

/* The i-th name; NULL if it does not wait for that many. */
const struct gb_missing *gb_wait_missing(const struct gb_wait *wait, size_t i);

/* Sets the end of the wait, or moves it, which cannot fail. False: memory is out. */
bool gb_wait_until(struct gb_wait *wait, uint64_t until_ms);

/* The device's. */
struct gb_queue *gb_waits_queue(struct gb_server *server, const struct gb_device *device);

/* Wakes the requests that need the storage's content: its move has ended, or a name does not mean
   it any more. Or a writer of live content has ended: wakes the first request that waits to write
   it; the next is woken when that has been answered. */
void gb_waits_wake(struct gb_server *server, struct gb_storage *storage);
/* Tries requests that were woken, and continues the rounds of devices: one request of each at
   least, and then until that time of uv_hrtime(). */
void gb_waits_run(struct gb_server *server, uint64_t until);
/* Whether a request could be tried now. */
bool gb_waits_have_more(const struct gb_server *server);
/* Ends the waits of a session. Their names, thousands perhaps, are left in pieces, at most that
   many of them at a time; returns how many, 0 if none is left. */
void gb_waits_end_session(struct gb_session *session);
unsigned gb_waits_leave_some(struct gb_session *session, unsigned most);

#endif
