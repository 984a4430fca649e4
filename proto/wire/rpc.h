/*
 * The JSON-RPC 2.0 envelope: requests, replies, notifications. Reading checks the line, which is
 * the only pass over it, and gives values on its tape (json.h), which lies in the pool; writing
 * appends one line.
 */
#ifndef GB_RPC_H
#define GB_RPC_H

#include "proto/wire/json.h"

struct gb_rpc_request {
    /* An integer, a string or null, as it is spelled; absent (text NULL) in a notification. */
    struct gb_string id;
    struct gb_string method; /* in the pool */
    struct gb_json params;   /* absent, or an object */
    uint64_t fds;            /* descriptors that came with it; 0 if not said */
};

/*
 * Reads a request or notification. GPUBUF_E_PARSE, GPUBUF_E_REQUEST (also for a batch),
 * GPUBUF_E_INVALID or GPUBUF_E_NO_MEMORY. Even on failure request->id and request->fds are set if
 * they could be read, so that the error can be answered. An id is null, an integer, or a string of
 * at most 64 bytes.
 */
int gb_rpc_read_request(const char *line, size_t length, struct gb_pool *pool,
                        struct gb_rpc_request *request, struct gb_error *error);

struct gb_rpc_message {      /* what a client receives */
    uint64_t id;             /* 0: none (a notification), or null */
    struct gb_string method; /* notifications only */
    struct gb_json params;   /* notifications only */
    struct gb_json result;   /* replies: absent if an error */
    struct gb_json error;    /* replies: absent if a result */
    uint64_t fds;
};

/* Reads a reply or notification. GPUBUF_E_PROTOCOL if the line is neither (a client's ids are
   integers from 1); GPUBUF_E_NO_MEMORY. */
int gb_rpc_read_message(const char *line, size_t length, struct gb_pool *pool,
                        struct gb_rpc_message *message, struct gb_error *error);

/* Decodes an `error` member into *error and returns its code (an unknown code: GPUBUF_E_INTERNAL).
   error->limit and error->cuda stay NULL; the message names the limit and the driver's error. */
int gb_rpc_read_error(struct gb_json value, struct gb_pool *pool, struct gb_error *error);

/* Writes {"jsonrpc":"2.0","id":ID,"result": and leaves the result to the caller, who then calls
   gb_rpc_end. `fds` > 0 adds "fds". The next two do the same for params. */
void gb_rpc_begin_result(struct gb_writer *writer, struct gb_string id, unsigned fds);
void gb_rpc_begin_request(struct gb_writer *writer, uint64_t id, const char *method, unsigned fds);
void gb_rpc_begin_notification(struct gb_writer *writer, const char *method, unsigned fds);
void gb_rpc_end(struct gb_writer *writer); /* } and the newline */
/* {"code":C,"message":"M","data":{...}}: the error as a value. */
void gb_rpc_write_error_value(struct gb_writer *writer, const struct gb_error *error);
/* A whole error reply with its newline; an absent id is written as null. */
void gb_rpc_write_error(struct gb_writer *writer, struct gb_string id,
                        const struct gb_error *error);

#endif
