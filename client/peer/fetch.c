#include "client/peer/fetch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/common/remake.h"
#include "client/gateway/say.h"
#include "client/peer/ahead.h"
#include "client/peer/granted.h"
#include "client/peer/transfer.h"

enum {
    ACTIVE_MOST = 32, /* fetches at a time; others wait their turn */
    WAITING_MOST = 4096,
    FAILED_MOST = 16, /* machines that one fetch leaves; then it gives up */
    ROUNDS_MOST = 32, /* times that the directory is asked */
    PAUSE_MS = 100,   /* before asking again, when it may not know yet that the object was
                         replaced */
    PAUSES_MOST = 5,  /* in a row, each longer by one, while all sources are busy with others */
};

struct fetch {
    struct gb_transfer transfer; /* must be first: on_moved casts it to the fetch */
    struct fetch *next;
    struct gb_fetches *fetches;
    uint64_t request; /* 0: nobody waits */
    bool active, ending, created, sealing, summing, over;
    unsigned paused;  /* pauses left to wait; `over`: the last one has ended */
    unsigned refused; /* times in a row that all sources were busy */
    unsigned pending; /* calls under way, chunks not counted: the fetch stays until they are
                         answered */
    unsigned opens;   /* of these, opens at places */
    unsigned rounds;
    char failed[FAILED_MOST][GB_NODE_BYTES]; /* machines that are no longer asked */
    unsigned failed_count;
    uint64_t revision;
    bool changed;   /* during the fetch the name began to mean `means` */
    uint64_t means; /* a revision, or 0 */
    char origin[GB_NODE_BYTES];
    struct gb_pool pool; /* of what was granted */
    char *text;          /* the first answer */
    struct gb_granted granted;
    struct gpubuf_object *object;
    struct gb_content content;
    struct gb_ahead *ahead;
    struct gb_error error; /* the last */
    char name[];
};

struct gb_fetches {
    struct gb_fetch_options options;
    struct fetch *first;
    unsigned active, count;
    bool starting; /* or stopped: no other is begun */
    uv_timer_t pause;
    struct gb_said said; /* of failures */
};

/* An open at a place. */
struct opening {
    struct fetch *fetch;
    struct gb_remote *remote;
};

static void go_on(struct fetch *fetch);
static void start_next(struct gb_fetches *fetches);

/* ---- the end of a fetch ---- */

static void free_fetch(struct fetch *fetch)
{
    struct gb_fetches *fetches = fetch->fetches;
    struct fetch **place = &fetches->first;

    while (*place != fetch)
        place = &(*place)->next;
    *place = fetch->next;
    fetches->count--;
    if (fetch->active)
        fetches->active--;
    gb_transfer_end(&fetch->transfer);
    gb_ahead_end(fetch->ahead);
    gb_content_end(&fetch->content);
    gpubuf_release(fetch->object);
    gb_pool_end(&fetch->pool);
    free(fetch->text);
    free(fetch);
}

/* Ends the fetch as soon as nothing is under way. True: it has been freed. */
static bool end(struct fetch *fetch)
{
    struct gb_fetches *fetches = fetch->fetches;

    fetch->ending = true;
    fetch->transfer.stopped = true;
    if (fetch->pending > 0 || fetch->transfer.in_flight > 0)
        return false;
    free_fetch(fetch);
    start_next(fetches);
    return true;
}

/* Logs a failure, but not each one: a program may ask for an absent name again and again. */
static void say_failed(const struct fetch *fetch, const char *sentence)
{
    struct gb_fetches *fetches = fetch->fetches;

    if (gb_say_another(&fetches->said, uv_now(fetches->options.loop), "could not be fetched"))
        gb_say("cannot fetch %s: %s", fetch->name, sentence);
}

static void give_up(struct fetch *fetch, const struct gb_error *error)
{
    const struct gb_fetch_options *options = &fetch->fetches->options;
    int status = error->code == GPUBUF_E_NOT_FOUND ? GPUBUF_E_NOT_FOUND : GB_UNAVAILABLE;

    if (!fetch->ending) {
        say_failed(fetch, error->message);
        gb_figures_fail(options->figures, status);
        if (fetch->request)
            options->decline(options->user, fetch->request, status, error->message);
        fetch->request = 0;
    }
    (void)end(fetch);
}

static void give_up_library(struct fetch *fetch, int status)
{
    const char *sentence = gpubuf_errmsg(fetch->fetches->options.client);
    struct gb_error error;

    (void)gb_fail(&error, status, "a copy could not be made here: %s",
                  sentence[0] ? sentence : gpubuf_strerror(status));
    error.code = GB_UNAVAILABLE;
    give_up(fetch, &error);
}

/* A call of the fetch has been answered. False: the fetch is ending, and may have been freed. */
static bool answered(struct fetch *fetch)
{
    fetch->pending--;
    if (!fetch->ending)
        return true;
    (void)end(fetch);
    return false;
}

static bool has_failed(const struct fetch *fetch, const char *node)
{
    for (unsigned i = 0; i < fetch->failed_count; i++)
        if (strcmp(fetch->failed[i], node) == 0)
            return true;
    return false;
}

static void leave_machine(struct fetch *fetch, const char *node, const struct gb_error *error)
{
    fetch->error = *error;
    if (!has_failed(fetch, node) && fetch->failed_count < FAILED_MOST)
        snprintf(fetch->failed[fetch->failed_count++], GB_NODE_BYTES, "%s", node);
}

/* ---- the seal ---- */

/* Deletes a copy of another revision. If `revision` is 0 and the machine that published the name is
   gone, the copy stays: it is only old. If that machine is there, it has withdrawn the name. */
static void drop_copy(struct gb_fetches *fetches, const char *name, uint64_t revision)
{
    struct gb_directory *directory = fetches->options.directory;
    const struct gb_copy *copy = gb_copies_find(fetches->options.copies, name);
    struct gb_writer writer;

    if (!copy || copy->revision == revision ||
        (!revision && !directory->methods->knows(directory, copy->origin)))
        return;
    gb_writer_init(&writer, 0);
    GB_WRITE_LITERAL(&writer, "{\"name\":");
    gb_write_cstring(&writer, name);
    gb_write_format(&writer, ",\"version\":%" PRIu64 "}", copy->version);
    gb_write_char(&writer, '\0');
    if (!writer.failed)
        (void)gpubuf_call_async(fetches->options.client, "delete", writer.data, NULL, NULL, NULL);
    gb_writer_end(&writer);
}

static void on_sealed(struct gpubuf_client *client, int status, struct gpubuf_object *object,
                      void *arg)
{
    struct fetch *fetch = arg;
    struct gb_fetches *fetches = fetch->fetches;
    struct gb_directory *directory = fetches->options.directory;

    (void)client;
    if (status == 0) {
        uint64_t version = gpubuf_object_version(object);
        fetches->options.figures->fetched++;
        fetches->options.figures->fetched_bytes += fetch->content.bytes;
        gb_say("fetched %s, revision %" PRIu64 " of %s, %" PRIu64 " bytes", fetch->name,
               fetch->revision, fetch->origin, fetch->content.bytes);
        if (gb_copies_add(fetches->options.copies, fetch->name, version, fetch->origin,
                          fetch->revision) &&
            directory->methods->copied)
            directory->methods->copied(directory, fetch->name, fetch->revision, version);
        if (fetch->changed)
            drop_copy(fetches, fetch->name, fetch->means);
        gpubuf_release(object);
    }
    if (!answered(fetch))
        return;
    if (status == 0 || status == GPUBUF_E_EXISTS) /* a program here has made it meanwhile */
        (void)end(fetch);
    else
        give_up_library(fetch, status);
}

static void seal(struct fetch *fetch)
{
    fetch->sealing = true;
    fetch->pending++;
    int r = gpubuf_seal_async(fetch->object, NULL, on_sealed, fetch, NULL);
    if (r < 0) {
        fetch->pending--;
        give_up_library(fetch, r);
    }
}

/* ---- the sum of the whole ---- */

struct summing {
    struct fetch *fetch;
    struct gb_sender *sender;
};

static void on_sum(void *user, int status, const char *result, size_t length,
                   const struct gb_error *error)
{
    struct summing summing = *(struct summing *)user;
    struct fetch *fetch = summing.fetch;
    struct gb_pool pool = {0};
    struct gb_error why;
    uint64_t sum = 0;

    free(user);
    fetch->summing = false;
    if (!answered(fetch))
        return;
    if (status == 0) {
        status = gb_granted_sum(result, length, &pool, &sum, &why);
        error = &why;
        gb_pool_end(&pool);
    }
    if (status < 0) {
        summing.sender->failed = true;
        fetch->transfer.error = *error;
        go_on(fetch);
    } else if (sum != gb_transfer_sum(&fetch->transfer)) {
        (void)gb_fail(&why, GB_UNAVAILABLE, "the content came with another checksum than %s has",
                      gb_remote_text(summing.sender->remote));
        give_up(fetch, &why);
    } else {
        seal(fetch);
    }
}

static void ask_sum(struct fetch *fetch, struct gb_sender *sender)
{
    struct summing *summing = malloc(sizeof(*summing));
    struct gb_error error;
    char text[64];
    int length =
        snprintf(text, sizeof(text), "{\"method\":\"sum\",\"lease\":%" PRIu64 "}", sender->lease);

    if (summing)
        *summing = (struct summing){fetch, sender};
    if (summing && gb_remote_ask(sender->remote, text, (size_t)length, on_sum, summing)) {
        fetch->summing = true;
        fetch->pending++;
        return;
    }
    free(summing);
    (void)gb_fail_memory(&error);
    give_up(fetch, &error);
}

/* ---- the bytes ---- */

static void find(struct fetch *fetch);

/* Takes the next step of the fetch, after any event. */
static void go_on(struct fetch *fetch)
{
    struct gb_transfer *transfer = &fetch->transfer;

    if (fetch->ending) {
        (void)end(fetch);
        return;
    }
    if (!fetch->created || fetch->sealing || fetch->summing)
        return;
    gb_transfer_pump(transfer);
    gb_ahead_move(fetch->ahead, transfer->chunks - transfer->left);
    for (unsigned i = 0; i < transfer->count; i++)
        if (transfer->senders[i].failed)
            leave_machine(fetch, gb_remote_node(transfer->senders[i].remote), &transfer->error);
    /* The origin is asked first: a machine with a copy could tell a sum that fits its own wrong
       bytes. */
    struct gb_sender *sender = gb_transfer_sender(transfer, fetch->origin);
    if (transfer->left == 0 && transfer->chunks == 0)
        seal(fetch);
    else if (transfer->left == 0 && sender)
        ask_sum(fetch, sender);
    else if (!sender && transfer->in_flight == 0 && fetch->opens == 0 && fetch->pending == 0)
        find(fetch); /* another machine may have it */
}

static void on_moved(struct gb_transfer *transfer)
{
    go_on((struct fetch *)transfer);
}

static void on_created(struct gpubuf_client *client, int status, struct gpubuf_object *object,
                       void *arg)
{
    struct fetch *fetch = arg;
    struct gb_error error;

    (void)client;
    fetch->object = object;
    if (!answered(fetch))
        return;
    if (status == GPUBUF_E_EXISTS) {
        (void)end(fetch);
        return;
    }
    if (status < 0) {
        give_up_library(fetch, status);
        return;
    }
    status = gb_content_for(&fetch->content, object, &fetch->granted.layout, &error);
    if (status == 0 && fetch->content.bytes != fetch->granted.content)
        status = gb_fail(&error, GB_UNAVAILABLE, "its layout has another length here");
    fetch->transfer.content = &fetch->content;
    if (status < 0) {
        give_up(fetch, &error);
        return;
    }
    fetch->created = true;
    fetch->ahead = gb_ahead_new(fetch->fetches->options.loop, object, &fetch->content);
    go_on(fetch);
}

static void create(struct fetch *fetch)
{
    const struct gb_fetch_options *options = &fetch->fetches->options;
    const struct gb_granted *granted = &fetch->granted;
    bool on_gpu = strcmp(granted->device.text, "gpu") == 0 && options->gpu;
    struct gpubuf_layout_spec spec;
    char mark[GB_NODE_BYTES + 64];
    struct gpubuf_create_options create = {
        .size = sizeof(create),
        .device = on_gpu ? options->gpu : "host",
        .mode = (unsigned)granted->mode,
        .ttl_ms = options->copy_ms,
        .evict = GPUBUF_EVICT_DROP,
        .wait_ms = options->wait_ms,
        .label = granted->label.text ? granted->label.text : mark,
    };

    snprintf(mark, sizeof(mark), "copy of %s, revision %" PRIu64, fetch->origin, fetch->revision);
    int r = gb_layout_spec(&granted->layout, &fetch->pool, &spec) ? 0 : GPUBUF_E_NO_MEMORY;
    fetch->pending++;
    if (r == 0)
        r = gpubuf_create_async(options->client, fetch->name, &spec, &create, on_created, fetch,
                                NULL);
    if (r < 0) {
        fetch->pending--;
        give_up_library(fetch, r);
    }
}

/* ---- opening at places ---- */

/* Takes the first answer, which describes the object. */
static int take_first(struct fetch *fetch, const char *text, size_t length, struct gb_error *error)
{
    uint64_t largest = fetch->fetches->options.largest;

    free(fetch->text);
    gb_pool_reset(&fetch->pool);
    fetch->text = malloc(length + 1);
    if (!fetch->text)
        return gb_fail_memory(error);
    memcpy(fetch->text, text, length + 1);
    int r = gb_granted_read(fetch->text, length, &fetch->pool, &fetch->granted, error);
    if (r == 0 && largest && fetch->granted.content > largest)
        r = gb_fail(error, GPUBUF_E_LIMIT,
                    "it has %" PRIu64 " bytes, and copies may have %" PRIu64 " (largest)",
                    fetch->granted.content, largest);
    if (r == 0) {
        fetch->content.bytes = fetch->granted.content; /* for the number of chunks */
        r = gb_transfer_init(&fetch->transfer, &fetch->content, on_moved, error);
        fetch->content.bytes = 0;
    }
    return r;
}

/* Checks that a further answer is of the same object. */
static int take_other(struct fetch *fetch, const char *text, size_t length, uint64_t *lease,
                      struct gb_error *error)
{
    const struct gb_granted *first = &fetch->granted;
    struct gb_granted other;
    struct gb_pool pool = {0};

    int r = gb_granted_read(text, length, &pool, &other, error);
    if (r == 0 && (other.content != first->content ||
                   gb_json_length(other.described) != gb_json_length(first->described) ||
                   memcmp(other.described.text, first->described.text,
                          gb_json_length(first->described)) != 0))
        r = gb_fail(error, GPUBUF_E_PROTOCOL, "it has another object of that name");
    *lease = r == 0 ? other.lease : 0;
    gb_pool_end(&pool);
    return r;
}

/* Gives back the lease of a useless answer: the other machine would keep it. */
static void give_back(struct gb_remote *remote, const char *text, size_t length)
{
    uint64_t lease = gb_granted_lease(text, length);

    if (lease)
        gb_remote_release(remote, lease);
}

static void on_opened(void *user, int status, const char *result, size_t length,
                      const struct gb_error *error)
{
    struct opening opening = *(struct opening *)user;
    struct fetch *fetch = opening.fetch;
    bool first = !fetch->transfer.states;
    struct gb_error why, named;
    uint64_t lease = 0;

    free(user);
    fetch->opens--;
    if (status == 0 && fetch->ending)
        give_back(opening.remote, result, length);
    if (!answered(fetch))
        return;
    if (status == 0) {
        status = first ? take_first(fetch, result, length, &why)
                       : take_other(fetch, result, length, &lease, &why);
        (void)gb_fail(&named, status, "%s: %s", gb_remote_text(opening.remote),
                      status < 0 ? why.message : "");
        error = &named;
        if (first)
            lease = fetch->granted.lease;
        if (status < 0)
            give_back(opening.remote, result, length);
    }
    if (status < 0) {
        if (status == GPUBUF_E_STALE || status == GPUBUF_E_BUSY)
            fetch->error = *error; /* the directory is asked again */
        else
            leave_machine(fetch, gb_remote_node(opening.remote), error);
        if (fetch->opens == 0 && !fetch->transfer.states)
            find(fetch);
        else
            go_on(fetch);
        return;
    }
    gb_transfer_add(&fetch->transfer, opening.remote, lease);
    if (first)
        create(fetch);
    else
        go_on(fetch);
}

static bool open_at(struct fetch *fetch, const struct gb_place *place)
{
    struct gb_remote *remote =
        gb_remotes_get(fetch->fetches->options.remotes, place->node, place->host, place->port);
    struct opening *opening = remote ? malloc(sizeof(*opening)) : NULL;
    struct gb_writer writer;
    bool asked = false;

    if (!opening)
        return false;
    *opening = (struct opening){fetch, remote};
    gb_writer_init(&writer, 0);
    GB_WRITE_LITERAL(&writer, "{\"method\":\"open\",\"name\":");
    gb_write_cstring(&writer, fetch->name);
    gb_write_format(&writer, ",\"version\":%" PRIu64 "}", place->version);
    if (!writer.failed)
        asked = gb_remote_ask(remote, writer.data, writer.length, on_opened, opening);
    gb_writer_end(&writer);
    if (!asked)
        free(opening);
    return asked;
}

/* ---- finding ---- */

static void on_found(void *user, int status, const struct gb_place *places, size_t count,
                     const struct gb_error *error)
{
    struct fetch *fetch = user;
    struct gb_error why;

    if (!answered(fetch))
        return;
    if (status < 0) {
        /* The failure of a machine says more than "no machine has it". */
        give_up(fetch, status == GPUBUF_E_NOT_FOUND && fetch->error.code ? &fetch->error : error);
        return;
    }
    bool same =
        fetch->revision == places[0].revision && strcmp(fetch->origin, places[0].origin) == 0;
    if (fetch->transfer.states && !same) {
        give_up(fetch, &fetch->error);
        return;
    }
    if (!same)
        fetch->failed_count = 0; /* a machine without the former revision may have this one */
    fetch->revision = places[0].revision;
    snprintf(fetch->origin, sizeof(fetch->origin), "%s", places[0].origin);
    for (size_t i = 0; i < count && fetch->opens < GB_SOURCES_MOST; i++) {
        if (has_failed(fetch, places[i].node) || !open_at(fetch, &places[i]))
            continue;
        fetch->opens++;
        fetch->pending++;
    }
    if (fetch->opens > 0)
        return;
    (void)gb_fail_memory(&why);
    give_up(fetch, fetch->error.code ? &fetch->error : &why);
}

static void ask_directory(struct fetch *fetch)
{
    struct gb_directory *directory = fetch->fetches->options.directory;
    struct gb_error error;

    fetch->pending++;
    if (directory->methods->find(directory, fetch->name, on_found, fetch))
        return;
    fetch->pending--;
    (void)gb_fail_memory(&error);
    give_up(fetch, &error);
}

static void on_pause_over(uv_timer_t *timer)
{
    struct gb_fetches *fetches = timer->data;
    struct fetch *fetch;
    bool more = false;

    for (fetch = fetches->first; fetch; fetch = fetch->next) {
        fetch->over = fetch->paused > 0 && (fetch->ending || --fetch->paused == 0);
        more = more || (fetch->paused > 0 && !fetch->over);
    }
    for (fetch = fetches->first; fetch;) {
        if (!fetch->over) {
            fetch = fetch->next;
            continue;
        }
        fetch->over = false;
        fetch->paused = 0;
        if (answered(fetch))
            ask_directory(fetch);
        fetch = fetches->first; /* it and others may have ended */
    }
    if (more)
        (void)uv_timer_start(timer, on_pause_over, PAUSE_MS, 0);
}

static void find(struct fetch *fetch)
{
    uv_timer_t *pause = &fetch->fetches->pause;

    bool busy = fetch->error.code == GPUBUF_E_BUSY; /* sources will have time, however long it
                                                       takes */

    if (!busy && fetch->rounds++ == ROUNDS_MOST) {
        give_up(fetch, &fetch->error);
        return;
    }
    if (!busy && fetch->error.code != GPUBUF_E_STALE) {
        ask_directory(fetch);
        return;
    }
    if (busy && fetch->refused == 0)
        gb_say("%s waits: %s", fetch->name, fetch->error.message);
    if (busy && fetch->refused < PAUSES_MOST)
        fetch->refused++;
    fetch->paused = busy ? fetch->refused : 1;
    fetch->pending++;
    if (!uv_is_active((uv_handle_t *)pause))
        (void)uv_timer_start(pause, on_pause_over, PAUSE_MS, 0);
}

/* ---- which are fetched ---- */

/* A fetch that cannot even begin ends in `find`, which calls this again: the outer call goes on. */
static void start_next(struct gb_fetches *fetches)
{
    struct fetch *fetch = fetches->first;

    if (fetches->starting)
        return;
    fetches->starting = true;
    while (fetch && fetches->active < ACTIVE_MOST) {
        if (fetch->active) {
            fetch = fetch->next;
            continue;
        }
        fetch->active = true;
        fetches->active++;
        find(fetch);
        fetch = fetches->first;
    }
    fetches->starting = false;
}

void gb_fetches_want(struct gb_fetches *fetches, const char *name, uint64_t request)
{
    struct fetch **place = &fetches->first, *fetch;

    for (; *place; place = &(*place)->next) {
        if (!(*place)->ending && strcmp((*place)->name, name) == 0) {
            (*place)->request = request;
            return;
        }
    }
    fetch = fetches->count < WAITING_MOST ? calloc(1, sizeof(*fetch) + strlen(name) + 1) : NULL;
    if (!fetch) {
        if (request)
            fetches->options.decline(fetches->options.user, request, GB_UNAVAILABLE,
                                     "too many names are being fetched");
        return;
    }
    fetch->fetches = fetches;
    fetch->request = request;
    strcpy(fetch->name, name);
    *place = fetch;
    fetches->count++;
    start_next(fetches);
}

void gb_fetches_leave(struct gb_fetches *fetches, uint64_t request)
{
    for (struct fetch *fetch = fetches->first; fetch; fetch = fetch->next) {
        if (fetch->request != request)
            continue;
        fetch->request = 0;
        (void)end(fetch);
        return;
    }
}

void gb_fetches_stop(struct gb_fetches *fetches)
{
    fetches->starting = true;
    for (struct fetch *fetch = fetches->first, *next; fetch; fetch = next) {
        next = fetch->next;
        (void)end(fetch);
    }
}

void gb_fetches_changed(struct gb_fetches *fetches, const char *name, uint64_t revision)
{
    for (struct fetch *fetch = fetches->first; fetch; fetch = fetch->next) {
        if (fetch->revision == 0 || strcmp(fetch->name, name) != 0)
            continue;
        fetch->changed = true;
        fetch->means = revision;
    }
    drop_copy(fetches, name, revision);
}

struct gb_fetches *gb_fetches_new(const struct gb_fetch_options *options)
{
    struct gb_fetches *fetches = calloc(1, sizeof(*fetches));

    if (!fetches)
        return NULL;
    fetches->options = *options;
    fetches->pause.data = fetches;
    (void)uv_timer_init(options->loop, &fetches->pause); /* cannot fail */
    return fetches;
}

static void on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

void gb_fetches_free(struct gb_fetches *fetches)
{
    if (!fetches)
        return;
    while (fetches->first)
        free_fetch(fetches->first);
    uv_close((uv_handle_t *)&fetches->pause, on_closed);
}
