/* The journal's format: what was written is read, and nothing else, whatever happens to the
   file. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/survive/journal.h"

#define INSTANCE "00112233445566778899aabbccddeeff"
#define HEADER 64u

/* The records that `each` is to see: records of type i + 1 whose payload is i + 1 times its
   letter. */
static size_t payload_of(size_t i, char *data)
{
    size_t length = i * 5 % 23;
    memset(data, 'a' + (int)(i % 26), length);
    return length;
}

static void fill(struct gb_journal *journal, size_t from, size_t to)
{
    struct gb_error error;
    char data[32];
    for (size_t i = from; i < to; i++) {
        size_t length = payload_of(i, data);
        assert_int_equal(gb_journal_append(journal, (uint32_t)i + 1, data, length, &error), 0);
    }
}

static int check(const struct gb_journal_record *record, void *arg, struct gb_error *error)
{
    size_t *count = arg;
    char data[32];
    (void)error;
    assert_int_equal(record->type, *count + 1);
    assert_int_equal(record->length, payload_of(*count, data));
    assert_memory_equal(record->data, data, record->length);
    (*count)++;
    return 0;
}

static int copy_of(int fd, unsigned char **bytes, size_t *length)
{
    struct stat status;
    assert_int_equal(fstat(fd, &status), 0);
    *length = (size_t)status.st_size;
    *bytes = malloc(*length);
    assert_int_equal(pread(fd, *bytes, *length, 0), (ssize_t)*length);
    return 0;
}

static int file_of(const unsigned char *bytes, size_t length)
{
    int fd = memfd_create("test", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, length, 0), (ssize_t)length);
    return fd;
}

static void test_round_trip(void **state)
{
    (void)state;
    struct gb_journal journal, again;
    struct gb_error error;
    uint64_t generation;
    size_t count = 0;
    assert_int_equal(gb_journal_new(&journal, INSTANCE, 7, &error), 0);
    fill(&journal, 0, 100);
    int fd = dup(journal.fd);
    gb_journal_end(&journal);
    gb_journal_end(&journal);
    assert_int_equal(gb_journal_peek(fd, &generation, &error), 0);
    assert_int_equal(generation, 7);
    assert_int_equal(gb_journal_open(&again, fd, check, &count, &error), 0);
    assert_int_equal(count, 100);
    assert_string_equal(again.instance, INSTANCE);
    assert_int_equal(again.generation, 7);
    /* It goes on where it ended. */
    fill(&again, 100, 200);
    fd = dup(again.fd);
    gb_journal_end(&again);
    count = 0;
    assert_int_equal(gb_journal_open(&again, fd, check, &count, &error), 0);
    assert_int_equal(count, 200);
    gb_journal_end(&again);
}

/* Where each record ends. */
static size_t boundaries(size_t records, size_t *ends)
{
    char data[32];
    size_t at = HEADER;
    for (size_t i = 0; i < records; i++) {
        at += 16 + ((payload_of(i, data) + 7) & ~(size_t)7);
        ends[i] = at;
    }
    return at;
}

/* RELIABILITY.md: The daemon ends */
static void test_every_truncation(void **state)
{
    enum { RECORDS = 40 };
    (void)state;
    struct gb_journal journal, again;
    struct gb_error error;
    size_t ends[RECORDS], length, count;
    unsigned char *bytes;
    assert_int_equal(gb_journal_new(&journal, INSTANCE, 1, &error), 0);
    fill(&journal, 0, RECORDS);
    copy_of(journal.fd, &bytes, &length);
    assert_int_equal(length, boundaries(RECORDS, ends));
    gb_journal_end(&journal);
    for (size_t cut = 0; cut <= length; cut++) {
        int fd = file_of(bytes, cut);
        size_t whole = 0;
        while (whole < RECORDS && ends[whole] <= cut)
            whole++;
        count = 0;
        if (cut < HEADER) {
            assert_int_equal(gb_journal_open(&again, fd, check, &count, &error), GPUBUF_E_INVALID);
            assert_int_equal(count, 0);
            close(fd);
            continue;
        }
        assert_int_equal(gb_journal_open(&again, fd, check, &count, &error), 0);
        assert_int_equal(count, whole);
        /* The torn end is gone, and what is written there now is read. */
        fill(&again, whole, whole + 3);
        fd = dup(again.fd);
        gb_journal_end(&again);
        count = 0;
        assert_int_equal(gb_journal_open(&again, fd, check, &count, &error), 0);
        assert_int_equal(count, whole + 3);
        gb_journal_end(&again);
    }
    free(bytes);
}

/* RELIABILITY.md: The daemon ends */
static void test_every_byte_flipped(void **state)
{
    enum { RECORDS = 20 };
    (void)state;
    struct gb_journal journal, again;
    struct gb_error error;
    size_t ends[RECORDS], length;
    unsigned char *bytes;
    assert_int_equal(gb_journal_new(&journal, INSTANCE, 1, &error), 0);
    fill(&journal, 0, RECORDS);
    copy_of(journal.fd, &bytes, &length);
    (void)boundaries(RECORDS, ends);
    gb_journal_end(&journal);
    for (size_t at = 0; at < length; at++) {
        for (unsigned bit = 0; bit < 8; bit++) {
            char data[32];
            size_t count = 0, hit = 0;
            bytes[at] ^= (unsigned char)(1u << bit);
            int fd = file_of(bytes, length);
            int r = gb_journal_open(&again, fd, check, &count, &error);
            bytes[at] ^= (unsigned char)(1u << bit);
            while (hit < RECORDS - 1 && ends[hit] <= at)
                hit++;
            size_t start = hit ? ends[hit - 1] : HEADER;
            if (at < HEADER) {
                assert_true(r == GPUBUF_E_INVALID || r == GPUBUF_E_UNSUPPORTED);
                assert_int_equal(count, 0);
            } else if (at >= start + 16 + payload_of(hit, data)) {
                assert_int_equal(r, 0); /* what fills up to a multiple of 8 */
            } else if (hit == RECORDS - 1) {
                assert_int_equal(r, 0); /* looks like an incomplete end */
                assert_int_equal(count, RECORDS - 1);
            } else {
                assert_int_equal(r, GPUBUF_E_INVALID);
                assert_int_equal(count, hit);
            }
            if (r == 0)
                gb_journal_end(&again);
            else
                close(fd);
        }
    }
    free(bytes);
}

/* A record is one only where it was written, and in the journal that it was written to. */
static void test_records_elsewhere(void **state)
{
    (void)state;
    struct gb_journal journal, other, again;
    struct gb_error error;
    unsigned char *bytes, *others;
    size_t length, others_length, count = 0;
    assert_int_equal(gb_journal_new(&journal, INSTANCE, 1, &error), 0);
    assert_int_equal(gb_journal_new(&other, "ff112233445566778899aabbccddeeff", 1, &error), 0);
    fill(&journal, 0, 1);
    fill(&other, 0, 2);
    copy_of(journal.fd, &bytes, &length);
    copy_of(other.fd, &others, &others_length);
    /* The first record once more; then the other journal's second. */
    assert_int_equal(pwrite(journal.fd, bytes + HEADER, length - HEADER, (off_t)length),
                     (ssize_t)(length - HEADER));
    assert_int_equal(
        pwrite(journal.fd, others + length, others_length - length, (off_t)(2 * length - HEADER)),
        (ssize_t)(others_length - length));
    int fd = dup(journal.fd);
    assert_int_equal(gb_journal_open(&again, fd, check, &count, &error), 0);
    assert_int_equal(count, 1);
    gb_journal_end(&again);
    gb_journal_end(&journal);
    gb_journal_end(&other);
    free(bytes);
    free(others);
}

/* RELIABILITY.md: The daemon ends */
static void test_versions(void **state)
{
    (void)state;
    struct gb_journal journal, again;
    struct gb_error error;
    uint32_t later = GB_JOURNAL_VERSION + 1;
    uint64_t generation = 3;
    size_t count = 0;
    assert_int_equal(gb_journal_new(&journal, INSTANCE, 1, &error), 0);
    fill(&journal, 0, 3);
    assert_int_equal(pwrite(journal.fd, &later, sizeof(later), 8), 4);
    assert_int_equal(gb_journal_open(&again, journal.fd, check, &count, &error),
                     GPUBUF_E_UNSUPPORTED);
    assert_int_equal(gb_journal_peek(journal.fd, &generation, &error), GPUBUF_E_UNSUPPORTED);
    assert_int_equal(generation, 3);
    assert_non_null(strstr(error.message, "version 3"));
    assert_int_equal(count, 0);
    gb_journal_end(&journal);
    assert_int_equal(gb_journal_new(&journal, "0011", 1, &error), GPUBUF_E_INVALID);
    assert_int_equal(gb_journal_new(&journal, "x0112233445566778899aabbccddeeff", 1, &error),
                     GPUBUF_E_INVALID);
}

static int refuse(const struct gb_journal_record *record, void *arg, struct gb_error *error)
{
    (void)record;
    return ++*(size_t *)arg == 5 ? gb_fail(error, GPUBUF_E_BUSY, "no more") : 0;
}

static void test_failures(void **state)
{
    (void)state;
    struct gb_journal journal, again;
    struct gb_error error;
    struct rlimit before, limit;
    size_t count = 0;
    char *large = calloc(1, GB_JOURNAL_RECORD_MAX + 1);
    assert_int_equal(gb_journal_new(&journal, INSTANCE, 1, &error), 0);
    fill(&journal, 0, 10);
    uint64_t bytes = journal.bytes;
    assert_int_equal(gb_journal_append(&journal, 1, large, GB_JOURNAL_RECORD_MAX + 1, &error),
                     GPUBUF_E_LIMIT);
    assert_int_equal(journal.bytes, bytes);
    /* No room: nothing is left of what was half written. */
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = bytes + 4096;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_int_equal(gb_journal_append(&journal, 1, large, 100000, &error), GPUBUF_E_SYSTEM);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(journal.bytes, bytes);
    fill(&journal, 10, 20);
    assert_int_equal(gb_journal_open(&again, journal.fd, refuse, &count, &error), GPUBUF_E_BUSY);
    count = 0;
    int fd = dup(journal.fd);
    assert_int_equal(gb_journal_open(&again, fd, check, &count, &error), 0);
    assert_int_equal(count, 20);
    gb_journal_end(&again);
    gb_journal_end(&journal);
    fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(gb_journal_open(&again, fd, check, &count, &error), GPUBUF_E_INVALID);
    close(fd);
    free(large);
}

static void test_growth(void **state)
{
    (void)state;
    struct gb_journal journal;
    struct gb_error error;
    char data[4096] = {0};
    assert_int_equal(gb_journal_new(&journal, INSTANCE, 1, &error), 0);
    while (journal.bytes <= GB_JOURNAL_COMPACT_MIN) {
        assert_false(gb_journal_is_large(&journal));
        assert_int_equal(gb_journal_append(&journal, 1, data, sizeof(data), &error), 0);
    }
    assert_true(gb_journal_is_large(&journal));
    gb_journal_mark_whole(&journal);
    uint64_t whole = journal.bytes;
    while (journal.bytes < 2 * whole) {
        assert_false(gb_journal_is_large(&journal));
        assert_int_equal(gb_journal_append(&journal, 1, data, sizeof(data), &error), 0);
    }
    assert_int_equal(gb_journal_append(&journal, 1, data, sizeof(data), &error), 0);
    assert_true(gb_journal_is_large(&journal));
    gb_journal_end(&journal);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_every_truncation),
        cmocka_unit_test(test_every_byte_flipped),
        cmocka_unit_test(test_records_elsewhere),
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_growth),
    };
    return cmocka_run_group_tests_name("journal", tests, NULL, NULL);
}
