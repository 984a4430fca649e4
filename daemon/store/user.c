#include "daemon/store/user.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define SPARED_SESSIONS 4 /* that a user past its share may have, to delete some of its objects */
#define SERVING_FILES 16u /* for a moment, to serve requests with */

void gb_users_init(struct gb_users *users)
{
    *users = (struct gb_users){.record_bytes = sizeof(struct gb_user)};
    gb_quotas_init(&users->quotas);
    gb_users_stock(users, 0, 0, 0);
}

struct gb_user *gb_user_get(struct gb_users *users, uid_t uid)
{
    uint64_t hash = gb_hash_id(uid);
    struct gb_user *user;

    for (struct gb_hash_link *link = gb_hash_first(&users->table, hash); link;
         link = gb_hash_next(link)) {
        user = GB_CONTAINER(link, struct gb_user, link);
        if (user->uid == uid)
            return gb_user_ref(user);
    }
    user = calloc(1, users->record_bytes);
    if (!user)
        return NULL;
    user->users = users;
    user->quota = gb_quotas_of(&users->quotas, uid);
    user->uid = uid;
    user->references = 1;
    if (!gb_hash_insert(&users->table, &user->link, hash)) {
        free(user);
        return NULL;
    }
    gb_list_append(&users->all, &user->of_users);
    return user;
}

struct gb_user *gb_user_ref(struct gb_user *user)
{
    user->references++;
    return user;
}

void gb_user_unref(struct gb_user *user)
{
    if (!user || --user->references > 0)
        return;
    for (unsigned kind = 0; kind < GB_QUOTA_BYTES; kind++)
        assert(user->has[kind] == 0);
    assert(user->watches == 0 && user->provides == 0);
    assert(!user->past);
    for (unsigned i = 0; i < GB_DEVICES; i++) {
        assert(gb_list_empty(&user->nameless_stakes[i]));
        assert(user->bytes[i] == 0 && user->nameless[i] == 0);
        assert(user->held[i] == 0 && user->retiring[i] == 0 && user->freeing[i] == 0);
    }
    for (unsigned i = 0; i < GB_CHARGES; i++)
        assert(user->charges[i] == 0);
    gb_hash_remove(&user->users->table, &user->link);
    gb_list_remove(&user->of_users);
    free(user);
}

void gb_users_end(struct gb_users *users)
{
    assert(users->table.count == 0);
    gb_hash_end(&users->table);
    gb_quotas_end(&users->quotas);
}

/* ---- stocks ---- */

void gb_users_stock(struct gb_users *users, uint64_t open_files, uint64_t stored_files,
                    uint64_t sent_files)
{
    users->open_files = users->left_files = open_files;
    users->stocks[GB_STOCK_OPEN].most = gb_files_for_users(open_files);
    users->stocks[GB_STOCK_KEPT].most = gb_stored_for_users(stored_files);
    /* A killed daemon's descriptors stay in flight until they are received. So this daemon uses a
       quarter at most: its successors need some. */
    users->stocks[GB_STOCK_FLIGHT].most = sent_files > 0 ? sent_files / 4 : UINT64_MAX;
}

void gb_users_reserve(struct gb_users *users, uint64_t own)
{
    struct gb_stock *stock = &users->stocks[GB_STOCK_OPEN];
    uint64_t left = users->open_files > own ? users->open_files - own : 1;
    uint64_t most = left - (left < SERVING_FILES * 8 ? left / 8 : SERVING_FILES);

    if (users->open_files == 0)
        return;
    users->left_files = left;
    if (stock->most > most)
        stock->most = most;
}

/* Spared sessions may take half of what is reserved, and is not the daemon's own. */
bool gb_users_are_short(const struct gb_users *users)
{
    const struct gb_stock *stock = &users->stocks[GB_STOCK_OPEN];

    return stock->most != UINT64_MAX &&
           stock->used > stock->most + (users->left_files - stock->most) / 2;
}

uint64_t gb_user_room(const struct gb_user *user, enum gb_stock_kind kind)
{
    const struct gb_stock *stock = &user->users->stocks[kind];
    uint64_t left = stock->used < stock->most ? stock->most - stock->used : 0;

    if (stock->most == UINT64_MAX)
        return UINT64_MAX;
    /* The most n for which has + n <= left - n. */
    return left > user->charges[kind] ? (left - user->charges[kind]) / 2 : 0;
}

int gb_user_may_charge(const struct gb_user *user, enum gb_stock_kind kind, uint64_t more,
                       struct gb_error *error)
{
    const struct gb_stock *stock = &user->users->stocks[kind];
    uint64_t room = gb_user_room(user, kind);
    char text[320];

    if (more <= room)
        return 0;
    snprintf(
        text, sizeof(text),
        "uid %u has %" PRIu64 " of the %" PRIu64 " descriptors that %s for all users, and all "
        "have %" PRIu64 ": it may have %" PRIu64 " more, since others may need some, and %" PRIu64
        " would be needed; close sessions or delete objects, or ask for a greater %s",
        user->uid, user->charges[kind], stock->most,
        kind == GB_STOCK_KEPT ? "the service manager keeps" : "the daemon can open", stock->used,
        room, more, kind == GB_STOCK_KEPT ? "FileDescriptorStoreMax" : "RLIMIT_NOFILE");
    return gb_fail_limit(error, kind == GB_STOCK_KEPT ? "stored_files" : "open_files",
                         (long long)stock->most, text);
}

/* The amounts may fall: unsigned sums wrap. */
static void add_charge(struct gb_user *user, enum gb_stock_kind kind, uint64_t more)
{
    user->charges[kind] += more;
    if (kind < GB_STOCKS)
        user->users->stocks[kind].used += more;
}

void gb_charge_set(struct gb_charge *charge, enum gb_stock_kind kind, uint64_t amount)
{
    uint64_t more = amount - charge->amounts[kind];

    if (!charge->user)
        return;
    charge->amounts[kind] = amount;
    add_charge(charge->user, kind, more);
    if (kind == GB_HELD_FDS)
        add_charge(charge->user, GB_STOCK_OPEN, more);
}

void gb_charge_end(struct gb_charge *charge)
{
    for (unsigned kind = 0; kind < GB_CHARGES; kind++)
        gb_charge_set(charge, kind, 0);
    charge->user = NULL;
}

/* ---- memory of devices ---- */

/* The bytes are added, or, negated, taken away: unsigned sums wrap. */
static void count_memory(enum gb_memory_state state, struct gb_user *user, struct gb_device *device,
                         uint64_t bytes)
{
    bool frees = state == GB_MEMORY_FREEING, retires = state == GB_MEMORY_RETIRING;

    if (state == GB_MEMORY_NONE)
        return;
    device->allocated += bytes;
    user->held[device->index] += bytes;
    device->moving += frees || state == GB_MEMORY_MAKING ? bytes : 0;
    device->freeing += frees ? bytes : 0;
    user->freeing[device->index] += frees ? bytes : 0;
    device->pinned_by_clients += retires ? bytes : 0;
    user->retiring[device->index] += retires ? bytes : 0;
}

void gb_memory_become(enum gb_memory_state *state, enum gb_memory_state next, struct gb_user *user,
                      struct gb_device *device, uint64_t bytes)
{
    count_memory(*state, user, device, -bytes);
    count_memory(next, user, device, bytes);
    *state = next;
}

/* ---- quotas ---- */

/* Whether there are descriptors for `more` sessions or segments. */
static int may_open(const struct gb_user *user, enum gb_quota_kind kind, uint64_t more,
                    struct gb_error *error)
{
    uint64_t each = kind == GB_QUOTA_SESSIONS ? 1 : kind == GB_QUOTA_SEGMENTS ? 2 : 0;
    bool in_any_case = kind == GB_QUOTA_SESSIONS &&
                       user->has[GB_QUOTA_SESSIONS] < SPARED_SESSIONS &&
                       !gb_users_are_short(user->users);
    int r = each && !in_any_case ? gb_user_may_charge(user, GB_STOCK_OPEN, each * more, error) : 0;

    if (r == 0 && kind == GB_QUOTA_SEGMENTS)
        r = gb_user_may_charge(user, GB_STOCK_KEPT, more, error);
    return r;
}

int gb_user_may_have(const struct gb_user *user, enum gb_quota_kind kind,
                     const struct gb_device *device, uint64_t more, struct gb_error *error)
{
    const struct gb_quota_row *row = &gb_quota_rows[kind];
    uint64_t used = device ? user->bytes[device->index] : user->has[kind];
    uint64_t quota = device ? user->quota->bytes[device->index] : user->quota->most[kind];
    uint64_t left = used < quota ? quota - used : 0;
    char text[320];

    if (more <= left)
        return may_open(user, kind, more, error);
    snprintf(text, sizeof(text),
             "uid %u uses %" PRIu64 " of its %" PRIu64 " %s%s: %" PRIu64 " are left, and %" PRIu64
             " more would be needed",
             user->uid, used, quota, row->what, device ? device->id : "", left, more);
    return gb_fail_limit(error, row->limit, (long long)quota, text);
}

int gb_user_may_occupy(const struct gb_user *user, const struct gb_device *device, uint64_t more,
                       struct gb_error *error)
{
    uint64_t quota = user->quota->bytes[device->index], held = user->held[device->index];
    uint64_t left = held < quota ? quota - held : 0;
    char text[400];

    if (more <= left)
        return 0;
    snprintf(text, sizeof(text),
             "uid %u holds %" PRIu64 " of its %" PRIu64 " bytes on %s, %" PRIu64
             " of them in deleted objects that sessions still map: %" PRIu64
             " are left, and %" PRIu64 " more would be needed; `leases` shows who maps what",
             user->uid, held, quota, device->id, user->retiring[device->index], left, more);
    return gb_fail_limit(error, "user_bytes", (long long)quota, text);
}

uint64_t gb_user_excess(const struct gb_user *user, const struct gb_device *device)
{
    uint64_t bytes = user->bytes[device->index], quota = user->quota->bytes[device->index];
    uint64_t nameless = user->nameless[device->index];

    if (bytes <= quota)
        return 0;
    return bytes - quota < nameless ? bytes - quota : nameless;
}

uint64_t gb_users_excess(const struct gb_users *users, const struct gb_device *device)
{
    uint64_t excess = 0;

    GB_LIST_EACH(&users->past, struct gb_user, user, of_past)
        excess += gb_user_excess(user, device);
    return excess;
}

void gb_user_note_excess(struct gb_user *user, const struct gb_device *device)
{
    if (gb_user_excess(user, device) > 0) {
        user->past |= UINT64_C(1) << device->index;
        if (!gb_list_linked(&user->of_past))
            gb_list_append(&user->users->past, &user->of_past);
        return;
    }
    user->asked_back_ms[device->index] = 0;
    user->past &= ~(UINT64_C(1) << device->index);
    if (!user->past)
        gb_list_remove(&user->of_past);
}
