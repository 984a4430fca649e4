/* The mover: jobs in order, work on its own thread and endings on the loop's, and nothing lost. */
#include "tests/cases.h"

#include "daemon/memory/mover.h"

struct counted {
    struct gb_job job;
    unsigned number;
    unsigned again; /* how often its end submits it anew */
};

static struct {
    uv_loop_t loop;
    struct gb_mover *mover;
    uv_thread_t loop_thread;
    uv_sem_t gate;          /* what `wait_work` waits for */
    unsigned worked, ended; /* `worked` is the mover's until its end has run */
    bool on_loop;           /* work was done on the loop's thread */
} world;

static void work(struct gb_job *base)
{
    struct counted *job = GB_CONTAINER(base, struct counted, job);
    uv_thread_t self = uv_thread_self();

    world.on_loop = uv_thread_equal(&self, &world.loop_thread);
    if (job->number != world.worked++)
        abort();
}

static void wait_work(struct gb_job *base)
{
    uv_sem_wait(&world.gate);
    work(base);
}

static void submit(struct counted *job)
{
    gb_mover_submit(world.mover, &job->job);
}

static void done(struct gb_job *base)
{
    struct counted *job = GB_CONTAINER(base, struct counted, job);
    uv_thread_t self = uv_thread_self();

    assert_true(uv_thread_equal(&self, &world.loop_thread));
    assert_int_equal(job->number, world.ended);
    world.ended++;
    free(job);
}

/* A job's end may submit it again. */
static void done_again(struct gb_job *base)
{
    struct counted *job = GB_CONTAINER(base, struct counted, job);

    if (job->again == 0) {
        done(base);
        return;
    }
    job->again--;
    job->number = ++world.ended;
    gb_mover_submit(world.mover, &job->job);
}

static struct counted *job_new(unsigned number, void (*how)(struct gb_job *))
{
    struct counted *job = calloc(1, sizeof(*job));

    assert_non_null(job);
    job->job = (struct gb_job){.work = how, .done = done};
    job->number = number;
    return job;
}

static int begin(void **state)
{
    world.worked = world.ended = 0;
    world.loop_thread = uv_thread_self();
    if (uv_loop_init(&world.loop) < 0 || uv_sem_init(&world.gate, 0) < 0)
        return -1;
    return gb_mover_new(&world.loop, &world.mover);
}

static int end(void **state)
{
    gb_mover_end(world.mover);
    uv_run(&world.loop, UV_RUN_DEFAULT);
    uv_sem_destroy(&world.gate);
    return uv_loop_close(&world.loop);
}

static void run_until(unsigned ended)
{
    while (world.ended < ended)
        uv_run(&world.loop, UV_RUN_ONCE);
}

/* ---- the tests ---- */

TEST_WITH(test_in_order, begin, end)
{
    for (unsigned i = 0; i < 1000; i++)
        submit(job_new(i, work));
    run_until(1000);
    assert_int_equal(world.worked, 1000);
    assert_false(world.on_loop);
}

/* The loop goes on while the mover is stuck. */
TEST_WITH(test_does_not_block, begin, end)
{
    submit(job_new(0, wait_work));
    submit(job_new(1, work));
    for (int i = 0; i < 10; i++)
        uv_run(&world.loop, UV_RUN_NOWAIT);
    assert_int_equal(world.ended, 0);
    uv_sem_post(&world.gate);
    run_until(2);
}

static void go_on_work(struct gb_job *base)
{
    uv_sem_wait(&world.gate);
    gb_job_note_progress(base);
    uv_sem_wait(&world.gate);
    work(base);
}

/* A job that goes on is not stuck, however long it takes. */
TEST_WITH(test_goes_on, begin, end)
{
    uint64_t before;

    submit(job_new(0, go_on_work));
    while ((before = gb_mover_stuck_ms(world.mover)) < 50)
        uv_run(&world.loop, UV_RUN_NOWAIT);
    uv_sem_post(&world.gate);
    while (gb_mover_stuck_ms(world.mover) >= before)
        uv_run(&world.loop, UV_RUN_NOWAIT);
    uv_sem_post(&world.gate);
    run_until(1);
}

/* For how long it has not gone on, from outside. */
TEST_WITH(test_stuck, begin, end)
{
    assert_int_equal(gb_mover_stuck_ms(NULL), 0);
    assert_int_equal(gb_mover_stuck_ms(world.mover), 0);
    submit(job_new(0, wait_work));
    while (gb_mover_stuck_ms(world.mover) < 5)
        uv_run(&world.loop, UV_RUN_NOWAIT);
    uv_sem_post(&world.gate);
    run_until(1);
    while (gb_mover_stuck_ms(world.mover) > 0)
        uv_run(&world.loop, UV_RUN_NOWAIT);
}

/* Submitted jobs are done, and ended, before the mover ends. */
TEST_WITH(test_end_finishes, begin, end)
{
    submit(job_new(0, wait_work));
    for (unsigned i = 1; i < 50; i++)
        submit(job_new(i, work));
    uv_sem_post(&world.gate);
    gb_mover_end(world.mover);
    world.mover = NULL;
    assert_int_equal(world.ended, 50);
}

/* Also what an end brings, and what that brings. */
TEST_WITH(test_end_finishes_what_comes, begin, end)
{
    struct counted *job = job_new(0, wait_work);
    struct gb_mover *mover = world.mover;

    job->again = 5;
    job->job.done = done_again;
    gb_mover_submit(mover, &job->job);
    for (int i = 0; i < 6; i++)
        uv_sem_post(&world.gate);
    gb_mover_end(mover);
    world.mover = NULL;
    assert_int_equal(world.ended, 6);
}

/* Without one, jobs are done where they are submitted. */
TEST_WITH(test_none, begin, end)
{
    struct gb_mover *mover = world.mover;

    world.mover = NULL;
    for (unsigned i = 0; i < 3; i++) {
        submit(job_new(i, work));
        assert_int_equal(world.ended, i + 1);
        assert_true(world.on_loop);
    }
    gb_mover_end(NULL);
    world.mover = mover;
}

RUN_TESTS(NULL, NULL)
