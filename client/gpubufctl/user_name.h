/* Names of users. */
#ifndef GB_USER_NAME_H
#define GB_USER_NAME_H

#include <stddef.h>
#include <stdint.h>

/* A user's name, or the number if there is no such user. */
void gb_user_name(int64_t uid, char *out, size_t size);

#endif
