#include "client/lib/wire/release.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/wire/output.h"

#define RELEASES_A_MESSAGE GB_LIMIT(ids)

/* The message that a lease's number is sent with, in the number's top bits. */
#define RELEASE UINT64_C(0)
#define CACHED (UINT64_C(2) << 62)
#define USED (UINT64_C(3) << 62)
#define WHAT(number) ((number)&USED)

/* Begins {"…","params":{"MEMBER":[ */
static struct gb_writer *begin_notice(struct gpubuf_client *client, const char *method,
                                      const char *member)
{
    struct gb_writer *writer = gb_notice_begin(client, method);

    gb_write_char(writer, '{');
    gb_write_cstring(writer, member);
    GB_WRITE_LITERAL(writer, ":[");
    return writer;
}

static bool queue_numbers(struct gpubuf_client *client, const char *method, const char *member,
                          const uint64_t *numbers, size_t count, const char *end)
{
    struct gb_writer *writer = begin_notice(client, method, member);

    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            gb_write_char(writer, ',');
        gb_write_uint(writer, numbers[i] & ~USED);
    }
    gb_write_text(writer, end);
    return gb_notice_queue(client);
}

/* Takes `count` numbers off the front of an array. */
static void drop_front(uint64_t *numbers, size_t *total, size_t count)
{
    *total -= count;
    memmove(numbers, numbers + count, *total * sizeof(*numbers));
}

/* Releases that cannot be queued now, for want of memory, go with the next message. */
static void queue_leases(struct gpubuf_client *client)
{
    while (client->releases.count > 0) {
        size_t count = 0;
        uint64_t what = WHAT(client->releases.ids[0]);
        while (count < client->releases.count && count < RELEASES_A_MESSAGE &&
               WHAT(client->releases.ids[count]) == what)
            count++;
        if (!queue_numbers(client, what == RELEASE ? "release" : "cache", "leases",
                           client->releases.ids, count, what == USED ? "],\"used\":true}" : "]}"))
            return;
        drop_front(client->releases.ids, &client->releases.count, count);
    }
}

bool gb_queue_unmaps(struct gpubuf_client *client)
{
    struct gb_imports *imports = &client->imports;

    if (client->end.lost.code || client->end.write_failed || client->link != GB_LINK_UP)
        return true;
    while (imports->unmap_count > 0) {
        size_t count = imports->unmap_count;
        if (count > RELEASES_A_MESSAGE)
            count = RELEASES_A_MESSAGE;
        if (!queue_numbers(client, "unmap", "segments", imports->unmap, count, "]}"))
            return false;
        drop_front(imports->unmap, &imports->unmap_count, count);
    }
    return true;
}

void gb_queue_releases(struct gpubuf_client *client)
{
    client->flush.overdue = false;
    if (client->end.lost.code || client->end.write_failed || client->link != GB_LINK_UP)
        return;
    queue_leases(client);
    (void)gb_queue_unmaps(client);
}

void gb_flush_releases(struct gpubuf_client *client)
{
    gb_queue_releases(client);
    gb_flush(client);
}

int gb_reserve_releases(struct gpubuf_client *client, size_t more)
{
    size_t wanted = client->releases.leases + client->releases.count + more;

    if (wanted <= client->releases.capacity)
        return 0;
    size_t capacity = client->releases.capacity ? client->releases.capacity : 64;
    while (capacity < wanted)
        capacity *= 2;
    uint64_t *released = realloc(client->releases.ids, capacity * sizeof(*released));
    if (!released)
        return GPUBUF_E_NO_MEMORY;
    client->releases.ids = released;
    client->releases.capacity = capacity;
    return 0;
}

static void push(struct gpubuf_client *client, uint64_t number)
{
    if (client->end.lost.code || client->link != GB_LINK_UP)
        return;
    assert(client->releases.count < client->releases.capacity);
    client->releases.ids[client->releases.count++] = number;
}

void gb_push_release(struct gpubuf_client *client, uint64_t lease)
{
    push(client, lease);
}

void gb_push_cached(struct gpubuf_client *client, uint64_t lease, bool used)
{
    push(client, lease | (used ? USED : CACHED));
}
