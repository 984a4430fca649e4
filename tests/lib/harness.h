/*
 * Shared by the library's tests: a real daemon on a socket of its own, a fake one that answers as a
 * test says, and counting of descriptors. All functions fail the running test through cmocka.
 */
#ifndef GB_TEST_HARNESS_H
#define GB_TEST_HARNESS_H

#include "tests/cases.h"

#include "gpubuf.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- a real daemon ---- */

/* Starts $GPUBUF_BUILD/bin/gpubufd (build/ if unset) with a private socket and 256 MiB, and waits
   until it answers. For cmocka's group fixtures. `arguments` is a NULL-terminated list of further
   options, or NULL. The first also starts the library's thread, so that its descriptors are there
   before a test counts them. The second does not, so that children can be forked that use the
   library: if the thread were in the sanitizer's allocator at the fork, that would stay locked in
   the child for ever. */
int start_daemon(void **state);
int start_daemon_with(const char *const *arguments);
/* Starts the library's thread if it does not run yet. */
void start_thread(void);
/* Stops it, and fails if it does not end well. */
int stop_daemon(void **state);
/* Ends the daemon by kill -9; start another on the same socket. */
void kill_daemon(void);
void start_daemon_again(void);
pid_t daemon_process(void);
/* Where it was started with --supervise: the daemon itself, or 0 while there is none; and kill -9
   of it, after which its supervisor starts another. */
pid_t daemon_child(void);
void crash_daemon(void);
const char *daemon_socket(void);

/* Connects a client to the daemon; the second with options. */
struct gpubuf_client *connect_client(void);
struct gpubuf_client *connect_with(const struct gpubuf_connect_options *options);
/* For several tests. It caches no leases: the page, which a client maps when it first opens
   something twice, would look like a leak of the test that does. */
struct gpubuf_client *connect_uncached(void);

/* A client that is disconnected at the end of its block: CLIENT *client = connect_client(); */
#define CLIENT __attribute__((cleanup(end_client))) struct gpubuf_client
void end_client(struct gpubuf_client **client);

/* ---- checks ---- */

/* Fails with the library's sentence if `r` is not what it should be. */
#define ok(client, call) check_result((client), (call), 0, __FILE__, __LINE__)
#define fails(client, code, call) check_result((client), (call), (code), __FILE__, __LINE__)
void check_result(const struct gpubuf_client *client, int r, int expected, const char *file,
                  int line);

/* Open descriptors of this process, and mappings of memfds. */
size_t count_fds(void);
size_t count_mappings(void);

/* A test after which as many descriptors and mappings must be there as before. */
#define COUNTED(test) TEST_WITH(test, count_before, count_after)
int count_before(void **state);
int count_after(void **state);

/* Waits, at most ten seconds, until `condition` holds. */
void wait_until(bool (*condition)(void *arg), void *arg);

/* The number of an object's leases; -1 if it is absent. */
int64_t leases_of(struct gpubuf_client *client, const char *name);
/* A member of `stats`, by its key's first occurrence in the text; fails if there is none. */
uint64_t stat_value(struct gpubuf_client *client, const char *key);

/* Dispatches, polling in between, until *flag. */
void dispatch_until(struct gpubuf_client *client, const bool *flag);

/* A callback for gpubuf_watch() that notes events; `arg` is a struct told. */
struct told {
    char text[4096];      /* of each event "kind:name ", where there is no object "kind:- " */
    bool synced, deleted; /* such an event was among them */
};
void note_told(struct gpubuf_client *client, const char *kind, const struct gpubuf_info *info,
               void *arg);

/* Publishes bytes that count up from `first`. */
void put_counting(struct gpubuf_client *client, const char *name, size_t bytes, unsigned first);

/* ---- a fake daemon ---- */

/*
 * Answers in a child process: `script` gets the listening socket's first connection after hello was
 * answered for it, or (greet false) before. It returns when it has no more to say; the connection
 * then closes.
 */
typedef void (*fake_script)(int fd, const void *arg);

struct fake {
    pid_t pid;
    char path[108];
    char directory[64];
};

void fake_start(struct fake *fake, bool greet, fake_script script, const void *arg);
void fake_stop(struct fake *fake);
struct gpubuf_client *fake_connect(const struct fake *fake);

/* For scripts, in the child. fake_read reads a line; false at the end. fake_send sends text with
   descriptors. */
bool fake_read(int fd, char *line, size_t size);
void fake_send(int fd, const char *text, const int *fds, unsigned count);
/* Sends a reply whose text has "ID" in place of the id of the request in `line`. */
void fake_reply(int fd, const char *line, const char *text, const int *fds, unsigned count);
/* A memfd of `bytes`, filled with `value`, with the seals given. */
int fake_memfd(size_t bytes, int value, int seals);

#endif
