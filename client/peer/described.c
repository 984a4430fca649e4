#include "client/peer/described.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int gb_described_read(struct gb_json object, struct gb_pool *pool, struct gb_described *described,
                      struct gb_error *error)
{
    static const struct gb_field fields[] = {
        GB_FIELD(struct gb_described, name, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct gb_described, state, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct gb_described, device, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct gb_described, mode, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct gb_described, label, GB_FIELD_STRING, 0, 0, 0),
        GB_FIELD(struct gb_described, scope, GB_FIELD_STRING, 0, 0, 0),
        GB_FIELD(struct gb_described, version, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct gb_described, bytes, GB_FIELD_UINT, 0, 0, 0),
        GB_FIELD(struct gb_described, uid, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct gb_described, gid, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct gb_described, created_ms, GB_FIELD_UINT, 0, 0, 0),
        GB_FIELD(struct gb_described, layout, GB_FIELD_OBJECT, 0, 0, 0),
    };
    struct gb_path path = {.key = "object"};

    *described = (struct gb_described){0};
    return gb_json_read(object, fields, sizeof(fields) / sizeof(fields[0]), GB_UNKNOWN_IGNORE,
                        &path, pool, described, NULL, error);
}

int gb_described_answer(const char *text, size_t length, struct gb_pool *pool,
                        struct gb_described *described, struct gb_error *error)
{
    static const struct gb_field fields[] = {
        {.name = "object", .type = GB_FIELD_OBJECT, .flags = GB_FIELD_REQUIRED},
    };
    struct gb_path path = {.key = "result"};
    struct gb_json answer, object = {0};

    int r = gb_json_check(text, length, pool, &answer, error);
    if (r == 0)
        r = gb_json_read(answer, fields, 1, GB_UNKNOWN_IGNORE, &path, pool, &object, NULL, error);
    return r == 0 ? gb_described_read(object, pool, described, error) : r;
}

static unsigned mode_of(const struct gb_described *described)
{
    return (unsigned)strtoul(described->mode.text, NULL, 8);
}

unsigned gb_described_mode(const struct gb_described *described)
{
    unsigned group = described->gid == getegid() ? mode_of(described) & 040 : 0;

    return 0600 | group | (mode_of(described) & 04);
}

bool gb_described_shared(const struct gb_described *described, const struct gb_copies *copies)
{
    const struct gb_copy *copy = copies ? gb_copies_find(copies, described->name.text) : NULL;
    bool cluster = described->scope.text && strcmp(described->scope.text, "cluster") == 0;

    return (cluster || (copy && copy->version == described->version)) &&
           strcmp(described->state.text, "sealed") == 0 &&
           (gb_described_mode(described) & 044) != 0;
}
