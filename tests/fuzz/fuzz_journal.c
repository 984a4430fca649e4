/*
 * journal: files of any bytes, and journals that were written as the input says, then damaged as it
 * says. Reading gives the first of the records that were written, and nothing else.
 *
 * The first byte is even for the former; then the file follows. Else a number of records follows,
 * each a byte for its length and one for its contents, and then damage: an offset (two bytes) and
 * what to put there, or (255) to cut the file off there.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/survive/journal.h"
#include "demand.h"

#define INSTANCE "00112233445566778899aabbccddeeff"
struct written {
    const uint8_t *records; /* pairs of length and content */
    size_t count, read;
};

static int count_any(const struct gb_journal_record *record, void *arg, struct gb_error *error)
{
    volatile unsigned char last = record->length ? record->data[record->length - 1] : 0;
    (void)last;
    (void)arg;
    (void)error;
    return 0;
}

static int compare(const struct gb_journal_record *record, void *arg, struct gb_error *error)
{
    struct written *written = arg;
    (void)error;
    DEMAND(written->read < written->count);
    const uint8_t *expected = written->records + 2 * written->read;
    DEMAND(record->type == written->read);
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
    int r = gb_journal_open(&journal, fd, written ? compare : count_any, written, &error);
    if (r < 0) {
        DEMAND(r == GPUBUF_E_INVALID || r == GPUBUF_E_UNSUPPORTED);
        close(fd);
        return;
    }
    size_t before = written ? written->read : 0;
    int again = dup(fd);
    gb_journal_end(&journal);
    if (written)
        written->read = 0;
    DEMAND(gb_journal_open(&journal, again, written ? compare : count_any, written, &error) == 0);
    DEMAND(!written || written->read == before);
    gb_journal_end(&journal);
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
        DEMAND(gb_journal_append(&journal, (uint32_t)i, content, data[1 + 2 * i], &error) == 0);
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
