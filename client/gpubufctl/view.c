/* Opening a part of an object, and saying in a few words what it is. */
#include "view.h"

#include <inttypes.h>
#include <string.h>

#include "format.h"
#include "parse.h"

static int open_whole(struct gb_cli *cli, const char *name, const struct gb_view_options *options,
                      struct gpubuf_object **object)
{
    const struct gpubuf_open_options open = {.size = sizeof(open),
                                             .version = (uint64_t)options->version,
                                             .label = options->label,
                                             .wait_ms = options->wait_ms};
    int status = gb_cli_connect(cli);
    if (status != GB_STATUS_OK)
        return status;
    int code = gpubuf_open(cli->client, name, &open, object);
    return code == 0 ? GB_STATUS_OK : gb_cli_error(cli, code, "cannot open %s", name);
}

/* Releases *object and sets it to `view`. */
static void replace(struct gpubuf_object **object, struct gpubuf_object *view)
{
    gpubuf_release(*object);
    *object = view;
}

/* Replaces the bundle *object by one of its arrays. */
static int choose_array(struct gb_cli *cli, const char *name, const char *array,
                        struct gpubuf_object **object)
{
    struct gpubuf_object *view = NULL;
    struct gpubuf_bundle *bundle;
    size_t i;
    int status = GB_STATUS_OK;
    int code = gpubuf_bundle_open(*object, &bundle);

    if (code < 0)
        return gb_cli_error(cli, code, "cannot read the manifest of %s", name);
    if (!gpubuf_bundle_find(bundle, array, &i))
        status = gb_cli_fail(GB_STATUS_FAILED, "%s has no array \"%s\"; see gpubufctl show %s",
                             name, array, name);
    else if ((code = gpubuf_bundle_array(bundle, i, &view)) < 0 &&
             (code != GPUBUF_E_UNSUPPORTED || (code = gpubuf_bundle_copy(bundle, i, &view)) < 0))
        status = gb_cli_error(cli, code, "cannot open array %s of %s", array, name);
    else
        replace(object, view);
    gpubuf_bundle_free(bundle);
    return status;
}

static int narrow(struct gb_cli *cli, const char *name, const char *column,
                  const struct gb_slice_text *slice, struct gpubuf_object **object)
{
    struct gpubuf_object *view = NULL;

    if (column && gpubuf_kind(*object) == GPUBUF_KIND_BUNDLE) {
        int status = choose_array(cli, name, column, object);
        if (status != GB_STATUS_OK)
            return status;
    } else if (column) {
        if (gpubuf_kind(*object) != GPUBUF_KIND_TABLE)
            return gb_cli_fail(GB_STATUS_FAILED, "%s is not a table and has no column \"%s\"", name,
                               column);
        int code = gpubuf_column(*object, column, &view);
        if (code == GPUBUF_E_NOT_FOUND)
            return gb_cli_fail(GB_STATUS_FAILED, "%s has no column \"%s\"; see gpubufctl show %s",
                               name, column, name);
        if (code < 0)
            return gb_cli_error(cli, code, "cannot open column %s of %s", column, name);
        replace(object, view);
    }
    if (slice) {
        uint64_t offset, count;
        if (gpubuf_kind(*object) == GPUBUF_KIND_ARRAY && gpubuf_ndim(*object) == 0)
            return gb_cli_fail(GB_STATUS_FAILED, "%s is an array without axes and has no slices",
                               name);
        gb_slice_resolve(slice, gpubuf_length(*object), &offset, &count);
        int code = gpubuf_slice(*object, offset, count, &view);
        if (code < 0)
            return gb_cli_error(cli, code, "cannot slice %s", name);
        replace(object, view);
    }
    return GB_STATUS_OK;
}

int gb_view_open(struct gb_cli *cli, const char *name, const struct gb_view_options *options,
                 struct gpubuf_object **object)
{
    struct gpubuf_object *whole = NULL;
    struct gb_slice_text slice;
    struct gb_error error;

    if (options->slice && gb_parse_slice(options->slice, &slice, &error) != 0)
        return gb_cli_usage(cli, "%s", error.message);
    int status = open_whole(cli, name, options, &whole);
    if (status != GB_STATUS_OK)
        return status;
    status = narrow(cli, name, options->column, options->slice ? &slice : NULL, &whole);
    if (status != GB_STATUS_OK) {
        gpubuf_release(whole);
        return status;
    }
    *object = whole;
    return GB_STATUS_OK;
}

static void write_count(struct gb_writer *writer, uint64_t count, const char *one, const char *many)
{
    char text[64];

    gb_format_count(count, text, sizeof(text));
    gb_write_format(writer, "%s %s", text, count == 1 ? one : many);
}

void gb_describe(struct gpubuf_object *object, struct gb_writer *writer)
{
    char text[64];

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
        for (unsigned i = 0; i < gpubuf_ndim(object); i++) {
            gb_format_count(gpubuf_shape(object)[i], text, sizeof(text));
            gb_write_format(writer, "%s%s", i ? " × " : "", text);
        }
        if (gpubuf_ndim(object) == 1)
            gb_write_text(writer, gpubuf_shape(object)[0] == 1 ? " element" : " elements");
        break;
    }
}
