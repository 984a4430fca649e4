/*
 * The findings of `gpubufctl doctor`: one line for each thing that was looked at, and what to do
 * where it is not as it should be. Each part looks at one side and adds its findings.
 */
#ifndef GB_DOCTOR_H
#define GB_DOCTOR_H

#include <sys/types.h>

#include "client/gpubufctl/answers/memory.h"
#include "client/gpubufctl/cli/cli.h"

enum gb_health { GB_HEALTH_OK, GB_HEALTH_WARN, GB_HEALTH_FAIL };

struct gb_finding {
    enum gb_health health;
    const char *part; /* "socket", "driver", …; static */
    char text[400];
    char advice[400]; /* "" where there is nothing to do */
};

struct gb_doctor {
    struct gb_cli *cli;
    struct gb_finding *findings;
    size_t count, room;
    bool connected;             /* cli->client is the daemon */
    pid_t daemon_pid;           /* 0: not known */
    struct gb_inventory memory; /* the daemon's memory by its own account, if has_memory */
    bool has_memory;
};

/* Adds a finding. Advice, if there is any, is added by gb_doctor_advise. */
void gb_doctor_find(struct gb_doctor *doctor, enum gb_health health, const char *part,
                    const char *format, ...) __attribute__((format(printf, 4, 5)));
/* Sets the advice of the finding that was added last. */
void gb_doctor_advise(struct gb_doctor *doctor, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
