/* Calls of methods that bring no descriptors back, the library's own as well. */
#ifndef GB_LIB_CALL_H
#define GB_LIB_CALL_H

#include "client/lib/wire/client.h"

/* Writes the params of a call. */
typedef void (*gb_write_params)(struct gb_writer *writer, const void *arg);

/* A blocking call; *result (may be NULL) is the text of its result, for free(). Reports failures.
   `write` and `arg` are used again if the request is sent anew after a reconnect. That happens only
   if the method changes nothing or may be done twice, or if the daemon cannot have received the
   request. */
int gb_call(struct gpubuf_client *client, const char *method, gb_write_params write,
            const void *arg, int64_t timeout_ms, char **result);
/* A blocking call whose result `read` reads into `out` from the message itself, with the lock held
   and the message's pool: 0, or a failure with *error filled in, where GPUBUF_E_INVALID says that
   the daemon's answer is malformed. Reports failures; `out` may then be partly written. */
typedef int (*gb_read_result)(struct gb_json result, struct gb_pool *pool, void *out,
                              struct gb_error *error);
int gb_call_read(struct gpubuf_client *client, const char *method, gb_write_params write,
                 const void *arg, int64_t timeout_ms, gb_read_result read, void *out);
/* With descriptors, which stay the caller's; at most as many as go with one message. */
int gb_call_with_fds(struct gpubuf_client *client, const char *method, gb_write_params write,
                     const void *arg, const int *fds, unsigned fd_count, int64_t timeout_ms,
                     char **result);
/* As that, without waiting; see gpubuf_call_async for the callback. `arg` is not kept. */
int gb_call_async_with_fds(struct gpubuf_client *client, const char *method, gb_write_params write,
                           const void *arg, const int *fds, unsigned fd_count,
                           gpubuf_call_cb callback, void *callback_arg, uint64_t *request);

/* Parses the params of a call: a JSON object, {} for NULL. The tape lies in the pool. Reports
   failures. */
int gb_check_params(const struct gpubuf_client *client, const char *params, struct gb_pool *pool,
                    struct gb_json *value);
/* Writes checked JSON text with the line breaks between its tokens turned into spaces. */
void gb_write_json(struct gb_writer *writer, struct gb_json value);

#endif
