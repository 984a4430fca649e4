/*
 * spill: files of the disk tier with any bytes. A file is taken for whole only if it is what the
 * format says, byte for byte.
 *
 * The first byte says where the file comes from: 0 it is the rest of the input; 1 its header's
 * fields are the input's, under a right checksum, and the rest of the input is its content; 2 it
 * was written, then damaged: pairs of a place and of what is put there, or (255) the file's end.
 * The second byte says how many bytes more or fewer the file is to hold, the third in what pieces
 * it is read.
 */
#include <endian.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "daemon/memory/spill_file.h"
#include "demand.h"

enum { HEADER = 88, SELF = 80, MOST = 1 << 16, ID = 7, STORAGE = 11, PLACE = 512 };

#define INSTANCE "00112233445566778899aabbccddeeff"

static struct gb_spill_dir *dir;
static char path[PATH_MAX], name[PATH_MAX + 32], pack[PATH_MAX + 32];

static void remove_all(void)
{
    char lock[PATH_MAX + 32];

    unlink(name);
    unlink(pack);
    snprintf(lock, sizeof(lock), "%s/gpubufd.lock", path);
    unlink(lock);
    rmdir(path);
}

static void begin_once(void)
{
    const char *base = getenv("TMPDIR");
    struct gb_error error;

    if (dir)
        return;
    snprintf(path, sizeof(path), "%.3900s/gpubufd-fuzz-XXXXXX", base ? base : "/dev/shm");
    DEMAND(mkdtemp(path) != NULL);
    snprintf(name, sizeof(name), "%s/%016x.spill", path, ID);
    snprintf(pack, sizeof(pack), "%s/gpubufd.pack", path);
    atexit(remove_all);
    DEMAND(gb_spill_dir_open(path, &dir, &error) == 0);
    gb_spill_dir_set_instance(dir, INSTANCE);
}

/* The file as it is, for the model and for the reader. */
static struct {
    uint8_t bytes[MOST + GB_SPILL_HEADER_BYTES];
    size_t length;
} file;

static void put_field(size_t at, uint64_t value, size_t bytes)
{
    value = htole64(value);
    memcpy(file.bytes + at, &value, bytes);
}

static uint64_t field(size_t at, size_t bytes)
{
    uint64_t value = 0;

    memcpy(&value, file.bytes + at, bytes);
    return le64toh(value);
}

/* Fields of the input's, and a checksum that is right. The file's content is whose the input says:
   where it says nothing, or 0, the one's that is asked for. */
static void make_header(const uint8_t *data, size_t size)
{
    memset(file.bytes, 0, GB_SPILL_HEADER_BYTES);
    memcpy(file.bytes, "gpubufsp", 8);
    put_field(8, size > 0 ? data[0] : 2, 4);
    put_field(16, size > 1 ? data[1] : 0, 8);
    if (size > 9)
        memcpy(file.bytes + 24, data + 2, 8);
    put_field(32, STORAGE + (size > 10 ? data[10] & 1u : 0u), 8);
    put_field(40, ID + (size > 10 ? data[10] >> 1 & 1u : 0u), 8);
    memcpy(file.bytes + 48, INSTANCE, 32);
    file.bytes[79] ^= size > 10 ? data[10] >> 2 & 1 : 0;
    if (size > 10)
        memcpy(file.bytes + GB_SPILL_HEADER_BYTES, data + 10, size - 10);
    file.length = GB_SPILL_HEADER_BYTES + (size > 10 ? size - 10 : 0);
    if (size > 2 && size < 10) /* the right one */
        put_field(24, XXH3_64bits(file.bytes + GB_SPILL_HEADER_BYTES, 0), 8);
    put_field(SELF, XXH3_64bits(file.bytes, SELF), 8);
}

/* Written by the code itself, half of the input in pieces; the other half is damage. */
static void make_written(const uint8_t *data, size_t size, size_t piece)
{
    struct gb_spill_file *out;
    struct gb_error error;
    size_t half = size / 2;
    ssize_t n;
    int fd;

    DEMAND(gb_spill_file_create(dir, ID, STORAGE, &out, &error) == 0);
    for (size_t at = 0; at < half; at += piece)
        DEMAND(gb_spill_file_write(out, data + at, half - at < piece ? half - at : piece, &error) ==
               0);
    DEMAND(gb_spill_file_finish(out, &error) == 0);
    gb_spill_file_close(out);
    fd = open(name, O_RDONLY | O_CLOEXEC);
    DEMAND(fd >= 0);
    memset(file.bytes, 0, GB_SPILL_HEADER_BYTES);
    n = read(fd, file.bytes, sizeof(file.bytes));
    close(fd);
    DEMAND(n >= HEADER && field(16, 8) == half);
    file.length = half ? GB_SPILL_HEADER_BYTES + half : (size_t)n;
    DEMAND((size_t)n == file.length);
    DEMAND(memcmp(file.bytes + GB_SPILL_HEADER_BYTES, data, half) == 0);
    for (size_t i = half; i + 2 <= size; i += 2) {
        /* Of the header, of the content, or of what is between them. */
        size_t at = data[i] < 96 ? data[i] : GB_SPILL_HEADER_BYTES - 64 + data[i];

        if (at >= file.length)
            continue;
        if (data[i + 1] == 255)
            file.length = at;
        else
            file.bytes[at] = data[i + 1];
    }
}

static void write_file(void)
{
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    DEMAND(fd >= 0 && write(fd, file.bytes, file.length) == (ssize_t)file.length);
    close(fd);
}

/* The same in the pack, behind something else: what was right there is right here. */
static void write_pack(void)
{
    bool valid = file.length >= HEADER && field(SELF, 8) == XXH3_64bits(file.bytes, SELF);
    size_t content = file.length > GB_SPILL_HEADER_BYTES ? file.length - GB_SPILL_HEADER_BYTES : 0;
    size_t head = file.length < GB_PACK_HEADER_BYTES ? file.length : GB_PACK_HEADER_BYTES;
    int fd = open(pack, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    if (valid) {
        put_field(40, field(40, 8) - ID + GB_PACK_BASE + PLACE, 8);
        put_field(SELF, XXH3_64bits(file.bytes, SELF), 8);
    }
    DEMAND(fd >= 0 && pwrite(fd, file.bytes, head, PLACE) == (ssize_t)head);
    DEMAND(pwrite(fd, file.bytes + GB_SPILL_HEADER_BYTES, content, PLACE + GB_PACK_HEADER_BYTES) ==
           (ssize_t)content);
    close(fd);
}

/* The reader's right answer, worked out from the format. */
static bool opens(uint64_t id, uint64_t wanted)
{
    return file.length >= HEADER && memcmp(file.bytes, "gpubufsp", 8) == 0 &&
           field(SELF, 8) == XXH3_64bits(file.bytes, SELF) && field(8, 4) == 2 &&
           field(32, 8) == STORAGE && field(40, 8) == id &&
           memcmp(file.bytes + 48, INSTANCE, 32) == 0 && field(16, 8) == wanted;
}

static bool has(uint64_t wanted)
{
    return wanted == 0 ||
           (wanted <= sizeof(file.bytes) && file.length >= GB_SPILL_HEADER_BYTES + wanted);
}

static void check(uint64_t id, uint64_t wanted, size_t piece)
{
    struct gb_spill_file *in = NULL;
    struct gb_error error = {0};
    int r = gb_spill_file_open(dir, id, STORAGE, wanted, &in, &error);

    DEMAND((r == 0) == opens(id, wanted) && (r == 0 || error.message[0]));
    if (r < 0)
        return;
    for (uint64_t at = 0; r == 0 && at < wanted; at += piece) {
        uint64_t bytes = wanted - at < piece ? wanted - at : piece;
        char *content = malloc(bytes); /* of the exact size */

        DEMAND(content);
        r = gb_spill_file_read(in, content, bytes, &error);
        DEMAND((r == 0) == has(at + bytes));
        DEMAND(r < 0 || memcmp(content, file.bytes + GB_SPILL_HEADER_BYTES + at, bytes) == 0);
        free(content);
    }
    if (r == 0)
        DEMAND((gb_spill_file_verify(in, &error) == 0) ==
               (field(24, 8) == XXH3_64bits(file.bytes + GB_SPILL_HEADER_BYTES, wanted)));
    gb_spill_file_close(in);
}

/* RELIABILITY.md: The disk 1 */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t piece;
    uint64_t held;

    begin_once();
    if (size < 3 || size - 3 > MOST)
        return 0;
    piece = data[2] + 1u;
    if (data[0] % 3 == 0) {
        memset(file.bytes, 0, HEADER);
        memcpy(file.bytes, data + 3, size - 3);
        file.length = size - 3;
    } else if (data[0] % 3 == 1) {
        make_header(data + 3, size - 3);
    } else {
        make_written(data + 3, size - 3, piece);
    }
    write_file();
    held = file.length < 24 ? 0 : field(16, 8);
    held += (uint64_t)(int64_t)(int8_t)data[1];
    check(ID, held, piece);
    unlink(name);
    write_pack();
    check(GB_PACK_BASE + PLACE, held, piece);
    return 0;
}
