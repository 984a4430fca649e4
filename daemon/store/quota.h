/*
 * How much a user may have: sessions, objects, segments, leases, text, and bytes on each device.
 * The limits user_… of limits.h are the standard quota, for every user; --quota gives some users
 * another. Pure but for looking up the names of users. Not thread-safe.
 */
#ifndef GB_QUOTA_H
#define GB_QUOTA_H

#include <stddef.h>
#include <sys/types.h>

#include "daemon/base/limits.h"
#include "daemon/memory/device.h"

enum gb_quota_kind {
    GB_QUOTA_SESSIONS,
    GB_QUOTA_OBJECTS,
    GB_QUOTA_SEGMENTS,
    GB_QUOTA_LEASES,
    GB_QUOTA_TEXT,  /* of names, layouts and metadata */
    GB_QUOTA_BYTES, /* on each device */
    GB_QUOTAS,
};

struct gb_quota {
    uint64_t most[GB_QUOTA_BYTES];
    uint64_t bytes[GB_DEVICES]; /* by the device's index */
};

struct gb_quota_row {
    const char *name, *limit, *what; /* "sessions", the limit's name, words for it */
    size_t at;                       /* the limit in struct gb_limits */
};
extern const struct gb_quota_row gb_quota_rows[GB_QUOTAS];

static inline uint64_t *gb_quota_limit(struct gb_limits *limits, unsigned kind)
{
    return (uint64_t *)((char *)limits + gb_quota_rows[kind].at);
}

/* ---- reading --quota ---- */

/* A user by name, or a uid, whether or not that has a name. */
int gb_uid_read(const char *who, uid_t *uid, struct gb_error *error);

/* One item of a --quota: the user, the kind, and how much. */
struct gb_quota_rule {
    bool everyone; /* for all users without a quota of their own */
    uid_t uid;
    enum gb_quota_kind kind;
    char device[64]; /* for bytes: the device; "" is every device */
    uint64_t value;
};

/*
 * Reads "WHO:NAME=VALUE,…" and adds its items to the array of *count rules (owned by the caller). A
 * quota for everybody on every device is a limit, and is set as one.
 */
int gb_quota_read(const char *text, struct gb_limits *limits, struct gb_quota_rule **rules,
                  unsigned *count, struct gb_error *error);

/* ---- quotas in effect ---- */

/* How many of the daemon's `open_files` descriptors users may have; of 0, any number, UINT64_MAX.
   The daemon needs some itself, and a descriptor is charged to its sender only after it came. */
uint64_t gb_files_for_users(uint64_t open_files);
/* The same for the descriptors that the service manager keeps. The daemon's own are among them. */
uint64_t gb_stored_for_users(uint64_t stored_files);
/* Lowers limits for which there are too few descriptors. Limits that the operator has set stay. */
void gb_limits_fit(struct gb_limits *limits, uint64_t open_files, uint64_t stored_files);

struct gb_quotas {
    struct gb_quota standard;
    struct gb_user_quota *others; /* owned */
    unsigned other_count;
};

/* Gives every user the limits of limits.h. */
void gb_quotas_init(struct gb_quotas *quotas);
/* GPUBUF_E_INVALID for a device that is none of these, and for fewer bytes than a segment has;
   GPUBUF_E_NO_MEMORY. */
int gb_quotas_set(struct gb_quotas *quotas, const struct gb_limits *limits,
                  const struct gb_quota_rule *rules, unsigned rule_count,
                  struct gb_device *const *devices, unsigned device_count, struct gb_error *error);
const struct gb_quota *gb_quotas_of(const struct gb_quotas *quotas, uid_t uid);
void gb_quotas_end(struct gb_quotas *quotas);

#endif
