#include "daemon/config.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/size.h"
#include "daemon/memory/device_kinds.h"
#include "daemon/store/quota.h"
#include "proto/base/option.h"

/* The least budget of a tier: the bytes of a segment. */

/* ---- values ---- */

static int set_mode(void *at, const char *value, struct gb_error *error)
{
    char *end;
    unsigned long mode = strtoul(value, &end, 8);

    if (!isdigit((unsigned char)*value) || *end || mode > 0777)
        return gb_fail(error, GPUBUF_E_INVALID, "\"%s\" is no octal mode such as 0660", value);
    *(unsigned *)at = (unsigned)mode;
    return 0;
}

/* Reads "50%" into *percent, or a size into *bytes; the other is 0 then. `such`: what the sentence
   of an error shows as one. */
static int read_share(const char *value, const char *size, const char *such, uint64_t *bytes,
                      unsigned *percent, struct gb_error *error)
{
    char *end;
    unsigned long number = strtoul(size, &end, 10);

    *percent = 0;
    *bytes = 0;
    if (isdigit((unsigned char)*size) && strcmp(end, "%") == 0) {
        if (number < 1 || number > 100)
            return gb_fail(error, GPUBUF_E_INVALID, "%s: expected 1%% to 100%%", value);
        *percent = (unsigned)number;
        return 0;
    }
    if (gb_size_parse(size, bytes) && *bytes > 0)
        return 0;
    return gb_fail(error, GPUBUF_E_INVALID, "%s: \"%s\" is no size; expected one such as %s", value,
                   size, such);
}

/* Splits "cuda:0:50%" into the device and its share; half of the device if none is said. */
static int read_spec(const char *value, struct gb_device_spec *spec, struct gb_error *error)
{
    size_t id_length = gb_device_id_length(value);
    const char *size = value[id_length] ? value + id_length + 1 : "50%";

    if (id_length == 0 || id_length >= sizeof(spec->id))
        return gb_fail(error, GPUBUF_E_INVALID, "\"%s\" names no device", value);
    memcpy(spec->id, value, id_length);
    spec->id[id_length] = '\0';
    return read_share(value, size, "512M, 2G or 50%", &spec->bytes, &spec->percent, error);
}

/* Keeps how an option was given, for what is found to be wrong with it later. */
static int keep_place(const struct gb_config *config, const char *option, const char *value,
                      char **text, struct gb_error *error)
{
    const struct gb_option_place *place = &config->place;
    char given[1024];

    if (place->file)
        snprintf(given, sizeof(given), "%s:%u: %s = %s", place->file, place->line, option, value);
    else
        snprintf(given, sizeof(given), "--%s %s", option, value);
    return gb_option_keep(text, given, error);
}

static int set_device(void *at, const char *value, struct gb_error *error)
{
    struct gb_config *config = at;
    struct gb_device_spec *spec = &config->devices[config->device_count];
    int r;

    if (config->device_count == GB_DEVICES)
        return gb_fail(error, GPUBUF_E_INVALID, "more than %d devices", GB_DEVICES);
    r = read_spec(value, spec, error);
    if (r < 0)
        return r;
    if (!gb_device_is_known(spec->id))
        return gb_fail(
            error, GPUBUF_E_INVALID,
            "unknown device \"%s\"; expected host, cuda:N, cuda:all, hip:N, hip:all, GPU-UUID "
            "or HIP-UUID, and maybe :SIZE",
            spec->id);
    for (unsigned i = 0; i < config->device_count; i++)
        if (strcmp(config->devices[i].id, spec->id) == 0)
            return gb_fail(error, GPUBUF_E_INVALID, "the device %s is given twice", spec->id);
    r = keep_place(config, "device", value, &spec->text, error);
    if (r == 0)
        config->device_count++;
    return r;
}

static int read_budget(const char *value, const char *size, uint64_t *bytes, unsigned *percent,
                       struct gb_error *error)
{
    int r = read_share(value, size, "8G or 25%", bytes, percent, error);

    if (r == 0 && !*percent && *bytes < GB_TIER_LEAST)
        return gb_fail(error, GPUBUF_E_INVALID, "%s: a tier needs at least 2M", value);
    return r;
}

static int set_host_tier(struct gb_config *config, const char *value, struct gb_error *error)
{
    uint64_t total = gb_device_host_memory();
    unsigned percent;
    int r = read_budget(value, value + strlen("host:"), &config->spill.host, &percent, error);

    if (r == 0 && percent > 0)
        config->spill.host = total / 100 * percent;
    if (r == 0 && config->spill.host > total)
        return gb_fail(error, GPUBUF_E_INVALID,
                       "%s: that is more than the machine has, %" PRIu64 " MiB", value,
                       total >> 20);
    return r;
}

/* "disk:100G:/var/lib/gpubufd/spill". The directory is checked when the tier is made. */
static int set_disk_tier(struct gb_config *config, const char *value, struct gb_error *error)
{
    const char *size = value + strlen("disk:"), *colon = strchr(size, ':');
    char text[32];
    int r;

    if (!colon || (size_t)(colon - size) >= sizeof(text) || !colon[1])
        return gb_fail(error, GPUBUF_E_INVALID, "\"%s\": expected disk:SIZE:DIRECTORY", value);
    memcpy(text, size, (size_t)(colon - size));
    text[colon - size] = '\0';
    r = read_budget(value, text, &config->spill.disk, &config->spill.disk_percent, error);
    if (r == 0)
        r = gb_option_keep(&config->spill.dir, colon + 1, error);
    return r < 0 ? r : keep_place(config, "tier", value, &config->spill.text, error);
}

static int set_tier(void *at, const char *value, struct gb_error *error)
{
    struct gb_config *config = at;

    if (strncmp(value, "host:", 5) == 0)
        return set_host_tier(config, value, error);
    if (strncmp(value, "disk:", 5) == 0)
        return set_disk_tier(config, value, error);
    return gb_fail(error, GPUBUF_E_INVALID, "\"%s\": expected host:SIZE or disk:SIZE:DIRECTORY",
                   value);
}

static int set_evict(void *at, const char *value, struct gb_error *error)
{
    bool *drops = at;

    *drops = strcmp(value, "drop") == 0;
    if (*drops || strcmp(value, "spill") == 0)
        return 0;
    return gb_fail(error, GPUBUF_E_INVALID, "\"%s\" is neither spill nor drop", value);
}

static int set_watermarks(void *at, const char *value, struct gb_error *error)
{
    struct gb_spill_settings *spill = at;
    unsigned low, high;
    char rest;

    if (sscanf(value, "%3u:%3u%c", &low, &high, &rest) != 2 || low > high || high > 100)
        return gb_fail(error, GPUBUF_E_INVALID,
                       "\"%s\": expected LOW:HIGH in percent, such as 80:90", value);
    spill->low_watermark = low;
    spill->high_watermark = high;
    return 0;
}

#define IS_FIXED SIZE_MAX

static int set_limit(void *at, const char *value, struct gb_error *error)
{
    static const struct {
        const char *name;
        size_t offset;
    } limits[] = {
#define TO_SET(name, value, text) {#name, offsetof(struct gb_limits, name)},
#define FIXED(name, value, text) {#name, IS_FIXED},
        GB_LIMITS_FIXED(FIXED) GB_LIMITS_TO_SET(TO_SET)};
    struct gb_config *config = at;
    const char *equals = strchr(value, '=');
    uint64_t number;

    if (!equals || !gb_size_parse(equals + 1, &number) || number == 0 ||
        number > (uint64_t)GB_LIMIT(integer))
        return gb_fail(error, GPUBUF_E_INVALID, "\"%s\": expected NAME=VALUE, such as sessions=100",
                       value);
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        if (strlen(limits[i].name) != (size_t)(equals - value) ||
            strncmp(limits[i].name, value, (size_t)(equals - value)) != 0)
            continue;
        if (limits[i].offset == IS_FIXED)
            return gb_fail(error, GPUBUF_E_INVALID, "%s is the protocol's and cannot be changed",
                           limits[i].name);
        memcpy((char *)&config->limits + limits[i].offset, &number, sizeof(number));
        return 0;
    }
    return gb_fail(error, GPUBUF_E_INVALID,
                   "there is no limit \"%.*s\"; docs/PROTOCOL-SPACE.md has them",
                   (int)(equals - value), value);
}

static int set_quota(void *at, const char *value, struct gb_error *error)
{
    struct gb_config *config = at;

    return gb_quota_read(value, &config->limits, &config->quotas, &config->quota_count, error);
}

static int set_provider(void *at, const char *value, struct gb_error *error)
{
    struct gb_config *config = at;
    const char *colon = strchr(value, ':');
    struct gb_provider_rule *rules, rule = {.prefix = NULL};
    char who[64];

    if (!colon || (size_t)(colon - value) >= sizeof(who) ||
        strlen(colon + 1) > GB_LIMIT(name_bytes))
        return gb_fail(error, GPUBUF_E_INVALID,
                       "\"%.100s\": expected USER:PREFIX, such as alice:cols/", value);
    memcpy(who, value, (size_t)(colon - value));
    who[colon - value] = '\0';
    if (gb_uid_read(who, &rule.uid, error) < 0)
        return error->code;
    rules = realloc(config->providers, (config->provider_count + 1) * sizeof(*rules));
    if (rules)
        config->providers = rules;
    if (!rules || gb_option_keep(&rule.prefix, colon + 1, error) < 0)
        return gb_fail_memory(error);
    rules[config->provider_count++] = rule;
    return 0;
}

bool gb_config_may_provide(const struct gb_config *config, uid_t uid, const char *prefix)
{
    for (unsigned i = 0; i < config->provider_count; i++) {
        const struct gb_provider_rule *rule = &config->providers[i];

        if (rule->uid == uid && strncmp(prefix, rule->prefix, strlen(rule->prefix)) == 0)
            return true;
    }
    return false;
}

static int set_retire_after(void *at, const char *value, struct gb_error *error)
{
    uint64_t *ms = at;
    const uint64_t most = GB_LIMIT(wait_ms);
    char *end;

    errno = 0;
    if (strcmp(value, "never") == 0) {
        *ms = UINT64_MAX;
        return 0;
    }
    *ms = strtoull(value, &end, 10);
    if (!isdigit((unsigned char)*value) || *end || errno || *ms > most)
        return gb_fail(error, GPUBUF_E_INVALID,
                       "\"%s\": expected milliseconds, 0 to %" PRIu64 ", or never", value, most);
    return 0;
}

/* ---- options ---- */

#define AT(member) offsetof(struct gb_config, member)

static const struct gb_option known[] = {
    {"socket", "PATH",
     "socket to listen on (default: $GPUBUFD_SOCKET, else /run/gpubufd/gpubufd.sock where "
     "/run/gpubufd can be written, else $XDG_RUNTIME_DIR/gpubufd.sock, else "
     "/tmp/gpubufd-UID/gpubufd.sock)",
     .kind = GB_OPTION_TEXT, .member = AT(socket)},
    {"mode", "OCTAL", "permissions of the socket (default: 0666; objects have their own)",
     .member = AT(mode), .set = set_mode},
    {"device", "SPEC",
     "device to serve, and how much of it: host:2G, cuda:0:50%, hip:all, GPU-UUID:8G; may be "
     "given often, the first is the default (default: host; without a size, half of the device)",
     .set = set_device},
    {"tier", "SPEC",
     "where objects move when a device is full: host:SIZE, then disk:SIZE:DIR; may be given once "
     "each (default: none, and they stay)",
     .set = set_tier},
    {"evict", "WHAT",
     "fate of objects when memory is short, unless their publisher sets it: spill (move to a "
     "tier, or stay), or drop, for a cache (default: spill)",
     .member = AT(drops), .set = set_evict},
    {"watermarks", "LOW:HIGH",
     "while more than HIGH percent of a device are in use, copy objects to a tier ahead of time, "
     "until at most LOW percent have no copy (default: 80:90)",
     .member = AT(spill), .set = set_watermarks},
    {"limit", "NAME=VALUE", "change a limit; may be given often (docs/PROTOCOL-SPACE.md has them)",
     .set = set_limit},
    {"quota", "WHO:NAME=VALUE,...",
     "how much a user may have: default:bytes=4G,objects=1000 for everybody, "
     "alice:bytes=16G@cuda:0,segments=50,sessions=20 for one; by name or uid; may be given often",
     .set = set_quota},
    {"provider", "USER:PREFIX",
     "a user, by name or uid, who may make absent names that begin with PREFIX when "
     "others open them (empty: all names); may be given often "
     "(default: root and the daemon's own user, all names)",
     .set = set_provider},
    {"retire-after", "MS",
     "return a segment to its device when it has been empty for this time; 0: at once; or never "
     "(default: 60000)",
     .member = AT(retire_after_ms), .set = set_retire_after},
    {"grace", "MS",
     "after a restart, neither evict nor free inherited objects for this time, so that clients "
     "find them (default: 10000)",
     .kind = GB_OPTION_NUMBER, .member = AT(grace_ms), .most = GB_LIMIT(wait_ms)},
    {"watchdog", "MS",
     "with --supervise: replace a daemon that shows no sign of life for this time (default: "
     "60000)",
     .kind = GB_OPTION_NUMBER, .member = AT(watchdog_ms), .least = 100, .most = GB_LIMIT(wait_ms)},
    {"idle-exit", "MS",
     "exit and free all objects when nobody has been connected for this time (default: never)",
     .kind = GB_OPTION_NUMBER, .member = AT(idle_exit_ms), .least = 1, .most = GB_LIMIT(wait_ms)},
    GB_LOG_LEVEL_OPTION(AT(log_level)),
    GB_LOG_FORMAT_OPTION(AT(log_json)),
    {"config", "FILE", "read options from a file of `key = value` lines; the command line wins",
     .kind = GB_OPTION_FILE},
    {"check", "FILE", "read options as --config does, try them and the devices, and exit",
     .kind = GB_OPTION_FILE, .member = AT(check)},
    {"supervise", NULL,
     "run the daemon as a child, restart it when it dies, and keep its memory meanwhile, where "
     "systemd does not",
     .kind = GB_OPTION_FLAG, .member = AT(supervise)},
    {"probe", NULL, "print the devices as JSON and exit", .kind = GB_OPTION_FLAG,
     .member = AT(probe)},
    {"version", NULL, "print the version and exit", .kind = GB_OPTION_FLAG, .member = AT(version)},
    {"help", NULL, "print this and exit", .kind = GB_OPTION_FLAG, .member = AT(help)},
    {.name = NULL},
};

static const struct gb_program program = {"gpubufd", known, AT(place)};

void gb_config_help(void)
{
    printf("Usage: gpubufd [OPTION]...\n"
           "Own memory of GPUs and of the host, and share it by name over a local socket.\n\n");
    gb_option_help(&program);
    printf("\nExit status: 0 after a clean stop, 1 on a failure while running,\n"
           "2 if it cannot start. See gpubufd(8).\n");
}

/* Devices of the command line take the place of those of the file. */
static void drop_devices(struct gb_config *config)
{
    for (unsigned i = 0; i < config->device_count; i++)
        free(config->devices[i].text);
    memset(config->devices, 0, sizeof(config->devices));
    config->device_count = 0;
}

static bool has_device(char **argv)
{
    for (; *argv; argv++)
        if (strcmp(*argv, "--device") == 0 || strncmp(*argv, "--device=", 9) == 0)
            return true;
    return false;
}

int gb_config_read(struct gb_config *config, char **argv, struct gb_error *error)
{
    *config = (struct gb_config){
        .mode = 0666,
        .spill = {.low_watermark = 80, .high_watermark = 90},
        .log_level = GB_LOG_INFO,
        .retire_after_ms = 60000,
        .grace_ms = 10000,
        .watchdog_ms = 60000,
        .limits =
            {
#define GB_LIMIT_DEFAULT(name, value, text) .name = (value),
                GB_LIMIT_MAP(GB_LIMIT_DEFAULT)
#undef GB_LIMIT_DEFAULT
            },
    };
    if (gb_option_read_file(&program, config, argv, error) < 0)
        return error->code;
    if (has_device(argv))
        drop_devices(config);
    if (gb_option_read_line(&program, config, argv, error) < 0)
        return error->code;
    return config->device_count ? 0 : set_device(config, "host", error);
}

void gb_config_end(struct gb_config *config)
{
    gb_option_free(&program, config);
    free(config->spill.dir);
    free(config->spill.text);
    free(config->quotas);
    for (unsigned i = 0; i < config->provider_count; i++)
        free(config->providers[i].prefix);
    free(config->providers);
    drop_devices(config);
}
