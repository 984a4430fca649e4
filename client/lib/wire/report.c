#include "client/lib/wire/report.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* With how many clients a thread remembers its last failure. */
#define REMEMBERED 4

struct failure {
    uint64_t client; /* its serial; 0: of gpubuf_connect */
    uint64_t when;   /* 0: the slot is free */
    char message[sizeof(((struct gb_error *)0)->message)];
};

static _Thread_local struct failure failures[REMEMBERED];
static _Thread_local uint64_t failure_count;

static struct failure *find_failure(uint64_t client)
{
    for (size_t i = 0; i < REMEMBERED; i++) {
        if (failures[i].when && failures[i].client == client)
            return &failures[i];
    }
    return NULL;
}

static struct failure *oldest_failure(void)
{
    struct failure *oldest = &failures[0];

    for (size_t i = 1; i < REMEMBERED; i++) {
        if (failures[i].when < oldest->when)
            oldest = &failures[i];
    }
    return oldest;
}

int gb_report(const struct gpubuf_client *client, const struct gb_error *error)
{
    uint64_t serial = client ? client->serial : 0;
    struct failure *failure = find_failure(serial);

    if (!failure)
        failure = oldest_failure();
    failure->client = serial;
    failure->when = ++failure_count;
    memcpy(failure->message, error->message, sizeof(failure->message));
    return error->code;
}

int gb_report_text(const struct gpubuf_client *client, int code, const char *format, ...)
{
    struct gb_error error = {.code = code};
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(error.message, sizeof(error.message), format, arguments);
    va_end(arguments);
    return gb_report(client, &error);
}

int gb_report_memory(const struct gpubuf_client *client)
{
    return gb_report_text(client, GPUBUF_E_NO_MEMORY, "out of memory");
}

int gb_read_options(const struct gpubuf_client *client, const void *given, void *options,
                    size_t size)
{
    size_t theirs = size;

    memset(options, 0, size);
    memcpy(options, &size, sizeof(size));
    if (given)
        memcpy(&theirs, given, sizeof(theirs));
    if (theirs < sizeof(theirs))
        return gb_report_text(client, GPUBUF_E_INVALID,
                              "options.size is %zu: set it to sizeof the struct", theirs);
    if (given)
        memcpy(options, given, theirs < size ? theirs : size);
    return 0;
}

const char *gpubuf_errmsg(const struct gpubuf_client *client)
{
    const struct failure *failure = find_failure(client ? client->serial : 0);

    return failure ? failure->message : "";
}

const char *gpubuf_version(void)
{
    return GPUBUF_VERSION;
}

const char *gpubuf_strerror(int error)
{
    return gb_error_text(error);
}

const char *gpubuf_errkind(int error)
{
    return gb_error_kind(error);
}

void gpubuf_free(void *pointer)
{
    free(pointer);
}
