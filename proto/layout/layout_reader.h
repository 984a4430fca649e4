/*
 * Shared by the two halves of gb_layout_read: layout_read.c has whole layouts and their parts
 * (dtypes, buffers), layout_columns.c has columns. Private to them.
 */
#ifndef GB_LAYOUT_READER_H
#define GB_LAYOUT_READER_H

#include "proto/base/limits.h"
#include "proto/layout/layout.h"

#define GB_INTEGER_MAX ((uint64_t)GB_LIMIT(integer))
#define GB_COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define GB_ULL(value) ((unsigned long long)(value)) /* for printf */

/* State that is the same from the outermost column to the innermost. */
struct gb_layout_reader {
    enum gb_layout_form form;
    enum gb_unknown unknown;
    struct gb_pool *pool;
    struct gb_error *error;
    uint32_t columns; /* read so far */
};

/* A layout's or column's members as they stand in the text. */
struct gb_raw_layout {
    struct gb_json kind, dtype, data, mask, offsets, shape, strides, columns, children, metadata;
    struct gb_string name;
    uint64_t bytes, manifest_bytes, length, offset;
    int64_t null_count;
};

#define GB_RAW(member, type, flags, min, max)                                                      \
    GB_FIELD(struct gb_raw_layout, member, type, flags, min, max)

/* The rules that a buffer has to keep. */
struct gb_buffer_need {
    const char *member;
    uint64_t bytes; /* at least */
    uint64_t place; /* bytes that `create` gives it if the request does not say */
    uint64_t align;
    bool size_unknown; /* the request must say how many bytes: the data of strings */
};

/* The place of a column decides whether it has a `kind`, and whether it has a `name`. */
enum gb_column_place { GB_PLACE_OUTERMOST, GB_PLACE_NAMED, GB_PLACE_UNNAMED };

/* Fails because memory is out; returns the code. */
int gb_layout_no_memory(struct gb_layout_reader *reader);

/* Makes the failure that gb_fail_at has just described that of a limit; returns GPUBUF_E_LIMIT. */
int gb_layout_as_limit(struct gb_layout_reader *reader, const char *limit);

/* Reads a member `dtype` of the value at `up`. */
int gb_layout_read_dtype(struct gb_layout_reader *reader, struct gb_json value,
                         const struct gb_path *up, struct gb_dtype *dtype);

/* If `value` is absent, `create` gives the buffer its size, and every other form is refused. */
int gb_layout_read_buffer(struct gb_layout_reader *reader, struct gb_json value,
                          const struct gb_buffer_need *need, const struct gb_path *up,
                          struct gb_buffer *buffer);

/* Reads a mask of `bits` bits, if there is one; `padded` is how many bytes `create` gives it. */
int gb_layout_read_mask(struct gb_layout_reader *reader, struct gb_json value, uint64_t bits,
                        uint64_t padded, const struct gb_path *up, struct gb_buffer *buffer);

/* Elements of a whole number of bytes start at multiples of their size, other data anywhere. */
uint64_t gb_layout_data_align(const struct gb_dtype *dtype);

/* Reads one column, `depth` levels down (1: outermost, or of a table). */
int gb_layout_read_column(struct gb_layout_reader *reader, struct gb_json value,
                          enum gb_column_place place, unsigned depth, const struct gb_path *path,
                          struct gb_column *column);

/* Reads `metadata`, which may be absent, of what is at `up`. */
int gb_layout_read_metadata(struct gb_layout_reader *reader, struct gb_json value,
                            const struct gb_path *up, struct gb_column *column);

/* Reads an array of columns into the parent's children. */
int gb_layout_read_columns(struct gb_layout_reader *reader, struct gb_json value,
                           enum gb_column_place place, unsigned depth, const struct gb_path *path,
                           struct gb_column *parent);

#endif
