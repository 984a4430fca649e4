/*
 * Shared by the benches: time, series of measurements, pinning, a raw connection, and the floor: a
 * bare echo between two processes. Each bench is a program of its own, `bench_NAME SOCKET
 * [--quick]`, that prints one row of JSON a line for scripts/run-bench; one that cannot measure
 * says why and exits with status 1. Not for threads.
 *
 * A floor is measured in short rounds that alternate with those of what is compared with it, and
 * the ratio is taken within each pair, so that whatever else the machine does affects both.
 */
#ifndef MEASURE_H
#define MEASURE_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gpubuf.h"

struct options {
    const char *socket; /* the daemon's */
    bool quick;         /* a fifth of the rounds, fewer objects */
};

/* Reads the command line; one that is wrong ends the program with status 2. */
struct options read_options(int argc, char **argv);

/* Ends the program with a sentence. */
void die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
/* Dies unless a call of libgpubuf succeeded; returns its result. */
int check(struct gpubuf_client *client, int result, const char *what);
struct gpubuf_client *connect_to(const char *path);
struct gpubuf_client *connect_uncached(const char *path); /* keeps no leases */
/* Allocated memory, never NULL; and such as is shared with the processes that are forked later. */
void *allocate(size_t count, size_t size);
void *allocate_shared(size_t size);
/* fork(), with a child that ends with this process. */
pid_t fork_child(void);
/* Waits for a child, and dies unless it has ended well. */
void end_child(pid_t pid, const char *what);

double now(void);               /* seconds of a clock that only goes forward */
uint64_t draw(uint64_t *state); /* the next number of a sequence that looks random (SplitMix64) */

/* ---- series ---- */

#define SERIES_MAX 512

struct series {
    size_t count;
    double values[SERIES_MAX];
};

void series_add(struct series *series, double value); /* values past SERIES_MAX are dropped */
double series_median(const struct series *series);
/* The value below which that part of them lies; sorts them. */
double percentile(double *values, size_t count, double part);

struct row {
    const char *id, *unit;
    const struct series *measured;
    const struct series *floor; /* NULL: none */
    const struct series *ratio; /* NULL: none, or `measured` is one */
    const char *note;           /* NULL: none */
};

/* Prints a row: median, least and greatest of each. */
void print_row(const struct row *row);

/* Values beside their floors. */
struct compared {
    struct series measured, floor, ratio;
};

void compared_add(struct compared *compared, double measured, double floor, double ratio);
void print_compared(const char *id, const char *unit, const struct compared *compared,
                    const char *note);

/* ---- where processes run ---- */

enum placement { PLACE_FREE, PLACE_ONE_CORE, PLACE_TWO_CORES, PLACEMENTS };

const char *placement_name(enum placement placement); /* as in a row's id: "free" */
/* Puts this process on the first core that it was started with, and `others` on the same, or on the
   second, or lets all run anywhere. False if there is no second core. */
bool place(enum placement placement, const pid_t *others, size_t count);

/* ---- a raw connection ---- */

struct raw {
    int fd;
    char *buffer;
    size_t start, end, capacity;
};

void raw_open(struct raw *raw, const char *path); /* connects; says no hello */
void raw_close(struct raw *raw);
pid_t raw_peer(const struct raw *raw); /* the daemon */
void raw_send(struct raw *raw, const char *text, size_t length);
/* The next line, without its newline, NUL-terminated; valid until the next call. Descriptors that
   come with it are closed. */
char *raw_line(struct raw *raw, size_t *length);
/* Sends a request of id 1 and returns its reply, which must not be an error. */
char *raw_call(struct raw *raw, const char *method, const char *params);
/* The number behind the first `"key":` of a line; dies if there is none. */
uint64_t raw_number(const char *line, const char *key);
/* A call that is answered by a lease; what it is given back by; and a seal that does so, too. */
uint64_t raw_lease(struct raw *raw, const char *method, const char *params);
void raw_release(struct raw *raw, uint64_t lease);
void raw_seal(struct raw *raw, uint64_t lease);

/* ---- the floor ---- */

struct echo {
    int fd;
    pid_t server;
    size_t request, reply; /* bytes */
    char *buffer;
};

/* Starts a process that answers every `request` bytes with `reply` bytes, over blocking sockets. */
void echo_start(struct echo *echo, size_t request, size_t reply);
void echo_once(struct echo *echo);
void echo_stop(struct echo *echo);

/* ---- objects ---- */

/* The layout of a small column: 100 float64 under a validity bitmap. */
#define SMALL_COLUMN "{\"kind\":\"column\",\"dtype\":\"float64\",\"length\":100,\"mask\":{}}"

/* Publishes one small column. */
void publish_one(struct raw *raw, const char *name);
/* Publishes `count` small columns named PREFIX/%06zu, or, with a `seed`, PREFIX/%016x of draw(). */
void publish(struct raw *raw, const char *prefix, size_t count, const uint64_t *seed);
/* Writes the name of object i of those, at most NAME_BYTES. */
#define NAME_BYTES 64
void object_name(char *name, const char *prefix, size_t i);
void random_name(char *name, const char *prefix, uint64_t drawn);

#endif
