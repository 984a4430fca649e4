/*
 * The interface between the peer and a directory, which knows where the names are that other
 * machines publish: it keeps them in etcd (directory_etcd.h).
 *
 * How the parts of gpubufd-peer fit together:
 *
 *     wanted (daemon) → fetch.c → directory find → link to each place → object filled, sealed
 *     sealed with scope "cluster" (daemon) → publish.c → directory publish, withdraw
 *     open, read (another machine's peer) → serve.c
 *
 * Threads: everything runs on the peer's one libuv loop, on which a directory is made and closed. A
 * callback is called exactly once, never before the function that takes it returns; on close with
 * GPUBUF_E_CANCELED. Strings and arrays that a callback or a function is given belong to the caller
 * and live during the call only.
 *
 * A revision is a number that the directory gives a name at publish. Origin, name and revision
 * together stand for one content for ever. So a copy may be old, but is never wrong.
 */
#ifndef GB_PEER_DIRECTORY_H
#define GB_PEER_DIRECTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/peer/directory/word.h"
#include "proto/base/errors.h"

enum { GB_PEER_NODE_BYTES = 64, GB_PEER_HOST_BYTES = 256, GB_PEER_PLACES_MOST = 16 };

/* A machine that has the bytes of a revision. */
struct gb_peer_place {
    char node[GB_PEER_NODE_BYTES]; /* as its certificate names it */
    char host[GB_PEER_HOST_BYTES]; /* a name or an address */
    uint16_t port;
    char origin[GB_PEER_NODE_BYTES]; /* the node that published the revision: `node` itself, or one
                                   that `node` has a copy from */
    uint64_t revision;
    uint64_t version;         /* of the object in the daemon of `node`: the version to open there */
    uint64_t bytes;           /* of the content */
    uint64_t since_ms;        /* in Unix time, by the clock of `node`; 0: it did not say */
    struct gb_peer_word word; /* the origin's, if the directory knows it */
};

/* An object of this machine's daemon that other machines are to find. */
struct gb_peer_published {
    const char *name;
    uint64_t version;
    uint64_t bytes;
    uint64_t
        seen; /* the revision that it replaces, as publish returned it; 0: the name is new here */
};

/*
 * Status 0: `places` are all of one origin and revision, the newest, at most GB_PEER_PLACES_MOST.
 * The origin is among them if it is there. GPUBUF_E_NOT_FOUND: nobody has the name.
 * GPUBUF_E_UNAVAILABLE: the directory cannot tell now; the sentence says why. On failure `places`
 * is NULL and `error` is set.
 */
typedef void (*gb_peer_found_cb)(void *user, int status, const struct gb_peer_place *places,
                                 size_t count, const struct gb_error *error);

/* Status 0: the name has that revision. GPUBUF_E_STALE: another was published meanwhile, and stays.
   GPUBUF_E_UNAVAILABLE. */
typedef void (*gb_peer_published_cb)(void *user, int status, uint64_t revision,
                                     const struct gb_error *error);

/* A name that is published somewhere. Its strings are the directory's until its next event. */
struct gb_peer_listed {
    const char *name, *node; /* the node that published it */
    uint64_t revision, version, bytes, since_ms;
    size_t copies; /* elsewhere */
};

typedef void (*gb_peer_machine_cb)(void *user, const char *node, const char *host, uint16_t port);

/* Changes that a directory tells by itself: at any time except inside a call of the directory. */
struct gb_peer_directory_events {
    void *user;
    /* The name means `revision` now (0: nothing any more): a copy of another revision may be
       deleted. */
    void (*changed)(void *user, const char *name, uint64_t revision);
    /* The directory was lost, for the reason `why`, or is there again (NULL). `forgot`: that has
       withdrawn this machine's objects, which have to be published again. */
    void (*state)(void *user, const char *why, bool forgot);
};

struct gb_peer_directory;

struct gb_peer_directory_methods {
    /* False: out of memory, and `callback` is not called. */
    bool (*find)(struct gb_peer_directory *directory, const char *name, gb_peer_found_cb callback,
                 void *user);
    bool (*publish)(struct gb_peer_directory *directory, const struct gb_peer_published *object,
                    gb_peer_published_cb callback, void *user); /* as find */
    /* Does nothing if the name has another revision by now. There is no answer. */
    void (*withdraw)(struct gb_peer_directory *directory, const char *name, uint64_t revision);
    /* This machine's daemon has a copy of that revision as `version`, or no longer has it (version
       0). */
    void (*copied)(struct gb_peer_directory *directory, const char *name, uint64_t revision,
                   uint64_t version);
    /* This machine's word on that version of an object, which it has published: others can check
       copies by it when this machine does not answer. */
    void (*word)(struct gb_peer_directory *directory, const char *name, uint64_t version,
                 const struct gb_peer_word *word);
    /* Lists the next names, in order, that begin with the prefix and come after `after` (NULL:
       all). Returns how many; fewer than `most`: these are the last. GPUBUF_E_UNAVAILABLE. */
    int (*list)(struct gb_peer_directory *directory, const char *prefix, const char *after,
                struct gb_peer_listed *listed, size_t most, struct gb_error *error);
    /* Calls `each` for every machine that is there now, in no order. This machine may be among
       them. 0, or GPUBUF_E_UNAVAILABLE. */
    int (*machines)(struct gb_peer_directory *directory, gb_peer_machine_cb each, void *user,
                    struct gb_error *error);
    /* Whether a machine whose certificate has that name may connect to this one. */
    bool (*knows)(struct gb_peer_directory *directory, const char *node);
    /* Ends and frees it; handles of the loop are closed some turns later. */
    void (*close)(struct gb_peer_directory *directory);
};

/* Every directory's struct begins with this. */
struct gb_peer_directory {
    const struct gb_peer_directory_methods *methods;
    struct gb_peer_directory_events events; /* members may be NULL */
};

#endif
