/* The host tier's memory: pages are there before they are pinned, and not far ahead of use. */
#include "tests/cases.h"

#include "daemon/memory/pinned.c"

/* Resident bytes of a stretch. */
static uint64_t resident(const struct gb_pinned *pinned, uint64_t at, uint64_t bytes)
{
    unsigned char *there = test_malloc(bytes / 4096);
    uint64_t count = 0;

    assert_int_equal(mincore(pinned->base + at, bytes, there), 0);
    for (uint64_t i = 0; i < bytes / 4096; i++)
        count += there[i] & 1;
    test_free(there);
    return count * 4096;
}

static unsigned pins;
static const struct gb_pinned *pinning;

static int pin(struct gb_device *device, void *memory, uint64_t bytes, struct gb_error *error)
{
    pins++;
    assert_int_equal(resident(pinning, (uint64_t)((char *)memory - pinning->base), bytes), bytes);
    return 0;
}

static void unpin(struct gb_device *device, void *memory)
{
    pins--;
}

static const struct gb_device_ops ops = {.pin = pin, .unpin = unpin};

TEST(test_pages_are_made_before_they_are_pinned)
{
    struct gb_device device = {.ops = &ops};
    struct gb_pinned *pinned;
    struct gb_error error;
    uint64_t all = 40 * CHUNK + 3 * PART + 4096;

    assert_int_equal(gb_pinned_new(all, &pinned, &error), 0);
    pinning = pinned;
    uv_mutex_lock(&pinned->lock);
    pinned->stop = true; /* the threads make nothing: whoever asks does */
    uv_cond_broadcast(&pinned->wake);
    uv_mutex_unlock(&pinned->lock);
    assert_int_equal(gb_pinned_span(pinned, &device, CHUNK + 10, 2 * CHUNK), CHUNK - 10);
    assert_int_equal(gb_pinned_span(pinned, &device, CHUNK, 100), 100);
    assert_int_equal(gb_pinned_span(pinned, &device, 40 * CHUNK, CHUNK), CHUNK);
    assert_int_equal(pins, 2);
    assert_int_equal(resident(pinned, 40 * CHUNK, 3 * PART + 4096), 3 * PART + 4096);
    gb_pinned_free(pinned);
    assert_int_equal(pins, 0);
}

TEST(test_pages_are_made_ahead_but_not_far)
{
    struct gb_device device = {.ops = &ops};
    struct gb_pinned *pinned;
    struct gb_error error;

    assert_int_equal(gb_pinned_new(52 * CHUNK, &pinned, &error), 0);
    pinning = pinned;
    (void)gb_pinned_span(pinned, &device, 50 * CHUNK, 1);
    assert_true(pinned->wanted == 52);
    (void)gb_pinned_span(pinned, &device, 3 * CHUNK, 1); /* back: what is between stays as it is */
    uv_mutex_lock(&pinned->lock);
    assert_true(pinned->wanted == 3 + AHEAD);
    while (pinned->next < 5) { /* without anybody's asking */
        uv_mutex_unlock(&pinned->lock);
        sched_yield();
        uv_mutex_lock(&pinned->lock);
    }
    pinned->stop = true;
    uv_mutex_unlock(&pinned->lock);
    assert_int_equal(resident(pinned, 30 * CHUNK, 10 * CHUNK), 0);
    gb_pinned_free(pinned);
}

RUN_TESTS(NULL, NULL)
