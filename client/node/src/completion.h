/* Outcomes of requests and events of watches, until they are handed to JavaScript (deliver.h). */
#ifndef GB_NODE_COMPLETION_H
#define GB_NODE_COMPLETION_H

#include "client/lib/objects/pinned.h"
#include "client/node/src/addon.h"

enum gb_done {
    GB_DONE_PLAIN,  /* status; value: a number */
    GB_DONE_OBJECT, /* value: an object's index; kind: what it is */
    GB_DONE_MANY,   /* an array of index * 4 + kind, or negative codes */
    GB_DONE_TEXT,   /* a string */
    GB_DONE_EVENT,  /* of a watch: [kind, object or null] */
    GB_DONE_WANTED, /* of a provider. value: the request; [name or null, uid, gid] */
    GB_DONE_LOST,   /* a client's connection has ended */
    GB_DONE_CLIENT, /* value: a client's index; its instance. Once more: it was resumed */
    GB_DONE_BUFFER, /* an ArrayBuffer, of `block` if that is not NULL */
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
};

/* Adds a completion, from any thread. Without memory it is dropped, and the request never ends. */
void gb_complete(struct gb_addon *addon, const struct gb_completion *completion);
/* A copy of a text for a completion; NULL for NULL. */
char *gb_copy(const char *text);

bool gb_has_completions(struct gb_addon *addon);
/* Frees the memory and the references of a completion. */
void gb_completion_drop(struct gb_completion *completion);

#endif
