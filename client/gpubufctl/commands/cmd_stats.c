/* gpubufctl stats */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/gpubufctl/cli/parse.h"
#include "client/gpubufctl/commands/commands.h"
#include "client/gpubufctl/output/format.h"
#include "client/gpubufctl/output/grid.h"
#include "client/gpubufctl/output/json_print.h"
#include "client/gpubufctl/output/term.h"
#include "proto/base/limits.h"

const struct gb_cli_option gb_stats_options[] = {{0}};

/* A number's name tells its unit: bytes, milliseconds, or things. */
static struct gb_short number_text(const char *within, const char *key, double value)
{
    static const char *const byte_names[] = {
        "bytes",  "capacity",          "used",      "free",    "mapped", "leased",
        "pinned", "retained",          "evictable", "stays",   "clean",  "leaving",
        "quota",  "pinned_by_clients", "held",      "nameless"};
    static const char *const things[] = {"sessions", "objects", "segments",
                                         "leases",                            /* of a user */
                                         "open",     "kept",    "in_flight"}; /* descriptors */

    if (value < 0 || value != (double)(uint64_t)value) {
        struct gb_short text;
        (void)snprintf(text.text, sizeof(text.text), "%.6g", value);
        return text;
    }
    if (strcmp(key, "quota") == 0 && value >= (double)GB_LIMIT(integer))
        return (struct gb_short){"none"};
    bool counts = false;
    for (size_t i = 0; i < sizeof(things) / sizeof(things[0]); i++)
        counts |= within && strcmp(within, things[i]) == 0;
    for (size_t i = 0; !counts && i < sizeof(byte_names) / sizeof(byte_names[0]); i++)
        if (gb_ends_with(key, byte_names[i]))
            return gb_size((uint64_t)value);
    if (gb_ends_with(key, "_ms"))
        return gb_age((int64_t)value);
    if (gb_ends_with(key, "_us"))
        return gb_age((int64_t)(value / 1000));
    return gb_count((uint64_t)value);
}

static void add_value(struct gb_grid *grid, const char *within, const char *key, const cJSON *value)
{
    if (cJSON_IsNumber(value))
        gb_grid_text(grid, number_text(within, key, value->valuedouble).text,
                     value->valuedouble != 0 ? GB_STYLE_NONE : GB_STYLE_DIM);
    else if (cJSON_IsString(value))
        gb_grid_text(grid, value->valuestring, GB_STYLE_NONE);
    else if (cJSON_IsBool(value))
        gb_grid_text(grid, cJSON_IsTrue(value) ? "yes" : "no", GB_STYLE_NONE);
    else
        gb_grid_text(grid, "", GB_STYLE_NONE);
}

/* The number of the last event says how many there were; a time is printed with a unit of its own.
 */
static void add_label(struct gb_grid *grid, const char *key)
{
    bool is_time = gb_ends_with(key, "_ms") || gb_ends_with(key, "_us");
    char label[64];

    (void)snprintf(label, sizeof(label), "%.*s", (int)strlen(key) - (is_time ? 3 : 0), key);
    gb_grid_text(grid, strcmp(key, "seq") == 0 ? "events so far" : label, GB_STYLE_NONE);
}

static bool is_plain(const cJSON *value)
{
    return !cJSON_IsObject(value) && !cJSON_IsArray(value);
}

static void print_section(const struct gb_cli *cli, const cJSON *section, unsigned depth);

/* The title of an item of an array: its own name, if it has one. */
static const char *title_of(const cJSON *item, int position, struct gb_short *own)
{
    static const char *const keys[] = {"alias", "id", "tier", "device", "name"};

    if (item->string)
        return item->string;
    if (cJSON_IsNumber(gb_cjson_member(item, "uid"))) {
        *own = gb_user(gb_cjson_int_of(item, "uid", 0));
        return own->text;
    }
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (gb_cjson_string_of(item, keys[i], NULL))
            return gb_cjson_string_of(item, keys[i], NULL);
    (void)snprintf(own->text, sizeof(own->text), "%d", position);
    return own->text;
}

/* Whether the members are objects of a few plain members each, all alike: a table, as of methods.
 */
static bool is_uniform(const cJSON *section)
{
    enum { MOST = 6 };
    const cJSON *first = section->child;
    int count = first ? cJSON_GetArraySize(first) : 0;

    if (count == 0 || count > MOST)
        return false;
    GB_CJSON_EACH(item, section) {
        if (!cJSON_IsObject(item) || cJSON_GetArraySize(item) != count)
            return false;
        GB_CJSON_EACH(member, item)
            if (!is_plain(member) || !gb_cjson_member(first, member->string))
                return false;
    }
    return true;
}

static bool is_all_zero(const cJSON *object)
{
    GB_CJSON_EACH(member, object)
        if (!cJSON_IsNumber(member) || member->valuedouble != 0)
            return false;
    return true;
}

/* One line for each, without those whose counts are all zero. */
static void print_uniform(const struct gb_cli *cli, const cJSON *section, unsigned depth)
{
    struct gb_grid grid;
    struct gb_short own;
    int position = 0;
    const char *title = title_of(section->child, 0, &own), *titles = NULL;

    GB_CJSON_EACH(member, section->child)
        if (member->valuestring && member->valuestring == title)
            titles = member->string; /* its column comes first, and not again */
    gb_grid_init(&grid, (size_t)cJSON_GetArraySize(section->child) + !titles);
    for (size_t i = 1; i < grid.column_count; i++)
        grid.columns[i].right = true;
    gb_grid_text(&grid, "", GB_STYLE_NONE);
    GB_CJSON_EACH(member, section->child)
        if (!titles || strcmp(member->string, titles) != 0)
            gb_grid_text(&grid, member->string, GB_STYLE_DIM);
    GB_CJSON_EACH(item, section) {
        if (is_all_zero(item))
            continue;
        gb_grid_text(&grid, title_of(item, position++, &own), GB_STYLE_NONE);
        GB_CJSON_EACH(member, section->child)
            if (!titles || strcmp(member->string, titles) != 0)
                add_value(&grid, item->string, member->string,
                          gb_cjson_member(item, member->string));
    }
    gb_grid_print(&grid, gb_term_width(), depth * 2, cli->color, false);
}

static void print_nested(const struct gb_cli *cli, const cJSON *section, unsigned depth)
{
    struct gb_short own;
    int position = 0;

    GB_CJSON_EACH(item, section) {
        if (is_plain(item) || !item->child)
            continue;
        struct gb_writer title;
        gb_writer_init(&title, 0);
        const char *text = title_of(item, position++, &own);
        gb_text_clean(&title, text, strlen(text));
        printf("%s%*s%s%s%s\n", depth == 0 ? "\n" : "", (int)depth * 2, "",
               gb_style_on(cli->color, GB_STYLE_BOLD), gb_writer_text(&title),
               gb_style_off(cli->color, GB_STYLE_BOLD));
        gb_writer_end(&title);
        if (is_uniform(item))
            print_uniform(cli, item, depth + 1);
        else
            print_section(cli, item, depth + 1);
    }
}

/* The plain members of an object as lines, then its inner objects, each with a title. */
static void print_section(const struct gb_cli *cli, const cJSON *section, unsigned depth)
{
    struct gb_grid grid;

    gb_grid_init(&grid, 2);
    grid.columns[1].right = true;
    GB_CJSON_EACH(item, section) {
        if (!is_plain(item))
            continue;
        add_label(&grid, item->string ? item->string : "");
        add_value(&grid, section->string, item->string ? item->string : "", item);
    }
    gb_grid_print(&grid, gb_term_width(), depth * 2, cli->color, false);
    print_nested(cli, section, depth);
}

void gb_cmd_stats(struct gb_cli *cli, struct gb_cli_args *args)
{
    cJSON *answer = gb_cli_ask(cli, "stats", NULL);

    if (cli->json)
        gb_cjson_print(answer, true);
    else
        print_section(cli, answer, 0);
    cJSON_Delete(answer);
}
