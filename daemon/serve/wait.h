/*
 * Requests that wait: an `open` for names to appear, or for an object to come back to its device, a
 * `create` for space. A waiting request keeps its message and is tried anew as a whole when what it
 * waits for may have come, and for the last time when its time is up. It belongs to its session and
 * ends with it.
 *
 * Each device has one queue, in the order of arrival: of requests that wait for its driver, for its
 * space, and for room in a tier below it. When something has changed on the device, a *round* tries
 * the requests in that order, but for those that could not be served whatever left. A round that
 * takes longer than its slice of time goes on in the next turn of the loop where it stopped, or, if
 * the device has changed meanwhile, at the beginning.
 *
 * A request for fewer bytes may pass an older one that others' leases hold up, but only while the
 * older one is none the later for it: the requests that passed it and are still held, and the bytes
 * that the older one needs, must fit into the device together.
 */
#ifndef GB_WAIT_H
#define GB_WAIT_H

#include "daemon/memory/device.h"
#include "daemon/memory/store.h"
#include "proto/json.h"

struct gb_server;
struct gb_session;
struct gb_object;
struct gb_task;
struct gb_missing;

struct gb_wait;
struct gb_waits; /* server.h */

/* Puts a request aside. `names` (`count` may be 0) are those whose appearance wakes it; copied. The
   descriptors are taken over. `since_ms` is when it was first tried. `line` NULL: a task has the
   message, and `length` says what it costs. `asks`: providers may be asked for the names. 0 or
   GPUBUF_E_NO_MEMORY. */
int gb_wait_new(struct gb_session *session, const char *line, size_t length, int *fds,
                unsigned fd_count, const struct gb_string *names, size_t count, bool asks,
                uint64_t since_ms, uint64_t until_ms, struct gb_wait **wait);
/* Their appearance wakes it, too, from now on, unless it waits for names already: one that waited
   for content to come back may lack another name by then. GPUBUF_E_NO_MEMORY. */
int gb_wait_for_names(struct gb_wait *wait, const struct gb_string *names, size_t count, bool asks);
void gb_wait_end(struct gb_wait *wait);

struct gb_session *gb_wait_session(const struct gb_wait *wait);
const char *gb_wait_line(const struct gb_wait *wait, size_t *length);
/* The task that has read the message, if it was long; owned. NULL: there is none. */
void gb_wait_keep_task(struct gb_wait *wait, struct gb_task *task);
struct gb_task *gb_wait_task(const struct gb_wait *wait);
int *gb_wait_fds(struct gb_wait *wait, unsigned *count);
/* The bytes that a user is charged with for a request of `length` bytes that waits for `count`
   names. */
uint64_t gb_wait_bytes(size_t length, size_t count);
uint64_t gb_wait_since(const struct gb_wait *wait);
/* The same by the clock of the metrics; without them 0. */
uint64_t gb_wait_begun_ns(const struct gb_wait *wait);

/* The reason to wait, besides names; one of these at a time. */

/* Room for `bytes` on a device. `comes`: it is on its way, and nobody else is waited for. It
   claims room in the tier that it lacks for that (GB_TIERS: none). */
void gb_wait_for_space(struct gb_wait *wait, struct gb_device *device, uint64_t bytes,
                       bool arriving, enum gb_tier_kind full_tier);
/* The device's driver, to make memory, since then. It does not stand behind requests that wait for
   space, since these may wait for ever. */
void gb_wait_for_driver(struct gb_wait *wait, struct gb_device *device, uint64_t since_ms);
uint64_t gb_wait_driver_since(const struct gb_wait *wait); /* 0: it does not */
/* Whether it waits for nothing but the daemon's own work. */
bool gb_wait_comes(const struct gb_wait *wait);
/* The end of a storage's move. */
void gb_wait_for_storage(struct gb_wait *wait, struct gb_storage *storage);
/* Room in a tier, with a claim, and any change on the device. */
void gb_wait_for_tier(struct gb_wait *wait, struct gb_device *device, enum gb_tier_kind full_tier);

/* Keeps a storage where it is until the wait ends. Fine if it does already. GPUBUF_E_NO_MEMORY. */
int gb_wait_hold(struct gb_wait *wait, struct gb_storage *storage);

/* Why the content of one of these was lost; NULL if none was. */
const struct gb_error *gb_wait_failure(const struct gb_wait *wait);

/* Whether a request that needs `bytes` of the device may be served before those that wait. If
   not, *comes says whether these wait for nothing but the daemon's own work. */
bool gb_waits_let_pass(const struct gb_device *device, uint64_t bytes, bool *arriving);
/* Whether requests wait for its space that are older than this one (NULL: than a new one). */
bool gb_waits_older(const struct gb_device *device, const struct gb_wait *wait);

/* The state of the i-th of the names; NULL if it does not wait for that. */
const struct gb_missing *gb_wait_missing(const struct gb_wait *wait, size_t i);

/* In the order of arrival. */
uint64_t gb_wait_serial(const struct gb_wait *wait);

/* Moves the end of the wait. */
void gb_wait_until(struct gb_wait *wait, uint64_t until_ms);
/* The memory that it waits for. */
struct gb_making *gb_wait_making(struct gb_wait *wait);

void gb_waits_init(struct gb_waits *waits);
/* A move of the storage's has ended. */
void gb_waits_moved(struct gb_server *server, struct gb_storage *storage);
/* Tries requests that were woken, and the rounds of devices on which something has changed: one
   request of each at least, and then as long as there is time (`until`: of uv_hrtime()). */
void gb_waits_run(struct gb_server *server, uint64_t until);
/* Whether a request could be tried now. */
bool gb_waits_have_more(const struct gb_server *server);
/* Ends the waits of a session. */
void gb_waits_end_session(struct gb_session *session);

#endif
