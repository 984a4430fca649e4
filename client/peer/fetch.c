#include "client/peer/fetch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/common/remake.h"
#include "client/gateway/say.h"
#include "client/peer/ahead.h"
#include "client/peer/digest.h"
#include "client/peer/granted.h"
#include "client/peer/seldom.h"
#include "client/peer/transfer.h"

enum {
    ACTIVE_MOST = 64, /* fetches at a time; others wait their turn */
    WAITING_MOST = 4096,
    FAILED_MOST = 16, /* machines that one fetch leaves; then it gives up */
    ROUNDS_MOST = 32, /* times that the directory is asked */
    PAUSE_MS = 100,   /* before asking again, when it may not know yet that the object was
                         replaced */
    PAUSES_MOST = 5,  /* in a row, each longer by one, while all sources are busy with others */
    REFUSED_MS = 5000 /* for connections that are refused, as while a peer is restarted */
};

/* The step that a fetch is at. It ends when nothing is under way; till then it may be ENDING. */
enum step { QUEUED, OPENING, CREATING, MOVING, SUMMING, SEALING, ENDING };

/* A machine that is no longer asked. */
struct failed {
    char node[GB_NODE_BYTES];
    bool refused; /* the connection: it may be asked again later */
};

/* A user for whom something was fetched, until the peer ends. */
struct owner {
    struct owner *next;
    uint64_t uid;
    unsigned active; /* fetches under way */
};

struct fetch {
    struct gb_transfer transfer; /* must be first: on_moved casts it to the fetch */
    struct fetch *next;
    struct gb_fetches *fetches;
    struct owner *owner;
    uint64_t request; /* 0: nobody waits */
    enum step step;
    bool active;      /* counts as one of those under way */
    unsigned paused;  /* pauses left to wait */
    bool over;        /* the last one has ended */
    unsigned busy;    /* times in a row that all sources were busy */
    uint64_t until;   /* for connections that are refused, by the loop's clock; 0: none was */
    unsigned pending; /* calls under way, chunks not counted: the fetch stays until they are
                         answered */
    unsigned opens;   /* of these, opens at places */
    unsigned rounds;
    struct failed failed[FAILED_MOST];
    unsigned failed_count;
    uint64_t revision;
    bool changed;   /* during the fetch the name began to mean `means` */
    uint64_t means; /* a revision, or 0 */
    char origin[GB_NODE_BYTES];
    struct gb_word word;     /* the origin's, of that revision */
    struct gb_place *places; /* to be opened when the word is here; NULL: it is not asked for */
    size_t place_count;
    struct gb_digest *digest; /* of the content; NULL: it was not begun */
    bool mixed;               /* something came from another machine than the origin */
    struct gb_pool pool;      /* of what was granted */
    char *text;               /* the first answer */
    struct gb_granted granted;
    struct gb_word first; /* `described`: of the first answer */
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
    struct owner *owners;
    struct gb_said said; /* of failures */
    struct gb_said said_busy;
};

/* An open at a place, or a question for the origin's word. */
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
    fetches->active -= fetch->active;
    fetch->owner->active -= fetch->active;
    gb_transfer_end(&fetch->transfer);
    gb_ahead_end(fetch->ahead);
    gb_digest_end(fetch->digest);
    gb_content_end(&fetch->content);
    gpubuf_release(fetch->object);
    gb_pool_end(&fetch->pool);
    free(fetch->places);
    free(fetch->text);
    free(fetch);
}

/* Ends the fetch as soon as nothing is under way. True: it has been freed. */
static bool end(struct fetch *fetch)
{
    struct gb_fetches *fetches = fetch->fetches;

    fetch->step = ENDING;
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

    if (fetch->step != ENDING) {
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
    if (fetch->step != ENDING)
        return true;
    (void)end(fetch);
    return false;
}

static bool has_failed(const struct fetch *fetch, const char *node)
{
    for (unsigned i = 0; i < fetch->failed_count; i++)
        if (strcmp(fetch->failed[i].node, node) == 0)
            return true;
    return false;
}

static void leave_machine(struct fetch *fetch, const char *node, const struct gb_error *error)
{
    struct failed *failed = &fetch->failed[fetch->failed_count];

    fetch->error = *error;
    if (has_failed(fetch, node) || fetch->failed_count == FAILED_MOST)
        return;
    fetch->failed_count++;
    snprintf(failed->node, sizeof(failed->node), "%s", node);
    failed->refused = error->code == GPUBUF_E_CLOSED;
}

/* True: there is time left in which machines that refused the connection may be asked again. */
static bool may_retry(struct fetch *fetch)
{
    uint64_t now = uv_now(fetch->fetches->options.loop);
    unsigned kept = 0;

    if (fetch->error.code != GPUBUF_E_CLOSED)
        return false;
    if (fetch->until == 0)
        fetch->until = now + REFUSED_MS;
    for (unsigned i = 0; i < fetch->failed_count; i++)
        if (!fetch->failed[i].refused)
            fetch->failed[kept++] = fetch->failed[i];
    fetch->failed_count = kept;
    return now < fetch->until;
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
    fetch->step = SEALING;
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
    if (!answered(fetch))
        return;
    fetch->step = MOVING;
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
        fetch->step = SUMMING;
        fetch->pending++;
        return;
    }
    free(summing);
    (void)gb_fail_memory(&error);
    give_up(fetch, &error);
}

/* ---- the bytes ---- */

static void find(struct fetch *fetch);

static bool is_origin(const struct fetch *fetch, const struct gb_remote *remote)
{
    return strcmp(gb_remote_node(remote), fetch->origin) == 0;
}

static void on_digest(void *user)
{
    go_on(user);
}

/* Takes the sum of what has come, if it is to be compared with the origin's word. False: the fetch
   has been given up. */
static bool move_digest(struct fetch *fetch)
{
    struct gb_error error;

    if (!fetch->mixed)
        return true;
    if (!fetch->digest)
        fetch->digest =
            gb_digest_new(fetch->fetches->options.loop, &fetch->content, on_digest, fetch);
    if (fetch->digest) {
        gb_digest_move(fetch->digest, gb_transfer_came(&fetch->transfer));
        return true;
    }
    (void)gb_fail_memory(&error);
    give_up(fetch, &error);
    return false;
}

/* The content is not what the origin has published: leaves all other machines, and begins again. */
static void distrust(struct fetch *fetch)
{
    struct gb_transfer *transfer = &fetch->transfer;
    struct gb_error error;

    gb_digest_end(fetch->digest);
    fetch->digest = NULL;
    fetch->mixed = false;
    for (unsigned i = 0; i < transfer->count; i++) {
        struct gb_remote *remote = transfer->senders[i].remote;
        if (is_origin(fetch, remote))
            continue;
        (void)gb_fail(&error, GPUBUF_E_PROTOCOL, "%s: it sent other content than %s has published",
                      gb_remote_text(remote), fetch->origin);
        gb_say_seldom(uv_now(fetch->fetches->options.loop), gb_remote_node(remote), "distrusted",
                      "%s", error.message);
        transfer->senders[i].failed = true;
        transfer->error = error;
        leave_machine(fetch, gb_remote_node(remote), &error);
    }
    gb_transfer_restart(transfer);
    go_on(fetch);
}

/* All chunks are here. */
static void check(struct fetch *fetch, struct gb_sender *sender)
{
    unsigned char sum[GB_WORD_BYTES];
    struct gb_error error;

    if (fetch->transfer.chunks == 0) {
        seal(fetch);
    } else if (!fetch->mixed && sender && is_origin(fetch, sender->remote)) {
        ask_sum(fetch, sender);
    } else if (!fetch->mixed && fetch->word.told) { /* the origin has gone since */
        fetch->mixed = true;
        (void)move_digest(fetch);
    } else if (!fetch->mixed) {
        if (fetch->pending == 0)
            find(fetch);
    } else {
        int r = gb_digest_sum(fetch->digest, sum, &error);
        if (r < 0)
            give_up(fetch, &error);
        else if (r > 0 && memcmp(sum, fetch->word.content, sizeof(sum)) == 0)
            seal(fetch);
        else if (r > 0)
            distrust(fetch);
    }
}

/* Takes the next step of the fetch, after any event. */
static void go_on(struct fetch *fetch)
{
    struct gb_transfer *transfer = &fetch->transfer;

    if (fetch->step == ENDING) {
        (void)end(fetch);
        return;
    }
    if (fetch->step != MOVING)
        return;
    gb_transfer_pump(transfer);
    gb_ahead_move(fetch->ahead, transfer->chunks - transfer->left);
    if (!move_digest(fetch))
        return;
    for (unsigned i = 0; i < transfer->count; i++)
        if (transfer->senders[i].failed)
            leave_machine(fetch, gb_remote_node(transfer->senders[i].remote), &transfer->error);
    struct gb_sender *sender = gb_transfer_sender(transfer, fetch->origin);
    bool idle = transfer->in_flight == 0 && fetch->opens == 0 && fetch->pending == 0;
    if (transfer->left == 0)
        check(fetch, sender);
    else if (!sender && idle)
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
    fetch->step = MOVING;
    fetch->ahead = gb_ahead_new(fetch->fetches->options.loop, object, &fetch->content);
    go_on(fetch);
}

static void create(struct fetch *fetch)
{
    const struct gb_fetch_options *options = &fetch->fetches->options;
    const struct gb_granted *granted = &fetch->granted;
    bool on_gpu = strcmp(granted->device.text, "gpu") == 0 && options->gpu;
    struct gpubuf_layout_spec spec;
    char label[GB_COPY_LABEL];
    struct gpubuf_create_options create = {
        .size = sizeof(create),
        .device = on_gpu ? options->gpu : "host",
        .mode = (unsigned)granted->mode,
        .ttl_ms = options->copy_ms,
        .evict = GPUBUF_EVICT_DROP,
        .wait_ms = options->wait_ms,
        .label = label,
    };

    gb_copies_label(label, granted->label.text, fetch->origin, fetch->revision);
    int r = gb_layout_spec(&granted->layout, &fetch->pool, &spec) ? 0 : GPUBUF_E_NO_MEMORY;
    fetch->step = CREATING;
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

static bool describe(struct gb_word *word, const struct gb_granted *granted)
{
    return gb_word_describe(word, granted->described.text, gb_json_length(granted->described),
                            granted->mode, granted->content, granted->label.text);
}

/* Takes the first answer, which describes the object. If it is not the origin's it must be what the
   origin's word says. */
static int take_first(struct fetch *fetch, bool is_word, const char *text, size_t length,
                      struct gb_error *error)
{
    uint64_t largest = fetch->fetches->options.largest;

    free(fetch->text);
    gb_pool_reset(&fetch->pool);
    fetch->text = malloc(length + 1);
    if (!fetch->text)
        return gb_fail_memory(error);
    memcpy(fetch->text, text, length + 1);
    int r = gb_granted_read(fetch->text, length, &fetch->pool, &fetch->granted, error);
    if (r == 0 && !describe(&fetch->first, &fetch->granted))
        r = gb_fail_memory(error);
    if (r == 0 && !is_word &&
        memcmp(fetch->first.described, fetch->word.described, GB_WORD_BYTES) != 0)
        r = gb_fail(error, GPUBUF_E_PROTOCOL,
                    "it has another layout, mode or label than %s has published", fetch->origin);
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
    struct gb_granted other;
    struct gb_word word;
    struct gb_pool pool = {0};

    int r = gb_granted_read(text, length, &pool, &other, error);
    if (r == 0 && !describe(&word, &other))
        r = gb_fail_memory(error);
    if (r == 0 && memcmp(word.described, fetch->first.described, GB_WORD_BYTES) != 0)
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
    bool first = !fetch->transfer.states, origins = is_origin(fetch, opening.remote);
    struct gb_error why, named;
    uint64_t lease = 0;

    free(user);
    fetch->opens--;
    if (status == 0 && fetch->step == ENDING)
        give_back(opening.remote, result, length);
    if (!answered(fetch))
        return;
    if (status == 0) {
        status = first ? take_first(fetch, origins, result, length, &why)
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
    fetch->until = 0;
    fetch->mixed = fetch->mixed || !origins;
    if (first)
        create(fetch);
    else
        go_on(fetch);
}

/* Asks for the object's lease, or for the origin's word. */
static bool ask_place(struct fetch *fetch, const struct gb_place *place, const char *method,
                      gb_answered_cb callback)
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
    gb_write_format(&writer, "{\"method\":\"%s\",\"name\":", method);
    gb_write_cstring(&writer, fetch->name);
    gb_write_format(&writer, ",\"version\":%" PRIu64 "}", place->version);
    if (!writer.failed)
        asked = gb_remote_ask(remote, writer.data, writer.length, callback, opening);
    gb_writer_end(&writer);
    if (!asked)
        free(opening);
    return asked;
}

/* ---- finding ---- */

static void wait(struct fetch *fetch, unsigned pauses);

/* Opens the object at some of the places: other machines than the origin only if its word is
   known. */
static void open_places(struct fetch *fetch, const struct gb_place *places, size_t count)
{
    struct gb_error why;

    for (size_t i = 0; i < count && fetch->opens < GB_SOURCES_MOST; i++) {
        bool may = fetch->word.told || strcmp(places[i].node, fetch->origin) == 0;
        if (!may || has_failed(fetch, places[i].node) ||
            !ask_place(fetch, &places[i], "open", on_opened))
            continue;
        fetch->opens++;
        fetch->pending++;
    }
    if (fetch->opens > 0)
        return;
    (void)gb_fail(&why, GPUBUF_E_NOT_FOUND, "%s, whose object it was, does not have it any more",
                  fetch->origin);
    if (may_retry(fetch))
        wait(fetch, 2);
    else
        give_up(fetch, fetch->error.code ? &fetch->error : &why);
}

static void on_word(void *user, int status, const char *result, size_t length,
                    const struct gb_error *error)
{
    struct opening opening = *(struct opening *)user;
    struct fetch *fetch = opening.fetch;
    struct gb_place *places = fetch->places;
    struct gb_pool pool = {0};
    struct gb_error why;

    free(user);
    if (!answered(fetch))
        return;
    fetch->places = NULL;
    if (status == 0) {
        status = gb_granted_word(result, length, &pool, &fetch->word, &why);
        error = &why;
        gb_pool_end(&pool);
    }
    /* Without its word, only what the origin itself sends is of use. */
    if (status == GPUBUF_E_STALE || status == GPUBUF_E_BUSY)
        fetch->error = *error;
    else if (status < 0)
        leave_machine(fetch, gb_remote_node(opening.remote), error);
    open_places(fetch, places, fetch->place_count);
    free(places);
}

/* Asks the origin for its word, if another machine could send something. False: there is nobody to
   be asked, or nothing to be checked. */
static bool ask_word(struct fetch *fetch, const struct gb_place *places, size_t count)
{
    const struct gb_place *origin = NULL;
    bool others = false;

    for (size_t i = 0; i < count; i++) {
        if (strcmp(places[i].node, fetch->origin) == 0)
            origin = &places[i];
        else
            others = others || !has_failed(fetch, places[i].node);
    }
    if (!origin || !others || has_failed(fetch, origin->node))
        return false;
    fetch->places = malloc(count * sizeof(*places));
    if (!fetch->places || !ask_place(fetch, origin, "word", on_word)) {
        free(fetch->places);
        fetch->places = NULL;
        return false;
    }
    memcpy(fetch->places, places, count * sizeof(*places));
    fetch->place_count = count;
    fetch->pending++;
    return true;
}

static void on_found(void *user, int status, const struct gb_place *places, size_t count,
                     const struct gb_error *error)
{
    struct fetch *fetch = user;

    if (!answered(fetch))
        return;
    if (status == GPUBUF_E_BUSY || status == GPUBUF_E_CLOSED) { /* the machines that were asked */
        fetch->error = *error;
        if (status == GPUBUF_E_BUSY)
            find(fetch);
        else if (may_retry(fetch))
            wait(fetch, 2);
        else
            give_up(fetch, error);
        return;
    }
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
    if (!same) { /* a machine without the former revision may have this one */
        fetch->failed_count = 0;
        fetch->word.told = false;
    }
    fetch->revision = places[0].revision;
    snprintf(fetch->origin, sizeof(fetch->origin), "%s", places[0].origin);
    if (places[0].word.told)
        fetch->word = places[0].word;
    if (fetch->word.told || !ask_word(fetch, places, count))
        open_places(fetch, places, count);
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
        fetch->over = fetch->paused > 0 && (fetch->step == ENDING || --fetch->paused == 0);
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

/* Asks the directory again, after that number of `pauses`. */
static void wait(struct fetch *fetch, unsigned pauses)
{
    uv_timer_t *pause = &fetch->fetches->pause;

    fetch->paused = pauses;
    fetch->pending++;
    if (!uv_is_active((uv_handle_t *)pause))
        (void)uv_timer_start(pause, on_pause_over, PAUSE_MS, 0);
}

/* Sources that are busy will have time, however long it takes. */
static void wait_busy(struct fetch *fetch)
{
    struct gb_fetches *fetches = fetch->fetches;

    if (fetch->busy == 0 && gb_say_another(&fetches->said_busy, uv_now(fetches->options.loop),
                                           "waited for machines that were busy"))
        gb_say("%s waits: %s", fetch->name, fetch->error.message);
    if (fetch->busy < PAUSES_MOST)
        fetch->busy++;
    wait(fetch, fetch->busy);
}

static void find(struct fetch *fetch)
{
    if (fetch->error.code == GPUBUF_E_BUSY)
        wait_busy(fetch);
    else if (fetch->rounds++ == ROUNDS_MOST)
        give_up(fetch, &fetch->error);
    else if (fetch->error.code == GPUBUF_E_STALE)
        wait(fetch, 1);
    else
        ask_directory(fetch);
}

/* ---- which are fetched ---- */

/* The queued fetch that is next: of the user for whom the fewest are under way. A user may have
   half of the places that others leave, so one who takes all he can halves what the next one
   finds. */
static struct fetch *next_fetch(const struct gb_fetches *fetches)
{
    struct fetch *best = NULL;

    for (struct fetch *fetch = fetches->first; fetch; fetch = fetch->next) {
        unsigned own = fetch->owner->active;
        if (fetch->step == QUEUED && 2 * own < ACTIVE_MOST - (fetches->active - own) &&
            (!best || own < best->owner->active))
            best = fetch;
    }
    return best;
}

/* A fetch that cannot even begin ends in `find`, which calls this again: the outer call goes on. */
static void start_next(struct gb_fetches *fetches)
{
    struct fetch *fetch;

    if (fetches->starting)
        return;
    fetches->starting = true;
    while ((fetch = next_fetch(fetches))) {
        fetch->step = OPENING;
        fetch->active = true;
        fetch->owner->active++;
        fetches->active++;
        find(fetch);
    }
    fetches->starting = false;
}

/* NULL: memory is out. */
static struct owner *find_owner(struct gb_fetches *fetches, uint64_t uid)
{
    struct owner *owner = fetches->owners;

    while (owner && owner->uid != uid)
        owner = owner->next;
    if (owner || !(owner = calloc(1, sizeof(*owner))))
        return owner;
    *owner = (struct owner){.next = fetches->owners, .uid = uid};
    fetches->owners = owner;
    return owner;
}

void gb_fetches_want(struct gb_fetches *fetches, const char *name, uint64_t request, uint64_t uid)
{
    struct fetch **place = &fetches->first, *fetch;
    struct owner *owner = find_owner(fetches, uid);

    for (; *place; place = &(*place)->next) {
        if ((*place)->step != ENDING && strcmp((*place)->name, name) == 0) {
            (*place)->request = request;
            return;
        }
    }
    fetch = owner && fetches->count < WAITING_MOST ? calloc(1, sizeof(*fetch) + strlen(name) + 1)
                                                   : NULL;
    if (!fetch) {
        fetches->options.decline(fetches->options.user, request, GB_UNAVAILABLE,
                                 "too many names are being fetched");
        return;
    }
    fetch->fetches = fetches;
    fetch->request = request;
    fetch->owner = owner;
    strcpy(fetch->name, name);
    *place = fetch;
    fetches->count++;
    start_next(fetches);
}

void gb_fetches_leave(struct gb_fetches *fetches, uint64_t request)
{
    bool starting = fetches->starting;

    fetches->starting = true; /* none of those that end now */
    for (struct fetch *fetch = fetches->first, *next; fetch; fetch = next) {
        next = fetch->next;
        if (!fetch->request || (request && fetch->request != request))
            continue;
        fetch->request = 0;
        (void)end(fetch);
    }
    fetches->starting = starting;
    start_next(fetches);
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
    while (fetches->owners) {
        struct owner *owner = fetches->owners;
        fetches->owners = owner->next;
        free(owner);
    }
    uv_close((uv_handle_t *)&fetches->pause, on_closed);
}
