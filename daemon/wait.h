/*
 * Requests that wait: an `open` for names to appear, a `create` for space. A waiting request keeps
 * its message and is tried anew as a whole when what it waits for may have come, and for the last
 * time when its time is up. It belongs to its session and ends with it.
 */
#ifndef GB_WAIT_H
#define GB_WAIT_H

#include "device.h"
#include "hash.h"
#include "list.h"
#include "proto/json.h"
#include "store.h"

struct gb_server;
struct gb_session;
struct gb_object;

struct gb_waits {
    struct gb_hash_table names; /* of struct gb_awaited */
    struct gb_link woken;       /* waits to be tried at the end of the turn */
};

struct gb_wait;

/* Puts a request aside. `names` (may be NULL: waits for space on `device`) are copied. The
   descriptors are taken over. `since_ms` is when it was first tried. 0 or GPUBUF_E_NO_MEMORY. */
int gb_wait_new(struct gb_session *session, const char *line, size_t length, int *fds,
                unsigned fd_count, struct gb_device *device, const struct gb_string *names,
                size_t count, uint64_t since_ms, uint64_t until_ms, struct gb_wait **wait);
void gb_wait_end(struct gb_wait *wait);

struct gb_session *gb_wait_session(const struct gb_wait *wait);
const char *gb_wait_line(const struct gb_wait *wait, size_t *length);
int *gb_wait_fds(struct gb_wait *wait, unsigned *count);
uint64_t gb_wait_since(const struct gb_wait *wait);
/* It waits for the device's driver since then, to make or to take back memory; 0: it waits for others
   to let go. Those who wait for the driver are tried first: they do not stand behind those who may
   wait for ever, and nobody takes what was made for them. */
void gb_wait_expect(struct gb_wait *wait, uint64_t since_ms);
uint64_t gb_wait_expects_since(const struct gb_wait *wait);
/* Moves the end of the wait. */
void gb_wait_until(struct gb_wait *wait, uint64_t until_ms);
/* The memory that it waits for. */
struct gb_making *gb_wait_making(struct gb_wait *wait);

void gb_waits_init(struct gb_waits *waits);
void gb_waits_end(struct gb_waits *waits);
/* A name has got an object. */
void gb_waits_name(struct gb_server *server, const struct gb_object *object);
/* Tries what was woken, and what waits for space on devices where some was freed, in order. */
void gb_waits_run(struct gb_server *server);
/* Ends the waits of a session. */
void gb_waits_end_session(struct gb_session *session);

#endif
