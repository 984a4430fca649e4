/*
 * gpubuf.h: the client library of gpubufd, a broker for GPU memory.
 *
 * A program connects to the daemon and opens named objects that other processes have published. It
 * reads them in place, read-only and without a copy, slices them, and releases them. Or it creates
 * an object, fills it, and seals it; nobody changes it afterwards.
 *
 * Words. A *device* is `host` or a GPU. A *segment* is allocated, shared and mapped as a whole. A
 * *buffer* is a byte range of a segment. A *layout* describes types and shapes over buffers. An
 * *object* is a name, a version and a layout. A *lease* keeps an object version in place for a
 * session. A *session* is one connection.
 *
 * Errors. A function that returns `int` returns 0 or a documented positive outcome on success, and
 * a negative GPUBUF_E_… code on failure. On failure nothing has happened: outputs are unchanged,
 * and arguments still belong to the caller. gpubuf_strerror() returns a fixed text for the code.
 * gpubuf_errmsg() returns the whole sentence, often the daemon's, of the calling thread's last
 * failure. The library never prints and never exits.
 *
 * Threads. Any threads may use a client and its objects at the same time, unless a function's
 * comment says otherwise. A blocking call in one thread does not hold up another's. Callbacks run
 * in the thread that is inside gpubuf_dispatch() or a blocking call, with no lock held. They may
 * call the library, but a blocking call on the same client fails there with GPUBUF_E_BUSY.
 *
 * fork(). The child must connect anew. In the child, calls that can fail return GPUBUF_E_FORKED for
 * a client or object inherited from the parent. Calls that describe an object still work, and
 * pointers into mapped memory stay readable. Releasing an inherited object only frees the process'
 * own memory, and gpubuf_disconnect does nothing. The fork closes the child's copy of the
 * connection, so that a child does not keep its parent's leases alive.
 *
 * Strings are UTF-8 and NUL-terminated. Unless said otherwise, a returned `const char *` belongs to
 * the object or client that the function was called with, and lives as long.
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
 * Every error: X(name, code, kind, text). Codes below -32000 are JSON-RPC error codes on the wire,
 * with `kind` in `error.data.kind`. Those from -1 to -8 arise in the library alone.
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

/* A fixed text for an error code; never NULL, even for an unknown code. Static. */
GPUBUF_API const char *gpubuf_strerror(int error);

/* The code's short name as on the wire ("not_found"); "unknown" for an unknown code. Static. */
GPUBUF_API const char *gpubuf_errkind(int error);

struct gpubuf_client;
struct gpubuf_object;

/*
 * The sentence that explains the calling thread's last failed call on `client` (NULL: its last
 * failed gpubuf_connect). Never NULL; empty if nothing failed. Valid until the same thread's next
 * failing call. A thread remembers the last failure of each of four clients. In a callback the
 * sentence explains the callback's status. gpubuf_object_errmsg() takes the client of `object`.
 */
GPUBUF_API const char *gpubuf_errmsg(const struct gpubuf_client *client);
GPUBUF_API const char *gpubuf_object_errmsg(const struct gpubuf_object *object);

/* Frees memory whose function says so. NULL is fine. */
GPUBUF_API void gpubuf_free(void *pointer);

/* ---- connection -------------------------------------------------------------------------- */

/*
 * Options of gpubuf_connect. Zero-initialise the struct, set `size` to sizeof(struct
 * gpubuf_connect_options), then the options that you want. Later versions add members only at the
 * end of an option struct, and understand the shorter `size` of an older program. A `size` of 0 is
 * GPUBUF_E_INVALID. All this holds for every option struct here.
 */
struct gpubuf_connect_options {
    size_t size;
    const char *path;        /* socket; NULL: $GPUBUFD_SOCKET, else
                                 $NVIDIA_DRA_LOCAL_IPC_DIR/gpubufd.sock if it exists, else
                                 /run/gpubufd/gpubufd.sock if it exists, else
                                 $XDG_RUNTIME_DIR/gpubufd.sock, else
                                 /tmp/gpubufd-UID/gpubufd.sock */
    const char *client_name; /* what `gpubufctl ps` shows; NULL: the program's short name */
    int timeout_ms;          /* for connecting and `hello`; 0: 5000; -1: for ever */
    uint64_t cache_bytes;    /* idle mappings to keep for later opens, in bytes; 0: 1 GiB */
    int answer_timeout_ms;   /* how long a blocking call waits for an answer, on top of its own
                                 wait_ms, before GPUBUF_E_TIMEOUT; 0: 60 000; -1: for ever */
    int resume_ms;           /* how long to try to reconnect after the connection broke (see
                                 gpubuf_disconnect); 0: 10 000; -1: for ever;
                                 GPUBUF_NO_RESUME: not at all */
    int cache_leases;        /* how many leases to cache after their release, see gpubuf_open;
                                 0: 1024, at most 2048; GPUBUF_NO_CACHE: none */
    int cache_lease_ms;      /* how long to cache a lease after its last use; 0: 10 000 */
    bool own_daemon;         /* GPUBUF_E_DENIED if another user runs the daemon */
    bool while_listening;    /* if this process' user runs the daemon: reconnect only while somebody
                                 listens, such as its supervisor */
    /* Called a few times a second while a call of this client copies content (`bytes` were copied
       since) or waits for an answer (0); in the thread of that call, with no lock held. If it
       returns anything but 0, the call ends with GPUBUF_E_CANCELED: a put publishes nothing. A call
       that seals still waits for the daemon's answer. The callback must not use the client.
       NULL: none */
    int (*progress)(void *arg, uint64_t bytes);
    void *progress_arg;
};

#define GPUBUF_NO_RESUME (-2)
#define GPUBUF_NO_CACHE (-1)

/*
 * Connects to the daemon and sends `hello`. `options` may be NULL. On success the caller owns
 * *client and ends it with gpubuf_disconnect. GPUBUF_E_CONNECT: no daemon there (the message names
 * the path and the cause); GPUBUF_E_TIMEOUT; GPUBUF_E_UNSUPPORTED: the daemon speaks another
 * version of the protocol. If the daemon exits meanwhile, the library tries again while a daemon
 * listens and timeout_ms has not passed. Otherwise, and with GPUBUF_NO_RESUME, it fails with
 * GPUBUF_E_CLOSED.
 */
GPUBUF_API int gpubuf_connect(struct gpubuf_client **client,
                              const struct gpubuf_connect_options *options);

/*
 * Ends the connection and every lease: the daemon may reuse the memory at once. Requests in flight
 * end with GPUBUF_E_CLOSED: their callbacks run, and blocking calls in other threads return, before
 * this function returns. No call on the client may begin afterwards. Objects can still be released,
 * and stay mapped until then, but their content is no longer promised. NULL is fine.
 *
 * If the connection breaks (the daemon is killed, or restarts), open objects stay readable, and the
 * library reconnects: in the next call, in gpubuf_dispatch, or, while objects are open, in a thread
 * of its own. It asks for the objects' leases again.
 *
 * - An object is stale (gpubuf_is_stale) if its lease is not granted: the daemon has another
 *   instance, or the object was removed meanwhile. So it is if the daemon ended the session for
 *   want of memory, because its user has deleted objects open past its quota, or the program stood
 *   still and did not unmap.
 * - A created object that was not sealed is lost: sealing it is GPUBUF_E_STALE.
 * - Requests in flight are sent again. Those that change something and may have been carried out
 *   end with GPUBUF_E_CLOSED instead, and the message says that their outcome is unknown.
 * - Watches report everything from the beginning (gpubuf_watch).
 *
 * The connection is lost if no daemon listens within resume_ms (at once with while_listening), or
 * if the daemon said that it stops for good. Then every call returns GPUBUF_E_CLOSED
 * (GPUBUF_E_NO_MEMORY if all attempts failed for want of memory). Objects stay readable until they
 * are released.
 */
GPUBUF_API void gpubuf_disconnect(struct gpubuf_client *client);

/* Whether the object's lease was lost when a connection broke. The object can still be read
   where it is mapped, but the daemon does not know the reader any more, and does not promise the
   content. */
GPUBUF_API bool gpubuf_is_stale(const struct gpubuf_object *object);

/* The daemon's identity (lowercase hex), which a restart that loses no object keeps, and the
   session's number. A reconnect may change both. */
GPUBUF_API const char *gpubuf_instance(const struct gpubuf_client *client);
GPUBUF_API uint64_t gpubuf_session(const struct gpubuf_client *client);

/*
 * To embed the client in an event loop, poll gpubuf_fd() for gpubuf_events(), then call
 * gpubuf_dispatch(). Ask for gpubuf_events() before each wait: it depends on whether output is
 * queued. Poll level-triggered, as poll() does: one dispatch need not receive everything that has
 * come. The descriptor belongs to the client and is for polling only. It stays the same until
 * gpubuf_disconnect, also across reconnects; in a child of fork it is -1.
 *
 * gpubuf_dispatch() never blocks. It sends and receives what it can, and runs the callbacks that
 * are due; those that become due meanwhile run in the next one. It returns how many messages it
 * handled, or GPUBUF_E_CLOSED / GPUBUF_E_PROTOCOL once the connection is lost; every request in
 * flight has then ended with that code. While another thread is inside a blocking call, that thread
 * receives for all threads, and gpubuf_dispatch() may return 0.
 */
GPUBUF_API int gpubuf_fd(const struct gpubuf_client *client);
GPUBUF_API short gpubuf_events(const struct gpubuf_client *client);
GPUBUF_API int gpubuf_dispatch(struct gpubuf_client *client);

/* ---- any method ---------------------------------------------------------------------------- */

/*
 * Calls a method of the protocol that carries no descriptors (docs/PROTOCOL.md). `open`, `create`
 * and `register` have functions of their own, and are GPUBUF_E_UNSUPPORTED here. `params` is a JSON
 * object as text, or NULL. On success *result, if `result` is not NULL, is the JSON text of
 * `result`; the caller frees it with gpubuf_free. Waits at most `timeout_ms` (-1: for ever).
 */
GPUBUF_API int gpubuf_call(struct gpubuf_client *client, const char *method, const char *params,
                           int timeout_ms, char **result);

/* `result` is the JSON text on success and NULL on failure; it lives during the callback only. */
typedef void (*gpubuf_call_cb)(struct gpubuf_client *client, int status, const char *result,
                               size_t length, void *arg);

/*
 * As gpubuf_call, without waiting. If this returns 0, `callback` runs exactly once (with
 * GPUBUF_E_CLOSED or GPUBUF_E_CANCELED if need be); if it fails, never. `callback` may be NULL.
 * `request` may be NULL; otherwise *request is the number for gpubuf_cancel. The library sets no
 * timeout; the daemon may.
 */
GPUBUF_API int gpubuf_call_async(struct gpubuf_client *client, const char *method,
                                 const char *params, gpubuf_call_cb callback, void *arg,
                                 uint64_t *request);

/*
 * Cancels a request in flight: its callback runs with GPUBUF_E_CANCELED before this returns. If the
 * daemon grants the request after all, the library releases the grant (a seal that the daemon has
 * carried out stands). GPUBUF_E_NOT_FOUND if the callback has begun already.
 */
GPUBUF_API int gpubuf_cancel(struct gpubuf_client *client, uint64_t request);

/* ---- opening ------------------------------------------------------------------------------- */

struct gpubuf_open_options {
    size_t size;
    uint64_t version;  /* 0: the current one; GPUBUF_E_STALE if the name has no such version */
    int64_t wait_ms;   /* how long to wait for the object to exist; 0: not at all */
    const char *label; /* the newest version with this label; NULL: any. Excludes `version` */
    bool write;        /* a live object, for writing (see live memory); only in gpubuf_open */
    bool exclusive;    /* with `write`: as its only writer; wait_ms waits for the others to end */
};

/*
 * Opens a sealed object for reading and maps its memory, without a copy, in one round trip.
 * `options` may be NULL. The caller owns *object and ends it with gpubuf_release.
 * GPUBUF_E_NOT_FOUND: no such object, or none that this user may read; GPUBUF_E_TIMEOUT: not within
 * wait_ms, or the daemon does not answer; GPUBUF_E_UNSUPPORTED: on a GPU that is not visible to
 * this process, or there is no driver; GPUBUF_E_DEVICE: the driver failed (see GPUs).
 *
 * The library caches the leases of versions that were opened twice within cache_lease_ms (see
 * gpubuf_connect_options). While the name still means that version, a further open does not ask the
 * daemon: it returns the same object, with one more reference. An open that begins after a change
 * of the name was answered sees the change. A cached lease does not keep its object in memory: when
 * memory is short, the daemon recalls the lease and evicts the object in its turn. `gpubufctl ps`
 * shows such leases as cached, even for up to a second after they are in use again. From then on
 * the object stays where it is. If a program opens more names in turn than cache_leases, those
 * beyond ask the daemon.
 */
GPUBUF_API int gpubuf_open(struct gpubuf_client *client, const char *name,
                           const struct gpubuf_open_options *options,
                           struct gpubuf_object **object);

/*
 * Opens `count` objects at once (any number; more than 256 take several requests). objects[i] is
 * the object; or NULL if it could not be opened, and errors[i] is why (`errors` may be NULL). The
 * caller releases each object. With a wait_ms each request waits until all of its objects exist.
 * `version` must be 0, and `label` NULL. Returns how many objects were opened, or a negative code
 * if the request as a whole failed; then no object is open.
 */
GPUBUF_API int gpubuf_open_many(struct gpubuf_client *client, const char *const *names,
                                size_t count, const struct gpubuf_open_options *options,
                                struct gpubuf_object **objects, int *errors);

/* On success the callback owns `object` and releases it; on failure `object` is NULL. */
typedef void (*gpubuf_object_cb)(struct gpubuf_client *client, int status,
                                 struct gpubuf_object *object, void *arg);

/* As gpubuf_open, without waiting; see gpubuf_call_async for `callback` and `request`. */
GPUBUF_API int gpubuf_open_async(struct gpubuf_client *client, const char *name,
                                 const struct gpubuf_open_options *options,
                                 gpubuf_object_cb callback, void *arg, uint64_t *request);

/*
 * On success `status` is how many objects were opened, and `objects` and `errors` are as in
 * gpubuf_open_many. The callback owns each object and releases it; the two arrays live during the
 * callback only. On failure both arrays are NULL.
 */
typedef void (*gpubuf_objects_cb)(struct gpubuf_client *client, int status,
                                  struct gpubuf_object *const *objects, const int *errors,
                                  size_t count, void *arg);

/* As gpubuf_open_many, without waiting; the names are copied. GPUBUF_E_INVALID if none of them is a
   valid name. See gpubuf_call_async for `callback`, which must not be NULL, and `request`. */
GPUBUF_API int gpubuf_open_many_async(struct gpubuf_client *client, const char *const *names,
                                      size_t count, const struct gpubuf_open_options *options,
                                      gpubuf_objects_cb callback, void *arg, uint64_t *request);

/*
 * Objects are reference-counted: retain adds a reference and returns the same object; release drops
 * one. The lease ends with the last reference to the object and to every view made from it. Finish
 * reading before you release. The last release of an unsealed object discards it. NULL is fine for
 * both.
 *
 * Release does not wait: its message to the daemon has no answer. It is sent at once, unless it
 * follows another release of the same client within a millisecond. Then it is sent with the next
 * request, or after some two milliseconds if there is none, by a thread of the library that is
 * started when it is first needed. A release inside a callback is sent when the callbacks that are
 * due have run.
 */
GPUBUF_API struct gpubuf_object *gpubuf_retain(struct gpubuf_object *object);
GPUBUF_API void gpubuf_release(struct gpubuf_object *object);

/* Releases `count` objects, of any clients; NULL among them is fine. */
GPUBUF_API void gpubuf_release_many(struct gpubuf_object *const *objects, size_t count);

/* ---- views --------------------------------------------------------------------------------- */

/*
 * A view shows one version of a name after another at the same addresses: pointers, CUDA graphs and
 * compiled code that were made for one version work on the next.
 *
 * The versions must have the same layout, each in a segment of its own (`own` of
 * gpubuf_create_options; large bundles have one by themselves). A view is read-only, and for one
 * thread at a time: another one meanwhile gets GPUBUF_E_BUSY. Nothing may read through it while it
 * is switched or parked. On a GPU these functions wait for the given streams, which are all that
 * use the view; without any, for all work of the context. On the host `streams` are ignored.
 */
struct gpubuf_view;

/* Opens a name as gpubuf_open does, and shows it at addresses of its own. The caller owns *view and
   ends it with gpubuf_unfollow. Also GPUBUF_E_UNSUPPORTED: others share its segment, or its memory
   is of cudaMalloc. */
GPUBUF_API int gpubuf_follow(struct gpubuf_client *client, const char *name,
                             const struct gpubuf_open_options *options, struct gpubuf_view **view);

/*
 * The object that the view shows. It belongs to the view; gpubuf_retain it to keep it longer. It,
 * its parts and its memory stay the same through all switches. Its version and label are those of
 * the version shown, and the label lives until the next switch. Metadata stays that of the first
 * version.
 */
GPUBUF_API struct gpubuf_object *gpubuf_view_object(const struct gpubuf_view *view);

/*
 * Shows another version of the name, the one that gpubuf_open would open now, once its content is
 * there. Returns 1 if it was shown already, else 0. On failure nothing changes.
 * GPUBUF_E_UNSUPPORTED: it has another layout (the message names the first difference), or lies in
 * a shared segment; GPUBUF_E_STALE, _NOT_FOUND: as gpubuf_open; GPUBUF_E_DEVICE: if the driver
 * cannot undo its failure nothing is shown, until gpubuf_resume.
 */
GPUBUF_API int gpubuf_switch(struct gpubuf_view *view, const struct gpubuf_open_options *options,
                             void *const *streams, size_t stream_count);

/*
 * Shows nothing, and keeps a lease without the memory. The version may move to a tier, and is not
 * dropped, even if it loses its name. But without a name it is deleted if others lack room while
 * this user is past its quota. The addresses stay reserved. Reading there is a fault: on the host
 * SIGSEGV, with an address inside; on a GPU an error that ends the context. Returns 1 if the view
 * was parked already, else 0. GPUBUF_E_TIMEOUT, _CANCELED: the view is parked, since the daemon may
 * still give its memory to others.
 */
GPUBUF_API int gpubuf_park(struct gpubuf_view *view, void *const *streams, size_t stream_count);

/* Shows the parked version again, at the same addresses. Restores it from a tier if need be, and
   waits at most `wait_ms` for room. gpubuf_switch does so, too, with the version it opens. Returns
   1 if the view was not parked, else 0. GPUBUF_E_STALE: the version no longer exists. */
GPUBUF_API int gpubuf_resume(struct gpubuf_view *view, int64_t wait_ms);

/* Whether the view is parked. */
GPUBUF_API bool gpubuf_is_parked(const struct gpubuf_view *view);

/* Ends a view. Retained objects stay, and show the version shown last. NULL is fine. In a child of
   fork it only frees memory. */
GPUBUF_API void gpubuf_unfollow(struct gpubuf_view *view);

/* ---- what an object is --------------------------------------------------------------------- */

enum gpubuf_kind {
    GPUBUF_KIND_BYTES = 0,  /* plain bytes */
    GPUBUF_KIND_ARRAY = 1,  /* n-dimensional, one dtype, maybe with a bitmap of valid elements */
    GPUBUF_KIND_COLUMN = 2, /* an Arrow column */
    GPUBUF_KIND_TABLE = 3,  /* columns of equal length, by name */
    GPUBUF_KIND_BUNDLE = 4, /* many arrays, by name: a safetensors file (see bundles) */
};

GPUBUF_API enum gpubuf_kind gpubuf_kind(const struct gpubuf_object *object);

/* The name, version (1 or more; 0 while unsealed) and device of the object, or of the object that a
   view was made from. The device is "host" or a GPU's UUID ("GPU-…"). */
GPUBUF_API const char *gpubuf_name(const struct gpubuf_object *object);
GPUBUF_API uint64_t gpubuf_object_version(const struct gpubuf_object *object);
/* The producer's label for this version, such as "step-42"; NULL: none. Lives as the object. */
GPUBUF_API const char *gpubuf_label(const struct gpubuf_object *object);
GPUBUF_API const char *gpubuf_device(const struct gpubuf_object *object);

/* The name of this column in its table or struct; NULL if it is not one. */
GPUBUF_API const char *gpubuf_column_name(const struct gpubuf_object *object);

/* The dtype in the protocol's spelling ("float64", "timestamp[us,UTC]"); "" for bytes, tables and
   bundles. */
GPUBUF_API const char *gpubuf_dtype(const struct gpubuf_object *object);

/* Rows of a table, elements of a column, extent of an array's first axis (1 for 0-d), or bytes. */
GPUBUF_API uint64_t gpubuf_length(const struct gpubuf_object *object);

/* The column's offset in elements: element i of the column is element offset + i of its buffers.
   The offset of a view includes the offsets of the slices that it was made by. For an array it is
   the bit of the first element in the mask (the data starts at the first element). 0 for others. */
GPUBUF_API uint64_t gpubuf_offset(const struct gpubuf_object *object);

/* The number of null elements; -1 if unknown, as for most slices of columns with nulls; 0 for bytes
   and tables. */
GPUBUF_API int64_t gpubuf_null_count(const struct gpubuf_object *object);

/* Arrays: number of axes, extents in elements, strides in bytes. For bytes and columns ndim is 1
   (the stride is 0 if elements are not whole bytes); for tables it is 0. Packed elements, such as
   those of float4_e2m1fn, fill whole bytes along the last axis, and its stride is 1, that of a
   byte. The pointers are to ndim values, owned by the object; do not follow them if ndim is 0. */
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
 * The memory of one of the object's buffers. For columns it is the whole buffer, from its start:
 * apply gpubuf_offset(). For arrays and bytes the data begins at the view's first element and ends
 * with its last; the mask is whole. Returns 1 if the object has no such buffer: then *memory has a
 * NULL pointer and 0 bytes. A buffer of 0 bytes has a pointer that is not NULL. The memory stays
 * mapped until the object is released. GPUBUF_E_CLOSED after gpubuf_disconnect.
 */
GPUBUF_API int gpubuf_memory(const struct gpubuf_object *object, enum gpubuf_which which,
                             struct gpubuf_memory *memory);

/* Whether element i of a column, or of an array in C order, is not null. False for an index past
   the end, and for every element of an object on a GPU. */
GPUBUF_API bool gpubuf_is_valid(const struct gpubuf_object *object, uint64_t i);

/*
 * The text of element i of a column of strings or binaries: *length bytes without a NUL at the end,
 * valid until the object is released. Returns NULL, and a *length of 0, for a null. Returns NULL
 * also if there is no such text: for an index past the end, another dtype, an object on a GPU, and
 * offsets that are not within the data. `length` may be NULL.
 */
GPUBUF_API const char *gpubuf_string_at(const struct gpubuf_object *column, uint64_t i,
                                        uint64_t *length);

/* ---- parts of an object -------------------------------------------------------------------- */

/* Columns of a table, or children of a nested column; 0 for others. */
GPUBUF_API size_t gpubuf_child_count(const struct gpubuf_object *object);

/*
 * Parts of an object are objects of their own, and are released like any other. A part keeps the
 * object that it was made from, and costs no message. gpubuf_child() returns child i of a table or
 * nested column, gpubuf_column() the column with a name (GPUBUF_E_NOT_FOUND). gpubuf_slice()
 * returns the elements [offset, offset + length) of a bytes, array (first axis), column or table
 * (GPUBUF_E_INVALID past the end). A child of a sliced struct or fixed_list column is sliced alike,
 * and so are the indices (child 0) of a dictionary. The child of a list and the values (child 1) of
 * a dictionary are whole, since offsets and indices count from their start.
 */
GPUBUF_API int gpubuf_child(struct gpubuf_object *object, size_t i, struct gpubuf_object **child);
GPUBUF_API int gpubuf_column(struct gpubuf_object *object, const char *name,
                             struct gpubuf_object **column);
GPUBUF_API int gpubuf_slice(struct gpubuf_object *object, uint64_t offset, uint64_t length,
                            struct gpubuf_object **slice);

/*
 * Some columns of a sealed table, in the order given: a view that is a table, and is exported,
 * sliced and released like any other. GPUBUF_E_NOT_FOUND: there is no such column;
 * GPUBUF_E_INVALID: not a table, or one column twice; GPUBUF_E_BUSY: the table is not sealed.
 */
GPUBUF_API int gpubuf_select(struct gpubuf_object *table, const char *const *names, size_t count,
                             struct gpubuf_object **view);

/* gpubuf_metadata() returns the value of a key in the metadata of any object but a bundle, or NULL.
   gpubuf_metadata_at() returns pair i, and 1 if i is past the end. */
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
 *     utf8 binary                  all texts, one after the other; offsets are int32_t
 *     large_utf8 large_binary      the same; offsets are int64_t
 *     fixed_binary(N)              N bytes
 *     date32 date64                int32_t days, int64_t milliseconds since 1970
 *     time32[s|ms] time64[us|ns]   int32_t, int64_t since midnight
 *     timestamp[s|ms|us|ns], timestamp[UNIT,ZONE], duration[UNIT]   int64_t
 *     decimal128(PRECISION,SCALE)  16 bytes
 *     month_interval               int32_t
 *     day_time_interval            int32_t days, int32_t milliseconds
 *     month_day_nano_interval      int32_t months, int32_t days, int64_t nanoseconds
 *     list large_list              none: int32_t or int64_t offsets, and one child, the items
 *     fixed_list(N)                none: one child with N items for each element
 *     map                          as list; the child is a struct of key and value
 *     struct                       none: a child for each field
 *     dictionary                   none: two children, the indices (with the mask) and the values
 *     null                         none
 *     float6_e2m3fn float6_e3m2fn float4_e2m1fn   packed; for arrays only
 */

/* The description of a column. Zero-initialise it. The library only reads it and the memory it
   points to; the caller keeps both. */
struct gpubuf_column_spec {
    const char *name;    /* in a table or struct; NULL elsewhere */
    const char *dtype;   /* "float64", "utf8", "timestamp[us]", "list", … */
    uint64_t length;     /* in elements */
    uint64_t offset;     /* in elements; usually 0 */
    int64_t null_count;  /* -1: unknown */
    bool mask;           /* place a validity bitmap */
    uint64_t data_bytes; /* strings and binaries: bytes of data; others: ignored */
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
    struct gpubuf_column_spec column; /* KIND_COLUMN; KIND_TABLE: its children, length,
                                         metadata; KIND_ARRAY, KIND_BYTES: its metadata */
};

/* The fate of an object when memory is short and nobody has it open. DEFAULT: the daemon's own,
   SPILL unless it was started as a cache (--evict drop). SPILL: the content moves to a tier, or
   stays if no tier has room. DROP: the object is removed. KEEP: it stays where it is. */
enum gpubuf_evict {
    GPUBUF_EVICT_DEFAULT = 0,
    GPUBUF_EVICT_SPILL = 1,
    GPUBUF_EVICT_DROP = 2,
    GPUBUF_EVICT_KEEP = 3
};

/* Where an object is known: on this machine only, or also on the cluster's other machines, through
   gpubufd-peer. The daemon only records the scope. */
enum gpubuf_scope { GPUBUF_SCOPE_LOCAL = 0, GPUBUF_SCOPE_CLUSTER = 1 };

struct gpubuf_create_options {
    size_t size;
    const char *device; /* "host", "GPU-…", "cuda:N"; NULL: the daemon's default */
    const char *share;  /* "fd" or "ipc"; NULL: "fd" */
    unsigned mode;      /* the right of group and others to open (4) and to replace, delete and
                           pin (2) the object; 0: 0600 */
    bool replace;       /* take the name from an object that has it */
    int64_t ttl_ms;     /* time to live: delete it that long after its seal; 0: never */
    enum gpubuf_evict evict;
    int64_t wait_ms;   /* how long to wait for space; 0: not at all */
    bool final;        /* once it is sealed, the kernel keeps everybody from changing it, even its
                          creator; host memory only */
    uint64_t *version; /* gpubuf_put_…: receives the published version; or NULL */
    const char *label; /* your label for this version: up to 255 bytes of UTF-8 without
                          control characters; NULL: none */
    unsigned keep;     /* how many older versions of the name can still be opened; 0 to 8. Others
                          are freed when this one is sealed, or with their last reader */
    enum gpubuf_scope scope;
    bool own;  /* a segment of its own, so that views can show it; costs up to 2 MiB */
    bool live; /* never sealed: others find, read and may write it at once (see live memory) */
    const char *note; /* only programs of this user see it: up to 255 bytes of UTF-8; NULL: none.
                         Only in gpubuf_create */
};

/*
 * Allocates an object, mapped for writing. The caller owns *object: fill its buffers (gpubuf_child,
 * gpubuf_memory), then gpubuf_seal it. Until then nobody else sees it, and the last release
 * discards it. Fill all of it: only masks and the padding behind buffers are zero, and these only
 * in host memory. The rest contains the bytes of older objects of yours. GPUBUF_E_EXISTS: the name
 * is taken and `replace` is false; GPUBUF_E_DENIED: taken by another user's object;
 * GPUBUF_E_NO_SPACE; GPUBUF_E_INVALID: the layout is wrong (the message names the member);
 * GPUBUF_E_UNSUPPORTED: `final` on a GPU.
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
 * writing, on the device too. Afterwards the object is a read lease on the sealed version; its
 * memory must not be written. Other threads must not ask for the object's null counts meanwhile.
 * GPUBUF_E_BUSY: sealed already; GPUBUF_E_EXISTS: the name was taken meanwhile. After a failure the
 * object is as before and may be sealed again.
 *
 * `null_counts`, if not NULL, has one entry for each column of a table (or one for a column); -1
 * keeps the count that gpubuf_create was given. Readers believe the counts, and skip the mask of a
 * column with 0 nulls. So for host memory a count that differs from the mask is GPUBUF_E_INVALID.
 *
 * A program that still writes to the sealed object through this object's pointers gets SIGSEGV
 * where the library can arrange it: in host memory, in whole pages that belong to the object alone,
 * if these are 64 KiB or more. It does so for some thousands of objects at a time, since each may
 * cost the process two of its mappings. Elsewhere, and on a GPU (but see gpubuf_protect), the write
 * succeeds, and all readers see it.
 *
 * Only an object that was created `final` cannot be changed by anybody. Its seal has the kernel
 * protect the memory, and is GPUBUF_E_BUSY while the memory is mapped for writing elsewhere, for
 * example in a child of fork(). If the seal then fails because the name is taken, the object may be
 * sealed again, but not written any more.
 *
 * gpubuf_seal_async takes a reference to the object of its own. On success the callback owns that
 * reference and releases it; the caller still releases its own.
 */
GPUBUF_API int gpubuf_seal(struct gpubuf_object *object, const int64_t *null_counts);
/*
 * Keeps this process from writing to an object that it created and sealed, until the object is
 * released. No work on the GPU may be writing to it meanwhile. Takes some 100 us on a GPU. Returns
 * a positive number if the object is protected, and 0 if it cannot be: on a GPU, if it does not
 * fill its segment; on the host, if it is too small. (On the host gpubuf_seal protects it already.)
 * GPUBUF_E_INVALID: this client did not create and seal the object.
 */
GPUBUF_API int gpubuf_protect(struct gpubuf_object *object);
/* Sets the label (NULL: unchanged; "": none) and the number of older versions to keep (-1:
   unchanged) in place of those given to gpubuf_create. GPUBUF_E_BUSY: the object is sealed. */
GPUBUF_API int gpubuf_set_label(struct gpubuf_object *object, const char *label, int keep);
GPUBUF_API int gpubuf_seal_async(struct gpubuf_object *object, const int64_t *null_counts,
                                 gpubuf_object_cb callback, void *arg, uint64_t *request);

/*
 * Copies a sealed object, of any layout and on the same device, so that it can be changed: write to
 * the copy, and gpubuf_seal it as the name's next version. Readers keep the version that they have.
 * The last release without a seal discards the copy. If several edit a name, the last seal wins.
 * Blocks until all is copied.
 *
 * The copy has the old version's layout and metadata, mode, evict, keep, scope, time to live,
 * `final` and `own`. It has no label (gpubuf_set_label), and no null counts where there is a mask:
 * pass them to gpubuf_seal, or -1. Memory that slices leave out is copied, too; an array is in C
 * order.
 *
 * `options` name the version; wait_ms is for the object to exist, then for room. Errors are those
 * of gpubuf_open and gpubuf_create; GPUBUF_E_DENIED: the mode does not let you replace it;
 * GPUBUF_E_UNSUPPORTED: it is live.
 */
GPUBUF_API int gpubuf_edit(struct gpubuf_client *client, const char *name,
                           const struct gpubuf_open_options *options,
                           struct gpubuf_object **object);

/* A range of a regular file, and its place in a buffer of the object, from byte `at` on. */
struct gpubuf_file_range {
    int fd; /* open for reading; its position does not matter */
    uint64_t offset, bytes;
    uint64_t at;
};

struct gpubuf_fill_options {
    size_t size;
    unsigned readers; /* threads that read; 0: one for each CPU of this process, at most 8 */
};

struct gpubuf_fill;

/*
 * Reads files into a buffer of an unsealed object, on the host or on a GPU, and waits until all is
 * there. Several threads read, in the order of the ranges. `options` may be NULL.
 *
 * To a GPU each thread copies from one piece of pinned memory while it reads the next. This memory
 * counts among the 2 GiB that the library pins at most, and up to 256 MiB of it stay pinned for the
 * next copies. Where it cannot be pinned, copies are slower (gpubuf_pinned_memory). The file is
 * opened once more, to read past the page cache the pieces that are not in it; but not if this
 * process has locks of fcntl(2) on it, which the kernel drops at the first close.
 *
 * GPUBUF_E_INVALID: a file that became shorter or was changed meanwhile (the message names it and
 * the byte), that is no regular file, or a range past the buffer's end; GPUBUF_E_SYSTEM: it could
 * not be read; GPUBUF_E_DEVICE; GPUBUF_E_BUSY: the object is sealed. After a failure the buffer's
 * content is undefined: release the object, and nothing is published.
 */
GPUBUF_API int gpubuf_fill_file(struct gpubuf_object *object, enum gpubuf_which which,
                                const struct gpubuf_file_range *ranges, size_t count,
                                const struct gpubuf_fill_options *options);

/*
 * As gpubuf_fill_file, without waiting; ranges are copied, and descriptors stay open. The caller
 * owns *fill and ends it with gpubuf_fill_end. Until then it neither seals the object nor closes a
 * descriptor.
 *
 * gpubuf_fill_wait waits for `bytes` bytes from `at` on, which this process may then use. With
 * UINT64_MAX it waits for all, and checks that the files are unchanged. `*done`, if `done` is not
 * NULL, is how many bytes are there in all. Any thread may wait. GPUBUF_E_TIMEOUT: not within
 * timeout_ms (-1: for ever); other errors are those of the reading. gpubuf_fill_end stops the
 * reading threads, and waits for them. NULL is fine.
 */
GPUBUF_API int gpubuf_fill_begin(struct gpubuf_object *object, enum gpubuf_which which,
                                 const struct gpubuf_file_range *ranges, size_t count,
                                 const struct gpubuf_fill_options *options,
                                 struct gpubuf_fill **fill);
GPUBUF_API int gpubuf_fill_wait(struct gpubuf_fill *fill, uint64_t at, uint64_t bytes,
                                int timeout_ms, uint64_t *done);
GPUBUF_API void gpubuf_fill_end(struct gpubuf_fill *fill);

/*
 * create + copy + seal + release in one call, from memory of the host or of a GPU (see GPUs) into
 * an object on either. Work on the data must be done, unless it was queued on its GPU's default
 * stream. An array has `shape` in elements and `strides` in bytes. Strides may be negative or 0;
 * NULL means C order; for packed elements the last stride is from byte to byte. The object is in C
 * order. (From a GPU each run of adjacent elements is a copy of its own: make an array of short
 * runs contiguous first.) Errors are those of gpubuf_create and gpubuf_seal; on failure nothing is
 * published.
 */
GPUBUF_API int gpubuf_put_bytes(struct gpubuf_client *client, const char *name, const void *data,
                                uint64_t bytes, const struct gpubuf_create_options *options);
GPUBUF_API int gpubuf_put_array(struct gpubuf_client *client, const char *name, const char *dtype,
                                unsigned ndim, const uint64_t *shape, const int64_t *strides,
                                const void *data, const struct gpubuf_create_options *options);

/* A column in plain arrays in host memory. Zero-initialise it. The library only reads it and the
   memory it points to; the caller keeps both. */
struct gpubuf_values {
    const char *name;  /* in a table */
    const char *dtype; /* of a fixed width, "bool", "utf8" or "large_utf8" */
    /* The elements: for "bool" each is a bool; for text a `const char *`, UTF-8, NULL: a null */
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
 * GPUBUF_E_UNSUPPORTED: a nested dtype, or binary: use gpubuf_put_arrow.
 */
GPUBUF_API int gpubuf_put_table(struct gpubuf_client *client, const char *name,
                                const struct gpubuf_values *columns, size_t count, uint64_t length,
                                const struct gpubuf_create_options *options);
GPUBUF_API int gpubuf_put_column(struct gpubuf_client *client, const char *name,
                                 const struct gpubuf_values *column, uint64_t length,
                                 const struct gpubuf_create_options *options);

/* ---- live memory --------------------------------------------------------------------------- */

/*
 * A live object is never sealed: it has its name and a version at once, and its content changes
 * while others read it. It outlives its creator. Others open it for reading, and map it read-only,
 * or with `write` for writing, if its mode gives them 4 and 2. Readers see each write at once: put
 * into the memory what they need to know what is complete.
 *
 * With `exclusive` the writer has a claim: it waits (wait_ms) until all other writers have ended,
 * and its generation is one higher than the last claim's. A writer ends when it releases the
 * object, or when its connection has ended and its process has exited. Until then it may still
 * write, also by work on a GPU, so a stopped process keeps its claim (`gpubufctl why` names it;
 * killing it ends it). Release a live object only when your work on the GPU is done.
 *
 * If a connection breaks, this process keeps its claim through the next connection. If it could
 * not, gpubuf_is_stale() is true, and unless the daemon has exited somebody else may write then. So
 * on the host a write here is a fault: in the whole pages of the object, or anywhere in its segment
 * if this process writes nothing else there. A child of fork does not have the memory and cannot
 * write.
 *
 * A live object has no label, older versions or aliases, and is not copied to a tier or to other
 * machines. GPUBUF_E_DENIED: the mode does not let you write; GPUBUF_E_UNSUPPORTED: it is not live,
 * or the daemon cannot see this process; GPUBUF_E_BUSY, with wait_ms GPUBUF_E_TIMEOUT: another
 * process writes, which the message names.
 */

/* Whether the object is live; and the generation of this process' claim, 0 if it has none. */
GPUBUF_API bool gpubuf_is_live(const struct gpubuf_object *object);
GPUBUF_API uint64_t gpubuf_generation(const struct gpubuf_object *object);

/* ---- streams ------------------------------------------------------------------------------- */

/*
 * A stream passes frames under one name: one process writes, and up to 64 read the newest frame or
 * each frame, in place. It is a live array whose first axis is its slots. The daemon makes the
 * memory, knows who takes part, and frees the slots of processes that have exited. Frames pass
 * without it:
 *
 *     while (gpubuf_stream_next(stream, 0, &frame) == 0) {           (the writer)
 *         fill(frame.pointer);
 *         gpubuf_stream_publish(stream, &frame, NULL);
 *     }
 *     while (gpubuf_stream_read(stream, -1, &frame) == 0) {          (a reader)
 *         look_at(frame.pointer);
 *         gpubuf_stream_done(stream, &frame, NULL);
 *     }
 *
 * A frame does not change while a reader holds it. The writer does not wait for readers, unless it
 * asks to in gpubuf_stream_next. It always has a slot: readers are admitted only while the slots
 * suffice for one frame being written, the newest frames kept for the reader that may lag most (at
 * least one), and those that readers hold. A writer that breaks the rules harms its readers'
 * content, a reader that does harms itself.
 *
 * A stream is for one thread at a time; different threads may use several streams of a client. A
 * child of fork has none of it. Streams continue when the daemon dies or is restarted. If the next
 * daemon does not know a stream, calls are GPUBUF_E_STALE after the reconnect: close it and open it
 * again.
 *
 * On a GPU `work` is a CUstream or cudaStream_t, as elsewhere; on the host it is ignored.
 *
 * - gpubuf_stream_publish does not wait for it: the frame is announced at once, and complete when
 *   the work queued there has run.
 * - gpubuf_stream_done does not wait for it either: the writer may have the slot once that work has
 *   run.
 * - A reader gets a frame when it is complete; with `ahead` at once. Then gpubuf_stream_wait has
 *   its work begin when the frame is complete, by the GPU alone. With a `hold` of 2 or more, frames
 *   overlap.
 * - Where the driver (before CUDA 11.7) or the machine cannot do that, the calls wait for the work.
 *
 * A writer that is killed does not complete its last frames. A reader does not get them, but with
 * `ahead` it may have some already. Once the daemon has noticed the writer's end, the reader's work
 * runs with whatever is in them. After that work gpubuf_stream_read returns GPUBUF_E_CANCELED,
 * once. If a writer hangs, that work waits as long; if writer and daemon are both killed, until
 * another daemon serves. gpubuf_stream_close always waits for the GPU's work.
 */
struct gpubuf_stream;

struct gpubuf_stream_options {
    size_t size;
    int64_t wait_ms;    /* create: for a former writer to end; open: for the stream to exist */
    const char *device; /* create: as in gpubuf_create_options, as is `mode` */
    unsigned mode;
    unsigned slots; /* create: 2 to 128; 0: 8 */
    bool each;      /* open: every frame, in order; else the newest */
    bool waits;    /* open, with `each`: ask the writer to wait before this reader misses a frame */
    unsigned lag;  /* open: how many of the newest frames are kept for it; 0: none, `each`: 2 */
    unsigned hold; /* open: how many frames it may hold at a time; 0: 1 */
    bool ahead;    /* open: read frames before work on a GPU has completed them (see below) */
};

struct gpubuf_frame {
    void *pointer;    /* its slot; read-only for readers */
    uint64_t bytes;   /* of the slot; set it to less to publish a shorter frame */
    uint64_t number;  /* grows; frames of one writer have numbers that follow one another */
    uint64_t time_ns; /* when it was published, by CLOCK_MONOTONIC */
    uint64_t missed;  /* frames between the last one that was read and this one */
    unsigned slot;
};

/*
 * Creates the stream `name` and becomes its writer. If it exists with the same dtype and shape of a
 * frame, it takes it over. The caller owns *stream and ends it with gpubuf_stream_close; the stream
 * stays, until gpubuf_call's "delete" removes it. GPUBUF_E_BUSY, with wait_ms GPUBUF_E_TIMEOUT:
 * another process writes; GPUBUF_E_EXISTS: the name has something else; errors of gpubuf_create and
 * gpubuf_open.
 */
GPUBUF_API int gpubuf_stream_create(struct gpubuf_client *client, const char *name,
                                    const char *dtype, unsigned ndim, const uint64_t *shape,
                                    const struct gpubuf_stream_options *options,
                                    struct gpubuf_stream **stream);
/* Opens a stream for reading. It need not have a writer. The caller owns *stream and ends it with
   gpubuf_stream_close. GPUBUF_E_BUSY: its slots do not suffice for one more reader; GPUBUF_E_LIMIT:
   it has 64; GPUBUF_E_UNSUPPORTED: it is no stream. */
GPUBUF_API int gpubuf_stream_open(struct gpubuf_client *client, const char *name,
                                  const struct gpubuf_stream_options *options,
                                  struct gpubuf_stream **stream);
/* Leaves the stream and releases the frames it holds. NULL is fine. */
GPUBUF_API void gpubuf_stream_close(struct gpubuf_stream *stream);
/* The array with its slots, which lives as long as the stream. */
GPUBUF_API struct gpubuf_object *gpubuf_stream_object(const struct gpubuf_stream *stream);

/*
 * Gets a slot to write; the same one until gpubuf_stream_publish. With a timeout (-1: for ever) it
 * first waits for readers with `waits`. A reader that does not advance in that time misses frames,
 * and is not waited for again until it advances.
 */
GPUBUF_API int gpubuf_stream_next(struct gpubuf_stream *stream, int64_t timeout_ms,
                                  struct gpubuf_frame *frame);
/* Publishes the frame of gpubuf_stream_next as the newest one, and wakes waiting readers. */
GPUBUF_API int gpubuf_stream_publish(struct gpubuf_stream *stream, const struct gpubuf_frame *frame,
                                     void *work);

/*
 * Gets the newest frame that this reader has not had, or with `each` the next one. It is held until
 * gpubuf_stream_done. Waits up to timeout_ms (-1: for ever; 0: GPUBUF_E_AGAIN): polls for up to 50
 * us, then sleeps. GPUBUF_E_TIMEOUT; GPUBUF_E_UNAVAILABLE: the writer has ended, and all is read
 * (another one may come: call again); GPUBUF_E_BUSY: it holds as many frames as it may;
 * GPUBUF_E_CANCELED: see above; GPUBUF_E_PROTOCOL: the writer announces a frame that is not there.
 */
GPUBUF_API int gpubuf_stream_read(struct gpubuf_stream *stream, int64_t timeout_ms,
                                  struct gpubuf_frame *frame);
/* With `ahead`: work queued on `work` from now on begins when the frame is complete. */
GPUBUF_API int gpubuf_stream_wait(struct gpubuf_stream *stream, const struct gpubuf_frame *frame,
                                  void *work);
GPUBUF_API int gpubuf_stream_done(struct gpubuf_stream *stream, const struct gpubuf_frame *frame,
                                  void *work);

/* ---- bundles ------------------------------------------------------------------------------- */

/*
 * A bundle is one object that holds many arrays, such as the weights of a model: one version, one
 * lease, all or nothing. Its content is a safetensors file: 8 bytes with the length of the manifest
 * (little-endian), the manifest (JSON: name, dtype, shape and place of each array, and metadata),
 * then the arrays' data. The daemon does not read the manifest; these functions read it once and
 * check all of it.
 *
 * A struct gpubuf_bundle never changes, so any thread may use it at any time. Results belong to the
 * bundle and live as long. A bundle that was made from an object keeps it open, and its pointers
 * are into the object's memory. gpubuf_errmsg(NULL) explains the failures of functions that take no
 * client and no object.
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
 * Reads the manifest of an object of kind bundle. From a GPU it is copied to the host, after a wait
 * for the content (gpubuf_wait_ready). The object may still be unsealed, once its manifest has been
 * written. The caller owns *bundle and ends it with gpubuf_bundle_free; until then the bundle has a
 * reference to the object. GPUBUF_E_INVALID: not a bundle, or the manifest is wrong (the message
 * names the tensor and the place); GPUBUF_E_BUSY in a callback; errors of gpubuf_read.
 */
GPUBUF_API int gpubuf_bundle_open(struct gpubuf_object *object, struct gpubuf_bundle **bundle);

/*
 * Reads a manifest in host memory. `manifest` points behind the 8 bytes with the manifest's length,
 * which `manifest_bytes` repeats; `bytes` is the length of the whole file. The text is not kept.
 * The caller ends *bundle with gpubuf_bundle_free.
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
 * data begins at a multiple of 256. Each array begins at a multiple of the largest power of two, up
 * to 256, that divides its length in bytes. Arrays with the larger alignment come first; those with
 * the same keep their order. Tensor i of the bundle is tensors[i]. `metadata` is key, value, key,
 * value, …, NULL; or NULL. The arguments are not kept. A producer then does this:
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

/* gpubuf_bundle_layout() returns the layout to create the bundle's object with.
   gpubuf_bundle_head() returns the first bytes of a planned bundle, up to its data, and their
   number in *bytes; for a bundle that was not planned, NULL and 0. */
GPUBUF_API void gpubuf_bundle_layout(const struct gpubuf_bundle *bundle,
                                     struct gpubuf_layout_spec *layout);
GPUBUF_API const void *gpubuf_bundle_head(const struct gpubuf_bundle *bundle, uint64_t *bytes);

/* NULL is fine. */
GPUBUF_API void gpubuf_bundle_free(struct gpubuf_bundle *bundle);

/* The number of arrays; array i, in the order of the manifest; and the array with a name, whose
   index goes to *i (`i` may be NULL). The last two return NULL if there is no such array. */
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
 * Returns array i of a bundle that has an object, as an object of its own: a view of kind array
 * (see parts of an object). It outlives the bundle, and the caller releases it. GPUBUF_E_NOT_FOUND
 * past the end; GPUBUF_E_INVALID: the bundle has no object; GPUBUF_E_UNSUPPORTED: packed elements
 * that do not fill whole bytes along the last axis, or an array that is not aligned to its
 * element's size (possible in files that other programs wrote): copy that one.
 *
 * gpubuf_bundle_copy() copies the array of a sealed bundle on the host, aligned, into memory of
 * this process, which is freed with the last object over it. GPUBUF_E_UNSUPPORTED also: the bundle
 * is on a GPU, or not sealed. GPUBUF_E_NO_MEMORY.
 */
GPUBUF_API int gpubuf_bundle_array(const struct gpubuf_bundle *bundle, size_t i,
                                   struct gpubuf_object **array);
GPUBUF_API int gpubuf_bundle_copy(const struct gpubuf_bundle *bundle, size_t i,
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
 * Whether another user made the object's content, or may still write it. Do not follow bitmaps,
 * offsets and dictionary codes in place then: copy and check them first, as gpubuf_export_arrow
 * does.
 */
GPUBUF_API bool gpubuf_is_foreign(const struct gpubuf_object *object);

/*
 * Exports a host column, table (as a struct array with a child for each column), 1-d array or bytes
 * (as uint8) with no copy. The caller releases `schema` and `array` by their own `release`; until
 * then they keep the object open. Either may be NULL. Any thread may move and release them, and may
 * move a child away and release it separately. Of a foreign object bitmaps, offsets and codes are
 * copied (if it is not `final`) and checked: GPUBUF_E_INVALID if they lead out of it. Elements are
 * not. GPUBUF_E_UNSUPPORTED: an object on a GPU, an array of several axes or with gaps between
 * elements, or a dtype that Arrow does not have (bool8, bfloat16, floats of 8 bits and fewer,
 * complex).
 */
GPUBUF_API int gpubuf_export_arrow(struct gpubuf_object *object, struct ArrowSchema *schema,
                                   struct ArrowArray *array);

/*
 * Publishes a host Arrow array as a column, or, if `as_table`, a struct array without nulls of its
 * own as a table. Copies the elements that the array's offset and length select, and counts the
 * nulls. `schema` and `array` are only read and stay the caller's. Metadata of columns and of the
 * table are kept if they are UTF-8 text. GPUBUF_E_UNSUPPORTED: a type that the protocol does not
 * have (unions, views, run ends); GPUBUF_E_INVALID: the structs contradict each other.
 */
GPUBUF_API int gpubuf_put_arrow(struct gpubuf_client *client, const char *name,
                                const struct ArrowSchema *schema, const struct ArrowArray *array,
                                bool as_table, const struct gpubuf_create_options *options);

/* ---- sharing memory of your own ------------------------------------------------------------ */

/*
 * Shares `bytes` bytes of memfd `fd` under a name, with no copy, sealed at once. The daemon
 * duplicates the descriptor; the caller's stays open. The memfd must have F_SEAL_SHRINK, and one of
 * huge pages also F_SEAL_WRITE or F_SEAL_FUTURE_WRITE. A memfd with neither of these two loses the
 * write permission of group and others (fchmod), since readers could use it. `layout_json` is a
 * layout whose buffers are {"handle":0,"offset":…,"bytes":…}.
 */
GPUBUF_API int gpubuf_register_memfd(struct gpubuf_client *client, const char *name, int fd,
                                     uint64_t bytes, const char *layout_json,
                                     const struct gpubuf_create_options *options);

/* ---- names --------------------------------------------------------------------------------- */

struct gpubuf_info {
    char name[256];
    uint64_t version;
    char state[8];   /* "open" or "sealed" */
    char tier[8];    /* where the content is: "device", or the tier "host" or "disk" */
    char device[64]; /* "host" or "GPU-…" */
    uint64_t bytes;
    unsigned mode;
    uint32_t uid;
    uint32_t gid;
    int64_t created_ms; /* since 1970 */
    uint64_t leases;
    bool pinned;
    int64_t ttl_ms;  /* time to live, from gpubuf_create or gpubuf_expire; 0: none */
    int64_t idle_ms; /* since it was last opened or released; 0 while leased, and in events */
    bool final;      /* the kernel lets nobody write its memory any more */
    char label[256]; /* its producer's label for this version; "": none */
    unsigned keep;   /* how many older versions the name keeps while this one is current */
    bool older;      /* not the current version, but can be opened by version or label */
    bool gone;       /* can no longer be opened; exists only for the sessions that have it open */
    enum gpubuf_scope scope;
    char note[256]; /* from gpubuf_create, if the object is this user's; not in events about
                       changes */
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
 * Calls `each`, as gpubuf_list does, for each version of a name: the current one, then the older
 * ones that can be opened, newest first, then those that exist for their readers only (64 in all at
 * most). GPUBUF_E_NOT_FOUND: the name has no version. To learn of new versions, watch the name:
 * each `sealed` event has version and label.
 */
GPUBUF_API int gpubuf_versions(struct gpubuf_client *client, const char *name,
                               int (*each)(const struct gpubuf_info *info, void *arg), void *arg);

/* Removes a name and all its versions; the memory is freed with the last lease. */
GPUBUF_API int gpubuf_delete(struct gpubuf_client *client, const char *name);

/* A pinned object is never evicted. */
GPUBUF_API int gpubuf_pin(struct gpubuf_client *client, const char *name);
GPUBUF_API int gpubuf_unpin(struct gpubuf_client *client, const char *name);

/* Sets the time to live: the object is deleted `ttl_ms` from now, in place of any earlier time; 0:
   it does not expire. */
GPUBUF_API int gpubuf_expire(struct gpubuf_client *client, const char *name, int64_t ttl_ms);

/*
 * Moves an object off its device, to a tier below ("host", "disk"; NULL: the first that there is),
 * and returns when the content is there. The daemon does so by itself when memory is short. Call
 * this if you know earlier that the memory will be needed or the object will not. GPUBUF_E_BUSY: a
 * session has the object open; GPUBUF_E_DENIED; GPUBUF_E_NO_SPACE: the tier has no room;
 * GPUBUF_E_UNSUPPORTED: there is no such tier, or the memory is its producer's; GPUBUF_E_DEVICE:
 * the content could not be copied.
 */
GPUBUF_API int gpubuf_spill(struct gpubuf_client *client, const char *name, const char *tier);

/*
 * Restores an object to its device ahead of an open, which would do the same. It may be spilled
 * again. Waits at most `wait_ms` for room on the device; the time of the copy does not count.
 * Errors are those of gpubuf_open, and GPUBUF_E_NO_SPACE.
 */
GPUBUF_API int gpubuf_restore(struct gpubuf_client *client, const char *name, int64_t wait_ms);

/*
 * The same for one version of a name: the one with the number `version`, or, if that is 0, the
 * newest one with `label`, or, if that is NULL, the current one. Deleting the current version
 * deletes the name with its older versions; deleting an older one leaves the others.
 * GPUBUF_E_STALE: the version is no longer current, and was not kept; GPUBUF_E_INVALID: both
 * `version` and `label` are given.
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
    const char *label; /* label, keep and scope are as in gpubuf_create_options */
    unsigned keep;
    enum gpubuf_scope scope;
};

/* Gives a part of a sealed object a name of its own; the memory is shared. */
GPUBUF_API int gpubuf_alias(struct gpubuf_client *client, const char *name, const char *of,
                            const struct gpubuf_alias_options *options);

/* ---- events -------------------------------------------------------------------------------- */

/*
 * `kind` is one of these; ignore others, which a later daemon may send:
 *
 * - "sealed", "deleted", "evicted", "spilled", "restored", "withdrawn";
 * - "parked", "resumed": a session parks the object, as gpubuf_park does, or resumes it;
 * - "synced": all objects that existed have been reported; `info` is NULL;
 * - "reconnected", "refused": see gpubuf_watch.
 *
 * Strings live during the call only.
 */
typedef void (*gpubuf_event_cb)(struct gpubuf_client *client, const char *kind,
                                const struct gpubuf_info *info, void *arg);

/*
 * Watches names that start with `prefix` (NULL: all). `watch` may be NULL; otherwise *watch is the
 * number for gpubuf_unwatch. It is set before the first event, which may come before this function
 * returns. Events come in order, one at a time, in the thread that dispatches.
 *
 * First, every object that exists is reported as "sealed"; "synced" follows the last of them. After
 * a reconnect, "reconnected" (`info` is NULL) says that events may be missing; then every object is
 * reported again, up to "synced". If a daemon took over from another, the objects that could not
 * outlive the old daemon come before "synced", as "withdrawn". "refused" (`info` is NULL) says that
 * the daemon did not make the watch anew, past a limit for example: no events follow until the next
 * reconnect, when it is tried again. The watch ends when the connection is lost. No event says so;
 * gpubuf_dispatch and blocking calls return it.
 */
GPUBUF_API int gpubuf_watch(struct gpubuf_client *client, const char *prefix,
                            gpubuf_event_cb callback, void *arg, uint64_t *watch);

/* `watch` is the new watch's number for gpubuf_unwatch; 0 on failure. */
typedef void (*gpubuf_watch_cb)(struct gpubuf_client *client, int status, uint64_t watch,
                                void *arg);

/* As gpubuf_watch, without waiting: `done`, which must not be NULL, runs exactly once if this
   returns 0, and on success before the first event. `arg` is given to both. See gpubuf_call_async
   for `request`. */
GPUBUF_API int gpubuf_watch_async(struct gpubuf_client *client, const char *prefix,
                                  gpubuf_event_cb callback, gpubuf_watch_cb done, void *arg,
                                  uint64_t *request);

/* `event` is the JSON text of an event's params (docs/PROTOCOL.md), which lives during the call
   only; or {"kind":"reconnected"} or {"kind":"refused"}, as of gpubuf_watch. */
typedef void (*gpubuf_event_json_cb)(struct gpubuf_client *client, const char *event, size_t length,
                                     void *arg);

/*
 * As gpubuf_watch, with the whole event as JSON: it has members that struct gpubuf_info lacks, such
 * as the number of the event and placements. `params` are those of the method `watch`, a JSON
 * object as text, or NULL.
 */
GPUBUF_API int gpubuf_watch_json(struct gpubuf_client *client, const char *params,
                                 gpubuf_event_json_cb callback, void *arg, uint64_t *watch);

/* Ends a watch. No callback of it begins afterwards, and none is running in another thread when
   this returns. It waits for no answer and may be called inside callbacks. GPUBUF_E_NOT_FOUND. */
GPUBUF_API int gpubuf_unwatch(struct gpubuf_client *client, uint64_t watch);

/* ---- providers ----------------------------------------------------------------------------- */

/*
 * A provider makes absent objects that others open. When a session opens an absent name and waits
 * for it (wait_ms of gpubuf_open_options), the daemon asks the provider of the longest prefix of
 * that name: once, however many sessions wait. The provider creates and seals the object, and the
 * opens succeed. Or it declines, and the opens fail with its sentence.
 */

/* Later versions may have more members, at the end: do not copy it by its size. */
struct gpubuf_wanted {
    uint64_t request; /* for gpubuf_decline. Never used twice, not even by a later daemon */
    const char *name; /* lives during the call only; NULL if `ended` */
    uint32_t uid;     /* the user of the session that asked first */
    uint32_t gid;
    bool ended; /* this request is over: nobody waits for the name any more, or another session has
                   sealed it. With `request` 0 the client has reconnected, and all earlier requests
                   are over; the daemon asks again for names that sessions still wait for */
};

typedef void (*gpubuf_wanted_cb)(struct gpubuf_client *client, const struct gpubuf_wanted *wanted,
                                 void *arg);

/*
 * Registers this client as the provider of names that begin with `prefix` ("": all names), until
 * gpubuf_provide_end or the end of the client. A reconnect registers it again. `callback` runs for
 * each wanted name, in the thread that dispatches. It may use gpubuf_create_async, pass the request
 * to another thread, or decline. It may run before this function returns: it is asked at once for
 * names that others wait for already, but never for one that only this client waits for.
 * GPUBUF_E_DENIED: this user may not provide the prefix (gpubufd --provider); GPUBUF_E_EXISTS: the
 * client provides it already; GPUBUF_E_LIMIT.
 */
GPUBUF_API int gpubuf_provide(struct gpubuf_client *client, const char *prefix,
                              gpubuf_wanted_cb callback, void *arg);

/* As gpubuf_provide, without waiting. `done`, which must not be NULL, runs exactly once if this
   returns 0; `arg` is given to both. See gpubuf_call_async for `request`; a canceled one provides
   nothing. */
GPUBUF_API int gpubuf_provide_async(struct gpubuf_client *client, const char *prefix,
                                    gpubuf_wanted_cb callback, gpubuf_call_cb done, void *arg,
                                    uint64_t *request);

/* Ends the registration of a prefix. The daemon asks another provider for names below it, now or
   when one comes. No callback for it begins afterwards, and none is running in another thread when
   this returns. It waits for no answer and may be called inside callbacks. GPUBUF_E_NOT_FOUND: this
   client does not provide the prefix. */
GPUBUF_API int gpubuf_provide_end(struct gpubuf_client *client, const char *prefix);

/*
 * Declines a request: the opens that wait for the name fail with `error`, GPUBUF_E_NOT_FOUND (0 is
 * the same) or GPUBUF_E_UNAVAILABLE, and with `message` (UTF-8, cut after 500 bytes; NULL: none).
 * The next open of the name asks again. With GPUBUF_E_TIMEOUT the request stays open, and `message`
 * is for opens whose time ends before the object is there. `client` is the one that provides. This
 * waits for no answer, and may be called in any thread and inside callbacks. Declining a request
 * that is over does nothing.
 */
GPUBUF_API int gpubuf_decline(struct gpubuf_client *client, uint64_t request, int error,
                              const char *message);

/* ---- GPUs ---------------------------------------------------------------------------------- */

/*
 * An object on a GPU is opened, sliced and released like any other. gpubuf_memory() returns a
 * device pointer, valid in the primary context of that GPU in this process, which the library
 * retains while anything is mapped. A reader's mapping is read-only: a kernel that writes there
 * fails in its own process. (A process that also writes to the same segment has a single writable
 * mapping of it, without that protection.) The library never changes the calling thread's current
 * context, and loads the CUDA driver only when it meets a GPU.
 *
 * A `stream` is a CUstream or cudaStream_t of the object's GPU, in its primary context, as the
 * streams of the CUDA runtime are. With NULL a function runs after everything queued on the legacy
 * default stream, and waits until it is done, as cudaMemcpy does. The default streams themselves
 * are GPUBUF_STREAM_LEGACY and GPUBUF_STREAM_PER_THREAD.
 *
 * Finish your work on an object before you seal or release it, or pass its stream to gpubuf_seal_on
 * or gpubuf_release_on. Otherwise the driver takes the memory away from a running kernel, which
 * ends the whole context.
 *
 * Errors of the driver are GPUBUF_E_DEVICE; the message has the name of the CUDA error and the
 * operation that failed. GPUBUF_E_UNSUPPORTED: no CUDA driver here, the object's GPU is not visible
 * to this process (CUDA_VISIBLE_DEVICES), or this is a child of fork() of a process that had used
 * CUDA.
 */
#define GPUBUF_STREAM_LEGACY ((void *)1)
#define GPUBUF_STREAM_PER_THREAD ((void *)2)

/* The object's GPU in this process' own numbering (CUDA's ordinal); -1 for host memory. */
GPUBUF_API int gpubuf_device_ordinal(const struct gpubuf_object *object);

/*
 * Copy `bytes` bytes between `data` and the object's buffer `which`, from byte `offset` of the
 * memory that gpubuf_memory returns. `data` may be memory of the host or of any GPU; with a stream,
 * of a GPU that can reach the object's. With a stream the copy is queued, and `data` and the object
 * must stay until it is done. (A copy within host memory is done at once.) gpubuf_read works on any
 * object and does not wait for its content (gpubuf_wait_ready). gpubuf_write works on an unsealed
 * object (else GPUBUF_E_BUSY). GPUBUF_E_INVALID: past the buffer's end, or no such buffer. After
 * GPUBUF_E_DEVICE the target's content is undefined.
 */
GPUBUF_API int gpubuf_read(const struct gpubuf_object *object, enum gpubuf_which which,
                           uint64_t offset, void *data, uint64_t bytes, void *stream);
GPUBUF_API int gpubuf_write(struct gpubuf_object *object, enum gpubuf_which which, uint64_t offset,
                            const void *data, uint64_t bytes, void *stream);

/*
 * Pins the memory of an object on the host with the CUDA driver, so that copies from and to it run
 * at the full speed of the bus, and overlap other work. It stays pinned until the last reference to
 * the object or a view of it is released, and its lease no longer cached. Calling it again costs
 * nothing. The object's whole segment is pinned, once for the process, in some 40 ms for each GiB.
 * It uses the current context, else that of the first GPU. GPUBUF_E_INVALID: the object is on a
 * GPU; GPUBUF_E_UNSUPPORTED: there is no driver; GPUBUF_E_DEVICE: the driver refuses, as some do
 * for a reader's memory, which is read-only.
 */
GPUBUF_API int gpubuf_pin_memory(struct gpubuf_object *object);

struct gpubuf_pinned_memory {
    size_t size;
    uint64_t objects;     /* bytes of objects that gpubuf_pin_memory has pinned, now */
    uint64_t buffers;     /* bytes of the library's own buffers for copies, now … */
    uint64_t buffers_max; /* … and at most */
    uint64_t refused;     /* buffers so far that could not be pinned, so that copies were slower */
};

/* Reports how much memory the library has pinned in this process. The daemon does not know it:
   objects count for their owners, pinned or not. GPUBUF_E_INVALID. */
GPUBUF_API int gpubuf_pinned_memory(struct gpubuf_pinned_memory *figures);

/*
 * As gpubuf_seal, for a writer with work still queued on `stream`, without waiting for that work.
 * Readers wait for it on their own streams, on the device (gpubuf_wait_ready). The object is
 * *settled* when the work is done; the library notices that by itself within milliseconds. Until
 * then the object lives only as long as the client's connection, so call gpubuf_wait_ready(object,
 * NULL) before the program exits. An object whose work fails is never settled. A client has at most
 * 256 objects that are not settled: sealing one more waits for the oldest. NULL stream: as
 * gpubuf_seal. For an object on the host this waits for the stream.
 */
GPUBUF_API int gpubuf_seal_on(struct gpubuf_object *object, const int64_t *null_counts,
                              void *stream);

/*
 * Makes `stream` (NULL: the calling thread) wait until the object's content is there, which
 * gpubuf_open does not. It costs nothing if the content is there already. Otherwise, if another
 * process produces it, the library asks the daemon whether the producer still lives.
 * GPUBUF_E_STALE: the producer has ended or the name was deleted, and the work was not done within
 * the second after that. A stream that is already waiting when the producer is killed waits for
 * ever: the driver does not notify it. With NULL this is a blocking call (GPUBUF_E_BUSY in a
 * callback).
 */
GPUBUF_API int gpubuf_wait_ready(struct gpubuf_object *object, void *stream);

/*
 * As gpubuf_release, for a reader with work still queued on `stream`: the library drops the
 * reference when the work is done. A client has at most 256 such releases in flight: one more waits
 * for the oldest, and gpubuf_disconnect waits for all. NULL stream: releases at once. For an object
 * on the host this waits for the stream. On failure the caller still has the reference.
 */
GPUBUF_API int gpubuf_release_on(struct gpubuf_object *object, void *stream);

/*
 * Shares device memory of the caller's own under a name, with no copy, sealed at once. The range
 * may lie anywhere in one allocation (of CuPy's, RMM's or PyTorch's pool, too); readers can then
 * map the whole allocation. All work on the memory must be done.
 *
 * Exportable memory of cuMemCreate is adopted: it outlives the caller. Memory of cuMemAlloc and
 * cudaMalloc stays the caller's: the caller must keep it until the object is deleted and its
 * readers have released it, and the object is withdrawn when the client disconnects.
 *
 * `layout_json` has buffers {"handle":0,"offset":…,"bytes":…} whose offsets count from `pointer`.
 * `options->device` may be left out; `share` and `wait_ms` have no meaning. GPUBUF_E_UNSUPPORTED:
 * memory that cannot be shared (managed, stream-ordered, or another process's), or a range over
 * several allocations (the message says what to do); GPUBUF_E_INVALID: not memory of a GPU, or past
 * the end of the allocation.
 */
GPUBUF_API int gpubuf_register_device(struct gpubuf_client *client, const char *name,
                                      const void *pointer, uint64_t bytes, const char *layout_json,
                                      const struct gpubuf_create_options *options);

/* A range of the caller's device memory. */
struct gpubuf_part {
    const void *pointer;
    uint64_t bytes;
};

/*
 * As gpubuf_register_device, for memory in several places, such as the columns of a table. A
 * layout's buffer with "handle" i lies in parts[i]; its offset counts from that part's pointer.
 * The parts may lie in up to 16 allocations, all of one GPU and of one kind. GPUBUF_E_LIMIT: more
 * allocations than that.
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
#define ARROW_DEVICE_ROCM 10

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
 * gpubuf_device_ordinal(), and buffers are device pointers (do not follow that of a buffer of 0
 * bytes). sync_event is a CUevent * to wait for, which lives as long as the array; NULL if the
 * content is there.
 */
GPUBUF_API int gpubuf_export_arrow_device(struct gpubuf_object *object, struct ArrowSchema *schema,
                                          struct ArrowDeviceArray *array);

#ifdef __cplusplus
}
#endif

#endif
