#include "client/peer/fetch/sources.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/peer/options.h"

enum {
    ROUNDS_MOST = 32, /* times that the directory is asked */
    PAUSE_MS = 100,   /* before asking again, when it may not know yet that the object was
                         replaced */
    PAUSES_MOST = 5,  /* in a row, each longer by one, while all sources are busy with others */
    REFUSED_MS = 5000 /* for connections that are refused, as while a peer is restarted */
};

/* An open at a place, or a question for the origin's word. */
struct opening {
    struct gb_peer_fetch *fetch;
    struct gb_peer_remote *remote;
};

/* ---- machines that are left ---- */

bool gb_peer_fetch_is_origin(const struct gb_peer_fetch *fetch, const struct gb_peer_remote *remote)
{
    return strcmp(gb_peer_remote_node(remote), fetch->origin) == 0;
}

static bool has_failed(const struct gb_peer_fetch *fetch, const char *node)
{
    for (unsigned i = 0; i < fetch->failed_count; i++)
        if (strcmp(fetch->failed[i].node, node) == 0)
            return true;
    return false;
}

void gb_peer_fetch_leave(struct gb_peer_fetch *fetch, const char *node,
                         const struct gb_error *error)
{
    struct gb_peer_fetch_left *failed = &fetch->failed[fetch->failed_count];

    fetch->error = *error;
    if (has_failed(fetch, node) || fetch->failed_count == GB_PEER_FAILED_MOST)
        return;
    fetch->failed_count++;
    snprintf(failed->node, sizeof(failed->node), "%s", node);
    failed->refused = error->code == GPUBUF_E_CLOSED;
}

/* True: there is time left in which machines that refused the connection may be asked again. */
static bool may_retry(struct gb_peer_fetch *fetch)
{
    uint64_t now = uv_now(fetch->fetches->parts->loop);
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

/* ---- opening at places ---- */

static bool describe(struct gb_peer_word *word, const struct gb_peer_granted *granted)
{
    return gb_peer_word_describe(word, granted->described.text, gb_json_length(granted->described),
                                 granted->mode, granted->content, granted->label.text);
}

/* Takes the first answer, which describes the object. If it is not the origin's it must be what the
   origin's word says. */
static int take_first(struct gb_peer_fetch *fetch, bool is_word, const char *text, size_t length,
                      struct gb_error *error)
{
    uint64_t largest = fetch->fetches->parts->options->largest;

    free(fetch->text);
    gb_pool_reset(&fetch->pool);
    fetch->text = malloc(length + 1);
    if (!fetch->text)
        return gb_fail_memory(error);
    memcpy(fetch->text, text, length + 1);
    int r = gb_peer_granted_read(fetch->text, length, &fetch->pool, &fetch->granted, error);
    if (r == 0 && !describe(&fetch->first, &fetch->granted))
        r = gb_fail_memory(error);
    if (r == 0 && !is_word &&
        memcmp(fetch->first.described, fetch->word.described, GB_PEER_WORD_BYTES) != 0)
        r = gb_fail(error, GPUBUF_E_PROTOCOL,
                    "it has another layout, mode or label than %s has published", fetch->origin);
    if (r == 0 && largest && fetch->granted.content > largest)
        r = gb_fail(error, GPUBUF_E_LIMIT,
                    "it has %" PRIu64 " bytes, and copies may have %" PRIu64 " (largest)",
                    fetch->granted.content, largest);
    if (r == 0) {
        fetch->content.bytes = fetch->granted.content; /* for the number of chunks */
        r = gb_peer_transfer_init(&fetch->transfer, &fetch->content, fetch->fetches->steps->moved,
                                  error);
        fetch->content.bytes = 0;
    }
    return r;
}

/* Checks that a further answer is of the same object. */
static int take_other(struct gb_peer_fetch *fetch, const char *text, size_t length, uint64_t *lease,
                      struct gb_error *error)
{
    struct gb_peer_granted other;
    struct gb_peer_word word;
    struct gb_pool pool = {0};

    int r = gb_peer_granted_read(text, length, &pool, &other, error);
    if (r == 0 && !describe(&word, &other))
        r = gb_fail_memory(error);
    if (r == 0 && memcmp(word.described, fetch->first.described, GB_PEER_WORD_BYTES) != 0)
        r = gb_fail(error, GPUBUF_E_PROTOCOL, "it has another object of that name");
    *lease = r == 0 ? other.lease : 0;
    gb_pool_end(&pool);
    return r;
}

/* Gives back the lease of a useless answer: the other machine would keep it. */
static void give_back(struct gb_peer_remote *remote, const char *text, size_t length)
{
    uint64_t lease = gb_peer_granted_lease(text, length);

    if (lease)
        gb_peer_remote_release(remote, lease);
}

static void on_opened(void *user, int status, const char *result, size_t length,
                      const struct gb_error *error)
{
    struct opening opening = *(struct opening *)user;
    struct gb_peer_fetch *fetch = opening.fetch;
    bool first = !fetch->transfer.states, origins = gb_peer_fetch_is_origin(fetch, opening.remote);
    struct gb_error why, named;
    uint64_t lease = 0;

    free(user);
    fetch->opens--;
    if (status == 0 && fetch->step == GB_PEER_FETCH_ENDING)
        give_back(opening.remote, result, length);
    if (!fetch->fetches->steps->answered(fetch))
        return;
    if (status == 0) {
        status = first ? take_first(fetch, origins, result, length, &why)
                       : take_other(fetch, result, length, &lease, &why);
        (void)gb_fail(&named, status, "%s: %s", gb_peer_remote_text(opening.remote),
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
            gb_peer_fetch_leave(fetch, gb_peer_remote_node(opening.remote), error);
        if (fetch->opens == 0 && !fetch->transfer.states)
            gb_peer_fetch_find(fetch);
        else
            fetch->fetches->steps->advance(fetch);
        return;
    }
    fetch->mixed = fetch->mixed || !first || !origins;
    gb_peer_transfer_add(&fetch->transfer, opening.remote, lease);
    fetch->until = 0;
    if (first)
        fetch->fetches->steps->create(fetch);
    else
        fetch->fetches->steps->advance(fetch);
}

/* Asks for the object's lease, or for the origin's word. */
static bool ask_place(struct gb_peer_fetch *fetch, const struct gb_peer_place *place,
                      const char *method, gb_peer_answered_cb callback)
{
    struct gb_peer_remote *remote =
        gb_peer_remotes_get(fetch->fetches->parts->remotes, place->node, place->host, place->port);
    struct opening *opening = remote ? malloc(sizeof(*opening)) : NULL;
    struct gb_writer writer;
    bool asked = false;

    if (!opening)
        return false;
    *opening = (struct opening){fetch, remote};
    gb_writer_init(&writer, 0);
    gb_write_pattern(&writer, "{'method':%s,'name':%s,'version':%" PRIu64 "}", method, fetch->name,
                     place->version);
    if (!writer.failed)
        asked = gb_peer_remote_ask(remote, writer.data, writer.length, callback, opening);
    gb_writer_end(&writer);
    if (!asked)
        free(opening);
    return asked;
}

/* ---- finding ---- */

static void wait(struct gb_peer_fetch *fetch, unsigned pauses);

/* Opens the object at some of the places: other machines than the origin only if its word is
   known. */
static void open_places(struct gb_peer_fetch *fetch, const struct gb_peer_place *places,
                        size_t count)
{
    struct gb_error why;

    for (size_t i = 0; i < count && fetch->opens < GB_PEER_SOURCES_MOST; i++) {
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
        fetch->fetches->steps->give_up(fetch, fetch->error.code ? &fetch->error : &why);
}

static void on_word(void *user, int status, const char *result, size_t length,
                    const struct gb_error *error)
{
    struct opening opening = *(struct opening *)user;
    struct gb_peer_fetch *fetch = opening.fetch;
    struct gb_peer_place *places = fetch->places;
    struct gb_pool pool = {0};
    struct gb_error why;

    free(user);
    if (!fetch->fetches->steps->answered(fetch))
        return;
    fetch->places = NULL;
    if (status == 0) {
        status = gb_peer_granted_word(result, length, &pool, &fetch->word, &why);
        error = &why;
        gb_pool_end(&pool);
    }
    /* Without its word, only what the origin itself sends is of use. */
    if (status == GPUBUF_E_STALE || status == GPUBUF_E_BUSY)
        fetch->error = *error;
    else if (status < 0)
        gb_peer_fetch_leave(fetch, gb_peer_remote_node(opening.remote), error);
    open_places(fetch, places, fetch->place_count);
    free(places);
}

/* Asks the origin for its word, if another machine could send something, or if something came by a
   lease that has ended. False: there is nobody to be asked, or nothing to be checked. */
static bool ask_word(struct gb_peer_fetch *fetch, const struct gb_peer_place *places, size_t count)
{
    const struct gb_peer_place *origin = NULL;
    bool others = fetch->transfer.states;

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

static void on_found(void *user, int status, const struct gb_peer_place *places, size_t count,
                     const struct gb_error *error)
{
    struct gb_peer_fetch *fetch = user;

    if (!fetch->fetches->steps->answered(fetch))
        return;
    if (status < 0) {
        /* The failure of a machine says more than "no machine has it". */
        fetch->fetches->steps->give_up(
            fetch, status == GPUBUF_E_NOT_FOUND && fetch->error.code ? &fetch->error : error);
        return;
    }
    bool same =
        fetch->revision == places[0].revision && strcmp(fetch->origin, places[0].origin) == 0;
    if (fetch->transfer.states && !same) {
        fetch->fetches->steps->give_up(fetch, &fetch->error);
        return;
    }
    if (!same) { /* a machine without the former revision may have this one */
        fetch->failed_count = 0;
        fetch->word.told = false;
        fetch->means = places[0].revision;
    }
    fetch->revision = places[0].revision;
    snprintf(fetch->origin, sizeof(fetch->origin), "%s", places[0].origin);
    if (places[0].word.told)
        fetch->word = places[0].word;
    if (fetch->word.told || !ask_word(fetch, places, count))
        open_places(fetch, places, count);
}

static void ask_directory(struct gb_peer_fetch *fetch)
{
    struct gb_peer_directory *directory = fetch->fetches->parts->directory;
    struct gb_error error;

    fetch->pending++;
    if (directory->methods->find(directory, fetch->name, on_found, fetch))
        return;
    fetch->pending--;
    (void)gb_fail_memory(&error);
    fetch->fetches->steps->give_up(fetch, &error);
}

static void on_pause(uv_timer_t *timer);

static void set_pause(struct gb_peer_fetches *fetches)
{
    uint64_t now = uv_now(fetches->parts->loop), next = UINT64_MAX;

    GB_LIST_EACH(&fetches->all, const struct gb_peer_fetch, fetch, of_all)
        if (fetch->wake && fetch->wake < next)
            next = fetch->wake;
    if (next < UINT64_MAX)
        (void)uv_timer_start(&fetches->pause, on_pause, next > now ? next - now : 0, 0);
}

static struct gb_peer_fetch *next_due(const struct gb_peer_fetches *fetches)
{
    GB_LIST_EACH(&fetches->all, struct gb_peer_fetch, fetch, of_all)
        if (fetch->wake && fetch->wake <= uv_now(fetches->parts->loop))
            return fetch;
    return NULL;
}

static void on_pause(uv_timer_t *timer)
{
    struct gb_peer_fetches *fetches = timer->data;
    struct gb_peer_fetch *fetch;

    while ((fetch = next_due(fetches))) { /* that and others may end */
        fetch->wake = 0;
        if (fetches->steps->answered(fetch))
            ask_directory(fetch);
    }
    set_pause(fetches);
}

/* Asks the directory again, after that number of `pauses`. */
static void wait(struct gb_peer_fetch *fetch, unsigned pauses)
{
    fetch->wake = uv_now(fetch->fetches->parts->loop) + (uint64_t)pauses * PAUSE_MS;
    fetch->pending++;
    set_pause(fetch->fetches);
}

/* Sources that are busy will have time, however long it takes. */
static void wait_busy(struct gb_peer_fetch *fetch)
{
    struct gb_peer_fetches *fetches = fetch->fetches;

    if (fetch->busy == 0)
        gb_peer_log_another(GB_LOG_INFO, uv_now(fetches->parts->loop), "fetch waits",
                            GB_LOG_TEXT("name", fetch->name),
                            GB_LOG_TEXT("why", fetch->error.message));
    if (fetch->busy < PAUSES_MOST)
        fetch->busy++;
    wait(fetch, fetch->busy);
}

void gb_peer_fetch_find(struct gb_peer_fetch *fetch)
{
    if (fetch->error.code == GPUBUF_E_BUSY)
        wait_busy(fetch);
    else if (fetch->rounds++ == ROUNDS_MOST)
        fetch->fetches->steps->give_up(fetch, &fetch->error);
    else if (fetch->error.code == GPUBUF_E_STALE)
        wait(fetch, 1);
    else
        ask_directory(fetch);
}
