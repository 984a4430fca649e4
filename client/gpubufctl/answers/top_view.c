#include "client/gpubufctl/answers/top_view.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/gpubufctl/answers/table.h"
#include "client/gpubufctl/output/format.h"
#include "client/gpubufctl/output/json_print.h"
#include "client/gpubufctl/output/line.h"

enum { BAR_LEAST = 10, NAME_MOST = 12, LIST_LEAST = 6 };
enum { LIST_FRAME = 3 }; /* lines of a list beside its rows: an empty one, two titles */
enum { NARROW = 60, USUAL = 80, WIDE = 90, WIDER = 116 }; /* columns of a screen */

/* ---- devices and tiers ---- */

enum { PART_USED, PART_CLEAN, PART_RETAINED, PART_PINNED, PART_FREE, PARTS };

static const struct gb_bar_part looks[PARTS] = {
    [PART_USED] = {.mark = "█", .ascii = "#", .style = GB_STYLE_BLUE},
    [PART_CLEAN] = {.mark = "▓", .ascii = "+", .style = GB_STYLE_GREEN},
    [PART_RETAINED] = {.mark = "▒", .ascii = "-", .style = GB_STYLE_YELLOW},
    [PART_PINNED] = {.mark = "╳", .ascii = "!", .style = GB_STYLE_RED},
    [PART_FREE] = {.mark = "░", .ascii = ".", .style = GB_STYLE_DIM},
};

/* Names a place; a tier says that it is one, since a device and a tier may both be "host". */
static unsigned place_name(const struct gb_inventory_place *place, char *out, size_t size)
{
    const char *kind = place->is_tier ? "tier " : "";
    bool fits = strlen(kind) + strlen(place->name) <= NAME_MOST;

    (void)snprintf(out, size, "%s%.*s%s", kind, fits ? NAME_MOST : NAME_MOST - 1, place->name,
                   fits ? "" : gb_term_ellipsis());
    return gb_text_width(out, strlen(out));
}

/* The width of the longest name, in columns. */
static unsigned names_width(const struct gb_inventory *memory)
{
    char name[64];
    unsigned widest = 4;

    for (size_t i = 0; i < memory->place_count; i++) {
        unsigned width = place_name(&memory->places[i], name, sizeof(name));
        if (width > widest)
            widest = width;
    }
    return widest;
}

static void draw_bar(struct gb_line *line, const struct gb_inventory_place *place, unsigned indent)
{
    struct gb_bar_part parts[PARTS];
    uint64_t clean = place->clean < place->used ? place->clean : place->used;
    unsigned room = line->width > indent + 10 + BAR_LEAST ? line->width - indent - 10 : BAR_LEAST;
    char name[64];

    memcpy(parts, looks, sizeof(parts));
    parts[PART_USED].amount = place->used - clean;
    parts[PART_CLEAN].amount = clean;
    parts[PART_RETAINED].amount = place->retained;
    parts[PART_PINNED].amount = place->pinned_by_clients;
    parts[PART_FREE].amount = place->free;
    (void)place_name(place, name, sizeof(name));
    gb_line_text(line, GB_STYLE_BOLD, name);
    gb_line_to(line, indent);
    gb_line_bar(line, parts, PARTS, room);
    gb_line_format(line, GB_STYLE_BOLD, "  %8s", gb_size(place->capacity).text);
    gb_line_end(line);
}

/* Adds "mark what amount" to the line, or to a new one if it does not fit. `part` PARTS: no
   mark. */
static void draw_figure(struct gb_line *line, unsigned indent, size_t part, const char *what,
                        uint64_t bytes)
{
    const struct gb_short size = gb_size(bytes);
    unsigned width = (unsigned)(strlen(what) + strlen(size.text)) + 1 + (part < PARTS ? 2 : 0);

    if (line->used > indent && line->used + 2 + width > line->width)
        gb_line_end(line);
    gb_line_to(line, line->used > indent ? line->used + 2 : indent);
    if (part < PARTS) {
        gb_line_text(line, looks[part].style,
                     gb_term_utf8() ? looks[part].mark : looks[part].ascii);
        gb_line_text(line, GB_STYLE_NONE, " ");
    }
    gb_line_format(line, GB_STYLE_NONE, "%s ", what);
    gb_line_text(line, bytes ? GB_STYLE_BOLD : GB_STYLE_DIM, size.text);
}

static void draw_sum(struct gb_line *line, const struct gb_inventory_place *place, unsigned indent)
{
    uint64_t clean = place->clean < place->used ? place->clean : place->used;

    if (place->is_tier) {
        draw_figure(line, indent, PART_USED, "only here", place->used - clean);
        draw_figure(line, indent, PART_CLEAN, "also elsewhere", clean);
    } else {
        draw_figure(line, indent, PART_USED, "used", place->used);
        draw_figure(line, indent, PART_CLEAN, "of it clean", clean);
        draw_figure(line, indent, PART_RETAINED, "retained for reuse", place->retained);
        draw_figure(line, indent, PART_PINNED, "pinned by clients", place->pinned_by_clients);
    }
    draw_figure(line, indent, PART_FREE, "free", place->free);
    gb_line_end(line);
}

/* Draws why some of `used` must stay, and how much has left. */
static void draw_more(struct gb_line *line, const struct gb_inventory_place *place, unsigned indent)
{
    draw_figure(line, indent, PARTS, "leased", place->leased);
    draw_figure(line, indent, PARTS, "pinned or kept", place->pinned);
    draw_figure(line, indent, PARTS, "can leave", place->evictable);
    draw_figure(line, indent, PARTS, "leaving", place->leaving);
    draw_figure(line, indent, PARTS, "in tiers only", place->spilled_bytes);
    gb_line_end(line);
}

static void draw_fault(struct gb_line *line, const struct gb_inventory_place *place,
                       unsigned indent)
{
    gb_line_to(line, indent);
    gb_line_format(line, GB_STYLE_RED, "takes nothing: %s", place->fault);
    gb_line_end(line);
}

/* How much is said of each place, by how much room there is. */
enum detail { BARS, SUMS, ALL };

static unsigned lines_of(struct gb_writer *out)
{
    unsigned lines = 0;

    for (size_t i = 0; i < out->length; i++)
        lines += out->data[i] == '\n';
    return lines;
}

static void draw_places(const struct gb_top_view *view, struct gb_writer *out, enum detail detail)
{
    const struct gb_inventory *memory = view->memory;
    unsigned indent = names_width(memory) + 2;
    struct gb_line line = gb_line(out, view->width, view->color);

    for (size_t i = 0; i < memory->place_count; i++) {
        const struct gb_inventory_place *place = &memory->places[i];

        draw_bar(&line, place, indent);
        if (place->fault[0])
            draw_fault(&line, place, indent);
        else if (detail >= SUMS)
            draw_sum(&line, place, indent);
        if (detail == ALL && !place->is_tier)
            draw_more(&line, place, indent);
    }
    if (memory->more_places > 0) {
        gb_line_format(&line, GB_STYLE_DIM, "and %zu more", memory->more_places);
        gb_line_end(&line);
    }
}

/* Draws the places in as much detail as leaves three fifths of the screen to the list. */
static void draw_fitting_places(const struct gb_top_view *view, struct gb_writer *out)
{
    struct gb_writer part;

    for (int detail = ALL;; detail--) {
        gb_writer_init(&part, 0);
        draw_places(view, &part, (enum detail)detail);
        if (detail == BARS || view->rows == 0 || lines_of(&part) * 5 <= view->rows * 2)
            break;
        gb_writer_end(&part);
    }
    /* More devices than a small screen has room for: the first ones. */
    size_t length = part.length;
    unsigned most = view->rows > LIST_LEAST + 4 ? view->rows - LIST_LEAST - 4 : 1, lines = 0;
    for (size_t i = 0; view->rows > 0 && i < part.length; i++)
        if (part.data[i] == '\n' && ++lines == most) {
            length = i + 1;
            break;
        }
    gb_write(out, part.data, length);
    gb_writer_end(&part);
}

/* ---- lists ---- */

/* "in use", or for how long it is not. */
static void add_idle(struct gb_grid *grid, const cJSON *object)
{
    if (gb_cjson_int_of(object, "leases", 0) > 0)
        gb_grid_text(grid, "in use", GB_STYLE_GREEN);
    else
        gb_grid_text(grid, gb_age(gb_cjson_int_of(object, "idle_ms", 0)).text, GB_STYLE_NONE);
}

static void add_tier(struct gb_grid *grid, const cJSON *object)
{
    const char *tier = gb_cjson_string_of(object, "tier", "");

    gb_grid_text(grid, tier, strcmp(tier, "device") != 0 ? GB_STYLE_YELLOW : GB_STYLE_NONE);
}

static void add_fate(struct gb_grid *grid, const cJSON *object)
{
    const char *fate = gb_cjson_string_of(object, "when_short", "?");

    gb_grid_text(grid, fate, strcmp(fate, "pinned") == 0 ? GB_STYLE_BOLD : GB_STYLE_DIM);
}

static void add_kind(struct gb_grid *grid, const cJSON *object)
{
    struct gb_writer text;

    gb_writer_init(&text, 0);
    gb_kind_write(&text, object);
    gb_grid_add(grid, text.length ? text.data : "", text.length ? text.length - 1 : 0,
                GB_STYLE_YELLOW);
    gb_writer_end(&text);
}

static const struct gb_table_column object_columns[] = {
    {"size", "bytes", .cell = GB_CELL_SIZE},
    {"idle", .cell = GB_CELL_AGE, .add = add_idle},
    {"tier", .least = NARROW, .add = add_tier},
    {"leases", "leases", .cell = GB_CELL_COUNT},
    {"short", .least = NARROW, .add = add_fate},
    {"device", "device", .least = WIDE},
    {"user", "uid", GB_CELL_USER, .least = WIDE},
    {"version", "version", GB_CELL_NUMBER, .least = WIDER},
    {"kind", .least = USUAL, .add = add_kind},
    {"name", "name", .style = GB_STYLE_BOLD, .flexible = true},
};

static const struct gb_table_column session_columns[] = {
    {"session", "session", GB_CELL_NUMBER, .least = USUAL},
    {"pid", "pid", .cell = GB_CELL_NUMBER},
    {"user", "uid", GB_CELL_USER, .least = USUAL},
    {"leases", "leases", .cell = GB_CELL_COUNT},
    {"holds", "holds", .cell = GB_CELL_SIZE},
    {"caches", "cached_bytes", GB_CELL_SIZE, .least = USUAL},
    {"maps", "maps", GB_CELL_SIZE, .least = USUAL},
    {"pins", "pins", GB_CELL_SIZE, GB_STYLE_RED, .least = USUAL},
    {"client", "client", .style = GB_STYLE_BOLD, .flexible = true},
};

static const struct gb_table_column user_columns[] = {
    {"user", "uid", GB_CELL_USER, .flexible = true},
    {"objects", "objects", .cell = GB_CELL_COUNT},
    {"used", "used", GB_CELL_SIZE, .style = GB_STYLE_BOLD},
    {"nameless", "nameless", GB_CELL_SIZE, GB_STYLE_YELLOW, .least = USUAL},
    {"held", "held", .cell = GB_CELL_SIZE},
    {"text", "text_bytes", GB_CELL_SIZE, .least = USUAL},
    {"sessions", "sessions", GB_CELL_COUNT, .least = WIDE},
    {"open", "open", GB_CELL_COUNT, .least = USUAL},
    {"kept", "kept", GB_CELL_COUNT, .least = USUAL},
    {"flying", "in_flight", GB_CELL_COUNT, .least = USUAL},
};

enum list { OBJECTS, SESSIONS, USERS, LISTS };

static const struct {
    const struct gb_table_column *columns;
    size_t count;
} lists[] = {
    [OBJECTS] = {GB_TABLE(object_columns)},
    [SESSIONS] = {GB_TABLE(session_columns)},
    [USERS] = {GB_TABLE(user_columns)},
};

static const cJSON *list_of(const struct gb_top_view *view, enum list list)
{
    return list == OBJECTS    ? view->memory->objects
           : list == SESSIONS ? view->memory->sessions
                              : view->memory->users;
}

static size_t length_of(const struct gb_top_view *view, enum list list)
{
    return (size_t)cJSON_GetArraySize(list_of(view, list));
}

static void draw_title(const struct gb_top_view *view, enum list list, struct gb_writer *out)
{
    static const char *const orders[] = {"by size", "last used first", "longest idle first"};
    const struct gb_inventory *memory = view->memory;
    struct gb_line line = gb_line(out, view->width, view->color);

    if (list == OBJECTS)
        gb_line_format(&line, GB_STYLE_BOLD, "Objects %s, %s", gb_count(memory->object_count).text,
                       orders[view->order]);
    else if (list == SESSIONS)
        gb_line_format(&line, GB_STYLE_BOLD, "Sessions %s%s that hold or map",
                       gb_count(length_of(view, list)).text, memory->truncated ? " or more" : "");
    else
        gb_line_format(&line, GB_STYLE_BOLD, "Users %zu", length_of(view, list));
    gb_line_end(&line);
}

static void draw_list(const struct gb_top_view *view, enum list list, struct gb_writer *out,
                      size_t rows)
{
    gb_write_char(out, '\n');
    draw_title(view, list, out);
    if (length_of(view, list) > 0)
        gb_table_write(out, lists[list].columns, lists[list].count, list_of(view, list), rows,
                       view->width, view->color);
}

/* ---- the whole ---- */

/* Adds a fact to the line if it fits. */
static void add_fact(struct gb_line *line, const char *what, const char *value)
{
    unsigned width = 3 + gb_text_width(what, strlen(what)) + gb_text_width(value, strlen(value));

    if (line->width == 0 || line->used + width <= line->width)
        gb_line_format(line, GB_STYLE_NONE, "  %s %s", what, value);
}

static void draw_heading(const struct gb_top_view *view, struct gb_writer *out)
{
    const struct gb_inventory *memory = view->memory;
    struct gb_line line = gb_line(out, view->width, view->color);
    unsigned clock = (unsigned)strlen(view->clock);

    if (clock > 0 && view->width > clock)
        line.width = view->width - clock - 1;
    gb_line_text(&line, GB_STYLE_BOLD, memory->server);
    if (*view->notice) {
        gb_line_format(&line, GB_STYLE_RED, "  %s", view->notice);
    } else if (*memory->server) {
        add_fact(&line, "up", gb_age(memory->uptime_ms).text);
        add_fact(&line, "objects", gb_count(memory->object_count).text);
        add_fact(&line, "sessions", gb_count(memory->session_count).text);
        add_fact(&line, "leases", gb_count(memory->lease_count).text);
    }
    if (clock > 0 && view->width > clock) {
        line.width = view->width;
        gb_line_to(&line, view->width - clock);
        gb_line_text(&line, GB_STYLE_DIM, view->clock);
    }
    gb_line_end(&line);
}

/* Objects get the room that is left; sessions and users at most a quarter of it each, and nothing
   on a low terminal. */
static void draw_fitting_lists(const struct gb_top_view *view, struct gb_writer *out)
{
    size_t used = lines_of(out), room = view->rows > used ? view->rows - used : 0;
    size_t share[LISTS] = {0}, left = room;

    for (int list = USERS; list > OBJECTS && room >= 4 * LIST_LEAST; list--) {
        size_t length = length_of(view, (enum list)list);
        size_t most = room / 4 > LIST_FRAME ? room / 4 - LIST_FRAME : 0;
        share[list] = length < most ? length : most;
        left -= share[list] > 0 ? share[list] + LIST_FRAME : 0;
    }
    share[OBJECTS] = left > LIST_FRAME ? left - LIST_FRAME : 0;
    for (int list = 0; list < LISTS; list++)
        if (share[list] > 0)
            draw_list(view, (enum list)list, out, share[list]);
}

void gb_top_draw(const struct gb_top_view *view, struct gb_writer *out)
{
    draw_heading(view, out);
    draw_fitting_places(view, out);
    if (view->rows > 0) {
        draw_fitting_lists(view, out);
        out->length--; /* a newline in the last line would move all of it */
        return;
    }
    for (int list = 0; list < LISTS; list++)
        draw_list(view, (enum list)list, out, view->list_rows);
}
