#include "client/peer/options.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/option.h"

/* Checks the URL of a server of etcd. */
static int check_url(void *at, const char *value, struct gb_error *error)
{
    if (strncmp(value, "http://", 7) == 0 || strncmp(value, "https://", 8) == 0)
        return 0;
    return gb_fail(error, GPUBUF_E_INVALID, "\"%s\": expected a URL such as https://192.0.2.7:2379",
                   value);
}

/* Reads HOST:PORT; an IPv6 address is in brackets. `host` has GB_PEER_HOST_BYTES. */
static bool read_place(const char *value, char *host, uint16_t *port)
{
    const char *colon = strrchr(value, ':');
    char *end = NULL;
    unsigned long number = colon ? strtoul(colon + 1, &end, 10) : 0;
    size_t length = colon ? (size_t)(colon - value) : 0;
    bool brackets = length > 2 && value[0] == '[' && colon[-1] == ']';

    if (!length || *end || number == 0 || number > UINT16_MAX || length >= GB_PEER_HOST_BYTES)
        return false;
    length -= brackets ? 2 : 0;
    memcpy(host, value + (brackets ? 1 : 0), length);
    host[length] = '\0';
    *port = (uint16_t)number;
    return true;
}

static int set_advertise(void *at, const char *value, struct gb_error *error)
{
    struct gb_peer_options *options = at;

    if (!read_place(value, options->advertise, &options->advertise_port))
        return gb_fail(error, GPUBUF_E_INVALID,
                       "\"%s\": expected HOST:PORT, such as 192.0.2.7:9470", value);
    return 0;
}

static int set_trusted(void *at, const char *value, struct gb_error *error)
{
    if (strcmp(value, "trusted-network") != 0)
        return gb_fail(error, GPUBUF_E_INVALID,
                       "\"%s\": expected trusted-network: UCX does not encrypt", value);
    *(bool *)at = true;
    return 0;
}

#define AT(member) offsetof(struct gb_peer_options, member)

static const struct gb_option known[] = {
    {"config", "FILE", "read options from FILE first: lines such as listen = :9470",
     .kind = GB_OPTION_FILE},
    {"socket", "PATH", "the daemon's socket, if it is not in one of the default places",
     .kind = GB_OPTION_TEXT, .member = AT(socket)},
    {"listen", "WHERE", "where other machines connect: ADDRESS:PORT, or :PORT for every address",
     .kind = GB_OPTION_TEXT, .member = AT(listen)},
    {"authority", "FILE", "certificates of the cluster's authority, in PEM", .kind = GB_OPTION_TEXT,
     .member = AT(authority)},
    {"certificate", "FILE", "this machine's certificate; its first DNS name is the node's name",
     .kind = GB_OPTION_TEXT, .member = AT(certificate)},
    {"key", "FILE", "the key of the certificate", .kind = GB_OPTION_TEXT, .member = AT(key)},
    {"etcd", "URL", "a server of etcd, the directory of names; may be given 16 times",
     .kind = GB_OPTION_LIST, .member = AT(etcd), .most = GB_PEER_ETCD_ENDPOINTS, .set = check_url},
    {"etcd-authority", "FILE", "certificates of the authority of etcd's servers (the system's)",
     .kind = GB_OPTION_TEXT, .member = AT(etcd_authority)},
    {"etcd-certificate", "FILE", "this machine's certificate for etcd", .kind = GB_OPTION_TEXT,
     .member = AT(etcd_certificate)},
    {"etcd-key", "FILE", "the key of that certificate", .kind = GB_OPTION_TEXT,
     .member = AT(etcd_key)},
    {"advertise", "HOST:PORT", "where other machines reach this one", .set = set_advertise},
    {"root", "PATH", "the key in etcd above all names (/gpubufd)", .kind = GB_OPTION_TEXT,
     .member = AT(root)},
    {"lease-seconds", "N", "expire this machine's names N seconds after its last renewal (10)",
     .kind = GB_OPTION_COUNT, .member = AT(lease_seconds), .least = 2, .most = 3600},
    {"prefix", "PREFIX", "fetch names that begin with PREFIX; may be given 16 times (every name)",
     .kind = GB_OPTION_LIST, .member = AT(prefixes), .most = GB_PEER_PREFIXES_MOST},
    {"gpu", "DEVICE", "the device for copies of objects on a GPU, such as cuda:0 (host)",
     .kind = GB_OPTION_TEXT, .member = AT(gpu)},
    {"largest", "BYTES", "fetch no larger object (no bound)", .kind = GB_OPTION_NUMBER,
     .member = AT(largest), .least = 1, .most = UINT64_MAX / 2},
    {"copy-seconds", "N", "remove a copy N seconds after it was made (never)",
     .kind = GB_OPTION_COUNT, .member = AT(copy_seconds), .least = 1, .most = 31536000},
    {"user-names", "N", "publish at most N names of each user (100000)", .kind = GB_OPTION_COUNT,
     .member = AT(user_names), .least = 1, .most = 100000000},
    {"patience-ms", "N", "give up on a machine that sends nothing for N milliseconds (5000)",
     .kind = GB_OPTION_COUNT, .member = AT(patience_ms), .least = 100, .most = 600000},
    {"ucx", "trusted-network",
     "transfer content by UCX, which does not encrypt: on a trusted network", .member = AT(ucx),
     .set = set_trusted},
    {"connections", "N", "serve at most N connections of other machines (1024)",
     .kind = GB_OPTION_COUNT, .member = AT(connections), .least = 1, .most = 4096},
    {"query", "PATH", "answer gpubufctl where, ls --cluster and the gateway at this unix socket",
     .kind = GB_OPTION_TEXT, .member = AT(query)},
    GB_LOG_LEVEL_OPTION(AT(log_level)),
    GB_LOG_FORMAT_OPTION(AT(log_json)),
    {"help", NULL, "print this and exit", .kind = GB_OPTION_FLAG, .member = AT(help)},
    {"version", NULL, "print the version and exit", .kind = GB_OPTION_FLAG, .member = AT(version)},
    {.name = NULL},
};

static const struct gb_program program = {.name = "gpubufd-peer", .options = known};

static int check(const struct gb_peer_options *options, struct gb_error *error)
{
    const char *missing = !options->authority        ? "authority"
                          : !options->certificate    ? "certificate"
                          : !options->key            ? "key"
                          : !options->listen         ? "listen"
                          : !*options->etcd          ? "etcd"
                          : !options->advertise_port ? "advertise"
                                                     : NULL;

    if (options->help || options->version)
        return 0;
    if (missing)
        return gb_fail(error, GPUBUF_E_INVALID, "--%s is missing", missing);
    if (!options->etcd_certificate != !options->etcd_key)
        return gb_fail(error, GPUBUF_E_INVALID, "--etcd-certificate and --etcd-key go together");
    return 0;
}

int gb_peer_options_read(struct gb_peer_options *options, char **argv, struct gb_error *error)
{
    *options = (struct gb_peer_options){.connections = 1024,
                                        .patience_ms = 5000,
                                        .lease_seconds = 10,
                                        .user_names = 100000,
                                        .log_level = GB_LOG_INFO};
    if (gb_option_read_file(&program, options, argv, error) < 0 ||
        gb_option_read_line(&program, options, argv, error) < 0)
        return error->code;
    return check(options, error);
}

void gb_peer_options_end(struct gb_peer_options *options)
{
    gb_option_free(&program, options);
}

void gb_peer_options_help(void)
{
    printf("usage: gpubufd-peer [OPTION]...\n\n"
           "Fetches names from other machines, and serves this machine's to them.\n"
           "See gpubufd-peer(8).\n\n");
    gb_option_help(&program);
}
