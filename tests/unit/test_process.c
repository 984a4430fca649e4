/* Whether a process still runs: it has ended if that is known, and never else. */
#include "tests/cases.h"

#include "daemon/base/process.h"

static pid_t fork_pausing(void)
{
    pid_t pid = fork();

    if (pid == 0)
        for (;;)
            pause();
    assert_true(pid > 0);
    return pid;
}

static void end(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static uint64_t started(pid_t pid)
{
    uint64_t at = 0;

    assert_int_equal(gb_process_started(pid, &at), 0);
    return at;
}

static void assert_ended(pid_t pid, uint64_t at)
{
    errno = 0;
    assert_int_equal(gb_process_find(pid, at), -1);
    assert_int_equal(errno, ESRCH);
}

TEST(test_running_and_ended)
{
    pid_t pid = fork_pausing();
    uint64_t at = started(pid);
    int fd = gb_process_find(pid, at);
    siginfo_t info;

    assert_true(fd >= 0 && !gb_process_has_exited(fd));
    assert_ended(pid, at + 1); /* the pid is another's */
    close(fd);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    fd = gb_process_find(pid, at); /* its parent has not asked for it yet */
    assert_true(fd >= 0 && gb_process_has_exited(fd));
    close(fd);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_ended(pid, at);
}

TEST(test_without_descriptors)
{
    struct rlimit before, none = {.rlim_cur = 0};
    pid_t pid = fork_pausing();
    uint64_t at = started(pid), found;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none.rlim_max = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_int_equal(gb_process_find(pid, at), -1);
    assert_int_equal(errno, EMFILE);
    assert_int_equal(gb_process_started(pid, &found), -1);
    assert_int_equal(errno, EMFILE);
    end(pid);
    assert_ended(pid, at);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

/* The number of a process that has ended is that of its group while others are in it: the kernel
   then has other words for it. */
TEST(test_leader_of_a_group)
{
    int pipes[2];
    pid_t leader, member = 0;
    uint64_t at;

    assert_int_equal(pipe(pipes), 0);
    leader = fork();
    if (leader == 0) {
        setpgid(0, 0);
        member = fork_pausing();
        if (write(pipes[1], &member, sizeof(member)) != sizeof(member))
            _exit(1);
        for (;;)
            pause();
    }
    assert_int_equal(read(pipes[0], &member, sizeof(member)), sizeof(member));
    at = started(leader);
    end(leader);
    assert_int_equal(getpgid(member), leader);
    assert_ended(leader, at);
    assert_int_equal(kill(member, SIGKILL), 0);
    close(pipes[0]);
    close(pipes[1]);
}

static void *tell_id(void *pipe)
{
    pid_t id = gettid();

    assert_int_equal(write(*(int *)pipe, &id, sizeof(id)), sizeof(id));
    for (;;)
        pause();
    return NULL;
}

/* … or it is a thread's. */
TEST(test_thread)
{
    pthread_t thread;
    int pipes[2];
    pid_t id;

    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(pthread_create(&thread, NULL, tell_id, &pipes[1]), 0);
    assert_int_equal(read(pipes[0], &id, sizeof(id)), sizeof(id));
    assert_ended(id, started(getpid()) - 1);
    pthread_cancel(thread);
    pthread_join(thread, NULL);
    close(pipes[0]);
    close(pipes[1]);
}

RUN_TESTS(NULL, NULL)
