#include "client/gateway/say.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

void gb_say(const char *format, ...)
{
    char line[1024];
    struct timespec now;
    struct tm utc;
    size_t length;
    va_list arguments;
    int n;

    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    length = strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%S", &utc);
    length += (size_t)snprintf(line + length, sizeof(line) - length, ".%03ldZ info    ",
                               now.tv_nsec / 1000000);
    va_start(arguments, format);
    n = vsnprintf(line + length, sizeof(line) - length - 1, format, arguments);
    va_end(arguments);
    length += n < 0 ? 0 : (size_t)n;
    if (length > sizeof(line) - 2)
        length = sizeof(line) - 2;
    line[length++] = '\n';
    (void)!write(STDERR_FILENO, line, length); /* in one write, so that threads do not mix their
                                                  lines */
}
