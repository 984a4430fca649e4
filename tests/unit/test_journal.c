/* The journal's format: what was written is read, and nothing else, whatever happens to the
   file. */
#include "tests/cases.h"

#include "daemon/survive/journal.h"

#define INSTANCE "00112233445566778899aabbccddeeff"
#define HEADER 224u /* two of 112 octets */
#define HEAD 40u

/* The records that `each` is to see are of type i + 1 and about 1000 + i; their payloads differ. */
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
        assert_int_equal(
            gb_journal_append(journal, (uint32_t)i + 1, 1000 + i, data, length, &error), 0);
    }
}

static int check(const struct gb_journal_record *record, void *arg, struct gb_error *error)
{
    size_t *count = arg;
    char data[32];
    assert_non_null(record->data);
    assert_int_equal(record->type, *count + 1);
    assert_int_equal(record->number, 1000 + *count);
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

TEST(test_round_trip)
{
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
        at += HEAD + ((payload_of(i, data) + 7) & ~(size_t)7);
        ends[i] = at;
    }
    return at;
}

/* Reads a damaged journal: all records but `from` to `to`, and a word on these. */
struct reading {
    size_t next, from, to;
    unsigned told; /* how often something was said to be lost */
};

static int check_damaged(const struct gb_journal_record *record, void *arg, struct gb_error *error)
{
    struct reading *reading = arg;
    if (record->data) {
        if (reading->next == reading->from)
            assert_true(reading->told == (reading->from < reading->to));
        reading->next = reading->next == reading->from ? reading->to : reading->next;
        return check(record, &reading->next, error);
    }
    reading->told++;
    assert_int_equal(reading->next, reading->from);
    assert_int_equal(record->type, reading->to - reading->from == 1 ? reading->from + 1 : 0);
    assert_int_equal(record->number, reading->to - reading->from == 1 ? 1000 + reading->from : 0);
    return 0;
}

/* Opens the journal, in which the records `from` to `to` of `count` are lost; then goes on with it,
   and opens it again: the loss is told again, and nothing else is lost. */
static void open_damaged(int fd, size_t from, size_t to, size_t count)
{
    struct gb_journal journal;
    struct gb_error error;
    for (int i = 0; i < 3; i++) {
        struct reading reading = {.from = from, .to = to};
        assert_int_equal(gb_journal_open(&journal, fd, check_damaged, &reading, &error), 0);
        assert_int_equal(reading.told, from < to);
        assert_int_equal(reading.next == from ? to : reading.next, count);
        fill(&journal, count, count + 2);
        count += 2;
        fd = dup(journal.fd);
        gb_journal_end(&journal);
    }
    close(fd);
}

enum { RECORDS = 20 };

/* How many records are whole if the journal is cut there; their padding may be missing. */
static size_t whole_until(size_t cut, const size_t *ends)
{
    char data[32];
    size_t whole = 0;
    while (whole < RECORDS &&
           (whole ? ends[whole - 1] : HEADER) + HEAD + payload_of(whole, data) <= cut)
        whole++;
    return whole;
}

/* The bytes of a journal of RECORDS records, which is ended, and where each record ends. The caller
   frees them. */
static unsigned char *full_journal(size_t ends[RECORDS], size_t *length)
{
    struct gb_journal journal;
    struct gb_error error;
    unsigned char *bytes;
    assert_int_equal(gb_journal_new(&journal, INSTANCE, 1, &error), 0);
    fill(&journal, 0, RECORDS);
    copy_of(journal.fd, &bytes, length);
    assert_int_equal(*length, boundaries(RECORDS, ends));
    gb_journal_end(&journal);
    return bytes;
}

/* RELIABILITY.md: The daemon ends 17 */
TEST(test_every_truncation)
{
    struct gb_journal again;
    struct gb_error error;
    size_t ends[RECORDS], length, count = 0;
    unsigned char *bytes = full_journal(ends, &length);
    for (size_t cut = 0; cut <= length; cut++) {
        int fd = file_of(bytes, cut);
        size_t whole = whole_until(cut, ends);
        if (cut >= HEADER / 2) {
            open_damaged(fd, whole, RECORDS, RECORDS);
            continue;
        }
        assert_int_equal(gb_journal_open(&again, fd, check, &count, &error), GPUBUF_E_INVALID);
        assert_int_equal(count, 0);
        close(fd);
    }
    free(bytes);
}

/* A kill while a record is appended leaves none of it, or a part, or all of it with the former
   header. */
TEST(test_every_kill)
{
    struct gb_journal journal;
    struct gb_error error;
    size_t ends[RECORDS], length;
    unsigned char *bytes, header[HEADER];
    assert_int_equal(gb_journal_new(&journal, INSTANCE, 1, &error), 0);
    fill(&journal, 0, RECORDS - 1);
    assert_int_equal(pread(journal.fd, header, HEADER, 0), HEADER);
    fill(&journal, RECORDS - 1, RECORDS);
    copy_of(journal.fd, &bytes, &length);
    (void)boundaries(RECORDS, ends);
    gb_journal_end(&journal);
    memcpy(bytes, header, HEADER);
    for (size_t cut = ends[RECORDS - 2]; cut <= length; cut++)
        open_damaged(file_of(bytes, cut), 0, 0, whole_until(cut, ends));
    free(bytes);
}

/* RELIABILITY.md: The daemon ends 16 */
TEST(test_every_byte_flipped)
{
    size_t ends[RECORDS], length;
    unsigned char *bytes = full_journal(ends, &length);
    for (size_t at = 0; at < length; at++) {
        for (unsigned bit = 0; bit < 8; bit++) {
            char data[32];
            size_t hit = 0;
            while (hit < RECORDS - 1 && ends[hit] <= at)
                hit++;
            size_t start = hit ? ends[hit - 1] : HEADER;
            /* One of two headers; or what fills up to a multiple of 8. */
            bool harmless = at < HEADER || at >= start + HEAD + payload_of(hit, data);
            bytes[at] ^= (unsigned char)(1u << bit);
            open_damaged(file_of(bytes, length), hit, hit + !harmless, RECORDS);
            bytes[at] ^= (unsigned char)(1u << bit);
        }
    }
    free(bytes);
}

/* Two neighbours that are damaged are told as one loss, of an unknown subject. */
/* RELIABILITY.md: The daemon ends 17 */
TEST(test_two_records)
{
    size_t ends[RECORDS], length;
    unsigned char *bytes = full_journal(ends, &length);
    for (size_t i = 0; i + 1 < RECORDS; i++) {
        bytes[(i ? ends[i - 1] : HEADER) + 32] ^= 1;
        bytes[ends[i] + 32] ^= 1;
        open_damaged(file_of(bytes, length), i, i + 2, RECORDS);
        bytes[(i ? ends[i - 1] : HEADER) + 32] ^= 1;
        bytes[ends[i] + 32] ^= 1;
    }
    free(bytes);
}

/* A record is one only where it was written, and in the journal that it was written to. */
TEST(test_records_elsewhere)
{
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

/* RELIABILITY.md: The daemon ends 18 */
TEST(test_versions)
{
    struct gb_journal journal, again;
    struct gb_error error;
    uint32_t later = GB_JOURNAL_VERSION + 1;
    char said[32];
    uint64_t generation = 3;
    size_t count = 0;
    assert_int_equal(gb_journal_new(&journal, INSTANCE, 1, &error), 0);
    fill(&journal, 0, 3);
    assert_int_equal(pwrite(journal.fd, &later, sizeof(later), 8), 4);
    assert_int_equal(pwrite(journal.fd, &later, sizeof(later), HEADER / 2 + 8), 4);
    assert_int_equal(gb_journal_open(&again, journal.fd, check, &count, &error),
                     GPUBUF_E_UNSUPPORTED);
    assert_int_equal(gb_journal_peek(journal.fd, &generation, &error), GPUBUF_E_UNSUPPORTED);
    assert_int_equal(generation, 3);
    snprintf(said, sizeof(said), "version %u", later);
    assert_non_null(strstr(error.message, said));
    assert_int_equal(count, 0);
    gb_journal_end(&journal);
    assert_int_equal(gb_journal_new(&journal, "0011", 1, &error), GPUBUF_E_INVALID);
    assert_int_equal(gb_journal_new(&journal, "x0112233445566778899aabbccddeeff", 1, &error),
                     GPUBUF_E_INVALID);
}

static int refuse(const struct gb_journal_record *record, void *arg, struct gb_error *error)
{
    return ++*(size_t *)arg == 5 ? gb_fail(error, GPUBUF_E_BUSY, "no more") : 0;
}

TEST(test_failures)
{
    struct gb_journal journal, again;
    struct gb_error error;
    struct rlimit before, limit;
    size_t count = 0;
    char *large = calloc(1, GB_JOURNAL_RECORD_MAX + 1);
    assert_int_equal(gb_journal_new(&journal, INSTANCE, 1, &error), 0);
    fill(&journal, 0, 10);
    uint64_t bytes = journal.bytes;
    assert_int_equal(gb_journal_append(&journal, 1, 1, large, GB_JOURNAL_RECORD_MAX + 1, &error),
                     GPUBUF_E_LIMIT);
    assert_int_equal(journal.bytes, bytes);
    /* No room: nothing is left of what was half written. */
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = bytes + 4096;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_int_equal(gb_journal_append(&journal, 1, 1, large, 100000, &error), GPUBUF_E_SYSTEM);
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

TEST(test_growth)
{
    struct gb_journal journal;
    struct gb_error error;
    char data[4096] = {0};
    assert_int_equal(gb_journal_new(&journal, INSTANCE, 1, &error), 0);
    while (journal.bytes <= GB_JOURNAL_COMPACT_MIN) {
        assert_false(gb_journal_is_large(&journal));
        assert_int_equal(gb_journal_append(&journal, 1, 1, data, sizeof(data), &error), 0);
    }
    assert_true(gb_journal_is_large(&journal));
    gb_journal_mark_whole(&journal);
    uint64_t whole = journal.bytes;
    while (journal.bytes < 2 * whole) {
        assert_false(gb_journal_is_large(&journal));
        assert_int_equal(gb_journal_append(&journal, 1, 1, data, sizeof(data), &error), 0);
    }
    assert_int_equal(gb_journal_append(&journal, 1, 1, data, sizeof(data), &error), 0);
    assert_true(gb_journal_is_large(&journal));
    gb_journal_end(&journal);
}

RUN_TESTS(NULL, NULL)
