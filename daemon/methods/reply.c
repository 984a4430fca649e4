#include "daemon/methods/reply.h"
#include "daemon/base/failure.h"
#include "daemon/objects/text.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static bool noted(const struct gb_segments *segments, const struct gb_segment *segment)
{
    for (unsigned i = 0; i < segments->count; i++)
        if (segments->items[i].segment == segment)
            return true;
    return false;
}

/* A descriptor to send. A writer gets a memfd opened anew: if it had a duplicate, flags that it
   sets (O_APPEND) would also be those of the daemon's descriptor, by which content is restored. */
static int segment_fd(const struct gb_segment *segment, enum gb_access access)
{
    const struct gb_memory *memory = &segment->memory;
    char path[48];

    if (access == GB_ACCESS_WRITE && memory->kind == GB_HANDLE_MEMFD) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", memory->write_fd);
        return open(path, O_RDWR | O_CLOEXEC);
    }
    return fcntl(access == GB_ACCESS_WRITE ? memory->write_fd : memory->read_fd, F_DUPFD_CLOEXEC,
                 3);
}

/* Adds one segment to the reply, and to the session's mappings. */
static int note_segment(struct gb_call *call, struct gb_segments *segments,
                        struct gb_segment *segment, enum gb_access had, enum gb_access access)
{
    bool by_fd = segment->memory.kind != GB_HANDLE_CUDA_IPC;
    int fd;

    if (by_fd && gb_user_may_charge(call->session->user, GB_STOCK_OPEN, call->reply_fd_count + 1,
                                    &call->error) < 0)
        return call->error.code;
    fd = by_fd ? segment_fd(segment, access) : -1;
    if (by_fd && fd < 0)
        return gb_fail_call(&call->error, "the daemon cannot open another descriptor");
    if (gb_mapper_add(&call->server->store, &call->session->mapper, segment, access) < 0) {
        if (by_fd)
            close(fd);
        return gb_call_no_memory(call);
    }
    segments->items[segments->count].segment = segment;
    segments->items[segments->count].access = access;
    segments->items[segments->count].had = had;
    segments->items[segments->count++].fd_index = by_fd ? (int)call->reply_fd_count : -1;
    if (by_fd)
        call->reply_fds[call->reply_fd_count++] = fd;
    return 0;
}

/* Undoes the last note_segment(). */
static void undo_last(struct gb_call *call, struct gb_segments *segments)
{
    const struct gb_segment *segment = segments->items[--segments->count].segment;
    struct gb_mapping *mapping =
        gb_mapper_find(&call->server->store, &call->session->mapper, segment->id);

    if (segments->items[segments->count].fd_index >= 0)
        close(call->reply_fds[--call->reply_fd_count]);
    if (segments->items[segments->count].had != GB_ACCESS_NONE)
        mapping->access = segments->items[segments->count].had;
    else
        gb_mapping_end(&call->server->store, mapping);
}

void gb_segments_forget(struct gb_call *call, struct gb_segments *segments, unsigned count)
{
    while (segments->count > count)
        undo_last(call, segments);
}

int gb_segments_add(struct gb_call *call, struct gb_segments *segments,
                    const struct gb_storage *storage, enum gb_access access, bool all)
{
    const struct gb_store *store = &call->server->store;
    const struct gb_mapper *mapper = &call->session->mapper;
    struct gb_segment *wanted[GB_LIMIT(fds)];
    enum gb_access had[GB_LIMIT(fds)];
    unsigned count = 0, entered;

    for (unsigned i = 0; i < storage->placement_count; i++) {
        struct gb_segment *segment = storage->placements[i].segment;
        const struct gb_mapping *mapping = gb_mapper_find(store, mapper, segment->id);

        if (noted(segments, segment) || (!all && mapping && mapping->access >= access))
            continue;
        had[count] = mapping ? mapping->access : GB_ACCESS_NONE;
        wanted[count++] = segment;
    }
    if (segments->count + count > GB_LIMIT(fds))
        return 1;
    for (entered = 0; entered < count; entered++) {
        int r = note_segment(call, segments, wanted[entered], had[entered], access);

        if (r == 0)
            continue;
        gb_segments_forget(call, segments, segments->count - entered);
        return r;
    }
    return 0;
}

void gb_segments_write(struct gb_writer *writer, const struct gb_segments *segments)
{
    GB_WRITE_LITERAL(writer, "\"segments\":[");
    for (unsigned i = 0; i < segments->count; i++) {
        const struct gb_segment *segment = segments->items[i].segment;
        struct gb_segment_info info = {
            .id = segment->id,
            .device = segment->device->id,
            .bytes = segment->bytes,
            .writable = segments->items[i].access == GB_ACCESS_WRITE,
            .handle = {.kind = segment->memory.kind,
                       .fd = (uint64_t)segments->items[i].fd_index,
                       .uuid = segment->device->id},
        };

        memcpy(info.handle.ipc, segment->memory.ipc, sizeof(info.handle.ipc));
        if (i > 0)
            gb_write_char(writer, ',');
        gb_segment_write(writer, &info);
    }
    gb_write_char(writer, ']');
}

void gb_lease_write(struct gb_writer *writer, const struct gb_lease *lease, bool brief)
{
    GB_WRITE_UINT(writer, "\"lease\":", lease->id);
    if (lease->slot) {
        GB_WRITE_UINT(writer, ",\"slot\":", lease->slot - 1);
    }
    if (lease->exclusive) {
        GB_WRITE_UINT(writer, ",\"generation\":", lease->object->live->generation);
    }
    GB_WRITE_LITERAL(writer, ",\"object\":");
    if (brief)
        gb_object_write_essence(writer, lease->object, lease->holder->user);
    else
        gb_object_write(writer, lease->object, GB_WITH_LAYOUT, 0);
}

int gb_call_grant(struct gb_call *call, const struct gb_lease *lease, bool brief,
                  const struct gb_segments *segments)
{
    gb_call_begin_result(call);
    gb_write_char(call->writer, '{');
    gb_lease_write(call->writer, lease, brief);
    gb_write_char(call->writer, ',');
    gb_segments_write(call->writer, segments);
    gb_write_char(call->writer, '}');
    return GB_DONE;
}
