/*
 * The account of each uid: sessions, objects, segments, leases, text, bytes on each device,
 * descriptors; and whether that leaves room for more. Every resource is charged to somebody, so
 * that quotas can be kept: bytes by charge.h. Pure; not thread-safe.
 *
 * Descriptors are limited by the system, for all users together, so they are *stocks*. A user may
 * have as much of a stock as is left for others: alone up to half of it, beside one who has that,
 * half of the rest, and so on. So no few users can use a stock up, and no number has to be chosen
 * for a user; of n who take all they can, the last leaves 1 / 2^n. A user is refused before the
 * system would refuse everybody.
 */
#ifndef GB_USER_H
#define GB_USER_H

#include <sys/types.h>

#include "daemon/base/hash.h"
#include "daemon/base/list.h"
#include "daemon/memory/quota.h"

enum gb_stock_kind {
    GB_STOCK_OPEN,   /* of the daemon: sessions, segments, what was sent, what waits to be */
    GB_STOCK_KEPT,   /* those that the service manager keeps: one for each segment */
    GB_STOCK_FLIGHT, /* those that were sent and may not have been received */
    GB_STOCKS,
};

struct gb_stock {
    uint64_t most; /* UINT64_MAX: no limit */
    uint64_t used; /* by all users */
};

struct gb_users {
    struct gb_hash_table table;
    struct gb_link all; /* in the order in which they came */
    struct gb_quotas quotas;
    struct gb_stock stocks[GB_STOCKS];
    uint64_t open_files; /* that the daemon may open; 0: any number */
};

/* Descriptors that a user has sent and that are yet to be closed: closer.h. */
struct gb_foreign {
    struct gb_link of_closer;
    struct gb_user *user; /* with a reference while there are any; NULL: nobody's */
    int *fds;             /* a queue: `count` from `first` on; owned */
    unsigned first, count, capacity;
    bool in_hand; /* one more is being closed */
};

struct gb_user {
    struct gb_hash_link link;
    struct gb_link of_users;
    struct gb_users *users;
    const struct gb_quota *quota;
    uid_t uid;
    uint64_t references;
    uint64_t sessions, objects, segments, watches, provides, waits, leases;
    uint64_t text_bytes;           /* of its objects' names, layouts and metadata */
    uint64_t held_bytes, held_fds; /* kept for its sessions: see limits.h */
    struct gb_foreign received,
        ended; /* descriptors, connections: yet to be closed, and in held_fds */
    /* By the device's index; charge.h says what counts. */
    uint64_t bytes[GB_DEVICES];    /* of what it has */
    uint64_t nameless[GB_DEVICES]; /* of them, of versions without a name */
    uint64_t held[GB_DEVICES];     /* of the device's memory */
    uint64_t retiring[GB_DEVICES]; /* of held: its segments that are to go, but for who maps them */
    uint64_t freeing[GB_DEVICES];  /* of held: being given back */
    uint64_t stocks[GB_STOCKS];    /* its part of what is used */
    /* The server's: its sessions that are busy, and those that drain; its place among users. */
    struct gb_link busy, draining, turn;
    bool drains; /* it is the turn of one that drains */
};

static inline bool gb_user_has_busy(const struct gb_user *user)
{
    return !gb_list_empty(&user->busy) || !gb_list_empty(&user->draining);
}

void gb_users_init(struct gb_users *users);
/* The record of a uid, made if need be, with a reference added; NULL if memory is out. */
struct gb_user *gb_user_get(struct gb_users *users, uid_t uid);
struct gb_user *gb_user_ref(struct gb_user *user);
void gb_user_unref(struct gb_user *user); /* NULL is fine */
/* After the last record has gone. */
void gb_users_end(struct gb_users *users);

/* Sets how many descriptors there are for users, from the numbers that the daemon may open, that
   the service manager keeps, and that may be in flight (0: any number). */
void gb_users_stock(struct gb_users *users, uint64_t open_files, uint64_t stored_files,
                    uint64_t sent_files);
/* Whether the daemon has no descriptors left for users, those for spared sessions included. */
bool gb_users_are_short(const struct gb_users *users);
/* How many more of a stock the user may have now. */
uint64_t gb_user_room(const struct gb_user *user, enum gb_stock_kind kind);
/* The same as a limit: GPUBUF_E_LIMIT if `more` are too many. */
int gb_user_may_take(const struct gb_user *user, enum gb_stock_kind kind, uint64_t more,
                     struct gb_error *error);
/* Charges the user with `more`, which may be negative. Existing things are charged in any case. */
void gb_user_take(struct gb_user *user, enum gb_stock_kind kind, int64_t more);
/* The same of descriptors that it has sent and that wait: held_fds. */
void gb_user_hold_fds(struct gb_user *user, int64_t more);

/* Whether the user may have `more` (GB_QUOTA_BYTES: on that device; else NULL), and the
   descriptors that these take. GPUBUF_E_LIMIT if not, saying whose quota it is, and how much of it
   is used and left. */
int gb_user_may_have(const struct gb_user *user, enum gb_quota_kind kind,
                     const struct gb_device *device, uint64_t more, struct gb_error *error);
/* Whether it may hold `more` bytes of the device's memory. The same quota, and the same
   error. */
int gb_user_may_hold(const struct gb_user *user, const struct gb_device *device, uint64_t more,
                     struct gb_error *error);
/* Whether it may open what lies on the device: not while versions without a name, which it holds
   open, take it past its quota. GPUBUF_E_LIMIT. */
int gb_user_may_open(const struct gb_user *user, const struct gb_device *device,
                     struct gb_error *error);

#endif
