/*
 * Views: a lease whose place among the program's addresses stays, while the daemon's lease behind
 * it changes. A switch opens the other version under a lease of its own, shows its memory in the
 * view's window, and lets the two leases change places. So every object of the view remains as it
 * is, and the old version is released afterwards.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/data/likeness.h"
#include "client/lib/memory/window.h"
#include "client/lib/objects/object.h"
#include "client/lib/objects/open.h"
#include "client/lib/objects/ready.h"
#include "client/lib/wire/call.h"
#include "client/lib/wire/enter.h"
#include "client/lib/wire/release.h"
#include "client/lib/wire/report.h"

struct gpubuf_view {
    struct gpubuf_object *root; /* with a reference */
    struct gb_likeness likeness;
    atomic_flag used; /* a thread is in a call */
};

/* ---- what can be shown ---- */

static int find_end(struct gb_buffer *buffer, void *arg)
{
    uint64_t *end = arg;

    if (buffer->bytes > 0 && buffer->offset + buffer->bytes > *end)
        *end = buffer->offset + buffer->bytes;
    return 0;
}

/* Where the memory of a lease was mapped when it was opened. GPUBUF_E_UNSUPPORTED. */
static int find_memory(const struct gb_client_lease *lease, const struct gb_imported **memory,
                       struct gb_error *error)
{
    if (lease->segment_count != 1)
        return gb_fail(error, GPUBUF_E_UNSUPPORTED,
                       "%s has no bytes, or lies in several segments, and cannot be followed",
                       lease->name);
    const struct gb_import *import = lease->segments[0].import;
    for (int access = 0; access < 2; access++) {
        const struct gb_mapped *mapping = import->mappings[access];
        if (!mapping || gb_mapped_address(mapping) != lease->segments[0].address)
            continue;
        *memory = gb_mapped_memory(mapping);
        if (!(*memory)->writable || (*memory)->gpu)
            return 0;
    }
    return gb_fail(error, GPUBUF_E_UNSUPPORTED,
                   "%s is mapped for writing in this process, and cannot be followed in it",
                   lease->name);
}

/* Reads all that the versions of a view have in common. Waits for the content. */
static int read_likeness(struct gpubuf_object *root, struct gb_likeness *likeness)
{
    struct gb_client_lease *lease = root->lease;
    struct gb_error error, inner;
    int r = gpubuf_wait_ready(root, NULL);

    *likeness = (struct gb_likeness){.layout = &lease->layout};
    if (r < 0 || lease->layout.kind != GB_KIND_BUNDLE)
        return r;
    likeness->head_bytes = GB_BUNDLE_PREFIX + lease->layout.manifest_bytes;
    unsigned char *head;
    r = gb_bundle_copy_head(root, likeness->head_bytes, &head);
    if (r < 0)
        return r;
    r = gb_bundle_read_head(&lease->layout, head, &likeness->manifest, &inner);
    if (r < 0) {
        free(head);
        (void)gb_fail(&error, r, "%s: %s", lease->name, inner.message);
        return gb_report(lease->client, &error);
    }
    likeness->head = head;
    return 0;
}

static int fail(const struct gb_client_lease *lease, const char *what, const struct gb_error *cause)
{
    struct gb_error error;

    (void)gb_fail(&error, cause->code, "%s version %" PRIu64 " cannot be %s: %s", lease->name,
                  atomic_load(&lease->version), what, cause->message);
    return gb_report(lease->client, &error);
}

/* ---- one thread at a time ---- */

static int begin(struct gpubuf_view *view)
{
    if (!view)
        return gb_report_text(NULL, GPUBUF_E_INVALID, "the view is NULL");
    int r = gb_object_check(view->root);
    if (r < 0)
        return r;
    if (atomic_flag_test_and_set(&view->used))
        return gb_report_text(view->root->lease->client, GPUBUF_E_BUSY,
                              "another thread is switching the view of %s, or parking it",
                              view->root->lease->name);
    return 0;
}

static int end(struct gpubuf_view *view, int r)
{
    atomic_flag_clear(&view->used);
    return r;
}

/* ---- following ---- */

static int open_window(struct gpubuf_object *root)
{
    struct gb_client_lease *lease = root->lease;
    const struct gb_imported *memory;
    struct gb_view_window *window;
    struct gb_error error;
    uint64_t bytes = 0;
    int r = find_memory(lease, &memory, &error);

    if (r < 0)
        return gb_report(lease->client, &error);
    (void)gb_layout_each(&lease->layout, find_end, &bytes);
    r = gb_window_open(memory, bytes, &window, &error);
    if (r == 0) {
        r = gb_window_show(window, memory, &error);
        if (r < 0)
            gb_window_close(window);
    }
    if (r < 0)
        return fail(lease, "followed", &error);
    lease->window = window;
    lease->segments[0].address = gb_window_address(window);
    return 0;
}

int gpubuf_follow(struct gpubuf_client *client, const char *name,
                  const struct gpubuf_open_options *options, struct gpubuf_view **out)
{
    struct gpubuf_object *root;
    int r = gb_open_alone(client, name, options, NULL, &root);

    if (r < 0)
        return r;
    struct gpubuf_view *view = calloc(1, sizeof(*view));
    if (!view) {
        gpubuf_release(root);
        return gb_report_memory(client);
    }
    atomic_flag_clear(&view->used);
    view->root = root;
    r = read_likeness(root, &view->likeness);
    if (r == 0)
        r = open_window(root);
    if (r < 0) {
        gpubuf_unfollow(view);
        return r;
    }
    *out = view;
    return 0;
}

struct gpubuf_object *gpubuf_view_object(const struct gpubuf_view *view)
{
    return view->root;
}

bool gpubuf_is_parked(const struct gpubuf_view *view)
{
    return view->root->lease->parked;
}

void gpubuf_unfollow(struct gpubuf_view *view)
{
    if (!view)
        return;
    gb_likeness_end(&view->likeness);
    gpubuf_release(view->root);
    free(view);
}

/* ---- two leases change places ---- */

#define EXCHANGE(type, one, other)                                                                 \
    do {                                                                                           \
        type kept_ = (one);                                                                        \
        (one) = (other);                                                                           \
        (other) = kept_;                                                                           \
    } while (0)

/* With the client's lock held. The lease of the view keeps its layout, its address and its window.
   While the client resumes, the list of those asked for follows. */
static void change_places(struct gb_client_lease *view, struct gb_client_lease *other)
{
    uint64_t version = atomic_load(&view->version);
    int state = atomic_load(&view->state);
    struct gb_ready *ready = atomic_load(&view->ready);

    atomic_store(&view->version, atomic_load(&other->version));
    atomic_store(&other->version, version);
    atomic_store(&view->state, atomic_load(&other->state));
    atomic_store(&other->state, state);
    atomic_store(&view->ready, atomic_load(&other->ready));
    atomic_store(&other->ready, ready);
    EXCHANGE(uint64_t, view->id, other->id);
    EXCHANGE(enum gb_client_lease_content, view->access.content, other->access.content);
    EXCHANGE(bool, view->parked, other->parked);
    EXCHANGE(size_t, view->segment_count, other->segment_count);
    EXCHANGE(struct gb_import *, view->segments[0].import, other->segments[0].import);
    EXCHANGE(struct gb_client_lease_resuming, view->resuming, other->resuming);
    if (view->resuming.asked)
        *view->resuming.asked = view;
    if (other->resuming.asked)
        *other->resuming.asked = other;
}

/* The view shows the other lease's memory; what the view had ends with the other lease. */
static int take_over(struct gpubuf_view *view, struct gpubuf_object *other)
{
    struct gb_client_lease *lease = view->root->lease, *next = other->lease;
    struct gpubuf_client *client = lease->client;
    const struct gb_imported *memory;
    struct gb_error error;
    char *label = next->label ? strdup(next->label) : NULL;
    int r = find_memory(next, &memory, &error);

    if (r == 0 && next->label && !label)
        r = gb_fail_memory(&error);
    if (r == 0)
        r = gb_window_show(lease->window, memory, &error);
    if (r < 0) {
        free(label);
        return fail(next, "shown", &error);
    }
    gb_likeness_counts(&lease->layout, &next->layout);
    pthread_mutex_lock(&client->lock);
    change_places(lease, next);
    free(lease->relabeled);
    lease->label = lease->relabeled = label;
    pthread_mutex_unlock(&client->lock);
    return 0;
}

static int wait_streams(const struct gpubuf_view *view, void *const *streams, size_t count)
{
    const struct gb_client_lease *lease = view->root->lease;
    struct gb_error error;
    int r = gb_window_wait(lease->window, streams, count, &error);

    return r < 0 ? gb_report(lease->client, &error) : 0;
}

/* ---- switching ---- */

static int compare(const struct gpubuf_view *view, struct gpubuf_object *other)
{
    struct gb_likeness likeness;
    struct gb_error error;
    int r = read_likeness(other, &likeness);

    if (r < 0)
        return r;
    r = gb_likeness_compare(&view->likeness, &likeness, &error);
    gb_likeness_end(&likeness);
    return r < 0 ? fail(other->lease, "shown", &error) : 0;
}

static bool shows(const struct gb_client_lease *lease, const struct gpubuf_object *other)
{
    return !lease->parked && gb_window_is_shown(lease->window) &&
           atomic_load(&lease->state) == GB_LEASE_SEALED &&
           atomic_load(&lease->version) == gpubuf_object_version(other);
}

int gpubuf_switch(struct gpubuf_view *view, const struct gpubuf_open_options *options,
                  void *const *streams, size_t stream_count)
{
    struct gpubuf_object *other = NULL;
    int r = begin(view);

    if (r < 0)
        return r;
    const struct gb_client_lease *lease = view->root->lease;
    r = gb_open_alone(lease->client, lease->name, options, NULL, &other);
    if (r == 0 && shows(lease, other)) {
        r = 1;
    } else if (r == 0) {
        r = compare(view, other);
        if (r == 0)
            r = wait_streams(view, streams, stream_count);
        if (r == 0)
            r = take_over(view, other);
    }
    gpubuf_release(other);
    return end(view, r);
}

/* ---- parking ---- */

static void write_park(struct gb_writer *writer, const void *lease)
{
    gb_write_format(writer, "{\"lease\":%" PRIu64 ",\"park\":true}",
                    ((const struct gb_client_lease *)lease)->id);
}

/* Whether the lease is one that the daemon knows. */
static int check_held(const struct gb_client_lease *lease)
{
    if (atomic_load(&lease->state) == GB_LEASE_SEALED)
        return 0;
    return gb_report_text(lease->client, GPUBUF_E_STALE,
                          "the lease of %s was lost with its connection; switch the view",
                          lease->name);
}

/* Whether the daemon may still do what it has not answered. */
static bool is_unknown(int r)
{
    return r == GPUBUF_E_TIMEOUT || r == GPUBUF_E_CANCELED;
}

/* Nothing is shown before the daemon may give the memory to others. If it refuses, all is as it
   was. */
static int hide_and_tell(struct gb_client_lease *lease)
{
    struct gpubuf_client *client = lease->client;
    struct gb_imported was;
    struct gb_error error, ignored;
    int r = gb_window_hide(lease->window, &was, &error);

    if (r < 0)
        return gb_report(client, &error);
    r = gb_call(client, "release", write_park, lease, client->requests.timeout_ms, NULL);
    if (r < 0 && !is_unknown(r) && was.address)
        (void)gb_window_show(lease->window, &was, &ignored);
    return r;
}

/* The daemon is told last of the segment, which it waits for. */
static void leave_memory(struct gb_client_lease *lease)
{
    struct gpubuf_client *client = lease->client;

    pthread_mutex_lock(&client->lock);
    lease->parked = true;
    if (lease->segment_count > 0 && !lease->segments[0].import->detached)
        gb_imports_retire(&client->imports, lease->segments[0].import->segment);
    gb_client_lease_unuse(lease);
    gb_imports_trim(&client->imports);
    gb_flush_releases(client);
    pthread_mutex_unlock(&client->lock);
}

int gpubuf_park(struct gpubuf_view *view, void *const *streams, size_t stream_count)
{
    int r = begin(view);

    if (r < 0)
        return r;
    struct gb_client_lease *lease = view->root->lease;
    if (lease->parked)
        return end(view, 1);
    r = wait_streams(view, streams, stream_count);
    if (r == 0)
        r = check_held(lease);
    if (r == 0)
        r = hide_and_tell(lease);
    if (r == 0 || is_unknown(r))
        leave_memory(lease);
    return end(view, r);
}

int gpubuf_resume(struct gpubuf_view *view, int64_t wait_ms)
{
    const struct gpubuf_open_options options = {.size = sizeof(options), .wait_ms = wait_ms};
    struct gpubuf_object *other = NULL;
    int r = begin(view);

    if (r < 0)
        return r;
    const struct gb_client_lease *lease = view->root->lease;
    if (!lease->parked && gb_window_is_shown(lease->window))
        return end(view, 1);
    r = check_held(lease);
    if (r == 0)
        r = gb_open_alone(lease->client, lease->name, &options, lease, &other);
    if (r == 0)
        r = take_over(view, other);
    gpubuf_release(other);
    return end(view, r);
}
