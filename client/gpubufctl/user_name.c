#include "user_name.h"

#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>

void gb_user_name(int64_t uid, char *out, size_t size)
{
    char buffer[4096];
    struct passwd entry, *found = NULL;

    if (uid >= 0 && getpwuid_r((uid_t)uid, &entry, buffer, sizeof(buffer), &found) == 0 && found)
        (void)snprintf(out, size, "%s", found->pw_name);
    else
        (void)snprintf(out, size, "%" PRId64, uid);
}
