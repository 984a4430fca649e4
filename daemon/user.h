/*
 * What each uid has: sessions, objects, segments, bytes. Every resource is charged to somebody, so
 * that a limit per user can be kept. Pure; not thread-safe.
 */
#ifndef GB_USER_H
#define GB_USER_H

#include <sys/types.h>

#include "hash.h"

struct gb_users {
    struct gb_hash_table table;
};

struct gb_user {
    struct gb_hash_link link;
    struct gb_users *users;
    uid_t uid;
    uint64_t references;
    uint64_t sessions, objects, segments, bytes;
};

/* The record of a uid, made if need be, with a reference added; NULL if memory is out. */
struct gb_user *gb_user_get(struct gb_users *users, uid_t uid);
struct gb_user *gb_user_ref(struct gb_user *user);
void gb_user_unref(struct gb_user *user); /* NULL is fine */
/* After the last record has gone. */
void gb_users_end(struct gb_users *users);

#endif
