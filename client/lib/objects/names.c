#include "client/lib/objects/names.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/lib/objects/create_options.h"
#include "client/lib/wire/call.h"
#include "client/lib/wire/report.h"
#include "client/lib/wire/wait.h"
#include "proto/layout/layout.h"

/* ---- descriptions of objects ---- */

struct info_members {
    struct gb_string name, state, tier, device, mode, label, scope, note;
    uint64_t version, bytes, uid, gid, leases, keep;
    int64_t created_ms, ttl_ms, idle_ms;
    bool pinned, final, older, gone;
};

#define INFO_FIELD(member, type, flags, max)                                                       \
    GB_FIELD(struct info_members, member, type, flags, 0, max)

int gb_info_read(struct gb_json object, struct gb_pool *pool, struct gpubuf_info *out,
                 struct gb_error *error)
{
    struct gpubuf_info info = {.version = 0};
    static const struct gb_field fields[] = {
        INFO_FIELD(name, GB_FIELD_STRING, GB_FIELD_REQUIRED, sizeof(info.name) - 1),
        INFO_FIELD(version, GB_FIELD_UINT, 0, 0),
        INFO_FIELD(state, GB_FIELD_STRING, 0, sizeof(info.state) - 1),
        INFO_FIELD(tier, GB_FIELD_STRING, 0, sizeof(info.tier) - 1),
        INFO_FIELD(device, GB_FIELD_STRING, 0, sizeof(info.device) - 1),
        INFO_FIELD(bytes, GB_FIELD_UINT, 0, 0),
        INFO_FIELD(mode, GB_FIELD_STRING, 0, 8),
        INFO_FIELD(uid, GB_FIELD_UINT, 0, UINT32_MAX),
        INFO_FIELD(gid, GB_FIELD_UINT, 0, UINT32_MAX),
        INFO_FIELD(created_ms, GB_FIELD_INT, 0, 0),
        INFO_FIELD(leases, GB_FIELD_UINT, 0, 0),
        INFO_FIELD(pinned, GB_FIELD_BOOL, 0, 0),
        INFO_FIELD(final, GB_FIELD_BOOL, 0, 0),
        INFO_FIELD(ttl_ms, GB_FIELD_INT, 0, 0),
        INFO_FIELD(idle_ms, GB_FIELD_INT, 0, 0),
        INFO_FIELD(label, GB_FIELD_STRING, 0, sizeof(info.label) - 1),
        INFO_FIELD(keep, GB_FIELD_UINT, 0, UINT32_MAX),
        INFO_FIELD(older, GB_FIELD_BOOL, 0, 0),
        INFO_FIELD(gone, GB_FIELD_BOOL, 0, 0),
        INFO_FIELD(scope, GB_FIELD_STRING, 0, 0),
        INFO_FIELD(note, GB_FIELD_STRING, 0, sizeof(info.note) - 1),
    };
    struct info_members members = {.version = 0};
    struct gb_path path = {.key = "object"};
    int r = gb_json_read(object, fields, sizeof(fields) / sizeof(fields[0]), GB_UNKNOWN_IGNORE,
                         &path, pool, &members, NULL, error);

    if (r < 0)
        return r;

    const struct {
        const struct gb_string *from;
        char *to;
    } texts[] = {
        {&members.name, info.name},     {&members.state, info.state}, {&members.tier, info.tier},
        {&members.device, info.device}, {&members.label, info.label}, {&members.note, info.note},
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (texts[i].from->text)
            memcpy(texts[i].to, texts[i].from->text, texts[i].from->length + 1);
    }
    info.version = members.version;
    info.bytes = members.bytes;
    info.mode = members.mode.text ? (unsigned)strtoul(members.mode.text, NULL, 8) : 0;
    info.uid = (uint32_t)members.uid;
    info.gid = (uint32_t)members.gid;
    info.created_ms = members.created_ms;
    info.leases = members.leases;
    info.final = members.final;
    info.pinned = members.pinned;
    info.ttl_ms = members.ttl_ms;
    info.idle_ms = members.idle_ms;
    info.keep = (unsigned)members.keep;
    info.older = members.older;
    info.gone = members.gone;
    if (members.scope.text && strcmp(members.scope.text, "cluster") == 0)
        info.scope = GPUBUF_SCOPE_CLUSTER;
    *out = info;
    return 0;
}

/* ---- calls about one name ---- */

/* An object, by its version or label if there is one, and the params of the call. */
struct target {
    const char *name, *label; /* NULL: whatever the label */
    uint64_t version;         /* 0: the current one */
    const char *tier;
    int64_t wait_ms, ttl_ms; /* ttl_ms: -1: not said */
    const char *pinned;      /* "true" or "false"; NULL: not said */
};

static void write_target(struct gb_writer *writer, const void *arg)
{
    const struct target *target = arg;

    GB_WRITE_LITERAL(writer, "{\"name\":");
    gb_write_cstring(writer, target->name);
    if (target->version)
        gb_write_format(writer, ",\"version\":%" PRIu64, target->version);
    if (target->label) {
        GB_WRITE_LITERAL(writer, ",\"label\":");
        gb_write_cstring(writer, target->label);
    }
    if (target->tier) {
        GB_WRITE_LITERAL(writer, ",\"tier\":");
        gb_write_cstring(writer, target->tier);
    }
    if (target->wait_ms)
        gb_write_format(writer, ",\"wait_ms\":%" PRIi64, target->wait_ms);
    if (target->ttl_ms >= 0)
        gb_write_format(writer, ",\"ttl_ms\":%" PRIi64, target->ttl_ms);
    if (target->pinned)
        gb_write_format(writer, ",\"pinned\":%s", target->pinned);
    gb_write_char(writer, '}');
}

static int check_name(const struct gpubuf_client *client, const char *member, const char *name)
{
    struct gb_path path = {.key = member};
    struct gb_error error;

    if (gb_name_check(name ? name : "", name ? strlen(name) : 0, &path, &error) < 0)
        return gb_report(client, &error);
    return 0;
}

/* A prefix may end anywhere in a name, but only between two characters. */
int gb_check_prefix(const struct gpubuf_client *client, const char *prefix)
{
    if (prefix && (strlen(prefix) > GB_LIMIT(name_bytes) || !gb_utf8_valid(prefix, strlen(prefix))))
        return gb_report_text(client, GPUBUF_E_INVALID,
                              "prefix: expected at most %d bytes of UTF-8",
                              (int)GB_LIMIT(name_bytes));
    return 0;
}

/* How long a call waits for an answer that the daemon may take `wait_ms` to give. */
static int64_t answer_timeout_after(const struct gpubuf_client *client, int64_t wait_ms)
{
    return client ? gb_answer_timeout(client, wait_ms) : -1;
}

/* How long a call without options of its own waits. */
static int64_t answer_timeout(const struct gpubuf_client *client)
{
    return answer_timeout_after(client, 0);
}

static int check_target(const struct gpubuf_client *client, const struct target *target)
{
    int r = check_name(client, "name", target->name);

    if (r == 0 && target->version > (uint64_t)GB_LIMIT(integer))
        r = gb_report_text(client, GPUBUF_E_INVALID, "version is not from 0 to 2^52 - 1");
    if (r == 0 && target->label &&
        (strlen(target->label) > GB_LIMIT(label_bytes) ||
         !gb_utf8_valid(target->label, strlen(target->label))))
        r = gb_report_text(client, GPUBUF_E_INVALID, "label: expected at most %d bytes of UTF-8",
                           (int)GB_LIMIT(label_bytes));
    return r;
}

/* Calls a method that has an empty result. The daemon may take `wait_ms` for it. */
static int call_target(struct gpubuf_client *client, const char *method,
                       const struct target *target, int64_t wait_ms)
{
    int r = check_target(client, target);

    return r < 0 ? r
                 : gb_call(client, method, write_target, target,
                           answer_timeout_after(client, wait_ms), NULL);
}

struct object_member {
    struct gb_json object;
};

static int read_stat(struct gb_json result, struct gb_pool *pool, void *info,
                     struct gb_error *error)
{
    static const struct gb_field fields[] = {
        GB_FIELD(struct object_member, object, GB_FIELD_OBJECT, GB_FIELD_REQUIRED, 0, 0),
    };
    struct object_member member;
    struct gb_path path = {.key = "result"};
    int r = gb_json_read(result, fields, 1, GB_UNKNOWN_IGNORE, &path, pool, &member, NULL, error);

    return r < 0 ? r : gb_info_read(member.object, pool, info, error);
}

int gpubuf_stat(struct gpubuf_client *client, const char *name, struct gpubuf_info *info)
{
    const struct target target = {.name = name, .ttl_ms = -1};
    int r = check_target(client, &target);

    if (r < 0)
        return r;
    return gb_call_read(client, "stat", write_target, &target, answer_timeout(client), read_stat,
                        info);
}

int gpubuf_pin(struct gpubuf_client *client, const char *name)
{
    return call_target(client, "set",
                       &(struct target){.name = name, .ttl_ms = -1, .pinned = "true"}, 0);
}

int gpubuf_unpin(struct gpubuf_client *client, const char *name)
{
    return call_target(client, "set",
                       &(struct target){.name = name, .ttl_ms = -1, .pinned = "false"}, 0);
}

int gpubuf_delete_version(struct gpubuf_client *client, const char *name, uint64_t version,
                          const char *label)
{
    return call_target(
        client, "delete",
        &(struct target){.name = name, .version = version, .label = label, .ttl_ms = -1}, 0);
}

int gpubuf_delete(struct gpubuf_client *client, const char *name)
{
    return gpubuf_delete_version(client, name, 0, NULL);
}

int gpubuf_expire_version(struct gpubuf_client *client, const char *name, uint64_t version,
                          const char *label, int64_t ttl_ms)
{
    if (ttl_ms < 0 || ttl_ms > (int64_t)GB_LIMIT(integer))
        return gb_report_text(client, GPUBUF_E_INVALID, "ttl_ms is not from 0 to 2^52 - 1");
    return call_target(
        client, "set",
        &(struct target){.name = name, .version = version, .label = label, .ttl_ms = ttl_ms}, 0);
}

int gpubuf_expire(struct gpubuf_client *client, const char *name, int64_t ttl_ms)
{
    return gpubuf_expire_version(client, name, 0, NULL, ttl_ms);
}

/* ---- move ---- */

/* The daemon gives its own work a minute before it says `timeout` itself. */
#define MOVE_MS 60000

int gpubuf_spill_version(struct gpubuf_client *client, const char *name, uint64_t version,
                         const char *label, const char *tier)
{
    const struct target target = {
        .name = name, .version = version, .label = label, .tier = tier, .ttl_ms = -1};

    if (tier && !gb_utf8_valid(tier, strlen(tier)))
        return gb_report_text(client, GPUBUF_E_INVALID, "tier is not UTF-8");
    return call_target(client, "move", &target, MOVE_MS);
}

int gpubuf_spill(struct gpubuf_client *client, const char *name, const char *tier)
{
    return gpubuf_spill_version(client, name, 0, NULL, tier);
}

int gpubuf_restore_version(struct gpubuf_client *client, const char *name, uint64_t version,
                           const char *label, int64_t wait_ms)
{
    const struct target target = {.name = name,
                                  .version = version,
                                  .label = label,
                                  .tier = "device",
                                  .wait_ms = wait_ms,
                                  .ttl_ms = -1};

    if (wait_ms < 0 || wait_ms > GB_LIMIT(wait_ms))
        return gb_report_text(client, GPUBUF_E_INVALID, "wait_ms is not from 0 to %d",
                              (int)GB_LIMIT(wait_ms));
    return call_target(client, "move", &target, wait_ms + MOVE_MS);
}

int gpubuf_restore(struct gpubuf_client *client, const char *name, int64_t wait_ms)
{
    return gpubuf_restore_version(client, name, 0, NULL, wait_ms);
}

/* ---- list ---- */

struct page {
    const char *prefix;
    bool versions;     /* all versions of the first name, and nothing else */
    char cursor[1024]; /* "": the first page */
    struct gpubuf_info *infos;
    size_t count;
};

static void write_list(struct gb_writer *writer, const void *arg)
{
    const struct page *page = arg;

    gb_write_format(writer, "{\"limit\":%d", page->versions ? 1 : (int)GB_LIMIT(list));
    if (page->versions)
        GB_WRITE_LITERAL(writer, ",\"versions\":true");
    if (page->prefix) {
        GB_WRITE_LITERAL(writer, ",\"prefix\":");
        gb_write_cstring(writer, page->prefix);
    }
    if (*page->cursor) {
        GB_WRITE_LITERAL(writer, ",\"cursor\":");
        gb_write_cstring(writer, page->cursor);
    }
    gb_write_char(writer, '}');
}

struct page_members {
    struct gb_json objects;
    struct gb_string cursor;
};

static int read_infos(struct gb_json objects, struct gb_pool *pool, struct page *page,
                      struct gb_error *error)
{
    struct gb_json_walk walk = gb_json_walk(objects);
    struct gb_json item;

    free(page->infos);
    page->count = 0;
    page->infos = calloc(gb_json_count(objects) + 1, sizeof(*page->infos));
    if (!page->infos)
        return gb_fail_memory(error);
    while (gb_json_next(&walk, NULL, &item)) {
        if (gb_json_type(item) != GB_JSON_OBJECT)
            return gb_fail(error, GPUBUF_E_INVALID, "an element of objects is not an object");
        int r = gb_info_read(item, pool, &page->infos[page->count], error);
        if (r < 0)
            return r;
        page->count++;
    }
    return 0;
}

/* Reads a page's objects and where the next page begins. */
static int read_page(struct gb_json result, struct gb_pool *pool, void *out, struct gb_error *error)
{
    struct page *page = out;
    static const struct gb_field fields[] = {
        GB_FIELD(struct page_members, objects, GB_FIELD_ARRAY, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct page_members, cursor, GB_FIELD_STRING, 0, 0, sizeof(page->cursor) - 1),
    };
    struct page_members members = {.cursor = {"", 0}};
    struct gb_path path = {.key = "result"};
    int r = gb_json_read(result, fields, 2, GB_UNKNOWN_IGNORE, &path, pool, &members, NULL, error);

    if (r == 0)
        r = read_infos(members.objects, pool, page, error);
    if (r < 0)
        return r;
    /* A cursor that does not move would list for ever. */
    if (*members.cursor.text && strcmp(members.cursor.text, page->cursor) == 0)
        return gb_fail(error, GPUBUF_E_INVALID, "the daemon's cursor does not advance");
    memcpy(page->cursor, members.cursor.text, members.cursor.length + 1);
    return 0;
}

int gpubuf_list(struct gpubuf_client *client, const char *prefix,
                int (*each)(const struct gpubuf_info *info, void *arg), void *arg)
{
    int r = gb_check_prefix(client, prefix);

    if (r < 0)
        return r;
    struct page page = {.prefix = prefix};
    do {
        r = gb_call_read(client, "list", write_list, &page, answer_timeout(client), read_page,
                         &page);
        for (size_t i = 0; r == 0 && i < page.count; i++)
            r = each(&page.infos[i], arg);
    } while (r == 0 && *page.cursor);
    free(page.infos);
    return r;
}

/* Lists the versions of the first name that begins with `name`: that is the name itself, if it
   exists. */
int gpubuf_versions(struct gpubuf_client *client, const char *name,
                    int (*each)(const struct gpubuf_info *info, void *arg), void *arg)
{
    int r = check_name(client, "name", name);

    if (r < 0)
        return r;
    struct page page = {.prefix = name, .versions = true};
    r = gb_call_read(client, "list", write_list, &page, answer_timeout(client), read_page, &page);
    if (r == 0 && (page.count == 0 || strcmp(page.infos[0].name, name) != 0))
        r = gb_report_text(client, GPUBUF_E_NOT_FOUND,
                           "there is no object \"%s\", or none that you may open", name);
    for (size_t i = 0; r == 0 && i < page.count; i++)
        r = each(&page.infos[i], arg);
    free(page.infos);
    return r;
}

/* ---- alias ---- */

struct alias {
    const char *name, *of;
    struct gpubuf_alias_options options;
};

static void write_alias(struct gb_writer *writer, const void *arg)
{
    const struct alias *alias = arg;
    const struct gpubuf_alias_options *options = &alias->options;

    GB_WRITE_LITERAL(writer, "{\"name\":");
    gb_write_cstring(writer, alias->name);
    GB_WRITE_LITERAL(writer, ",\"of\":");
    gb_write_cstring(writer, alias->of);
    if (options->slice)
        gb_write_format(writer, ",\"slice\":{\"offset\":%" PRIu64 ",\"length\":%" PRIu64 "}",
                        options->offset, options->length);
    gb_write_texts(writer, ",\"columns\":", options->columns);
    if (options->mode)
        gb_write_format(writer, ",\"mode\":\"0%o\"", options->mode);
    if (options->replace)
        GB_WRITE_LITERAL(writer, ",\"replace\":true");
    gb_write_title(writer, options->label, options->keep ? (int)options->keep : -1);
    if (options->scope == GPUBUF_SCOPE_CLUSTER)
        GB_WRITE_LITERAL(writer, ",\"scope\":\"cluster\"");
    gb_write_char(writer, '}');
}

static int check_columns(const struct gpubuf_client *client, const char *const *columns)
{
    for (size_t i = 0; columns && columns[i]; i++) {
        if (!gb_utf8_valid(columns[i], strlen(columns[i])))
            return gb_report_text(client, GPUBUF_E_INVALID, "options.columns[%zu] is not UTF-8", i);
    }
    return 0;
}

int gpubuf_alias(struct gpubuf_client *client, const char *name, const char *of,
                 const struct gpubuf_alias_options *given)
{
    struct alias alias = {.name = name, .of = of};
    int r = check_name(client, "name", name);

    if (r == 0)
        r = check_name(client, "of", of);
    if (r < 0)
        return r;
    struct gpubuf_alias_options *options = &alias.options;
    r = gb_read_options(client, given, options, sizeof(*options));
    if (r < 0)
        return r;
    if (options->mode > 0777)
        return gb_report_text(client, GPUBUF_E_INVALID, "options.mode 0%o is not from 0 to 0777",
                              options->mode);
    r = check_columns(client, options->columns);
    if (r == 0)
        r = gb_check_title(client, options->label, options->keep);
    if (r == 0 && (unsigned)options->scope > GPUBUF_SCOPE_CLUSTER)
        r = gb_report_text(client, GPUBUF_E_INVALID, "options.scope %d is none",
                           (int)options->scope);
    return r < 0 ? r : gb_call(client, "alias", write_alias, &alias, answer_timeout(client), NULL);
}

/* ---- register ---- */

/* Parses a layout's JSON; the tape lies in the pool. */
static int check_layout(const struct gpubuf_client *client, const char *text, struct gb_pool *pool,
                        struct gb_json *layout)
{
    struct gb_error error;
    int r = gb_json_check(text, strlen(text), pool, layout, &error);

    if (r == GPUBUF_E_PARSE)
        return gb_report_text(client, GPUBUF_E_INVALID, "layout_json: %s", error.message);
    return r < 0 ? gb_report(client, &error) : 0;
}

struct registration {
    const char *name;
    uint64_t bytes;
    struct gb_json layout;
    struct gpubuf_create_options options;
};

static void write_register(struct gb_writer *writer, const void *arg)
{
    const struct registration *registration = arg;

    GB_WRITE_LITERAL(writer, "{\"name\":");
    gb_write_cstring(writer, registration->name);
    GB_WRITE_LITERAL(writer, ",\"layout\":");
    gb_write_json(writer, registration->layout);
    gb_write_format(writer,
                    ",\"handles\":[{\"kind\":\"memfd\",\"fd\":0,\"bytes\":%" PRIu64
                    ",\"device\":\"host\"}]",
                    registration->bytes);
    gb_write_create_options(writer, &registration->options);
    gb_write_char(writer, '}');
}

/*
 * The daemon is sent a descriptor for reading only. It is opened here, since the daemon is another
 * user and may not open a memfd of mode 0600. Group and others lose the right to write, since
 * readers could open their descriptors anew. If either fails, the daemon says what is wrong.
 */
static int open_for_reading(int fd)
{
    struct stat status;
    char path[48];
    int seals = fcntl(fd, F_GET_SEALS);

    if (seals < 0)
        return -1;
    if (!(seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) && fstat(fd, &status) == 0 &&
        status.st_mode & (S_IWGRP | S_IWOTH))
        (void)fchmod(fd, status.st_mode & 07777 & ~(mode_t)(S_IWGRP | S_IWOTH));
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a lease is not waited for */
}

static int register_fd(struct gpubuf_client *client, const struct registration *registration,
                       int fd)
{
    int read_fd = open_for_reading(fd);
    int r = gb_call_with_fds(client, "register", write_register, registration,
                             read_fd < 0 ? &fd : &read_fd, 1, answer_timeout(client), NULL);

    if (read_fd >= 0)
        close(read_fd);
    return r;
}

int gpubuf_register_memfd(struct gpubuf_client *client, const char *name, int fd, uint64_t bytes,
                          const char *layout_json, const struct gpubuf_create_options *given)
{
    struct registration registration = {.name = name, .bytes = bytes};
    int r = check_name(client, "name", name);

    if (r == 0)
        r = gb_read_create_options(client, given, &registration.options);
    if (r < 0)
        return r;
    if (!layout_json)
        return gb_report_text(client, GPUBUF_E_INVALID, "layout_json is NULL");
    if (fd < 0)
        return gb_report_text(client, GPUBUF_E_INVALID, "%d is no descriptor", fd);
    registration.options.wait_ms = 0; /* nothing is allocated, so there is nothing to wait for */
    struct gb_pool pool = {0};
    r = check_layout(client, layout_json, &pool, &registration.layout);
    if (r == 0)
        r = register_fd(client, &registration, fd);
    gb_pool_end(&pool);
    return r;
}
