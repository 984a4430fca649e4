#include "client/peer/content/described.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int gb_peer_described_ask(struct gpubuf_client *client, const char *name, gpubuf_call_cb callback,
                          void *arg)
{
    struct gb_writer writer;

    gb_writer_init(&writer, 0);
    gb_write_pattern(&writer, "{'name':%s}", name);
    char *params = gb_writer_take(&writer, NULL);
    gb_writer_end(&writer);
    int r = params ? gpubuf_call_async(client, "stat", params, callback, arg, NULL)
                   : GPUBUF_E_NO_MEMORY;
    free(params);
    return r;
}

int gb_peer_described_answer(const char *text, size_t length, struct gb_pool *pool,
                             struct gb_peer_described *described, struct gb_error *error)
{
    static const struct gb_field outer[] = {
        {.name = "object", .type = GB_FIELD_OBJECT, .flags = GB_FIELD_REQUIRED},
    };
    static const struct gb_field fields[] = {
        GB_FIELD(struct gb_peer_described, name, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct gb_peer_described, state, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct gb_peer_described, device, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct gb_peer_described, mode, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct gb_peer_described, label, GB_FIELD_STRING, 0, 0, 0),
        GB_FIELD(struct gb_peer_described, ready, GB_FIELD_STRING, 0, 0, 0),
        GB_FIELD(struct gb_peer_described, scope, GB_FIELD_STRING, 0, 0, 0),
        GB_FIELD(struct gb_peer_described, version, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct gb_peer_described, bytes, GB_FIELD_UINT, 0, 0, 0),
        GB_FIELD(struct gb_peer_described, gid, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct gb_peer_described, created_ms, GB_FIELD_UINT, 0, 0, 0),
        GB_FIELD(struct gb_peer_described, layout, GB_FIELD_OBJECT, 0, 0, 0),
    };
    struct gb_path path = {.key = "object"};
    struct gb_json object = {0};

    *described = (struct gb_peer_described){0};
    int r = gb_json_read_text(text, length, outer, 1, "result", pool, &object, error);
    if (r == 0)
        r = gb_json_read(object, fields, sizeof(fields) / sizeof(fields[0]), GB_UNKNOWN_IGNORE,
                         &path, pool, described, NULL, error);
    return r;
}

/* The part of an object's mode that a copy of it has. */
static unsigned shared_mode(unsigned mode, uint64_t gid)
{
    return 0600 | (gid == getegid() ? mode & 040 : 0) | (mode & 04);
}

unsigned gb_peer_described_mode(const struct gb_peer_described *described)
{
    return shared_mode((unsigned)strtoul(described->mode.text, NULL, 8), described->gid);
}

bool gb_peer_described_publishes(const struct gpubuf_info *info)
{
    return info->scope == GPUBUF_SCOPE_CLUSTER && (shared_mode(info->mode, info->gid) & 044) != 0;
}

bool gb_peer_described_shared(const struct gb_peer_described *described,
                              const struct gb_peer_copies *copies)
{
    const struct gb_peer_copy *copy = gb_peer_copies_find(copies, described->name.text);
    bool cluster = described->scope.text && strcmp(described->scope.text, "cluster") == 0;

    return (cluster || (copy && copy->version == described->version)) &&
           strcmp(described->state.text, "sealed") == 0 &&
           (gb_peer_described_mode(described) & 044) != 0;
}
