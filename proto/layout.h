/*
 * Layouts: types and shapes over buffers. Reading them from messages with complete validation,
 * computing the sizes that are fixed by type and length, placing, slicing, and writing. Both the
 * daemon and the library read with this, so that neither trusts the other. Pure; any thread.
 *
 * Everything that a read layout points to lies in the pool it was read into.
 *
 * The parts of columns, by type (types and their figures: dtype.h):
 *   fixed width      mask?, data of (offset + length) elements; bool: bits
 *   strings          mask?, offsets of (offset + length + 1) integers, data
 *   list, large_list mask?, offsets likewise; one child of any length
 *   map              as list; the child is a struct of two fields, key and value
 *   fixed_list(n)    mask?; one child of at least (offset + length) * n elements
 *   struct           mask?; children of at least offset + length elements, each with a name
 *   dictionary       nothing of its own; two children: the indices, of an integer type and at least
 *                    offset + length elements, and the values. Element i is value number
 *                    indices[offset + i], and the indices' mask says whether it is null (an Arrow
 *                    dictionary array's validity and data are exactly the indices' buffers). The
 *                    column's null_count counts the same nulls once more.
 *   null             nothing
 * Offsets are there also for no elements at all (one integer), other than in Arrow.
 */
#ifndef GB_LAYOUT_H
#define GB_LAYOUT_H

#include "dtype.h"
#include "json.h"

enum gb_kind { GB_KIND_BYTES, GB_KIND_ARRAY, GB_KIND_COLUMN, GB_KIND_TABLE, GB_KIND_BUNDLE };

#define GB_BUFFER_ALIGN 256u /* where buffers start */
#define GB_MASK_PAD 64u      /* what a mask's bytes are rounded up to */
#define GB_BUNDLE_PREFIX 8u  /* of a bundle's content: how long its manifest is, little-endian */
#define GB_BUNDLE_ALIGN 8u   /* where a bundle may start at all: no element needs more */

struct gb_buffer {
    bool present;
    uint64_t segment; /* an id; in `register`, an index into handles; in `create`, unused */
    uint64_t offset;  /* in the segment; after gb_layout_measure, in the object */
    uint64_t bytes;
};

struct gb_pair {
    const char *key, *value;
};

struct gb_column {
    const char *name; /* in a table or struct; NULL elsewhere */
    struct gb_dtype dtype;
    uint64_t length, offset;
    int64_t null_count; /* -1: unknown; always 0 where there is no mask, but for dtype null */
    struct gb_buffer data, mask, offsets;
    struct gb_column *children;
    uint32_t child_count;
    struct gb_pair *metadata;
    uint32_t metadata_count;
};

struct gb_layout {
    enum gb_kind kind;
    uint64_t bytes;          /* bytes, bundle */
    uint64_t manifest_bytes; /* bundle: what follows the first 8 bytes; never 0, and lies inside */
    struct gb_string *parts; /* bundle: the arrays that readers are told of (NULL: all); one that
                                ends in * stands for all whose names begin so */
    size_t part_count;
    unsigned ndim; /* array */
    uint64_t *shape;
    int64_t *strides; /* in bytes, from item to item; always filled in by reading */
    bool c_order;     /* the strides are those of C order and need not be written */
    /* column: itself. table: length, children and metadata, with dtype struct. array: dtype,
       data, mask, length = number of elements, offset = the first element's bit in the mask (0
       but for slices), null_count = -1 with a mask. bytes and bundle: data, with dtype uint8 and
       length = bytes. */
    struct gb_column column;
};

/* How buffers look in the message. */
enum gb_layout_form {
    GB_LAYOUT_CREATE,   /* {"bytes":n}; what dtype, offset and length fix may be left out */
    GB_LAYOUT_REGISTER, /* {"handle":i,"offset","bytes"} */
    GB_LAYOUT_REPLY,    /* {"segment":id,"offset","bytes"} */
    GB_LAYOUT_WITHIN, /* {"offset","bytes"}, of another buffer: gb_layout_read_within; only read */
};

/*
 * Reads and validates. Types known, shapes and sizes without overflow (all below 2^52, and so is
 * what all buffers have together), every
 * buffer long enough for offset + length (a mask need not be padded), start aligned to its element
 * (text, fixed_binary, bool and masks: to a byte), the right buffers and children for the type,
 * columns of a table as long as the table, names of columns unique and UTF-8, nesting and number of
 * columns bounded, null_count at most length, and not above 0 without a mask (a null_count of -1
 * without a mask is read as 0; columns of dtype null may have any). Strides must be multiples of
 * the element size, at least 0, and stay inside the buffer; those of C order (axes of one element
 * aside) are read as exactly those of C order.
 * CREATE: sizes left out are filled in (masks padded) and given ones must not be smaller; strides
 * must be absent or C order. REPLY: unknown members are ignored; else they are refused. REGISTER:
 * gb_layout_check_handles has the rest.
 * Packed elements (gb_dtype_packed) are those of arrays alone, with an axis; the last one holds
 * whole bytes, and its stride is 1.
 * GPUBUF_E_INVALID or GPUBUF_E_LIMIT with the path of what is wrong; GPUBUF_E_NO_MEMORY. *layout is
 * written on success only.
 */
int gb_layout_read(struct gb_json value, enum gb_layout_form form, const struct gb_path *path,
                   struct gb_pool *pool, struct gb_layout *layout, struct gb_error *error);

/* Reads one whose buffers are ranges of `buffer`, as REGISTER reads one of handles: they then lie
   in its segment. Each is aligned there. */
int gb_layout_read_within(struct gb_json value, const struct gb_buffer *buffer,
                          const struct gb_path *path, struct gb_pool *pool,
                          struct gb_layout *layout, struct gb_error *error);

/* Checks and reads a text that gb_layout_write made in form REPLY. GPUBUF_E_PARSE too. */
int gb_layout_parse(const char *text, size_t length, const struct gb_path *path,
                    struct gb_pool *pool, struct gb_layout *layout, struct gb_error *error);

/* The bytes that a column's buffers need for offset + length elements, masks padded (0 where the
   type has no such buffer; data of strings as it stands). Arrays: for C order. Bytes through the
   layout's column. False if a figure is 2^52 or more; outputs are then untouched. */
bool gb_column_sizes(const struct gb_column *column, uint64_t *data, uint64_t *mask,
                     uint64_t *offsets);

/*
 * Sets how many of the column's elements are null, -1 being unknown; 0 where none can be: without a
 * mask, which a dictionary's indices have. GPUBUF_E_INVALID with `path` in front: more than the
 * length, or above 0 where none can be. The one rule for what is read and for what `seal` is told.
 */
int gb_column_count_nulls(struct gb_column *column, int64_t count, const struct gb_path *path,
                          struct gb_error *error);

/*
 * Gives every present buffer an offset within one stretch of memory, aligned to GB_BUFFER_ALIGN (0
 * for those of 0 bytes), and pads masks; *total is the stretch's size (0 possible).
 * GPUBUF_E_INVALID if that is 2^52 or more; the layout is then half placed.
 */
int gb_layout_measure(struct gb_layout *layout, uint64_t *total, struct gb_error *error);

/* Calls `each` for every present buffer, depth first (mask, offsets, data, children), until it
   returns non-zero (returned). */
int gb_layout_each(struct gb_layout *layout, int (*each)(struct gb_buffer *buffer, void *arg),
                   void *arg);

/*
 * For REGISTER: whether every present buffer names one of `count` handles and lies inside it
 * (`bytes` are the handles' sizes). GPUBUF_E_INVALID with the buffer's path, `path` being the
 * layout's.
 */
int gb_layout_check_handles(const struct gb_layout *layout, const uint64_t *bytes, size_t count,
                            const struct gb_path *path, struct gb_error *error);

/* The extent that gb_layout_slice counts in: rows, elements, extent of the first axis (1 for 0-d),
   bytes. */
uint64_t gb_layout_length(const struct gb_layout *layout);

/*
 * Narrows to elements [offset, offset + length) (rows, first axis, bytes): what `alias` does.
 * Columns and tables keep their buffers and change offset and length; arrays and bytes narrow their
 * buffers. The layout is changed in place. A null_count other than 0 and the length
 * becomes -1, except that a slice of the whole range keeps it. GPUBUF_E_INVALID past the end, for
 * an array of 0 axes, for packed elements that are no whole bytes, and for a part of a bundle.
 */
int gb_layout_slice(struct gb_layout *layout, uint64_t offset, uint64_t length,
                    const struct gb_path *path, struct gb_error *error);

/* Narrows one column likewise; the range must lie inside. */
void gb_column_slice(struct gb_column *column, uint64_t offset, uint64_t length);

/* Keeps the named columns of a table, in that order. GPUBUF_E_INVALID: not a table, no such column,
   named twice. `path` is that of the array of names. */
int gb_layout_select(struct gb_layout *layout, const struct gb_string *names, size_t count,
                     const struct gb_path *path, struct gb_pool *pool, struct gb_error *error);

/* Writes the layout as replies have it; for CREATE without places (the form that requests take).
   Members that have their default value are left out. */
void gb_layout_write(struct gb_writer *writer, const struct gb_layout *layout,
                     enum gb_layout_form form);

/* Whether a name of an object is well-formed: 0, else GPUBUF_E_INVALID and what is wrong. */
int gb_name_check(const char *name, size_t length, const struct gb_path *path,
                  struct gb_error *error);

#endif
