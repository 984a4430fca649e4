/*
 * Mutations of the programs of fuzz_request.c: steps are put in, taken out, moved, doubled, cut in
 * pieces and changed, and two programs are spliced. Steps that are put in come from templates, so that
 * most of them are well-formed and many mean something in their place.
 */
#ifndef GB_FUZZ_REQUEST_MUTATOR_H
#define GB_FUZZ_REQUEST_MUTATOR_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/random.h"

#define CALL(method, params)                                                                       \
    "{\"jsonrpc\":\"2.0\",\"id\":#,\"method\":\"" method "\",\"params\":{" params "}}"
#define SAY(method, params) "%" CALL(method, params)
#define BYTES "\"layout\":{\"kind\":\"bytes\",\"bytes\":$}"
#define REGISTER(fds, handles)                                                                     \
    "%{\"jsonrpc\":\"2.0\",\"id\":#,\"fds\":" fds ",\"method\":\"register\",\"params\":{"          \
    "\"name\":\"@\",\"layout\":{\"kind\":\"array\",\"dtype\":\"int8\",\"shape\":[64],\"data\":{"   \
    "\"handle\":0,\"offset\":0,\"bytes\":64}},\"handles\":[" handles "],\"replace\":true,"         \
    "\"mode\":\"~\",\"wait_ms\":!}}"
#define HANDLE(i, device)                                                                          \
    "{\"kind\":\"memfd\",\"fd\":" i ",\"bytes\":65536,\"device\":\"" device "\"}"
#define OCTETS_32 "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
#define OCTETS_64 OCTETS_32 OCTETS_32 "=="
#define INSTANCE "00112233445566778899aabbccddeeff"

/* `#`: a small number, `@`: a name, `$`: a size, `!`: a time, `~`: a mode, `%`: a session, the same one
   throughout. */
static const char *const templates[] = {
    SAY("hello", "\"protocol\":1,\"client\":\"@\""),
    SAY("hello", "\"protocol\":1,\"resume\":{\"instance\":\"" INSTANCE "\",\"objects\":[{\"name\":"
                 "\"@\",\"version\":#},{\"name\":\"@\",\"version\":#}]}"),
    SAY("create", "\"name\":\"@\"," BYTES),
    SAY("create", "\"name\":\"@\"," BYTES ",\"replace\":true,\"wait_ms\":!,\"evict\":\"drop\""),
    SAY("create", "\"name\":\"@\"," BYTES ",\"wait_ms\":!,\"mode\":\"~\""),
    SAY("create", "\"name\":\"@\"," BYTES ",\"share\":\"ipc\""),
    SAY("create", "\"name\":\"@\"," BYTES ",\"mode\":\"~\",\"evict\":\"keep\",\"ttl_ms\":!"),
    SAY("create", "\"name\":\"@/@\",\"layout\":{\"kind\":\"table\",\"length\":4,\"columns\":[{"
                  "\"name\":\"@\",\"dtype\":\"int32\",\"length\":4,\"mask\":{}},{\"name\":"
                  "\"t\",\"dtype\":\"utf8\",\"length\":4,\"data\":{\"bytes\":$}}]},\"mode\":\"~\""),
    SAY("create", "\"name\":\"@\"," BYTES) "\n" SAY("seal", "\"lease\":#,\"release\":true"),
    SAY("seal", "\"lease\":#"),
    SAY("seal", "\"lease\":#,\"release\":true"),
    SAY("seal", "\"lease\":#,\"release\":true,\"null_counts\":{\"@\":#}"),
    SAY("seal", "\"lease\":#,\"ready\":\"" OCTETS_64 "\""),
    SAY("settle", "\"objects\":[{\"name\":\"@\",\"version\":#}]"),
    SAY("abort", "\"lease\":#"),
    SAY("open", "\"name\":\"@\""),
    SAY("open", "\"name\":\"@\",\"wait_ms\":!,\"segments\":\"all\""),
    SAY("open", "\"name\":\"@\",\"version\":#"),
    SAY("open", "\"names\":[\"@\",\"@\",\"@/@\"],\"wait_ms\":!"),
    SAY("release", "\"lease\":#"),
    SAY("release", "\"leases\":[#,#,#]"),
    "F%s\n" REGISTER("1", HANDLE("0", "host")),
    "F%s\n" REGISTER("1", HANDLE("0", "GPU-f0")),
    "F%ws\n" REGISTER("2", HANDLE("1", "host") "," HANDLE("0", "host")),
    "F%ws\n" REGISTER("2", HANDLE("1", "GPU-f0") "," HANDLE("0", "GPU-f0")),
    "%{\"jsonrpc\":\"2.0\",\"id\":#,\"method\":\"register\",\"params\":{\"name\":\"@\",\"layout\":{"
    "\"kind\":\"array\",\"dtype\":\"int8\",\"shape\":[64],\"data\":{\"handle\":0,\"offset\":0,"
    "\"bytes\":64}},\"handles\":[{\"kind\":\"cuda_ipc\",\"ipc\":\"" OCTETS_64 "\",\"bytes\":65536,"
    "\"device\":\"GPU-f0\"}]}}",
    SAY("alias", "\"name\":\"@\",\"of\":\"@\",\"slice\":{\"offset\":#,\"length\":#}"),
    SAY("alias", "\"name\":\"@\",\"of\":\"@/@\",\"columns\":[\"@\",\"t\"],\"replace\":true"),
    SAY("delete", "\"name\":\"@\""),
    SAY("delete", "\"names\":[\"@\",\"@\"]"),
    SAY("list", "\"prefix\":\"@\",\"limit\":#"),
    SAY("stat", "\"name\":\"@\""),
    SAY("pin", "\"name\":\"@\""),
    SAY("unpin", "\"name\":\"@\""),
    SAY("spill", "\"name\":\"@\""),
    SAY("spill", "\"name\":\"@\",\"tier\":\"host\""),
    SAY("spill", "\"name\":\"@\",\"tier\":\"disk\""),
    SAY("restore", "\"name\":\"@\""),
    SAY("restore", "\"name\":\"@\",\"wait_ms\":!"),
    SAY("why", "\"name\":\"@\""),
    SAY("leases", ""),
    SAY("leases", "\"name\":\"@\""),
    SAY("unmap", "\"segments\":[#,#]"),
    SAY("trim", ""),
    SAY("trim", "\"device\":\"host\",\"bytes\":$"),
    SAY("watch", ""),
    SAY("watch", "\"prefix\":\"@\",\"kinds\":[\"sealed\",\"evicted\",\"spilled\",\"withdrawn\"]"),
    SAY("unwatch", "\"watch\":#"),
    SAY("stats", ""),
    SAY("describe", ""),
    "%{\"jsonrpc\":\"2.0\",\"method\":\"open\",\"params\":{\"name\":\"@\"}}",
    "&{\"jsonrpc\":\"2.0\",\"id\":#,\"method\":\"op\nX%", /* ends in the middle of a line */
    "&{\"jsonrpc\":\"2.0\",\"id\":#,\"meth\nT30000",
    "F%s",
    "F%ws",
    "F%un",
    "F%rpkdzh",
    "X%",
    "H%",
    "Q%",
    "R%",
    "T!",
    "T!",
    "J0", /* jobs are held, one is done, no more are held */
    "J1",
    "J1",
    "J9",
    "E#",
    "L",
    "Z0",
    "Z1",
    "Z2",
};

#define TEMPLATES (sizeof(templates) / sizeof(templates[0]))
#define ONE_OF(array, random) (array)[test_random_below(random, sizeof(array) / sizeof((array)[0]))]

static size_t fill_in(char *out, const char *template, struct test_random *random)
{
    static const char *const sizes[] = {"0",       "1",       "64",      "4096",
                                        "100000",  "300000",  "500000",  "900000",
                                        "2097152", "4194304", "16777216"};
    static const char *const times[] = {"0", "1", "250", "5000", "60000", "60000", "86400000"};
    static const char *const modes[] = {"0600", "0644", "0666", "0640", "0400"};
    unsigned peer = test_random_below(random, 4);
    size_t length = 0;

    for (; *template; template ++) {
        const char *text = *template == '$'   ? ONE_OF(sizes, random)
                           : *template == '!' ? ONE_OF(times, random)
                           : *template == '~' ? ONE_OF(modes, random)
                                              : NULL;

        if (text) {
            length += (size_t)sprintf(out + length, "%s", text);
            continue;
        }
        out[length++] = *template == '#'   ? (char)('0' + test_random_below(random, 10))
                        : *template == '@' ? (char)('p' + test_random_below(random, 4))
                        : *template == '%' ? (char)('0' + peer)
                        : *template == '&' ? (char)('a' + peer)
                                           : *template;
    }
    out[length++] = '\n';
    return length;
}

static unsigned count_steps(const uint8_t *data, size_t size)
{
    unsigned steps = 0;

    for (size_t i = 0; i < size; i++)
        steps += data[i] == '\n';
    return steps;
}

/* Where the so-many-th step begins. */
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

/* Another number, name or session somewhere in the step. */
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
    char text[4096];

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
    if (what == 5 && to > from + 2 && data[from] >= '0' && data[from] <= '3') {
        /* a message in two pieces */
        char middle[2] = {'\n', (char)data[from]};

        cut = from + 1 + test_random_below(&random, (unsigned)(to - from - 1));
        data[from] = (uint8_t)(data[from] - '0' + 'a');
        return put_in(data, size, most, cut, cut, middle, 2);
    }
    if (what <= 8)
        return change_values(data, size, from, to, &random);
    length = fill_in(text, ONE_OF(templates, &random), &random);
    return put_in(data, size, most, from, from, text, length);
}

/* The beginning of one program and the end of another. */
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
