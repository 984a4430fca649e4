/*
 * Mutations of programs, whose steps are lines: steps are inserted, removed, moved, doubled, cut in
 * pieces and changed, and two programs are spliced. Include it in one file of a target, which
 * defines the two functions that are declared first.
 */
#ifndef GB_FUZZ_PROGRAM_H
#define GB_FUZZ_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "tests/unit/random.h"

#define PROGRAM_STEP_BYTES 4096

/* Writes a new step, or several, and returns how many bytes that are. */
static size_t make_step(char out[PROGRAM_STEP_BYTES], struct test_random *random);
/* The letter before a step that sends only a piece of its message; 0: it sends none. */
static uint8_t piece_of(uint8_t kind);

static unsigned count_steps(const uint8_t *data, size_t size)
{
    unsigned steps = 0;

    for (size_t i = 0; i < size; i++)
        steps += data[i] == '\n';
    return steps;
}

/* Where step `number` begins. */
static size_t step_at(const uint8_t *data, size_t size, size_t number)
{
    size_t at = 0;

    while (at < size && number > 0)
        number -= data[at++] == '\n';
    return at;
}

static size_t put_in(uint8_t *data, size_t size, size_t most, size_t from, size_t to,
                     const void *text, size_t length)
{
    if (size - (to - from) + length > most)
        return size;
    memmove(data + from + length, data + to, size - to);
    if (length > 0)
        memcpy(data + from, text, length);
    return size - (to - from) + length;
}

/* Changes a number, a name or a session somewhere in the step. */
static size_t change_values(uint8_t *data, size_t size, size_t from, size_t to,
                            struct test_random *random)
{
    for (size_t i = from; i < to; i++) {
        bool alone = i == from || i + 1 == to || data[i - 1] < '0' || data[i - 1] > '9' ||
                     data[i + 1] < '0' || data[i + 1] > '9';

        if (data[i] >= '0' && data[i] <= '9' && alone && test_random_below(random, 4) == 0)
            data[i] = (uint8_t)('0' + test_random_below(random, 10));
        if (data[i] >= 'p' && data[i] <= 's' && i > 0 && data[i - 1] == '"' &&
            test_random_below(random, 3) == 0)
            data[i] = (uint8_t)('p' + test_random_below(random, 4));
    }
    return size;
}

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most) __attribute__((weak));
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed)
{
    struct test_random random = {seed};
    unsigned steps = count_steps(data, size), what = test_random_below(&random, 16);
    size_t from = step_at(data, size, test_random_below(&random, steps + 1));
    size_t to = step_at(data + from, size - from, 1) + from, cut, length;
    char text[PROGRAM_STEP_BYTES];

    if (what == 0 && LLVMFuzzerMutate)
        return LLVMFuzzerMutate(data, size, most);
    if (what <= 2 && steps > 1)
        return put_in(data, size, most, from, to, NULL, 0);
    if (what == 3 && to - from <= sizeof(text)) { /* the step once more, there or elsewhere */
        memcpy(text, data + from, to - from);
        cut = test_random_below(&random, 2)
                  ? to
                  : step_at(data, size, test_random_below(&random, steps + 1));
        return put_in(data, size, most, cut, cut, text, to - from);
    }
    if (what == 4)
        return from < size && data[from] == '+' ? put_in(data, size, most, from, from + 1, NULL, 0)
                                                : put_in(data, size, most, from, from, "+", 1);
    if (what == 5 && to > from + 2 && piece_of(data[from])) { /* a message in two pieces */
        char middle[2] = {'\n', (char)data[from]};

        cut = from + 1 + test_random_below(&random, (unsigned)(to - from - 1));
        data[from] = piece_of(data[from]);
        return put_in(data, size, most, cut, cut, middle, 2);
    }
    if (what <= 8)
        return change_values(data, size, from, to, &random);
    length = make_step(text, &random);
    return put_in(data, size, most, from, from, text, length);
}

/* Joins the beginning of one program to the end of another. */
size_t LLVMFuzzerCustomCrossOver(const uint8_t *first, size_t first_size, const uint8_t *second,
                                 size_t second_size, uint8_t *out, size_t most, unsigned seed);
size_t LLVMFuzzerCustomCrossOver(const uint8_t *first, size_t first_size, const uint8_t *second,
                                 size_t second_size, uint8_t *out, size_t most, unsigned seed)
{
    struct test_random random = {seed};
    size_t head =
        step_at(first, first_size, test_random_below(&random, count_steps(first, first_size) + 1));
    size_t tail = step_at(second, second_size,
                          test_random_below(&random, count_steps(second, second_size) + 1));
    size_t rest = second_size - tail;

    if (head > most)
        head = step_at(first, most, count_steps(first, most));
    if (rest > most - head)
        rest = step_at(second + tail, most - head, count_steps(second + tail, most - head));
    memcpy(out, first, head);
    memcpy(out + head, second + tail, rest);
    return head + rest;
}

#endif
