#include "client/node/src/job.h"

#include <stdlib.h>

#include "client/node/src/values.h"

/* Takes the oldest job off; NULL: the thread is to end. With the lock. */
static struct gb_node_job *next_job(struct gb_jobs *jobs)
{
    jobs->idle++;
    while (!jobs->first && !jobs->ending)
        pthread_cond_wait(&jobs->changed, &jobs->lock);
    jobs->idle--;
    struct gb_node_job *job = jobs->ending ? NULL : jobs->first;
    if (job) {
        jobs->first = job->next;
        jobs->waiting--;
    }
    return job;
}

static void *work(void *data)
{
    struct gb_jobs *jobs = data;
    struct gb_node_job *job;

    pthread_mutex_lock(&jobs->lock);
    while ((job = next_job(jobs)) != NULL) {
        pthread_mutex_unlock(&jobs->lock);
        int status = job->run(job);
        struct gb_completion done = {
            .type = GB_DONE_JOB, .id = job->id, .status = status, .text = job->message, .job = job};
        job->message = NULL;
        gb_complete(job->addon, &done);
        pthread_mutex_lock(&jobs->lock);
    }
    pthread_mutex_unlock(&jobs->lock);
    return NULL;
}

/* Sees to a thread for one more job. With the lock. */
static bool have_thread(struct gb_jobs *jobs)
{
    if (jobs->idle > jobs->waiting)
        return true;
    pthread_t *threads = realloc(jobs->threads, (jobs->count + 1) * sizeof(*threads));
    if (!threads)
        return false;
    jobs->threads = threads;
    if (pthread_create(&threads[jobs->count], NULL, work, jobs) != 0)
        return false;
    jobs->count++;
    return true;
}

static bool hand_over(struct gb_jobs *jobs, struct gb_node_job *job)
{
    pthread_mutex_lock(&jobs->lock);
    bool good = !jobs->ending && have_thread(jobs);
    if (good) {
        struct gb_node_job **last = &jobs->first;
        while (*last)
            last = &(*last)->next;
        *last = job;
        jobs->waiting++;
        pthread_cond_signal(&jobs->changed);
    }
    pthread_mutex_unlock(&jobs->lock);
    return good;
}

napi_value gb_job_begin(struct gb_addon *addon, napi_value id, struct gb_node_job *job)
{
    napi_value undefined = NULL;

    job->addon = addon;
    if (!gb_read_number(addon->env, id, "the id", &job->id)) {
        gb_job_free(job);
        return NULL;
    }
    if (!gb_reserve(addon)) {
        gb_job_free(job);
        return gb_throw_memory(addon->env);
    }
    if (!hand_over(&addon->jobs, job)) {
        gb_unreserve(addon);
        gb_job_free(job);
        return gb_throw(addon->env, GPUBUF_E_SYSTEM, "there can be no more threads");
    }
    (void)napi_get_undefined(addon->env, &undefined);
    return undefined;
}

void gb_jobs_end(struct gb_addon *addon)
{
    struct gb_jobs *jobs = &addon->jobs;

    pthread_mutex_lock(&jobs->lock);
    jobs->ending = true;
    struct gb_node_job *dropped = jobs->first;
    jobs->first = NULL;
    pthread_cond_broadcast(&jobs->changed);
    pthread_mutex_unlock(&jobs->lock);
    for (size_t i = 0; i < jobs->count; i++)
        (void)pthread_join(jobs->threads[i], NULL);
    free(jobs->threads);
    while (dropped) {
        struct gb_node_job *next = dropped->next;
        gb_job_free(dropped);
        dropped = next;
    }
    (void)pthread_mutex_destroy(&jobs->lock);
    (void)pthread_cond_destroy(&jobs->changed);
}
