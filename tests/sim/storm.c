/*
 * One hot name that all machines of a cluster open at the same moment: fetch.c, transfer.c,
 * granted.c, copies.c and view.c as they are, behind a network, an etcd, daemons and a clock of
 * this program's own. The linker takes these in place of libuv, libgpubuf and remote.c, so nothing
 * of the peer knows of it. A run depends on its options alone. Machines here tell the truth, so the
 * sums of words (digest.h) are zeros.
 *
 * The model: each machine sends and receives at a rate of its own, one chunk after the other; a
 * message takes `latency` one way; a link is made by two round trips more. etcd takes `writes` a
 * second, each machine's by itself, and tells `events` a second to all watches together. The rates
 * are those of three servers of two cores, 25000 events each, as one was measured by its JSON
 * gateway. It leaves out processors and the network's switches.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/common/remake.h"
#include "client/peer/content/content.h"
#include "client/peer/content/digest.h"
#include "client/peer/directory/view.h"
#include "client/peer/fetch/fetch.h"
#include "client/peer/options.h"
#include "client/peer/serve/crowd.h"
#include "proto/wire/log.h"
#include "tests/sim/events.h"
#include "tests/unit/random.h"

#define NAME "hot"
#define SECOND 1000000000.0
#define DAEMON_NS 50000 /* an answer of the daemon */
#define ZEROS "AAAAAAAAAAAAAAAAAAAAAA=="
#define WORD "{\"described\":\"" ZEROS "\",\"content\":\"" ZEROS "\"}"
#define OWNERS_WORD UINT64_MAX /* in place of a machine, in what etcd tells */

static struct {
    unsigned machines, connections, deaths;
    uint64_t bytes, seed;
    double rate;              /* bytes a second */
    double writes, events;    /* what etcd can do in a second */
    double latency, until_ns; /* of a message, one way; the time before which machines die */
    bool unbounded;           /* without the bounds of crowd.h */
} options = {
    .machines = 1000,
    .connections = 1024,
    .bytes = UINT64_C(1) << 30,
    .seed = 1,
    .rate = 25e9 / 8,
    .writes = 4000,
    .events = 75000,
    .latency = 50000,
    .until_ns = 10 * SECOND,
};

static struct test_random chance;

/* ---- libuv's timers ---- */

struct timer {
    uv_timer_t *handle;
    uv_timer_cb callback;
};

int uv_timer_init(uv_loop_t *loop, uv_timer_t *timer)
{
    timer->loop = loop;
    timer->flags = 0;
    return 0;
}

static void on_timer(void *user, uint64_t number)
{
    struct timer timer = *(struct timer *)user;

    free(user);
    timer.handle->flags = 0;
    timer.callback(timer.handle);
}

int uv_timer_start(uv_timer_t *handle, uv_timer_cb callback, uint64_t timeout, uint64_t repeat)
{
    struct timer *timer = malloc(sizeof(*timer));

    if (!timer)
        abort();
    *timer = (struct timer){handle, callback};
    handle->flags = 1;
    at(now + timeout * 1000000, on_timer, timer, 0);
    return 0;
}

uint64_t uv_now(const uv_loop_t *loop)
{
    return (uint64_t)(now / 1000000);
}

int uv_is_active(const uv_handle_t *handle)
{
    return handle->flags != 0;
}

void uv_close(uv_handle_t *handle, uv_close_cb callback)
{
    if (callback)
        callback(handle);
}

/* ---- machines ---- */

struct gpubuf_object {
    struct gpubuf_client *machine;
};

/* A machine: its daemon, its peer, and its place in the network. */
struct gpubuf_client {
    /* Must be first: a pointer to the machine is one to its directory. */
    struct gb_peer_directory directory;
    char node[GB_PEER_NODE_BYTES];
    struct gb_peer_view view;
    struct gb_peer_figures figures;
    struct gb_peer_copies copies;
    struct gb_peer_remotes *remotes;
    struct gb_peer_parts parts;
    struct gb_peer_fetches *fetches;
    struct gpubuf_object object;
    bool dead, has;                  /* it has ended; it has the object */
    double sends_until, takes_until; /* until when it is busy sending and receiving */
    unsigned leases, leases_most, connections, depth, failures;
    uint64_t sent, starts;
    double done; /* when it had the object; 0: not yet */
};

struct gb_peer_remote {
    struct gpubuf_client *from, *to;
    uint64_t epoch;
    unsigned leases;
    char text[GB_PEER_NODE_BYTES + 16];
};

struct gb_peer_remotes {
    struct gpubuf_client *machine;
    struct gb_peer_remote **all; /* its links, by the number of the other machine */
};

static struct gpubuf_client *machines;
/* ---- etcd ---- */

static double etcd_writes_until, etcd_tells_until;
static uint64_t etcd_writes, etcd_events;

static void take(struct gpubuf_client *machine, const char *key, const char *value,
                 uint64_t revision)
{
    struct gb_peer_view_key told = {.key = key, .value = value, .revision = revision, .lease = 1};
    struct gb_peer_entry *changed = NULL;

    told.value_length = value ? strlen(value) : 0;
    if (gb_peer_view_apply(&machine->view, &told, &changed) < 0)
        abort();
    if (changed)
        gb_peer_view_tidy(&machine->view, changed);
}

/* Tells a machine of a change of the directory: that another machine has a copy, or that it died,
   or the owner's word. `number` has which. */
static void on_watch(void *user, uint64_t number)
{
    const struct gpubuf_client *about = &machines[number >> 1];
    char key[2 * GB_PEER_NODE_BYTES];

    if (number == OWNERS_WORD) {
        take(user, "words/" NAME "@1", WORD, 2);
        return;
    }
    snprintf(key, sizeof(key), "copies/" NAME "@1/%s", about->node);
    take(user, key, number & 1 ? NULL : "{\"version\":1,\"since\":1767225600000}", 2);
    if (number & 1) {
        snprintf(key, sizeof(key), "nodes/%s", about->node);
        take(user, key, NULL, 2);
    }
}

static void on_written(void *user, uint64_t number)
{
    for (unsigned i = 0; i < options.machines; i++) {
        if (machines[i].dead)
            continue;
        etcd_tells_until = (etcd_tells_until > (double)now ? etcd_tells_until : (double)now) +
                           SECOND / options.events;
        etcd_events++;
        at((uint64_t)(etcd_tells_until + options.latency), on_watch, &machines[i], number);
    }
}

static void etcd_write(uint64_t number)
{
    double start = (double)now + options.latency;

    etcd_writes_until =
        (etcd_writes_until > start ? etcd_writes_until : start) + SECOND / options.writes;
    etcd_writes++;
    at((uint64_t)etcd_writes_until, on_written, NULL, number);
}

/* ---- the directory, as directory_etcd.c answers ---- */

struct finding {
    struct gpubuf_client *machine;
    gb_peer_found_cb callback;
    void *user;
};

static void on_find(void *user, uint64_t number)
{
    struct finding finding = *(struct finding *)user;
    struct gb_peer_place places[GB_PEER_PLACES_MOST];
    struct gb_peer_entry *entry = gb_peer_view_entry(&finding.machine->view, NAME, false);
    size_t count = entry && entry->revision
                       ? gb_peer_view_places(entry, finding.machine->node,
                                             gb_peer_view_start(&finding.machine->starts), places,
                                             GB_PEER_PLACES_MOST)
                       : 0;
    struct gb_error error;

    free(user);
    if (!count)
        (void)gb_fail(&error, GPUBUF_E_UNAVAILABLE, "nobody has it");
    finding.callback(finding.user, count ? 0 : GPUBUF_E_UNAVAILABLE, count ? places : NULL, count,
                     count ? NULL : &error);
}

static bool directory_find(struct gb_peer_directory *directory, const char *name,
                           gb_peer_found_cb callback, void *user)
{
    struct finding *finding = malloc(sizeof(*finding));

    if (!finding)
        abort();
    *finding = (struct finding){(struct gpubuf_client *)directory, callback, user};
    at(now, on_find, finding, 0);
    return true;
}

static void directory_copied(struct gb_peer_directory *directory, const char *name,
                             uint64_t revision, uint64_t version)
{
    struct gpubuf_client *machine = (struct gpubuf_client *)directory;

    machine->has = version != 0;
    machine->done = (double)now;
    etcd_write((uint64_t)(machine - machines) << 1);
}

static bool directory_knows(struct gb_peer_directory *directory, const char *node)
{
    return gb_peer_view_node(&((struct gpubuf_client *)directory)->view, node);
}

/* ---- the network, in place of remote.c ---- */

struct message {
    struct gb_peer_remote *remote;
    gb_peer_answered_cb answered;
    gb_peer_chunk_cb read;
    void *user;
    uint64_t chunk, bytes;
    char kind;
    bool full; /* the other machine serves as many as it may */
    int status;
};

static void on_answer(void *user, uint64_t number)
{
    struct message message = *(struct message *)user;
    struct gb_error error;
    char text[256];
    int length = 0;

    free(user);
    if (message.remote->from->dead)
        message.status = GPUBUF_E_CLOSED; /* so that whatever waits for the message is freed */
    if (message.status < 0)
        (void)gb_fail(&error, message.status, "%s: busy, or dead", message.remote->text);
    if (message.read) {
        message.read(message.user, message.status, message.chunk, &error);
        return;
    }
    if (message.kind == 'w')
        length = snprintf(text, sizeof(text), WORD);
    else
        length =
            snprintf(text, sizeof(text),
                     "{\"lease\":1,\"content\":%" PRIu64 ",\"mode\":420,\"device\":\"host\","
                     "\"layout\":{\"kind\":\"array\",\"dtype\":\"uint8\",\"shape\":[%" PRIu64 "]}}",
                     options.bytes, options.bytes);
    message.answered(message.user, message.status, text, (size_t)length, &error);
}

/* Does what session.c does on the other machine when an object is opened. */
static int serve_open(struct gb_peer_remote *remote)
{
    struct gpubuf_client *to = remote->to;

    if (!to->has)
        return GPUBUF_E_NOT_FOUND;
    if (!options.unbounded && !gb_peer_crowd_takes(to->leases, options.bytes))
        return GPUBUF_E_BUSY;
    if (to == &machines[0] && to->leases_most == 0)
        etcd_write(OWNERS_WORD);
    remote->leases++;
    if (++to->leases > to->leases_most)
        to->leases_most = to->leases;
    return 0;
}

static void on_asked(void *user, uint64_t number)
{
    struct message *message = user;
    struct gb_peer_remote *remote = message->remote;
    struct gpubuf_client *from = remote->from, *to = remote->to;
    double start = (double)now;

    if (to->dead || from->dead || (remote->epoch == 0 && !message->full)) {
        message->status = GPUBUF_E_CLOSED;
        remote->epoch = 0;
    } else if (message->full) {
        message->status = GPUBUF_E_BUSY;
    } else if (message->kind == 'o') {
        message->status = serve_open(remote);
        start += DAEMON_NS;
    } else if (message->read) {
        double each = (double)message->bytes * SECOND / options.rate;
        start = (to->sends_until > start ? to->sends_until : start) + each;
        to->sends_until = start;
        to->sent += message->bytes;
        if (from->takes_until + each > start)
            start = from->takes_until + each;
        from->takes_until = start;
        if (from->depth <= to->depth)
            from->depth = to->depth + 1;
    }
    at((uint64_t)(start + options.latency), on_answer, message, 0);
}

static void post(struct gb_peer_remote *remote, const struct message *values)
{
    struct message *message = malloc(sizeof(*message));
    double when = (double)now + options.latency;

    if (!message)
        abort();
    *message = *values;
    message->full = remote->epoch == 0 && remote->to->connections >= options.connections;
    if (remote->epoch == 0 && !remote->to->dead)
        when += 4 * options.latency; /* the round trips of TCP and of TLS */
    if (remote->epoch == 0 && !remote->to->dead && !message->full) {
        remote->to->connections++;
        remote->epoch = 1;
    }
    at((uint64_t)when, on_asked, message, 0);
}

bool gb_peer_remote_ask(struct gb_peer_remote *remote, const char *text, size_t length,
                        gb_peer_answered_cb callback, void *user)
{
    bool word = memmem(text, length, "\"word\"", 6) != NULL;

    post(remote,
         &(struct message){
             .remote = remote, .answered = callback, .user = user, .kind = word ? 'w' : 'o'});
    return true;
}

bool gb_peer_remote_read(struct gb_peer_remote *remote, uint64_t lease, uint64_t chunk,
                         void *memory, uint64_t bytes, gb_peer_land_cb land,
                         gb_peer_chunk_cb callback, void *user)
{
    post(remote, &(struct message){.remote = remote,
                                   .read = callback,
                                   .user = user,
                                   .chunk = chunk,
                                   .bytes = bytes,
                                   .kind = 'r'});
    return true;
}

void gb_peer_remote_release(struct gb_peer_remote *remote, uint64_t lease)
{
    if (remote->leases > 0) {
        remote->leases--;
        remote->to->leases--;
    }
}

struct gb_peer_remote *gb_peer_remotes_get(struct gb_peer_remotes *remotes, const char *node,
                                           const char *host, uint16_t port)
{
    unsigned long number = strtoul(node + 1, NULL, 10);
    struct gb_peer_remote *remote = remotes->all[number];

    if (remote)
        return remote;
    remotes->all[number] = remote = calloc(1, sizeof(*remote));
    if (!remote)
        abort();
    remote->from = remotes->machine;
    remote->to = &machines[number];
    snprintf(remote->text, sizeof(remote->text), "%s", node);
    return remote;
}

void gb_peer_remote_hold(struct gb_peer_remote *remote)
{
}

void gb_peer_remote_drop(struct gb_peer_remote *remote)
{
}

uint64_t gb_peer_remote_epoch(const struct gb_peer_remote *remote)
{
    return remote->epoch;
}
const char *gb_peer_remote_text(const struct gb_peer_remote *remote)
{
    return remote->text;
}
const char *gb_peer_remote_node(const struct gb_peer_remote *remote)
{
    return remote->to->node;
}

/* ---- the daemon, in place of libgpubuf, content.c and remake.c ---- */

struct daemon_call {
    gpubuf_object_cb callback;
    struct gpubuf_client *machine;
    void *arg;
};

static void on_daemon(void *user, uint64_t number)
{
    struct daemon_call call = *(struct daemon_call *)user;

    free(user);
    call.callback(call.machine, call.machine->dead ? GPUBUF_E_CLOSED : 0, &call.machine->object,
                  call.arg);
}

static int ask_daemon(struct gpubuf_client *machine, gpubuf_object_cb callback, void *arg)
{
    struct daemon_call *call = malloc(sizeof(*call));

    if (!call)
        abort();
    *call = (struct daemon_call){callback, machine, arg};
    at(now + DAEMON_NS, on_daemon, call, 0);
    return 0;
}

int gpubuf_create_async(struct gpubuf_client *client, const char *name,
                        const struct gpubuf_layout_spec *layout,
                        const struct gpubuf_create_options *create, gpubuf_object_cb callback,
                        void *arg, uint64_t *request)
{
    return ask_daemon(client, callback, arg);
}

int gpubuf_seal_async(struct gpubuf_object *object, const int64_t *null_counts,
                      gpubuf_object_cb callback, void *arg, uint64_t *request)
{
    return ask_daemon(object->machine, callback, arg);
}

int gpubuf_call_async(struct gpubuf_client *client, const char *method, const char *params,
                      gpubuf_call_cb callback, void *arg, uint64_t *request)
{
    (void)client, (void)method, (void)params, (void)callback, (void)arg, (void)request;
    return 0;
}

uint64_t gpubuf_object_version(const struct gpubuf_object *object)
{
    return 1;
}
void gpubuf_release(struct gpubuf_object *object)
{
}
const char *gpubuf_errmsg(const struct gpubuf_client *client)
{
    return "";
}
const char *gpubuf_strerror(int code)
{
    return gb_error_text(code);
}

bool gb_layout_spec(const struct gb_layout *layout, struct gb_pool *pool,
                    struct gpubuf_layout_spec *spec)
{
    *spec = (struct gpubuf_layout_spec){0};
    return true;
}

int gb_peer_content_for(struct gb_peer_content *content, struct gpubuf_object *object,
                        const struct gb_layout *layout, struct gb_error *error)
{
    content->bytes = options.bytes;
    return 0;
}
void gb_peer_content_end(struct gb_peer_content *content)
{
}
bool gb_peer_content_bytes(const struct gb_layout *layout, uint64_t *bytes)
{
    *bytes = options.bytes;
    return true;
}
void *gb_peer_content_direct(const struct gb_peer_content *content, uint64_t chunk)
{
    static char memory[1]; /* never written to: no bytes are sent in this model */

    return memory;
}
int gb_peer_content_write(const struct gb_peer_content *content, uint64_t chunk, const void *buffer,
                          struct gb_error *error)
{
    return 0;
}
int gb_peer_content_stage(const struct gb_peer_content *content, uint64_t chunk,
                          struct gb_staging **block, struct gb_error *error)
{
    return gb_fail_memory(error);
}
void *gb_staging_memory(struct gb_staging *block)
{
    return block;
}
void gb_staging_release(struct gb_staging *block)
{
}
uint64_t gb_peer_content_sum(const void *bytes, size_t length)
{
    const unsigned char *byte = bytes;
    uint64_t sum = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < length; i++)
        sum = (sum ^ byte[i]) * UINT64_C(0x100000001b3);
    return sum;
}

/* ---- digest.c ---- */

struct gb_peer_digest {
    const struct gb_peer_content *content;
    void (*moved)(void *user);
    void *user;
    uint64_t there;
};

struct gb_peer_digest *gb_peer_digest_new(uv_loop_t *loop, const struct gb_peer_content *content,
                                          void (*moved)(void *user), void *user)
{
    struct gb_peer_digest *digest = malloc(sizeof(*digest));

    if (!digest)
        abort();
    *digest = (struct gb_peer_digest){content, moved, user, 0};
    return digest;
}
void gb_peer_digest_move(struct gb_peer_digest *digest, uint64_t chunks)
{
    digest->there = chunks;
}
int gb_peer_digest_sum(const struct gb_peer_digest *digest, unsigned char sum[GB_PEER_WORD_BYTES],
                       struct gb_error *error)
{
    memset(sum, 0, GB_PEER_WORD_BYTES);
    return digest->there == gb_peer_content_chunks(digest->content->bytes);
}
void gb_peer_digest_end(struct gb_peer_digest *digest)
{
    free(digest);
}
bool gb_peer_word_describe(struct gb_peer_word *word, const char *layout, size_t length,
                           uint64_t mode, uint64_t bytes, const char *label)
{
    (void)layout, (void)length, (void)mode, (void)bytes, (void)label;
    memset(word->described, 0, GB_PEER_WORD_BYTES);
    return true;
}

/* ---- the storm ---- */

static void on_want(void *user, uint64_t number)
{
    struct gpubuf_client *machine = user;

    if (!machine->dead && !machine->has)
        gb_peer_fetches_want(machine->fetches, NAME, number, 0);
}

int gpubuf_decline(struct gpubuf_client *machine, uint64_t request, int error, const char *message)
{
    machine->failures++;
    return 0;
}

static void on_lease_over(void *user, uint64_t number)
{
    etcd_write(number << 1 | 1);
}

/* A machine dies: links to it fail when they are used, and its lease in etcd ends ten seconds
   later. */
static void on_death(void *user, uint64_t number)
{
    struct gpubuf_client *machine = user;

    machine->dead = true;
    gb_peer_fetches_stop(machine->fetches);
    for (unsigned i = 0; i < options.machines; i++) {
        struct gb_peer_remote *remote = machine->remotes->all[i];
        for (; remote && remote->leases > 0;)
            gb_peer_remote_release(remote, 1);
        remote = machines[i].remotes->all[machine - machines];
        if (remote)
            remote->epoch = 0;
    }
    at(now + (uint64_t)(10 * SECOND), on_lease_over, NULL, (uint64_t)(machine - machines));
}

static void begin_machine(struct gpubuf_client *machine, unsigned number)
{
    static const struct gb_peer_directory_methods methods = {
        .find = directory_find, .copied = directory_copied, .knows = directory_knows};
    static const struct gb_peer_options all_unset;

    machine->directory.methods = &methods;
    machine->object.machine = machine;
    machine->starts = test_random_next(&chance);
    snprintf(machine->node, sizeof(machine->node), "m%u", number);
    machine->remotes = calloc(1, sizeof(*machine->remotes));
    if (!machine->remotes)
        abort();
    machine->remotes->machine = machine;
    machine->remotes->all = calloc(options.machines, sizeof(struct gb_peer_remote *));
    machine->parts = (struct gb_peer_parts){
        .options = &all_unset,
        .client = machine,
        .remotes = machine->remotes,
        .directory = &machine->directory,
        .copies = &machine->copies,
        .figures = &machine->figures,
    };
    machine->fetches = gb_peer_fetches_new(&machine->parts);
    if (!machine->remotes->all || !machine->fetches)
        abort();
}

static void begin_all(void)
{
    char key[GB_PEER_NODE_BYTES + 16], value[128];

    machines = calloc(options.machines, sizeof(*machines));
    if (!machines)
        abort();
    for (unsigned i = 0; i < options.machines; i++)
        begin_machine(&machines[i], i);
    for (unsigned i = 0; i < options.machines; i++) {
        for (unsigned j = 0; j < options.machines; j++) {
            snprintf(key, sizeof(key), "nodes/m%u", j);
            snprintf(value, sizeof(value), "{\"host\":\"10.0.0.1\",\"port\":9470}");
            take(&machines[i], key, value, 1);
        }
        snprintf(value, sizeof(value),
                 "{\"node\":\"m0\",\"version\":1,\"bytes\":%" PRIu64
                 ",\"serial\":1,\"since\":1767225600000}",
                 options.bytes);
        take(&machines[i], "names/" NAME, value, 1);
        at(test_random_below(&chance, 1000000), on_want, &machines[i], 1);
    }
    machines[0].has = true;
    for (unsigned i = 0; i < options.deaths; i++)
        at(test_random_below(&chance, 1000) * (uint64_t)(options.until_ns / 1000), on_death,
           &machines[1 + test_random_below(&chance, options.machines - 1)], 0);
}

static void end_all(void)
{
    for (unsigned i = 0; i < options.machines; i++) {
        struct gpubuf_client *machine = &machines[i];
        gb_peer_fetches_free(machine->fetches);
        gb_peer_view_end(&machine->view);
        gb_peer_copies_end(&machine->copies);
    }
    for (unsigned i = 0; i < options.machines; i++) {
        struct gpubuf_client *machine = &machines[i];
        for (unsigned j = 0; j < options.machines; j++)
            free(machine->remotes->all[j]);
        free(machine->remotes->all);
        free(machine->remotes);
    }
    free(machines);
    free(heap);
}

/* Prints the results as one line of JSON. Times are those of the model's clock. */
static void tell(void)
{
    unsigned done = 0, dead = 0, failed = 0, depth = 0, leases = 0;
    double last = 0;

    for (unsigned i = 1; i < options.machines; i++) {
        const struct gpubuf_client *machine = &machines[i];
        dead += machine->dead;
        failed += machine->failures > 0;
        if (machine->dead || machine->done == 0)
            continue;
        done++;
        last = machine->done > last ? machine->done : last;
        depth = machine->depth > depth ? machine->depth : depth;
        leases = machine->leases_most > leases ? machine->leases_most : leases;
    }
    printf("{\"done\":%u,\"failed\":%u,\"dead\":%u,\"all_s\":%.3f,\"owner_sent\":%.2f,"
           "\"owner_readers\":%u,\"other_readers\":%u,\"depth\":%u,\"etcd_writes\":%" PRIu64
           ",\"etcd_events\":%" PRIu64 "}\n",
           done, failed, dead, last / SECOND, (double)machines[0].sent / (double)options.bytes,
           machines[0].leases_most, leases, depth, etcd_writes, etcd_events);
}

static void read_options(int argc, char **argv)
{
    static const char usage[] =
        "usage: storm [-m MACHINES] [-b BYTES] [-c CONNECTIONS] [-d DEATHS] [-s SEED] [-u]\n"
        "-d  so many machines die in the first ten seconds\n"
        "-u  a machine serves all who ask at the same time\n";

    for (int c; (c = getopt(argc, argv, "m:b:c:d:s:u")) != -1;) {
        double value = optarg ? strtod(optarg, NULL) : 1;
        if (c == '?' || value < 0) {
            fputs(usage, stderr);
            exit(2);
        }
        switch (c) {
        case 'm':
            options.machines = (unsigned)value;
            break;
        case 'b':
            options.bytes = (uint64_t)value;
            break;
        case 'c':
            options.connections = (unsigned)value;
            break;
        case 'd':
            options.deaths = (unsigned)value;
            break;
        case 's':
            options.seed = (uint64_t)value;
            break;
        default:
            options.unbounded = true;
        }
    }
    if (options.machines < 2 || !options.bytes) {
        fputs(usage, stderr);
        exit(2);
    }
}

int main(int argc, char **argv)
{
    read_options(argc, argv);
    gb_log_setup((enum gb_log_level)(GB_LOG_ERROR + 1), false);
    chance.state = options.seed;
    begin_all();
    while (heap_count > 0) {
        struct event event = earliest();
        now = event.at;
        event.run(event.user, event.number);
    }
    tell();
    end_all();
    return 0;
}
