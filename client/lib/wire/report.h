/* The sentence of each thread's last failure. Any thread, with the client's lock or without. */
#ifndef GB_LIB_REPORT_H
#define GB_LIB_REPORT_H

#include "client/lib/wire/client.h"

/* Notes the failure for the calling thread (client NULL: of gpubuf_connect) and returns
   error->code. */
int gb_report(const struct gpubuf_client *client, const struct gb_error *error);
int gb_report_text(const struct gpubuf_client *client, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int gb_report_memory(const struct gpubuf_client *client);

/* Reads an option struct, which begins with its size: as much as program and library both know, and
   zeros beyond. `given` NULL: zeros. GPUBUF_E_INVALID: its size is too small to be one. */
int gb_read_options(const struct gpubuf_client *client, const void *given, void *options,
                    size_t size);

#endif
