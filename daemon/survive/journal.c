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

struct subject {
    uint32_t length, type;
    uint64_t number;
};

struct header {
    char magic[8];
    uint32_t version, bytes;
    uint64_t generation;
    char instance[GB_JOURNAL_INSTANCE_BYTES];
    struct subject last;
    uint64_t end;      /* of the last record */
    uint64_t next[3];  /* segment, version, storage */
    uint64_t checksum; /* of all members before it */
};

struct head {
    struct subject self, before;
    uint64_t checksum; /* of all members before it and the payload */
};

_Static_assert(sizeof(struct header) == 112, "the header is 112 octets");
_Static_assert(sizeof(struct head) == 40, "a record's head is 40 octets");

#define HEADERS 2u
#define FIRST (HEADERS * sizeof(struct header)) /* where the first record begins */

static size_t padded(size_t length)
{
    return (length + 7) & ~(size_t)7;
}

/* The octets that a record takes. */
static uint64_t size_of(const struct gb_journal_subject *subject)
{
    return sizeof(struct head) + padded(subject->length);
}

static struct subject write_subject(const struct gb_journal_subject *subject)
{
    return (struct subject){htole32(subject->length), htole32(subject->type),
                            htole64(subject->number)};
}

static struct gb_journal_subject read_subject(const struct subject *subject)
{
    return (struct gb_journal_subject){le32toh(subject->length), le32toh(subject->type),
                                       le64toh(subject->number)};
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

static uint64_t header_checksum(const struct header *header)
{
    return XXH3_64bits(header, offsetof(struct header, checksum));
}

static bool is_whole(const struct header *header)
{
    return memcmp(header->magic, MAGIC, sizeof(header->magic)) == 0 &&
           le32toh(header->version) == GB_JOURNAL_VERSION &&
           le32toh(header->bytes) == sizeof(*header) &&
           le64toh(header->checksum) == header_checksum(header);
}

/* Of the two headers one may be damaged. */
static int read_header(int fd, struct header *header, struct gb_error *error)
{
    struct header headers[HEADERS] = {0};
    ssize_t n = read_some(fd, headers, sizeof(headers), 0);

    if (n < 0 && errno == ENOMEM)
        return gb_fail_memory(error);
    if (n < 0)
        return gb_fail_errno(error, "reading the journal");
    for (unsigned i = 0; i < HEADERS; i++)
        if (is_whole(&headers[i])) {
            *header = headers[i];
            return 0;
        }
    if (memcmp(headers->magic, MAGIC, sizeof(headers->magic)) != 0)
        return gb_fail(error, GPUBUF_E_INVALID, "the descriptor of the journal has none in it");
    uint32_t version = le32toh(headers->version);
    if (version > GB_JOURNAL_VERSION)
        return gb_fail(error, GPUBUF_E_UNSUPPORTED,
                       "the journal has format version %" PRIu32
                       ", and this daemon reads up to %d: "
                       "start the daemon that wrote it, or a later one, or give its state up",
                       version, GB_JOURNAL_VERSION);
    if (version < GB_JOURNAL_VERSION)
        return gb_fail(error, GPUBUF_E_INVALID,
                       "the journal has format version %" PRIu32 ", which is read no more",
                       version);
    return gb_fail(error, GPUBUF_E_INVALID, "the journal's header is damaged");
}

/* Writes both headers by one write, which a kill does not cut, since they are in one page. */
static int write_headers(const struct gb_journal *journal)
{
    struct header headers[HEADERS];
    struct header *header = &headers[0];

    *header = (struct header){
        .magic = MAGIC,
        .version = htole32(GB_JOURNAL_VERSION),
        .bytes = htole32(sizeof(*header)),
        .generation = htole64(journal->generation),
        .last = write_subject(&journal->last),
        .end = htole64(journal->bytes),
        .next = {htole64(journal->next.segment), htole64(journal->next.version),
                 htole64(journal->next.storage)},
    };
    memcpy(header->instance, journal->instance, sizeof(header->instance));
    header->checksum = htole64(header_checksum(header));
    headers[1] = *header;
    return pwrite(journal->fd, headers, sizeof(headers), 0) == (ssize_t)sizeof(headers) ? 0 : -1;
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
    struct gb_journal made = {.generation = generation, .bytes = FIRST, .base_bytes = FIRST};

    if (strlen(instance) != GB_JOURNAL_INSTANCE_BYTES ||
        strspn(instance, "0123456789abcdef") != GB_JOURNAL_INSTANCE_BYTES)
        return gb_fail(error, GPUBUF_E_INVALID, "an instance is %d hex digits",
                       GB_JOURNAL_INSTANCE_BYTES);
    set_instance(&made, instance);
    made.fd = memfd_create("gpubufd-journal", MFD_CLOEXEC);
    if (made.fd < 0)
        return gb_fail_errno(error, "memfd_create");
    if (write_headers(&made) < 0) {
        int r = gb_fail_errno(error, "writing the journal");
        close(made.fd);
        return r;
    }
    *journal = made;
    return 0;
}

/* ---- reading ---- */

static uint64_t checksum_of(uint64_t seed, uint64_t at, const struct head *head,
                            const unsigned char *data, size_t length)
{
    uint64_t hash = XXH3_64bits_withSeed(head, offsetof(struct head, checksum), seed ^ at);

    return XXH3_64bits_withSeed(data, length, hash);
}

/* A journal being read. */
struct reading {
    const unsigned char *bytes;
    uint64_t length, seed;
};

/* A record, and what its head says of the one before it. */
struct found {
    struct gb_journal_record record;
    struct gb_journal_subject self, before;
};

/* Reads the record at `at`; false if there is no whole, undamaged one. */
static bool read_record(const struct reading *reading, uint64_t at, struct found *found)
{
    struct head head;

    if (at > reading->length || reading->length - at < sizeof(head))
        return false;
    memcpy(&head, reading->bytes + at, sizeof(head));
    found->self = read_subject(&head.self);
    found->before = read_subject(&head.before);
    size_t length = found->self.length;
    uint64_t left = reading->length - at - sizeof(head);
    if (length > GB_JOURNAL_RECORD_MAX || found->self.type == 0 || length > left)
        return false;
    const unsigned char *data = reading->bytes + at + sizeof(head);
    if (checksum_of(reading->seed, at, &head, data, length) != le64toh(head.checksum))
        return false;
    found->record = (struct gb_journal_record){found->self.type, found->self.number, data, length};
    return true;
}

/* The lost record between two places; `before` is the subject that the record behind it names. */
static struct gb_journal_record lost(uint64_t from, uint64_t to,
                                     const struct gb_journal_subject *before)
{
    if (to - from != size_of(before))
        return (struct gb_journal_record){0};
    return (struct gb_journal_record){.type = before->type, .number = before->number};
}

/* Reads all records; *end is where the last one ends, which may be a lost one, and *last it. */
static int read_records(const struct reading *reading, uint64_t *end,
                        struct gb_journal_subject *last,
                        int (*each)(const struct gb_journal_record *record, void *arg,
                                    struct gb_error *error),
                        void *arg, struct gb_error *error)
{
    uint64_t reached = FIRST; /* behind the last record that was read */
    struct gb_journal_record gone;
    struct found found;
    int r = 0;

    for (uint64_t at = FIRST; r == 0 && at < reading->length;) {
        if (!read_record(reading, at, &found)) {
            at += 8;
            continue;
        }
        if (at > reached) {
            gone = lost(reached, at, &found.before);
            r = each(&gone, arg, error);
        }
        if (r == 0)
            r = each(&found.record, arg, error);
        reached = at += size_of(&found.self);
        if (reached >= *end)
            *last = found.self;
    }
    if (r == 0 && reached < *end) {
        gone = lost(reached, *end, last);
        r = each(&gone, arg, error);
    }
    *end = reached > *end ? reached : *end;
    return r;
}

int gb_journal_open(struct gb_journal *journal, int fd,
                    int (*each)(const struct gb_journal_record *record, void *arg,
                                struct gb_error *error),
                    void *arg, struct gb_error *error)
{
    struct header header;
    struct stat status;
    int r = read_header(fd, &header, error);

    if (r < 0)
        return r;
    if (fstat(fd, &status) < 0)
        return gb_fail_errno(error, "fstat of the journal");
    struct gb_journal_map map = {.length = (size_t)status.st_size};
    map.bytes = mmap(NULL, map.length, PROT_READ, MAP_SHARED, fd, 0);
    if (map.bytes == MAP_FAILED)
        return gb_fail_errno(error, "mapping the journal");
    struct gb_journal opened = {
        .fd = fd,
        .generation = le64toh(header.generation),
        .last = read_subject(&header.last),
        .next = {le64toh(header.next[0]), le64toh(header.next[1]), le64toh(header.next[2])},
        .bytes = le64toh(header.end)};
    set_instance(&opened, header.instance);
    struct reading reading = {map.bytes, map.length, opened.seed};
    r = read_records(&reading, &opened.bytes, &opened.last, each, arg, error);
    if (r == 0 && (ftruncate(fd, (off_t)opened.bytes) < 0 || write_headers(&opened) < 0))
        r = gb_fail_errno(error, "cutting off the journal's incomplete end");
    if (r < 0) {
        gb_journal_unmap(&map);
        return r;
    }
    opened.base_bytes = opened.bytes;
    opened.read = map;
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

int gb_journal_append(struct gb_journal *journal, uint32_t type, uint64_t number, const void *data,
                      size_t length, struct gb_error *error)
{
    static const char zeros[8];
    struct gb_journal_subject self = {(uint32_t)length, type, number};
    struct gb_journal appended = *journal;
    struct head head = {.self = write_subject(&self), .before = write_subject(&journal->last)};
    struct iovec parts[PARTS] = {{&head, sizeof(head)},
                                 {(void *)(uintptr_t)data, length},
                                 {(void *)(uintptr_t)zeros, padded(length) - length}};

    if (length > GB_JOURNAL_RECORD_MAX)
        return gb_fail(error, GPUBUF_E_LIMIT, "a record of %zu octets; the journal takes %u",
                       length, GB_JOURNAL_RECORD_MAX);
    head.checksum = htole64(checksum_of(journal->seed, journal->bytes, &head, data, length));
    appended.bytes += size_of(&self);
    appended.last = self;
    GB_FAILPOINT(APPEND_BEGIN);
    tear(journal, parts);
    if (write_all(journal->fd, parts, journal->bytes) < 0) {
        int r = gb_fail_errno(error, "writing the journal");
        (void)!ftruncate(journal->fd, (off_t)journal->bytes);
        return r;
    }
    GB_FAILPOINT(APPEND_WRITTEN);
    if (write_headers(&appended) < 0) {
        int r = gb_fail_errno(error, "writing the journal's header");
        (void)!ftruncate(journal->fd, (off_t)journal->bytes);
        return r;
    }
    *journal = appended;
    GB_FAILPOINT(APPEND_DONE);
    return 0;
}

int gb_journal_count(struct gb_journal *journal, struct gb_error *error)
{
    return write_headers(journal) == 0 ? 0 : gb_fail_errno(error, "writing the journal's header");
}

bool gb_journal_is_large(const struct gb_journal *journal)
{
    return journal->bytes > GB_JOURNAL_COMPACT_MIN && journal->bytes / 2 > journal->base_bytes;
}

void gb_journal_mark_whole(struct gb_journal *journal)
{
    journal->base_bytes = journal->bytes;
}

void gb_journal_spoil(struct gb_journal *journal)
{
    static const struct header none[HEADERS];

    (void)!pwrite(journal->fd, none, sizeof(none), 0);
}

void gb_journal_unmap(struct gb_journal_map *map)
{
    if (map->bytes)
        (void)munmap(map->bytes, map->length);
    *map = (struct gb_journal_map){0};
}

void gb_journal_end(struct gb_journal *journal)
{
    gb_journal_unmap(&journal->read);
    if (journal->fd >= 0)
        close(journal->fd);
    *journal = GB_JOURNAL_NONE;
}
