/* Publishing a .safetensors file as a bundle, which has the file's bytes unchanged in memory. */
#include "client/gpubufctl/data/put_safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { PREFIX = 8, MANIFEST_MAX = 100000000 };

static uint64_t read_length(const unsigned char *bytes)
{
    uint64_t length = 0;

    for (unsigned i = PREFIX; i-- > 0;)
        length = length << 8 | bytes[i];
    return length;
}

static _Noreturn void no_safetensors(const struct gb_put *put, const char *why)
{
    gb_cli_fail(GB_STATUS_FAILED, "%s: is no .safetensors file: %s", put->input.name, why);
}

struct gpubuf_bundle *gb_put_manifest(struct gb_put *put, char **text, uint64_t *length)
{
    unsigned char prefix[PREFIX];
    uint64_t total = put->input.bytes;
    struct gpubuf_bundle *bundle = NULL;
    char why[160];

    if (total == GB_FILE_UNKNOWN)
        gb_cli_usage(put->cli, "a .safetensors file is read from a file, not from a pipe");
    uint64_t got = gb_put_read(put, prefix, PREFIX), count = read_length(prefix);
    if (got < PREFIX || count > total - PREFIX || count > MANIFEST_MAX) {
        (void)snprintf(why, sizeof(why),
                       got < PREFIX
                           ? "it has %" PRIu64 " bytes, and needs 8 for its manifest's length"
                           : "it has %" PRIu64 " bytes, and its manifest would have %" PRIu64,
                       total, count);
        no_safetensors(put, why);
    }
    *text = gb_new(PREFIX + count + 1, 1);
    *length = PREFIX + count;
    memcpy(*text, prefix, PREFIX);
    if (gb_put_read(put, *text + PREFIX, count) < count)
        no_safetensors(put, "it ends inside its manifest");
    if (gpubuf_bundle_parse(*text + PREFIX, count, total, &bundle) < 0)
        no_safetensors(put, gpubuf_errmsg(NULL));
    return bundle;
}

void gb_put_create_bundle(struct gb_put *put, const struct gpubuf_bundle *bundle, const void *head,
                          uint64_t length)
{
    struct gpubuf_layout_spec layout;

    if (put->kind != GB_PUT_AUTO)
        gb_cli_usage(put->cli, "a .safetensors file becomes a bundle: leave --kind out, or give "
                               "--format raw to take the file's bytes as they are");
    gpubuf_bundle_layout(bundle, &layout);
    gb_put_create(put, &layout);
    gb_cli_check(put->cli, gpubuf_write(put->object, GPUBUF_DATA, 0, head, length, NULL),
                 "cannot write %s", put->name);
}

void gb_put_safetensors(struct gb_put *put)
{
    struct gpubuf_layout_spec layout;
    char *head, byte;
    uint64_t length;
    struct gpubuf_bundle *bundle = gb_put_manifest(put, &head, &length);

    gpubuf_bundle_layout(bundle, &layout);
    gb_put_create_bundle(put, bundle, head, length);
    gb_put_stream(put, length, layout.bytes - length);
    if (gb_put_read(put, &byte, 1) > 0)
        gb_cli_fail(GB_STATUS_FAILED, "%s: grew while it was read", put->input.name);
    gpubuf_bundle_free(bundle);
    free(head);
}
