/*
 * How much a user may have: sessions, objects, segments, leases, text, and bytes on each device.
 * Everybody has the standard quota, which the limits user_… of limits.h are; --quota gives some
 * another. Pure but for looking up the names of users. Not thread-safe.
 */
#ifndef GB_QUOTA_H
#define GB_QUOTA_H

#include <sys/types.h>

#include "daemon/base/limits.h"
#include "daemon/memory/device.h"

enum gb_quota_kind {
    GB_QUOTA_SESSIONS,
    GB_QUOTA_OBJECTS,
    GB_QUOTA_SEGMENTS,
    GB_QUOTA_LEASES,
    GB_QUOTA_TEXT, /* of names, layouts and metadata */
    GB_QUOTA_BYTES,
};

struct gb_quota {
    uint64_t sessions, objects, segments, leases, text_bytes;
    uint64_t bytes[GB_DEVICES]; /* by the device's index */
};

/* ---- what the daemon was told ---- */

/* A user by name, or a uid, whether or not that has a name. */
int gb_uid_read(const char *who, uid_t *uid, struct gb_error *error);

/* One item of a --quota: whose, of what, how much. */
struct gb_quota_rule {
    bool everyone; /* all who have no other */
    uid_t uid;
    enum gb_quota_kind kind;
    char device[64]; /* bytes: there; "" on every device */
    uint64_t value;
};

/*
 * Reads "WHO:NAME=VALUE,…" and adds its items to the array of *count rules (owned by the caller). A
 * quota for everybody on every device is a limit, and is set as one.
 */
int gb_quota_read(const char *text, struct gb_limits *limits, struct gb_quota_rule **rules,
                  unsigned *count, struct gb_error *error);

/* ---- what that comes to ---- */

/* How many of the daemon's `open_files` descriptors users may have (0: any number, UINT64_MAX): it
   needs some itself, and a received descriptor counts only once it is there. */
uint64_t gb_files_for_users(uint64_t open_files);
/* Likewise of those that the service manager keeps: the journal is there, too. */
uint64_t gb_stored_for_users(uint64_t stored_files);
/* Lowers those limits that have their usual values where the descriptors do not suffice for these.
    */
void gb_limits_fit(struct gb_limits *limits, uint64_t open_files, uint64_t stored_files);

struct gb_quotas {
    struct gb_quota standard;
    struct gb_user_quota *others; /* owned */
    unsigned other_count;
};

/* The limits of limits.h for everybody. */
void gb_quotas_init(struct gb_quotas *quotas);
/* GPUBUF_E_INVALID for a device that is none of these, and for fewer bytes than a segment has;
   GPUBUF_E_NO_MEMORY. */
int gb_quotas_set(struct gb_quotas *quotas, const struct gb_limits *limits,
                  const struct gb_quota_rule *rules, unsigned rule_count,
                  struct gb_device *const *devices, unsigned device_count, struct gb_error *error);
const struct gb_quota *gb_quotas_of(const struct gb_quotas *quotas, uid_t uid);
void gb_quotas_end(struct gb_quotas *quotas);

#endif
