#include "daemon/survive/journal.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "daemon/base/failpoint.h"

#define MAGIC "gpubufdJ"
#define READ_BYTES (1u << 20)

struct header {
    char magic[8];
    uint32_t version, bytes;
    uint64_t generation;
    char instance[GB_JOURNAL_INSTANCE_BYTES];
    uint64_t checksum; /* of all members before it */
};

struct head {
    uint32_t length, type;
    uint64_t checksum; /* of the two members before it and the payload */
};

_Static_assert(sizeof(struct header) == 64, "the header is 64 octets");
_Static_assert(sizeof(struct head) == 16, "a record's head is 16 octets");

static size_t padded(size_t length)
{
    return (length + 7) & ~(size_t)7;
}

/* ---- whole reads and writes ---- */

/* A record: its head, its payload, and its padding. */
enum { PARTS = 3 };

static int write_all(int fd, struct iovec *parts, uint64_t at)
{
    for (int i = 0; i < PARTS;) {
        ssize_t n = pwritev(fd, parts + i, PARTS - i, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        at += (uint64_t)n;
        for (; i < PARTS && (size_t)n >= parts[i].iov_len; i++)
            n -= (ssize_t)parts[i].iov_len;
        if (i < PARTS) {
            parts[i].iov_base = (char *)parts[i].iov_base + n;
            parts[i].iov_len -= (size_t)n;
        }
    }
    return 0;
}

/* Reads `bytes`, or fewer at the end of the file. Returns how many; -1 with errno. */
static ssize_t read_some(int fd, void *data, size_t bytes, uint64_t at)
{
    size_t done = 0;

    while (done < bytes) {
        ssize_t n = pread(fd, (char *)data + done, bytes - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0)
            break;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

/* ---- the header ---- */

static int read_header(int fd, struct header *header, struct gb_error *error)
{
    ssize_t n = read_some(fd, header, sizeof(*header), 0);

    if (n < 0)
        return gb_fail_errno(error, "reading the journal");
    if (n < (ssize_t)sizeof(*header) || memcmp(header->magic, MAGIC, sizeof(header->magic)) != 0)
        return gb_fail(error, GPUBUF_E_INVALID, "the descriptor of the journal has none in it");
    uint32_t version = le32toh(header->version);
    if (version > GB_JOURNAL_VERSION)
        return gb_fail(error, GPUBUF_E_UNSUPPORTED,
                       "the journal has format version %" PRIu32
                       ", and this daemon reads up to %d: "
                       "start the daemon that wrote it, or a later one, or give its state up",
                       version, GB_JOURNAL_VERSION);
    if (le64toh(header->checksum) != XXH3_64bits(header, offsetof(struct header, checksum)) ||
        le32toh(header->bytes) != sizeof(*header))
        return gb_fail(error, GPUBUF_E_INVALID, "the journal's header is damaged");
    if (version < GB_JOURNAL_VERSION)
        return gb_fail(error, GPUBUF_E_INVALID,
                       "the journal has format version %" PRIu32 ", which is read no more",
                       version);
    return 0;
}

int gb_journal_peek(int fd, uint64_t *generation, struct gb_error *error)
{
    struct header header;
    int r = read_header(fd, &header, error);

    if (r == 0)
        *generation = le64toh(header.generation);
    return r;
}

static void set_instance(struct gb_journal *journal, const char *instance)
{
    memcpy(journal->instance, instance, GB_JOURNAL_INSTANCE_BYTES);
    journal->instance[GB_JOURNAL_INSTANCE_BYTES] = '\0';
    journal->seed = XXH3_64bits(instance, GB_JOURNAL_INSTANCE_BYTES);
}

int gb_journal_new(struct gb_journal *journal, const char *instance, uint64_t generation,
                   struct gb_error *error)
{
    struct header header = {
        .magic = MAGIC,
        .version = htole32(GB_JOURNAL_VERSION),
        .bytes = htole32(sizeof(header)),
        .generation = htole64(generation),
    };

    if (strlen(instance) != GB_JOURNAL_INSTANCE_BYTES ||
        strspn(instance, "0123456789abcdef") != GB_JOURNAL_INSTANCE_BYTES)
        return gb_fail(error, GPUBUF_E_INVALID, "an instance is %d hex digits",
                       GB_JOURNAL_INSTANCE_BYTES);
    memcpy(header.instance, instance, sizeof(header.instance));
    header.checksum = htole64(XXH3_64bits(&header, offsetof(struct header, checksum)));
    int fd = memfd_create("gpubufd-journal", MFD_CLOEXEC);
    if (fd < 0)
        return gb_fail_errno(error, "memfd_create");
    if (pwrite(fd, &header, sizeof(header), 0) != (ssize_t)sizeof(header)) {
        int r = gb_fail_errno(error, "writing the journal");
        close(fd);
        return r;
    }
    *journal = (struct gb_journal){
        .fd = fd, .generation = generation, .bytes = sizeof(header), .base_bytes = sizeof(header)};
    set_instance(journal, instance);
    return 0;
}

/* ---- reading ---- */

static uint64_t checksum_of(uint64_t seed, uint64_t at, const struct head *head,
                            const unsigned char *data, size_t length)
{
    uint64_t hash = XXH3_64bits_withSeed(head, offsetof(struct head, checksum), seed ^ at);

    return XXH3_64bits_withSeed(data, length, hash);
}

/* A journal being read, mapped as a whole: it has some hundred octets for each object. */
struct reading {
    const unsigned char *bytes;
    uint64_t length, seed;
};

/* Reads the record at `at`; false if there is no whole, undamaged one. */
static bool read_record(const struct reading *reading, uint64_t at,
                        struct gb_journal_record *record)
{
    struct head head;

    if (at > reading->length || reading->length - at < sizeof(head))
        return false;
    memcpy(&head, reading->bytes + at, sizeof(head));
    size_t length = le32toh(head.length);
    uint64_t left = reading->length - at - sizeof(head);
    if (length > GB_JOURNAL_RECORD_MAX || padded(length) > left)
        return false;
    const unsigned char *data = reading->bytes + at + sizeof(head);
    if (checksum_of(reading->seed, at, &head, data, length) != le64toh(head.checksum))
        return false;
    *record = (struct gb_journal_record){le32toh(head.type), data, length};
    return true;
}

/* Whether the bytes from `at` on are the incomplete end: no record follows them. */
static bool is_torn_end(const struct reading *reading, uint64_t at)
{
    struct gb_journal_record record;

    for (at += sizeof(struct head); at < reading->length; at += 8) {
        if (read_record(reading, at, &record))
            return false;
    }
    return true;
}

static int read_records(const struct reading *reading, uint64_t *end,
                        int (*each)(const struct gb_journal_record *record, void *arg,
                                    struct gb_error *error),
                        void *arg, struct gb_error *error)
{
    struct gb_journal_record record;
    uint64_t at = sizeof(struct header), count = 0;

    for (; read_record(reading, at, &record); count++) {
        int r = each(&record, arg, error);
        if (r < 0)
            return r;
        at += sizeof(struct head) + padded(record.length);
    }
    if (!is_torn_end(reading, at))
        return gb_fail(error, GPUBUF_E_INVALID,
                       "record %" PRIu64 " of the journal, at octet %" PRIu64 ", is damaged", count,
                       at);
    *end = at;
    return 0;
}

int gb_journal_open(struct gb_journal *journal, int fd,
                    int (*each)(const struct gb_journal_record *record, void *arg,
                                struct gb_error *error),
                    void *arg, struct gb_error *error)
{
    struct header header;
    struct stat status;
    uint64_t end = 0;
    int r = read_header(fd, &header, error);

    if (r < 0)
        return r;
    if (fstat(fd, &status) < 0)
        return gb_fail_errno(error, "fstat of the journal");
    uint64_t length = (uint64_t)status.st_size;
    void *bytes = mmap(NULL, (size_t)length, PROT_READ, MAP_SHARED, fd, 0);
    if (bytes == MAP_FAILED)
        return gb_fail_errno(error, "mapping the journal");
    struct gb_journal opened = {.fd = fd, .generation = le64toh(header.generation)};
    set_instance(&opened, header.instance);
    struct reading reading = {bytes, length, opened.seed};
    r = read_records(&reading, &end, each, arg, error);
    (void)munmap(bytes, (size_t)length);
    if (r < 0)
        return r;
    if (end < length && ftruncate(fd, (off_t)end) < 0)
        return gb_fail_errno(error, "cutting off the journal's incomplete end");
    opened.bytes = opened.base_bytes = end;
    *journal = opened;
    return 0;
}

/* ---- appending ---- */

/* Leaves a torn record, as a kill in the middle of the write does. */
static void tear(const struct gb_journal *journal, const struct iovec *parts)
{
    struct iovec torn[PARTS] = {parts[0], {parts[1].iov_base, parts[1].iov_len / 16 * 8}};

    if (gb_failpoint_is_next(GB_FAILPOINT_APPEND_TORN))
        (void)write_all(journal->fd, torn, journal->bytes);
    GB_FAILPOINT(APPEND_TORN);
}

int gb_journal_append(struct gb_journal *journal, uint32_t type, const void *data, size_t length,
                      struct gb_error *error)
{
    static const char zeros[8];
    size_t bytes = sizeof(struct head) + padded(length);
    struct head head = {.length = htole32((uint32_t)length), .type = htole32(type)};
    struct iovec parts[PARTS] = {{&head, sizeof(head)},
                                 {(void *)(uintptr_t)data, length},
                                 {(void *)(uintptr_t)zeros, padded(length) - length}};

    if (length > GB_JOURNAL_RECORD_MAX)
        return gb_fail(error, GPUBUF_E_LIMIT, "a record of %zu octets; the journal takes %u",
                       length, GB_JOURNAL_RECORD_MAX);
    head.checksum = htole64(checksum_of(journal->seed, journal->bytes, &head, data, length));
    GB_FAILPOINT(APPEND_BEGIN);
    tear(journal, parts);
    if (write_all(journal->fd, parts, journal->bytes) < 0) {
        int r = gb_fail_errno(error, "writing the journal");
        (void)!ftruncate(journal->fd, (off_t)journal->bytes);
        return r;
    }
    journal->bytes += bytes;
    GB_FAILPOINT(APPEND_DONE);
    return 0;
}

bool gb_journal_is_large(const struct gb_journal *journal)
{
    return journal->bytes > GB_JOURNAL_COMPACT_MIN && journal->bytes / 2 > journal->base_bytes;
}

void gb_journal_mark_whole(struct gb_journal *journal)
{
    journal->base_bytes = journal->bytes;
}

void gb_journal_end(struct gb_journal *journal)
{
    if (journal->fd >= 0)
        close(journal->fd);
    *journal = GB_JOURNAL_NONE;
}
