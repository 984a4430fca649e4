/*
 * One machine that has connected to this one, and what it asks (serve.h). On the loop's thread.
 */
#ifndef GB_SESSION_H
#define GB_SESSION_H

#include "client/peer/serve.h"

struct gb_session;

struct gb_session_events {
    /* Whether the machine of that name may have one more connection. */
    bool (*open)(struct gb_session *session, const char *node, void *user);
    void (*closed)(struct gb_session *session, void *user); /* it is no more after that */
};

/* Of a socket that was accepted, which is the session's, also where this fails. */
struct gb_session *gb_session_new(const struct gb_serve_options *options, int fd,
                                  const struct gb_session_events *events, void *user);
void gb_session_close(struct gb_session *session);             /* without an event */
const char *gb_session_node(const struct gb_session *session); /* "": not known yet */

/* A moment has passed: one that is stuck ends. */
void gb_session_tick(struct gb_session *session);

#endif
