/*
 * Requests that do not end in one turn, inside a server in this process: the worker is held up at
 * will, so that a test chooses what happens between two parts of a request.
 */
#include <semaphore.h>

#define DEMAND(condition) assert_true(condition)
#include "tests/cases.h"

#include "inside.h"

#define COLUMNS 1000
#define REQUEST(id, method, params)                                                                \
    "{\"jsonrpc\":\"2.0\",\"id\":" #id ",\"method\":\"" method "\",\"params\":{" params "}}\n"

static struct inside inside;
static struct peer peer, other;
static struct gb_writer line;

/* ---- the worker ---- */

static unsigned submitted; /* jobs that were given to a worker */

void __real_gb_mover_submit(struct gb_mover *mover, struct gb_job *job);
void __wrap_gb_mover_submit(struct gb_mover *mover, struct gb_job *job);

void __wrap_gb_mover_submit(struct gb_mover *mover, struct gb_job *job)
{
    submitted += mover != NULL;
    __real_gb_mover_submit(mover, job);
}

/* A job that ends when it may. */
struct gate {
    struct gb_job job;
    sem_t may_end;
    bool ended;
};

static void wait_at_gate(struct gb_job *job)
{
    struct gate *gate = GB_CONTAINER(job, struct gate, job);

    while (sem_wait(&gate->may_end) < 0)
        ;
}

static void gate_ended(struct gb_job *job)
{
    GB_CONTAINER(job, struct gate, job)->ended = true;
}

/* The worker's jobs wait for the gate from now on. */
static void close_gate(struct gate *gate)
{
    *gate = (struct gate){.job = {.work = wait_at_gate, .done = gate_ended}};
    assert_int_equal(sem_init(&gate->may_end, 0, 0), 0);
    gb_mover_submit(inside.server.worker, &gate->job);
}

/* It opens, and the worker is done with all that stood before it. */
static void open_gate(struct gate *gate)
{
    sem_post(&gate->may_end);
    while (!gate->ended)
        uv_run(&inside.loop, UV_RUN_ONCE);
    sem_destroy(&gate->may_end);
}

/* Until the worker has done what it was given so far. */
static void finish(void)
{
    struct gate gate;

    close_gate(&gate);
    open_gate(&gate);
}

/* ---- the world ---- */

static void begin(const char *capacity)
{
    const char *const options[] = {"--device", capacity, NULL};

    gb_writer_init(&line, 0);
    inside_make(&inside, options);
    inside.threaded = true;
    inside_listen(&inside);
    assert_true(peer_connect(&inside, &peer));
    assert_true(peer_connect(&inside, &other));
}

static void end(void)
{
    peer_close(&peer);
    peer_close(&other);
    for (int i = 0; i < 4; i++) {
        inside_turn(&inside);
        finish();
    }
    inside_empty(&inside);
    inside_end(&inside);
    gb_writer_end(&line);
}

static int tear_down(void **state)
{
    end();
    return 0;
}

static char *await(struct peer *of)
{
    char *answer = peer_line(of);

    for (int turns = 0; !answer; turns++) {
        assert_true(turns < 100);
        inside_turn(&inside);
        finish();
        answer = peer_line(of);
    }
    return answer;
}

static void expect(struct peer *of, const char *part)
{
    char *answer = await(of);

    if (!strstr(answer, part))
        fail_msg("expected %s, found %.300s", part, answer);
    free(answer);
}

static void send_line(struct peer *of, const int *fds, unsigned count)
{
    for (size_t sent = 0; sent < line.length;) {
        sent += peer_send_bytes(of, line.data + sent, line.length - sent, fds, sent ? 0 : count);
        inside_turn(&inside);
    }
}

/* Until the worker has been given the message, with or without others before it. */
static void await_task(struct peer *of)
{
    while (peer_session(&inside, of)->input != GB_INPUT_HELD)
        inside_turn(&inside);
}

/* Until the message is read, and the request has its memory: the layout is the worker's again. */
static void await_memory(void)
{
    while (inside.server.devices[0]->used == 0)
        uv_run(&inside.loop, UV_RUN_ONCE);
}

static void write_columns(const char *column)
{
    gb_write_text(&line, "\"layout\":{\"kind\":\"table\",\"length\":1,\"columns\":[");
    for (int i = 0; i < COLUMNS; i++)
        gb_write_format(&line, "%s{\"name\":\"c%d\",\"dtype\":\"int8\",\"length\":1,%s}",
                        i ? "," : "", i, column);
    gb_write_text(&line, "]}");
}

static void send_create(struct peer *of, int id, const char *name, const char *more)
{
    gb_writer_reset(&line);
    gb_write_format(&line,
                    "{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"create\",\"params\":{\"name\":"
                    "\"%s\",%s",
                    id, name, more);
    write_columns("\"mask\":{}");
    gb_write_text(&line, "}}\n");
    assert_true(line.length > GB_TASK_BYTES);
    send_line(of, NULL, 0);
}

static void make(struct peer *of, const char *name)
{
    char *answer, seal[160];

    send_create(of, 1, name, "\"replace\":true,");
    answer = await(of);
    assert_non_null(strstr(answer, "\"lease\":"));
    snprintf(seal, sizeof(seal), REQUEST(2, "seal", "\"lease\":%d,\"release\":true"),
             atoi(strstr(answer, "\"lease\":") + 8));
    free(answer);
    peer_send(of, seal);
    expect(of, "version");
}

/* ---- the tests ---- */

/* Later requests of its session wait for it; those of others do not. */
/* RELIABILITY.md: Hostile clients 12 */
TEST_WITH(test_order, NULL, tear_down)
{
    struct gate gate;
    char *early;

    begin("host:64M");
    close_gate(&gate);
    send_create(&peer, 1, "a", "");
    peer_send(&peer, REQUEST(2, "stats", ""));
    peer_send(&other, REQUEST(3, "stats", ""));
    inside_turn(&inside);
    early = peer_line(&peer);
    assert_null(early);
    early = peer_line(&other);
    assert_non_null(early);
    assert_non_null(strstr(early, "\"id\":3"));
    free(early);
    inside_check(&inside);
    open_gate(&gate);
    expect(&peer, "\"id\":1");
    expect(&peer, "\"id\":2");
}

/* At either part, and with what it had in hand by then. */
/* RELIABILITY.md: Hostile clients 12 */
TEST(test_ends_meanwhile)
{
    for (int second = 0; second < 2; second++) {
        struct gate first, later;

        begin("host:64M");
        close_gate(&first);
        send_create(&peer, 1, "a", "");
        await_task(&peer);
        close_gate(&later);
        if (second) {
            open_gate(&first);
            await_memory();
            inside_check(&inside);
        }
        peer_close(&peer);
        for (int i = 0; i < 3; i++)
            inside_turn(&inside);
        /* Draining, it may still finish; a session that is thrown out may not. */
        gb_session_end(peer_session(&inside, &(struct peer){.id = 1}), "test");
        assert_int_equal(inside.server.devices[0]->used, 0);
        inside_check(&inside);
        if (!second)
            open_gate(&first);
        open_gate(&later);
        end();
    }
}

/* The source of an alias is replaced while its layout is read: the alias is of the new one. */
/* RELIABILITY.md: Hostile clients 12 */
TEST_WITH(test_changed_meanwhile, NULL, tear_down)
{
    struct gate gate;
    char *answer;

    begin("host:64M");
    make(&peer, "a");
    close_gate(&gate);
    peer_send(&peer, REQUEST(5, "alias", "\"name\":\"b\",\"of\":\"a\",\"columns\":[\"c7\"]"));
    inside_turn(&inside);
    inside_check(&inside);
    peer_send(&other, REQUEST(6, "create",
                              "\"name\":\"a\",\"replace\":true,\"layout\":{\"kind\":\"table\","
                              "\"length\":3,\"columns\":[{\"name\":\"c7\",\"dtype\":\"int64\","
                              "\"length\":3}]}"));
    peer_send(&other, REQUEST(7, "seal", "\"lease\":2"));
    inside_turn(&inside);
    answer = peer_line(&other);
    assert_non_null(answer);
    free(answer);
    expect(&other, "\"version\":2");
    open_gate(&gate);
    expect(&peer, "\"version\":3");
    peer_send(&other, REQUEST(8, "stat", "\"name\":\"b\""));
    expect(&other, "int64");
}

/* A name that is taken while the layout is written is not taken twice. */
TEST_WITH(test_name_taken_meanwhile, NULL, tear_down)
{
    struct gate first, later;
    int fd = sealed_memfd(4096, F_SEAL_SHRINK);

    begin("host:64M");
    close_gate(&first);
    gb_writer_reset(&line);
    gb_write_text(&line, "{\"jsonrpc\":\"2.0\",\"id\":1,\"fds\":1,\"method\":\"register\","
                         "\"params\":{\"name\":\"a\",\"handles\":[{\"kind\":\"memfd\",\"fd\":0,"
                         "\"bytes\":4096,\"device\":\"host\"}],");
    write_columns("\"data\":{\"handle\":0,\"offset\":0,\"bytes\":1}");
    gb_write_text(&line, "}}\n");
    send_line(&peer, &fd, 1);
    await_task(&peer);
    close_gate(&later);
    open_gate(&first);
    await_memory();
    inside_check(&inside);
    peer_send(&other,
              REQUEST(6, "create", "\"name\":\"a\",\"layout\":{\"kind\":\"bytes\",\"bytes\":1}"));
    peer_send(&other, REQUEST(7, "seal", "\"lease\":1"));
    inside_turn(&inside);
    open_gate(&later);
    expect(&peer, "\"kind\":\"exists\",\"name\":\"a\"");
    close(fd);
}

/* It waits for room like any other, and what was read is not read again. */
TEST_WITH(test_waits_for_room, NULL, tear_down)
{
    char *answer;

    begin("host:4M");
    peer_send(&other,
              REQUEST(1, "create",
                      "\"name\":\"full\",\"layout\":{\"kind\":\"bytes\",\"bytes\":4194304}"));
    expect(&other, "\"lease\":1");
    send_create(&peer, 1, "a", "\"wait_ms\":60000,");
    finish();
    inside_turn(&inside);
    answer = peer_line(&peer);
    assert_null(answer);
    assert_int_equal(peer_session(&inside, &peer)->wait_count, 1);
    peer_send(&peer, REQUEST(2, "stats", "")); /* nothing is held for it */
    expect(&peer, "\"id\":2");
    peer_close(&other); /* what it has and maps goes with it */
    expect(&peer, "\"id\":1");
}

/* Counts for a wide table are looked up by the worker; one that is wrong leaves the object as it
   was. */
TEST_WITH(test_null_counts, NULL, tear_down)
{
    struct gate gate;

    begin("host:64M");
    send_create(&peer, 1, "a", "");
    expect(&peer, "\"lease\":1");
    peer_send(&peer, REQUEST(2, "seal", "\"lease\":1,\"null_counts\":{\"c1\":1,\"none\":1}"));
    expect(&peer, "params.null_counts.none: there is no such column");
    close_gate(&gate);
    peer_send(&peer, REQUEST(3, "seal", "\"lease\":1,\"null_counts\":{\"c2\":1}"));
    inside_turn(&inside);
    open_gate(&gate);
    expect(&peer, "\"version\":1");
    peer_send(&peer, REQUEST(4, "stat", "\"name\":\"a\""));
    expect(&peer, "\"name\":\"c2\",\"dtype\":\"int8\",\"length\":1,\"null_count\":1");
}

/* The session of a seal is thrown out while the worker has the layout. */
TEST_WITH(test_seal_ends_meanwhile, NULL, tear_down)
{
    struct gate gate;

    begin("host:64M");
    send_create(&peer, 1, "a", "");
    expect(&peer, "\"lease\":1");
    close_gate(&gate);
    peer_send(&peer, REQUEST(3, "seal", "\"lease\":1,\"null_counts\":{\"c2\":1}"));
    inside_turn(&inside);
    gb_session_end(peer_session(&inside, &peer), "test");
    open_gate(&gate);
}

/* `leases` goes on over turns, in which what it stands on ends. */
TEST_WITH(test_leases_meanwhile, NULL, tear_down)
{
    char *answer;

    begin("host:64M");
    make(&peer, "a");
    for (int i = 0; i < 200; i++) {
        peer_send(&peer, REQUEST(1, "open", "\"name\":\"a\""));
        answer = await(&peer);
        free(answer);
    }
    inside.server.turns.slice_ns = 0; /* a few leases a turn */
    peer_send(&other, REQUEST(9, "leases", ""));
    for (int i = 0; i < 4; i++)
        inside_turn(&inside);
    assert_int_equal(peer_session(&inside, &other)->input, GB_INPUT_HELD);
    peer_close(&peer);
    for (int i = 0; i < 200 && peer_session(&inside, &peer); i++)
        inside_turn(&inside);
    expect(&other, "\"mapped\":[");
}

/* A short request needs no worker, also if it goes on over turns: the loop shares locks with it. */
TEST(test_worker_has_large_ones)
{
    begin("host:64M");
    make(&peer, "a");
    finish();
    unsigned before = submitted;
    peer_send(&other, REQUEST(9, "leases", ""));
    for (int i = 0; i < 8; i++)
        inside_turn(&inside);
    assert_int_equal(submitted, before);
    expect(&other, "\"mapped\":[");
    send_create(&other, 3, "b", "");
    expect(&other, "\"lease\"");
    assert_true(submitted > before);
    end();
}

RUN_TESTS(NULL, NULL)
