/*
 * reply: the library, used as programs use it, and a daemon that says anything. Time and threads
 * are by hand: while the library waits the daemon takes its next steps, and when it has none left
 * the connection ends for good.
 *
 * The input is a program, a step a line:
 *   >text   the daemon sends the text as a message; `$` in it: the number of the last request
 *   |text   it sends the text without a newline: a piece of a message
 *   Fkinds  its next sending brings descriptors: s a good memfd, t one of 100 bytes, u unsealed, n
 *   none X  H    it closes the connection; it says that it will send no more
 *   T250    that many milliseconds pass
 *   Cx3     the library does x, with object 3 where it takes one: see do_call()
 *   N       in the first line: it does not make a connection that broke anew
 *   G       in the first line: it connects by itself, greeting and all
 *   E       in the first line: its releases wait for one another
 *   K       in the first line: it keeps leases
 * What the library sends is checked; what it hands out is touched. Nothing is left.
 */
#include "client/lib/objects/cached.h"
#include "client/lib/objects/object.h"
#include "client/lib/session/connect.h"
#include "client/lib/session/due.h"
#include "demand.h"
#include "reply_stage.h"
#include "reply_steps.h"

/* ---- the program ---- */

static void touch(struct gpubuf_object *object, int depth);

/* Reads each array of a bundle, whatever its memory holds. */
static void touch_bundle(struct gpubuf_object *object)
{
    struct gpubuf_bundle *bundle;
    struct gpubuf_object *view;

    if (gpubuf_bundle_open(object, &bundle) != 0)
        return;
    for (size_t i = 0; i < gpubuf_bundle_count(bundle); i++) {
        const struct gpubuf_tensor *tensor = gpubuf_bundle_at(bundle, i);
        DEMAND(gpubuf_bundle_find(bundle, tensor->name, NULL) == tensor);
        if (gpubuf_bundle_array(bundle, i, &view) == 0)
            touch(view, 0), gpubuf_release(view);
        if (gpubuf_bundle_copy(bundle, i, &view) == 0)
            touch(view, 0), gpubuf_release(view);
    }
    gpubuf_bundle_free(bundle);
}

/* Reads all memory that an object gives access to. */
static void touch(struct gpubuf_object *object, int depth)
{
    struct gpubuf_memory memory;
    struct gpubuf_object *view;
    volatile unsigned char sum = 0;
    const char *key, *value;
    uint64_t length = gpubuf_length(object);

    for (unsigned which = GPUBUF_DATA; which <= GPUBUF_OFFSETS; which++)
        if (gpubuf_memory(object, (enum gpubuf_which)which, &memory) == 0 && memory.bytes > 0)
            sum = (unsigned char)(sum + *(unsigned char *)memory.pointer +
                                  ((unsigned char *)memory.pointer)[memory.bytes - 1]);
    for (uint64_t i = 0; i < length && i < 20; i++)
        (void)gpubuf_is_valid(object, i);
    (void)gpubuf_is_valid(object, length ? length - 1 : 0);
    for (unsigned i = 0; i < gpubuf_ndim(object); i++)
        sum = (unsigned char)(sum + gpubuf_shape(object)[i] + (uint64_t)gpubuf_strides(object)[i]);
    for (size_t i = 0; gpubuf_metadata_at(object, i, &key, &value) == 0; i++)
        DEMAND(strcmp(gpubuf_metadata(object, key), value) == 0 || i > 0);
    DEMAND(strlen(gpubuf_dtype(object)) < 64 && gpubuf_name(object) && gpubuf_device(object));
    if (depth > 0 && gpubuf_kind(object) == GPUBUF_KIND_BUNDLE)
        touch_bundle(object);
    for (size_t i = 0; depth > 0 && i < gpubuf_child_count(object) && i < 4; i++)
        if (gpubuf_child(object, i, &view) == 0) {
            touch(view, depth - 1);
            gpubuf_release(view);
        }
}

/* Arrow's side reads every buffer from end to end. */
static void touch_arrow(struct gpubuf_object *object)
{
    struct ArrowSchema schema;
    struct ArrowArray array;

    if (gpubuf_export_arrow(object, &schema, &array) != 0)
        return;
    DEMAND(schema.n_children == array.n_children && array.length >= 0 && array.offset >= 0);
    DEMAND(schema.format && strlen(schema.format) > 0);
    schema.release(&schema);
    array.release(&array);
}

static void keep(struct gpubuf_object *object)
{
    for (int i = 0; i < OBJECTS; i++)
        if (!stage.objects[i]) {
            stage.objects[i] = object;
            return;
        }
    gpubuf_release(object);
}

static void on_object(struct gpubuf_client *client, int status, struct gpubuf_object *object,
                      void *arg)
{
    DEMAND(stage.callbacks_due-- > 0);
    DEMAND((status < 0) == (object == NULL));
    if (!object)
        return;
    touch(object, 3);
    keep(object);
}

static void on_objects(struct gpubuf_client *client, int status,
                       struct gpubuf_object *const *objects, const int *errors, size_t count,
                       void *arg)
{
    int opened = 0;

    DEMAND(stage.callbacks_due-- > 0);
    DEMAND((status < 0) == (objects == NULL));
    for (size_t i = 0; objects && i < count; i++) {
        DEMAND((errors[i] < 0) == (objects[i] == NULL));
        if (!objects[i])
            continue;
        opened++;
        touch(objects[i], 3);
        keep(objects[i]);
    }
    DEMAND(status < 0 || status == opened);
}

static void on_text(struct gpubuf_client *client, int status, const char *result, size_t length,
                    void *arg)
{
    DEMAND(stage.callbacks_due-- > 0);
    DEMAND((status < 0) == (result == NULL));
    DEMAND(!result || strnlen(result, length + 1) == length);
}

static void on_event(struct gpubuf_client *client, const char *kind, const struct gpubuf_info *info,
                     void *arg)
{
    DEMAND(kind && (!info || memchr(info->name, '\0', sizeof(info->name))));
    if (info && info->name[0] == 'u' && stage.watch_count > 0) /* ends its own watch */
        (void)gpubuf_unwatch(client, stage.watches[0]);
    if (info && info->name[0] == 'r' && stage.objects[0]) {
        gpubuf_release(stage.objects[0]);
        stage.objects[0] = NULL;
    }
}

static void on_watch(struct gpubuf_client *client, int status, uint64_t watch, void *arg)
{
    DEMAND(stage.callbacks_due-- > 0);
    DEMAND((status < 0) == (watch == 0));
    if (watch)
        stage.watches[stage.watch_count++ % WATCHES] = watch;
}

static void on_wanted(struct gpubuf_client *client, const struct gpubuf_wanted *wanted, void *arg)
{
    DEMAND((wanted->name == NULL) == wanted->ended);
    DEMAND(wanted->ended || wanted->request > 0);
    stage.wanted = wanted->request;
    if (wanted->name && wanted->name[0] == 'u')
        (void)gpubuf_provide_end(client, "p");
    if (wanted->name && wanted->name[0] == 'r')
        (void)gpubuf_decline(client, wanted->request, 0, wanted->name);
}

static int each(const struct gpubuf_info *info, void *arg)
{
    int *left = arg;

    DEMAND(memchr(info->name, '\0', sizeof(info->name)) && memchr(info->tier, '\0', 8));
    return (*left)-- == 0;
}

static const char *const names[] = {"p", "q", "r/s"};
static const struct gpubuf_open_options waits = {.size = sizeof(waits), .wait_ms = 1000};
static const struct gpubuf_open_options version = {.size = sizeof(version), .version = 2};

/* Opens an object. One that is found without a request must be one that the page marks as
   current. */
static void open_one(const struct gpubuf_open_options *options)
{
    struct gpubuf_object *object = NULL;

    if (gpubuf_open(stage.client, "p", options, &object) < 0)
        return;
    const struct gb_client_lease *lease = object->lease;
    if (lease->reported || object->references > 1) { /* what was granted just now is neither */
        DEMAND(!is_dead() && lease->slot && page[lease->slot - 1] == lease->id);
        DEMAND(strcmp(lease->name, "p") == 0);
        DEMAND(!options || gpubuf_object_version(object) == options->version);
    }
    touch(object, 3);
    keep(object);
}

static void open_things(char what)
{
    struct gpubuf_client *client = stage.client;
    struct gpubuf_object *opened[3];
    uint64_t *request = &stage.requests[stage.request_count % REQUESTS];
    int errors[3], r = -1;

    switch (what) {
    case 'o':
        open_one(NULL);
        return;
    case 'v':
        open_one(&version);
        return;
    case 'm':
        if (gpubuf_open_many(client, names, 3, &waits, opened, errors) >= 0)
            for (int i = 0; i < 3; i++) {
                DEMAND((opened[i] != NULL) == (errors[i] == 0));
                if (opened[i])
                    touch(opened[i], 3), keep(opened[i]);
            }
        return;
    case 'O':
        r = gpubuf_open_async(client, "p", &waits, on_object, NULL, request);
        break;
    case 'M':
        r = gpubuf_open_many_async(client, names, 3, NULL, on_objects, NULL, request);
        break;
    }
    stage.callbacks_due += r == 0;
    stage.request_count += r == 0;
}

/* Creates a bundle and writes its manifest, as a producer does. */
static void create_bundle(void)
{
    static const uint64_t shape[] = {25, 4};
    static const struct gpubuf_tensor_spec spec = {"a", "int8", 2, shape};
    struct gpubuf_layout_spec layout;
    struct gpubuf_bundle *bundle;
    struct gpubuf_object *object;
    uint64_t bytes;

    DEMAND(gpubuf_bundle_plan(&spec, 1, NULL, &bundle) == 0);
    gpubuf_bundle_layout(bundle, &layout);
    const void *head = gpubuf_bundle_head(bundle, &bytes);
    DEMAND(layout.bytes == 356 && layout.manifest_bytes == 248); /* as the daemon's steps have it */
    if (gpubuf_create(stage.client, "p", &layout, NULL, &object) == 0) {
        (void)gpubuf_write(object, GPUBUF_DATA, 0, head, bytes, NULL);
        touch(object, 3), keep(object);
    }
    gpubuf_bundle_free(bundle);
}

static void create_things(char what)
{
    static const uint64_t shape[] = {4, 5};
    static const struct gpubuf_column_spec columns[] = {
        {.name = "x", .dtype = "int32", .length = 3, .mask = true},
        {.name = "s", .dtype = "utf8", .length = 3, .data_bytes = 9}};
    static const struct gpubuf_layout_spec specs[] = {
        {.kind = GPUBUF_KIND_BYTES, .bytes = 100},
        {.kind = GPUBUF_KIND_ARRAY, .dtype = "float64", .ndim = 2, .shape = shape},
        {.kind = GPUBUF_KIND_TABLE,
         .column = {.length = 3, .children = columns, .child_count = 2}}};
    struct gpubuf_client *client = stage.client;
    struct gpubuf_object *object;
    int r = -1;

    switch (what) {
    case 'c':
        if (gpubuf_create(client, "p", &specs[0], NULL, &object) == 0)
            touch(object, 3), keep(object);
        return;
    case 't':
        if (gpubuf_create(client, "p", &specs[2], NULL, &object) == 0)
            touch(object, 3), keep(object);
        return;
    case 'n':
        create_bundle();
        return;
    case 'b':
        (void)gpubuf_put_bytes(client, "p", "content", 7, NULL);
        return;
    case 'a':
        (void)gpubuf_put_array(client, "p", "int8", 1, shape, NULL, "abcd", NULL);
        return;
    case 'A':
        r = gpubuf_create_async(client, "p", &specs[1], NULL, on_object, NULL,
                                &stage.requests[stage.request_count % REQUESTS]);
    }
    stage.callbacks_due += r == 0;
    stage.request_count += r == 0;
}

static void register_fd(void)
{
    int fd = make_fd('s');

    (void)gpubuf_register_memfd(
        stage.client, "p", fd, 65536,
        "{\"kind\":\"bytes\",\"bytes\":9,\"data\":{\"handle\":0,\"offset\":0,\"bytes\":9}}", NULL);
    close(fd);
}

static void ask(char what)
{
    struct gpubuf_client *client = stage.client;
    struct gpubuf_info info;
    char *text;
    int left = 3, r = -1;

    switch (what) {
    case 's':
        if (gpubuf_stat(client, "p", &info) == 0)
            DEMAND(memchr(info.name, '\0', sizeof(info.name)) && memchr(info.device, '\0', 64));
        return;
    case 'l':
        (void)gpubuf_list(client, "p", each, &left);
        return;
    case 'd':
        (void)gpubuf_delete(client, "p");
        return;
    case 'p':
        (void)gpubuf_pin(client, "p");
        return;
    case 'i':
        (void)gpubuf_alias(client, "q", "p", NULL);
        return;
    case 'g':
        register_fd();
        return;
    case 'k':
        if (gpubuf_call(client, "stats", NULL, 500, &text) == 0)
            gpubuf_free(text);
        return;
    case 'K':
        r = gpubuf_call_async(client, "stats", "{}", on_text, NULL,
                              &stage.requests[stage.request_count % REQUESTS]);
        break;
    case 'w':
        if (gpubuf_watch(client, "p", on_event, NULL,
                         &stage.watches[stage.watch_count % WATCHES]) == 0)
            stage.watch_count++;
        return;
    case 'P':
        (void)gpubuf_provide(client, "p", on_wanted, NULL);
        return;
    case 'W':
        r = gpubuf_watch_async(client, NULL, on_event, on_watch, NULL,
                               &stage.requests[stage.request_count % REQUESTS]);
        break;
    }
    stage.callbacks_due += r == 0;
    stage.request_count += r == 0;
}

static void use(char what, unsigned number)
{
    struct gpubuf_object **slot = &stage.objects[number % OBJECTS], *object = *slot, *view;
    uint64_t length = object ? gpubuf_length(object) : 0;
    static const char *const columns[] = {"s", "x"};
    char bytes[16] = "";
    int r = -1;

    if (!object)
        return;
    switch (what) {
    case 'R':
        gpubuf_release(object);
        *slot = NULL;
        return;
    case 'T':
        touch(object, 3);
        return;
    case 'V':
        if (gpubuf_slice(object, length / 3, length / 3, &view) == 0)
            touch(view, 3), touch_arrow(view), keep(view);
        return;
    case 'E':
        touch_arrow(object);
        return;
    case 'H':
        if (gpubuf_child(object, number / 2, &view) == 0)
            touch(view, 2), keep(view);
        return;
    case 'L':
        if (gpubuf_select(object, columns, 2, &view) == 0)
            touch(view, 2), touch_arrow(view), keep(view);
        return;
    case 'D':
        (void)gpubuf_read(object, GPUBUF_DATA, 0, bytes, sizeof(bytes), NULL);
        return;
    case 'B':
        (void)gpubuf_write(object, GPUBUF_DATA, 0, bytes, sizeof(bytes), NULL);
        return;
    case 'Y':
        (void)gpubuf_wait_ready(object, NULL);
        return;
    case 'S':
        (void)gpubuf_seal(object, NULL);
        return;
    case 'Z':
        r = gpubuf_seal_async(object, NULL, on_object, NULL,
                              &stage.requests[stage.request_count % REQUESTS]);
    }
    stage.callbacks_due += r == 0;
    stage.request_count += r == 0;
}

/* o v m O M open, c t n b a A create and put, s l d p i g k K w W P ask, R T V E H L D B Y S Z use
   an object; q cancels a request, u ends a watch, e ends a prefix, N declines, . dispatches,
   x has the library's thread look after the client. */
static void do_call(char what, unsigned number)
{
    bool down = false;

    if (what == 'x')
        (void)gb_client_run_due(stage.client, &down);
    else if (what == '.')
        (void)gpubuf_dispatch(stage.client);
    else if (what == 'q')
        (void)gpubuf_cancel(stage.client, stage.requests[number % REQUESTS]);
    else if (what == 'u')
        (void)gpubuf_unwatch(stage.client, stage.watches[number % WATCHES]);
    else if (what == 'e')
        (void)gpubuf_provide_end(stage.client, "p");
    else if (what == 'N')
        (void)gpubuf_decline(stage.client, stage.wanted, GPUBUF_E_UNAVAILABLE, "no");
    else if (what == 'f')
        (void)(gpubuf_fd(stage.client) + gpubuf_events(stage.client));
    else if (memchr("ovmOM", what, 5))
        open_things(what);
    else if (memchr("ctbaAn", what, 6))
        create_things(what);
    else if (memchr("sldpigkKwWP", what, 11))
        ask(what);
    else
        use(what, number);
}

/* ---- beginning and ending ---- */

static void remove_socket(void)
{
    unlink(socket_path);
}

static void begin_once(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *base = getenv("TMPDIR");

    if (listener >= 0)
        return;
    snprintf(socket_path, sizeof(socket_path), "%.60s/gpubufd-fuzz-%d", base ? base : "/dev/shm",
             getpid());
    strcpy(address.sun_path, socket_path);
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    DEMAND(listener >= 0);
    unlink(socket_path);
    DEMAND(bind(listener, (const struct sockaddr *)&address, sizeof(address)) == 0);
    DEMAND(listen(listener, 16) == 0);
    atexit(remove_socket);
}

/* Connects a client, to which the daemon has answered hello. */
static void make_client(bool resumes)
{
    int ends[2];

    DEMAND(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    stage.socket = ends[1];
    stage.client = gb_connect_over(ends[0]);
    DEMAND(stage.client);
    strcpy(stage.client->daemon.instance, "f0");
    stage.client->path = strdup(socket_path);
    stage.client->name = strdup("fuzz");
    stage.client->daemon.resume_ms = resumes ? 2000 : GPUBUF_NO_RESUME;
    stage.client->requests.timeout_ms = 5000;
    if (!stage.keeps)
        return;
    DEMAND(gb_cached_prepare(stage.client, 2, 2000) == 0);
    gb_cached_map(stage.client, stage.page_fd, SLOTS, stage.page_fd);
}

static void connect_client(void)
{
    const struct gpubuf_connect_options options = {.size = sizeof(options),
                                                   .path = socket_path,
                                                   .client_name = "fuzz",
                                                   .timeout_ms = 1000,
                                                   .resume_ms = 2000,
                                                   .cache_bytes = 65536,
                                                   .cache_leases =
                                                       stage.keeps ? 2 : GPUBUF_NO_CACHE};

    if (gpubuf_connect(&stage.client, &options) < 0)
        stage.client = NULL;
}

static void begin(const char *text, size_t size)
{
    const char *newline = memchr(text, '\n', size);
    size_t first = newline ? (size_t)(newline - text) : 0;

    memset(&stage, 0, sizeof(stage));
    stage.at = text;
    stage.end = text + size;
    stage.socket = -1;
    stage.now_us = 1000000;
    if (first > 0 && memchr("NGEK", text[0], 4))
        stage.at = newline + 1;
    else
        first = 0;
    stage.holds_releases = first && memchr(text, 'E', first);
    stage.keeps = first && memchr(text, 'K', first);
    stage.page_fd = page_anew();
    if (first && memchr(text, 'G', first))
        connect_client();
    else
        make_client(!(first && memchr(text, 'N', first)));
}

static void play(void)
{
    const char *text;
    size_t length;

    while (stage.client && next_step(&text, &length)) {
        if (length > 1 && text[0] == 'C') {
            do_call(text[1],
                    length > 2 && text[2] >= '0' && text[2] <= '9' ? (unsigned)(text[2] - '0') : 0);
            hear();
        } else {
            daemon_step(text, length);
        }
    }
}

static void end(void)
{
    if (stage.client) {
        (void)gpubuf_dispatch(stage.client);
        hear();
        /* Half of the objects are released after their client has ended. */
        for (int i = 0; i < OBJECTS; i += 2) {
            gpubuf_release(stage.objects[i]);
            stage.objects[i] = NULL;
        }
        gpubuf_disconnect(stage.client); /* what it delivers has their places */
        for (int i = 0; i < OBJECTS; i++)
            gpubuf_release(stage.objects[i]);
    }
    DEMAND(stage.callbacks_due == 0);
    while (take_connection()) /* connections left over are not for the next program */
        ;
    hang_up();
    drop_fds();
    gb_frame_end(&stage.in);
}

/* Which of the first 100 descriptors are open: a leak takes one of those. */
static void note_fds(struct pollfd fds[100])
{
    for (int i = 0; i < 100; i++)
        fds[i] = (struct pollfd){.fd = i};
    __real_poll(fds, 100, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pollfd before[100], after[100];

    begin_once();
    note_fds(before);
    begin((const char *)data, size);
    play();
    end();
    note_fds(after);
    for (int i = 0; i < 100; i++)
        DEMAND((before[i].revents & POLLNVAL) == (after[i].revents & POLLNVAL));
    return 0;
}
