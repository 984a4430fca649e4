/*
 * A lane beside a link: chunks go by the lane from one machine to the other, while all other
 * messages go over the link. A lane is made of UCX's tagged messages, which use RDMA if there is
 * any. They are neither encrypted nor authenticated. Without a lane, chunks go in frames of the
 * link.
 *
 * The machine that fetches makes its end of a lane, and tells its address over the link; the other
 * one does the same, and each connects to the other's. Each chunk has a tag, a random number. Tag
 * and sum are told over the link. If a message with another tag comes, all receives of the lane
 * fail.
 *
 * A lane belongs to one link and ends with it, or before. It has a UCX worker of its own: once the
 * worker has ended, nothing writes to receiving memory any more, whatever the other side does.
 *
 * On the loop's thread. No callback is called before the function that takes it has returned.
 */
#ifndef GB_PEER_LANE_H
#define GB_PEER_LANE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "proto/wire/json.h"

struct gb_peer_lane;
struct gb_peer_ucx;

/* Digits of an address in base64, at most; those of UCX have some hundred. */
enum { GB_PEER_LANE_ADDRESS_MOST = 16384 };

/* All bytes were received or sent; or `status` < 0, and `error` says why. */
typedef void (*gb_peer_lane_cb)(void *user, int status, const struct gb_error *error);

/* `ucx` outlives the lane. NULL: *error says why. */
struct gb_peer_lane *gb_peer_lane_new(const struct gb_peer_ucx *ucx, uv_loop_t *loop,
                                      struct gb_error *error);

/* Connects to the other end's address: once, before anything is sent or received. GPUBUF_E_INVALID,
   GPUBUF_E_UNAVAILABLE. */
int gb_peer_lane_connect(struct gb_peer_lane *lane, const char *address, struct gb_error *error);

/* When this returns the lane touches no memory any more. The callbacks of messages under way are
   called with GPUBUF_E_CANCELED, in this call. NULL is fine. */
void gb_peer_lane_close(struct gb_peer_lane *lane);

/* Writes the member "address" of a JSON object. If UCX has no address the writer is marked as
   failed. */
void gb_peer_lane_write(const struct gb_peer_lane *lane, struct gb_writer *writer);

/* `memory` must stay until `callback`. Exactly `bytes` bytes with that tag must come, else it
   fails. False: memory is out. */
bool gb_peer_lane_receive(struct gb_peer_lane *lane, uint64_t tag, void *memory, size_t bytes,
                          gb_peer_lane_cb callback, void *user);
bool gb_peer_lane_send(struct gb_peer_lane *lane, uint64_t tag, const void *memory, size_t bytes,
                       gb_peer_lane_cb callback, void *user);

#endif
