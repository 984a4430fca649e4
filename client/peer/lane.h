/*
 * A lane beside a link: a way by which chunks go from one machine to another, while everything else
 * that the two tell each other goes over the link. There is one way so far, messages with tags of
 * UCX, which use RDMA where there is any. They are neither encrypted nor authenticated. Chunks that
 * have no lane go in frames of the link.
 *
 * The one that fetches makes its end of a lane, and tells the address over the link; the other one
 * does the same, and each connects to the other's. Each chunk has a tag, a random number that is
 * told over the link, as its sum is. Where anything else comes, all receives of the lane fail.
 *
 * A lane is for one link and ends with it, or before. It has a worker of UCX to itself: once that
 * has ended nothing writes to memory that was to receive, whatever the other side does.
 *
 * On the loop's thread. No callback is called before the function that takes it has returned.
 */
#ifndef GB_LANE_H
#define GB_LANE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "proto/json.h"

struct gb_lane;
struct gb_ucx;

/* Hexadecimal digits of an address, at most; those of UCX have some hundred. */
enum { GB_LANE_ADDRESS_MOST = 16384 };

/* All bytes have come or gone; or status < 0, and why. */
typedef void (*gb_lane_cb)(void *user, int status, const struct gb_error *error);

/* `ucx` outlives it. NULL: *error says why. */
struct gb_lane *gb_lane_new(const struct gb_ucx *ucx, uv_loop_t *loop, struct gb_error *error);

/* To the other end's address, once, before anything is sent or received. GPUBUF_E_INVALID,
   GPUBUF_E_UNAVAILABLE. */
int gb_lane_connect(struct gb_lane *lane, const char *address, struct gb_error *error);

/* Nothing of it touches memory any more when this returns. Calls under way are answered with
   GPUBUF_E_CANCELED, in this call. NULL is fine. */
void gb_lane_close(struct gb_lane *lane);

/* Writes the member "address" of an object of JSON; the writer has failed where there is none. */
void gb_lane_write(const struct gb_lane *lane, struct gb_writer *writer);

/* `memory` stays until `callback`. Exactly `bytes` have come then, with that tag, or it fails.
   False: memory is out. */
bool gb_lane_receive(struct gb_lane *lane, uint64_t tag, void *memory, size_t bytes,
                     gb_lane_cb callback, void *user);
bool gb_lane_send(struct gb_lane *lane, uint64_t tag, const void *memory, size_t bytes,
                  gb_lane_cb callback, void *user);

#endif
