#include "user.h"

#include <assert.h>
#include <stdlib.h>

#include "list.h"

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
    user->uid = uid;
    user->references = 1;
    if (!gb_hash_insert(&users->table, &user->link, hash)) {
        free(user);
        return NULL;
    }
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
    assert(user->sessions == 0 && user->objects == 0 && user->segments == 0 && user->bytes == 0);
    gb_hash_remove(&user->users->table, &user->link);
    free(user);
}

void gb_users_end(struct gb_users *users)
{
    assert(users->table.count == 0);
    gb_hash_end(&users->table);
}
