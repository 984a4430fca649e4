/*
 * A stream is a queue and, from its first operation on, a thread that runs it in order. So what is
 * asked for asynchronously happens asynchronously, and a missing synchronisation shows.
 *
 * The NULL stream of a context orders itself as the driver's does: what is queued on it waits for
 * what the context's other blocking streams have been given, and they wait for it. That is done by
 * queueing a wait, always for something queued earlier, so no circle can arise.
 */
#include "fake.h"

#include <signal.h>
#include <stdlib.h>
#include <time.h>

/* Something was completed, or a stream has ended. */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
/* All streams, ending ones too; a stream's number is never used again. */
static struct fc_stream *all_streams;

static struct fc_stream *find_number(uint64_t number)
{
    for (struct fc_stream *stream = all_streams; stream; stream = stream->next)
        if (stream->number == number)
            return stream;
    return NULL;
}

static void wait_until(uint64_t number, uint64_t sequence)
{
    for (;;) {
        const struct fc_stream *stream = find_number(number);
        if (!stream || stream->completed >= sequence)
            return;
        pthread_cond_wait(&changed, &fc_lock);
    }
}

static CUresult run_wait(struct fc_operation *operation)
{
    FC_LOCKED;
    wait_until(operation->bytes, operation->sequence);
    return CUDA_SUCCESS;
}

/* ---- the thread ---- */

static void free_operation(struct fc_operation *operation)
{
    if (operation->owned)
        free(operation->data);
    fc_event_put(operation->event);
    free(operation);
}

static void free_stream(struct fc_stream *stream)
{
    for (struct fc_stream **link = &all_streams; *link; link = &(*link)->next) {
        if (*link != stream)
            continue;
        *link = stream->next;
        break;
    }
    if (stream->context->null_stream == stream)
        stream->context->null_stream = NULL;
    if (stream->context->thread_stream == stream)
        stream->context->thread_stream = NULL;
    pthread_cond_destroy(&stream->work);
    free(stream);
    pthread_cond_broadcast(&changed);
}

/* Work left in a failed context is dropped, but its events complete, so that nobody waits for them
   for ever. */
static void run_one(struct fc_stream *stream)
{
    struct fc_operation *operation = stream->first;
    struct fc_context *context = stream->context;
    stream->first = operation->next;
    if (!stream->first)
        stream->last = NULL;
    bool run = context->failed == CUDA_SUCCESS || operation->event;
    unsigned int delay = operation->event ? 0 : fc_settings.stream_delay;
    pthread_mutex_unlock(&fc_lock);
    if (delay) {
        struct timespec rest = {delay / 1000, (long)(delay % 1000) * 1000000};
        nanosleep(&rest, NULL);
    }
    CUresult result = run ? operation->run(operation) : CUDA_SUCCESS;
    pthread_mutex_lock(&fc_lock);
    if (result != CUDA_SUCCESS && context->failed == CUDA_SUCCESS)
        context->failed = result;
    free_operation(operation);
    stream->completed++;
    pthread_cond_broadcast(&changed);
}

static void *stream_thread(void *argument)
{
    struct fc_stream *stream = argument;
    FC_LOCKED;
    for (;;) {
        if (stream->first)
            run_one(stream);
        else if (stream->ending)
            break;
        else
            pthread_cond_wait(&stream->work, &fc_lock);
    }
    free_stream(stream);
    return NULL;
}

/* The thread blocks all signals: they are for the program's own threads. */
static bool start_thread(struct fc_stream *stream)
{
    sigset_t all, before;
    pthread_attr_t attributes;
    pthread_t thread;
    if (pthread_attr_init(&attributes))
        return false;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    stream->threaded = pthread_create(&thread, &attributes, stream_thread, stream) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return stream->threaded;
}

/* ---- queues ---- */

static struct fc_stream *make_stream(struct fc_context *context, unsigned int flags)
{
    static uint64_t last_number;
    struct fc_stream *stream = calloc(1, sizeof(*stream));
    if (!stream)
        return NULL;
    stream->context = context;
    stream->flags = flags;
    stream->number = ++last_number;
    pthread_cond_init(&stream->work, NULL);
    stream->next = all_streams;
    all_streams = stream;
    return stream;
}

static CUresult push(struct fc_stream *stream, const struct fc_operation *copy)
{
    struct fc_operation *operation = malloc(sizeof(*operation));
    if (!operation || (!stream->threaded && !start_thread(stream))) {
        free(operation);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *operation = *copy;
    operation->next = NULL;
    operation->stream = stream;
    if (stream->last)
        stream->last->next = operation;
    else
        stream->first = operation;
    stream->last = operation;
    stream->submitted++;
    pthread_cond_signal(&stream->work);
    return CUDA_SUCCESS;
}

static CUresult push_wait(struct fc_stream *stream, const struct fc_stream *other)
{
    if (other->completed == other->submitted)
        return CUDA_SUCCESS;
    struct fc_operation wait = {
        .run = run_wait, .bytes = other->number, .sequence = other->submitted};
    return push(stream, &wait);
}

static CUresult order_with_null(struct fc_stream *stream)
{
    struct fc_context *context = stream->context;
    if (stream->flags & CU_STREAM_NON_BLOCKING)
        return CUDA_SUCCESS;
    if (stream != context->null_stream)
        return context->null_stream ? push_wait(stream, context->null_stream) : CUDA_SUCCESS;
    CUresult result = CUDA_SUCCESS;
    for (struct fc_stream *at = all_streams; at && result == CUDA_SUCCESS; at = at->next)
        if (at != stream && at->context == context && !(at->flags & CU_STREAM_NON_BLOCKING))
            result = push_wait(stream, at);
    return result;
}

CUresult fc_stream_queue(struct fc_stream *stream, const struct fc_operation *copy)
{
    CUresult result = order_with_null(stream);
    if (result == CUDA_SUCCESS)
        result = push(stream, copy);
    if (result != CUDA_SUCCESS) {
        if (copy->owned)
            free(copy->data);
        fc_event_put(copy->event);
    }
    return result;
}

CUresult fc_stream_get(CUstream handle, struct fc_stream **out)
{
    struct fc_stream *stream = NULL;
    if (!handle || handle == GB_CU_STREAM_LEGACY || handle == GB_CU_STREAM_PER_THREAD) {
        struct fc_context *context;
        CUresult result = fc_context_current(&context);
        if (result != CUDA_SUCCESS)
            return result;
        /* One stream for all threads: this orders them more strictly than the real driver would. */
        struct fc_stream **slot =
            handle == GB_CU_STREAM_PER_THREAD ? &context->thread_stream : &context->null_stream;
        if (!*slot)
            *slot = make_stream(context, CU_STREAM_DEFAULT);
        if (!*slot)
            return CUDA_ERROR_OUT_OF_MEMORY;
        *out = *slot;
        return CUDA_SUCCESS;
    }
    for (stream = all_streams; stream && (CUstream)stream != handle; stream = stream->next)
        continue;
    if (!stream || stream->ending)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = fc_context_check(stream->context);
    if (result == CUDA_SUCCESS)
        *out = stream;
    return result;
}

CUresult fc_stream_drain(struct fc_stream *stream)
{
    struct fc_context *context = stream->context;
    wait_until(stream->number, stream->submitted);
    return fc_context_check(context);
}

static const struct fc_stream *find_behind(const struct fc_context *context)
{
    for (const struct fc_stream *stream = all_streams; stream; stream = stream->next)
        if (stream->context == context && stream->completed < stream->mark)
            return stream;
    return NULL;
}

CUresult fc_context_drain(struct fc_context *context)
{
    for (struct fc_stream *stream = all_streams; stream; stream = stream->next)
        if (stream->context == context)
            stream->mark = stream->submitted;
    const struct fc_stream *stream;
    while ((stream = find_behind(context)))
        wait_until(stream->number, stream->mark);
    return fc_context_check(context);
}

static void end_stream(struct fc_stream *stream)
{
    stream->ending = true;
    if (stream->threaded)
        pthread_cond_signal(&stream->work); /* the thread frees it when it is done */
    else
        free_stream(stream);
}

void fc_context_end_streams(struct fc_context *context)
{
    for (struct fc_stream *at = all_streams, *next; at; at = next) {
        next = at->next;
        if (at->context == context && !at->ending)
            end_stream(at);
    }
    for (struct fc_stream *at = all_streams; at;) {
        if (at->context != context) {
            at = at->next;
            continue;
        }
        pthread_cond_wait(&changed, &fc_lock);
        at = all_streams;
    }
}

/* ---- the driver's functions ---- */

CUresult cuStreamCreate(CUstream *handle, unsigned int flags)
{
    FC_ENTER(cuStreamCreate);
    FC_LOCKED;
    struct fc_context *context;
    CUresult result = fc_context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!handle || flags > CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    struct fc_stream *stream = make_stream(context, flags);
    if (!stream)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *handle = (CUstream)stream;
    return CUDA_SUCCESS;
}

CUresult cuStreamDestroy_v2(CUstream handle)
{
    FC_ENTER(cuStreamDestroy);
    FC_LOCKED;
    for (struct fc_stream *at = all_streams; at; at = at->next) {
        if ((CUstream)at != handle || at->ending || at == at->context->null_stream ||
            at == at->context->thread_stream)
            continue;
        end_stream(at);
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuStreamSynchronize(CUstream handle)
{
    FC_ENTER(cuStreamSynchronize);
    FC_LOCKED;
    struct fc_stream *stream;
    CUresult result = fc_stream_get(handle, &stream);
    return result == CUDA_SUCCESS ? fc_stream_drain(stream) : result;
}

CUresult cuStreamQuery(CUstream handle)
{
    FC_ENTER(cuStreamQuery);
    FC_LOCKED;
    struct fc_stream *stream;
    CUresult result = fc_stream_get(handle, &stream);
    if (result == CUDA_SUCCESS && stream->completed != stream->submitted)
        result = CUDA_ERROR_NOT_READY;
    return result;
}
