/*
 * The cost of hostile clients for a well-behaved one: the 99th percentile of its open + release,
 * under each attack, against the same without, in rounds that alternate. And how long a client that
 * was killed with 10 000 leases is still felt.
 *
 * It is the daemon's fairness that is to be measured, not the scheduler's: the daemon's loop has
 * the first core; its other threads, the client and the attackers share the second, and the
 * attackers have its idle time only (SCHED_IDLE), which is nearly all of it. `spin` is held against
 * the same: processes that are as busy as attackers and leave the daemon alone; `honest`: as many
 * clients who ask for the same and wait for each answer. With one core, or where that is not
 * permitted, the note says so. As root the attackers are another user than the client; else the
 * same user, among whose sessions the daemon shares that user's turns.
 *
 * `bench_hostile SOCKET [--quick] [--beside-honest] [NAME…]`: those alone whose names are given.
 * --beside-honest: as the scheduler has it, without preference for anybody, and against eight
 * honest clients in place of nobody. Prints a line of text for each attack, and ends with status 1
 * if the 99th percentile beside one of them exceeds three times that beside the honest, in each of
 * three series: another program may do so in one.
 */
#include <dirent.h>
#include <grp.h>
#include <sched.h>
#include <sys/stat.h>

#include "attacks.h"
#include "measure.h"

#define NAME "hostile/column"
#define THEIRS "hostile/theirs" /* of the attackers */
#define MANY "hostile/many"
#define ABSENT "hostile/absent/" /* the beginning of names that a provider is asked for */
#define OBJECTS 4096
#define NAMES 64 /* in one request */
#define ROUNDS 5
#define SAMPLES 600
#define PACE_NS 100000
#define MEBIBYTE ((size_t)1 << 20)
#define CALL(method, params)                                                                       \
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"" method "\",\"params\":{" params "}}\n"

#define HONEST_CLIENTS 8
#define HONEST_MOST 3.0 /* of their 99th percentile */

static struct options options;
static bool beside_honest;

/* ---- what attackers do ---- */

#define QUEUED 8192 /* bytes of short requests on a connection */

/* Sends a text over and over, on several connections, and takes in what comes unless it is `deaf`.
   A connection that was closed is made anew. The daemon never waits for more to do, and when an
   attack is over it soon has done what is left of it. Never returns. */
struct pump {
    const char *text;
    size_t length, connections;
    bool deaf;
};

static void pump(const struct pump *pump)
{
    struct pollfd *polls = allocate(pump->connections, sizeof(*polls));
    size_t *sent = allocate(pump->connections, sizeof(*sent));
    char *buffer = allocate(1, MEBIBYTE);
    const int queued = QUEUED;

    for (size_t i = 0; i < pump->connections; i++)
        polls[i].fd = -1;
    for (;;) {
        for (size_t i = 0; i < pump->connections; i++) {
            struct pollfd *one = &polls[i];
            ssize_t n;

            if (one->fd < 0) {
                one->fd = join();
                if (pump->length <= 65536)
                    setsockopt(one->fd, SOL_SOCKET, SO_SNDBUF, &queued, sizeof(queued));
                one->events = pump->deaf ? POLLOUT : POLLIN | POLLOUT;
                one->revents = POLLOUT;
                sent[i] = 0;
            }
            while (!pump->deaf && (one->revents & POLLIN) && recv(one->fd, buffer, MEBIBYTE, 0) > 0)
                ; /* descriptors that come along are dropped by the kernel */
            while ((one->revents & POLLOUT) &&
                   (n = send(one->fd, pump->text + sent[i], pump->length - sent[i], MSG_NOSIGNAL)) >
                       0) {
                sent[i] = (sent[i] + (size_t)n) % pump->length;
                if (!pump->deaf && n < 4096)
                    break;
            }
            if (one->revents & (POLLHUP | POLLERR)) {
                close(one->fd);
                one->fd = -1;
            }
        }
        poll(polls, pump->connections, 100);
    }
}

/* The same line so often that one send takes many. */
static void pump_line(const char *line, size_t connections)
{
    size_t length = strlen(line), count = length < 32768 ? 65536 / length : 1;
    char *text = allocate(count, length);

    for (size_t i = 0; i < count; i++)
        memcpy(text + i * length, line, length);
    pump(&(struct pump){text, count * length, connections, false});
}

/* A line of nearly a mebibyte: `before`, `item` again and again, `after`. */
static char *long_line(const char *before, const char *item, const char *after)
{
    size_t room = MEBIBYTE - 2 - strlen(after), at = strlen(before), step = strlen(item);
    char *line = allocate(1, MEBIBYTE + 1);

    memcpy(line, before, at);
    for (; at + step <= room; at += step)
        memcpy(line + at, item, step);
    memcpy(line + at, after, strlen(after) + 1);
    return line;
}

/* {"names":["hostile/many/000000",…]} */
static char *names_line(const char *method, const char *prefix, size_t count, const char *more)
{
    char *line = allocate(count + 8, NAME_BYTES), name[NAME_BYTES];
    int at = sprintf(
        line, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"%s\",\"params\":{\"names\":[", method);

    for (size_t i = 0; i < count; i++) {
        object_name(name, prefix, i % OBJECTS);
        at += sprintf(line + at, "%s\"%s\"", i ? "," : "", name);
    }
    sprintf(line + at, "]%s}}\n", more);
    return line;
}

static void spin(void)
{
    for (volatile unsigned i = 0;; i++)
        ;
}

static void honest(void)
{
    struct raw raw;

    raw_open(&raw, options.socket);
    for (;;)
        raw_release(&raw, raw_lease(&raw, "open", "{\"name\":\"" THEIRS "\"}"));
}

static void requests(void)
{
    pump_line(CALL("stat", "\"name\":\"" THEIRS "\""), 64);
}

static void lists(void)
{
    pump_line(CALL("list", "\"prefix\":\"" MANY "\""), 16);
}

static void who_holds(void)
{
    pump_line(CALL("leases", ""), 16);
}

static void opens(void)
{
    pump_line(names_line("open", MANY, NAMES, ""), 4);
}

static void garbage(void)
{
    pump_line("}{\n", 64);
}

static void deep(void)
{
    pump_line(long_line("", "[", "\n"), 16);
}

static char *wide_line(void)
{
    return long_line("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"list\",\"params\":{\"none\":[0",
                     ",[]", "]}}\n");
}

/* As much of it as is read before it is found wrong: all. */
static void wide(void)
{
    pump_line(wide_line(), 16);
}

/* The same once on each connection. Input sent before a hang-up is served in one go. */
static void wide_and_away(void)
{
    char *line = wide_line();

    for (;;) {
        int fd = join_blocking();

        if (fd < 0)
            continue;
        send_all(fd, line, strlen(line));
        close(fd);
    }
}

/* A short request that takes long: another name for a table of many columns. */
static void aliases(void)
{
    char *layout = allocate(1, MEBIBYTE);
    int at = sprintf(layout, "{\"name\":\"hostile/wide\",\"replace\":true,\"layout\":{\"kind\":"
                             "\"table\",\"length\":1,\"columns\":[");
    struct raw raw;

    for (int i = 0; i < 4000; i++)
        at += sprintf(layout + at, "%s{\"name\":\"%d\",\"dtype\":\"int8\",\"length\":1}",
                      i ? "," : "", i);
    sprintf(layout + at, "]}}");
    raw_open(&raw, options.socket);
    raw_seal(&raw, raw_lease(&raw, "create", layout));
    for (;;)
        raw_call(&raw, "alias",
                 "{\"name\":\"hostile/alias\",\"of\":\"hostile/wide\",\"replace\":true}");
}

static void columns(void)
{
    pump_line(long_line("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"create\",\"params\":{\"name\":"
                        "\"hostile/table\",\"layout\":{\"kind\":\"table\",\"length\":1,\"columns\":"
                        "[{\"name\":\"a\",\"dtype\":\"int8\",\"length\":1}",
                        ",{\"name\":\"a\",\"dtype\":\"int8\",\"length\":1,\"offset\":0,\"null_count"
                        "\":-1,\"metadata\":{\"kkkkkkkk\":\"vvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvv"
                        "vvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvv\"}}",
                        "]}}}\n"),
              4);
}

static void no_reader(void)
{
    const char *line = CALL("describe", "");

    pump(&(struct pump){line, strlen(line), 256, true});
}

/* A byte at a time on many connections, of lines that never end. */
static void slowloris(void)
{
    int fds[1024];
    size_t count = sizeof(fds) / sizeof(fds[0]);

    for (size_t i = 0; i < count; i++)
        fds[i] = join();
    for (;;)
        for (size_t i = 0; i < count; i++)
            if (send(fds[i], "[", 1, MSG_NOSIGNAL) < 0 && errno != EAGAIN) {
                close(fds[i]);
                fds[i] = join();
            }
}

static void connects(void)
{
    for (;;) {
        int fd = join();

        if (fd >= 0)
            close(fd);
    }
}

/* As many requests as the socket takes, and away. */
static void hit_and_run(void)
{
    const char *line = CALL("stat", "\"name\":\"" THEIRS "\"");
    size_t length = strlen(line);

    for (;;) {
        int fd = join();

        if (fd < 0)
            continue;
        while (send(fd, line, length, MSG_NOSIGNAL) == (ssize_t)length)
            ;
        close(fd);
    }
}

/* All the watches that a user may have; then 64 names come, and go in one request. */
static void watches(void)
{
    struct raw raws[16], teller;
    char *buffer = allocate(1, MEBIBYTE), *text = allocate(NAMES, 4 * NAME_BYTES);
    char name[NAME_BYTES];
    const char *watch = CALL("watch", "\"prefix\":\"hostile/told\"");
    size_t at = 0, length;

    for (size_t i = 0; i < 16; i++) {
        raw_open(&raws[i], options.socket);
        for (int k = 0; k < 64; k++)
            raw_send(&raws[i], watch, strlen(watch));
        fcntl(raws[i].fd, F_SETFL, O_NONBLOCK);
    }
    for (size_t i = 0; i < NAMES; i++) {
        object_name(name, "hostile/told", i);
        at += (size_t)sprintf(text + at, CALL("alias", "\"name\":\"%s\",\"of\":\"" THEIRS "\""),
                              name);
    }
    at += (size_t)sprintf(text + at, "%s", names_line("delete", "hostile/told", NAMES, ""));
    raw_open(&teller, options.socket);
    for (;;) {
        raw_send(&teller, text, at);
        for (size_t i = 0; i <= NAMES; i++)
            raw_line(&teller, &length);
        for (size_t i = 0; i < 16; i++)
            while (recv(raws[i].fd, buffer, MEBIBYTE, 0) > 0)
                ;
    }
}

/* Requests that wait for many names; one of these comes and goes. */
static void waits(void)
{
    char *line = names_line("open", MANY, NAMES, ",\"wait_ms\":60000");
    char *at = strstr(line, "hostile/many/000000");
    char *buffer = allocate(1, MEBIBYTE);
    struct raw teller;
    int fd = join_blocking();

    memcpy(at, "hostile/told/000000", 19); /* which comes and goes */
    at = strstr(line, "hostile/many/000001");
    memcpy(at, "hostile/none/000001", 19); /* which never comes */
    for (int i = 0; i < 256; i++)
        if (!send_all(fd, line, strlen(line)))
            _exit(1);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    raw_open(&teller, options.socket);
    for (;;) {
        raw_seal(&teller, raw_lease(&teller, "create",
                                    "{\"name\":\"hostile/told/000000\",\"replace\":true,\"layout\":"
                                    "{\"kind\":\"bytes\",\"bytes\":1}}"));
        while (recv(fd, buffer, MEBIBYTE, 0) > 0)
            ;
    }
}

/* Waits for 16 000 absent names of a provider, on a connection of its own. */
static int wait_for_absent(unsigned round)
{
    char *line = allocate(NAMES + 8, NAME_BYTES);
    int fd = join_blocking();

    for (unsigned n = 0; n < 250; n++) {
        int at = sprintf(line, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"open\",\"params\":{"
                               "\"wait_ms\":60000,\"names\":[");

        for (unsigned i = 0; i < NAMES; i++)
            at += sprintf(line + at, "%s\"" ABSENT "%u/%u/%u\"", i ? "," : "", round, n, i);
        at += sprintf(line + at, "]}}\n");
        send_all(fd, line, (size_t)at);
    }
    free(line);
    return fd;
}

/* As many as a user may wait for, and then asks for more. */
static void absent(void)
{
    for (unsigned round = 0; round < 4; round++)
        wait_for_absent(round);
    pump_line(CALL("open", "\"name\":\"" ABSENT "more\",\"wait_ms\":60000"), 4);
}

/* The same and hangs up, again and again. */
static void absent_and_away(void)
{
    for (unsigned round = 0;; round++)
        close(wait_for_absent(round));
}

/* Waits for 64 absent names each that all end after 20 ms, as many as a user may have. */
static void ended_waits(void)
{
    char *text = allocate(64 * (NAMES + 8), NAME_BYTES), prefix[32];
    size_t length = 0;

    for (int i = 0; i < 64; i++) {
        char *line;

        snprintf(prefix, sizeof(prefix), "hostile/none/%d", i);
        line = names_line("open", prefix, NAMES, ",\"wait_ms\":20");
        length += (size_t)sprintf(text + length, "%s", line);
        free(line);
    }
    pump(&(struct pump){text, length, 4, false});
}

/* Connects on and on when it has all the sessions that a user may have. */
static void refused(void)
{
    char byte;

    for (;;) {
        int fd = join();
        struct pollfd answered = {.fd = fd, .events = POLLIN};

        if (fd >= 0 && poll(&answered, 1, 0) > 0 && recv(fd, &byte, 1, 0) >= 0)
            close(fd); /* else it is one more */
    }
}

/* Ends with many leases, again and again. */
static void leases(void)
{
    char *line = names_line("open", MANY, NAMES, ""), *buffer = allocate(1, MEBIBYTE);

    for (;;) {
        int fd = join_blocking();

        if (fd < 0)
            continue;
        for (int i = 0; i < 8000 / NAMES; i++) {
            ssize_t n;

            send_all(fd, line, strlen(line));
            while ((n = recv(fd, buffer, MEBIBYTE, 0)) > 0 && buffer[n - 1] != '\n')
                ;
        }
        close(fd);
    }
}

/* Large objects, as fast as they can be made and sealed: the device is always full. */
static void flood(void)
{
    struct raw raw;
    char params[128];

    raw_open(&raw, options.socket);
    for (unsigned i = 0;; i++) {
        snprintf(params, sizeof(params),
                 "{\"name\":\"hostile/flood/%u\",\"replace\":true,\"wait_ms\":60000,\"layout\":"
                 "{\"kind\":\"bytes\",\"bytes\":1048576}}",
                 i % 4096);
        raw_seal(&raw, raw_lease(&raw, "create", params));
    }
}

static const struct attack {
    const char *name;
    void (*run)(void);
    size_t processes;
} attacks[] = {
    {"spin", spin, 2},
    {"honest", honest, 8},
    {"requests", requests, 1},
    {"lists", lists, 1},
    {"leases_asked", who_holds, 1},
    {"opens", opens, 1},
    {"garbage", garbage, 1},
    {"deep", deep, 1},
    {"wide", wide, 1},
    {"wide_and_away", wide_and_away, 1},
    {"columns", columns, 1},
    {"aliases", aliases, 8},
    {"no_reader", no_reader, 1},
    {"slowloris", slowloris, 1},
    {"connects", connects, 1},
    {"hit_and_run", hit_and_run, 1},
    {"descriptors", descriptors, 1},
    {"lingers", lingers, 1},
    {"watches", watches, 1},
    {"waits", waits, 1},
    {"absent", absent, 1},
    {"absent_and_away", absent_and_away, 1},
    {"refused", refused, 1},
    {"leases", leases, 1},
    {"flood", flood, 1},
    {"holders", holders, 1},
    {"slots", slots, 1},
    {"lives", lives, 4},
    {"joins", joins, 8},
    {"claims", claims, 1},
    {"rings", rings, 1},
    {"ended_waits", ended_waits, 1},
    {"segments", segments, 1},
    {"parks", parks, 1},
    {"manager_stopped", churn, 1},
    {"gateway_killed", gateway_killed, 1},
    {"gateway_hung", gateway_hung, 1},
    {"gateway_flooded", gateway_flooded, 1},
};

/* Whether the daemon's supervisor is stopped meanwhile. */
static bool is_managed(const struct attack *attack)
{
    return attack->run == churn;
}

/* ---- measuring ---- */

#define STRANGER 65534 /* nobody: the attackers, and the owner of what they ask for */

static bool strangers; /* the attackers are another user */

static void become_stranger(void)
{
    if (strangers && (setgroups(0, NULL) < 0 || setresgid(STRANGER, STRANGER, STRANGER) < 0 ||
                      setresuid(STRANGER, STRANGER, STRANGER) < 0))
        die("cannot become another user: %s", strerror(errno));
}

static void publish_many(void)
{
    struct raw raw;
    pid_t pid = fork_child();

    if (pid == 0) {
        become_stranger();
        raw_open(&raw, options.socket);
        publish_one(&raw, THEIRS);
        publish(&raw, MANY, OBJECTS, NULL);
        _exit(0);
    }
    end_child(pid, "publishing what attackers ask for");
}

/* A provider that reads what it is asked for, and never answers. */
static void provide(void)
{
    struct raw raw;
    size_t length;

    if (fork_child() > 0)
        return;
    raw_open(&raw, options.socket);
    raw_call(&raw, "provide", "{\"prefix\":\"" ABSENT "\"}");
    for (;;)
        raw_line(&raw, &length);
}

static size_t cores[2];
static bool apart; /* the daemon on one core, all others on the other */

static void stay_on(pid_t pid, size_t core)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(core, &set);
    if (sched_setaffinity(pid, sizeof(set), &set) < 0)
        apart = false;
}

/* How the scheduler prefers all of the process's session. */
static void prefer_session(pid_t pid, const char *nice)
{
    char path[64];
    FILE *group;

    snprintf(path, sizeof(path), "/proc/%d/autogroup", (int)pid);
    group = fopen(path, "we");
    if (group) {
        fputs(nice, group);
        fclose(group);
    }
}

static pid_t served;  /* the daemon's process */
static pid_t manager; /* that supervises it; 0: none */

static void manager_goes_on(void)
{
    if (manager > 0)
        kill(manager, SIGCONT);
}

/* The daemon's process. If who listened was --supervise, that is its child. */
static pid_t find_daemon(pid_t listener)
{
    char path[64], line[4096] = "";
    int child = 0;
    FILE *file;
    size_t length = 0;

    snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)listener);
    file = fopen(path, "re");
    if (file) {
        length = fread(line, 1, sizeof(line), file);
        fclose(file);
    }
    if (!memmem(line, length, "--supervise", 12))
        return listener;
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)listener, (int)listener);
    file = fopen(path, "re");
    if (!file || fscanf(file, "%d", &child) != 1)
        die("cannot read %s", path);
    fclose(file);
    manager = listener;
    atexit(manager_goes_on);
    return child;
}

/* A shell may run in our session, or in the daemon's. */
static void prefer_nobody(void)
{
    prefer_session(served, "0");
    prefer_session(getpid(), "0");
}

/* Ahead of whatever else the machine does, as far as we may. */
static void put_first(pid_t pid, bool waits)
{
    struct sched_param first = {.sched_priority = 1};

    prefer_session(pid, "-20");
    setpriority(PRIO_PROCESS, (id_t)pid, -20);
    /* One that is always busy would be throttled in this class. */
    if (waits)
        sched_setscheduler(pid, SCHED_FIFO, &first);
}

/* All threads; the first, whose turns are measured, is put elsewhere after. Beside it they would
   take its core for a tick of the scheduler, 4 ms. */
static void workers_stay_on(pid_t pid, size_t core)
{
    char path[64];
    DIR *tasks;

    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    tasks = opendir(path);
    if (!tasks)
        die("cannot read %s", path);
    for (struct dirent *entry; (entry = readdir(tasks));)
        if (atoi(entry->d_name) > 0)
            stay_on(atoi(entry->d_name), core);
    closedir(tasks);
}

static void separate(pid_t daemon)
{
    cpu_set_t set;
    size_t found = 0;

    sched_getaffinity(0, sizeof(set), &set);
    for (size_t i = 0; i < CPU_SETSIZE && found < 2; i++)
        if (CPU_ISSET(i, &set))
            cores[found++] = i;
    apart = found == 2;
    if (!apart)
        return;
    workers_stay_on(daemon, cores[1]);
    stay_on(daemon, cores[0]);
    stay_on(0, cores[1]);
    atexit(prefer_nobody);
    put_first(daemon, false);
    put_first(getpid(), true);
}

static pid_t begin(const struct attack *attack)
{
    pid_t pid = fork_child();

    if (pid == 0) {
        struct sched_param none = {0};

        if (geteuid() == 0)
            setsid(); /* and out of our own group of processes, which comes first then */
        if (!beside_honest) {
            sched_setscheduler(0, SCHED_IDLE, &none);
            setpriority(PRIO_PROCESS, 0, 0);
        }
        become_stranger();
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* last: it is lost with a user */
        attack->run();
        _exit(0);
    }
    return pid;
}

static double round_times[SAMPLES]; /* of the last round, in order */

/* One round of the well-behaved client: the 99th percentile, in µs. */
static double round_of(struct raw *raw, size_t samples)
{
    double *times = round_times;
    struct timespec pace = {.tv_nsec = PACE_NS};

    for (size_t i = 0; i < samples; i++) {
        double start = now();

        raw_release(raw, raw_lease(raw, "open", "{\"name\":\"" NAME "\"}"));
        times[i] = 1e6 * (now() - start);
        nanosleep(&pace, NULL);
    }
    return percentile(times, samples, 0.99);
}

static double daemon_seconds(pid_t pid)
{
    unsigned long user = 0, kernel = 0;
    char path[64], line[1024];
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    file = fopen(path, "re");
    if (!file || !fgets(line, sizeof(line), file) ||
        sscanf(strrchr(line, ')'), ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
               &kernel) != 2)
        die("cannot read %s", path);
    fclose(file);
    return (double)(user + kernel) / (double)sysconf(_SC_CLK_TCK);
}

/* Until the daemon has nothing to do any more: attackers leave work behind. */
static void settle(pid_t daemon)
{
    struct timespec moment = {.tv_nsec = 50000000};
    double last;

    do {
        last = daemon_seconds(daemon);
        nanosleep(&moment, NULL);
    } while (daemon_seconds(daemon) - last > 0.01); /* one of the kernel's ticks */
}

static void signal_all(const pid_t *pids, size_t count, int number)
{
    for (size_t i = 0; i < count; i++)
        kill(pids[i], number);
}

static void measure(struct raw *raw, const struct attack *attack)
{
    size_t rounds = options.quick ? 3 : ROUNDS, samples = options.quick ? SAMPLES / 12 : SAMPLES;
    struct compared compared = {0};
    double busy = 0, elapsed = 0;
    pid_t pids[8], daemon = served;
    char id[64], note[128];

    for (size_t i = 0; i < attack->processes; i++)
        pids[i] = begin(attack);
    for (size_t i = 0; i <= rounds; i++) {
        double calm, under, start, seconds;

        signal_all(pids, attack->processes, SIGSTOP);
        manager_goes_on();
        settle(daemon);
        round_of(raw, samples / 3);
        calm = round_of(raw, samples);
        if (is_managed(attack))
            kill(manager, SIGSTOP);
        signal_all(pids, attack->processes, SIGCONT);
        round_of(raw, samples / 3);
        start = now();
        seconds = daemon_seconds(daemon);
        under = round_of(raw, samples);
        if (i == 0)
            continue; /* warms up */
        busy += daemon_seconds(daemon) - seconds;
        elapsed += now() - start;
        compared_add(&compared, under, calm, under / calm);
    }
    for (size_t i = 0; i < attack->processes; i++)
        if (waitpid(pids[i], NULL, WNOHANG) != 0)
            die("%s has ended, and attacked nobody", attack->name);
    signal_all(pids, attack->processes, SIGKILL);
    manager_goes_on();
    for (size_t i = 0; i < attack->processes; i++)
        waitpid(pids[i], NULL, 0);
    settle(daemon);
    snprintf(id, sizeof(id), "hostile.%s", attack->name);
    snprintf(note, sizeof(note), "the daemon was busy for %.0f %% of the time%s%s",
             100 * busy / elapsed, strangers ? "" : "; attackers of the same user",
             apart ? "" : "; all on one core");
    print_compared(id, "us", &compared, note);
}

/* ---- beside honest clients ---- */

static bool wanted(int argc, char **argv, const char *name);

struct percentiles {
    double half, most; /* the median, and the 99th */
};

/* The well-behaved client beside one kind of company. */
static struct percentiles beside(struct raw *raw, const pid_t *pids, size_t count, size_t samples)
{
    struct percentiles found;

    signal_all(pids, count, SIGCONT);
    (void)round_of(raw, samples / 3);
    found.most = round_of(raw, samples);
    found.half = percentile(round_times, samples, 0.5);
    signal_all(pids, count, SIGSTOP);
    settle(served);
    return found;
}

/* False: the attack costs more than the honest clients may. */
static bool compare(struct raw *raw, const struct attack *attack, const pid_t *honest_pids)
{
    size_t rounds = options.quick ? 3 : ROUNDS, samples = options.quick ? SAMPLES / 4 : SAMPLES;
    struct compared half = {0}, most = {0};
    pid_t pids[8] = {0};

    for (size_t i = 0; i < attack->processes; i++)
        pids[i] = begin(attack);
    (void)beside(raw, pids, attack->processes, samples); /* until it is at its work */
    for (size_t i = 0; i < rounds; i++) {
        struct percentiles ours = beside(raw, honest_pids, HONEST_CLIENTS, samples);
        struct percentiles theirs = beside(raw, pids, attack->processes, samples);

        compared_add(&half, theirs.half, ours.half, theirs.half / ours.half);
        compared_add(&most, theirs.most, ours.most, theirs.most / ours.most);
    }
    for (size_t i = 0; i < attack->processes; i++)
        if (waitpid(pids[i], NULL, WNOHANG) != 0)
            die("%s has ended, and attacked nobody", attack->name);
    signal_all(pids, attack->processes, SIGKILL);
    for (size_t i = 0; i < attack->processes; i++)
        waitpid(pids[i], NULL, 0);
    settle(served);
    bool holds = series_median(&most.ratio) <= HONEST_MOST;
    printf("%-16s p50 %7.0f us, %5.2f x of eight honest clients; p99 %7.0f us, %5.2f x%s\n",
           attack->name, series_median(&half.measured), series_median(&half.ratio),
           series_median(&most.measured), series_median(&most.ratio), holds ? "" : "  NO");
    fflush(stdout);
    return holds;
}

/* The exit status. */
static int compare_all(struct raw *raw, int argc, char **argv)
{
    struct attack honest_clients = {"honest", honest, HONEST_CLIENTS};
    pid_t pids[HONEST_CLIENTS];
    int status = 0;

    for (size_t i = 0; i < HONEST_CLIENTS; i++)
        pids[i] = begin(&honest_clients);
    signal_all(pids, HONEST_CLIENTS, SIGSTOP);
    for (size_t i = 0; i < sizeof(attacks) / sizeof(attacks[0]); i++) {
        bool holds = attacks[i].run == spin || is_managed(&attacks[i]) ||
                     !wanted(argc, argv, attacks[i].name);

        for (unsigned series = 0; series < 3 && !holds; series++)
            holds = compare(raw, &attacks[i], pids);
        status |= !holds;
    }
    signal_all(pids, HONEST_CLIENTS, SIGKILL);
    return status;
}

/* ---- a client that is killed ---- */

#define LEASES 10000

/* Takes leases, says so, and waits to be killed. */
static void hold_leases(int tell)
{
    char *line = names_line("open", MANY, NAMES, "");
    struct raw raw;
    size_t length;

    raw_open(&raw, options.socket);
    for (int i = 0; i < (LEASES + NAMES - 1) / NAMES; i++) {
        raw_send(&raw, line, strlen(line));
        if (strstr(raw_line(&raw, &length), "\"error\""))
            die("not all leases were given");
    }
    if (write(tell, "x", 1) != 1)
        _exit(1);
    for (;;)
        pause();
}

/* Milliseconds from waitpid(), when the kernel has closed its socket, to the first answer, which
   says that none of its leases is left. */
static double killed_once(struct raw *raw)
{
    int ready[2];
    double start;
    pid_t pid;
    char byte;

    if (pipe2(ready, O_CLOEXEC) < 0)
        die("cannot make a pipe: %s", strerror(errno));
    pid = fork_child();
    if (pid == 0) {
        raw_close(raw);
        hold_leases(ready[1]);
    }
    close(ready[1]);
    if (read(ready[0], &byte, 1) != 1)
        die("the client that is to be killed has failed");
    close(ready[0]);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    start = now();
    if (raw_number(raw_call(raw, "stats", "{}"), "leases") != 0)
        die("leases of a killed client were seen");
    return 1e3 * (now() - start);
}

static void killed(struct raw *raw)
{
    struct series series = {0};

    for (size_t i = 0; i < (options.quick ? 5 : 21); i++)
        series_add(&series, killed_once(raw));
    print_row(&(struct row){"hostile.killed", "ms", &series, NULL, NULL, "10 000 leases"});
}

/* ---- all of it ---- */

static bool wanted(int argc, char **argv, const char *name)
{
    bool any = false;

    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], name) == 0)
            return true;
        any |= argv[i][0] != '-';
    }
    return !any;
}

int main(int argc, char **argv)
{
    char **others = allocate((size_t)argc, sizeof(*others));
    struct rlimit files;
    struct raw raw;
    int count = 0;

    /* Names are ours; what else there is is as with every bench. */
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--beside-honest") == 0)
            beside_honest = true;
        else if (i < 2 || argv[i][0] == '-')
            others[count++] = argv[i];
    options = read_options(count, others);
    free(others);
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    attacked = options.socket;
    raw_open(&raw, options.socket);
    strangers = geteuid() == 0 && chmod(options.socket, 0666) == 0;
    publish_one(&raw, NAME);
    publish_many();
    provide();
    served = find_daemon(raw_peer(&raw));
    if (beside_honest)
        return compare_all(&raw, argc, argv);
    if (wanted(argc, argv, "killed"))
        killed(&raw);
    separate(served);
    for (size_t i = 0; i < sizeof(attacks) / sizeof(attacks[0]); i++)
        if (wanted(argc, argv, attacks[i].name) && (manager > 0 || !is_managed(&attacks[i])))
            measure(&raw, &attacks[i]);
    raw_close(&raw);
    return 0;
}
