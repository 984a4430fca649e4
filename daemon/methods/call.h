/*
 * A request that is being served, and functions that handlers share: to look up an object or a
 * device, to fail, to answer. A method is a row (struct gb_method): a table of its parameters, who
 * may call it, and the function that handles it; methods.c lists the rows. The parts of a reply are
 * in reply.h, waiting is in space.h.
 */
#ifndef GB_CALL_H
#define GB_CALL_H

#include "daemon/objects/lease.h"
#include "daemon/serve/session.h"
#include "daemon/serve/wait.h"

struct gb_task;
struct gb_unsealed;

/* A request as it was read, on the loop's thread or the worker's. */
struct gb_message {
    const char *line; /* the text */
    size_t length;
    struct gb_rpc_request request;
    const struct gb_method *method; /* NULL: there is no such method */
    size_t index;                   /* of the method */
    const void *params;             /* the method's struct, in the pool */
    uint64_t present;
    int r;                 /* 0; negative: it is no request */
    int params_r;          /* 0; negative: its params are wrong */
    struct gb_error error; /* of r or params_r */
};

/* A request that is being served. */
struct gb_call {
    struct gb_server *server;
    struct gb_session *session;
    const struct gb_method *method;
    size_t index;        /* of the method */
    struct gb_string id; /* as the message spells it */
    struct gb_pool *pool;
    struct gb_writer *writer; /* empty; a result is written here */
    struct gb_writer *layout; /* for a written layout; a task's has the one that the worker wrote */
    struct gb_writer *text;   /* empty; room for an object's text */
    struct gb_wait *wait;     /* the request has waited before; NULL on the first try */
    bool last_try;            /* its time is up: it must be answered now */
    struct gb_task *task;     /* if it does not end in one turn (task.h); else NULL */
    const struct gb_message *message;
    uint64_t since_ns; /* when it came, if it waited or was a task; 0: now */
    int *fds;          /* its descriptors, which are closed afterwards; a handler that takes one
                          sets it to -1 */
    unsigned fd_count;
    int reply_fds[GB_LIMIT(fds)]; /* to be sent with the result; owned */
    unsigned reply_fd_count;
    bool asks;                 /* providers may be asked for names that it waits for */
    bool answers;              /* a part of its answer is written: it must not wait any more */
    struct gb_storage **there; /* that the request needs together, are on their devices, and stay
                                  there for this try */
    size_t there_count;
    unsigned left; /* storages that have left for it, in this try */
    struct gb_error error;
};

enum gb_method_flags {
    GB_METHOD_ADMIN = 1,  /* root or the daemon's uid */
    GB_METHOD_FDS = 2,    /* may bring descriptors */
    GB_METHOD_APART = 4,  /* its answer does not depend on leases of others */
    GB_METHOD_LONG = 8,   /* may be longer than request_bytes, since it has a part of a layout */
    GB_METHOD_KEEPS = 16, /* its result says that an object outlives the daemon */
};

struct gb_method {
    const char *name;
    unsigned flags;
    const struct gb_field *fields;
    size_t field_count;
    /* An outcome, or a negative code with call->error filled in. `params` is the row's struct. */
    int (*handle)(struct gb_call *call, const void *params);
    size_t params_size; /* of that struct; it starts as zeros */
    /* Reads the layout that a message brings; any thread. 0 or a code with the error. */
    int (*read)(const struct gb_message *message, struct gb_unsealed **unsealed,
                struct gb_error *error);
};

#define GB_METHOD_ROW(name_, flags_, fields_, handle_, struct_)                                    \
    .name = (name_), .flags = (flags_), .fields = (fields_),                                       \
    .field_count = sizeof(fields_) / sizeof((fields_)[0]), .handle = (handle_),                    \
    .params_size = sizeof(struct_)

/* The path `params` or `params.KEY`. */
#define GB_PARAM(key_) (&(const struct gb_path){.up = &gb_params_path, .key = (key_)})
extern const struct gb_path gb_params_path;

void gb_call_begin_result(struct gb_call *call); /* {"…","result": */
/* An empty result; and one that has a version. */
int gb_call_empty(struct gb_call *call);
int gb_call_version(struct gb_call *call, uint64_t version);
/* gb_fail(), with the object's name in data.name. */
int gb_call_fail_name(struct gb_call *call, int code, const struct gb_string *name,
                      const char *format, ...) __attribute__((format(printf, 4, 5)));
int gb_call_no_memory(struct gb_call *call);
/* The current object of a name, if the session may open it; else not_found. */
int gb_call_find(struct gb_call *call, const struct gb_string *name, struct gb_object **object);
/* The version of a name that a request means: that number; or the newest with that label; or, if
   neither is given, the current one. */
struct gb_which {
    uint64_t version; /* 0: not given */
    struct gb_string label;
    bool held; /* may be a version without the name, which leases keep */
};
#define GB_WHICH_FIELDS(struct_type)                                                               \
    GB_FIELD(struct_type, version, GB_FIELD_UINT, 0, 1, GB_LIMIT(integer)),                        \
        GB_FIELD(struct_type, label, GB_FIELD_STRING, 0, 0, GB_LIMIT(label_bytes))

/* Finds that version, if the session may open it. Else stale, or (by label) not_found; the sentence
   lists the versions that the name has. */
int gb_call_find_which(struct gb_call *call, const struct gb_string *name,
                       const struct gb_which *which, struct gb_object **object);
/* The same (`which` NULL: the current version), if the session may also change it; else denied. */
int gb_call_find_changeable(struct gb_call *call, const struct gb_string *name,
                            const struct gb_which *which, struct gb_object **object);
/* Whether others can be shown the label as it is. GPUBUF_E_INVALID. */
int gb_call_check_label(struct gb_call *call, const struct gb_string *label);
/* Makes the JSON of a label, in the pool. An absent or empty label has none. GPUBUF_E_NO_MEMORY,
   GPUBUF_E_INVALID. */
int gb_call_label(struct gb_call *call, const struct gb_string *label, struct gb_string *json);
/* Reads an octal mode; `fallback` if absent. */
int gb_call_mode(struct gb_call *call, const struct gb_string *text, unsigned fallback,
                 unsigned *mode);
/* The place of a parameter's text among `names`, which NULL ends; `absent` if there is no text;
   GPUBUF_E_INVALID. */
int gb_call_choose(struct gb_call *call, const char *param, const struct gb_string *text,
                   int absent, const char *const *names);
int gb_call_device(struct gb_call *call, const struct gb_string *text, struct gb_device **device);
/* GPUBUF_E_DEVICE if the device is lost; with the driver's error if this request ran into it. */
int gb_call_check_lost(struct gb_call *call, const struct gb_device *device);
/* Whether the session, and its user, may have another lease. GPUBUF_E_LIMIT. */
int gb_call_may_lease(struct gb_call *call);
/* Reads a name in an array that is at `path`. */
int gb_call_name(struct gb_call *call, struct gb_json item, const struct gb_path *path,
                 struct gb_string *name);
/* Calls `one` for each element of the array, which is the parameter `key`. Answers with the error
   of the first that failed; with an empty result if none did. */
int gb_call_each(struct gb_call *call, struct gb_json array, const char *key,
                 int (*one)(struct gb_call *call, struct gb_json item, const struct gb_path *path));
/* Finds a lease of this session. GPUBUF_E_STALE. */
int gb_call_lease(struct gb_call *call, uint64_t id, struct gb_lease **lease);

/* A list that gets longer than this ends with "truncated":true, so that it fits one message. */
#define GB_ANSWER_ROOM (GB_LIMIT(line_bytes) - 16384)

/* ---- the rows, each defined beside its handler ---- */

extern const struct gb_method gb_method_hello, gb_method_create, gb_method_seal, gb_method_open,
    gb_method_release, gb_method_unmap, gb_method_settle, gb_method_join, gb_method_register,
    gb_method_alias, gb_method_cache, gb_method_provide, gb_method_decline, gb_method_delete,
    gb_method_list, gb_method_stat, gb_method_set, gb_method_move, gb_method_watch,
    gb_method_unwatch, gb_method_leases, gb_method_trim, gb_method_segments, gb_method_sessions,
    gb_method_stats, gb_method_describe;

#endif
