/* Opening a part of an object, and saying in a few words what it is. */
#include "client/gpubufctl/data/view.h"

#include <inttypes.h>
#include <string.h>

#include "client/gpubufctl/cli/parse.h"
#include "client/gpubufctl/output/format.h"

/* Releases *object and sets it to `view`. */
static void replace(struct gpubuf_object **object, struct gpubuf_object *view)
{
    gpubuf_release(*object);
    *object = view;
}

/* Replaces the bundle *object by one of its arrays. */
static void choose_array(struct gb_cli *cli, const char *name, const char *array,
                         struct gpubuf_object **object)
{
    struct gpubuf_object *view = NULL;
    struct gpubuf_bundle *bundle;
    size_t i;

    gb_cli_check(cli, gpubuf_bundle_open(*object, &bundle), "cannot read the manifest of %s", name);
    if (!gpubuf_bundle_find(bundle, array, &i))
        gb_cli_fail(GB_STATUS_FAILED, "%s has no array \"%s\"; see gpubufctl show %s", name, array,
                    name);
    int code = gpubuf_bundle_array(bundle, i, &view);
    if (code == GPUBUF_E_UNSUPPORTED)
        code = gpubuf_bundle_copy(bundle, i, &view);
    gb_cli_check(cli, code, "cannot open array %s of %s", array, name);
    replace(object, view);
    gpubuf_bundle_free(bundle);
}

static void choose_column(struct gb_cli *cli, const char *name, const char *column,
                          struct gpubuf_object **object)
{
    struct gpubuf_object *view = NULL;

    if (gpubuf_kind(*object) != GPUBUF_KIND_TABLE)
        gb_cli_fail(GB_STATUS_FAILED, "%s is not a table and has no column \"%s\"", name, column);
    int code = gpubuf_column(*object, column, &view);
    if (code == GPUBUF_E_NOT_FOUND)
        gb_cli_fail(GB_STATUS_FAILED, "%s has no column \"%s\"; see gpubufctl show %s", name,
                    column, name);
    gb_cli_check(cli, code, "cannot open column %s of %s", column, name);
    replace(object, view);
}

static void choose_slice(struct gb_cli *cli, const char *name, const struct gb_slice_text *slice,
                         struct gpubuf_object **object)
{
    struct gpubuf_object *view = NULL;
    uint64_t offset, count;

    if (gpubuf_kind(*object) == GPUBUF_KIND_ARRAY && gpubuf_ndim(*object) == 0)
        gb_cli_fail(GB_STATUS_FAILED, "%s is an array without axes and has no slices", name);
    gb_slice_resolve(slice, gpubuf_length(*object), &offset, &count);
    gb_cli_check(cli, gpubuf_slice(*object, offset, count, &view), "cannot slice %s", name);
    replace(object, view);
}

struct gpubuf_object *gb_view_open(struct gb_cli *cli, const char *name,
                                   const struct gb_view_options *options)
{
    const struct gpubuf_open_options open = {.size = sizeof(open),
                                             .version = (uint64_t)options->version,
                                             .label = options->label,
                                             .wait_ms = options->wait_ms};
    struct gpubuf_object *object = NULL;
    struct gb_slice_text slice;
    struct gb_error error;

    if (options->slice && gb_parse_slice(options->slice, &slice, &error) != 0)
        gb_cli_usage(cli, "%s", error.message);
    gb_cli_connect(cli);
    gb_cli_check(cli, gpubuf_open(cli->client, name, &open, &object), "cannot open %s", name);
    if (options->column && gpubuf_kind(object) == GPUBUF_KIND_BUNDLE)
        choose_array(cli, name, options->column, &object);
    else if (options->column)
        choose_column(cli, name, options->column, &object);
    if (options->slice)
        choose_slice(cli, name, &slice, &object);
    return object;
}

static void write_count(struct gb_writer *writer, uint64_t count, const char *one, const char *many)
{
    gb_write_format(writer, "%s %s", gb_count(count).text, count == 1 ? one : many);
}

void gb_describe(struct gpubuf_object *object, struct gb_writer *writer)
{
    switch (gpubuf_kind(object)) {
    case GPUBUF_KIND_BYTES:
        write_count(writer, gpubuf_length(object), "byte", "bytes");
        break;
    case GPUBUF_KIND_BUNDLE:
        GB_WRITE_LITERAL(writer, "bundle, ");
        write_count(writer, gpubuf_length(object), "byte", "bytes");
        break;
    case GPUBUF_KIND_COLUMN:
        gb_write_format(writer, "column of %s, ", gpubuf_dtype(object));
        write_count(writer, gpubuf_length(object), "element", "elements");
        break;
    case GPUBUF_KIND_TABLE:
        GB_WRITE_LITERAL(writer, "table, ");
        write_count(writer, gpubuf_length(object), "row", "rows");
        GB_WRITE_LITERAL(writer, " × ");
        write_count(writer, gpubuf_child_count(object), "column", "columns");
        break;
    case GPUBUF_KIND_ARRAY:
        gb_write_format(writer, "array of %s, ", gpubuf_dtype(object));
        if (gpubuf_ndim(object) == 0)
            GB_WRITE_LITERAL(writer, "no axes");
        for (unsigned i = 0; i < gpubuf_ndim(object); i++)
            gb_write_format(writer, "%s%s", i ? " × " : "", gb_count(gpubuf_shape(object)[i]).text);
        if (gpubuf_ndim(object) == 1)
            gb_write_text(writer, gpubuf_shape(object)[0] == 1 ? " element" : " elements");
        break;
    }
}
