/*
 * The account of each uid: sessions, objects, segments, leases, text, bytes on each device,
 * descriptors; and whether that leaves room for more. Every resource is charged to a user, so that
 * quotas can be kept; stake.h decides who is charged with bytes. Pure; not thread-safe.
 *
 * The system limits descriptors for all users together, so they are *stocks*. A user may have as
 * much of a stock as is left for others: the first user up to half of it, a second one up to half
 * of the rest, and so on. After n users who take all they can, 1 / 2^n of the stock is left. So no
 * number has to be chosen for a user, and a user is refused before the system refuses everybody.
 */
#ifndef GB_USER_H
#define GB_USER_H

#include <sys/types.h>

#include "daemon/base/hash.h"
#include "daemon/store/quota.h"
#include "proto/base/list.h"

enum gb_stock_kind {
    GB_STOCK_OPEN,   /* open in the daemon: of sessions and segments, received, and to be sent */
    GB_STOCK_KEPT,   /* kept by the service manager: one for each segment */
    GB_STOCK_FLIGHT, /* sent, and perhaps not received */
    GB_STOCKS,
    /* No stocks: what is held for the user's sessions, see limits.h. */
    GB_HELD_FDS = GB_STOCKS, /* also open */
    GB_HELD_BYTES,
    GB_HELD_WAITS, /* requests that wait */
    GB_CHARGES,
};

struct gb_stock {
    uint64_t most; /* UINT64_MAX: no limit */
    uint64_t used; /* by all users */
};

struct gb_users {
    struct gb_hash_table table;
    struct gb_link all;  /* in the order in which they first connected */
    struct gb_link past; /* gb_user_excess() of these is not 0 on some device */
    struct gb_quotas quotas;
    struct gb_stock stocks[GB_STOCKS];
    uint64_t open_files, left_files; /* that the daemon may open; beside its own. 0: any number */
    size_t record_bytes; /* of a user's record: a room above may have it begin with struct gb_user,
                            and go on with what it keeps of the user, zeroed at first */
};

/* The part of its user's account that one thing takes, as a session or a segment. It is a member of
   that thing, and ends with it. Zeroed at first, but for `user`, who outlives it; NULL: nobody's.
   The end of a user asserts that all its charges have ended. */
struct gb_charge {
    struct gb_user *user;
    uint64_t amounts[GB_CHARGES];
};

struct gb_user {
    struct gb_hash_link link;
    struct gb_link of_users, of_past;
    struct gb_users *users;
    const struct gb_quota *quota;
    uid_t uid;
    uint64_t references;
    uint64_t has[GB_QUOTA_BYTES], watches, provides;
    /* By the device's index; stake.h says what counts. */
    uint64_t bytes[GB_DEVICES];    /* of objects */
    uint64_t nameless[GB_DEVICES]; /* of bytes: versions without a name */
    uint64_t held[GB_DEVICES];     /* of the device's memory */
    uint64_t retiring[GB_DEVICES]; /* of held: segments to be freed that sessions still map */
    uint64_t freeing[GB_DEVICES];  /* of held: being given back */
    /* Of versions without a name, in the order in which they lost it. */
    struct gb_link nameless_stakes[GB_DEVICES];
    uint64_t asked_back_ms[GB_DEVICES]; /* since when it is asked for its excess; 0: it is not */
    uint64_t past;                      /* a bit for each device on which it has an excess */
    uint64_t charges[GB_CHARGES];       /* of all its charges; its part of each stock's `used` */
    uint64_t
        writers;    /* sessions that write live memory, or have ended while their process has not */
    unsigned slots; /* of the object that lease.c looks at: its leases with a slot */
};

void gb_users_init(struct gb_users *users);
/* The record of a uid, made if need be, with a reference added; NULL if memory is out. */
struct gb_user *gb_user_get(struct gb_users *users, uid_t uid);
struct gb_user *gb_user_ref(struct gb_user *user);
void gb_user_unref(struct gb_user *user); /* NULL is fine */
/* To be called after the last record is freed. */
void gb_users_end(struct gb_users *users);

/* Sets the stocks from the numbers of descriptors that the daemon may open, that the service
   manager keeps, and that may be in flight (0: any number). */
void gb_users_stock(struct gb_users *users, uint64_t open_files, uint64_t stored_files,
                    uint64_t sent_files);
/* Lowers the stock of those that may be open if the daemon itself needs more of them than are
   reserved, as a GPU's driver does: by `own`, and some to serve a request with. */
void gb_users_reserve(struct gb_users *users, uint64_t own);
/* Whether the daemon is out of descriptors for users, even for the few sessions that each user may
   have in any case. */
bool gb_users_are_short(const struct gb_users *users);
/* How many more of a stock the user may have now. */
uint64_t gb_user_room(const struct gb_user *user, enum gb_stock_kind kind);
/* Whether the user may have `more` of a stock now; else GPUBUF_E_LIMIT. */
int gb_user_may_charge(const struct gb_user *user, enum gb_stock_kind kind, uint64_t more,
                       struct gb_error *error);
/* Sets what is charged, without asking whether the user may have it. */
void gb_charge_set(struct gb_charge *charge, enum gb_stock_kind kind, uint64_t amount);
/* Gives all of it back. */
void gb_charge_end(struct gb_charge *charge);

/* How far memory of a device is with which its user is charged: a segment's, or one that is being
   made. */
enum gb_memory_state {
    GB_MEMORY_NONE, /* not charged */
    GB_MEMORY_MAKING,
    GB_MEMORY_MADE,
    GB_MEMORY_RETIRING, /* sessions were asked to unmap it for good */
    GB_MEMORY_FREEING,
};
/* Moves the bytes from the accounts of one state, of the user and the device, to those of another.
   Each change of a state goes through here. */
void gb_memory_become(enum gb_memory_state *state, enum gb_memory_state next, struct gb_user *user,
                      struct gb_device *device, uint64_t bytes);

/* Whether the user may have `more` of a kind (GB_QUOTA_BYTES: on that device, else NULL), with the
   descriptors that these take. Else GPUBUF_E_LIMIT; the sentence names the user, and how much of
   its quota is used and left. */
int gb_user_may_have(const struct gb_user *user, enum gb_quota_kind kind,
                     const struct gb_device *device, uint64_t more, struct gb_error *error);
/* Whether the user may hold `more` bytes of the device's memory, by its quota of bytes. Else
   GPUBUF_E_LIMIT. */
int gb_user_may_occupy(const struct gb_user *user, const struct gb_device *device, uint64_t more,
                       struct gb_error *error);
/* How many bytes the user is past its quota by versions without a name that it holds open. */
uint64_t gb_user_excess(const struct gb_user *user, const struct gb_device *device);
/* Of all users. */
uint64_t gb_users_excess(const struct gb_users *users, const struct gb_device *device);
/* Notes whether it is past its quota, after its account of the device has changed. */
void gb_user_note_excess(struct gb_user *user, const struct gb_device *device);

#endif
