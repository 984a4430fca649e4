/*
 * The state that serving shares: the loop, the socket that the daemon listens on, the sessions, the
 * store and the registry. loop.c makes it, runs it and ends it. All of it belongs to the loop's
 * thread.
 */
#ifndef GB_SERVER_H
#define GB_SERVER_H

#include <uv.h>

#include "daemon/base/hash.h"
#include "daemon/base/listener.h"
#include "daemon/base/timer.h"
#include "daemon/objects/page.h"
#include "daemon/objects/registry.h"
#include "daemon/serve/flight.h"
#include "daemon/serve/metrics.h"
#include "daemon/serve/missing.h"
#include "daemon/serve/service.h"
#include "daemon/spill/spill.h"
#include "daemon/survive/heartbeat.h"
#include "daemon/survive/state.h"

#define GB_SCRATCH_BYTES 65536

struct gb_closer;
struct gb_config;
struct gb_session;
struct gb_trace;

/* Scratch of the message at hand. */
struct gb_workspace {
    struct gb_pool pool;
    struct gb_writer writer, list_writer;
    char *scratch, *end_scratch; /* received bytes; of a session whose peer has hung up */
};

/* State of wait.c for all requests that wait. */
struct gb_waits {
    struct gb_link woken; /* waits to be tried at the end of the turn */
    uint64_t made;        /* so far */
};

struct gb_method_count {
    uint64_t calls, errors;
};

struct gb_server {
    const struct gb_config *config;
    const struct gb_limits *limits; /* of the configuration */
    const struct gb_service *service;
    enum gb_evict evict; /* of what is made without a word about that */
    uv_loop_t *loop;
    char instance[33];        /* random, lowercase hex: this run of the daemon */
    struct gb_notify *notify; /* the service manager; not ours; NULL: there is none */
    struct gb_closer *closer; /* of what sessions have sent; not ours; NULL: the loop closes it */
    struct gb_heartbeat heartbeat;
    struct gb_listener listener;
    uv_poll_t listen_poll;
    uv_check_t serve_check;
    uv_prepare_t timer_prepare;
    uv_idle_t go_on; /* active while there is more to do than a turn has time for */
    uv_timer_t timer;
    uint64_t timer_at;  /* what it is set to; UINT64_MAX: nothing */
    uint64_t retire_at; /* when a segment will have been empty for long enough; UINT64_MAX: none */
    uv_signal_t signals[3];
    int stopped_by; /* that signal */
    int spare_fd;   /* given up to accept and turn away a session when descriptors run out */

    int ends_fd; /* epoll of every session's end */
    struct gb_link sessions;
    struct gb_link ready; /* with something to receive or room to send */
    struct gb_link busy;  /* users whose sessions are, but busy: after the others, and in turns */
    uint64_t slice_ns;    /* of a session, a turn; a quarter for all busy ones, and for waits */
    struct gb_link dirty; /* with output to send at the end of the turn */
    struct gb_link walks; /* struct gb_walk: over the sessions */
    struct gb_link tasks; /* struct gb_task: requests to be gone on with */
    struct gb_mover *worker;    /* the thread that does what takes long for requests */
    struct gb_link leaving;     /* sessions that give back what they held piece by piece */
    struct gb_flights flights;  /* descriptors that were sent */
    struct gb_session *serving; /* the session whose request is at hand; NULL: none */
    uint64_t session_count, next_session;

    struct gb_deadlines timers; /* of struct gb_timer */
    struct gb_store store;
    struct gb_registry registry;
    struct gb_pulse pulse;
    struct gb_spill spill;
    struct gb_state state;
    struct gb_device *devices[GB_DEVICES];
    unsigned device_count;
    struct gb_waits waits;
    struct gb_missings missings; /* names that requests wait for, and who is asked for them */
    struct gb_link watches;      /* of all sessions */
    uint64_t next_watch;

    struct gb_workspace workspace;
    struct gb_writer event_writer;
    uint64_t drain_ns; /* see GB_SESSION_DRAIN_NS */

    uint64_t started_ms;
    struct gb_trace *trace; /* NULL: nobody asks for one */
    uint64_t seq;           /* the number of the last event */
    uint64_t sessions_total;
    struct gb_method_count *counts; /* one a method */
    struct gb_metrics metrics;
};

#endif
