/*
 * journal: files of any bytes, and journals that were written as the input says, then damaged as it
 * says. Reading gives records that were written, in their order, and says of all others that they
 * were lost, one by one or several together.
 *
 * The first byte is even for the former; then the file follows. Else a number of records follows,
 * each a byte for its length and one for its contents, and then damage: an offset (two bytes) and
 * what to put there, or (255) to cut the file off there.
 */
#include "daemon/survive/journal.h"
#include "demand.h"

#define INSTANCE "00112233445566778899aabbccddeeff"
struct written {
    const uint8_t *records; /* pairs of length and content */
    size_t count, read;
    bool gap; /* something is lost before the next one */
};

static int count_any(const struct gb_journal_record *record, void *arg, struct gb_error *error)
{
    volatile unsigned char last =
        record->data && record->length ? record->data[record->length - 1] : 0;
    (void)last;
    return 0;
}

static int compare(const struct gb_journal_record *record, void *arg, struct gb_error *error)
{
    struct written *written = arg;
    if (!record->data) {
        DEMAND(!written->gap && written->read < written->count);
        DEMAND(record->type == 0 || record->number == written->read);
        written->gap = record->type == 0;
        written->read += record->type > 0;
        return 0;
    }
    while (written->gap && written->read < written->count && record->number > written->read)
        written->read++;
    written->gap = false;
    DEMAND(written->read < written->count);
    const uint8_t *expected = written->records + 2 * written->read;
    DEMAND(record->type == written->read + 1 && record->number == written->read);
    DEMAND(record->length == expected[0]);
    for (size_t i = 0; i < record->length; i++)
        DEMAND(record->data[i] == expected[1]);
    written->read++;
    return 0;
}

static void reopen(int fd, struct written *written)
{
    struct gb_journal journal;
    struct gb_error error;
    for (int i = 0; i < 2; i++) {
        int r = gb_journal_open(&journal, fd, written ? compare : count_any, written, &error);
        if (r < 0) {
            DEMAND(i == 0 && (r == GPUBUF_E_INVALID || r == GPUBUF_E_UNSUPPORTED));
            break;
        }
        DEMAND(!written || written->gap || written->read == written->count);
        if (written)
            *written = (struct written){.records = written->records, .count = written->count};
        fd = dup(journal.fd);
        gb_journal_end(&journal);
    }
    close(fd);
}

static void damaged(const uint8_t *data, size_t size)
{
    struct gb_journal journal;
    struct gb_error error;
    uint8_t content[256];
    size_t count = size > 0 ? data[0] : 0;
    if (size < 1 + 2 * count)
        return;
    struct written written = {.records = data + 1, .count = count};
    DEMAND(gb_journal_new(&journal, INSTANCE, 1, &error) == 0);
    for (size_t i = 0; i < count; i++) {
        memset(content, data[2 + 2 * i], sizeof(content));
        DEMAND(gb_journal_append(&journal, (uint32_t)i + 1, i, content, data[1 + 2 * i], &error) ==
               0);
    }
    int fd = dup(journal.fd);
    size_t length = (size_t)journal.bytes;
    gb_journal_end(&journal);
    for (size_t i = 1 + 2 * count; i + 3 <= size; i += 3) {
        size_t at = (size_t)(data[i] | data[i + 1] << 8) % length;
        if (data[i + 2] == 255) {
            DEMAND(ftruncate(fd, (off_t)at) == 0);
            break;
        }
        DEMAND(pwrite(fd, &data[i + 2], 1, (off_t)at) == 1);
    }
    reopen(fd, &written);
}

/* RELIABILITY.md: The daemon ends 17 */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 0 && data[0] % 2) {
        damaged(data + 1, size - 1);
    } else if (size > 0) {
        int fd = memfd_create("fuzz", MFD_CLOEXEC);
        DEMAND(fd >= 0 && write(fd, data + 1, size - 1) == (ssize_t)size - 1);
        reopen(fd, NULL);
    }
    return 0;
}
