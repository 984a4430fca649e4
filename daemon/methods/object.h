/* Shared by the methods that make objects: create, seal, register and alias. */
#ifndef GB_OBJECT_H
#define GB_OBJECT_H

#include "daemon/methods/space.h"

/* The parameters of create and register. */
struct gb_create_params {
    struct gb_string name;
    struct gb_json layout, handles;
    struct gb_string device, share, mode, evict, label, scope, note;
    bool replace, final, own, live, brief;
    uint64_t ttl_ms, wait_ms, keep;
};

/* The parameters that both have. */
#define GB_CREATION_FIELDS                                                                         \
    GB_FIELD(struct gb_create_params, name, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, 0),             \
        GB_FIELD(struct gb_create_params, layout, GB_FIELD_OBJECT, GB_FIELD_REQUIRED, 0, 0),       \
        GB_FIELD(struct gb_create_params, device, GB_FIELD_STRING, 0, 0, 64),                      \
        GB_FIELD(struct gb_create_params, share, GB_FIELD_STRING, 0, 0, 0),                        \
        GB_FIELD(struct gb_create_params, mode, GB_FIELD_STRING, 0, 0, 0),                         \
        GB_FIELD(struct gb_create_params, replace, GB_FIELD_BOOL, 0, 0, 0),                        \
        GB_FIELD(struct gb_create_params, ttl_ms, GB_FIELD_UINT, 0, 0, 0),                         \
        GB_FIELD(struct gb_create_params, evict, GB_FIELD_STRING, 0, 0, 0),                        \
        GB_TITLE_FIELDS(struct gb_create_params),                                                  \
        GB_FIELD(struct gb_create_params, scope, GB_FIELD_STRING, 0, 0, 0),                        \
        GB_FIELD(struct gb_create_params, wait_ms, GB_FIELD_UINT, 0, 0, GB_LIMIT(wait_ms))

/* The checked parameters. */
struct gb_creation {
    struct gb_domain_key key;
    enum gb_evict evict;
    struct gb_demand demand; /* for its place */
    bool named;              /* the object is to be published at once */
    /* Goes on with the new object, and answers. Takes the object in any case; if it takes the
       layout it sets *unsealed to NULL. */
    int (*make)(struct gb_call *call, struct gb_object *object, struct gb_unsealed **unsealed);
};

/* Whether the session may take the name now; to be checked again when it takes it. */
int gb_object_check_name(struct gb_call *call, const struct gb_string *name, bool replace);

/* The title of a version, which create, register, alias and seal set. */
#define GB_TITLE_FIELDS(struct_type)                                                               \
    GB_FIELD(struct_type, label, GB_FIELD_STRING, 0, 0, GB_LIMIT(label_bytes)),                    \
        GB_FIELD(struct_type, keep, GB_FIELD_UINT, 0, 0, GB_LIMIT(keep))

/* Sets title and scope for the next rendering. GPUBUF_E_INVALID: the scope is none;
   GPUBUF_E_NO_MEMORY. */
int gb_object_title(struct gb_call *call, struct gb_object *object, const struct gb_string *label,
                    uint64_t keep, const struct gb_string *scope);

/* A new object over the storage, whose reference it takes in any case. NULL, with call->error. */
struct gb_object *gb_object_make(struct gb_call *call, const struct gb_string *name,
                                 struct gb_storage *storage, struct gb_layout *layout,
                                 unsigned mode);

/* Publishes an object of register or alias, and answers with its version. `r` is the outcome of
   rendering it: if that failed, the object is freed. */
int gb_object_publish(struct gb_call *call, struct gb_object *object, int r, bool replace);

/* Begins the handler of create or register: checks all parameters but the handles. If the request
   is a task, the worker has read the layout, and the task owns it; else it is read now, and is the
   caller's. */
int gb_creation_begin(struct gb_call *call, struct gb_creation *creation,
                      struct gb_unsealed **unsealed);
/* The object is withdrawn when the session ends, unless it is settled before. */
void gb_object_goes_with(struct gb_session *session, struct gb_object *object);
/* Reads the layout of a message; any thread. 0 or a code with the error. */
int gb_creation_read(const struct gb_message *message, struct gb_unsealed **unsealed,
                     struct gb_error *error);
/* Ends the handler of create or register. `placed` is the outcome of placing. Above 0: waits for
   space. 0: writes the layout, whose buffers have their places in the storage by now, and calls
   `make`; the worker writes the layout of a task. Takes the storage in any case, and frees the
   layout if there is no task. */
int gb_creation_end(struct gb_call *call, const struct gb_creation *creation, int placed,
                    struct gb_unsealed *unsealed);

#endif
