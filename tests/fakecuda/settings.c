#include "fake.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define RULES 64

enum rule_kind { FAIL, DELAY, LOST, ATTRIBUTE, POINTER };

/* One item of FAKECUDA_FAIL, _DELAY, _LOST, _ATTRIBUTE or _POINTER. */
struct rule {
    enum rule_kind kind;
    char function[64];    /* FAIL, DELAY; "*": all */
    uint64_t first, last; /* FAIL: these calls */
    uint64_t calls;       /* counted while `path` exists */
    unsigned int number;  /* the device or attribute concerned */
    int value;            /* the error, milliseconds, or the attribute's value */
    char path[256];       /* the rule holds while this file exists; "": always */
};

struct fc_settings fc_settings;
pthread_mutex_t fc_lock = PTHREAD_MUTEX_INITIALIZER;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct rule rules[RULES];
static int rule_count;
static struct fc_gate *gates;
static int trace_fd = -1;
static pid_t init_pid; /* the process that called cuInit; 0: none did */

void fc_unlock_at(pthread_mutex_t **lock)
{
    pthread_mutex_unlock(*lock);
}

/* Ends the program: with a setting that cannot be understood a test would pass without testing
   anything. */
static void __attribute__((noreturn)) refuse(const char *variable, const char *text)
{
    fprintf(stderr, "fakecuda: cannot understand %s=%s\n", variable, text);
    abort();
}

static size_t size_setting(const char *variable, size_t otherwise)
{
    const char *text = getenv(variable);
    if (!text || !*text)
        return otherwise;
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
    if (errno || end == text || end[shift != 0] || value > SIZE_MAX >> shift)
        refuse(variable, text);
    return (size_t)value << shift;
}

/* ---- rules ---- */

/* Cuts `text` at the first `mark`, and gives what follows; NULL if there is none. */
static char *cut(char *text, char mark)
{
    char *at = strchr(text, mark);
    if (at)
        *at++ = '\0';
    return at;
}

static bool number(const char *text, uint64_t *value)
{
    char *end;
    if (!text || *text < '0' || *text > '9')
        return false;
    *value = strtoull(text, &end, 10);
    return !*end;
}

static bool set_path(struct rule *rule, const char *path)
{
    if (path && strlen(path) < sizeof(rule->path))
        strcpy(rule->path, path);
    return !path || *rule->path;
}

/* function:calls:error[@path] or function:milliseconds[@path] */
static bool read_function_rule(struct rule *rule, char *text)
{
    char *path = cut(text, '@');
    char *when = cut(text, ':');
    char *value = when && rule->kind == FAIL ? cut(when, ':') : when;
    uint64_t result;
    if (!number(value, &result) || strlen(text) >= sizeof(rule->function))
        return false;
    strcpy(rule->function, text);
    rule->value = (int)result;
    rule->first = 1;
    rule->last = UINT64_MAX;
    if (rule->kind == FAIL && strcmp(when, "*")) {
        char *last = cut(when, '-');
        if (!number(when, &rule->first) || !number(last ? last : when, &rule->last))
            return false;
    }
    return set_path(rule, path);
}

/* device:path[:error] or attribute:value */
static bool read_number_rule(struct rule *rule, char *text)
{
    char *value = cut(text, ':');
    uint64_t result;
    if (!value || !number(text, &result))
        return false;
    rule->number = (unsigned int)result;
    if (rule->kind == LOST) {
        char *error = cut(value, ':');
        result = CUDA_ERROR_DEVICE_UNAVAILABLE;
        if (error && !number(error, &result))
            return false;
        rule->value = (int)result;
        return set_path(rule, value);
    }
    rule->value = atoi(value);
    return true;
}

static void read_rules(const char *variable, enum rule_kind kind)
{
    const char *setting = getenv(variable);
    if (!setting || !*setting)
        return;
    char *text = strdup(setting);
    for (char *item = text, *next; text && item; item = next) {
        next = cut(item, ',');
        struct rule rule = {.kind = kind};
        bool good = kind == FAIL || kind == DELAY ? read_function_rule(&rule, item)
                                                  : read_number_rule(&rule, item);
        if (!good || rule_count == RULES)
            refuse(variable, setting);
        rules[rule_count++] = rule;
    }
    free(text);
}

static bool holds(const struct rule *rule)
{
    return !*rule->path || access(rule->path, F_OK) == 0;
}

/* ---- CUDA_VISIBLE_DEVICES ---- */

/* The physical device that one item names, or -1. Numbers are read as by atoi, as the driver
   does. */
static int visible_item(const char *item)
{
    if (strncmp(item, "GPU-", 4) && strncmp(item, "MIG-", 4)) {
        char *end;
        long index = strtol(item, &end, 10);
        return end == item || index < 0 || index >= fc_settings.devices ? -1 : (int)index;
    }
    int found = -1;
    for (int i = 0; i < fc_settings.devices; i++) {
        char uuid[64];
        bool instance = item[0] == 'M';
        snprintf(uuid, sizeof(uuid), "%s-%s-0000-4000-8000-0000000000%02x",
                 instance ? "MIG" : "GPU", instance ? "fa4e0319" : "fa4ecada", i);
        if (strncmp(uuid, item, strlen(item)))
            continue;
        if (found >= 0)
            return -1; /* not the start of one only */
        found = i;
    }
    return found;
}

/* Reads CUDA_VISIBLE_DEVICES: the devices in the order named, up to the first name that is not a
   device. One named twice is an error. */
static CUresult read_visible(void)
{
    struct fc_settings *settings = &fc_settings;
    const char *setting = getenv("CUDA_VISIBLE_DEVICES");
    settings->visible_count = 0;
    for (int i = 0; !setting && i < settings->devices; i++)
        settings->visible[settings->visible_count++] = i;
    char *text = setting ? strdup(setting) : NULL;
    CUresult result = CUDA_SUCCESS;
    for (char *item = text, *next; item; item = next) {
        next = cut(item, ',');
        int device = visible_item(item);
        if (device < 0)
            break;
        if (fc_ordinal(device) >= 0) {
            result = CUDA_ERROR_INVALID_DEVICE;
            break;
        }
        settings->visible[settings->visible_count++] = device;
    }
    free(text);
    return result == CUDA_SUCCESS && !settings->visible_count ? CUDA_ERROR_NO_DEVICE : result;
}

/* A child of fork() may still ask, and is told that the driver is not initialised there. */
static void before_fork(void)
{
    pthread_mutex_lock(&fc_lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&fc_lock);
}

static void read_settings(void)
{
    struct fc_settings *settings = &fc_settings;
    if (pthread_atfork(before_fork, after_fork, after_fork))
        abort();
    size_t devices = size_setting("FAKECUDA_DEVICES", 2);
    if (devices > FC_DEVICES)
        refuse("FAKECUDA_DEVICES", "more than 16");
    settings->devices = (int)devices;
    settings->memory = size_setting("FAKECUDA_MEMORY", (size_t)256 << 20);
    settings->context = size_setting("FAKECUDA_CONTEXT", (size_t)8 << 20);
    settings->version = (int)size_setting("FAKECUDA_VERSION", 13000);
    settings->peer = size_setting("FAKECUDA_PEER", 1) != 0;
    settings->mig = size_setting("FAKECUDA_MIG", 0) != 0;
    settings->stream_delay = (unsigned int)size_setting("FAKECUDA_STREAM_DELAY", 0);
    settings->name = getenv("FAKECUDA_NAME");
    if (!settings->name)
        settings->name = settings->mig ? "fakecuda MIG 1g.1gb" : "fakecuda";
    else if (!(settings->name = strdup(settings->name)))
        abort();
    read_rules("FAKECUDA_FAIL", FAIL);
    read_rules("FAKECUDA_DELAY", DELAY);
    read_rules("FAKECUDA_LOST", LOST);
    read_rules("FAKECUDA_ATTRIBUTE", ATTRIBUTE);
    read_rules("FAKECUDA_POINTER", POINTER);
    const char *trace = getenv("FAKECUDA_TRACE");
    if (trace && *trace) {
        trace_fd = open(trace, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
        if (trace_fd < 0)
            refuse("FAKECUDA_TRACE", trace);
    }
}

/* ---- the gate ---- */

static void pause_for(unsigned int milliseconds)
{
    struct timespec rest = {.tv_sec = milliseconds / 1000,
                            .tv_nsec = (long)(milliseconds % 1000) * 1000000};
    while (nanosleep(&rest, &rest) < 0 && errno == EINTR)
        continue;
}

/* Sleeps while the rule holds, at most for the time that it says. */
static void pause_while(const struct rule *rule)
{
    for (int waited = 0; waited < rule->value && holds(rule); waited++)
        pause_for(1);
}

static void trace(const char *name)
{
    char line[96];
    int length = snprintf(line, sizeof(line), "%d %s\n", (int)getpid(), name);
    if (length > 0 && write(trace_fd, line, (size_t)length) < 0)
        abort();
}

CUresult fc_enter(struct fc_gate *gate)
{
    pthread_once(&once, read_settings);
    CUresult result = CUDA_SUCCESS;
    const struct rule *held = NULL;
    unsigned int delay = 0;
    pthread_mutex_lock(&fc_lock);
    if (!gate->known) {
        gate->known = true;
        gate->next = gates;
        gates = gate;
    }
    gate->calls++;
    for (int i = 0; i < rule_count; i++) {
        struct rule *rule = &rules[i];
        if ((rule->kind != FAIL && rule->kind != DELAY) ||
            (strcmp(rule->function, gate->name) && strcmp(rule->function, "*")) || !holds(rule))
            continue;
        rule->calls++;
        if (rule->kind == DELAY && *rule->path)
            held = rule;
        else if (rule->kind == DELAY)
            delay += (unsigned int)rule->value;
        else if (rule->calls >= rule->first && rule->calls <= rule->last)
            result = (CUresult)rule->value;
    }
    if (result == CUDA_SUCCESS && !gate->uninitialised && init_pid != getpid())
        result = CUDA_ERROR_NOT_INITIALIZED;
    pthread_mutex_unlock(&fc_lock);
    if (trace_fd >= 0)
        trace(gate->name);
    if (delay)
        pause_for(delay);
    if (held)
        pause_while(held);
    return result;
}

CUresult fc_init(void)
{
    if (init_pid && init_pid != getpid())
        return CUDA_ERROR_NOT_INITIALIZED; /* forked */
    if (init_pid)
        return CUDA_SUCCESS;
    CUresult result = read_visible();
    if (result == CUDA_SUCCESS)
        result = fc_store_init();
    if (result == CUDA_SUCCESS)
        init_pid = getpid();
    return result;
}

int fc_physical(int ordinal)
{
    return ordinal >= 0 && ordinal < fc_settings.visible_count ? fc_settings.visible[ordinal] : -1;
}

int fc_ordinal(int physical)
{
    for (int i = 0; i < fc_settings.visible_count; i++)
        if (fc_settings.visible[i] == physical)
            return i;
    return -1;
}

CUresult fc_lost(int physical)
{
    for (int i = 0; i < rule_count; i++)
        if (rules[i].kind == LOST && (int)rules[i].number == physical && holds(&rules[i]))
            return (CUresult)rules[i].value;
    return CUDA_SUCCESS;
}

int fc_attribute_override(int attribute, int value)
{
    for (int i = 0; i < rule_count; i++)
        if (rules[i].kind == ATTRIBUTE && (int)rules[i].number == attribute)
            return rules[i].value;
    return value;
}

void fc_pointer_override(int attribute, void *value)
{
    for (int i = 0; i < rule_count; i++)
        if (rules[i].kind == POINTER && (int)rules[i].number == attribute)
            memcpy(value, &rules[i].value, sizeof(rules[i].value));
}

uint64_t fc_gate_calls(const char *name)
{
    for (const struct fc_gate *gate = gates; gate; gate = gate->next)
        if (!strcmp(gate->name, name))
            return gate->calls;
    return 0;
}
