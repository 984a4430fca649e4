/* Outcomes of requests and events of watches, until they are handed to JavaScript (deliver.h). */
#ifndef GB_NODE_COMPLETION_H
#define GB_NODE_COMPLETION_H

#include "client/lib/objects/pinned.h"
#include "client/node/src/addon.h"

enum gb_done {
    GB_DONE_PLAIN,  /* status; value: a number */
    GB_DONE_OBJECT, /* value: an object's index; kind: what it is */
    GB_DONE_MANY,   /* an array of index * 8 + kind, or negative codes */
    GB_DONE_TEXT,   /* a string */
    GB_DONE_EVENT,  /* of a watch: [kind, object or null] */
    GB_DONE_WANTED, /* of a provider. value: the request; [name or null, uid, gid] */
    GB_DONE_LOST,   /* a client's connection has ended */
    GB_DONE_CLIENT, /* value: a client's index; its instance. Once more: it was resumed */
    GB_DONE_BUFFER, /* an ArrayBuffer, of `block` if that is not NULL */
    GB_DONE_JOB,    /* what `job` makes of it */
};

struct gb_completion {
    double id;
    int status;
    enum gb_done type;
    double value;
    struct gpubuf_object *object;   /* OBJECT */
    struct gpubuf_object **objects; /* MANY: `count` of them, owned; errors follow in `errors` */
    int *errors;
    size_t count;
    char *text; /* owned: the sentence of a failure, a result, an event's kind */
    struct gpubuf_info *info;
    uint32_t uid, gid;        /* WANTED */
    napi_ref reference;       /* BUFFER */
    struct gb_staging *block; /* BUFFER: owned */
    struct gb_node_job *job;  /* JOB: owned */
};

/* A job (job.h): the first member of its own struct, which calloc() has made. */
struct gb_node_job {
    /* In the thread: does the work, returns its status, and sets `message` after a failure. */
    int (*run)(struct gb_node_job *job);
    /* After a success, in the environment's thread: the value for JavaScript. NULL: none. */
    napi_value (*settle)(struct gb_node_job *job);
    /* Frees what the job's own struct holds, not the struct. In any thread. */
    void (*end)(struct gb_node_job *job);
    struct gb_addon *addon;
    double id; /* JavaScript's */
    char *message;
    struct gb_node_job *next;
};
void gb_job_free(struct gb_node_job *job); /* NULL is fine */

/* Makes room for the completion of a request that begins: so it always has one. False: memory is
   out. gb_unreserve() gives the room back, if the request does not begin. */
bool gb_reserve(struct gb_addon *addon);
void gb_unreserve(struct gb_addon *addon);
/* Adds a completion for which there is room. From any thread. */
void gb_complete(struct gb_addon *addon, const struct gb_completion *completion);
/* Adds one that no request waits for, an event. False: memory is out, and it is dropped. */
bool gb_complete_event(struct gb_addon *addon, const struct gb_completion *completion);
/* A copy of a text for a completion; NULL for NULL. */
char *gb_copy(const char *text);

bool gb_has_completions(struct gb_addon *addon);
/* Takes the oldest ones off; their number. */
size_t gb_take_completions(struct gb_addon *addon, struct gb_completion *taken, size_t most);
/* Frees the memory and the references of a completion. */
void gb_completion_drop(struct gb_completion *completion);

#endif
