/* gpubufctl stat NAME… */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/gpubufctl/commands/commands.h"
#include "client/gpubufctl/output/format.h"
#include "client/gpubufctl/output/json_print.h"
#include "client/gpubufctl/output/line.h"

enum { VERSION, LABEL };

const struct gb_cli_option gb_stat_options[] = {
    {"version", 'v', "VERSION", "this version, if it still exists", NULL},
    {"label", 'l', "LABEL", "the newest version with this label", NULL},
    {0},
};

enum { VALUE_AT = 14 }; /* behind the longest key, "time to live" */

static void add_row(struct gb_line *line, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void add_row(struct gb_line *line, const char *key, const char *format, ...)
{
    char value[1024];
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(value, sizeof(value), format, arguments);
    va_end(arguments);
    gb_line_text(line, GB_STYLE_DIM, key);
    gb_line_to(line, VALUE_AT);
    gb_line_text(line, GB_STYLE_NONE, value);
    gb_line_end(line);
}

static void describe_layout(const cJSON *layout, struct gb_writer *writer)
{
    const cJSON *columns = gb_cjson_member(layout, "columns");
    const cJSON *shape = gb_cjson_member(layout, "shape");

    gb_write_text(writer, gb_cjson_string_of(layout, "kind", "?"));
    if (gb_cjson_string_of(layout, "dtype", NULL))
        gb_write_format(writer, " of %s", gb_cjson_string_of(layout, "dtype", ""));
    if (gb_cjson_int_of(layout, "length", -1) >= 0)
        gb_write_format(writer, ", length %" PRId64, gb_cjson_int_of(layout, "length", 0));
    if (columns)
        gb_write_format(writer, ", %d columns", cJSON_GetArraySize(columns));
    if (gb_cjson_int_of(layout, "manifest_bytes", 0) > 0)
        gb_write_format(writer, ", manifest of %" PRId64 " bytes",
                        gb_cjson_int_of(layout, "manifest_bytes", 0));
    GB_CJSON_EACH(extent, shape)
        gb_write_format(writer, "%s%.0f", extent == shape->child ? ", shape " : " × ",
                        extent->valuedouble);
}

static void add_owner(struct gb_line *line, const cJSON *object)
{
    int64_t uid = gb_cjson_int_of(object, "uid", -1), gid = gb_cjson_int_of(object, "gid", -1);

    add_row(line, "owner", "%s (uid %" PRId64 ", gid %" PRId64 ")", gb_user(uid).text, uid, gid);
}

static void add_times(struct gb_line *line, const cJSON *object)
{
    int64_t ttl = gb_cjson_int_of(object, "ttl_ms", 0);

    add_row(line, "created", "%s", gb_local_time(gb_cjson_int_of(object, "created_ms", 0)).text);
    if (ttl > 0)
        add_row(line, "time to live", "%s", gb_age(ttl).text);
}

static void fill(struct gb_line *line, const cJSON *object)
{
    struct gb_writer layout;
    int64_t bytes = gb_cjson_int_of(object, "bytes", 0), keep = gb_cjson_int_of(object, "keep", 0);

    add_row(line, "name", "%s", gb_cjson_string_of(object, "name", ""));
    add_row(line, "version", "%" PRId64, gb_cjson_int_of(object, "version", 0));
    if (*gb_cjson_string_of(object, "label", ""))
        add_row(line, "label", "%s", gb_cjson_string_of(object, "label", ""));
    if (*gb_cjson_string_of(object, "note", ""))
        add_row(line, "note", "%s", gb_cjson_string_of(object, "note", ""));
    if (keep > 0)
        add_row(line, "keeps", "%" PRId64 " older version%s", keep, keep == 1 ? "" : "s");
    gb_writer_init(&layout, 0);
    describe_layout(gb_cjson_member(object, "layout"), &layout);
    add_row(line, "layout", "%s", gb_writer_text(&layout));
    gb_writer_end(&layout);
    struct gb_short size = gb_size((uint64_t)bytes);
    if (bytes < 1024)
        add_row(line, "size", "%s", size.text);
    else
        add_row(line, "size", "%s (%" PRId64 " bytes)", size.text, bytes);
    add_row(line, "place", "%s, tier %s, shared by %s", gb_cjson_string_of(object, "device", "?"),
            gb_cjson_string_of(object, "tier", "?"), gb_cjson_string_of(object, "share", "?"));
    add_row(line, "state", "%s",
            gb_cjson_bool_of(object, "older")  ? "sealed, an older version"
            : gb_cjson_bool_of(object, "gone") ? "sealed, and can be opened no more"
                                               : gb_cjson_string_of(object, "state", "?"));
    add_row(line, "scope", "%s", gb_cjson_string_of(object, "scope", "local"));
    add_row(line, "mode", "%s", gb_cjson_string_of(object, "mode", "?"));
    add_owner(line, object);
    if (gb_cjson_bool_of(object, "live")) {
        add_row(line, "writers", "%" PRId64, gb_cjson_int_of(object, "writers", 0));
        add_row(line, "generation", "%" PRId64, gb_cjson_int_of(object, "generation", 0));
    }
    add_row(line, "leases", "%" PRId64, gb_cjson_int_of(object, "leases", 0));
    if (gb_cjson_int_of(object, "cached", 0) > 0)
        add_row(line, "cached", "%" PRId64 " times", gb_cjson_int_of(object, "cached", 0));
    if (gb_cjson_int_of(object, "parked", 0) > 0)
        add_row(line, "parked", "%" PRId64 " times", gb_cjson_int_of(object, "parked", 0));
    add_row(line, "pinned", "%s", gb_cjson_bool_of(object, "pinned") ? "yes" : "no");
    if (gb_cjson_bool_of(object, "final"))
        add_row(line, "final", "yes");
    add_row(line, "when short", "%s (evict=%s)", gb_cjson_string_of(object, "when_short", "?"),
            gb_cjson_string_of(object, "evict", "?"));
    add_times(line, object);
}

void gb_cmd_stat(struct gb_cli *cli, struct gb_cli_args *args)
{
    cJSON *answer =
        gb_cli_stat(cli, false, args->value[0], args->number[VERSION], args->option[LABEL]);
    const cJSON *object = gb_cjson_member(answer, "object");

    if (cli->json) {
        gb_cjson_print(object, true);
    } else {
        struct gb_writer out;
        gb_writer_init(&out, 0);
        struct gb_line line = gb_line_wrapped(&out, VALUE_AT, cli->color);
        fill(&line, object);
        gb_cli_print(&out);
    }
    cJSON_Delete(answer);
}
