/* Publishing a .safetensors file as a bundle, which has the file's bytes unchanged in memory. */
#include "put_safetensors.h"

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

static int no_safetensors(struct gb_put *put, const char *why)
{
    return gb_cli_fail(GB_STATUS_FAILED, "%s: is no .safetensors file: %s", put->input.name, why);
}

int gb_put_manifest(struct gb_put *put, char **text, uint64_t *length,
                    struct gpubuf_bundle **bundle)
{
    unsigned char prefix[PREFIX];
    uint64_t total = put->input.bytes, got, count;
    char why[160];

    if (put->input.bytes == GB_FILE_UNKNOWN)
        return gb_cli_usage(put->cli, "a .safetensors file is read from a file, not from a pipe");
    if (gb_put_read(put, prefix, PREFIX, &got) != 0)
        return gb_put_failure(put);
    count = read_length(prefix);
    if (got < PREFIX || count > total - PREFIX || count > MANIFEST_MAX) {
        (void)snprintf(why, sizeof(why),
                       got < PREFIX
                           ? "it has %" PRIu64 " bytes, and needs 8 for its manifest's length"
                           : "it has %" PRIu64 " bytes, and its manifest would have %" PRIu64,
                       total, count);
        return no_safetensors(put, why);
    }
    char *bytes = malloc(PREFIX + count + 1);
    if (!bytes) {
        gb_fail_memory(&put->error);
        return gb_put_failure(put);
    }
    memcpy(bytes, prefix, PREFIX);
    int status = GB_STATUS_OK;
    if (gb_put_read(put, bytes + PREFIX, count, &got) != 0)
        status = gb_put_failure(put);
    else if (got < count)
        status = no_safetensors(put, "it ends inside its manifest");
    else if (gpubuf_bundle_parse(bytes + PREFIX, count, total, bundle) < 0)
        status = no_safetensors(put, gpubuf_errmsg(NULL));
    if (status != GB_STATUS_OK) {
        free(bytes);
        return status;
    }
    *text = bytes;
    *length = PREFIX + count;
    return GB_STATUS_OK;
}

int gb_put_create_bundle(struct gb_put *put, const struct gpubuf_bundle *bundle, const void *head,
                         uint64_t length)
{
    struct gpubuf_layout_spec layout;

    if (put->kind != GB_PUT_AUTO)
        return gb_cli_usage(put->cli, "a .safetensors file becomes a bundle: leave --kind out, or "
                                      "say --format raw to take the file's bytes as they are");
    gpubuf_bundle_layout(bundle, &layout);
    int status = gb_put_create(put, &layout);
    if (status != GB_STATUS_OK)
        return status;
    int code = gpubuf_write(put->object, GPUBUF_DATA, 0, head, length, NULL);
    return code < 0 ? gb_cli_error(put->cli, code, "cannot write %s", put->name) : GB_STATUS_OK;
}

int gb_put_safetensors(struct gb_put *put)
{
    struct gpubuf_bundle *bundle = NULL;
    struct gpubuf_layout_spec layout;
    char *head = NULL, byte;
    uint64_t length = 0, got = 0;

    int status = gb_put_manifest(put, &head, &length, &bundle);
    if (status != GB_STATUS_OK)
        return status;
    gpubuf_bundle_layout(bundle, &layout);
    status = gb_put_create_bundle(put, bundle, head, length);
    if (status == GB_STATUS_OK)
        status = gb_put_stream(put, length, layout.bytes - length);
    if (status == GB_STATUS_OK && gb_put_read(put, &byte, 1, &got) != 0)
        status = gb_put_failure(put);
    if (status == GB_STATUS_OK && got > 0)
        status = gb_cli_fail(GB_STATUS_FAILED, "%s: grew while it was read", put->input.name);
    gpubuf_bundle_free(bundle);
    free(head);
    return status;
}
