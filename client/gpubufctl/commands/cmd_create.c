/* gpubufctl create NAME, and write NAME FILE: objects that are written while others read. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/gpubufctl/cli/parse.h"
#include "client/gpubufctl/commands/commands.h"
#include "client/gpubufctl/data/file.h"
#include "client/gpubufctl/data/view.h"
#include "client/gpubufctl/output/json_print.h"

enum { BYTES, DTYPE, SHAPE, DEVICE, SHARE, MODE, OWN, WAIT };

const struct gb_cli_option gb_create_options[] = {
    {"bytes", 'b', "SIZE", "size in bytes, such as 64M", NULL},
    {"dtype", 'd', "DTYPE", "or an array of this type, with --shape", NULL},
    {"shape", 's', "SHAPE", "its extents, such as 3,4", NULL},
    {"device", 'D', "DEVICE", "where to put it (the daemon's default)", "host"},
    {"share", 0, "HOW", "fd or ipc (fd)", "fd ipc"},
    {"mode", 'm', "MODE", "who may read (4) and write and replace (2) it, octal (600)",
     "600 640 644 660 666"},
    {"own", 0, NULL, "in a segment of its own", NULL},
    {"wait", 'w', "TIME", "how long to wait for memory (0)", NULL},
    {0},
};

enum { OFFSET, EXCLUSIVE, WRITE_WAIT };

const struct gb_cli_option gb_write_options[] = {
    {"offset", 'o', "SIZE", "from this byte on (0)", NULL},
    {"exclusive", 'x', NULL, "as its only writer", NULL},
    {"wait", 'w', "TIME", "how long to wait for the object and its other writers (0)", NULL},
    {0},
};

/* "pool: array of float32, 64 × 1024, live" */
static void print_made(const struct gb_cli *cli, const char *name, struct gpubuf_object *object)
{
    struct gb_writer text;

    if (cli->json) {
        gb_cjson_print_pattern("{'name':%s,'version':%" PRIu64 "}", name,
                               gpubuf_object_version(object));
        return;
    }
    gb_writer_init(&text, 0);
    gb_write_format(&text, "%s: ", name);
    gb_describe(object, &text);
    GB_WRITE_LITERAL(&text, ", live\n");
    gb_cli_print(&text);
}

void gb_cmd_create(struct gb_cli *cli, struct gb_cli_args *args)
{
    const char *name = args->value[0], *dtype = args->option[DTYPE];
    struct gpubuf_create_options options = {.size = sizeof(options),
                                            .device = args->option[DEVICE],
                                            .share = args->option[SHARE],
                                            .mode = (unsigned)args->number[MODE],
                                            .own = args->option[OWN] != NULL,
                                            .wait_ms = args->number[WAIT],
                                            .live = true};
    uint64_t shape[GB_PARSE_NDIM];
    struct gpubuf_layout_spec layout = {
        .dtype = dtype, .shape = shape, .bytes = (uint64_t)args->number[BYTES]};
    struct gpubuf_object *object;
    struct gb_error error;

    if (!dtype != !args->option[SHAPE] || !dtype == !args->option[BYTES])
        gb_cli_usage(cli, "create takes --bytes, or --dtype and --shape");
    layout.kind = dtype ? GPUBUF_KIND_ARRAY : GPUBUF_KIND_BYTES;
    if (dtype && gb_parse_shape(args->option[SHAPE], shape, &layout.ndim, &error) != 0)
        gb_cli_usage(cli, "%s", error.message);
    gb_cli_connect(cli);
    gb_cli_check(cli, gpubuf_create(cli->client, name, &layout, &options, &object),
                 "cannot create %s", name);
    print_made(cli, name, object);
    gpubuf_release(object);
}

/* ---- writing ---- */

/* Copies all of the input, whose length is checked first where it is known. */
static void copy_input(const struct gb_cli *cli, struct gpubuf_object *object,
                       struct gb_input *input, uint64_t offset)
{
    enum { PIECE = 4 << 20 };
    const char *name = gpubuf_name(object);
    uint64_t known = input->bytes == GB_FILE_UNKNOWN ? 0 : input->bytes, got = PIECE;
    struct gpubuf_memory memory;

    if (gpubuf_memory(object, GPUBUF_DATA, &memory) != 0)
        gb_cli_fail(GB_STATUS_FAILED, "%s has columns, which write does not fill", name);
    if (offset > memory.bytes || known > memory.bytes - offset)
        gb_cli_fail(GB_STATUS_FAILED,
                    "%s: %" PRIu64 " bytes from byte %" PRIu64
                    " on go past the end of %s, which has %" PRIu64,
                    input->name, known, offset, name, memory.bytes);
    char *piece = gb_grow(NULL, PIECE, 1);
    for (; got == PIECE; offset += got) {
        got = gb_input_read(input, piece, PIECE);
        gb_cli_check(cli, gpubuf_write(object, GPUBUF_DATA, offset, piece, got, NULL),
                     "cannot write %s", name);
    }
    free(piece);
}

void gb_cmd_write(struct gb_cli *cli, struct gb_cli_args *args)
{
    const char *name = args->value[0];
    struct gpubuf_open_options options = {.size = sizeof(options),
                                          .wait_ms = args->number[WRITE_WAIT],
                                          .write = true,
                                          .exclusive = args->option[EXCLUSIVE] != NULL};
    struct gpubuf_object *object;
    struct gb_input input;

    gb_input_open(&input, args->value[1]);
    gb_cli_connect(cli);
    gb_cli_check(cli, gpubuf_open(cli->client, name, &options, &object), "cannot write %s", name);
    copy_input(cli, object, &input, (uint64_t)args->number[OFFSET]);
    gpubuf_release(object);
    gb_input_close(&input);
}
