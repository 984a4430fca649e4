#include "client/gateway/options.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct option {
    const char *name, *argument, *help;
    int (*set)(struct gb_options *options, const char *value, struct gb_error *error);
};

/* ---- values ---- */

static int set_string(char **member, const char *value, struct gb_error *error)
{
    char *copy = strdup(value);

    if (!copy)
        return gb_fail_memory(error);
    free(*member);
    *member = copy;
    return 0;
}

static int add_string(char **members, unsigned *count, const char *value, struct gb_error *error)
{
    if (*count == GB_OPTIONS_MANY)
        return gb_fail(error, GPUBUF_E_INVALID, "given more than %d times", GB_OPTIONS_MANY);
    if (set_string(&members[*count], value, error) < 0)
        return error->code;
    (*count)++;
    return 0;
}

static int set_socket(struct gb_options *options, const char *value, struct gb_error *error)
{
    if (!*value)
        return gb_fail(error, GPUBUF_E_INVALID, "expected a path");
    return set_string(&options->socket, value, error);
}

static int set_peer_socket(struct gb_options *options, const char *value, struct gb_error *error)
{
    if (!*value)
        return gb_fail(error, GPUBUF_E_INVALID, "expected a path");
    return set_string(&options->peer_socket, value, error);
}

static int add_http(struct gb_options *options, const char *value, struct gb_error *error)
{
    return add_string(options->http, &options->http_count, value, error);
}

static int set_token_file(struct gb_options *options, const char *value, struct gb_error *error)
{
    return set_string(&options->token_file, value, error);
}

static int add_name(struct gb_options *options, const char *value, struct gb_error *error)
{
    for (const char *c = value; *c || c == value; c++)
        if (!isalnum((unsigned char)*c) && !(*c && strchr("-._", *c)))
            return gb_fail(error, GPUBUF_E_INVALID,
                           "\"%s\" is no host name such as gpu7.example.org", value);
    return add_string(options->names, &options->name_count, value, error);
}

static int add_events(struct gb_options *options, const char *value, struct gb_error *error)
{
    return add_string(options->events, &options->event_count, value, error);
}

static int set_count(unsigned *member, const char *value, struct gb_error *error)
{
    char *end;
    unsigned long number = strtoul(value, &end, 10);

    if (!isdigit((unsigned char)*value) || *end || number < 4 || number > 4096)
        return gb_fail(error, GPUBUF_E_INVALID, "\"%s\": expected a number from 4 to 4096", value);
    *member = (unsigned)number;
    return 0;
}

static int set_connections(struct gb_options *options, const char *value, struct gb_error *error)
{
    return set_count(&options->connections, value, error);
}

static int set_subscribers(struct gb_options *options, const char *value, struct gb_error *error)
{
    return set_count(&options->subscribers, value, error);
}

static int read_file(struct gb_options *options, const char *path, struct gb_error *error);

static int set_help(struct gb_options *options, const char *value, struct gb_error *error)
{
    (void)value;
    (void)error;
    options->help = true;
    return 0;
}

static int set_version(struct gb_options *options, const char *value, struct gb_error *error)
{
    (void)value;
    (void)error;
    options->version = true;
    return 0;
}

static const struct option known[] = {
    {"config", "FILE",
     "read options from FILE first: lines such as\n"
     "                           http = 127.0.0.1:9464",
     read_file},
    {"socket", "PATH",
     "the daemon's socket, if it is not in one of the\n"
     "                           default places",
     set_socket},
    {"http", "WHERE",
     "serve the page, metrics and the API at\n"
     "                           ADDRESS:PORT or unix:PATH",
     add_http},
    {"http-token-file", "FILE", "ask for the token in FILE, and show everything", set_token_file},
    {"http-name", "NAME",
     "a host name by which it is reached, as through a\n"
     "                           proxy",
     add_name},
    {"peer-socket", "PATH",
     "where gpubufd-peer answers (its --query): its\n"
     "                           metrics are added",
     set_peer_socket},
    {"events", "URL",
     "publish events to NNG's subscribers, at\n"
     "                           ipc:///PATH or tcp://127.0.0.1:PORT",
     add_events},
    {"connections", "N", "of HTTP, at most N at each address (64)", set_connections},
    {"subscribers", "N", "to events, at most N at each URL (128)", set_subscribers},
    {"help", NULL, "print this and exit", set_help},
    {"version", NULL, "print the version and exit", set_version},
};

#define KNOWN (sizeof(known) / sizeof(known[0]))

static const struct option *find(const char *name, size_t length)
{
    for (size_t i = 0; i < KNOWN; i++)
        if (strlen(known[i].name) == length && memcmp(known[i].name, name, length) == 0)
            return &known[i];
    return NULL;
}

/* ---- the file ---- */

static char *trim(char *text)
{
    char *end = text + strlen(text);

    while (isspace((unsigned char)*text))
        text++;
    while (end > text && isspace((unsigned char)end[-1]))
        end--;
    *end = '\0';
    return text;
}

static int read_line(struct gb_options *options, char *line, struct gb_error *error)
{
    char *key = trim(line), *equals = strchr(key, '='), *name;
    const struct option *option;

    if (!*key || *key == '#')
        return 0;
    if (!equals)
        return gb_fail(error, GPUBUF_E_INVALID, "expected KEY = VALUE, found \"%s\"", key);
    *equals = '\0';
    name = trim(key);
    option = find(name, strlen(name));
    if (!option || !option->argument || option->set == read_file)
        return gb_fail(error, GPUBUF_E_INVALID, "there is no key \"%s\"", name);
    return option->set(options, trim(equals + 1), error);
}

static int read_file(struct gb_options *options, const char *path, struct gb_error *error)
{
    FILE *file = fopen(path, "re");
    char *line = NULL;
    size_t size = 0;
    unsigned number = 0;
    int r = 0;

    if (!file)
        return gb_fail_errno(error, "cannot read %s", path);
    while (r == 0 && getline(&line, &size, file) >= 0) {
        struct gb_error why;

        number++;
        r = read_line(options, line, &why);
        if (r < 0)
            (void)gb_fail(error, why.code, "%s, line %u: %s", path, number, why.message);
    }
    free(line);
    fclose(file);
    return r;
}

/* ---- the command line ---- */

/* `--name VALUE` or `--name=VALUE`; *at is moved past it. */
static int read_argument(struct gb_options *options, char **argv, int *at, struct gb_error *error)
{
    const char *text = argv[*at], *equals = strchr(text, '='), *value = equals ? equals + 1 : NULL;
    const struct option *option = NULL;
    struct gb_error why;

    if (strncmp(text, "--", 2) == 0)
        option = find(text + 2, equals ? (size_t)(equals - text) - 2 : strlen(text + 2));
    if (!option)
        return gb_fail(error, GPUBUF_E_INVALID, "there is no option %s; --help lists them", text);
    if (option->argument && !value)
        value = argv[++*at];
    if (option->argument ? !value : value != NULL)
        return gb_fail(error, GPUBUF_E_INVALID, "--%s %s", option->name,
                       option->argument ? "needs a value" : "takes no value");
    if (option->set(options, value, &why) < 0)
        return gb_fail(error, why.code, "--%s: %s", option->name, why.message);
    ++*at;
    return 0;
}

/* The file comes first, wherever on the line it stands: options are over its keys. */
static int read_config(struct gb_options *options, int argc, char **argv, struct gb_error *error)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--config") == 0 && i + 1 < argc)
            return read_file(options, argv[i + 1], error);
        if (strncmp(argv[i], "--config=", 9) == 0)
            return read_file(options, argv[i] + 9, error);
    }
    return 0;
}

int gb_options_read(struct gb_options *options, int argc, char **argv, struct gb_error *error)
{
    int at = 1;

    *options = (struct gb_options){.connections = 64, .subscribers = 128};
    if (read_config(options, argc, argv, error) < 0)
        return error->code;
    while (at < argc) {
        if (strcmp(argv[at], "--config") == 0 && at + 1 < argc) {
            at += 2;
        } else if (strncmp(argv[at], "--config=", 9) == 0) {
            at++;
        } else if (read_argument(options, argv, &at, error) < 0) {
            return error->code;
        }
    }
    if (!options->help && !options->version && options->http_count + options->event_count == 0)
        return gb_fail(error, GPUBUF_E_INVALID,
                       "nothing to do: say --http 127.0.0.1:9464, or --events ipc:///PATH");
    return 0;
}

void gb_options_end(struct gb_options *options)
{
    free(options->socket);
    free(options->token_file);
    free(options->peer_socket);
    for (unsigned i = 0; i < GB_OPTIONS_MANY; i++) {
        free(options->http[i]);
        free(options->names[i]);
        free(options->events[i]);
    }
}

void gb_options_help(void)
{
    printf("usage: gpubufd-gateway [OPTION]...\n\n"
           "Shows what gpubufd holds over HTTP, and publishes its events.\n"
           "See gpubufd-gateway(8).\n\n");
    for (size_t i = 0; i < KNOWN; i++) {
        char left[40];

        snprintf(left, sizeof(left), "--%s%s%s", known[i].name, known[i].argument ? " " : "",
                 known[i].argument ? known[i].argument : "");
        printf("  %-24s %s\n", left, known[i].help);
    }
}
