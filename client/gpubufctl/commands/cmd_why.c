/* gpubufctl why NAME: what holds an object where it is, or when it would go. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/gpubufctl/commands/commands.h"
#include "client/gpubufctl/output/format.h"
#include "client/gpubufctl/output/json_print.h"
#include "client/gpubufctl/output/line.h"

enum { VERSION, LABEL };

const struct gb_cli_option gb_why_options[] = {
    {"version", 'v', "VERSION", "this version, even if only its readers still have it", NULL},
    {"label", 'l', "LABEL", "the newest version with this label", NULL},
    {0},
};

static struct gb_short size_of(const cJSON *object, const char *key)
{
    return gb_size((uint64_t)gb_cjson_int_of(object, key, 0));
}

static struct gb_short age_of(const cJSON *object, const char *key)
{
    return gb_age(gb_cjson_int_of(object, key, 0));
}

/* ---- what holds it ---- */

static const char *plural(int64_t count)
{
    return count == 1 ? "" : "s";
}

static void tell_part(struct gb_line *line, const cJSON *part)
{
    if (!gb_cjson_member(part, "reader")) {
        gb_line_format(line, GB_STYLE_NONE, "; it writes the stream: frame %" PRId64,
                       gb_cjson_int_of(part, "frames", 0));
        return;
    }
    gb_line_format(line, GB_STYLE_NONE,
                   "; it reads the stream: %" PRId64 " frames read, %" PRId64 " missed, %" PRId64
                   " of %" PRId64 " held",
                   gb_cjson_int_of(part, "frames", 0), gb_cjson_int_of(part, "missed", 0),
                   gb_cjson_int_of(part, "held", 0), gb_cjson_int_of(part, "hold", 0));
    if (gb_cjson_member(part, "behind"))
        gb_line_format(line, GB_STYLE_NONE, ", %" PRId64 " behind",
                       gb_cjson_int_of(part, "behind", 0));
}

static void tell_lease(struct gb_line *line, const cJSON *reason, const char *name)
{
    const char *of = gb_cjson_string_of(reason, "name", "");

    gb_line_format(line, GB_STYLE_NONE,
                   "by session %" PRId64 ": %s, pid %" PRId64 ", user %s, for %s",
                   gb_cjson_int_of(reason, "session", 0), gb_cjson_string_of(reason, "client", ""),
                   gb_cjson_int_of(reason, "pid", 0),
                   gb_user(gb_cjson_int_of(reason, "uid", -1)).text, age_of(reason, "age_ms").text);
    if (strcmp(gb_cjson_string_of(reason, "access", "r"), "rw") == 0)
        gb_line_text(line, GB_STYLE_NONE,
                     gb_cjson_bool_of(reason, "exclusive") ? ", which alone writes it"
                                                           : ", which writes it");
    if (gb_cjson_bool_of(reason, "left"))
        gb_line_format(line, GB_STYLE_NONE,
                       "; its connection has ended, and its process has not: kill %" PRId64
                       " ends that",
                       gb_cjson_int_of(reason, "pid", 0));
    if (gb_cjson_member(reason, "cached_ms"))
        gb_line_format(line, GB_STYLE_NONE, ", idle %s; it is asked for it first",
                       age_of(reason, "cached_ms").text);
    if (gb_cjson_member(reason, "parked_ms"))
        gb_line_text(line, GB_STYLE_NONE, "; it may leave for a tier, and is not dropped");
    if (gb_cjson_member(reason, "stream"))
        tell_part(line, gb_cjson_member(reason, "stream"));
    if (strcmp(of, name) != 0)
        gb_line_format(line, GB_STYLE_NONE, ", as %s", of);
}

/* Reasons about names that we may not open are told as a number. */
static void tell_others(struct gb_line *line, const char *kind, int64_t others)
{
    if (strcmp(kind, "request") == 0)
        gb_line_format(line, GB_STYLE_NONE, "%" PRId64 " request%s that wait%s need it there",
                       others, plural(others), others == 1 ? "s" : "");
    else
        gb_line_format(line, GB_STYLE_NONE, "%" PRId64 " time%s under names that you may not open",
                       others, plural(others));
}

static void tell_named(struct gb_line *line, const char *kind, const char *of, const char *name)
{
    static const char *const sentences[][2] = {
        {"keep", "it was published with --evict keep"},
        {"unsettled", "its producer's work on the GPU is not done"},
        {"grace", "its users from before the daemon's restart may still come back"},
        {"empty", "it has no bytes: evicting it makes no room"},
        {"no_tier", "cannot be evicted: this daemon has no tier to move it to (start it with "
                    "--tier), and its evict is not \"drop\""},
        {"last_tier", "cannot be evicted: there is no tier below this one, and its evict is not "
                      "\"drop\""},
        {"producer", "its memory is its producer's"},
        {"final", "it is final, and stays in its memory"},
        {"live", "it is live: a copy in a tier could not be written"},
    };

    if (strcmp(kind, "pinned") == 0) {
        gb_line_format(line, GB_STYLE_NONE, "gpubufctl unpin %s ends that", of);
        return;
    }
    for (size_t i = 0; i < sizeof(sentences) / sizeof(*sentences); i++)
        if (strcmp(kind, sentences[i][0]) == 0)
            gb_line_text(line, GB_STYLE_NONE, sentences[i][1]);
    if (strcmp(of, name) != 0)
        gb_line_format(line, GB_STYLE_NONE, ", as %s", of);
}

static void tell_reasons(struct gb_line *line, const cJSON *answer, const char *name)
{
    GB_CJSON_EACH(reason, gb_cjson_member(answer, "reasons")) {
        const char *kind = gb_cjson_string_of(reason, "kind", "held");
        int64_t others = gb_cjson_int_of(reason, "others", 0);

        gb_line_text(line, GB_STYLE_NONE, "  ");
        gb_line_text(line, GB_STYLE_YELLOW, kind);
        gb_line_to(line, 13);
        line->indent = 13;
        if (others > 0)
            tell_others(line, kind, others);
        else if (strcmp(kind, "leased") == 0 || strcmp(kind, "cached") == 0 ||
                 strcmp(kind, "parked") == 0)
            tell_lease(line, reason, name);
        else
            tell_named(line, kind, gb_cjson_string_of(reason, "name", name), name);
        gb_line_end(line);
        line->indent = 2;
    }
}

/* ---- when it would go ---- */

static void tell_place(struct gb_line *line, const cJSON *before, bool resident)
{
    int64_t objects = gb_cjson_int_of(before, "objects", 0);
    int64_t of_objects = gb_cjson_int_of(before, "of_objects", 0);
    const struct gb_short of_count = gb_count((uint64_t)of_objects);
    const struct gb_short of_bytes = size_of(before, "of_bytes");

    gb_line_format(line, GB_STYLE_GREEN, "may leave %s", resident ? "its device" : "its tier");
    if (objects == 0)
        gb_line_format(line, GB_STYLE_NONE, ": it is the first of %s such object%s (%s)",
                       of_count.text, plural(of_objects), of_bytes.text);
    else
        gb_line_format(line, GB_STYLE_NONE, ": %s%s of %s such object%s go first (%s of %s)",
                       gb_cjson_bool_of(before, "more") ? "at least " : "",
                       gb_count((uint64_t)objects).text, of_count.text, plural(of_objects),
                       size_of(before, "bytes").text, of_bytes.text);
    gb_line_end(line);
}

static void tell_future(struct gb_line *line, const cJSON *answer)
{
    const char *to = gb_cjson_string_of(answer, "goes_to", "");

    if (strcmp(to, "nowhere") == 0)
        gb_line_text(line, GB_STYLE_NONE,
                     "when it leaves it is gone: none of its names is to be kept (evict=drop)");
    else
        gb_line_format(line, GB_STYLE_NONE, "when it leaves its content goes to the %s tier", to);
    gb_line_end(line);
}

static void tell_rest(struct gb_line *line, const cJSON *answer)
{
    const char *moving = gb_cjson_string_of(answer, "moving", "");
    const cJSON *waits = gb_cjson_member(answer, "waits");

    if (waits) {
        gb_line_format(line, GB_STYLE_NONE,
                       "session %" PRId64 " (%s, pid %" PRId64 ") has waited to %s it for %s",
                       gb_cjson_int_of(waits, "session", 0),
                       gb_cjson_string_of(waits, "client", ""), gb_cjson_int_of(waits, "pid", 0),
                       gb_cjson_bool_of(waits, "exclusive") ? "claim" : "write",
                       age_of(waits, "age_ms").text);
        gb_line_end(line);
    }

    if (*moving) {
        gb_line_format(line, GB_STYLE_NONE, "it is being copied %s at the moment",
                       strcmp(moving, "in") == 0 ? "to its device" : "to a tier");
        gb_line_end(line);
    }
    if (gb_cjson_member(answer, "expires_ms")) {
        gb_line_format(line, GB_STYLE_NONE, "its time to live is over in %s",
                       age_of(answer, "expires_ms").text);
        gb_line_end(line);
    }
}

static void tell_aliases(struct gb_line *line, const cJSON *answer)
{
    int64_t others = gb_cjson_int_of(answer, "other_aliases", 0);
    const char *separator = " ";

    if (others == 0 && !gb_cjson_first(gb_cjson_member(answer, "aliases")))
        return;
    gb_line_text(line, GB_STYLE_NONE, "other names of the same memory, with which it goes:");
    GB_CJSON_EACH(alias, gb_cjson_member(answer, "aliases")) {
        gb_line_format(line, GB_STYLE_NONE, "%s%s", separator,
                       cJSON_IsString(alias) ? alias->valuestring : "");
        separator = ", ";
    }
    if (others > 0)
        gb_line_format(line, GB_STYLE_NONE, "%s%" PRId64 " that you may not open", separator,
                       others);
    gb_line_end(line);
}

/* ---- the whole ---- */

static void tell_object(struct gb_line *line, const cJSON *object, const char *name)
{
    const char *tier = gb_cjson_string_of(object, "tier", "");
    const char *device = gb_cjson_string_of(object, "device", "");

    gb_line_text(line, GB_STYLE_BOLD, name);
    if (gb_cjson_bool_of(object, "older") || gb_cjson_bool_of(object, "gone"))
        gb_line_format(line, GB_STYLE_NONE, ", version %" PRId64 "%s",
                       gb_cjson_int_of(object, "version", 0),
                       gb_cjson_bool_of(object, "gone") ? ", which can be opened no more" : "");
    gb_line_format(line, GB_STYLE_NONE, ": %s of %s", size_of(object, "bytes").text, device);
    if (strcmp(tier, "device") != 0)
        gb_line_format(line, GB_STYLE_NONE, ", in the %s tier", tier);
    if (gb_cjson_int_of(object, "leases", 0) == 0)
        gb_line_format(line, GB_STYLE_NONE, ", idle for %s", age_of(object, "idle_ms").text);
    gb_line_end(line);
}

/* Lists the name's other versions, which have memory too; `why --version` tells of each. */
static void tell_versions(struct gb_line *line, const cJSON *versions)
{
    GB_CJSON_EACH(object, versions) {
        const char *label = gb_cjson_string_of(object, "label", "");
        int64_t leases = gb_cjson_int_of(object, "leases", 0);
        bool older = gb_cjson_bool_of(object, "older");

        if (!older && !gb_cjson_bool_of(object, "gone"))
            continue;
        gb_line_format(line, GB_STYLE_NONE,
                       "version %" PRId64 "%s%s%s, %s: %s, open %" PRId64 " time%s",
                       gb_cjson_int_of(object, "version", 0), *label ? " (" : "", label,
                       *label ? ")" : "", size_of(object, "bytes").text,
                       older ? "kept" : "there for its readers only", leases, plural(leases));
        gb_line_end(line);
    }
}

/* Reads all versions of the name: they are the first entry of the list of names that start with
   it. */
static cJSON *read_versions(struct gb_cli *cli, const char *name)
{
    cJSON *page;

    (void)gb_cli_request(cli->client, "list",
                         gb_cjson("{'prefix':%s,'limit':1,'versions':true}", name), &page);
    cJSON *versions = cJSON_DetachItemFromObjectCaseSensitive(page, "objects");
    cJSON_Delete(page);
    return versions;
}

static void print_answer(const struct gb_cli *cli, const cJSON *answer, const cJSON *versions,
                         const char *name)
{
    const cJSON *object = gb_cjson_member(answer, "object"),
                *before = gb_cjson_member(answer, "before");
    bool resident = strcmp(gb_cjson_string_of(object, "tier", ""), "device") == 0;
    struct gb_writer out;
    struct gb_line line;

    gb_writer_init(&out, 0);
    line = gb_line_wrapped(&out, 2, cli->color);
    tell_object(&line, object, name);
    if (!gb_cjson_bool_of(answer, "evictable")) {
        gb_line_text(&line, GB_STYLE_YELLOW, "stays where it is:");
        gb_line_end(&line);
        tell_reasons(&line, answer, name);
    } else {
        if (before)
            tell_place(&line, before, resident);
        /* Such as leases that sessions cache: it can leave all the same. */
        tell_reasons(&line, answer, name);
        tell_future(&line, answer);
    }
    tell_rest(&line, answer);
    tell_aliases(&line, answer);
    tell_versions(&line, versions);
    gb_cli_print(&out);
}

void gb_cmd_why(struct gb_cli *cli, struct gb_cli_args *args)
{
    bool current = !args->option[VERSION] && !args->option[LABEL];
    cJSON *answer =
        gb_cli_stat(cli, true, args->value[0], args->number[VERSION], args->option[LABEL]);

    if (cli->json) {
        gb_cjson_print(answer, true);
    } else {
        cJSON *versions = current ? read_versions(cli, args->value[0]) : NULL;
        print_answer(cli, answer, versions, args->value[0]);
        cJSON_Delete(versions);
    }
    cJSON_Delete(answer);
}
