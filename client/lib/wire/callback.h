/*
 * Callbacks of the program. Those that are due wait in a queue. One thread at a time runs them, in
 * order and without the client's lock. The functions here are called with the lock held.
 */
#ifndef GB_LIB_CALLBACK_H
#define GB_LIB_CALLBACK_H

#include "client/lib/wire/client.h"

/* Waits for its callback: a request that has ended, or an event of a watch. */
struct gb_delivery {
    struct gb_delivery *next;
    /* Runs the callback between gb_callback_begin and gb_callback_end, and frees what was
       delivered. */
    void (*run)(struct gpubuf_client *client, struct gb_delivery *delivery);
};

/* The clients whose callbacks a thread is inside of, innermost first. */
struct gb_callback_frame {
    const struct gpubuf_client *client;
    const struct gb_callback_frame *up;
};

void gb_queue_delivery(struct gpubuf_client *client, struct gb_delivery *delivery);
void gb_unqueue_delivery(struct gpubuf_client *client, struct gb_delivery *delivery);

/* Lets the lock go for a callback, and takes it again. */
void gb_callback_begin(struct gpubuf_client *client, struct gb_callback_frame *frame);
void gb_callback_end(struct gpubuf_client *client, const struct gb_callback_frame *frame);
/* Whether the calling thread is inside a callback of this client. Needs no lock. */
bool gb_in_callback(const struct gpubuf_client *client);

/* Waits until no other thread is in the callback of a watch, or of a provided prefix, that was
   taken off the client. */
void gb_await_callback(struct gpubuf_client *client, uint64_t watch);

/* Runs the callbacks that are due, unless another thread does, and if `all` those that become due
   meanwhile, too; else the program's loop is woken for these. Lets the lock go. */
void gb_deliver(struct gpubuf_client *client, bool all);

#endif
