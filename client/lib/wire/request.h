/*
 * Requests under way: a table by their numbers, from when they are sent until their outcome was
 * delivered. A request's type says how its reply is read, and how the request is sent again after a
 * reconnect. While the connection is down, requests are only noted in the table. With the client's
 * lock held.
 */
#ifndef GB_LIB_REQUEST_H
#define GB_LIB_REQUEST_H

#include "client/lib/wire/callback.h"
#include "client/lib/wire/client.h"

struct gb_request;

/* A reply as a request's type gets it: a result or a refusal, and the descriptors that came along.
   Descriptors that the type does not set to -1 are closed afterwards. */
struct gb_reply {
    struct gb_json result;
    const struct gb_error *refused; /* NULL: `result` is there */
    struct gb_json error;           /* the raw error, if refused */
    int *fds;
    unsigned fd_count;
};

struct gb_request_type {
    /*
     * Reads a reply, with the lock held. 0, a positive outcome of the type's own, or a failure with
     * *error filled in; GPUBUF_E_PROTOCOL ends the connection, and so does GPUBUF_E_CLOSED. If it
     * sets request->again, the request is under way again. NULL: only success or failure matters.
     */
    int (*reply)(struct gb_request *request, const struct gb_reply *reply, struct gb_error *error);
    /* The request has ended, with whatever outcome. With the lock held, before anybody is told. May
       be NULL. */
    void (*on_end)(struct gb_request *request);
    /* Runs the callback with `status`, without the lock. */
    void (*deliver)(struct gb_request *request, int status);
    /* Sends the request anew after a reconnect, as it was first sent; it is off the table then.
       NULL: it is only ever sent once. */
    int (*resend)(struct gb_request *request, struct gb_error *error);
    /* Gives back a result that nobody will fetch, with the lock held. May be NULL. */
    void (*discard)(struct gb_request *request);
    /* Frees it. Without the lock if its outcome was delivered or waited for, else with it. */
    void (*free)(struct gb_request *request);
};

struct gb_request {
    struct gb_delivery delivery;
    struct gb_request *chain; /* in its bucket */
    const struct gb_request_type *type;
    struct gpubuf_client *client;
    uint64_t id;
    uint64_t end;  /* of its message, in bytes sent by the connection; UINT64_MAX: not sent yet */
    int status;    /* once `ended` */
    bool once;     /* the daemon must not get it twice */
    bool waited;   /* by a blocking call, which frees it; else there is a callback */
    bool firm;     /* the program does not end the wait for it: progress.h */
    bool canceled; /* nobody is interested any more: discard what comes */
    bool ended;    /* the outcome is there */
    bool again;    /* sent again by its own reply */
    bool holding;  /* it holds the imports until it has ended */
    bool held;     /* being canceled: the canceling call frees it */
    struct gb_error error;
};

/* Begins a request's message and returns the writer, which stands where its params go. The request
   must be sent or abandoned before the lock is let go. */
struct gb_writer *gb_request_begin(struct gpubuf_client *client, struct gb_request *request,
                                   const char *method, unsigned fds);
/* Puts a request in the table that is never sent itself: others are sent for it, and end it. */
int gb_request_note(struct gpubuf_client *client, struct gb_request *request);

enum gb_release_order { GB_RELEASES_FIRST, GB_RELEASES_LAST };

/*
 * Ends its message and sends it with `fds`, which are taken over, together with the waiting notices
 * of leases and segments. On failure the request is not under way and is the caller's.
 * GPUBUF_E_NO_MEMORY, GPUBUF_E_LIMIT (the message is too long).
 */
int gb_request_send(struct gpubuf_client *client, struct gb_request *request, const int *fds,
                    unsigned fd_count, enum gb_release_order order, struct gb_error *error);

/* For a request that is sent again: no import is dropped until it has ended. */
void gb_request_hold_imports(struct gb_request *request);

struct gb_request *gb_request_find(const struct gpubuf_client *client, uint64_t id);

/* Ends a request: keeps the outcome for the waiting call, or queues its callback, or discards
   it. */
void gb_request_end(struct gb_request *request, int status, const struct gb_error *error);

/* Ends all requests; for gb_client_lose. */
void gb_request_end_all(struct gpubuf_client *client, const struct gb_error *error);
/* The connection broke: ends the requests that cannot be sent anew, and marks the others to be
   sent. */
void gb_request_break_all(struct gpubuf_client *client);
/* Sends the requests that are marked, in order. GPUBUF_E_NO_MEMORY. */
int gb_request_resume_all(struct gpubuf_client *client, struct gb_error *error);

/* Takes a request off the table, and puts one back that was taken off. */
void gb_request_remove(struct gb_request *request);
void gb_request_restore(struct gb_request *request);

/* Runs its callback. Lets the lock go meanwhile. */
void gb_request_run_callback(struct gb_request *request, int status, const struct gb_error *error);

#endif
