#include "daemon/memory/user.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

void gb_users_init(struct gb_users *users)
{
    *users = (struct gb_users){0};
    gb_list_init(&users->all);
    gb_quotas_init(&users->quotas);
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
    user = calloc(1, sizeof(*user));
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
    assert(user->sessions == 0 && user->objects == 0 && user->segments == 0);
    assert(user->watches == 0 && user->held_bytes == 0 && user->held_fds == 0);
    assert(user->leases == 0 && user->text_bytes == 0);
    for (unsigned i = 0; i < GB_DEVICES; i++) {
        assert(user->bytes[i] == 0 && user->nameless[i] == 0);
        assert(user->held[i] == 0 && user->retiring[i] == 0 && user->freeing[i] == 0);
    }
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

/* ---- quotas ---- */

int gb_user_may_have(const struct gb_user *user, enum gb_quota_kind kind,
                     const struct gb_device *device, uint64_t more, struct gb_error *error)
{
    unsigned index = device ? device->index : 0;
    const struct {
        const char *limit, *what;
        uint64_t used, quota;
    } all[] =
        {
            [GB_QUOTA_SESSIONS] = {"user_sessions", "sessions", user->sessions,
                                   user->quota->sessions},
            [GB_QUOTA_OBJECTS] = {"user_objects", "objects", user->objects, user->quota->objects},
            [GB_QUOTA_SEGMENTS] = {"user_segments", "segments", user->segments,
                                   user->quota->segments},
            [GB_QUOTA_LEASES] = {"user_leases", "leases", user->leases, user->quota->leases},
            [GB_QUOTA_TEXT] = {"user_text_bytes", "bytes of names, layouts and metadata",
                               user->text_bytes, user->quota->text_bytes},
            [GB_QUOTA_BYTES] = {"user_bytes", "bytes on ", user->bytes[index],
                                user->quota->bytes[index]},
        },
      *one = &all[kind];
    uint64_t left = one->used < one->quota ? one->quota - one->used : 0;
    char text[320];

    if (more <= left)
        return 0;
    snprintf(text, sizeof(text),
             "uid %u uses %" PRIu64 " of its %" PRIu64 " %s%s: %" PRIu64 " are left, and %" PRIu64
             " more would be needed",
             user->uid, one->used, one->quota, one->what, device ? device->id : "", left, more);
    return gb_fail_limit(error, one->limit, (long long)one->quota, text);
}

int gb_user_may_hold(const struct gb_user *user, const struct gb_device *device, uint64_t more,
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
             " are left, and %" PRIu64 " more would be needed; `leases` tells who maps what",
             user->uid, held, quota, device->id, user->retiring[device->index], left, more);
    return gb_fail_limit(error, "user_bytes", (long long)quota, text);
}

int gb_user_may_open(const struct gb_user *user, const struct gb_device *device,
                     struct gb_error *error)
{
    unsigned i = device->index;
    char text[320];

    if (user->bytes[i] <= user->quota->bytes[i] || user->nameless[i] == 0)
        return 0;
    snprintf(text, sizeof(text),
             "uid %u uses %" PRIu64 " of its %" PRIu64 " bytes on %s, %" PRIu64
             " of them in versions without a name that it holds open: release these first",
             user->uid, user->bytes[i], user->quota->bytes[i], device->id, user->nameless[i]);
    return gb_fail_limit(error, "user_bytes", (long long)user->quota->bytes[i], text);
}
