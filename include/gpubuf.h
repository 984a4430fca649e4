/*
 * gpubuf.h: the client library of gpubufd, a broker for GPU memory.
 *
 * A program connects to the daemon, opens named objects that other processes published, reads them
 * in place (no copy: the memory is mapped, read-only), slices them, and gives them back; or it
 * creates an object, fills it, and seals it, after which it is not to be changed.
 *
 * Words. A *device* is `host` or a GPU. A *segment* is what is allocated, shared and mapped. A
 * *buffer* is a byte range of a segment. A *layout* says what types and shapes lie over buffers. An
 * *object* is a name, a version and a layout. A *lease* is a session's hold on an object version. A
 * *session* is one connection.
 *
 * Errors. A function that returns `int` returns 0 or a positive documented outcome on success and a
 * negative GPUBUF_E_… code on failure. On failure nothing has happened: outputs are untouched, and
 * what was passed in still belongs to the caller. gpubuf_strerror() gives a fixed text for the
 * code, gpubuf_errmsg() the whole sentence (often the daemon's) of the calling thread's last
 * failure. The library never prints and never exits.
 *
 * Threads. A client and its objects may be used from any thread at the same time, unless a
 * function's comment says otherwise. A blocking call in one thread does not hold up another's.
 * Callbacks run in the thread that is inside gpubuf_dispatch() or a blocking call; no lock is held
 * while they run, and they may call the library, except that they must not make a blocking call on
 * the same client (GPUBUF_E_BUSY).
 *
 * fork(). The child must connect anew. Every call on a client or object inherited from the parent
 * that could fail returns GPUBUF_E_FORKED in the child; what an object is may still be asked, and
 * pointers into mapped memory stay readable there. Releasing an inherited object only frees its
 * memory, and gpubuf_disconnect does nothing. The child's copy of the connection is closed by the
 * fork itself, so that a child does not keep its parent's leases alive.
 *
 * Strings are UTF-8 and NUL-terminated. Unless said otherwise a returned `const char *` belongs to
 * the object or client that it was asked of and lives as long.
 */
#ifndef GPUBUF_H
#define GPUBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define GPUBUF_API __attribute__((visibility("default")))
#else
#define GPUBUF_API
#endif

#define GPUBUF_VERSION_MAJOR 0
#define GPUBUF_VERSION_MINOR 2
#define GPUBUF_VERSION_PATCH 0
#define GPUBUF_VERSION "0.2.0"

/* The protocol that this library speaks. */
#define GPUBUF_PROTOCOL 1

/*
 * Every error: X(name, code, kind, text). Codes up to -32000 travel on the wire as JSON-RPC error
 * codes, with `kind` in `error.data.kind`; the small ones arise in the library alone.
 */
#define GPUBUF_ERROR_MAP(X)                                                                        \
    X(PARSE, -32700, "parse", "the message is not JSON")                                           \
    X(REQUEST, -32600, "request", "the message is not a request")                                  \
    X(METHOD, -32601, "method", "no such method")                                                  \
    X(INVALID, -32602, "invalid",                                                                  \
      "an argument is missing, unknown, of the wrong type or out of range")                        \
    X(INTERNAL, -32603, "internal", "a defect in the daemon or the library")                       \
    X(NOT_FOUND, -32001, "not_found", "no such object")                                            \
    X(EXISTS, -32002, "exists", "the name is taken")                                               \
    X(NO_SPACE, -32003, "no_space", "not enough memory on the device")                             \
    X(DENIED, -32004, "denied", "not permitted")                                                   \
    X(BUSY, -32005, "busy", "in a state that forbids it")                                          \
    X(TIMEOUT, -32006, "timeout", "the time allowed has passed")                                   \
    X(STALE, -32007, "stale", "a lease, version, cursor or segment that is no more")               \
    X(LIMIT, -32008, "limit", "a limit is reached")                                                \
    X(DEVICE, -32009, "device", "the device or its driver failed")                                 \
    X(UNSUPPORTED, -32010, "unsupported", "not supported by this build, device or client")         \
    X(UNAVAILABLE, -32011, "unavailable", "cannot be had now; it may be there later")              \
    X(NO_MEMORY, -1, "no_memory", "the process is out of memory")                                  \
    X(CONNECT, -2, "connect", "cannot connect to the daemon")                                      \
    X(CLOSED, -3, "closed", "the connection to the daemon is closed")                              \
    X(PROTOCOL, -4, "protocol", "the peer broke the protocol")                                     \
    X(AGAIN, -5, "again", "would block")                                                           \
    X(FORKED, -6, "forked", "the connection belongs to the parent process")                        \
    X(SYSTEM, -7, "system", "a system call failed")                                                \
    X(CANCELED, -8, "canceled", "the request was canceled")

enum gpubuf_error {
#define GPUBUF_ERROR_ENUM(name, code, kind, text) GPUBUF_E_##name = (code),
    GPUBUF_ERROR_MAP(GPUBUF_ERROR_ENUM)
#undef GPUBUF_ERROR_ENUM
};

/* The version of the library at run time, such as "0.2.0". Static. */
GPUBUF_API const char *gpubuf_version(void);

/* A fixed text for an error code; never NULL, also for an unknown code. Static. */
GPUBUF_API const char *gpubuf_strerror(int error);

/* The code's short name as on the wire ("not_found"); "unknown" for an unknown code. Static. */
GPUBUF_API const char *gpubuf_errkind(int error);

struct gpubuf_client;
struct gpubuf_object;

/*
 * The sentence that explains the calling thread's last failed call on `client` (NULL: its last
 * failed gpubuf_connect). Never NULL; empty if nothing failed. Valid until the same thread's next
 * failing call. A thread remembers the last failures with four clients. In a callback it explains
 * the status that the callback was given. The second form gives the object's client's.
 */
GPUBUF_API const char *gpubuf_errmsg(const struct gpubuf_client *client);
GPUBUF_API const char *gpubuf_object_errmsg(const struct gpubuf_object *object);

/* Frees what a function of this library says is to be freed with it. NULL is fine. */
GPUBUF_API void gpubuf_free(void *pointer);

/* ---- connection -------------------------------------------------------------------------- */

/*
 * Options of gpubuf_connect. Zero-initialise, set `size` to sizeof(struct gpubuf_connect_options),
 * then what you want. Every option struct of this header is extended at its end only, and a shorter
 * `size` from an older program is understood; a `size` of 0 is GPUBUF_E_INVALID.
 */
struct gpubuf_connect_options {
    size_t size;
    const char *path;        /* socket; NULL: $GPUBUFD_SOCKET, else
                                 $NVIDIA_DRA_LOCAL_IPC_DIR/gpubufd.sock if it exists, else
                                 /run/gpubufd/gpubufd.sock if it exists, else
                                 $XDG_RUNTIME_DIR/gpubufd.sock */
    const char *client_name; /* what `gpubufctl ps` shows; NULL: the program's short name */
    int timeout_ms;          /* how long to try to connect and greet; 0: 5000; -1: for ever */
    uint64_t cache_bytes;    /* idle mappings to keep for later opens, in bytes; 0: 1 GiB */
    int answer_timeout_ms;   /* how long a blocking call waits for an answer, on top of its own
                                 wait_ms, before GPUBUF_E_TIMEOUT; 0: 60 000; -1: for ever */
    int resume_ms;           /* how long to try to make a connection that broke anew, see below;
                                 0: 10 000; -1: for ever; GPUBUF_NO_RESUME: not at all */
    int keep;                /* how many opened objects to keep at hand after their release, see
                                 gpubuf_open; 0: none; -1: 1024 */
    int keep_ms;             /* for how long, without a use; 0: 10 000 */
    uint64_t keep_bytes;     /* and how many bytes of them; 0: 16 GiB */
};

#define GPUBUF_NO_RESUME (-2)

/*
 * Connects and greets the daemon. `options` may be NULL. On success *client is to be ended with
 * gpubuf_disconnect. GPUBUF_E_CONNECT: no daemon there (the message names the path and the cause);
 * GPUBUF_E_TIMEOUT; GPUBUF_E_UNSUPPORTED: the daemon speaks another version of the protocol. Where
 * the daemon ends while it greets, and connections may be made anew (resume_ms), this is tried
 * again as long as somebody listens there and there is time; else it is GPUBUF_E_CLOSED.
 */
GPUBUF_API int gpubuf_connect(struct gpubuf_client **client,
                              const struct gpubuf_connect_options *options);

/*
 * Ends the connection, and with it every lease: the daemon may reuse the memory at once. Requests
 * under way end with GPUBUF_E_CLOSED: their callbacks run, and blocking calls in other threads
 * return, before this does. No call on the client may begin afterwards. Objects stay valid to be
 * released, and their mappings stay until then, but what they hold is no longer promised. NULL is
 * fine.
 *
 * Where the connection breaks (the daemon was killed, or restarts) open objects stay readable, and
 * the library makes the connection anew: in the next call, in gpubuf_dispatch, or, while objects
 * are open, by a thread of its own. The objects' leases are asked for again; one that the daemon
 * does not grant, since it has another instance or the object was gone meanwhile, is stale
 * (gpubuf_is_stale). An object that was created and not sealed is lost: sealing it is
 * GPUBUF_E_STALE. Requests under way are sent again, but for those that change something and may
 * have been done: these end with GPUBUF_E_CLOSED, and the message says that it is not known.
 * Watches are told everything from the beginning (gpubuf_watch). If nobody listens within
 * resume_ms, or the daemon said that it stops for good, the connection is lost: every call returns
 * GPUBUF_E_CLOSED (GPUBUF_E_NO_MEMORY where memory was too short for it all that time), and objects
 * stay readable until they are released.
 */
GPUBUF_API void gpubuf_disconnect(struct gpubuf_client *client);

/* Whether the object's lease went with a connection that broke, or is lost for good. It can still
   be read where it is mapped, but the daemon does not know that somebody does: what it holds is
   no longer promised. */
GPUBUF_API bool gpubuf_is_stale(const struct gpubuf_object *object);

/* The daemon's identity (lowercase hex), which a restart that loses no object keeps, and the
   session's number. Both may change when a connection that broke is made anew. */
GPUBUF_API const char *gpubuf_instance(const struct gpubuf_client *client);
GPUBUF_API uint64_t gpubuf_session(const struct gpubuf_client *client);

/*
 * To embed the client in an event loop: poll gpubuf_fd() for gpubuf_events() (ask anew before each
 * wait, since it depends on whether output is queued), then call gpubuf_dispatch(), which
 * never blocks: it sends and receives what it can and runs callbacks. It returns how many messages
 * it handled, or GPUBUF_E_CLOSED / GPUBUF_E_PROTOCOL once the connection is lost (every request
 * under way has then been ended with that code). While another thread is inside a blocking call it
 * is that thread which receives, for everybody, and this may return 0. The descriptor belongs to
 * the client and stays the same until gpubuf_disconnect, also where the connection is made anew; it
 * is -1 in a child of fork, and good for polling only. Poll as poll() does, by what is there: after
 * a dispatch, not all that came meanwhile need have been received.
 */
GPUBUF_API int gpubuf_fd(const struct gpubuf_client *client);
GPUBUF_API short gpubuf_events(const struct gpubuf_client *client);
GPUBUF_API int gpubuf_dispatch(struct gpubuf_client *client);

/* ---- any method ---------------------------------------------------------------------------- */

/*
 * Calls any method of the protocol that carries no descriptors (docs/PROTOCOL.md; `open`, `create`
 * and `register` have functions of their own, and are GPUBUF_E_UNSUPPORTED here). `params` is a
 * JSON object as text, or NULL. On success *result, if `result` is not NULL, is the JSON text of
 * `result`, to be freed with gpubuf_free. Waits at most `timeout_ms` (-1: for ever).
 */
GPUBUF_API int gpubuf_call(struct gpubuf_client *client, const char *method, const char *params,
                           int timeout_ms, char **result);

/* `result` is the JSON text on success and NULL on failure; it lives during the callback only. */
typedef void (*gpubuf_call_cb)(struct gpubuf_client *client, int status, const char *result,
                               size_t length, void *arg);

/*
 * As gpubuf_call, without waiting. `callback` runs exactly once if this returns 0 (with
 * GPUBUF_E_CLOSED or GPUBUF_E_CANCELED if need be), never if it fails; it may be NULL. *request,
 * where `request` is not NULL, names it for gpubuf_cancel. There is no timeout but the daemon's.
 */
GPUBUF_API int gpubuf_call_async(struct gpubuf_client *client, const char *method,
                                 const char *params, gpubuf_call_cb callback, void *arg,
                                 uint64_t *request);

/*
 * Ends a request under way: its callback runs with GPUBUF_E_CANCELED before this returns, and
 * whatever the daemon still grants it is given back (a seal that the daemon has done stays done).
 * GPUBUF_E_NOT_FOUND if its callback has begun already.
 */
GPUBUF_API int gpubuf_cancel(struct gpubuf_client *client, uint64_t request);

/* ---- opening ------------------------------------------------------------------------------- */

struct gpubuf_open_options {
    size_t size;
    uint64_t version;  /* 0: the current one; GPUBUF_E_STALE if the name does not have it */
    int64_t wait_ms;   /* how long to wait for the object to exist; 0: not at all */
    const char *label; /* the newest version that has it; NULL: any. Not beside `version` */
};

/*
 * Opens a sealed object for reading and maps its memory, at the cost of one round trip; nothing is
 * copied. A client that keeps objects (`keep` of gpubuf_connect_options) opens what is open
 * already, or was released lately, without asking the daemon, as long as the name means that
 * object: an open that begins after a change of the name was answered sees the change. Both
 * openings have one object then, with two references. A kept lease is no hold: it leaves in
 * its turn when memory is short, and the daemon asks for it before that; `gpubufctl ps` tells it
 * apart. `options` may be NULL. *object is to be given back with gpubuf_release.
 * GPUBUF_E_NOT_FOUND: no such object, or none that this user may read; GPUBUF_E_TIMEOUT: not within
 * wait_ms, or the daemon does not answer; GPUBUF_E_UNSUPPORTED: on a GPU that is not visible to
 * this process, or there is no driver; GPUBUF_E_DEVICE: the driver failed (see GPUs).
 */
GPUBUF_API int gpubuf_open(struct gpubuf_client *client, const char *name,
                           const struct gpubuf_open_options *options,
                           struct gpubuf_object **object);

/*
 * Opens `count` objects at once (any number; more than 256 take several requests). objects[i] is
 * the object, or NULL where it could not be opened, and then errors[i] says why (`errors` may be
 * NULL). With a wait_ms each request waits until all of its objects exist; `version` must be 0, and
 * `label` NULL.
 * Returns how many were opened, or a negative code if the request as a whole failed and nothing is
 * open.
 */
GPUBUF_API int gpubuf_open_many(struct gpubuf_client *client, const char *const *names,
                                size_t count, const struct gpubuf_open_options *options,
                                struct gpubuf_object **objects, int *errors);

/* On success `object` is the callback's to release; on failure it is NULL. */
typedef void (*gpubuf_object_cb)(struct gpubuf_client *client, int status,
                                 struct gpubuf_object *object, void *arg);

/* As gpubuf_open, without waiting; see gpubuf_call_async for `callback` and `request`. */
GPUBUF_API int gpubuf_open_async(struct gpubuf_client *client, const char *name,
                                 const struct gpubuf_open_options *options,
                                 gpubuf_object_cb callback, void *arg, uint64_t *request);

/*
 * On success `status` is how many were opened, and `objects` and `errors` are as of
 * gpubuf_open_many; each object is the callback's to release, the arrays live during the callback
 * only. On failure both are NULL.
 */
typedef void (*gpubuf_objects_cb)(struct gpubuf_client *client, int status,
                                  struct gpubuf_object *const *objects, const int *errors,
                                  size_t count, void *arg);

/* As gpubuf_open_many, without waiting; the names are copied. GPUBUF_E_INVALID if not one of them
   is a name. See gpubuf_call_async for `callback`, which must not be NULL, and `request`. */
GPUBUF_API int gpubuf_open_many_async(struct gpubuf_client *client, const char *const *names,
                                      size_t count, const struct gpubuf_open_options *options,
                                      gpubuf_objects_cb callback, void *arg, uint64_t *request);

/*
 * Objects are counted: retain adds a reference and returns the same object; release drops one. When
 * the last reference to an object and to every view made from it is gone, its lease ends. Release
 * only when you have finished reading. NULL is fine for both. An unsealed object is aborted by its
 * last release.
 *
 * The daemon is told by a message that it does not answer and nobody waits for: at once, or, where
 * the client's releases follow on one another within a millisecond, together with the next request,
 * but within two milliseconds or so also if none follows (a thread of the library's own, started
 * when it is first needed, sees to that). From inside a callback it goes out when the callbacks
 * that are due have run.
 */
GPUBUF_API struct gpubuf_object *gpubuf_retain(struct gpubuf_object *object);
GPUBUF_API void gpubuf_release(struct gpubuf_object *object);

/* Releases `count` objects, of any clients; NULL among them is fine. */
GPUBUF_API void gpubuf_release_many(struct gpubuf_object *const *objects, size_t count);

/* ---- what an object is --------------------------------------------------------------------- */

enum gpubuf_kind {
    GPUBUF_KIND_BYTES = 0,  /* plain bytes */
    GPUBUF_KIND_ARRAY = 1,  /* n-dimensional, one dtype, maybe with a bitmap of valid elements */
    GPUBUF_KIND_COLUMN = 2, /* an Arrow column */
    GPUBUF_KIND_TABLE = 3,  /* columns of equal length, by name */
    GPUBUF_KIND_BUNDLE = 4, /* many arrays, by name: a safetensors file (see bundles) */
};

GPUBUF_API enum gpubuf_kind gpubuf_kind(const struct gpubuf_object *object);

/* The name, version (1 or more; 0 while unsealed) and device of the object that this is or is a
   view of. The device is "host" or a GPU's UUID ("GPU-…"). */
GPUBUF_API const char *gpubuf_name(const struct gpubuf_object *object);
GPUBUF_API uint64_t gpubuf_object_version(const struct gpubuf_object *object);
/* The producer's label for this version, such as "step-42"; NULL: none. Lives as the object. */
GPUBUF_API const char *gpubuf_label(const struct gpubuf_object *object);
GPUBUF_API const char *gpubuf_device(const struct gpubuf_object *object);

/* The name of this column in its table or struct; NULL if it is not one. */
GPUBUF_API const char *gpubuf_column_name(const struct gpubuf_object *object);

/* The dtype in the protocol's spelling ("float64", "timestamp[us,UTC]"); "" for bytes and
   tables. */
GPUBUF_API const char *gpubuf_dtype(const struct gpubuf_object *object);

/* Rows of a table, elements of a column, extent of an array's first axis (1 for 0-d), or bytes. */
GPUBUF_API uint64_t gpubuf_length(const struct gpubuf_object *object);

/* The column's offset in elements: element i of the column is element offset + i of its buffers. A
   view's offset includes those of the slices that led to it. Of an array: the bit of its first
   element in its mask (the data of an array starts at its first element). 0 for others. */
GPUBUF_API uint64_t gpubuf_offset(const struct gpubuf_object *object);

/* How many elements are null; -1 if nobody counted, as in most slices of columns with nulls. 0 for
   bytes, and for tables. */
GPUBUF_API int64_t gpubuf_null_count(const struct gpubuf_object *object);

/* Arrays: number of axes, extents in elements, strides in bytes; ndim is 1 for bytes and columns
   (of stride 0 where elements are no whole bytes), and 0 for tables. Packed elements, such
   as float4_e2m1fn's, fill whole bytes along the last axis, whose stride is that of its bytes: 1.
   The pointers are to ndim values, owned by the object; not to be followed where ndim is 0. */
GPUBUF_API unsigned gpubuf_ndim(const struct gpubuf_object *object);
GPUBUF_API const uint64_t *gpubuf_shape(const struct gpubuf_object *object);
GPUBUF_API const int64_t *gpubuf_strides(const struct gpubuf_object *object);

enum gpubuf_which {
    GPUBUF_DATA = 0,    /* values; of strings, the characters */
    GPUBUF_MASK = 1,    /* validity bitmap: LSB first, 1 = valid, bit offset + i */
    GPUBUF_OFFSETS = 2, /* of strings and lists: offset + length + 1 integers, int64_t where the
                            dtype begins with "large_", else int32_t */
};

/* A stretch of memory that is mapped here. `pointer` is a device pointer for objects on a GPU. */
struct gpubuf_memory {
    void *pointer;
    uint64_t bytes;
    bool writable;
};

/*
 * The memory of one of the object's buffers. Of columns: the whole buffer, from its start, to which
 * gpubuf_offset() is to be applied. Of arrays and bytes: data begins at the view's first element
 * and spans to the end of its last; the mask is whole. Positive 1 if the object has no such buffer
 * (then
 * *memory has a NULL pointer and 0 bytes); a buffer of 0 bytes has a pointer that is not NULL. It
 * stays mapped as long as the object is held. GPUBUF_E_CLOSED after gpubuf_disconnect.
 */
GPUBUF_API int gpubuf_memory(const struct gpubuf_object *object, enum gpubuf_which which,
                             struct gpubuf_memory *memory);

/* Whether element i (of a column, or in C order of an array) is not null. Host objects only: false
   for an index past the end, and for objects on a GPU. */
GPUBUF_API bool gpubuf_is_valid(const struct gpubuf_object *object, uint64_t i);

/*
 * The text of element i of a column of strings or binaries: *length bytes, which no NUL ends, and
 * which stay there as long as the object is held. NULL for an element that is null, which has
 * *length 0, and where there is no such text: past the end, of other dtypes, on a GPU, or where
 * the column's offsets are not within its data. `length` may be NULL.
 */
GPUBUF_API const char *gpubuf_string_at(const struct gpubuf_object *column, uint64_t i,
                                        uint64_t *length);

/* ---- parts of an object -------------------------------------------------------------------- */

/* Columns of a table, or children of a nested column; 0 for others. */
GPUBUF_API size_t gpubuf_child_count(const struct gpubuf_object *object);

/*
 * Views: objects of their own that hold what they were made from, to be released like any. They
 * cost no message. Child i of a table or nested column; the column of a given name
 * (GPUBUF_E_NOT_FOUND); elements [offset, offset + length) of a bytes, array (first axis), column
 * or table (GPUBUF_E_INVALID past the end). A child of a sliced struct or fixed_list column is
 * sliced alike, and so are the indices (child 0) of a dictionary; the child of a list and the
 * values of a dictionary (child 1) are whole, as offsets and indices count from their start.
 */
GPUBUF_API int gpubuf_child(struct gpubuf_object *object, size_t i, struct gpubuf_object **child);
GPUBUF_API int gpubuf_column(struct gpubuf_object *object, const char *name,
                             struct gpubuf_object **column);
GPUBUF_API int gpubuf_slice(struct gpubuf_object *object, uint64_t offset, uint64_t length,
                            struct gpubuf_object **slice);

/*
 * Some columns of a sealed table, in the order given: a view that is a table, to be exported,
 * sliced and released like any. GPUBUF_E_NOT_FOUND: there is no such column; GPUBUF_E_INVALID: no
 * table, or one column twice; GPUBUF_E_BUSY: still being written.
 */
GPUBUF_API int gpubuf_select(struct gpubuf_object *table, const char *const *names, size_t count,
                             struct gpubuf_object **view);

/* Value of a column's or table's metadata key, NULL if there is none; pair i of them (1 if i is
   past the end). */
GPUBUF_API const char *gpubuf_metadata(const struct gpubuf_object *object, const char *key);
GPUBUF_API int gpubuf_metadata_at(const struct gpubuf_object *object, size_t i, const char **key,
                                  const char **value);

/* ---- publishing ---------------------------------------------------------------------------- */

/*
 * Dtypes, and what lies in the data of each element; all is little-endian.
 *
 *     bool                         a bit, the least significant first
 *     bool8                        a byte, 0 or 1
 *     int8 … int64, uint8 … uint64
 *     float16 bfloat16 float32 float64, complex64 complex128 (real, imaginary)
 *     float8_e4m3fn, float8_e5m2 and six more of one byte: docs/PROTOCOL.md
 *     utf8 binary                  all texts in a row; offsets are int32_t
 *     large_utf8 large_binary      the same; offsets are int64_t
 *     fixed_binary(N)              N bytes
 *     date32 date64                int32_t days, int64_t milliseconds since 1970
 *     time32[s|ms] time64[us|ns]   int32_t, int64_t since midnight
 *     timestamp[s|ms|us|ns], timestamp[UNIT,ZONE], duration[UNIT]   int64_t
 *     decimal128(PRECISION,SCALE)  16 bytes
 *     month_interval               int32_t
 *     day_time_interval            int32_t days, int32_t milliseconds
 *     month_day_nano_interval      int32_t months, int32_t days, int64_t nanoseconds
 *     list large_list              none: offsets, int32_t or int64_t, and one child, the items
 *     fixed_list(N)                none: one child with N items for each element
 *     map                          as list; the child is a struct of key and value
 *     struct                       none: a child for each field
 *     dictionary                   none: two children, the indices, which have the mask, and values
 *     null                         none
 *     float6_e2m3fn float6_e3m2fn float4_e2m1fn   packed, and of arrays alone
 */

/* The description of a column. Zero-initialise. Everything is the caller's and is only read. */
struct gpubuf_column_spec {
    const char *name;    /* in a table or struct; NULL elsewhere */
    const char *dtype;   /* "float64", "utf8", "timestamp[us]", "list", … */
    uint64_t length;     /* in elements */
    uint64_t offset;     /* in elements; usually 0 */
    int64_t null_count;  /* -1: unknown */
    bool mask;           /* place a validity bitmap */
    uint64_t data_bytes; /* strings and binaries: bytes of data; others: not looked at */
    const struct gpubuf_column_spec *children;
    size_t child_count;
    const char *const *metadata; /* key, value, key, value, …, NULL; or NULL */
};

struct gpubuf_layout_spec {
    enum gpubuf_kind kind;
    uint64_t bytes;                   /* KIND_BYTES, KIND_BUNDLE: of the whole content */
    uint64_t manifest_bytes;          /* KIND_BUNDLE (see gpubuf_bundle_layout) */
    const char *dtype;                /* KIND_ARRAY … */
    unsigned ndim;                    /* at most 32 */
    const uint64_t *shape;            /* extents, in elements */
    bool mask;                        /* place a bitmap of valid elements */
    struct gpubuf_column_spec column; /* KIND_COLUMN; KIND_TABLE: its children, length, metadata */
    const char *const *parts;         /* KIND_BUNDLE: as gpubuf_alias_options.parts; NULL: all */
};

/* The fate of an object when memory is short and nobody holds it. DEFAULT: what the daemon
   was started with, which is SPILL unless it is a cache (--evict drop). SPILL: its content moves to
   a tier, or, where there is none with room, it stays. DROP: it is removed. KEEP: nothing. */
enum gpubuf_evict {
    GPUBUF_EVICT_DEFAULT = 0,
    GPUBUF_EVICT_SPILL = 1,
    GPUBUF_EVICT_DROP = 2,
    GPUBUF_EVICT_KEEP = 3
};

/* How far an object is to be known: on this machine, or on others too, to which gpubufd-peer tells
   of it. The daemon only remembers it. */
enum gpubuf_scope { GPUBUF_SCOPE_LOCAL = 0, GPUBUF_SCOPE_CLUSTER = 1 };

struct gpubuf_create_options {
    size_t size;
    const char *device; /* "host", "GPU-…", "cuda:N"; NULL: the daemon's default */
    const char *share;  /* "fd" or "ipc"; NULL: "fd" */
    unsigned mode;      /* who else may open (4) and replace, delete, pin (2); 0: 0600 */
    bool replace;       /* take the name from an object that has it */
    int64_t ttl_ms;     /* delete it so long after its seal; 0: never */
    enum gpubuf_evict evict;
    int64_t wait_ms;   /* how long to wait for space; 0: not at all */
    bool final;        /* the kernel keeps everybody from changing it once it is sealed, its maker
                        too; of host memory only */
    uint64_t *version; /* gpubuf_put_…: where to write the version that was published; or NULL */
    const char *label; /* what you call this version: up to 255 bytes of UTF-8; NULL: nothing */
    unsigned keep;     /* how many older versions of the name can still be opened; 0 to 8. Others
                          go when this one is sealed, or with their last reader */
    enum gpubuf_scope scope;
};

/*
 * Allocates an object, mapped for writing. Fill its buffers (gpubuf_child, gpubuf_memory), then
 * gpubuf_seal it; until then nobody else sees it, and the last release aborts it. In host memory
 * masks and the padding behind buffers are zero; all else, and on a GPU these too, is what older
 * objects of yours have left: fill it all. With `final` GPUBUF_E_UNSUPPORTED: on a GPU.
 * GPUBUF_E_EXISTS: the name is taken and `replace` is false; GPUBUF_E_DENIED: taken by another
 * user's object; GPUBUF_E_NO_SPACE; GPUBUF_E_INVALID: the layout (the message names the member).
 */
GPUBUF_API int gpubuf_create(struct gpubuf_client *client, const char *name,
                             const struct gpubuf_layout_spec *layout,
                             const struct gpubuf_create_options *options,
                             struct gpubuf_object **object);
GPUBUF_API int gpubuf_create_async(struct gpubuf_client *client, const char *name,
                                   const struct gpubuf_layout_spec *layout,
                                   const struct gpubuf_create_options *options,
                                   gpubuf_object_cb callback, void *arg, uint64_t *request);

/*
 * Publishes a created object (not a view of it) under its name. The caller must have finished
 * writing, on the device too. Afterwards the object is a read lease on what was sealed; its
 * memory must not be written. `null_counts`, where not NULL, has one entry for each column of a
 * table (or one for a column); -1 leaves what `create` said. Readers believe them, and need not
 * look at a mask where there are 0 nulls: in host memory one that is not what the mask says is
 * GPUBUF_E_INVALID. GPUBUF_E_BUSY: sealed already; GPUBUF_E_EXISTS: the name was taken meanwhile.
 * After a failure the object is as before and may be sealed again. Other threads must not ask for
 * the object's null counts while it runs.
 *
 * Whoever writes it all the same, through the pointers of this object, gets SIGSEGV until it is
 * released: in host memory, in the whole pages that are the object's alone, where these are 64 KiB
 * or more, and for some thousands of objects at a time, since each may cost the process two of its
 * mappings. Elsewhere, and on a GPU (but see gpubuf_protect), it would change for all who read it.
 *
 * Only an object that was created `final` nobody can change. Its seal has the kernel hold the
 * memory, and is GPUBUF_E_BUSY while that is mapped for writing elsewhere, in a child of fork() for
 * example. If the name is taken then, it may be sealed again, but not be written any more.
 *
 * gpubuf_seal_async holds the object by itself; on success its callback is given that reference, to
 * be released beside the caller's own.
 */
GPUBUF_API int gpubuf_seal(struct gpubuf_object *object, const int64_t *null_counts);
/*
 * Keeps this process from writing an object that it created and sealed, until that is released;
 * nothing of the GPU may be under way then that writes it. Positive: it does; 0: it cannot be done,
 * where the object does not fill its segment on a GPU, or is too small on the host (where the seal
 * does it by itself). Takes some 100 us on a GPU. GPUBUF_E_INVALID: it is none of that kind.
 */
GPUBUF_API int gpubuf_protect(struct gpubuf_object *object);
/* The seal's settings for this version, in place of gpubuf_create's: its label (NULL: as it
   was; "": none), and how many older ones stay (-1: as it was). GPUBUF_E_BUSY: it is sealed. */
GPUBUF_API int gpubuf_set_label(struct gpubuf_object *object, const char *label, int keep);
GPUBUF_API int gpubuf_seal_async(struct gpubuf_object *object, const int64_t *null_counts,
                                 gpubuf_object_cb callback, void *arg, uint64_t *request);

/*
 * create + copy + seal + release in one call, from memory of the host or of a GPU (see GPUs) into
 * an object on either. Work on the data must be done, unless it was queued on its GPU's default
 * stream. Arrays: of `shape` in elements, from `data`, in C order or with `strides` in bytes (NULL:
 * C order; any sign, 0 too; of packed elements, to the next byte); the object is in C order. (From
 * a GPU, runs of elements that lie side by side are copied one by one: make small ones contiguous
 * first.) Errors are those of gpubuf_create and gpubuf_seal; nothing is published on failure.
 */
GPUBUF_API int gpubuf_put_bytes(struct gpubuf_client *client, const char *name, const void *data,
                                uint64_t bytes, const struct gpubuf_create_options *options);
GPUBUF_API int gpubuf_put_array(struct gpubuf_client *client, const char *name, const char *dtype,
                                unsigned ndim, const uint64_t *shape, const int64_t *strides,
                                const void *data, const struct gpubuf_create_options *options);

/* A column in plain arrays of the host's. Zero-initialise. Everything is the caller's and is only
   read. */
struct gpubuf_values {
    const char *name;  /* in a table */
    const char *dtype; /* of a fixed width, "bool", "utf8" or "large_utf8" */
    /* The elements; of `bool` a bool each; of text a `const char *` each, UTF-8, NULL for a null */
    const void *values;
    const bool *valid; /* false for an element that is null, whatever its value; NULL: none is */
};

/*
 * create + copy + seal + release of a table of `count` columns, or of one column, of `length`
 * elements each, on the host or a GPU:
 *
 *     const char *city[] = {"Linz", NULL, "Graz"};
 *     const double degrees[] = {21.5, 19, 23.25};
 *     const struct gpubuf_values columns[] = {{"city", "utf8", city, NULL},
 *                                             {"degrees", "float64", degrees, NULL}};
 *     int r = gpubuf_put_table(client, "weather", columns, 2, 3, NULL);
 *
 * Errors are those of gpubuf_create and gpubuf_seal; nothing is published on failure.
 * GPUBUF_E_UNSUPPORTED: a nested dtype, or binary, for which there is gpubuf_put_arrow.
 */
GPUBUF_API int gpubuf_put_table(struct gpubuf_client *client, const char *name,
                                const struct gpubuf_values *columns, size_t count, uint64_t length,
                                const struct gpubuf_create_options *options);
GPUBUF_API int gpubuf_put_column(struct gpubuf_client *client, const char *name,
                                 const struct gpubuf_values *column, uint64_t length,
                                 const struct gpubuf_create_options *options);

/* ---- bundles ------------------------------------------------------------------------------- */

/*
 * A bundle is one object that holds many arrays, such as the weights of a model: one version, one
 * lease, all or nothing. Its content is a safetensors file: 8 bytes with the length of the manifest
 * (little-endian), the manifest (JSON: name, dtype, shape and place of each array, and metadata),
 * then the arrays' data. The daemon does not look into it; what follows reads it, once, and checks
 * all of it.
 *
 * A struct gpubuf_bundle never changes, so any thread may use it at any time. Results belong to it
 * and live as long; with an object, the memory that is pointed to is the object's, which the bundle
 * holds. Of functions that take no client or object, gpubuf_errmsg(NULL) explains failures.
 */
struct gpubuf_bundle;

/* One array. Later versions may have more members, at the end: do not copy it by its size. */
struct gpubuf_tensor {
    const char *name;
    const char *dtype; /* in the protocol's spelling, such as "bfloat16"; BOOL is "bool8" */
    unsigned ndim;
    const uint64_t *shape; /* in elements, also of packed ones; data is in C order */
    uint64_t offset;       /* of its first byte in the bundle's content */
    uint64_t bytes;
    void *pointer; /* its first byte, on the host or on the object's GPU; NULL without an object */
};

/*
 * Reads the manifest of an object of kind bundle; from a GPU it is copied to the host for that,
 * which waits until the content is there (gpubuf_wait_ready). The object may be one that is being
 * written, once the manifest is in it. *bundle is to be ended with gpubuf_bundle_free, until when
 * it holds a reference to the object. GPUBUF_E_INVALID: no bundle, or the manifest is wrong (the
 * message names the tensor and the place); GPUBUF_E_BUSY in a callback; errors of gpubuf_read.
 */
GPUBUF_API int gpubuf_bundle_open(struct gpubuf_object *object, struct gpubuf_bundle **bundle);

/*
 * Reads a manifest that lies in memory of the host, `manifest_bytes` bytes behind the 8 that say
 * how many, as the start of a file of `bytes` bytes in all. The text is not kept.
 */
GPUBUF_API int gpubuf_bundle_parse(const char *manifest, uint64_t manifest_bytes, uint64_t bytes,
                                   struct gpubuf_bundle **bundle);

/* The description of an array of a bundle. */
struct gpubuf_tensor_spec {
    const char *name;
    const char *dtype; /* one that safetensors has, in the protocol's spelling */
    unsigned ndim;
    const uint64_t *shape;
};

/*
 * Makes the manifest of a bundle of `count` arrays and gives each its place, without holes: the
 * data begins at a multiple of 256, and each array at a multiple of the largest power of two, up
 * to 256, that divides its bytes. Those of larger ones come first, else they keep their order.
 * Tensor i of the bundle is tensors[i]. `metadata` is key, value, key, value, …, NULL; or NULL.
 * Nothing is kept of the arguments. Then a producer writes
 *
 *     struct gpubuf_layout_spec layout;
 *     uint64_t head_bytes;
 *     gpubuf_bundle_layout(bundle, &layout);
 *     const void *head = gpubuf_bundle_head(bundle, &head_bytes);
 *     gpubuf_create(client, name, &layout, NULL, &object);
 *     gpubuf_write(object, GPUBUF_DATA, 0, head, head_bytes, NULL);
 *     for (size_t i = 0; i < count; i++) {
 *         const struct gpubuf_tensor *tensor = gpubuf_bundle_at(bundle, i);
 *         gpubuf_write(object, GPUBUF_DATA, tensor->offset, data[i], tensor->bytes, NULL);
 *     }
 *     gpubuf_seal(object, NULL);
 */
GPUBUF_API int gpubuf_bundle_plan(const struct gpubuf_tensor_spec *tensors, size_t count,
                                  const char *const *metadata, struct gpubuf_bundle **bundle);

/* The layout of an object of that content; and a planned bundle's first bytes, up to its data, with
   their number in *bytes (of others NULL, and 0). */
GPUBUF_API void gpubuf_bundle_layout(const struct gpubuf_bundle *bundle,
                                     struct gpubuf_layout_spec *layout);
GPUBUF_API const void *gpubuf_bundle_head(const struct gpubuf_bundle *bundle, uint64_t *bytes);

/* NULL is fine. */
GPUBUF_API void gpubuf_bundle_free(struct gpubuf_bundle *bundle);

/* Whether it has only some of the tensors that its memory has (gpubuf_alias_options.parts). */
GPUBUF_API bool gpubuf_bundle_is_part(const struct gpubuf_bundle *bundle);

/* How many arrays there are; array i, in the order of the manifest; and one by its name, its index
   to *i, which may be NULL. NULL if there is none. */
GPUBUF_API size_t gpubuf_bundle_count(const struct gpubuf_bundle *bundle);
GPUBUF_API const struct gpubuf_tensor *gpubuf_bundle_at(const struct gpubuf_bundle *bundle,
                                                        size_t i);
GPUBUF_API const struct gpubuf_tensor *gpubuf_bundle_find(const struct gpubuf_bundle *bundle,
                                                          const char *name, size_t *i);

/* As gpubuf_metadata and gpubuf_metadata_at, for the manifest's "__metadata__". */
GPUBUF_API const char *gpubuf_bundle_metadata(const struct gpubuf_bundle *bundle, const char *key);
GPUBUF_API int gpubuf_bundle_metadata_at(const struct gpubuf_bundle *bundle, size_t i,
                                         const char **key, const char **value);

/*
 * Array i of a bundle with an object as an object of its own: a view (see parts of an object), of
 * kind array, which outlives the bundle and is to be released. GPUBUF_E_NOT_FOUND past the end;
 * GPUBUF_E_INVALID: there is no object; GPUBUF_E_UNSUPPORTED: packed elements that fill no whole
 * bytes along the last axis, or a place that is no multiple of the element's size, as a file of
 * others may have.
 */
GPUBUF_API int gpubuf_bundle_array(const struct gpubuf_bundle *bundle, size_t i,
                                   struct gpubuf_object **array);

/* ---- Arrow --------------------------------------------------------------------------------- */

/* The Arrow C Data Interface (https://arrow.apache.org/docs/format/CDataInterface.html). */
#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4

struct ArrowSchema {
    const char *format;
    const char *name;
    const char *metadata;
    int64_t flags;
    int64_t n_children;
    struct ArrowSchema **children;
    struct ArrowSchema *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};

struct ArrowArray {
    int64_t length;
    int64_t null_count;
    int64_t offset;
    int64_t n_buffers;
    int64_t n_children;
    const void **buffers;
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

#endif

/*
 * Exports a host column, table (as a struct array, one child a column), 1-d array or bytes (as
 * uint8) with no copy. The caller releases both by their own `release`; until then they hold the
 * object. Either may be NULL. Moved and released on any thread, children on their own too.
 * GPUBUF_E_UNSUPPORTED: an object on a GPU, an array of several axes or with gaps between elements,
 * or a dtype that Arrow has not (bool8, bfloat16, floats of 8 bits and fewer, complex).
 */
GPUBUF_API int gpubuf_export_arrow(struct gpubuf_object *object, struct ArrowSchema *schema,
                                   struct ArrowArray *array);

/*
 * Publishes a host Arrow array: a struct array without nulls of its own as a table if `as_table`,
 * else as a column. Copies what the array's offset and length show, and counts its nulls;
 * `schema` and `array` are only read and stay the caller's. Metadata are kept, a table's too,
 * where they are UTF-8 text. GPUBUF_E_UNSUPPORTED: a type that the protocol has not (maps,
 * unions, views, run ends); GPUBUF_E_INVALID: the structs contradict each other.
 */
GPUBUF_API int gpubuf_put_arrow(struct gpubuf_client *client, const char *name,
                                const struct ArrowSchema *schema, const struct ArrowArray *array,
                                bool as_table, const struct gpubuf_create_options *options);

/* ---- sharing memory of your own ------------------------------------------------------------ */

/*
 * Shares `bytes` bytes of memfd `fd` under a name, with no copy, sealed at once. The descriptor is
 * adopted (the daemon keeps its own copy; the caller's stays open) and must carry F_SEAL_SHRINK;
 * one of huge pages, F_SEAL_WRITE or F_SEAL_FUTURE_WRITE. Where it has neither of these, the file's
 * mode loses the right of group and others to write (fchmod), which readers could use.
 * `layout_json` is a layout whose buffers are {"handle":0,"offset":…,"bytes":…}.
 */
GPUBUF_API int gpubuf_register_memfd(struct gpubuf_client *client, const char *name, int fd,
                                     uint64_t bytes, const char *layout_json,
                                     const struct gpubuf_create_options *options);

/* ---- names --------------------------------------------------------------------------------- */

struct gpubuf_info {
    char name[256];
    uint64_t version;
    char state[8];   /* "open" or "sealed" */
    char tier[8];    /* "device": on its own; or the tier "host" or "disk" */
    char device[64]; /* "host" or "GPU-…" */
    uint64_t bytes;
    unsigned mode;
    uint32_t uid;
    uint32_t gid;
    int64_t created_ms; /* since 1970 */
    uint64_t leases;
    bool pinned;
    int64_t ttl_ms;  /* as at create, or by gpubuf_expire; 0: none */
    int64_t idle_ms; /* since it was last opened or given back; 0 while held, and in events */
    bool final;      /* the kernel lets nobody write its memory any more */
    char label[256]; /* what its producer calls this version; "": nothing */
    unsigned keep;   /* how many older versions the name keeps while this one is current */
    bool older;      /* not current, and can be opened by version or label */
    bool gone;       /* can be opened no more, and is there for those who hold it */
    enum gpubuf_scope scope;
};

/* Describes an object without opening it. */
GPUBUF_API int gpubuf_stat(struct gpubuf_client *client, const char *name,
                           struct gpubuf_info *info);

/* Calls `each` for every object whose name starts with `prefix` (NULL: all) in name order, until it
   returns non-zero, which is then returned. `each` may call the library. Objects published or
   deleted meanwhile may be listed or not. */
GPUBUF_API int gpubuf_list(struct gpubuf_client *client, const char *prefix,
                           int (*each)(const struct gpubuf_info *info, void *arg), void *arg);

/*
 * Calls `each` as gpubuf_list does for the versions of a name that there are: the current one,
 * older ones that can be opened, newest first, then those that are there for their readers only
 * (64 in all at most). GPUBUF_E_NOT_FOUND: there is none of that name. To be told of new ones,
 * watch the name: each `sealed` event has version and label.
 */
GPUBUF_API int gpubuf_versions(struct gpubuf_client *client, const char *name,
                               int (*each)(const struct gpubuf_info *info, void *arg), void *arg);

/* Removes a name, its older versions too; the memory goes with the last lease. */
GPUBUF_API int gpubuf_delete(struct gpubuf_client *client, const char *name);

/* A pinned object is never evicted. */
GPUBUF_API int gpubuf_pin(struct gpubuf_client *client, const char *name);
GPUBUF_API int gpubuf_unpin(struct gpubuf_client *client, const char *name);

/* The object is deleted so long from now, whatever was said before; 0: not by itself any more. */
GPUBUF_API int gpubuf_expire(struct gpubuf_client *client, const char *name, int64_t ttl_ms);

/*
 * Moves an object off its device, to a tier below ("host", "disk"; NULL: the first that there is),
 * for one who knows that memory will be wanted or that the object will not: the daemon does it by
 * itself when memory is short. It returns when the content is in the tier. GPUBUF_E_BUSY: somebody
 * holds it; GPUBUF_E_DENIED; GPUBUF_E_NO_SPACE: the tier has no room; GPUBUF_E_UNSUPPORTED: there
 * is no such tier, or the memory is its producer's; GPUBUF_E_DEVICE: it could not be copied.
 */
GPUBUF_API int gpubuf_spill(struct gpubuf_client *client, const char *name, const char *tier);

/*
 * Brings it back to its device before it is opened, which would do the same, and waits at most
 * `wait_ms` for room there to become free, not counting the copy. Nothing holds it there. Errors as
 * of gpubuf_open, and GPUBUF_E_NO_SPACE.
 */
GPUBUF_API int gpubuf_restore(struct gpubuf_client *client, const char *name, int64_t wait_ms);

/*
 * The same for one version of a name: by its number (0: not by that), or the newest one with
 * `label` (NULL: not by that); neither is the current one. To delete the current one deletes the
 * name with its older versions, to delete an older one leaves the others. GPUBUF_E_STALE: it is
 * not the current version any more, and was not kept; GPUBUF_E_INVALID: both are given.
 */
GPUBUF_API int gpubuf_delete_version(struct gpubuf_client *client, const char *name,
                                     uint64_t version, const char *label);
GPUBUF_API int gpubuf_expire_version(struct gpubuf_client *client, const char *name,
                                     uint64_t version, const char *label, int64_t ttl_ms);
GPUBUF_API int gpubuf_spill_version(struct gpubuf_client *client, const char *name,
                                    uint64_t version, const char *label, const char *tier);
GPUBUF_API int gpubuf_restore_version(struct gpubuf_client *client, const char *name,
                                      uint64_t version, const char *label, int64_t wait_ms);

struct gpubuf_alias_options {
    size_t size;
    bool slice;      /* take `offset` and `length` into account */
    uint64_t offset; /* in rows or elements */
    uint64_t length;
    const char *const *columns; /* NULL-terminated names of a table's columns; NULL: all */
    unsigned mode;              /* 0: that of the source */
    bool replace;
    const char *label; /* as of gpubuf_create_options */
    unsigned keep;
    enum gpubuf_scope scope;
    const char *const *parts; /* NULL-terminated names of a bundle's tensors, each or, with a * at
                                 its end, all that begin so: no others are told of; NULL: all */
    const char *layout_json;  /* other than the source's, which is bytes, a bundle, or an array
                                 without a mask; buffers are ranges of its content,
                                 {"offset":…,"bytes":…} */
};

/* Gives a part of a sealed object a name of its own; the memory is shared. */
GPUBUF_API int gpubuf_alias(struct gpubuf_client *client, const char *name, const char *of,
                            const struct gpubuf_alias_options *options);

/* ---- events -------------------------------------------------------------------------------- */

/*
 * `kind` is "sealed", "deleted", "evicted", "spilled", "restored", "withdrawn", "synced" (the
 * objects that existed have all been told; `info` is NULL) or "reconnected" (gpubuf_watch). A later
 * daemon may send others. Strings live during the call only.
 */
typedef void (*gpubuf_event_cb)(struct gpubuf_client *client, const char *kind,
                                const struct gpubuf_info *info, void *arg);

/*
 * Watches names that start with `prefix` (NULL: all). *watch, where `watch` is not NULL, names it
 * for gpubuf_unwatch; it is set before the first event, which may come before this returns. Events
 * come in order, one at a time, in whichever thread dispatches. Where the connection broke and is
 * made anew, "reconnected" (`info` is NULL) says that events may be missing; then, as at first,
 * every object that exists is told as "sealed", and "synced" says that these are all. Where a
 * daemon has gone on in the place of another, objects that could not outlive that one come before
 * "synced", as "withdrawn". The watch ends with a connection that is lost, which is told by the
 * return of gpubuf_dispatch and of blocking calls, not by an event.
 */
GPUBUF_API int gpubuf_watch(struct gpubuf_client *client, const char *prefix,
                            gpubuf_event_cb callback, void *arg, uint64_t *watch);

/* `watch` names the new watch for gpubuf_unwatch; 0 on failure. */
typedef void (*gpubuf_watch_cb)(struct gpubuf_client *client, int status, uint64_t watch,
                                void *arg);

/* As gpubuf_watch, without waiting: `done`, which must not be NULL, runs exactly once if this
   returns 0, and on success before the first event. `arg` is given to both. See gpubuf_call_async
   for `request`. */
GPUBUF_API int gpubuf_watch_async(struct gpubuf_client *client, const char *prefix,
                                  gpubuf_event_cb callback, gpubuf_watch_cb done, void *arg,
                                  uint64_t *request);

/* `event` is the JSON text of an event's params (docs/PROTOCOL.md), which lives during the call
   only; or {"kind":"reconnected"}, as of gpubuf_watch. */
typedef void (*gpubuf_event_json_cb)(struct gpubuf_client *client, const char *event, size_t length,
                                     void *arg);

/*
 * As gpubuf_watch, for what the daemon tells and struct gpubuf_info has no member for: the number
 * of an event, placements. `params` are those of the method `watch`, a JSON object as text, or
 * NULL.
 */
GPUBUF_API int gpubuf_watch_json(struct gpubuf_client *client, const char *params,
                                 gpubuf_event_json_cb callback, void *arg, uint64_t *watch);

/* Ends a watch. No callback of it begins afterwards, and none is running in another thread when
   this returns. It waits for no answer and may be called inside callbacks. GPUBUF_E_NOT_FOUND. */
GPUBUF_API int gpubuf_unwatch(struct gpubuf_client *client, uint64_t watch);

/* ---- providers ----------------------------------------------------------------------------- */

/*
 * A provider makes names that are not there. When somebody opens an absent name and waits for it
 * (wait_ms of gpubuf_open_options), the daemon asks the session that provides the longest prefix of
 * that name: once, however many wait. The provider creates and seals the name, and the opens go on.
 * Or it declines, and they end with its sentence.
 */

/* Later versions may have more members, at the end: do not copy it by its size. */
struct gpubuf_wanted {
    uint64_t request; /* for gpubuf_decline. Never used twice, also not by a later daemon */
    const char *name; /* lives during the call only; NULL where `ended` */
    uint32_t uid;     /* of the first that asked */
    uint32_t gid;
    bool ended; /* this request is over: nobody waits for the name any more, or another session has
                   sealed it. With `request` 0: all of before are, since the connection broke and
                   has been made anew; the daemon asks again for names that are still waited for */
};

typedef void (*gpubuf_wanted_cb)(struct gpubuf_client *client, const struct gpubuf_wanted *wanted,
                                 void *arg);

/*
 * Says that this program makes names that begin with `prefix` ("": all names), until
 * gpubuf_provide_end or the end of the client; it is said again where the connection is made anew.
 * `callback` is told of each name that is wanted, in whichever thread dispatches, as that of
 * gpubuf_watch: it may use gpubuf_create_async, or hand the request to another thread, and it may
 * decline. It may run before this returns. Names that are waited for already are asked for at once.
 * The client is not asked for a name that only itself waits for. GPUBUF_E_DENIED: this user may not
 * provide the prefix (gpubufd --provider); GPUBUF_E_EXISTS: the client provides it already;
 * GPUBUF_E_LIMIT.
 */
GPUBUF_API int gpubuf_provide(struct gpubuf_client *client, const char *prefix,
                              gpubuf_wanted_cb callback, void *arg);

/* As gpubuf_provide, without waiting. `done`, which must not be NULL, runs exactly once if this
   returns 0; `arg` is given to both. See gpubuf_call_async for `request`; a canceled one provides
   nothing. */
GPUBUF_API int gpubuf_provide_async(struct gpubuf_client *client, const char *prefix,
                                    gpubuf_wanted_cb callback, gpubuf_call_cb done, void *arg,
                                    uint64_t *request);

/* Ends it. Another provider is asked for the names below this prefix, or they wait for one. No
   callback of it begins afterwards, and none is running in another thread when this returns. It
   waits for no answer and may be called inside callbacks. GPUBUF_E_NOT_FOUND. */
GPUBUF_API int gpubuf_provide_end(struct gpubuf_client *client, const char *prefix);

/*
 * Declines a request: the opens that wait for the name end with `error`, GPUBUF_E_NOT_FOUND (0 is
 * the same) or GPUBUF_E_UNAVAILABLE, and with `message` (UTF-8, cut after 500 bytes; NULL: none).
 * The next open of the name asks anew. It waits for no answer and may be called inside callbacks,
 * in any thread, with the client that provides. A request that is over is passed over.
 */
GPUBUF_API int gpubuf_decline(struct gpubuf_client *client, uint64_t request, int error,
                              const char *message);

/* ---- GPUs ---------------------------------------------------------------------------------- */

/*
 * An object on a GPU is opened, sliced and released like any other. gpubuf_memory() gives a device
 * pointer, valid in the primary context of that GPU in this process, which the library retains
 * while something is mapped. A reader's mapping is read-only: a kernel that writes there fails in
 * its own process. (A process that writes to a segment itself has one pointer for both, without
 * that protection.) The library never changes the calling thread's current context, and loads the
 * CUDA driver only where a GPU is concerned.
 *
 * A `stream` is a CUstream or cudaStream_t of the object's GPU, in its primary context, as those of
 * the runtime are. NULL means: do it now and wait until it is done, after what is queued on the
 * legacy default stream, as cudaMemcpy does. The default streams themselves are
 * GPUBUF_STREAM_LEGACY and GPUBUF_STREAM_PER_THREAD. Work of yours on an object must be done, or be
 * told of by gpubuf_seal_on and gpubuf_release_on, before it is sealed or released: the driver
 * takes memory away from under a running kernel, which ends the whole context.
 *
 * Errors of the driver are GPUBUF_E_DEVICE, and the message has the CUDA error's name and what was
 * being done. GPUBUF_E_UNSUPPORTED: no CUDA driver here, the object's GPU is not visible to this
 * process (CUDA_VISIBLE_DEVICES), or this is a child of fork() of a process that had used CUDA.
 */
#define GPUBUF_STREAM_LEGACY ((void *)1)
#define GPUBUF_STREAM_PER_THREAD ((void *)2)

/* The object's GPU in this process' own numbering (CUDA's ordinal); -1 for host memory. */
GPUBUF_API int gpubuf_device_ordinal(const struct gpubuf_object *object);

/*
 * Copies between the object's buffer `which`, from its byte `offset` on (of what gpubuf_memory
 * gives), and `bytes` bytes at `data`, which may be memory of the host or of a GPU (also of
 * another; with a stream, of one that can reach the object's). With a stream the copy is queued,
 * and `data` and the object must stay until it is done; but one between an object on the host and
 * other memory of the host is done at once. `read` works on any object and does not wait for it to
 * be ready (gpubuf_wait_ready), `write` on one that is not sealed (else GPUBUF_E_BUSY).
 * GPUBUF_E_INVALID past the buffer's end, and where there is no such buffer. After GPUBUF_E_DEVICE
 * the target's content is undefined.
 */
GPUBUF_API int gpubuf_read(const struct gpubuf_object *object, enum gpubuf_which which,
                           uint64_t offset, void *data, uint64_t bytes, void *stream);
GPUBUF_API int gpubuf_write(struct gpubuf_object *object, enum gpubuf_which which, uint64_t offset,
                            const void *data, uint64_t bytes, void *stream);

/*
 * As gpubuf_seal for a writer whose work queued on `stream` so far is still under way: nobody waits
 * for it now, and readers wait on their own streams, on the device (gpubuf_wait_ready). The object
 * is settled when the work is done, which the library notices by itself within milliseconds; before
 * that it lives only as long as the client's connection. So a program that ends calls
 * gpubuf_wait_ready(object, NULL) first, after which it is settled. Work that fails is never
 * settled. A client has at most 256 such objects: past that the oldest is waited for. NULL stream:
 * as gpubuf_seal. An object on the host: the stream is waited for.
 */
GPUBUF_API int gpubuf_seal_on(struct gpubuf_object *object, const int64_t *null_counts,
                              void *stream);

/*
 * Makes `stream` (NULL: the calling thread) wait until the object's content is there. Opening does
 * not wait by itself. Costs nothing if it was there when the object was opened, or once it is;
 * else, of another process's object, the daemon is asked whether its producer still lives.
 * GPUBUF_E_STALE: the producer is gone, or the object's name, and the work was not done in the
 * second after that. A stream that waits already when the producer is killed waits for ever: the
 * driver does not tell it. With NULL it is a blocking call (GPUBUF_E_BUSY in a callback).
 */
GPUBUF_API int gpubuf_wait_ready(struct gpubuf_object *object, void *stream);

/*
 * As gpubuf_release for a reader whose work queued on `stream` so far is still under way: the
 * reference is dropped when that is done, which the library notices by itself. A client has at most
 * 256 such releases: past that the oldest is waited for, and gpubuf_disconnect waits for all. NULL
 * stream: at once. An object on the host: the stream is waited for. On failure the caller still has
 * the reference.
 */
GPUBUF_API int gpubuf_release_on(struct gpubuf_object *object, void *stream);

/*
 * Shares device memory of the caller's own under a name, with no copy, sealed at once: `pointer`
 * and `bytes` anywhere in one allocation (of CuPy's, RMM's or PyTorch's pool, too). Readers can
 * then map the whole allocation. Memory of cuMemCreate that can be exported is adopted and outlives
 * the caller; memory of cuMemAlloc and cudaMalloc stays the caller's, who must keep it until the
 * object is deleted and its readers are gone, and is withdrawn when the client disconnects.
 * `layout_json` has buffers {"handle":0,"offset":…,"bytes":…} whose offsets count from `pointer`.
 * All work on the memory must be done. `options->device` may be left out; share, wait_ms have no
 * meaning. GPUBUF_E_UNSUPPORTED: managed or stream-ordered memory, or that of another process,
 * which cannot be shared, or a range over several allocations (the message says what to do);
 * GPUBUF_E_INVALID: not memory of a GPU, or past its end.
 */
GPUBUF_API int gpubuf_register_device(struct gpubuf_client *client, const char *name,
                                      const void *pointer, uint64_t bytes, const char *layout_json,
                                      const struct gpubuf_create_options *options);

/* A stretch of the caller's device memory. */
struct gpubuf_part {
    const void *pointer;
    uint64_t bytes;
};

/*
 * As gpubuf_register_device for what lies in several places, such as the columns of a table:
 * "handle" i of the layout's buffers is parts[i], from whose pointer its offsets count. Parts may
 * lie in one allocation or in as many as 16, all of one GPU and of one kind. GPUBUF_E_LIMIT: more
 * than that.
 */
GPUBUF_API int gpubuf_register_parts(struct gpubuf_client *client, const char *name,
                                     const struct gpubuf_part *parts, size_t count,
                                     const char *layout_json,
                                     const struct gpubuf_create_options *options);

/* As gpubuf_register_parts, without waiting for the daemon; the arguments are not kept. See
   gpubuf_call_async for `callback` and `request`. */
GPUBUF_API int gpubuf_register_parts_async(struct gpubuf_client *client, const char *name,
                                           const struct gpubuf_part *parts, size_t count,
                                           const char *layout_json,
                                           const struct gpubuf_create_options *options,
                                           gpubuf_call_cb callback, void *arg, uint64_t *request);

/* The Arrow C Device Data Interface
   (https://arrow.apache.org/docs/format/CDeviceDataInterface.html). */
#ifndef ARROW_C_DEVICE_DATA_INTERFACE
#define ARROW_C_DEVICE_DATA_INTERFACE

typedef int32_t ArrowDeviceType;

#define ARROW_DEVICE_CPU 1
#define ARROW_DEVICE_CUDA 2

struct ArrowDeviceArray {
    struct ArrowArray array;
    int64_t device_id;
    ArrowDeviceType device_type;
    void *sync_event;
    int64_t reserved[3];
};

#endif

/*
 * As gpubuf_export_arrow, for objects on the host and on a GPU: `device_id` is
 * gpubuf_device_ordinal(), buffers are device pointers (of 0 bytes: some pointer that is not to be
 * followed), and sync_event is a CUevent * to wait for, which lives as long as the array, or NULL
 * if the content is there.
 */
GPUBUF_API int gpubuf_export_arrow_device(struct gpubuf_object *object, struct ArrowSchema *schema,
                                          struct ArrowDeviceArray *array);

#ifdef __cplusplus
}
#endif

#endif
