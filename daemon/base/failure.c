#include "daemon/base/failure.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

int gb_fail_call(struct gb_error *error, const char *what)
{
    struct rlimit files = {0};
    char text[256], reason[64];
    int why = errno, code;

    snprintf(text, sizeof(text), "%s: %s", what, strerror_r(why, reason, sizeof(reason)));
    getrlimit(RLIMIT_NOFILE, &files);
    code = why == EMFILE || why == ENFILE
               ? gb_fail_limit(error, "open_files", (long long)files.rlim_cur, text)
               : gb_fail(error, GPUBUF_E_DEVICE, "%s", text);
    errno = why;
    return code;
}
