/*
 * Checks the content of objects, for fuzz_request.c: producers write until they seal, and from then
 * on a version keeps its content and its name, whatever is spilled, restored or crashes.
 *
 * After each turn the first and the last bytes of what lies on a device are looked at. They are
 * read from the memory of segments, so the server does not have to be asked. Include it in one
 * file.
 */
#ifndef GB_FUZZ_REQUEST_CONTENT_H
#define GB_FUZZ_REQUEST_CONTENT_H

#include "demand.h"
#include "tests/unit/inside.h"

enum { CONTENT_VERSIONS = 4096, CONTENT_SAMPLE = 64 };

struct sample {
    unsigned char first[CONTENT_SAMPLE], last[CONTENT_SAMPLE];
};

/* Each version's content when it was first seen, by its number. */
static struct content {
    bool known; /* whether its content has been seen */
    uint64_t name, bytes;
    struct sample sample;
} contents[CONTENT_VERSIONS];
static uint64_t content_versions, content_written;

static void content_forget(void)
{
    memset(contents, 0, content_versions * sizeof(*contents));
    content_versions = content_written = 0;
}

static size_t content_length(const struct gb_storage *storage)
{
    return storage->size < CONTENT_SAMPLE ? (size_t)storage->size : CONTENT_SAMPLE;
}

/* Whether the last bytes are looked at too: not if the storage lies in several memories. */
static bool content_has_last(const struct gb_storage *storage)
{
    return storage->placement_count == 1 && !storage->adopted;
}

static off_t content_last(const struct gb_storage *storage)
{
    return (off_t)(gb_placement_offset(&storage->placements[0]) + storage->size -
                   content_length(storage));
}

/* Whether the storage has bytes that can be looked at; *fd becomes the memory that has them. */
static bool content_is_here(const struct gb_storage *storage, int *fd)
{
    if (!storage->resident || storage->placement_count == 0 || storage->size == 0)
        return false;
    *fd = storage->placements[0].segment->memory.read_fd;
    return *fd >= 0;
}

/* Writes to the memory as its producer does, who has it mapped. */
static void content_write(const struct gb_storage *storage)
{
    int fd = -1;
    struct sample sample;

    if (!content_is_here(storage, &fd) || storage->adopted)
        return;
    fd = storage->placements[0].segment->memory.write_fd;
    memset(&sample, (int)(1 + content_written++ % 255), sizeof(sample));
    DEMAND(pwrite(fd, sample.first, content_length(storage),
                  (off_t)gb_placement_offset(&storage->placements[0])) ==
           (ssize_t)content_length(storage));
    if (content_has_last(storage))
        DEMAND(pwrite(fd, sample.last, content_length(storage), content_last(storage)) ==
               (ssize_t)content_length(storage));
}

static void content_read(const struct gb_storage *storage, int fd, struct sample *sample)
{
    memset(sample, 0, sizeof(*sample));
    DEMAND(pread(fd, sample->first, content_length(storage),
                 (off_t)gb_placement_offset(&storage->placements[0])) >= 0);
    if (content_has_last(storage))
        DEMAND(pread(fd, sample->last, content_length(storage), content_last(storage)) >= 0);
}

static uint64_t content_name(const struct gb_object *object)
{
    uint64_t hash = 14695981039346656037u;

    for (size_t i = 0; i < object->name_length; i++)
        hash = (hash ^ (unsigned char)object->name[i]) * 1099511628211u;
    return hash;
}

/* Checks that a sealed object's version has the content it had before. */
static void content_check(const struct gb_object *object)
{
    struct content *content = &contents[object->version % CONTENT_VERSIONS];
    struct sample sample;
    int fd = -1;

    DEMAND(object->version < CONTENT_VERSIONS);
    if (object->version >= content_versions)
        content_versions = object->version + 1;
    if (content->name == 0) {
        content->name = content_name(object);
        content->bytes = object->bytes;
    }
    DEMAND(content->name == content_name(object) && content->bytes == object->bytes);
    if (object->unsettled || !content_is_here(object->storage, &fd))
        return;
    content_read(object->storage, fd, &sample);
    if (!content->known)
        content->sample = sample;
    content->known = true;
    DEMAND(memcmp(&content->sample, &sample, sizeof(sample)) == 0);
}

/* An object that somebody holds. */
static void content_held(const struct gb_object *object)
{
    if (object->version > 0)
        content_check(object);
    else
        content_write(object->storage);
}

/* To be called after each turn. */
static void content_turn(const struct gb_server *server)
{
    for (const struct gb_name *name = gb_names_lower(&server->registry.names, "", 0, false); name;
         name = gb_names_next(name))
        content_check(GB_CONTAINER(name, struct gb_object, index));
    GB_LIST_EACH(&server->sessions, struct gb_session, session, of_server)
        GB_LIST_EACH(&session->holder.leases, const struct gb_lease, lease, of_holder)
            content_held(lease->object);
    for (size_t i = 0; i < server->state.object_count; i++)
        content_held(server->state.objects[i]);
}

#endif
