#include "client/peer/content/lease.h"

#include <stdlib.h>

static int describe(struct gb_peer_lease *lease, struct gb_layout *layout, struct gb_error *error)
{
    struct gb_writer writer;

    gb_writer_init(&writer, GB_LIMIT(line_bytes) / 2);
    gb_layout_write(&writer, layout, GB_LAYOUT_CREATE);
    bool large = writer.failed;
    lease->layout = gb_writer_take(&writer, NULL);
    gb_writer_end(&writer);
    if (large || !lease->layout)
        return gb_fail(error, GPUBUF_E_LIMIT, "its layout is too long to be sent");
    return 0;
}

struct gb_peer_lease *gb_peer_lease_new(struct gpubuf_object *object, struct gb_layout *described,
                                        struct gb_error *error)
{
    struct gb_peer_lease *lease = calloc(1, sizeof(*lease));
    int r = lease ? 0 : gb_fail_memory(error);

    if (r == 0)
        r = gb_peer_content_of(&lease->content, object, described, error);
    if (r == 0)
        r = describe(lease, described, error);
    if (lease) {
        lease->uses = 1;
        lease->object = gpubuf_retain(object);
    }
    if (r < 0) {
        gb_peer_lease_drop(lease);
        return NULL;
    }
    return lease;
}

struct gb_peer_lease *gb_peer_lease_use(struct gb_peer_lease *lease)
{
    lease->uses++;
    return lease;
}

void gb_peer_lease_drop(struct gb_peer_lease *lease)
{
    if (!lease || --lease->uses > 0)
        return;
    gb_peer_content_end(&lease->content);
    gpubuf_release(lease->object);
    free(lease->layout);
    free(lease);
}

int gb_peer_lease_chunk(struct gb_peer_lease *lease, uint64_t chunk, struct gb_staging **block,
                        const void **bytes, uint64_t *sum, struct gb_error *error)
{
    int r = gb_peer_content_read(&lease->content, chunk, block, bytes, error);

    if (r < 0)
        return r;
    *sum = gb_peer_content_sum(*bytes, gb_peer_content_chunk_bytes(lease->content.bytes, chunk));
    return 0;
}
