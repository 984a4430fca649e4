/* Streams on a GPU: frames that are announced before they are complete, and given back likewise. */
#include "gpu.h"

enum { BYTES = 65536, SLOTS = 6 };

static int gate; /* of the producer's stream of work */

static struct gpubuf_stream *write_frames(struct gpubuf_client *client)
{
    const struct gpubuf_stream_options options = {
        .size = sizeof(options), .slots = SLOTS, .wait_ms = 60000, .device = "cuda:0"};
    const uint64_t shape[] = {BYTES};
    struct gpubuf_stream *frames = NULL;
    WORKS(client, gpubuf_stream_create(client, "gpu0", "uint8", 1, shape, &options, &frames));
    return frames;
}

static struct gpubuf_stream *read_frames(struct gpubuf_client *client, bool ahead, unsigned hold)
{
    const struct gpubuf_stream_options options = {
        .size = sizeof(options), .wait_ms = 60000, .ahead = ahead, .hold = hold};
    struct gpubuf_stream *frames = NULL;
    WORKS(client, gpubuf_stream_open(client, "gpu0", &options, &frames));
    return frames;
}

static uint64_t publish(struct gpubuf_client *client, struct gpubuf_stream *frames,
                        unsigned char value, CUstream work)
{
    struct gpubuf_frame frame;
    WORKS(client, gpubuf_stream_next(frames, 0, &frame));
    OK(kernel_fill((CUdeviceptr)(uintptr_t)frame.pointer, value, BYTES, work));
    WORKS(client, gpubuf_stream_publish(frames, &frame, work));
    return frame.number;
}

/* A frame that is complete, and one whose work is held up. */
static void produce(int socket)
{
    CLIENT *client = new_client();
    begin(0);
    struct gpubuf_stream *frames = write_frames(client);
    CUstream work = new_stream();
    publish(client, frames, 1, work);
    OK(cu->cuStreamSynchronize(work));
    step(socket);
    await(socket);
    OK(hold_stream(&gate, work));
    publish(client, frames, 2, work);
    GIVES(CUDA_ERROR_NOT_READY, cu->cuStreamQuery(work));
    step(socket);
    await(socket);
    let_go(&gate);
    gpubuf_stream_close(frames); /* waits for the work */
    OK(cu->cuStreamQuery(work));
}

/* Takes the frame that is complete, lets the other be published, and takes that ahead. */
static void take_both(struct gpubuf_client *client, struct gpubuf_stream *frames, int socket,
                      CUstream work, uint64_t *sum)
{
    struct gpubuf_frame frame;
    WORKS(client, gpubuf_stream_read(frames, 60000, &frame));
    WORKS(client, gpubuf_stream_done(frames, &frame, NULL));
    RETURNS(GPUBUF_E_INVALID, client, gpubuf_stream_done(frames, &frame, NULL));
    step(socket);
    WORKS(client, gpubuf_stream_read(frames, 60000, &frame));
    WORKS(client, gpubuf_stream_wait(frames, &frame, work));
    OK(kernel_sum((CUdeviceptr)(uintptr_t)frame.pointer, BYTES, sum, work));
    WORKS(client, gpubuf_stream_done(frames, &frame, work));
    GIVES(CUDA_ERROR_NOT_READY, cu->cuStreamQuery(work));
}

static void consume_ahead(int socket)
{
    CLIENT *client = new_client();
    begin(0);
    struct gpubuf_stream *frames = read_frames(client, true, 2);
    CUstream work = new_stream();
    struct gpubuf_frame frame;
    uint64_t sum = 0;
    take_both(client, frames, socket, work, &sum);
    step(socket);
    OK(cu->cuStreamSynchronize(work));
    CHECK(sum == 2 * BYTES);
    RETURNS(GPUBUF_E_UNAVAILABLE, client, gpubuf_stream_read(frames, 60000, &frame));
    gpubuf_stream_close(frames);
}

/* The consumer's work begins behind the producer's, and no call waits for either. */
GPU_TEST(test_ahead)
{
    gate = 0;
    struct child producer = start_gpu(produce);
    await(producer.socket);
    struct child consumer = start_gpu(consume_ahead);
    await(consumer.socket);
    step(producer.socket);
    await(producer.socket);
    await(consumer.socket); /* all is queued */
    step(producer.socket);
    ends_well(consumer);
    ends_well(producer);
}

static void consume(int socket)
{
    CLIENT *client = new_client();
    begin(0);
    struct gpubuf_stream *frames = read_frames(client, false, 1);
    struct gpubuf_frame frame;
    WORKS(client, gpubuf_stream_read(frames, 60000, &frame));
    uint64_t first = frame.number, sum = 0;
    WORKS(client, gpubuf_stream_done(frames, &frame, NULL));
    step(socket);
    await(socket);
    RETURNS(GPUBUF_E_AGAIN, client, gpubuf_stream_read(frames, 0, &frame));
    RETURNS(GPUBUF_E_TIMEOUT, client, gpubuf_stream_read(frames, 5, &frame));
    step(socket);
    WORKS(client, gpubuf_stream_read(frames, 60000, &frame));
    CHECK(frame.number == first + 1 && frame.missed == 0);
    OK(kernel_sum((CUdeviceptr)(uintptr_t)frame.pointer, BYTES, &sum, NULL));
    WORKS(client, gpubuf_stream_wait(frames, &frame, NULL));
    WORKS(client, gpubuf_stream_done(frames, &frame, NULL));
    gpubuf_stream_close(frames);
    CHECK(sum == 2 * BYTES);
}

/* Other readers are given a frame once it is complete. */
GPU_TEST(test_complete)
{
    gate = 0;
    struct child producer = start_gpu(produce);
    await(producer.socket);
    struct child consumer = start_gpu(consume);
    await(consumer.socket);
    step(producer.socket);
    await(producer.socket);
    step(consumer.socket);
    await(consumer.socket);
    step(producer.socket);
    ends_well(consumer);
    ends_well(producer);
}

/* A writer that is killed before its work is done. */
static void outlive_ahead(int socket)
{
    CLIENT *client = new_client();
    begin(0);
    struct gpubuf_stream *frames = read_frames(client, true, 2);
    CUstream work = new_stream();
    struct gpubuf_frame frame;
    uint64_t sum = 0;
    take_both(client, frames, socket, work, &sum);
    step(socket);
    OK(cu->cuStreamSynchronize(work)); /* it does not wait for ever */
    RETURNS(GPUBUF_E_CANCELED, client, gpubuf_stream_read(frames, 60000, &frame));
    RETURNS(GPUBUF_E_UNAVAILABLE, client, gpubuf_stream_read(frames, 60000, &frame));
    gpubuf_stream_close(frames);
}

static void outlive(int socket)
{
    CLIENT *client = new_client();
    begin(0);
    struct gpubuf_stream *frames = read_frames(client, false, 1);
    struct gpubuf_frame frame;
    WORKS(client, gpubuf_stream_read(frames, 60000, &frame));
    WORKS(client, gpubuf_stream_done(frames, &frame, NULL));
    step(socket);
    step(socket);
    RETURNS(GPUBUF_E_UNAVAILABLE, client, gpubuf_stream_read(frames, 60000, &frame));
    gpubuf_stream_close(frames);
}

static void kill_before_complete(void (*reader)(int socket))
{
    gate = 0;
    struct child producer = start_gpu(produce);
    await(producer.socket);
    struct child consumer = start_gpu(reader);
    await(consumer.socket);
    step(producer.socket);
    await(producer.socket);
    await(consumer.socket);
    kill_child(producer);
    ends_well(consumer);
}

GPU_TEST(test_killed_writer_of_one_ahead)
{
    kill_before_complete(outlive_ahead);
}

GPU_TEST(test_killed_writer)
{
    kill_before_complete(outlive);
}

static void *open_gate(void *arg)
{
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    let_go(&gate);
    return NULL;
}

/* A slot is not written anew before the work on it has run: the writer's, and a reader's. */
GPU_TEST_IN_CHILD(test_slots_behind_work)
{
    CLIENT *client = new_client(), *other = new_client();
    begin(0);
    struct gpubuf_stream *frames = write_frames(client), *reader = read_frames(other, true, 2);
    CUstream work = new_stream(), reading = new_stream();
    struct gpubuf_frame frame;
    int reads = 0;
    pthread_t thread;
    gate = 0;
    publish(client, frames, 1, work);
    WORKS(other, gpubuf_stream_read(reader, 60000, &frame));
    OK(hold_stream(&reads, reading));
    WORKS(other, gpubuf_stream_done(reader, &frame, reading));
    unsigned held = frame.slot;
    OK(hold_stream(&gate, work));
    for (unsigned i = 0; i < SLOTS - 1; i++) {
        WORKS(client, gpubuf_stream_next(frames, 0, &frame));
        CHECK(frame.slot != held);
        WORKS(client, gpubuf_stream_publish(frames, &frame, work));
    }
    CHECK(pthread_create(&thread, NULL, open_gate, NULL) == 0);
    WORKS(client, gpubuf_stream_next(frames, 0, &frame)); /* when the gate is open */
    CHECK(__atomic_load_n(&gate, __ATOMIC_ACQUIRE) && frame.slot != held);
    pthread_join(thread, NULL);
    let_go(&reads);
    OK(cu->cuStreamSynchronize(reading));
    WORKS(client, gpubuf_stream_publish(frames, &frame, work));
    OK(cu->cuStreamSynchronize(work));
    bool again = false;
    for (unsigned i = 0; i < SLOTS; i++) {
        WORKS(client, gpubuf_stream_next(frames, 0, &frame));
        again = again || frame.slot == held;
        WORKS(client, gpubuf_stream_publish(frames, &frame, work));
    }
    CHECK(again);
    gpubuf_stream_close(reader);
    gpubuf_stream_close(frames);
}

/* A driver that cannot do any of it: calls wait for the work. */
static void without(int socket)
{
    CLIENT *client = new_client(), *other = new_client();
    begin(0);
    struct gpubuf_stream *frames = write_frames(client), *reader = read_frames(other, true, 1);
    CUstream work = new_stream();
    struct gpubuf_frame frame;
    uint64_t sum = 0;
    for (unsigned char i = 1; i < 4; i++) {
        pthread_t thread;
        gate = 0;
        OK(hold_stream(&gate, work));
        CHECK(pthread_create(&thread, NULL, open_gate, NULL) == 0);
        publish(client, frames, i, work);
        OK(cu->cuStreamQuery(work));
        pthread_join(thread, NULL);
        WORKS(other, gpubuf_stream_read(reader, 0, &frame));
        WORKS(other, gpubuf_stream_wait(reader, &frame, work));
        OK(kernel_sum((CUdeviceptr)(uintptr_t)frame.pointer, BYTES, &sum, work));
        WORKS(other, gpubuf_stream_done(reader, &frame, work));
        CHECK(sum == i * (uint64_t)BYTES);
    }
    gpubuf_stream_close(reader);
    gpubuf_stream_close(frames);
}

GPU_TEST(test_without_words)
{
    setenv("FAKECUDA_FAIL", "cuStreamWriteValue32:*:801,cuStreamWaitValue32:*:801", 1);
    run_gpu(without);
    unsetenv("FAKECUDA_FAIL");
}

RUN_GPU_TESTS
