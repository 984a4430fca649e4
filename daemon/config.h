/*
 * The daemon's configuration: options of the command line over keys of a configuration file over
 * defaults. Every option `--some-key VALUE` is the key `some-key = VALUE` of the file.
 */
#ifndef GB_CONFIG_H
#define GB_CONFIG_H

#include <stdint.h>
#include <sys/types.h>

#include "daemon/base/limits.h"
#include "daemon/base/log.h"
#include "daemon/memory/device.h"
#include "daemon/spill/settings.h"
#include "proto/base/errors.h"
#include "proto/base/option.h"

struct gb_quota_rule; /* quota.h */

/* Users that may provide names, and which: --provider. */
struct gb_provider_rule {
    uid_t uid;
    char *prefix; /* owned */
};

struct gb_config {
    char *socket;  /* owned; NULL: the default places */
    unsigned mode; /* of the socket file */
    struct gb_device_spec devices[GB_DEVICES];
    unsigned device_count;
    struct gb_spill_settings spill;
    bool drops; /* objects whose publisher says nothing of it are dropped when room is short */
    struct gb_limits limits;
    struct gb_quota_rule *quotas; /* owned */
    unsigned quota_count;
    struct gb_provider_rule *providers; /* owned */
    unsigned provider_count;
    /* How many descriptors the daemon may open, how many the service manager keeps, and how many
       may be sent and not received; 0: any number. Not options: the caller sets them. */
    uint64_t open_files, stored_files, sent_files;
    uint64_t retire_after_ms; /* UINT64_MAX: never */
    uint64_t grace_ms;        /* time for the clients of an earlier daemon to come back */
    uint64_t watchdog_ms;     /* time that a supervised daemon may be silent */
    uint64_t idle_exit_ms;    /* it ends when nobody was connected for this time; 0: never */
    enum gb_log_level log_level;
    bool log_json;
    bool supervise;
    bool check, probe, help, version; /* print and exit */
    struct gb_option_place place;     /* of the option that is being read */
};

/*
 * Fills *config from the arguments and the file they name. On failure a sentence that says where
 * (option, or file and line), what was wrong and what was expected.
 */
int gb_config_read(struct gb_config *config, char **argv, struct gb_error *error);
void gb_config_end(struct gb_config *config);
/* Whether --provider lets a user provide names with the prefix. */
bool gb_config_may_provide(const struct gb_config *config, uid_t uid, const char *prefix);
void gb_config_help(void); /* to stdout */

#endif
