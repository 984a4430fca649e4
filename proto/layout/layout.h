/*
 * Layouts: types and shapes over buffers. Reads them from messages with complete validation,
 * computes the sizes that follow from type and length, places, slices and writes them. Both the
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
 * Other than in Arrow, a column of no elements has one offset, too.
 */
#ifndef GB_LAYOUT_H
#define GB_LAYOUT_H

#include "proto/layout/dtype.h"
#include "proto/wire/json.h"

enum gb_kind { GB_KIND_BYTES, GB_KIND_ARRAY, GB_KIND_COLUMN, GB_KIND_TABLE, GB_KIND_BUNDLE };

#define GB_BUFFER_ALIGN 256u /* where buffers start */
#define GB_MASK_PAD 64u      /* a mask's bytes are rounded up to a multiple of this */
#define GB_BUNDLE_PREFIX 8u  /* bytes before a bundle's manifest: its length, little-endian */
#define GB_BUNDLE_ALIGN 8u   /* where a bundle may start: no element needs more */

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
    unsigned ndim;           /* array */
    uint64_t *shape;
    int64_t *strides; /* in bytes, from item to item; always filled in by reading */
    bool c_order;     /* the strides are those of C order and need not be written */
    /* Of a column, the column itself. Of a table: length, children and metadata, with dtype struct.
       Of an array: dtype, data, mask, length = number of elements, offset = the first element's bit
       in the mask (0 unless it was sliced), null_count = -1 with a mask. Of bytes and bundles:
       data, with dtype uint8 and length = bytes. */
    struct gb_column column;
};

/* The form of buffers in the message. */
enum gb_layout_form {
    GB_LAYOUT_CREATE,   /* {"bytes":n}; may be left out where dtype, offset and length fix it */
    GB_LAYOUT_REGISTER, /* {"handle":i,"offset","bytes"} */
    GB_LAYOUT_REPLY,    /* {"segment":id,"offset","bytes"} */
};

/*
 * Reads and validates:
 * - Types are known. The right buffers and children for the type are there.
 * - Shapes and sizes do not overflow: all are below 2^52, and so is the sum of all buffers.
 * - Every buffer is long enough for offset + length (a mask need not be padded), and starts aligned
 *   to its element (text, fixed_binary, bool and masks: to a byte).
 * - Columns of a table are as long as the table. Names of columns are unique and UTF-8. Nesting and
 *   number of columns are bounded.
 * - null_count is at most length, and not above 0 without a mask. A null_count of -1 without a mask
 *   is read as 0. Columns of dtype null may have any.
 * - Strides are multiples of the element size, at least 0, and stay inside the buffer. Those that
 *   are of C order (axes of one element aside) are read as exactly those of C order.
 * - Only arrays have packed elements (gb_dtype_packed). They need an axis; the last axis holds
 *   whole bytes, and its stride is 1.
 * CREATE: sizes left out are filled in (masks padded) and given ones must not be smaller; strides
 * must be absent or C order. REPLY: unknown members are ignored; else they are refused. REGISTER:
 * gb_layout_check_handles checks the rest.
 * GPUBUF_E_INVALID or GPUBUF_E_LIMIT with the path of what is wrong; GPUBUF_E_NO_MEMORY. *layout is
 * written on success only.
 */
int gb_layout_read(struct gb_json value, enum gb_layout_form form, const struct gb_path *path,
                   struct gb_pool *pool, struct gb_layout *layout, struct gb_error *error);

/* Checks and reads a text that gb_layout_write made in form REPLY. GPUBUF_E_PARSE too. */
int gb_layout_parse(const char *text, size_t length, const struct gb_path *path,
                    struct gb_pool *pool, struct gb_layout *layout, struct gb_error *error);

/* The bytes that a column's buffers need for offset + length elements, masks padded (0 where the
   type has no such buffer; data of strings as it stands). Of an array's column, for C order. False
   if a figure is 2^52 or more; outputs are then untouched. */
bool gb_column_sizes(const struct gb_column *column, uint64_t *data, uint64_t *mask,
                     uint64_t *offsets);

/*
 * Sets how many of the column's elements are null (-1: unknown). Without a mask none can be null,
 * and the count becomes 0; a dictionary's mask is that of its indices. GPUBUF_E_INVALID with `path`
 * in front: more than the length, or above 0 without a mask. Reading a layout and `seal` both use
 * this rule.
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
 * (`bytes` are the handles' sizes). GPUBUF_E_INVALID with the buffer's path; `path` is that of the
 * layout.
 */
int gb_layout_check_handles(const struct gb_layout *layout, const uint64_t *bytes, size_t count,
                            const struct gb_path *path, struct gb_error *error);

/* The extent that gb_layout_slice counts in: rows, elements, extent of the first axis (1 for 0-d),
   bytes. */
uint64_t gb_layout_length(const struct gb_layout *layout);

/* How many items (gb_dtype_items) an array's axis has. */
uint64_t gb_layout_items(const struct gb_layout *layout, unsigned axis);

/*
 * Narrows to elements [offset, offset + length) (rows, first axis, bytes): what `alias` does.
 * Columns and tables keep their buffers and change offset and length; arrays and bytes narrow their
 * buffers. The layout is changed in place. The null_count becomes -1 where it cannot be known.
 * GPUBUF_E_INVALID past the end, for an array of 0 axes, for packed elements that are no whole
 * bytes, and for a part of a bundle.
 */
int gb_layout_slice(struct gb_layout *layout, uint64_t offset, uint64_t length,
                    const struct gb_path *path, struct gb_error *error);

/* Narrows one column in the same way; the range must lie inside. */
void gb_column_slice(struct gb_column *column, uint64_t offset, uint64_t length);

/* Keeps the named columns of a table, in that order. GPUBUF_E_INVALID: not a table, no such column,
   named twice. `path` is that of the array of names. */
int gb_layout_select(struct gb_layout *layout, const struct gb_string *names, size_t count,
                     const struct gb_path *path, struct gb_pool *pool, struct gb_error *error);

/* Writes the layout with buffers in that form: CREATE is what requests take. Members that have
   their default value are left out. */
void gb_layout_write(struct gb_writer *writer, const struct gb_layout *layout,
                     enum gb_layout_form form);

/* Whether an object's name is well-formed: 0, or GPUBUF_E_INVALID and what is wrong. */
int gb_name_check(const char *name, size_t length, const struct gb_path *path,
                  struct gb_error *error);

#endif
