/*
 * The state that serving shares: the loop, the socket that the daemon listens on, the sessions, the
 * store and the registry. wiring.c makes it, runs it and ends it. All of it belongs to the loop's
 * thread.
 */
#ifndef GB_SERVER_H
#define GB_SERVER_H

#include <uv.h>

#include "daemon/base/hash.h"
#include "daemon/base/listener.h"
#include "daemon/base/shared_writer.h"
#include "daemon/base/timer.h"
#include "daemon/objects/page.h"
#include "daemon/objects/registry.h"
#include "daemon/serve/flight.h"
#include "daemon/serve/metrics.h"
#include "daemon/serve/missing.h"
#include "daemon/serve/service.h"
#include "daemon/spill/evict.h"
#include "daemon/survive/heartbeat.h"
#include "daemon/survive/state.h"

#define GB_SCRATCH_BYTES 65536
#define GB_WATCHING 256 /* lists of requests that need the content of a storage */

struct gb_closer;
struct gb_config;
struct gb_session;

/* Memory for serving the current message. Requests are served one after another: an event that one
   raises is written elsewhere (struct gb_watches). */
struct gb_workspace {
    struct gb_pool pool;
    struct gb_writer writer, layout, text;
    bool taken;                  /* a request is served: the pool and the writers are its */
    char *scratch, *end_scratch; /* for received bytes; for those of a session that has hung up */
};

/* Between these a request has the pool and the writers. */
static inline void gb_workspace_acquire(struct gb_workspace *workspace)
{
    gb_acquire_shared(&workspace->taken);
}

static inline void gb_workspace_return(struct gb_workspace *workspace)
{
    workspace->taken = false;
}

/* State of wait.c for all requests that wait. */
struct gb_waits {
    struct gb_queue queues[GB_DEVICES];   /* by the device's index */
    struct gb_link watching[GB_WATCHING]; /* struct gb_wait, by the storage that they need */
    struct gb_link waking;                /* struct gb_served with requests to be tried again */
    uint64_t made;                        /* struct gb_wait so far */
};

/* The loop's handles. */
struct gb_handles {
    uv_poll_t listen, exits; /* exits: the registry's */
    uv_check_t check;
    uv_prepare_t prepare;
    uv_idle_t more_work; /* active while there is more to do than a turn has time for */
    uv_timer_t timer;
    uint64_t timer_at; /* the time that it is set to; UINT64_MAX: not set */
    uv_signal_t signals[3];
    int stopped_by; /* the signal that ended the loop */
    int ends_fd;    /* epoll set of all sessions' sockets, which tells hang-ups */
    int spare_fd;   /* closed to accept and turn away a session when descriptors run out */
};

/* Work for the turns of the loop. */
struct gb_turns {
    struct gb_link ready; /* sessions with something to receive or room to send */
    struct gb_link busy;  /* users with busy sessions, which are served in turn after the others */
    struct gb_link tasks; /* struct gb_task: requests with more to do */
    struct gb_link leaving; /* sessions whose leases and mappings are ended in slices */
    struct gb_link untold;  /* sessions whose output waits for the service manager, in order */
    struct gb_link dirty;   /* sessions with output to send at the end of the turn */
    uint64_t slice_ns;  /* of a session in a turn; busy ones, and waits, get a quarter together */
    uint64_t drain_ns;  /* see GB_SESSION_DRAIN_NS */
    uint64_t retire_at; /* when retire_idle() has something to do; UINT64_MAX: never */
};

/* Events, and the watches that are to be told. */
struct gb_watches {
    struct gb_link users; /* struct gb_served that have sessions with watches */
    struct gb_link news;  /* struct gb_news, the oldest first: the last that some session was sent,
                             and all that is newer */
    struct gb_shared_writer text; /* of an event */
    uint64_t bytes;               /* of the news */
    uint64_t next;                /* the number of the next watch */
};

struct gb_server {
    const struct gb_config *config;
    const struct gb_limits *limits; /* of the configuration */
    const struct gb_service *service;
    enum gb_evict evict; /* of objects whose request does not say */
    uv_loop_t *loop;
    char instance[33]; /* random, lowercase hex; a successor that restores the state keeps it */
    struct gb_notify *notify; /* the service manager; not ours; NULL: there is none */
    struct gb_closer *closer; /* closes received descriptors; not ours; NULL: the loop does */
    struct gb_heartbeat heartbeat;
    struct gb_listener listener;
    struct gb_handles handles;

    struct gb_link sessions;
    struct gb_turns turns;
    struct gb_link walks;       /* struct gb_walk: over the sessions */
    struct gb_mover *worker;    /* the thread for long work of requests */
    struct gb_flights flights;  /* descriptors that were sent */
    struct gb_session *serving; /* the session whose request is being served; NULL: none */
    uint64_t session_count, next_session;

    struct gb_deadlines timers; /* of struct gb_timer */
    struct gb_timer alone;      /* set while nobody is connected: idle.h */
    struct gb_store store;
    struct gb_registry registry;
    struct gb_pulse pulse;
    struct gb_spill spill;
    struct gb_state state;
    struct gb_device *devices[GB_DEVICES];
    unsigned device_count;
    unsigned withdrawn; /* a bit for each device that is lost and whose objects are withdrawn */
    struct gb_waits waits;
    struct gb_missings missings; /* names that requests wait for, and their providers */
    struct gb_watches watches;

    struct gb_workspace workspace;
    struct gb_shared_writer notices; /* for messages that answer no request */

    uint64_t started_ms;
    uint64_t seq; /* the number of the last event */
    struct gb_metrics metrics;
};

#endif
