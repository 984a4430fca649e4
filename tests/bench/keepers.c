#include "attacks.h"

#include <linux/futex.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/syscall.h>

#include "measure.h"
#include "proto/wire/stream.h"

#define SESSIONS 64
#define MEBIBYTE (1u << 20)

/* A session that errors and notices do not end. Descriptors that come are dropped by the kernel. */
struct talk {
    FILE *lines;
    char *line;
    size_t room;
};

static void hang_up(struct talk *talk)
{
    if (talk->lines)
        fclose(talk->lines);
    talk->lines = NULL;
}

/* Sends a request with the id 1, on a new connection if there is none. */
__attribute__((format(printf, 3, 4))) static void say(struct talk *talk, const char *method,
                                                      const char *format, ...)
{
    char params[512], text[768];
    va_list arguments;
    int length;

    while (!talk->lines) {
        int fd = join_blocking();

        if (fd >= 0)
            talk->lines = fdopen(fd, "r");
    }
    va_start(arguments, format);
    vsnprintf(params, sizeof(params), format, arguments);
    va_end(arguments);
    length = snprintf(text, sizeof(text),
                      "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"%s\",\"params\":{%s}}\n", method,
                      params);
    (void)!send(fileno(talk->lines), text, (size_t)length, MSG_NOSIGNAL);
}

/* The answer; NULL if it is an error. A connection that has ended is closed. */
static const char *hear(struct talk *talk)
{
    while (getline(&talk->line, &talk->room, talk->lines) > 0)
        if (strstr(talk->line, "\"id\":1"))
            return strstr(talk->line, "\"error\":{") ? NULL : talk->line;
    hang_up(talk);
    return NULL;
}

static bool publish_anew(struct talk *talk, const char *name, unsigned bytes)
{
    const char *answer;

    say(talk, "create",
        "\"name\":\"%s\",\"replace\":true,\"wait_ms\":100,\"layout\":{\"kind\":\"bytes\",\"bytes\":"
        "%u}",
        name, bytes);
    answer = hear(talk);
    if (!answer)
        return false;
    say(talk, "seal", "\"lease\":%llu,\"release\":true",
        (unsigned long long)raw_number(answer, "lease"));
    return hear(talk) != NULL;
}

void holders(void)
{
    struct talk publisher = {0}, reader = {0};

    for (;;) {
        while (publish_anew(&publisher, "hostile/held", MEBIBYTE)) {
            say(&reader, "open", "\"name\":\"hostile/held\"");
            hear(&reader);
        }
        hang_up(&reader);
    }
}

void slots(void)
{
    struct talk publisher = {0}, readers[SESSIONS] = {0};

    for (int i = 0; i < SESSIONS; i++) {
        say(&readers[i], "hello", "\"protocol\":1,\"cache\":true");
        hear(&readers[i]);
    }
    for (;;) {
        publish_anew(&publisher, "hostile/slotted", 1);
        for (int i = 0; i < SESSIONS; i++)
            say(&readers[i], "open", "\"name\":\"hostile/slotted\"");
        for (int i = 0; i < SESSIONS; i++) {
            const char *answer = hear(&readers[i]);

            if (answer)
                say(&readers[i], "cache", "\"leases\":[%llu]",
                    (unsigned long long)raw_number(answer, "lease"));
            if (answer)
                hear(&readers[i]);
        }
    }
}

void segments(void)
{
    struct talk talk = {0};

    for (unsigned i = 0;; i = (i + 1) % 4096) { /* more than the user may have */
        const char *answer;

        say(&talk, "create",
            "\"name\":\"hostile/own/%u\",\"replace\":true,\"own\":true,\"layout\":{\"kind\":"
            "\"bytes\",\"bytes\":1}",
            i);
        answer = hear(&talk);
        if (!answer)
            continue;
        say(&talk, "seal", "\"lease\":%llu,\"release\":true",
            (unsigned long long)raw_number(answer, "lease"));
        hear(&talk);
    }
}

void parks(void)
{
    unsigned long long parked[1024] = {0};
    struct talk talk = {0};

    for (unsigned i = 0;; i = (i + 1) % 1024) {
        const char *answer;

        if (parked[i])
            say(&talk, "open", "\"lease\":%llu", parked[i]);
        else
            say(&talk, "open", "\"name\":\"hostile/many/%06u\"", i);
        answer = hear(&talk);
        parked[i] = answer ? raw_number(answer, "lease") : 0;
        if (!parked[i])
            continue;
        say(&talk, "release", "\"lease\":%llu,\"park\":true", parked[i]);
        hear(&talk);
    }
}

void churn(void)
{
    static const char segment_of[] = "\"segments\":[{\"id\":";
    struct talk talk = {0};

    for (unsigned i = 0;; i++) { /* a mode has segments of its own, and few are kept for later */
        const char *answer, *segment;
        unsigned long long lease;

        say(&talk, "create",
            "\"name\":\"hostile/"
            "churned\",\"replace\":true,\"mode\":\"06%02o\",\"layout\":{\"kind\":"
            "\"bytes\",\"bytes\":%u}",
            i % 64, 8 * MEBIBYTE);
        answer = hear(&talk);
        segment = answer ? strstr(answer, segment_of) : NULL;
        if (!segment)
            continue;
        lease = raw_number(answer, "lease");
        say(&talk, "unmap", "\"segments\":[%llu]",
            strtoull(segment + sizeof(segment_of) - 1, NULL, 10));
        hear(&talk);
        say(&talk, "release", "\"lease\":%llu", lease);
        hear(&talk);
    }
}

/* ---- live objects ---- */

#define POOL "hostile/pool" /* a live array of 64 slots, so a stream, too */

/* Creates a live object, or replaces it, and returns its lease. */
static uint64_t create_live(struct raw *raw)
{
    return raw_lease(raw, "create",
                     "{\"name\":\"" POOL
                     "\",\"live\":true,\"replace\":true,\"wait_ms\":60000,\"layout\":{\"kind\":"
                     "\"array\",\"dtype\":\"uint8\",\"shape\":[64,100]}}");
}

static void open_live(struct raw *raw)
{
    raw_open(raw, attacked);
    raw_release(raw, create_live(raw));
}

void lives(void)
{
    uint64_t held[16] = {0};
    struct raw raw;

    open_live(&raw);
    for (unsigned i = 0;; i = (i + 1) % 16) {
        if (held[i])
            raw_release(&raw, held[i]);
        held[i] = create_live(&raw);
    }
}

void joins(void)
{
    struct raw raw;
    char params[64];

    open_live(&raw);
    for (;;) {
        uint64_t lease = raw_lease(&raw, "open", "{\"name\":\"" POOL "\"}");

        snprintf(params, sizeof(params), "{\"lease\":%llu}", (unsigned long long)lease);
        raw_call(&raw, "join", params);
        raw_release(&raw, lease);
    }
}

/* The descriptor of the roster, which comes with the answer to `join`. */
static int join_stream(struct raw *raw, uint64_t lease)
{
    union {
        char bytes[CMSG_SPACE(64 * sizeof(int))];
        struct cmsghdr align;
    } control;
    static char text[65536];
    struct iovec part = {text, sizeof(text)};
    struct msghdr header = {.msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = &control,
                            .msg_controllen = sizeof(control)};
    const struct cmsghdr *rights;
    int fds[2];

    raw_send(raw, text,
             (size_t)snprintf(text, sizeof(text),
                              "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"join\",\"params\":{"
                              "\"lease\":%llu}}\n",
                              (unsigned long long)lease));
    if (recvmsg(raw->fd, &header, MSG_CMSG_CLOEXEC) <= 0 || !(rights = CMSG_FIRSTHDR(&header)) ||
        rights->cmsg_len < CMSG_LEN(sizeof(fds)))
        die("join: no roster came");
    memcpy(fds, CMSG_DATA(rights), sizeof(fds));
    return fds[1];
}

static void *sleeps(void *word)
{
    for (;;)
        syscall(SYS_futex, word, FUTEX_WAIT, *(volatile unsigned *)word, NULL, NULL, 0);
    return NULL;
}

void rings(void)
{
    struct raw writer, reader;
    pthread_attr_t small;
    pthread_t thread;
    struct gb_stream_roster *roster;

    open_live(&writer);
    raw_open(&reader, attacked);
    roster = mmap(NULL, GB_STREAM_PAGE_BYTES, PROT_READ, MAP_SHARED,
                  join_stream(&reader, raw_lease(&reader, "open", "{\"name\":\"" POOL "\"}")), 0);
    if (roster == MAP_FAILED)
        die("the roster cannot be mapped: %s", strerror(errno));
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 16384);
    for (int i = 0; i < 4000; i++)
        if (pthread_create(&thread, &small, sleeps, (void *)&roster->writer) != 0)
            break;
    for (;;) {
        uint64_t lease = raw_lease(&writer, "open",
                                   "{\"name\":\"" POOL
                                   "\",\"access\":\"write\",\"exclusive\":true,\"wait_ms\":60000}");
        char params[64];

        snprintf(params, sizeof(params), "{\"lease\":%llu}", (unsigned long long)lease);
        raw_call(&writer, "join", params);
        raw_release(&writer, lease);
    }
}

void claims(void)
{
    static const char claim[] =
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"open\",\"params\":{\"name\":\"" POOL
        "\",\"access\":\"write\",\"exclusive\":true,\"wait_ms\":86400000}}\n";
    char text[512];
    struct raw raw;
    size_t length;

    open_live(&raw);
    for (int i = 0; i < 256; i++)
        raw_send(&raw, claim, sizeof(claim) - 1);
    for (;;) {
        const char *line = raw_line(&raw, &length);
        int count;

        if (!strstr(line, "\"generation\""))
            continue; /* the answer to a release */
        count =
            snprintf(text, sizeof(text),
                     "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"release\",\"params\":{\"lease\":"
                     "%llu}}\n%s",
                     (unsigned long long)raw_number(line, "lease"), claim);
        raw_send(&raw, text, (size_t)count);
    }
}
