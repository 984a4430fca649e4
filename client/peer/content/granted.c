#include "client/peer/content/granted.h"

#include <stdlib.h>

#include "client/peer/link/lane.h"

static int check(const struct gb_peer_granted *granted, struct gb_error *error)
{
    uint64_t bytes;

    if (!gb_peer_content_bytes(&granted->layout, &bytes) || bytes != granted->content)
        return gb_fail(error, GPUBUF_E_PROTOCOL, "its layout has another length than it announces");
    if (granted->mode & ~0644u)
        return gb_fail(error, GPUBUF_E_PROTOCOL, "its answer makes no sense");
    return 0;
}

int gb_peer_granted_read(const char *text, size_t length, struct gb_pool *pool,
                         struct gb_peer_granted *granted, struct gb_error *error)
{
    static const struct gb_field fields[] = {
        GB_FIELD(struct gb_peer_granted, lease, GB_FIELD_UINT, GB_FIELD_REQUIRED, 1, 0),
        GB_FIELD(struct gb_peer_granted, content, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct gb_peer_granted, mode, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0777),
        GB_FIELD(struct gb_peer_granted, device, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct gb_peer_granted, label, GB_FIELD_STRING, 0, 0, GB_LIMIT(label_bytes)),
        {.name = "layout",
         .type = GB_FIELD_OBJECT,
         .flags = GB_FIELD_REQUIRED,
         .offset = offsetof(struct gb_peer_granted, described)},
    };
    struct gb_path path = {.key = "layout"};

    *granted = (struct gb_peer_granted){0};
    int r = gb_json_read_text(text, length, fields, sizeof(fields) / sizeof(fields[0]), "answer",
                              pool, granted, error);
    if (r == 0)
        r = gb_layout_read(granted->described, GB_LAYOUT_CREATE, &path, pool, &granted->layout,
                           error);
    if (r == 0)
        r = check(granted, error);
    return r == 0 || r == GPUBUF_E_NO_MEMORY ? r : GPUBUF_E_PROTOCOL;
}

uint64_t gb_peer_granted_lease(const char *text, size_t length)
{
    static const struct gb_field fields[] = {{.name = "lease", .type = GB_FIELD_UINT}};
    struct gb_pool pool = {0};
    struct gb_error unread;
    uint64_t lease = 0;

    if (gb_json_read_text(text, length, fields, 1, "answer", &pool, &lease, &unread) < 0)
        lease = 0;
    gb_pool_end(&pool);
    return lease;
}

int gb_peer_granted_sum(const char *text, size_t length, struct gb_pool *pool, uint64_t *sum,
                        struct gb_error *error)
{
    static const struct gb_field fields[] = {
        {.name = "sum", .type = GB_FIELD_STRING, .flags = GB_FIELD_REQUIRED, .max = 16},
    };
    struct gb_string digits = {0};
    char *end;

    int r = gb_json_read_text(text, length, fields, 1, "answer", pool, &digits, error);
    if (r < 0)
        return GPUBUF_E_PROTOCOL;
    *sum = strtoull(digits.text, &end, 16);
    return digits.length == 16 && !*end ? 0
                                        : gb_fail(error, GPUBUF_E_PROTOCOL, "its sum is no number");
}

int gb_peer_granted_word(const char *text, size_t length, struct gb_pool *pool,
                         struct gb_peer_word *word, struct gb_error *error)
{
    struct halves {
        struct gb_string described, content;
    } halves = {0};
    static const struct gb_field fields[] = {
        GB_FIELD(struct halves, described, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, 64),
        GB_FIELD(struct halves, content, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, 64),
    };

    if (gb_json_read_text(text, length, fields, 2, "answer", pool, &halves, error) < 0)
        return GPUBUF_E_PROTOCOL;
    return gb_peer_word_read(word, &halves.described, &halves.content)
               ? 0
               : gb_fail(error, GPUBUF_E_PROTOCOL, "its word is no number");
}

int gb_peer_granted_address(const char *text, size_t length, struct gb_pool *pool,
                            struct gb_string *address, struct gb_error *error)
{
    static const struct gb_field fields[] = {
        {.name = "address",
         .type = GB_FIELD_STRING,
         .flags = GB_FIELD_REQUIRED,
         .max = GB_PEER_LANE_ADDRESS_MOST},
    };

    return gb_json_read_text(text, length, fields, 1, "answer", pool, address, error) < 0
               ? GPUBUF_E_PROTOCOL
               : 0;
}
