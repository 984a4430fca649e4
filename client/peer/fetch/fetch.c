#include "client/peer/fetch/fetch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/common/remake.h"
#include "client/peer/base/seldom.h"
#include "client/peer/fetch/sources.h"
#include "client/peer/options.h"

enum {
    ACTIVE_MOST = 64, /* fetches at a time; others wait their turn */
    WAITING_MOST = 4096,
    WAIT_MS = 10000, /* for memory of a copy */
};

static void advance(struct gb_peer_fetch *fetch);
static void start_next(struct gb_peer_fetches *fetches);

/* ---- the end of a fetch ---- */

static void free_fetch(struct gb_peer_fetch *fetch)
{
    struct gb_peer_fetches *fetches = fetch->fetches;

    gb_list_remove(&fetch->of_all);
    fetches->count -= fetch->step >= GB_PEER_FETCH_QUEUED;
    fetches->active -= fetch->step >= GB_PEER_FETCH_OPENING;
    fetch->owner->active -= fetch->step >= GB_PEER_FETCH_OPENING;
    gb_peer_transfer_end(&fetch->transfer);
    gb_peer_digest_end(fetch->digest);
    gb_peer_content_end(&fetch->content);
    gpubuf_release(fetch->object);
    gb_pool_end(&fetch->pool);
    free(fetch->places);
    free(fetch->text);
    free(fetch);
}

/* Ends the fetch as soon as nothing is under way. True: it has been freed. */
static bool end(struct gb_peer_fetch *fetch)
{
    struct gb_peer_fetches *fetches = fetch->fetches;

    fetch->transfer.stopped = true;
    if (fetch->step >= GB_PEER_FETCH_OPENING)
        fetch->step = GB_PEER_FETCH_ENDING;
    if (fetch->pending > 0 || fetch->transfer.in_flight > 0)
        return false;
    free_fetch(fetch);
    start_next(fetches);
    return true;
}

/* Logs a failure, but not each one: a program may ask for an absent name again and again. */
static void say_failed(const struct gb_peer_fetch *fetch, const char *sentence)
{
    struct gb_peer_fetches *fetches = fetch->fetches;

    gb_peer_log_another(GB_LOG_WARNING, uv_now(fetches->parts->loop), "cannot fetch",
                        GB_LOG_TEXT("name", fetch->name), GB_LOG_TEXT("why", sentence));
}

/* Appends a fetch, which is absent. NULL: memory is out. */
static struct gb_peer_fetch *make(struct gb_peer_fetches *fetches, const char *name,
                                  uint64_t request, struct gb_peer_fetch_user *owner)
{
    struct gb_peer_fetch *fetch = calloc(1, sizeof(*fetch) + strlen(name) + 1);

    if (!fetch)
        return NULL;
    fetch->fetches = fetches;
    fetch->request = request;
    fetch->owner = owner;
    strcpy(fetch->name, name);
    gb_list_append(&fetches->all, &fetch->of_all);
    return fetch;
}

/* Whether a name that could not be fetched for that reason may come about: then programs wait on.
   It may be made here, or be published elsewhere; and the directory may be there soon. If the
   request were declined, all waiting opens would end. */
static bool may_come(const struct gb_peer_parts *parts, int status)
{
    bool early = status == GPUBUF_E_UNAVAILABLE && !parts->figures->joined && !parts->late;

    return status == GPUBUF_E_NOT_FOUND || early;
}

/* Declines the request, for which another fetch may wait on. */
static void decline(const struct gb_peer_fetch *fetch, int status, const char *message)
{
    const struct gb_peer_parts *parts = fetch->fetches->parts;

    if (may_come(parts, status) && make(fetch->fetches, fetch->name, fetch->request, fetch->owner))
        status = GPUBUF_E_TIMEOUT; /* programs are told if they wait in vain */
    (void)gpubuf_decline(parts->client, fetch->request, status, message);
}

static void give_up(struct gb_peer_fetch *fetch, const struct gb_error *error)
{
    int status = error->code == GPUBUF_E_NOT_FOUND ? GPUBUF_E_NOT_FOUND : GPUBUF_E_UNAVAILABLE;

    if (fetch->step != GB_PEER_FETCH_ENDING) {
        say_failed(fetch, error->message);
        gb_peer_figures_fail(fetch->fetches->parts->figures, status);
        if (fetch->request)
            decline(fetch, status, error->message);
        fetch->request = 0;
    }
    (void)end(fetch);
}

static void give_up_library(struct gb_peer_fetch *fetch, int status)
{
    const char *sentence = gpubuf_errmsg(fetch->fetches->parts->client);
    struct gb_error error;

    (void)gb_fail(&error, status, "a copy could not be made here: %s",
                  sentence[0] ? sentence : gpubuf_strerror(status));
    error.code = GPUBUF_E_UNAVAILABLE;
    give_up(fetch, &error);
}

/* A call of the fetch has been answered. False: the fetch is ending, and may have been freed. */
static bool answered(struct gb_peer_fetch *fetch)
{
    fetch->pending--;
    if (fetch->step != GB_PEER_FETCH_ENDING)
        return true;
    (void)end(fetch);
    return false;
}

/* ---- the seal ---- */

/* Deletes a copy of another revision. If `revision` is 0 and the machine that published the name is
   gone, the copy stays: it is only old. If that machine is there, it has withdrawn the name. */
static void drop_copy(struct gb_peer_fetches *fetches, const char *name, uint64_t revision)
{
    struct gb_peer_directory *directory = fetches->parts->directory;
    const struct gb_peer_copy *copy = gb_peer_copies_find(fetches->parts->copies, name);
    struct gb_writer writer;

    if (!copy || copy->revision == revision ||
        (!revision && !directory->methods->knows(directory, copy->origin)))
        return;
    gb_writer_init(&writer, 0);
    gb_write_pattern(&writer, "{'name':%s,'version':%" PRIu64 "}", name, copy->version);
    gb_write_char(&writer, '\0');
    if (!writer.failed)
        (void)gpubuf_call_async(fetches->parts->client, "delete", writer.data, NULL, NULL, NULL);
    gb_writer_end(&writer);
}

static void on_sealed(struct gpubuf_client *client, int status, struct gpubuf_object *object,
                      void *arg)
{
    struct gb_peer_fetch *fetch = arg;
    struct gb_peer_fetches *fetches = fetch->fetches;
    struct gb_peer_directory *directory = fetches->parts->directory;

    if (status == 0) {
        uint64_t version = gpubuf_object_version(object);
        fetches->parts->figures->fetched++;
        fetches->parts->figures->fetched_bytes += fetch->content.bytes;
        gb_peer_log_another(GB_LOG_INFO, uv_now(fetches->parts->loop), "fetched",
                            GB_LOG_TEXT("name", fetch->name), GB_LOG_TEXT("origin", fetch->origin),
                            GB_LOG_NUMBER("revision", fetch->revision),
                            GB_LOG_NUMBER("bytes", fetch->content.bytes));
        if (gb_peer_copies_add(fetches->parts->copies, fetch->name, version, fetch->origin,
                               fetch->revision))
            directory->methods->copied(directory, fetch->name, fetch->revision, version);
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

static void seal(struct gb_peer_fetch *fetch)
{
    fetch->step = GB_PEER_FETCH_SEALING;
    fetch->pending++;
    int r = gpubuf_seal_async(fetch->object, NULL, on_sealed, fetch, NULL);
    if (r < 0) {
        fetch->pending--;
        give_up_library(fetch, r);
    }
}

/* ---- the bytes ---- */

static void on_digest(void *user)
{
    advance(user);
}

/* Takes the sum of what has come, if it is to be compared with the origin's word. False: the fetch
   has been given up. */
static bool move_digest(struct gb_peer_fetch *fetch)
{
    struct gb_error error;

    if (!fetch->mixed)
        return true;
    if (!fetch->digest)
        fetch->digest =
            gb_peer_digest_new(fetch->fetches->parts->loop, &fetch->content, on_digest, fetch);
    if (fetch->digest) {
        gb_peer_digest_move(fetch->digest, gb_peer_transfer_came(&fetch->transfer));
        return true;
    }
    (void)gb_fail_memory(&error);
    give_up(fetch, &error);
    return false;
}

/* The content is not what the origin has published: leaves all other machines, and begins again. */
static void distrust(struct gb_peer_fetch *fetch)
{
    struct gb_peer_transfer *transfer = &fetch->transfer;
    struct gb_error error;

    gb_peer_digest_end(fetch->digest);
    fetch->digest = NULL;
    fetch->mixed = false;
    for (unsigned i = 0; i < transfer->count; i++) {
        struct gb_peer_remote *remote = transfer->senders[i].remote;
        if (gb_peer_fetch_is_origin(fetch, remote))
            continue;
        (void)gb_fail(&error, GPUBUF_E_PROTOCOL, "%s: it sent other content than %s has published",
                      gb_peer_remote_text(remote), fetch->origin);
        gb_peer_log_seldom(GB_LOG_ERROR, uv_now(fetch->fetches->parts->loop),
                           gb_peer_remote_node(remote), NULL, "machine sent wrong content",
                           GB_LOG_TEXT("why", error.message));
        transfer->senders[i].failed = true;
        transfer->error = error;
        gb_peer_fetch_leave(fetch, gb_peer_remote_node(remote), &error);
    }
    gb_peer_transfer_restart(transfer);
    advance(fetch);
}

/* All chunks are here, each with the checksum that it was sent with. If all are of one lease of the
   origin's, they are its content. */
static void check(struct gb_peer_fetch *fetch)
{
    unsigned char sum[GB_PEER_WORD_BYTES];
    struct gb_error error;

    if (!fetch->mixed || fetch->transfer.chunks == 0) {
        seal(fetch);
        return;
    }
    int r = gb_peer_digest_sum(fetch->digest, sum, &error);
    if (r < 0)
        give_up(fetch, &error);
    else if (r > 0 && memcmp(sum, fetch->word.content, sizeof(sum)) == 0)
        seal(fetch);
    else if (r > 0)
        distrust(fetch);
}

/* Takes the next step of the fetch, after any event. */
static void advance(struct gb_peer_fetch *fetch)
{
    struct gb_peer_transfer *transfer = &fetch->transfer;

    if (fetch->step == GB_PEER_FETCH_ENDING) {
        (void)end(fetch);
        return;
    }
    if (fetch->step != GB_PEER_FETCH_MOVING)
        return;
    gb_peer_transfer_pump(transfer);
    if (!move_digest(fetch))
        return;
    for (unsigned i = 0; i < transfer->count; i++)
        if (transfer->senders[i].failed)
            gb_peer_fetch_leave(fetch, gb_peer_remote_node(transfer->senders[i].remote),
                                &transfer->error);
    bool idle = transfer->in_flight == 0 && fetch->opens == 0 && fetch->pending == 0;
    if (transfer->left == 0)
        check(fetch);
    else if (idle && !gb_peer_transfer_can_ask(transfer))
        gb_peer_fetch_find(fetch); /* another machine may have it */
}

static void on_moved(struct gb_peer_transfer *transfer)
{
    advance((struct gb_peer_fetch *)transfer);
}

static void on_created(struct gpubuf_client *client, int status, struct gpubuf_object *object,
                       void *arg)
{
    struct gb_peer_fetch *fetch = arg;
    struct gb_error error;

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
    status = gb_peer_content_for(&fetch->content, object, &fetch->granted.layout, &error);
    if (status == 0 && fetch->content.bytes != fetch->granted.content)
        status = gb_fail(&error, GPUBUF_E_UNAVAILABLE, "its layout has another length here");
    fetch->transfer.content = &fetch->content;
    if (status < 0) {
        give_up(fetch, &error);
        return;
    }
    fetch->step = GB_PEER_FETCH_MOVING;
    advance(fetch);
}

static void create(struct gb_peer_fetch *fetch)
{
    const struct gb_peer_parts *parts = fetch->fetches->parts;
    const struct gb_peer_options *options = parts->options;
    const struct gb_peer_granted *granted = &fetch->granted;
    bool on_gpu = strcmp(granted->device.text, "gpu") == 0 && options->gpu;
    struct gpubuf_layout_spec spec;
    char note[GB_PEER_COPY_NOTE];
    struct gpubuf_create_options create = {
        .size = sizeof(create),
        .device = on_gpu ? options->gpu : "host",
        .mode = (unsigned)granted->mode,
        .ttl_ms = (int64_t)options->copy_seconds * 1000,
        .evict = GPUBUF_EVICT_DROP,
        .wait_ms = WAIT_MS,
        .label = granted->label.text,
        .note = note,
    };

    gb_peer_copies_note(note, fetch->origin, fetch->revision);
    int r = gb_layout_spec(&granted->layout, &fetch->pool, &spec) ? 0 : GPUBUF_E_NO_MEMORY;
    fetch->step = GB_PEER_FETCH_CREATING;
    fetch->pending++;
    if (r == 0)
        r = gpubuf_create_async(parts->client, fetch->name, &spec, &create, on_created, fetch,
                                NULL);
    if (r < 0) {
        fetch->pending--;
        give_up_library(fetch, r);
    }
}

/* ---- which are fetched ---- */

/* The queued fetch that is next: of the user for whom the fewest are under way. A user may have
   half of the places that others leave. */
static struct gb_peer_fetch *next_fetch(const struct gb_peer_fetches *fetches)
{
    struct gb_peer_fetch *best = NULL;

    GB_LIST_EACH(&fetches->all, struct gb_peer_fetch, fetch, of_all) {
        unsigned own = fetch->owner->active;
        if (fetch->step == GB_PEER_FETCH_QUEUED &&
            2 * own < ACTIVE_MOST - (fetches->active - own) && (!best || own < best->owner->active))
            best = fetch;
    }
    return best;
}

/* A fetch that cannot even begin ends in `find`, which calls this again: the outer call goes on. */
static void start_next(struct gb_peer_fetches *fetches)
{
    struct gb_peer_fetch *fetch;

    if (fetches->starting)
        return;
    fetches->starting = true;
    while ((fetch = next_fetch(fetches))) {
        fetch->step = GB_PEER_FETCH_OPENING;
        fetch->owner->active++;
        fetches->active++;
        gb_peer_fetch_find(fetch);
    }
    fetches->starting = false;
}

/* NULL: memory is out. */
static struct gb_peer_fetch_user *find_owner(struct gb_peer_fetches *fetches, uint64_t uid)
{
    struct gb_peer_fetch_user *made;

    GB_LIST_EACH(&fetches->owners, struct gb_peer_fetch_user, owner, of_all)
        if (owner->uid == uid)
            return owner;
    made = calloc(1, sizeof(*made));
    if (!made)
        return NULL;
    made->uid = uid;
    gb_list_append(&fetches->owners, &made->of_all);
    return made;
}

/* The fetch of that name that is not ending; NULL: none. */
static struct gb_peer_fetch *find(const struct gb_peer_fetches *fetches, const char *name)
{
    GB_LIST_EACH(&fetches->all, struct gb_peer_fetch, fetch, of_all)
        if (fetch->step != GB_PEER_FETCH_ENDING && strcmp(fetch->name, name) == 0)
            return fetch;
    return NULL;
}

static void enqueue(struct gb_peer_fetch *fetch)
{
    fetch->step = GB_PEER_FETCH_QUEUED;
    fetch->fetches->count++;
    start_next(fetch->fetches);
}

void gb_peer_fetches_want(struct gb_peer_fetches *fetches, const char *name, uint64_t request,
                          uint64_t uid)
{
    struct gb_peer_fetch_user *owner = find_owner(fetches, uid);
    struct gb_peer_fetch *fetch = find(fetches, name);

    if (fetch)
        fetch->request = request;
    else if (owner && fetches->count < WAITING_MOST)
        fetch = make(fetches, name, request, owner);
    if (!fetch)
        (void)gpubuf_decline(fetches->parts->client, request, GPUBUF_E_UNAVAILABLE,
                             "too many names are being fetched");
    else if (fetch->step == GB_PEER_FETCH_ABSENT)
        enqueue(fetch);
}

void gb_peer_fetches_again(struct gb_peer_fetches *fetches, const char *name)
{
    bool starting = fetches->starting;

    fetches->starting = true; /* so that none ends meanwhile */
    GB_LIST_EACH(&fetches->all, struct gb_peer_fetch, fetch, of_all)
        if (fetch->step == GB_PEER_FETCH_ABSENT && (!name || strcmp(fetch->name, name) == 0))
            enqueue(fetch);
    fetches->starting = starting;
    start_next(fetches);
}

void gb_peer_fetches_leave(struct gb_peer_fetches *fetches, uint64_t request)
{
    bool starting = fetches->starting;

    fetches->starting = true; /* none of those that end now */
    GB_LIST_EACH(&fetches->all, struct gb_peer_fetch, fetch, of_all) {
        if (!fetch->request || (request && fetch->request != request))
            continue;
        fetch->request = 0;
        (void)end(fetch);
    }
    fetches->starting = starting;
    start_next(fetches);
}

void gb_peer_fetches_stop(struct gb_peer_fetches *fetches)
{
    fetches->starting = true;
    GB_LIST_EACH(&fetches->all, struct gb_peer_fetch, fetch, of_all)
        (void)end(fetch);
}

void gb_peer_fetches_changed(struct gb_peer_fetches *fetches, const char *name, uint64_t revision)
{
    GB_LIST_EACH(&fetches->all, struct gb_peer_fetch, fetch, of_all)
        if (strcmp(fetch->name, name) == 0)
            fetch->means = revision;
    drop_copy(fetches, name, revision);
}

static const struct gb_peer_fetch_steps steps = {give_up, answered, create, advance, on_moved};

struct gb_peer_fetches *gb_peer_fetches_new(const struct gb_peer_parts *parts)
{
    struct gb_peer_fetches *fetches = calloc(1, sizeof(*fetches));

    if (!fetches)
        return NULL;
    fetches->parts = parts;
    fetches->steps = &steps;
    fetches->pause.data = fetches;
    (void)uv_timer_init(parts->loop, &fetches->pause); /* cannot fail */
    return fetches;
}

static void on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

void gb_peer_fetches_free(struct gb_peer_fetches *fetches)
{
    if (!fetches)
        return;
    GB_LIST_EACH(&fetches->all, struct gb_peer_fetch, fetch, of_all)
        free_fetch(fetch);
    GB_LIST_EACH(&fetches->owners, struct gb_peer_fetch_user, owner, of_all)
        free(owner);
    uv_close((uv_handle_t *)&fetches->pause, on_closed);
}
