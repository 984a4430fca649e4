/*
 * request: a whole server in this process, and up to four sessions that send it anything.
 *
 * The input is a program, a step a line:
 *   0text … 3text   the session sends the text as a message
 *   atext … dtext   it sends the text without a newline: a piece of a message
 *   F0kinds         its next sending brings descriptors, each a letter: see make_fd()
 *   X0  H0          it closes; it says that it will send no more
 *   Q0  R0          it reads no longer; it does again
 *   T250            that many milliseconds pass
 *   P1  P0          each look at the clock takes a quarter of a slice; it takes none
 *   J0  J1  J9      what movers have to do is held; one job is done; they are done as they come
 *   again E3  L           the third call of the device from now on fails; it is lost
 *   Z0  Z1  Z2      files of the disk tier are removed, cut off, changed
 *   K0              where there is a service manager: the daemon is gone, and its successor begins
 *   W1              in the first line: which server, see `worlds`
 *   +step           without a turn of the loop after it
 * Sessions 0 and 1 are root's, 2 and 3 of two other users. After each turn every account is
 * compared with what is there; what the server sends is JSON, and never admits a defect. Every
 * object that is sealed is there after a crash, and is the same; a version has one content for
 * ever. After the last step nothing is left: no byte, no descriptor, no file.
 */
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "by_hand.h"
#include "demand.h"
#include "request_content.h"
#include "request_steps.h"
#include "tests/unit/inside.h"
#include "tests/unit/is_json.h"

enum { PEERS = 4, STEPS = 256, WORLDS = 4, MANAGED = 3 };

struct player {
    struct peer peer;
    bool deaf;
    int fds[GB_LIMIT(fds)]; /* to be sent with its next message */
    unsigned fd_count;
};

static struct world {
    struct inside inside;
    char tier[PATH_MAX]; /* the disk tier's directory; "" if there is none */
    DIR *files;          /* the files in it */
    bool damaged;        /* the files may have been changed by the program */
    struct gb_notify notify;
} worlds[WORLDS];
static struct world *world;
static struct player players[PEERS];
static bool
    connections_sent; /* some session has sent the daemon a descriptor of its own connection */

/* ---- a device that is not the host, has a mover, and fails when told to ---- */

static const struct gb_device_ops *host_ops;
static struct {
    unsigned calls; /* calls until one fails; 0: none fails */
    bool lost;      /* for good */
} failing;

static int may_fail(struct gb_error *error)
{
    if (!failing.lost && (failing.calls == 0 || --failing.calls > 0))
        return 0;
    gb_fail(error, GPUBUF_E_DEVICE, "the fuzzer had it fail");
    if (error)
        error->cuda = failing.lost ? "CUDA_ERROR_ECC_UNCORRECTABLE" : "CUDA_ERROR_UNKNOWN";
    return GPUBUF_E_DEVICE;
}

static bool can_share(const struct gb_device *device, enum gb_share share)
{
    return true;
}

static int create(struct gb_device *device, enum gb_share share, uint64_t bytes,
                  struct gb_memory *memory, struct gb_error *error)
{
    int r = may_fail(error);

    if (r == 0)
        r = host_ops->create(device, share, bytes, memory, error);
    if (r == 0 && share == GB_SHARE_IPC) {
        memory->kind = GB_HANDLE_CUDA_IPC;
        memory->pointer = 1;
    }
    return r;
}

static int adopt(struct gb_device *device, const struct gb_handle *handle, int fd,
                 struct gb_memory *memory, struct gb_error *error)
{
    int r = may_fail(error);

    if (r < 0)
        return r;
    if (handle->kind != GB_HANDLE_CUDA_IPC)
        return host_ops->adopt(device, handle, fd, memory, error);
    *memory = (struct gb_memory){.kind = handle->kind, .write_fd = -1, .read_fd = -1};
    return 0;
}

static int copy(struct gb_device *device, enum gb_direction direction,
                const struct gb_memory *memory, uint64_t segment_bytes, uint64_t offset, void *own,
                uint64_t bytes, struct gb_error *error)
{
    int r = may_fail(error);

    return r < 0 ? r
                 : host_ops->copy(device, direction, memory, segment_bytes, offset, own, bytes,
                                  error);
}

static int finish_copies(struct gb_device *device, enum gb_direction direction,
                         struct gb_error *error)
{
    return may_fail(error);
}

static int pin(struct gb_device *device, void *own, uint64_t bytes, struct gb_error *error)
{
    return may_fail(error);
}

static void unpin(struct gb_device *device, void *own)
{
}

static void make_gpu(struct gb_device *device)
{
    static struct gb_device_ops ops;

    host_ops = device->ops;
    ops = *host_ops;
    ops.is_host = false;
    ops.can_share = can_share;
    ops.create = create;
    ops.adopt = adopt;
    ops.copy = copy;
    ops.finish_copies = finish_copies;
    ops.pin = pin;
    ops.unpin = unpin;
    device->ops = &ops;
    device->can_block = true;
    strcpy(device->id, "GPU-f0");
    strcpy(device->alias, "cuda:0");
}

/* ---- the servers: without tiers, with both below a GPU, with a disk, and that with a manager
   ---- */

static void do_jobs(void)
{
    while (!hand_jobs.hold && hand_do_job())
        ;
}

static void remove_tiers(void)
{
    char lock[PATH_MAX + 16];

    for (int i = 0; i < WORLDS; i++) {
        if (!worlds[i].tier[0])
            continue;
        snprintf(lock, sizeof(lock), "%s/gpubufd.lock", worlds[i].tier);
        unlink(lock);
        rmdir(worlds[i].tier);
    }
}

static void make_tier(struct world *of, char *option, size_t size)
{
    const char *base = getenv("TMPDIR");

    snprintf(of->tier, sizeof(of->tier), "%.3900s/gpubufd-fuzz-XXXXXX", base ? base : "/dev/shm");
    DEMAND(mkdtemp(of->tier) != NULL);
    DEMAND((of->files = opendir(of->tier)) != NULL);
    snprintf(option, size, "--tier=disk:2M:%s", of->tier);
}

/* Sets up the world's server, which was just made, and has it serve. */
static void start_world(void)
{
    struct inside *inside = &world->inside;
    struct gb_server *server = &inside->server;
    long number = world - worlds;
    char lock[64];

    if (number == 1)
        make_gpu(server->devices[0]);
    if (number > 0) /* what is small is moved fast */
        server->devices[0]->granularity = 65536;
    if (number == MANAGED) {
        DEMAND(hand_over(&world->notify));
        server->notify = &world->notify;
    }
    DEMAND(mkdir(inside->directory, 0700) == 0);
    inside_listen(inside);
    inside->work = do_jobs;
    gb_log_setup((enum gb_log_level)(GB_LOG_ERROR + 1), false); /* failures are expected, so they
                                                                   are not logged */
    if (number == MANAGED)
        gb_notify_close_unused(&world->notify);
    /* Nobody connects by the path, and nobody would remove it when fuzzing ends. */
    unlink(inside->socket);
    snprintf(lock, sizeof(lock), "%s.lock", inside->socket);
    unlink(lock);
    DEMAND(rmdir(inside->directory) == 0);
}

static void restart_world(void)
{
    struct inside *inside = &world->inside;
    struct gb_error error;

    inside_stop(inside);
    gb_notify_end(&world->notify);
    DEMAND(gb_server_init(&inside->server, &inside->config, &gb_methods, &error) == 0);
    start_world();
}

static void begin_world(unsigned number)
{
    static const char *const limits[] = {
        "--limit=session_leases=64", "--limit=session_unsealed=8", "--limit=session_watches=4",
        "--limit=session_waits=4",   "--limit=session_provides=3", "--limit=session_wanted=2",
        "--limit=user_objects=64",   "--limit=user_segments=24",   "--limit=sessions=3",
        "--limit=output_bytes=400K", "--retire-after=60"};
    enum { LIMITS = sizeof(limits) / sizeof(limits[0]) };
    const char *options[LIMITS + 5] = {NULL};
    char disk[PATH_MAX + 32];
    unsigned count = LIMITS;

    world = &worlds[number];
    memcpy(options, limits, sizeof(limits));
    if (number > 0) {
        make_tier(world, disk, sizeof(disk));
        options[count++] = disk;
    }
    if (number == 1)
        options[count++] = "--tier=host:2M";
    options[count++] = number > 0 ? "--device=host:2M" : "--device=host:16M";
    inside_make(&world->inside, options);
    DEMAND(rmdir(world->inside.directory) == 0);
    start_world();
}

static void begin_once(void)
{
    static bool begun;

    if (begun)
        return;
    begun = true;
    atexit(remove_tiers);
    for (unsigned i = 0; i < WORLDS; i++)
        begin_world(i);
    for (int i = 0; i < PEERS; i++)
        players[i].peer.fd = -1;
}

/* Resets all state, so that an input does the same whenever it is played. */
static void begin_anew(void)
{
    struct gb_server *server = &world->inside.server;
    struct gb_device *device = server->devices[0];

    server->next_session = server->watches.next = 1;
    server->missings.providers.last_request = 0;
    server->store.next_segment = 1;
    server->registry.next_lease = server->registry.next_version = 1;
    device->lost = server->spill.above_high[0] = false;
    server->withdrawn = 0;
    server->waits.queues[0].retired_ms = 0;
    for (int i = 0; i < GB_TIERS; i++) {
        server->spill.tiers[i].failing_until = 0;
        server->spill.tiers[i].next_file = 0;
    }
    world->damaged = false;
    content_forget();
    failing.calls = 0;
    failing.lost = false;
    hand_jobs.hold = false;
    hand_tick_ns = hand_ticks_ns = 0;
    hand_clock_ms = 1000000;
}

/* ---- crashes ---- */

/* An object's state before a crash. */
struct survivor {
    char *text; /* owned */
    size_t length;
    uint64_t version, bytes;
    uid_t uid;
    unsigned mode;
    enum gb_evict evict;
    bool pinned;
};

static struct survivor survivor_of(const struct gb_object *object)
{
    struct survivor survivor = {.text = malloc(object->text_length + 1),
                                .length = object->text_length,
                                .version = object->version,
                                .bytes = object->bytes,
                                .uid = object->owner->uid,
                                .mode = object->mode,
                                .evict = object->evict,
                                .pinned = object->pinned};

    DEMAND(survivor.text);
    memcpy(survivor.text, object->text, survivor.length);
    return survivor;
}

static bool is_same(const struct survivor *a, const struct survivor *b)
{
    return a->version == b->version && a->bytes == b->bytes && a->uid == b->uid &&
           a->mode == b->mode && a->evict == b->evict && a->pinned == b->pinned &&
           a->length == b->length && memcmp(a->text, b->text, a->length) == 0;
}

/* Notes the objects that have a name, in the order of names, older versions after the current one.
   The caller owns them. */
static struct survivor *note_objects(size_t *count)
{
    const struct gb_names *names = &world->inside.server.registry.names;
    struct survivor *all = NULL;

    *count = 0;
    for (const struct gb_name *name = gb_names_lower(names, "", 0, false); name;
         name = gb_names_next(name)) {
        const struct gb_object *object = GB_CONTAINER(name, struct gb_object, index);
        unsigned left = object->keep + 1;

        for (; object && object->named; object = gb_object_older(object)) {
            struct survivor *more = realloc(all, (*count + 1) * sizeof(*all));

            DEMAND(more && left-- > 0);
            all = more;
            all[(*count)++] = survivor_of(object);
        }
    }
    return all;
}

/* The daemon dies between two turns; its successor has only what the service manager keeps. */
static void crash(void)
{
    struct survivor *before, *after;
    size_t count, left, found = 0;

    if (world != &worlds[MANAGED] || world->inside.server.state.failed)
        return;
    before = note_objects(&count);
    gb_state_hand_over(&world->inside.server.state);
    for (int i = 0; i < PEERS; i++)
        peer_close(&players[i].peer);
    restart_world();
    after = note_objects(&left);
    DEMAND(left <= count && (left == count || world->damaged));
    for (size_t i = 0; i < count; i++) {
        if (found < left && is_same(&before[i], &after[found]))
            free(after[found++].text);
        else
            DEMAND(world->damaged);
        free(before[i].text);
    }
    DEMAND(found == left);
    free(before);
    free(after);
    inside_check(&world->inside);
    content_turn(&world->inside.server);
}

/* ---- steps ---- */

static void hear(struct player *player)
{
    char *line;

    if (player->peer.fd < 0 || player->deaf)
        return;
    while ((line = peer_line(&player->peer))) {
        DEMAND(is_json(line, strlen(line)));
        DEMAND(!strstr(line, "\"kind\":\"internal\""));
        free(line);
    }
    if (player->peer.closed)
        peer_close(&player->peer);
}

/* Whether the loop has more to do before it would sleep. */
static bool goes_on(const struct gb_server *server)
{
    return !gb_list_empty(&server->turns.ready) || !gb_list_empty(&server->turns.busy) ||
           !gb_list_empty(&server->turns.tasks) || gb_waits_have_more(server) ||
           (!hand_jobs.hold && hand_first_job());
}

/* A turn of the loop, and others until it would sleep. */
static void turn(void)
{
    int turns = 0;

    do {
        inside_turn(&world->inside);
        DEMAND(++turns < 10000);
    } while (goes_on(&world->inside.server));
    inside_check(&world->inside);
    content_turn(&world->inside.server);
    for (int i = 0; i < PEERS; i++)
        hear(&players[i]);
}

static void drop_fds(struct player *player)
{
    while (player->fd_count > 0)
        close(player->fds[--player->fd_count]);
}

static void say(struct player *player, const char *text, size_t length)
{
    static const uid_t uids[PEERS] = {0, 0, 1000, 1001};

    if (player->peer.fd < 0) {
        if (!peer_connect(&world->inside, &player->peer))
            return;
        peer_become(&world->inside, &player->peer, uids[player - players]);
    }
    peer_send_bytes(&player->peer, text, length, player->fds, player->fd_count);
    drop_fds(player);
}

static int socket_with_fds(void)
{
    struct peer peer = {.fd = -1};
    int ends[2], sent[2] = {sealed_memfd(65536, F_SEAL_SHRINK), open("/dev/null", O_RDONLY)};

    DEMAND(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    peer.fd = ends[1];
    DEMAND(peer_send_bytes(&peer, "!", 1, sent, 2) == 1);
    close(ends[1]);
    close(sent[0]);
    close(sent[1]);
    return ends[0];
}

static int make_fd(char kind)
{
    int ends[2], fd;

    switch (kind) {
    case 's': /* a memfd that cannot shrink */
        return sealed_memfd(65536, F_SEAL_SHRINK);
    case 'w': /* a memfd that can neither shrink nor be written to */
        return sealed_memfd(1 << 20, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
    case 'u': /* a memfd that can */
        return sealed_memfd(65536, 0);
    case 'z': /* of no bytes */
        return sealed_memfd(0, F_SEAL_SHRINK);
    case 'h': /* larger than any device */
        return sealed_memfd((size_t)1 << 40, F_SEAL_SHRINK);
    case 'r': /* that can only be read */
        fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
        return fd;
    case 'g': /* of huge pages, if the kernel has any; none is taken */
        fd = memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);
        if (fd < 0)
            return sealed_memfd(1 << 21, 0);
        DEMAND(ftruncate(fd, 1 << 21) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
        return fd;
    case 'x': /* a file that has no name any more */
        fd = open(getenv("TMPDIR") ? getenv("TMPDIR") : "/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC,
                  0600);
        DEMAND(fd >= 0 && ftruncate(fd, 65536) == 0);
        return fd;
    case 'k':
        DEMAND(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
        close(ends[1]);
        return ends[0];
    case 'q': /* with others in its queue, which is all that holds them */
        return socket_with_fds();
    case 'p':
        DEMAND(pipe2(ends, O_CLOEXEC) == 0);
        close(ends[1]);
        return ends[0];
    case 'i':
        return eventfd(1, EFD_CLOEXEC);
    case 'e':
        return epoll_create1(EPOLL_CLOEXEC);
    case 'd':
        return open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    case 'y':
        return open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    case 'o':
        return open("/dev/null", O_PATH | O_CLOEXEC);
    default:
        return open("/dev/null", O_RDONLY | O_CLOEXEC);
    }
}

/* A descriptor of the kind. Each kind is made once and then duplicated, except one that only the
   receiver is to have ('q') and the player's own connection ('c'). */
static int fd_of(const struct player *player, char kind)
{
    static int made[26] = {0};
    int *original = &made[kind - 'a'];

    if (kind == 'q')
        return make_fd(kind);
    if (kind == 'c' && player->peer.fd >= 0) {
        connections_sent = true;
        return fcntl(player->peer.fd, F_DUPFD_CLOEXEC, 0);
    }
    if (!*original) { /* out of the way of count_fds() */
        int once = make_fd(kind);

        *original = fcntl(once, F_DUPFD_CLOEXEC, 200);
        close(once);
    }
    DEMAND(*original > 0);
    return fcntl(*original, F_DUPFD_CLOEXEC, 0);
}

static void take_fds(struct player *player, const char *kinds, size_t length)
{
    for (size_t i = 0; i < length && player->fd_count < GB_LIMIT(fds); i++) {
        int fd = fd_of(player, kinds[i] >= 'a' && kinds[i] <= 'z' ? kinds[i] : 'n');

        DEMAND(fd >= 0);
        player->fds[player->fd_count++] = fd;
    }
}

/* Damage to files of the disk tier. */
static void damage(char how)
{
    const struct dirent *entry;

    if (!world->files)
        return;
    world->damaged = true;
    rewinddir(world->files);
    while ((entry = readdir(world->files))) {
        int fd;

        if (!strstr(entry->d_name, ".spill"))
            continue;
        if (how == '0') {
            unlinkat(dirfd(world->files), entry->d_name, 0);
            continue;
        }
        fd = openat(dirfd(world->files), entry->d_name, O_WRONLY | O_CLOEXEC);
        DEMAND(fd >= 0);
        if (how == '1')
            DEMAND(ftruncate(fd, GB_SPILL_HEADER_BYTES + 1) == 0);
        else
            DEMAND(pwrite(fd, "!", 1, GB_SPILL_HEADER_BYTES) == 1);
        close(fd);
    }
}

/* A number of at most `digits` digits. */
static uint64_t read_number(const char *text, size_t length)
{
    uint64_t number = 0;

    for (size_t i = 0; i < length && i < 9 && text[i] >= '0' && text[i] <= '9'; i++)
        number = 10 * number + (uint64_t)(text[i] - '0');
    return number;
}

static void of_player(char kind, struct player *player, const char *text, size_t length)
{
    if (kind == 'F')
        take_fds(player, text, length);
    else if (kind == 'X')
        peer_close(&player->peer);
    else if (kind == 'H' && player->peer.fd >= 0)
        shutdown(player->peer.fd, SHUT_WR);
    else if (kind == 'Q' || kind == 'R')
        player->deaf = kind == 'Q';
}

static void jobs(char what)
{
    if (what == '1')
        hand_do_job();
    else
        hand_jobs.hold = what == '0';
}

/* The step's text ends with its newline, which may be overwritten. */
static void step(const char *text, size_t length)
{
    char kind = text[0], digit = length > 1 ? text[1] : '0';

    if (kind >= '0' && kind < '0' + PEERS)
        say(&players[kind - '0'], text + 1, length);
    else if (kind >= 'a' && kind < 'a' + PEERS && length > 1)
        say(&players[kind - 'a'], text + 1, length - 1);
    else if (kind == 'T')
        hand_clock_ms += read_number(text + 1, length - 1);
    else if (kind == 'P')
        hand_tick_ns = digit == '1' ? GB_SESSION_SLICE_NS / 4 : 0;
    else if (kind == 'J')
        jobs(digit);
    else if (kind == 'E')
        failing.calls = (unsigned)read_number(text + 1, length - 1);
    else if (kind == 'L')
        failing.lost = true;
    else if (kind == 'Z')
        damage(digit);
    else if (kind == 'K')
        crash();
    else if (digit >= '0' && digit < '0' + PEERS && length > 1)
        of_player(kind, &players[digit - '0'], text + 2, length - 2);
}

static void play(const char *text, size_t size)
{
    const char *end = text + size;

    for (int steps = 0; text < end && steps < STEPS; steps++) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        bool quiet = *text == '+';

        if (!newline)
            return; /* a step without its newline does not count */
        text += quiet;
        if (text < newline)
            step(text, (size_t)(newline - text));
        if (!quiet)
            turn();
        text = newline + 1;
    }
}

/* Ends connections whose last descriptor is in their own queue, behind answers that nobody can read
   any more, or is held by a request of their own that waits. They stay open and count for their
   user, as if a process had them. */
static void end_those_of_themselves(void)
{
    struct gb_link *sessions = &world->inside.server.sessions;

    while (connections_sent && !gb_list_empty(sessions)) {
        struct gb_session *session = GB_CONTAINER(sessions->next, struct gb_session, of_server);

        DEMAND(session->input == GB_INPUT_THROTTLED || session->wait_count > 0);
        gb_session_end(session, "it holds itself");
    }
    if (connections_sent) /* nobody will ever read what was sent to them */
        gb_flights_end(&world->inside.server.flights);
    connections_sent = false;
}

static void everybody_leaves(void)
{
    for (int i = 0; i < PEERS; i++) {
        drop_fds(&players[i]);
        peer_close(&players[i].peer);
        players[i].deaf = false;
    }
    hand_jobs.hold = false;
    hand_tick_ns = 0;
    turn();
    /* Past the grace period, for sessions that have not resumed, and past the time for half a line,
       for connections that were sent through themselves in half a line. */
    hand_clock_ms += world->inside.config.grace_ms + GB_LIMIT(half_line_ms);
    for (int turns = 0; turns < 8; turns++) /* one hears that another has closed its connection */
        turn();
    end_those_of_themselves();
    turn();
}

/* How many of the first 200 descriptors are open: a leak takes one of those. */
static unsigned count_fds(void)
{
    struct pollfd fds[200];
    unsigned count = 0;

    for (int i = 0; i < 200; i++)
        fds[i] = (struct pollfd){.fd = i};
    poll(fds, 200, 0);
    for (int i = 0; i < 200; i++)
        count += !(fds[i].revents & POLLNVAL);
    return count;
}

static void check_files(void)
{
    const struct dirent *entry;

    if (!world->files)
        return;
    rewinddir(world->files);
    while ((entry = readdir(world->files)))
        DEMAND(!strstr(entry->d_name, ".spill"));
}

/* RELIABILITY.md: Memory is short 7, Hostile clients 20 */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned number = size > 2 && data[0] == 'W' && data[1] < '0' + WORLDS ? data[1] - '0' : 0;
    unsigned fds;

    begin_once();
    world = &worlds[number % WORLDS];
    if (world == &worlds[MANAGED]) {
        hand_forget();
        restart_world();
    }
    begin_anew();
    fds = count_fds();
    play((const char *)data, size);
    everybody_leaves();
    inside_empty(&world->inside);
    check_files();
    DEMAND(count_fds() == fds);
    /* The service manager keeps the journal and nothing else. */
    DEMAND(world != &worlds[MANAGED] || hand_kept_count <= 1);
    return 0;
}
