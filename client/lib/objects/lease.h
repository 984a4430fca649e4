/*
 * Leases: what the session holds on one object version, which is the daemon's number, the layout,
 * and the imports that its buffers lie in. The program holds objects (object.h): the root that an
 * open or create gave it, and views made from the root. Both are counted; the lease ends with the
 * last object.
 *
 * A lease, its root object and its layout lie in one allocation. Nothing but `version`, `state`,
 * `ready` and null counts (at seal) changes once it is made, so that reading needs no lock. The
 * lease of a view changes with its switches (view.c).
 */
#ifndef GB_LIB_LEASE_H
#define GB_LIB_LEASE_H

#include <stdatomic.h>

#include "client/lib/wire/client.h"
#include "proto/layout/layout.h"

struct gb_ready;
struct gb_gpu;
struct gb_view_window;

#define GB_NO_SEGMENT UINT64_MAX /* in a buffer of 0 bytes */

enum gb_client_lease_state {
    GB_LEASE_OPEN,    /* being written */
    GB_LEASE_SEALING, /* `seal` is under way */
    GB_LEASE_SEALED,  /* or live */
    GB_LEASE_ENDED,   /* the daemon knows */
    GB_LEASE_STALE,   /* it went with its connection */
};

struct gb_client_lease_segment {
    struct gb_import *import;
    char *address;
    bool pinned; /* by this lease */
};

/* The users who made the content, or may write it. */
enum gb_client_lease_content {
    GB_CONTENT_OWN,     /* this one alone */
    GB_CONTENT_FOREIGN, /* another one, too: nothing is followed in it that was not copied */
    GB_CONTENT_FINAL,   /* another one, and nobody can write it any more */
};

struct gb_client_lease_access {
    bool writable;       /* made by `create`, or opened for writing */
    bool live;           /* its content changes, and it is never sealed */
    bool counted;        /* in its mapping: it is live, and may be written */
    uint64_t generation; /* of the claim on a live object; 0: this is none */
    unsigned reader;     /* 1 + its number as a reader of the object's stream; 0: it is none */
    enum gb_client_lease_content content;
};

/* While the client resumes. */
struct gb_client_lease_resuming {
    struct gb_client_lease **asked; /* its place in the list of leases asked for; or NULL */
    bool granted;                   /* the daemon has granted it anew */
};

struct gb_client_lease {
    _Atomic size_t references;            /* the root's is one */
    struct gpubuf_client *client;         /* counted */
    struct gb_client_lease *next, **link; /* among the client's */
    struct gpubuf_object *root;
    uint64_t number; /* of its client's, never used twice; `id` is the daemon's */
    uint64_t id;
    struct gb_client_lease_resuming resuming;
    _Atomic uint64_t version;
    _Atomic int state; /* enum gb_client_lease_state */
    struct gb_client_lease_access access;
    bool final;        /* made by `create`; the kernel is to hold its memory from the seal on … */
    _Atomic bool held; /* … and does */
    bool guarded;      /* its own memory cannot be written here */
    bool stray;        /* lost with its connection, and may still be written */
    const char *name, *device;
    const char *label; /* of this version; NULL: none. Before the seal: what the seal will say */
    int keep;          /* older versions to keep, as the seal will say; -1: as create did */
    bool entitled;     /* the seal says the label, too */
    _Atomic(struct gb_ready *) ready; /* what to wait for before the content is there; or NULL */
    struct gb_layout layout;          /* its buffers' `segment` is an index into `segments` */
    struct gb_client_lease_segment *segments;
    size_t segment_count, segment_capacity;
    struct gb_view_window *window; /* of a view's lease: where its one segment is shown; or NULL */
    char *relabeled; /* owned; what `label` points to once a view was switched; or NULL */
    bool parked;     /* a claim without memory: no segment is used */
    /* For cached.c. */
    uint64_t slot;                         /* in the page, from 1 on; 0: it cannot be cached */
    uint64_t hash;                         /* of the name */
    bool twice;                            /* its version was opened before */
    struct gb_client_lease *chain;         /* in its bucket, while it is listed */
    struct gb_client_lease *newer, *older; /* of those that are cached */
    int64_t idle_since;                    /* while it is cached */
    bool listed, cached;
    bool reported; /* the daemon knows that nobody uses it … */
    bool used;     /* … but it was used since then */
    struct gb_pool pool;
};

/* Adds a lease that has been filled in to the client's, and takes a reference to the client. With
   the client's lock held. */
void gb_client_lease_add(struct gb_client_lease *lease);
/* Ends a lease without references, and notes that the daemon is to be told. With the lock held. */
void gb_client_lease_end(struct gb_client_lease *lease);
/* Frees only the lease. In a child of fork nothing of the client may be touched, since its
   lock may be held for ever, and what a lease waits for is not the child's to give back. */
void gb_client_lease_free(struct gb_client_lease *lease);
/* Lets the lease's segments go. For a lease that is in the client's. */
void gb_client_lease_unuse(struct gb_client_lease *lease);
/* Whether the program may write its memory now. */
bool gb_client_lease_is_writable(const struct gb_client_lease *lease);
/* Ends a lease that was not added to the client's: lets its segments go, and frees it. */
void gb_client_lease_discard(struct gb_client_lease *lease);

/*
 * Has released leases reported to the daemon: at once, or, where releases follow one
 * another within a millisecond, with the next message or by the flusher. Inside a callback they are
 * sent when the callbacks have run. With the lock held.
 */
void gb_send_releases(struct gpubuf_client *client);

/*
 * For a lease that `create` made, with the lock held. On a GPU `guard` and `finish` do nothing.
 * `made` makes sure that the memory can be written at first. `guard` has a write here end in
 * SIGSEGV: from before the seal is sent, so that nobody else has the memory yet, until the lease
 * ends or the seal has failed. `protect` is the guard that a program asks for after the seal; it
 * returns whether it is there. `finish` has the kernel hold the memory for good: GPUBUF_E_BUSY,
 * GPUBUF_E_SYSTEM.
 */
void gb_client_lease_made(struct gb_client_lease *lease);
void gb_client_lease_guard(struct gb_client_lease *lease);
bool gb_client_lease_protect(struct gb_client_lease *lease);
void gb_client_lease_unguard(struct gb_client_lease *lease);
int gb_client_lease_finish(struct gb_client_lease *lease, struct gb_error *error);
/* Pins the memory of a lease on the host, as long as the lease lasts. Without the lock. Errors of
   gb_mapped_pin. */
int gb_client_lease_pin(struct gb_client_lease *lease, struct gb_error *error);
/* The lease was lost with its connection before its object was sealed. */
void gb_client_lease_stray(struct gb_client_lease *lease);
/* The lease was lost: another process may write what it was for writing, if that is live. */
void gb_client_lease_lose(struct gb_client_lease *lease);

/* The GPU that an object is on, NULL for the host. GPUBUF_E_UNSUPPORTED, GPUBUF_E_DEVICE. */
int gb_client_lease_gpu(const struct gb_client_lease *lease, struct gb_gpu **gpu,
                        struct gb_error *error);

#endif
