#include "client/lib/objects/grants.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/objects/cached.h"
#include "client/lib/objects/object.h"
#include "client/lib/objects/ready.h"
#include "client/lib/wire/link.h"
#include "client/lib/wire/release.h"

/* A segment of the reply at hand that could not be mapped. */
struct gb_failed_segment {
    struct gb_failed_segment *next;
    uint64_t segment;
    struct gb_error error;
};

/* ---- segments ---- */

static int note_failed(struct gb_grants *grants, uint64_t segment, const struct gb_error *error)
{
    struct gb_failed_segment *failed = gb_pool_alloc(&grants->client->pool, sizeof(*failed));

    if (!failed)
        return GPUBUF_E_NO_MEMORY;
    failed->next = grants->failed;
    failed->segment = segment;
    failed->error = *error;
    grants->failed = failed;
    return 0;
}

static int take_segment(struct gb_grants *grants, const struct gb_reply *reply,
                        struct gb_json value, const struct gb_path *path, struct gb_error *error)
{
    struct gpubuf_client *client = grants->client;
    struct gb_segment_info segment;
    int r = gb_segment_read(value, path, &client->pool, &segment, error);

    if (r < 0)
        return r;
    int fd = -1;
    if (segment.handle.kind != GB_HANDLE_CUDA_IPC) {
        if (segment.handle.fd >= reply->fd_count)
            return gb_fail(error, GPUBUF_E_PROTOCOL,
                           "segment %" PRIu64 " names a descriptor that did not come", segment.id);
        fd = reply->fds[segment.handle.fd];
    }
    if (gb_imports_reserve(&client->imports, 1) < 0)
        return gb_fail_memory(error);

    r = gb_imports_map_segment(&client->imports, client->daemon.instance, &segment, fd, error);
    if (r == GPUBUF_E_PROTOCOL || r == 0)
        return r;
    return note_failed(grants, segment.id, error);
}

static int take_segments(struct gb_grants *grants, const struct gb_reply *reply,
                         struct gb_json segments, struct gb_error *error)
{
    struct gb_path result = {.key = "result"}, member = {.up = &result, .key = "segments"};
    struct gb_path step = {.up = &member};
    struct gb_json_walk walk = gb_json_walk(segments);
    struct gb_json key, item;

    for (; gb_json_next(&walk, &key, &item); step.index++) {
        int r = take_segment(grants, reply, item, &step, error);
        if (r < 0) {
            /* Except for a lack of memory, a failure here is the daemon's fault. */
            if (r != GPUBUF_E_NO_MEMORY && error)
                r = error->code = GPUBUF_E_PROTOCOL;
            return r;
        }
    }
    return 0;
}

int gb_grants_begin(struct gb_grants *grants, struct gpubuf_client *client,
                    const struct gb_reply *reply, struct gb_json segments, size_t leases,
                    bool writable, uint64_t drops, struct gb_error *error)
{
    int r;

    *grants = (struct gb_grants){.client = client, .writable = writable};
    grants->dropped = client->imports.drops != drops;
    /* Earlier releases are told first. If the request is sent again, only the useless leases of
       this reply are given back after it. */
    gb_queue_releases(client);
    if (gb_reserve_releases(client, leases) < 0)
        r = gb_fail_memory(error);
    else
        r = take_segments(grants, reply, segments, error);
    if (r == GPUBUF_E_NO_MEMORY)
        gb_client_lose(client, error);
    return r;
}

void gb_grants_end(struct gb_grants *grants)
{
    struct gpubuf_client *client = grants->client;

    gb_imports_trim(&client->imports);
    gb_flush_releases(client);
}

/* ---- buffers ---- */

struct placing {
    struct gb_grants *grants;
    struct gb_client_lease *lease;
    struct gb_error *error;
};

static int missing_segment(const struct gb_grants *grants, uint64_t segment, struct gb_error *error)
{
    for (const struct gb_failed_segment *failed = grants->failed; failed; failed = failed->next) {
        if (failed->segment == segment) {
            *error = failed->error;
            return error->code;
        }
    }
    if (grants->dropped)
        return GB_AGAIN;
    return gb_fail(error, GPUBUF_E_PROTOCOL,
                   "the daemon did not send the handle of segment %" PRIu64, segment);
}

/* The mapping that a lease uses of an import. If the session may write to the segment, the daemon
   sends no second handle for reading: host memory is mapped once more, and on a GPU readers and
   writers share one mapping. */
static struct gb_mapped *mapping_for(const struct gb_grants *grants, struct gb_import *import)
{
    struct gpubuf_client *client = grants->client;
    struct gb_mapped *writing = import->mappings[1];
    struct gb_mapped *reading =
        grants->writable
            ? NULL
            : gb_imports_for_reading(&client->imports, client->daemon.instance, import);

    return writing && (!reading || gb_mapped_gpu(writing)) ? writing : reading;
}

/* The index of a segment among the lease's. Neighbours mostly share a segment, so the last one is
   tried first. */
static int lease_segment(struct placing *placing, uint64_t segment, uint64_t *index)
{
    struct gb_client_lease *lease = placing->lease;

    for (size_t i = lease->segment_count; i-- > 0;) {
        if (lease->segments[i].import->segment == segment) {
            *index = i;
            return 0;
        }
    }

    struct gb_imports *imports = &placing->grants->client->imports;
    struct gb_import *import = gb_imports_find(imports, segment);
    struct gb_mapped *mapping = import ? mapping_for(placing->grants, import) : NULL;
    if (!mapping)
        return missing_segment(placing->grants, segment, placing->error);

    if (lease->segment_count == lease->segment_capacity) {
        size_t capacity = lease->segment_capacity ? lease->segment_capacity * 2 : 2;
        struct gb_client_lease_segment *segments =
            gb_pool_alloc(&lease->pool, capacity * sizeof(*segments));
        if (!segments)
            return gb_fail_memory(placing->error);
        if (lease->segment_count)
            memcpy(segments, lease->segments, lease->segment_count * sizeof(*segments));
        lease->segments = segments;
        lease->segment_capacity = capacity;
    }
    gb_imports_use(imports, import);
    *index = lease->segment_count++;
    lease->segments[*index] = (struct gb_client_lease_segment){
        .import = import,
        .address = gb_mapped_address(mapping),
    };
    return 0;
}

static int place_buffer(struct gb_buffer *buffer, void *arg)
{
    struct placing *placing = arg;

    if (buffer->bytes == 0) {
        buffer->segment = GB_NO_SEGMENT;
        return 0;
    }

    uint64_t index = 0;
    int r = lease_segment(placing, buffer->segment, &index);
    if (r != 0)
        return r;
    struct gb_import *import = placing->lease->segments[index].import;
    uint64_t room = gb_mapped_bytes(mapping_for(placing->grants, import));
    if (buffer->offset > room || buffer->bytes > room - buffer->offset)
        return gb_fail(placing->error, GPUBUF_E_PROTOCOL,
                       "a buffer at %" PRIu64 " of %" PRIu64 " bytes lies outside segment %" PRIu64
                       " of %" PRIu64 " bytes",
                       buffer->offset, buffer->bytes, buffer->segment, room);
    buffer->segment = index;
    return 0;
}

/* ---- leases ---- */

struct object_members {
    struct gb_string name, device, ready, label;
    uint64_t version;
    bool live, foreign, final;
    struct gb_json layout;
};

/* Reads an object without its layout; strings lie in the pool of the message. */
static int read_members(struct gb_grants *grants, struct gb_json value,
                        struct object_members *members, struct gb_error *error)
{
    static const struct gb_field fields[] = {
        GB_FIELD(struct object_members, name, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0,
                 GB_LIMIT(name_bytes)),
        GB_FIELD(struct object_members, version, GB_FIELD_UINT, 0, 0, 0),
        GB_FIELD(struct object_members, device, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, 64),
        GB_FIELD(struct object_members, layout, GB_FIELD_OBJECT, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct object_members, ready, GB_FIELD_STRING, 0, 0, 0),
        GB_FIELD(struct object_members, label, GB_FIELD_STRING, 0, 0, GB_LIMIT(label_bytes)),
        GB_FIELD(struct object_members, live, GB_FIELD_BOOL, 0, 0, 0),
        GB_FIELD(struct object_members, foreign, GB_FIELD_BOOL, 0, 0, 0),
        GB_FIELD(struct object_members, final, GB_FIELD_BOOL, 0, 0, 0),
    };
    struct gb_path path = {.key = "object"};

    *members = (struct object_members){.version = 0};
    return gb_json_read(value, fields, sizeof(fields) / sizeof(fields[0]), GB_UNKNOWN_IGNORE, &path,
                        &grants->client->pool, members, NULL, error);
}

static size_t rounded(size_t size)
{
    return (size + 15) & ~(size_t)15;
}

/* The memory that a lease and its parts will take. It is exact in the common case, since touching
   memory is most of the cost of an open. A layout with arrays (columns, children, extents) or
   metadata takes more memory than its text. */
static size_t lease_bytes(const struct object_members *members)
{
    struct gb_json layout = members->layout, key, item;
    struct gb_json_walk walk = gb_json_walk(layout);
    bool flat = true;

    while (flat && gb_json_next(&walk, &key, &item))
        flat = gb_json_type(item) != GB_JSON_ARRAY && !gb_json_is(key, "metadata");
    return rounded(sizeof(struct gb_client_lease)) + rounded(sizeof(struct gpubuf_object)) +
           2 * sizeof(struct gb_client_lease_segment) + rounded(members->name.length + 1) +
           rounded(members->device.length + 1) +
           (members->label.text ? rounded(members->label.length + 1) : 0) +
           (flat ? 0 : gb_json_length(layout) * 3 + 256);
}

static struct gb_client_lease *lease_new(const struct object_members *members)
{
    size_t size = lease_bytes(members), used = rounded(sizeof(struct gb_client_lease));
    struct gb_client_lease *lease = malloc(size);

    if (!lease)
        return NULL;
    memset(lease, 0, sizeof(*lease));
    gb_pool_lend(&lease->pool, (char *)lease + used, size - used);
    lease->root = gb_pool_alloc(&lease->pool, sizeof(struct gpubuf_object));
    lease->name = gb_pool_strndup(&lease->pool, members->name.text, members->name.length);
    lease->device = gb_pool_strndup(&lease->pool, members->device.text, members->device.length);
    if (members->label.text) {
        lease->label = gb_pool_strndup(&lease->pool, members->label.text, members->label.length);
        if (!lease->label) {
            gb_client_lease_free(lease);
            return NULL;
        }
    }
    lease->keep = -1;
    atomic_init(&lease->version, members->version);
    return lease;
}

/* Reads the handle of the event that passes when the producer's work is done. */
static int read_ready(struct gb_client_lease *lease, const struct gb_string *text,
                      struct gb_error *error)
{
    unsigned char handle[GB_IPC_BYTES];

    if (!text->text)
        return 0;
    if (gb_base64_decode(text->text, text->length, handle, sizeof(handle)) != GB_IPC_BYTES)
        return gb_fail(error, GPUBUF_E_PROTOCOL, "object.ready: expected base64 of %d octets",
                       GB_IPC_BYTES);
    struct gb_ready *ready = gb_ready_new(handle, NULL);
    if (!ready)
        return gb_fail_memory(error);
    atomic_init(&lease->ready, ready);
    return 0;
}

static int make_lease(struct gb_grants *grants, uint64_t id, struct gb_json object,
                      struct gpubuf_object **out, struct gb_error *error)
{
    struct object_members members;
    struct gb_path path = {.key = "object"}, layout = {.up = &path, .key = "layout"};
    int r = read_members(grants, object, &members, error);

    if (r < 0)
        return r;
    struct gb_client_lease *lease = lease_new(&members);
    if (!lease)
        return gb_fail_memory(error);
    lease->client = grants->client;
    lease->id = id;
    lease->access.writable = grants->writable;
    lease->access.live = members.live;
    lease->access.content = !members.foreign ? GB_CONTENT_OWN
                            : members.final  ? GB_CONTENT_FINAL
                                             : GB_CONTENT_FOREIGN;
    atomic_init(&lease->state,
                grants->writable && !lease->access.live ? GB_LEASE_OPEN : GB_LEASE_SEALED);
    atomic_init(&lease->references, 1);

    struct placing placing = {grants, lease, error};
    r = read_ready(lease, &members.ready, error);
    if (r == 0)
        r = gb_layout_read(members.layout, GB_LAYOUT_REPLY, &layout, &lease->pool, &lease->layout,
                           error);
    if (r == 0)
        r = gb_layout_each(&lease->layout, place_buffer, &placing);
    if (r != 0) {
        gb_client_lease_discard(lease);
        return r;
    }
    gb_object_init_root(lease->root, lease);
    gb_client_lease_add(lease);
    *out = lease->root;
    return 0;
}

int gb_grants_make_lease(struct gb_grants *grants, uint64_t lease, struct gb_json object,
                         struct gpubuf_object **out, struct gb_error *error)
{
    int r = make_lease(grants, lease, object, out, error);

    if (r == GPUBUF_E_INVALID || r == GPUBUF_E_LIMIT)
        r = error->code = GPUBUF_E_PROTOCOL; /* the daemon's fault, not the caller's */
    if (r != 0)
        gb_push_release(grants->client, lease);
    return r;
}

int gb_grants_make_cached_lease(struct gb_grants *grants, uint64_t lease, uint64_t slot,
                                struct gb_json object, struct gpubuf_object **out,
                                struct gb_error *error)
{
    int r = gb_grants_make_lease(grants, lease, object, out, error);

    if (r != 0)
        return r;
    (*out)->lease->slot = slot;
    gb_cached_list((*out)->lease);
    return 0;
}
