#include "client/peer/options.h"

#include <ctype.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/peer/tls.h"

struct option {
    const char *name, *argument, *help;
    int (*set)(void *member, const struct option *option, const char *value,
               struct gb_error *error);
    size_t member; /* where in the options */
    uint64_t least, most;
};

/* ---- values ---- */

static int set_string(void *member, const struct option *option, const char *value,
                      struct gb_error *error)
{
    char **string = member, *copy = strdup(value);

    (void)option;
    if (!copy)
        return gb_fail_memory(error);
    if (!*value) {
        free(copy);
        return gb_fail(error, GPUBUF_E_INVALID, "expected a value");
    }
    free(*string);
    *string = copy;
    return 0;
}

static int read_number(const struct option *option, const char *value, uint64_t *number,
                       struct gb_error *error)
{
    char *end = NULL;

    *number = isdigit((unsigned char)*value) ? strtoull(value, &end, 10) : 0;
    if (!end || *end || *number < option->least || *number > option->most)
        return gb_fail(error, GPUBUF_E_INVALID, "\"%s\": expected a number from %llu to %llu",
                       value, (unsigned long long)option->least, (unsigned long long)option->most);
    return 0;
}

static int set_count(void *member, const struct option *option, const char *value,
                     struct gb_error *error)
{
    uint64_t number;
    int r = read_number(option, value, &number, error);

    if (r == 0)
        *(unsigned *)member = (unsigned)number;
    return r;
}

static int set_bytes(void *member, const struct option *option, const char *value,
                     struct gb_error *error)
{
    return read_number(option, value, member, error);
}

static int add_prefix(void *member, const struct option *option, const char *value,
                      struct gb_error *error)
{
    struct gb_options *options = member;
    char *copy;

    (void)option;
    if (options->prefix_count == GB_PREFIXES_MOST)
        return gb_fail(error, GPUBUF_E_INVALID, "given more than %d times", GB_PREFIXES_MOST);
    copy = strdup(value);
    if (!copy)
        return gb_fail_memory(error);
    options->prefixes[options->prefix_count++] = copy;
    return 0;
}

static int add_etcd(void *member, const struct option *option, const char *value,
                    struct gb_error *error)
{
    struct gb_options *options = member;
    char *copy;

    (void)option;
    if (options->etcd_count == GB_ETCD_ENDPOINTS)
        return gb_fail(error, GPUBUF_E_INVALID, "given more than %d times", GB_ETCD_ENDPOINTS);
    if (strncmp(value, "http://", 7) != 0 && strncmp(value, "https://", 8) != 0)
        return gb_fail(error, GPUBUF_E_INVALID,
                       "\"%s\": expected a URL such as https://192.0.2.7:2379", value);
    copy = strdup(value);
    if (!copy)
        return gb_fail_memory(error);
    options->etcd[options->etcd_count++] = copy;
    return 0;
}

/* HOST:PORT into room for a host, where an IPv6 address is in brackets. */
static bool read_place(const char *value, char *host, uint16_t *port)
{
    const char *colon = strrchr(value, ':');
    char *end = NULL;
    unsigned long number = colon ? strtoul(colon + 1, &end, 10) : 0;
    size_t length = colon ? (size_t)(colon - value) : 0;
    bool brackets = length > 2 && value[0] == '[' && colon[-1] == ']';

    if (!length || *end || number == 0 || number > UINT16_MAX || length >= GB_HOST_BYTES)
        return false;
    length -= brackets ? 2 : 0;
    memcpy(host, value + (brackets ? 1 : 0), length);
    host[length] = '\0';
    *port = (uint16_t)number;
    return true;
}

static int set_advertise(void *member, const struct option *option, const char *value,
                         struct gb_error *error)
{
    struct gb_options *options = member;

    (void)option;
    if (!read_place(value, options->advertise, &options->advertise_port))
        return gb_fail(error, GPUBUF_E_INVALID,
                       "\"%s\": expected HOST:PORT, such as 192.0.2.7:9470", value);
    return 0;
}

/* NODE=HOST:PORT. */
static int add_peer(void *member, const struct option *option, const char *value,
                    struct gb_error *error)
{
    struct gb_options *options = member;
    const char *equals = strchr(value, '=');
    struct gb_peer *peer = &options->peers[options->peer_count];

    (void)option;
    if (options->peer_count == GB_PEERS_MOST)
        return gb_fail(error, GPUBUF_E_INVALID, "given more than %d times", GB_PEERS_MOST);
    *peer = (struct gb_peer){.port = 0};
    if (!equals || !gb_tls_is_node(value, (size_t)(equals - value)) ||
        !read_place(equals + 1, peer->host, &peer->port))
        return gb_fail(error, GPUBUF_E_INVALID,
                       "\"%s\": expected NODE=HOST:PORT, such as node2=192.0.2.7:9470", value);
    memcpy(peer->node, value, (size_t)(equals - value));
    for (size_t i = 0; i < options->peer_count; i++)
        if (strcmp(options->peers[i].node, peer->node) == 0)
            return gb_fail(error, GPUBUF_E_INVALID, "%s is given twice", peer->node);
    options->peer_count++;
    return 0;
}

static int set_true(void *member, const struct option *option, const char *value,
                    struct gb_error *error)
{
    (void)option;
    (void)value;
    (void)error;
    *(bool *)member = true;
    return 0;
}

static int set_trusted(void *member, const struct option *option, const char *value,
                       struct gb_error *error)
{
    (void)option;
    if (strcmp(value, "trusted-network") != 0)
        return gb_fail(error, GPUBUF_E_INVALID,
                       "\"%s\": expected trusted-network, which says that nobody else is there",
                       value);
    *(bool *)member = true;
    return 0;
}

#define AT(member) offsetof(struct gb_options, member)

static const struct option known[] = {
    {"config", "FILE", "read options from FILE first: lines such as listen = :9470", NULL, 0, 0, 0},
    {"socket", "PATH", "the daemon's socket, if it is not in one of the default places", set_string,
     AT(socket), 0, 0},
    {"listen", "WHERE", "where other machines connect: ADDRESS:PORT, or :PORT", set_string,
     AT(listen), 0, 0},
    {"authority", "FILE", "certificates of the cluster's authority, in PEM", set_string,
     AT(authority), 0, 0},
    {"certificate", "FILE", "this machine's certificate, whose first DNS name is its node",
     set_string, AT(certificate), 0, 0},
    {"key", "FILE", "the key of the certificate", set_string, AT(key), 0, 0},
    {"peer", "NODE=HOST:PORT", "another machine; to be given for each, 16 times at most", add_peer,
     0, 0, 0},
    {"etcd", "URL",
     "a server of etcd, which has the names; to be given for each, in place of --peer", add_etcd, 0,
     0, 0},
    {"etcd-authority", "FILE", "certificates of the authority of etcd's servers (the system's)",
     set_string, AT(etcd_authority), 0, 0},
    {"etcd-certificate", "FILE", "a certificate that etcd's servers know", set_string,
     AT(etcd_certificate), 0, 0},
    {"etcd-key", "FILE", "the key of that certificate", set_string, AT(etcd_key), 0, 0},
    {"advertise", "HOST:PORT", "where other machines reach this one; with --etcd", set_advertise, 0,
     0, 0},
    {"root", "PATH", "where in etcd the names are (/gpubufd)", set_string, AT(root), 0, 0},
    {"lease-seconds", "N", "names end so long after this machine was last heard of (10)", set_count,
     AT(lease_seconds), 2, 3600},
    {"prefix", "PREFIX", "fetch names that begin with it (every name)", add_prefix, 0, 0, 0},
    {"gpu", "DEVICE", "where copies of what is on a GPU go, such as cuda:0 (host)", set_string,
     AT(gpu), 0, 0},
    {"largest", "BYTES", "of a copy (no bound)", set_bytes, AT(largest), 1, UINT64_MAX / 2},
    {"copy-seconds", "N", "remove a copy so long after it was made (never)", set_count,
     AT(copy_seconds), 1, 31536000},
    {"patience-ms", "N", "a machine that sends nothing for so long is given up (5000)", set_count,
     AT(patience_ms), 100, 600000},
    {"ucx", "trusted-network",
     "bring content by UCX: without encryption, on a network that is trusted", set_trusted, AT(ucx),
     0, 0},
    {"connections", "N", "of other machines, at most (1024)", set_count, AT(connections), 1, 4096},
    {"query", "PATH", "answer gpubufctl where, ls --cluster and the gateway at this unix socket",
     set_string, AT(query), 0, 0},
    {"help", NULL, "print this and exit", set_true, AT(help), 0, 0},
    {"version", NULL, "print the version and exit", set_true, AT(version), 0, 0},
};

#define KNOWN (sizeof(known) / sizeof(known[0]))

static const struct option *find(const char *name, size_t length)
{
    for (size_t i = 0; i < KNOWN; i++)
        if (strlen(known[i].name) == length && memcmp(known[i].name, name, length) == 0)
            return &known[i];
    return NULL;
}

static int set(struct gb_options *options, const struct option *option, const char *value,
               struct gb_error *error)
{
    return option->set((char *)options + option->member, option, value, error);
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
    if (!option || !option->argument || !option->set)
        return gb_fail(error, GPUBUF_E_INVALID, "there is no key \"%s\"", name);
    return set(options, option, trim(equals + 1), error);
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

/* `--name VALUE` or `--name=VALUE`; *at is moved past it. Only --config, or all but it. */
static int read_argument(struct gb_options *options, char **argv, int *at, bool config,
                         struct gb_error *error)
{
    const char *text = argv[*at], *equals = strchr(text, '='), *value = equals ? equals + 1 : NULL;
    const struct option *option = NULL;
    struct gb_error why;
    int r = 0;

    if (strncmp(text, "--", 2) == 0)
        option = find(text + 2, equals ? (size_t)(equals - text) - 2 : strlen(text + 2));
    if (!option)
        return gb_fail(error, GPUBUF_E_INVALID, "there is no option %s; --help lists them", text);
    if (option->argument && !value)
        value = argv[++*at];
    if (option->argument ? !value : value != NULL)
        return gb_fail(error, GPUBUF_E_INVALID, "--%s %s", option->name,
                       option->argument ? "needs a value" : "takes no value");
    ++*at;
    if (config != !option->set)
        return 0;
    r = option->set ? set(options, option, value, &why) : read_file(options, value, &why);
    if (r < 0)
        return gb_fail(error, why.code, "--%s: %s", option->name, why.message);
    return 0;
}

static int check(const struct gb_options *options, struct gb_error *error)
{
    const char *missing = !options->authority     ? "authority"
                          : !options->certificate ? "certificate"
                          : !options->key         ? "key"
                          : !options->listen      ? "listen"
                                                  : NULL;

    if (options->help || options->version)
        return 0;
    if (missing)
        return gb_fail(error, GPUBUF_E_INVALID, "--%s is missing", missing);
    if (options->etcd_count && options->peer_count)
        return gb_fail(error, GPUBUF_E_INVALID, "either --etcd or --peer, not both");
    if (options->etcd_count && !options->advertise_port)
        return gb_fail(error, GPUBUF_E_INVALID, "--advertise is missing");
    if (!options->etcd_certificate != !options->etcd_key)
        return gb_fail(error, GPUBUF_E_INVALID, "--etcd-certificate and --etcd-key go together");
    if (options->etcd_count == 0 && options->peer_count == 0)
        return gb_fail(error, GPUBUF_E_INVALID,
                       "there is no other machine: say --etcd URL, or --peer NODE=HOST:PORT");
    return 0;
}

int gb_options_read(struct gb_options *options, int argc, char **argv, struct gb_error *error)
{
    *options = (struct gb_options){.connections = 1024, .patience_ms = 5000, .lease_seconds = 10};
    /* The file comes first, wherever on the line it stands: options are over its keys. */
    for (int config = 1; config >= 0; config--) {
        int at = 1;
        while (at < argc)
            if (read_argument(options, argv, &at, config, error) < 0)
                return error->code;
    }
    return check(options, error);
}

void gb_options_end(struct gb_options *options)
{
    free(options->socket);
    free(options->listen);
    free(options->authority);
    free(options->certificate);
    free(options->key);
    free(options->gpu);
    free(options->query);
    free(options->root);
    free(options->etcd_authority);
    free(options->etcd_certificate);
    free(options->etcd_key);
    for (size_t i = 0; i < options->etcd_count; i++)
        free(options->etcd[i]);
    for (size_t i = 0; i < options->prefix_count; i++)
        free(options->prefixes[i]);
}

void gb_options_help(void)
{
    printf("usage: gpubufd-peer [OPTION]...\n\n"
           "Fetches names from other machines, and serves this machine's to them. See "
           "gpubufd-peer(8).\n\n");
    for (size_t i = 0; i < KNOWN; i++) {
        char left[40];

        snprintf(left, sizeof(left), "--%s%s%s", known[i].name, known[i].argument ? " " : "",
                 known[i].argument ? known[i].argument : "");
        printf("  %-26s %s\n", left, known[i].help);
    }
}
