#include "daemon/store/quota.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/size.h"

#define STORED_OWN 8                    /* of the daemon: journals, the host tier, the channel */
#define LEAST_BYTES ((uint64_t)2 << 20) /* the smallest shared segment */

struct gb_user_quota {
    uid_t uid;
    struct gb_quota quota;
};

/* ---- reading ---- */

const struct gb_quota_row gb_quota_rows[] = {
#define ROW(name, what)                                                                            \
    {                                                                                              \
#name, "user_" #name, what, offsetof(struct gb_limits, user_##name)                        \
    }
    [GB_QUOTA_SESSIONS] = ROW(sessions, "sessions"),
    [GB_QUOTA_OBJECTS] = ROW(objects, "objects"),
    [GB_QUOTA_SEGMENTS] = ROW(segments, "segments"),
    [GB_QUOTA_LEASES] = ROW(leases, "leases"),
    [GB_QUOTA_TEXT] = ROW(text_bytes, "bytes of names, layouts and metadata"),
    [GB_QUOTA_BYTES] = ROW(bytes, "bytes on "),
#undef ROW
};

int gb_uid_read(const char *who, uid_t *uid, struct gb_error *error)
{
    char buffer[4096], *end;
    struct passwd entry, *found = NULL;
    unsigned long long number;

    errno = 0;
    number = strtoull(who, &end, 10);
    if (isdigit((unsigned char)*who) && !*end) {
        if (errno || number >= (uid_t)-1)
            return gb_fail(error, GPUBUF_E_INVALID, "%s is no uid", who);
        *uid = (uid_t)number;
        return 0;
    }
    if (getpwnam_r(who, &entry, buffer, sizeof(buffer), &found) != 0 || !found)
        return gb_fail(error, GPUBUF_E_INVALID,
                       "there is no user \"%s\"; expected a user's name or a uid", who);
    *uid = entry.pw_uid;
    return 0;
}

/* Reads "bytes=2G@cuda:0". */
static int read_item(const char *item, struct gb_quota_rule *rule, struct gb_error *error)
{
    size_t name = strcspn(item, "="), kind;
    const char *at = strchr(item, '@'), *value = item + name + 1;
    char number[32];
    size_t length;

    if (!item[name])
        return gb_fail(error, GPUBUF_E_INVALID,
                       "\"%s\": expected NAME=VALUE, such as objects=1000 or bytes=8G@cuda:0",
                       item);
    for (kind = 0; kind < GB_QUOTAS; kind++)
        if (strlen(gb_quota_rows[kind].name) == name &&
            strncmp(gb_quota_rows[kind].name, item, name) == 0)
            break;
    if (kind == GB_QUOTAS)
        return gb_fail(error, GPUBUF_E_INVALID,
                       "there is no quota \"%.*s\"; expected bytes, leases, objects, segments, "
                       "sessions or text_bytes",
                       (int)name, item);
    if (at && (kind != GB_QUOTA_BYTES || !at[1] || strlen(at + 1) >= sizeof(rule->device)))
        return gb_fail(error, GPUBUF_E_INVALID, "\"%s\": only bytes are given for a @DEVICE", item);
    length = at ? (size_t)(at - value) : strlen(value);
    if (length < sizeof(number)) {
        memcpy(number, value, length);
        number[length] = '\0';
    }
    if (length >= sizeof(number) || !gb_size_parse(number, &rule->value) || rule->value == 0 ||
        rule->value > (uint64_t)GB_LIMIT(integer))
        return gb_fail(error, GPUBUF_E_INVALID,
                       "\"%s\": expected a number above 0, such as 1000 or 8G", item);
    rule->kind = (enum gb_quota_kind)kind;
    strcpy(rule->device, at ? at + 1 : "");
    return 0;
}

static int keep_rule(const struct gb_quota_rule *rule, struct gb_quota_rule **rules,
                     unsigned *count, struct gb_error *error)
{
    struct gb_quota_rule *more = realloc(*rules, (*count + 1) * sizeof(**rules));

    if (!more)
        return gb_fail_memory(error);
    more[(*count)++] = *rule;
    *rules = more;
    return 0;
}

int gb_quota_read(const char *text, struct gb_limits *limits, struct gb_quota_rule **rules,
                  unsigned *count, struct gb_error *error)
{
    struct gb_quota_rule rule = {0};
    char copy[512], *items, *rest, *item;
    int r = 0;

    if (strlen(text) >= sizeof(copy) || !strchr(text, ':') || !*(strchr(text, ':') + 1))
        return gb_fail(error, GPUBUF_E_INVALID,
                       "\"%.100s\": expected WHO:NAME=VALUE, such as default:objects=1000 or "
                       "alice:bytes=8G@cuda:0,segments=50",
                       text);
    strcpy(copy, text);
    items = strchr(copy, ':');
    *items++ = '\0';
    rule.everyone = strcmp(copy, "default") == 0;
    if (!rule.everyone)
        r = gb_uid_read(copy, &rule.uid, error);
    while (r == 0 && (item = strtok_r(items, ",", &rest))) {
        items = NULL;
        r = read_item(item, &rule, error);
        if (r < 0)
            break;
        if (rule.everyone && !*rule.device)
            *gb_quota_limit(limits, rule.kind) = rule.value;
        else
            r = keep_rule(&rule, rules, count, error);
    }
    return r;
}

/* ---- descriptors ---- */

uint64_t gb_files_for_users(uint64_t open_files)
{
    uint64_t own = 64 + open_files / 16;

    if (open_files == 0)
        return UINT64_MAX;
    return open_files - (own < open_files / 2 ? own : open_files / 2);
}

uint64_t gb_stored_for_users(uint64_t stored_files)
{
    if (stored_files == 0)
        return UINT64_MAX;
    return stored_files > STORED_OWN ? stored_files - STORED_OWN : 0;
}

/* Lowers a limit that has its usual value. The operator's setting stays; requests beyond the
   descriptors are then refused for want of these, not by the limit. */
static void lower(uint64_t *limit, uint64_t usual, uint64_t most)
{
    if (*limit == usual && most < usual)
        *limit = most > 0 ? most : 1;
}

void gb_limits_fit(struct gb_limits *limits, uint64_t open_files, uint64_t stored_files)
{
    uint64_t files = gb_files_for_users(open_files), stored = gb_stored_for_users(stored_files);

    lower(&limits->sessions, GB_LIMIT(sessions), files);
    lower(&limits->user_sessions, GB_LIMIT(user_sessions), files / 2);
    if (stored > files)
        stored = files;
    lower(&limits->user_segments, GB_LIMIT(user_segments), stored / 2);
    if (open_files > 0)
        lower(&limits->held_fds, GB_LIMIT(held_fds), open_files / 16);
}

/* ---- quotas in effect ---- */

static void set_standard(struct gb_quota *quota, struct gb_limits limits)
{
    for (unsigned kind = 0; kind < GB_QUOTA_BYTES; kind++)
        quota->most[kind] = *gb_quota_limit(&limits, kind);
    for (unsigned i = 0; i < GB_DEVICES; i++)
        quota->bytes[i] = limits.user_bytes;
}

void gb_quotas_init(struct gb_quotas *quotas)
{
    static const struct gb_limits limits = {
#define GB_LIMIT_DEFAULT(name, value, text) .name = (value),
        GB_LIMIT_MAP(GB_LIMIT_DEFAULT)
#undef GB_LIMIT_DEFAULT
    };

    *quotas = (struct gb_quotas){0};
    set_standard(&quotas->standard, limits);
}

void gb_quotas_end(struct gb_quotas *quotas)
{
    free(quotas->others);
    quotas->others = NULL;
    quotas->other_count = 0;
}

const struct gb_quota *gb_quotas_of(const struct gb_quotas *quotas, uid_t uid)
{
    for (unsigned i = 0; i < quotas->other_count; i++)
        if (quotas->others[i].uid == uid)
            return &quotas->others[i].quota;
    return &quotas->standard;
}

/* The quota that a rule is about. A user's own quota begins as a copy of the standard one. */
static struct gb_quota *subject(struct gb_quotas *quotas, const struct gb_quota_rule *rule)
{
    struct gb_user_quota *other;

    if (rule->everyone)
        return &quotas->standard;
    for (unsigned i = 0; i < quotas->other_count; i++)
        if (quotas->others[i].uid == rule->uid)
            return &quotas->others[i].quota;
    other = &quotas->others[quotas->other_count++];
    *other = (struct gb_user_quota){rule->uid, quotas->standard};
    return &other->quota;
}

static int apply(struct gb_quota *quota, const struct gb_quota_rule *rule,
                 struct gb_device *const *devices, unsigned device_count, struct gb_error *error)
{
    bool found = !*rule->device;

    if (rule->kind != GB_QUOTA_BYTES) {
        quota->most[rule->kind] = rule->value;
        return 0;
    }
    for (unsigned i = 0; i < device_count; i++)
        if (!*rule->device || strcmp(rule->device, devices[i]->id) == 0 ||
            strcmp(rule->device, devices[i]->alias) == 0) {
            quota->bytes[i] = rule->value;
            found = true;
        }
    return found ? 0
                 : gb_fail(error, GPUBUF_E_INVALID,
                           "--quota bytes=%" PRIu64 "@%s: that is none of the devices given by "
                           "--device",
                           rule->value, rule->device);
}

/* A quota below the bytes of a segment would allow nothing: it is a mistake. */
static int check(const char *whose, const struct gb_quota *quota, struct gb_device *const *devices,
                 unsigned device_count, struct gb_error *error)
{
    for (unsigned i = 0; i < device_count; i++) {
        uint64_t least = devices[i]->granularity;

        if (least < LEAST_BYTES)
            least = LEAST_BYTES;
        if (quota->bytes[i] < least)
            return gb_fail(error, GPUBUF_E_INVALID,
                           "the quota of %s, %" PRIu64 " bytes on %s, is less than one segment, "
                           "%" PRIu64 " bytes",
                           whose, quota->bytes[i], devices[i]->id, least);
    }
    return 0;
}

static int check_all(const struct gb_quotas *quotas, struct gb_device *const *devices,
                     unsigned device_count, struct gb_error *error)
{
    int r = check("every user", &quotas->standard, devices, device_count, error);

    for (unsigned i = 0; i < quotas->other_count && r == 0; i++) {
        char whose[32];

        snprintf(whose, sizeof(whose), "uid %u", quotas->others[i].uid);
        r = check(whose, &quotas->others[i].quota, devices, device_count, error);
    }
    return r;
}

int gb_quotas_set(struct gb_quotas *quotas, const struct gb_limits *limits,
                  const struct gb_quota_rule *rules, unsigned rule_count,
                  struct gb_device *const *devices, unsigned device_count, struct gb_error *error)
{
    gb_quotas_end(quotas);
    set_standard(&quotas->standard, *limits);
    quotas->others = calloc(rule_count ? rule_count : 1, sizeof(*quotas->others));
    if (!quotas->others)
        return gb_fail_memory(error);
    /* The order of the passes: rules for every user before those for one user, and of each first
       those for every device. Within a pass the later rule wins. */
    for (unsigned pass = 0; pass < 4; pass++)
        for (unsigned i = 0; i < rule_count; i++) {
            const struct gb_quota_rule *rule = &rules[i];
            int r;

            if (rule->everyone != (pass < 2) || (*rule->device != '\0') != (pass % 2 == 1))
                continue;
            r = apply(subject(quotas, rule), rule, devices, device_count, error);
            if (r < 0)
                return r;
        }
    return check_all(quotas, devices, device_count, error);
}
