/* Record batches of a stream become one array, since a published column is in one piece. */
#include "client/python/src/concat.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "client/python/src/bits.h"

/* Elements [start, start + length) of an array's buffers. */
struct span {
    const struct ArrowArray *array;
    int64_t start, length;
};

/* ---- results, each the owner of its memory ---- */

struct joined {
    void *buffers[3];
    struct ArrowArray *children;
    struct ArrowArray **pointers;
};

static void joined_release(struct ArrowArray *array)
{
    struct joined *joined = array->private_data;

    for (int64_t i = 0; i < array->n_children; i++) {
        if (array->children[i]->release)
            array->children[i]->release(array->children[i]);
    }
    if (array->dictionary && array->dictionary->release)
        array->dictionary->release(array->dictionary);
    for (int i = 0; i < 3; i++)
        free(joined->buffers[i]);
    free(joined->children);
    free(joined->pointers);
    free(joined);
    array->release = NULL;
}

static int no_memory(void)
{
    PyErr_NoMemory();
    return -1;
}

static int joined_begin(struct ArrowArray *out, size_t children, bool dictionary)
{
    struct joined *joined = calloc(1, sizeof(*joined));
    size_t nodes = children + dictionary;

    *out = (struct ArrowArray){.release = NULL};
    if (!joined)
        return no_memory();
    joined->children = calloc(nodes + 1, sizeof(*joined->children));
    joined->pointers = calloc(nodes + 1, sizeof(struct ArrowArray *));
    *out = (struct ArrowArray){
        .buffers = (const void **)joined->buffers,
        .children = joined->pointers,
        .release = joined_release,
        .private_data = joined,
    };
    if (!joined->children || !joined->pointers)
        return no_memory();
    for (size_t i = 0; i < nodes; i++)
        joined->pointers[i] = &joined->children[i];
    out->n_children = (int64_t)children;
    if (dictionary)
        out->dictionary = joined->pointers[children];
    return 0;
}

static void *joined_buffer(struct ArrowArray *out, int which, size_t bytes)
{
    void *buffer = calloc(1, bytes + 8);

    if (!buffer)
        PyErr_NoMemory();
    ((struct joined *)out->private_data)->buffers[which] = buffer;
    return buffer;
}

/* ---- formats ---- */

/* Bits of an element; 0 for those that are not of a fixed width. */
static int64_t width_of(const char *format)
{
    static const struct {
        const char *formats;
        int bits;
    } simple[] = {{"b", 1}, {"cC", 8}, {"sSe", 16}, {"iIf", 32}, {"lLg", 64}};
    if (format[0] && !format[1]) {
        for (size_t i = 0; i < sizeof(simple) / sizeof(simple[0]); i++) {
            if (strchr(simple[i].formats, format[0]))
                return simple[i].bits;
        }
        return 0;
    }
    if (strncmp(format, "w:", 2) == 0) {
        long long bytes = strtoll(format + 2, NULL, 10);
        return bytes > 0 && bytes < INT_MAX ? bytes * 8 : 0;
    }
    if (strncmp(format, "d:", 2) == 0) {
        const char *comma = strchr(format, ',');
        const char *second = comma ? strchr(comma + 1, ',') : NULL;
        return !second || strcmp(second, ",128") == 0 ? 128 : 0;
    }
    if (strcmp(format, "tdD") == 0 || strcmp(format, "tts") == 0 || strcmp(format, "ttm") == 0 ||
        strcmp(format, "tiM") == 0)
        return 32;
    if (strcmp(format, "tin") == 0)
        return 128;
    return format[0] == 't' ? 64 : 0;
}

/* ---- joining ---- */

static int join(const struct ArrowSchema *schema, const struct span *spans, size_t count,
                struct ArrowArray *out);

static const unsigned char *mask_of(const struct span *span)
{
    const struct ArrowArray *array = span->array;

    return array->null_count != 0 && array->n_buffers > 0 ? array->buffers[0] : NULL;
}

static int join_masks(const struct span *spans, size_t count, struct ArrowArray *out)
{
    bool any = false;

    for (size_t i = 0; i < count; i++)
        any = any || mask_of(&spans[i]);
    if (!any)
        return 0;
    unsigned char *mask = joined_buffer(out, 0, (size_t)out->length / 8 + 1);
    if (!mask)
        return -1;
    int64_t at = 0;
    for (size_t i = 0; i < count; i++) {
        const unsigned char *from = mask_of(&spans[i]);
        if (from)
            copy_bits(mask, at, from, spans[i].start, spans[i].length);
        for (int64_t j = 0; !from && j < spans[i].length; j++)
            mask[(at + j) / 8] |= (unsigned char)(1u << ((at + j) % 8));
        at += spans[i].length;
    }
    out->null_count = -1;
    return 0;
}

static int join_fixed(int64_t bits, const struct span *spans, size_t count, struct ArrowArray *out)
{
    size_t bytes;

    if (__builtin_mul_overflow((size_t)out->length, (size_t)(bits + 7) / 8, &bytes))
        return no_memory();
    char *data = joined_buffer(out, 1, bytes);
    if (!data)
        return -1;
    out->n_buffers = 2;
    int64_t at = 0;
    for (size_t i = 0; i < count; i++) {
        const char *from = spans[i].array->buffers[1];
        if (spans[i].length == 0)
            continue;
        if (bits == 1) {
            copy_bits((unsigned char *)data, at, (const unsigned char *)from, spans[i].start,
                      spans[i].length);
        } else {
            size_t size = (size_t)bits / 8;
            memcpy(data + (size_t)at * size, from + (size_t)spans[i].start * size,
                   (size_t)spans[i].length * size);
        }
        at += spans[i].length;
    }
    return 0;
}

static int64_t offset_at(const struct span *span, int64_t i, bool wide)
{
    const void *offsets = span->array->buffers[1];

    if (span->length == 0)
        return 0;
    return wide ? ((const int64_t *)offsets)[span->start + i]
                : ((const int32_t *)offsets)[span->start + i];
}

/* Joins offsets, counted from 0; `inner` gets the span of items or characters of each span. */
static int join_offsets(bool wide, const struct span *spans, size_t count, struct ArrowArray *out,
                        struct span *inner)
{
    size_t width = wide ? 8 : 4;
    char *offsets = joined_buffer(out, 1, ((size_t)out->length + 1) * width);

    if (!offsets)
        return -1;
    int64_t base = 0, at = 0;
    for (size_t i = 0; i < count; i++) {
        int64_t first = offset_at(&spans[i], 0, wide);
        int64_t last = offset_at(&spans[i], spans[i].length, wide);
        if (first < 0 || last < first) {
            PyErr_SetString(PyExc_ValueError, "an Arrow array's offsets go backwards");
            return -1;
        }
        for (int64_t j = 1; j <= spans[i].length; j++) {
            int64_t value = base + offset_at(&spans[i], j, wide) - first;
            int32_t narrow = (int32_t)value;
            memcpy(offsets + (size_t)(at + j) * width, wide ? (void *)&value : (void *)&narrow,
                   width);
        }
        inner[i] = (struct span){spans[i].array, first, last - first};
        at += spans[i].length;
        base += last - first;
    }
    if (!wide && base > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError,
                        "the batches together have more than 2**31 - 1 characters "
                        "or items; cast to a large_ type first");
        return -1;
    }
    return 0;
}

static int join_strings(bool wide, const struct span *spans, size_t count, struct ArrowArray *out,
                        struct span *inner)
{
    if (join_offsets(wide, spans, count, out, inner) < 0)
        return -1;
    size_t total = 0;
    for (size_t i = 0; i < count; i++)
        total += (size_t)inner[i].length;
    char *data = joined_buffer(out, 2, total);
    if (!data)
        return -1;
    out->n_buffers = 3;
    for (size_t i = 0; i < count; i++) {
        if (inner[i].length == 0)
            continue;
        memcpy(data, (const char *)inner[i].array->buffers[2] + inner[i].start,
               (size_t)inner[i].length);
        data += inner[i].length;
    }
    return 0;
}

/* Joins child `which` of the spans' arrays, with `scale` elements for one of the parent. */
static int join_child(const struct ArrowSchema *schema, size_t which, const struct span *spans,
                      size_t count, int64_t scale, struct ArrowArray *out, struct span *inner)
{
    for (size_t i = 0; i < count; i++) {
        const struct ArrowArray *child = spans[i].array->children[which];
        int64_t start = spans[i].start * scale, length = spans[i].length * scale;
        if (length > child->length || start > child->length - length) {
            PyErr_SetString(PyExc_ValueError, "an Arrow child is shorter than its parent");
            return -1;
        }
        inner[i] = (struct span){child, child->offset + start, length};
    }
    return join(schema->children[which], inner, count, out->children[which]);
}

static int join_lists(const struct ArrowSchema *schema, const struct span *spans, size_t count,
                      struct ArrowArray *out, struct span *inner)
{
    struct span *taken = calloc(count + 1, sizeof(*taken));

    if (!taken)
        return no_memory();
    int r = join_offsets(schema->format[1] == 'L', spans, count, out, taken);
    out->n_buffers = 2;
    if (r == 0)
        r = join_child(schema, 0, taken, count, 1, out, inner);
    free(taken);
    return r;
}

/* Whether two dictionaries surely have the same values in the same order. */
static bool same_dictionary(const char *format, const struct ArrowArray *a,
                            const struct ArrowArray *b)
{
    if (a == b)
        return true;
    if (a->length != b->length || a->offset != b->offset || a->n_buffers != b->n_buffers ||
        a->null_count != 0 || b->null_count != 0)
        return false;
    int64_t bits = width_of(format), end = a->offset + a->length;
    if (bits >= 8)
        return a->buffers[1] == b->buffers[1] ||
               memcmp(a->buffers[1], b->buffers[1], (size_t)(end * bits / 8)) == 0;
    if (!strchr("uzUZ", format[0]) || format[1])
        return false;
    bool wide = format[0] == 'U' || format[0] == 'Z';
    if (memcmp(a->buffers[1], b->buffers[1], (size_t)(end + 1) * (wide ? 8 : 4)) != 0)
        return false;
    struct span span = {a, 0, end};
    int64_t characters = offset_at(&span, end, wide);
    return characters == 0 || memcmp(a->buffers[2], b->buffers[2], (size_t)characters) == 0;
}

static int join_dictionary(const struct ArrowSchema *schema, const struct span *spans, size_t count,
                           struct ArrowArray *out)
{
    if (count == 0)
        return join(schema->dictionary, NULL, 0, out->dictionary);
    const struct ArrowArray *first = spans[0].array->dictionary;
    for (size_t i = 1; i < count; i++) {
        if (!same_dictionary(schema->dictionary->format, first, spans[i].array->dictionary)) {
            PyErr_SetString(PyExc_ValueError,
                            "the batches have different dictionaries; unify them first (of a "
                            "pyarrow table: unify_dictionaries())");
            return -1;
        }
    }
    struct span all = {first, first->offset, first->length};
    return join(schema->dictionary, &all, 1, out->dictionary);
}

/* The buffers after the validity bitmap. */
static int join_content(const struct ArrowSchema *schema, const struct span *spans, size_t count,
                        struct ArrowArray *out, struct span *inner)
{
    const char *format = schema->format;
    int64_t bits = width_of(format);

    if (bits > 0)
        return join_fixed(bits, spans, count, out);
    if (strchr("uzUZ", format[0]) && !format[1])
        return join_strings(format[0] == 'U' || format[0] == 'Z', spans, count, out, inner);
    if (strcmp(format, "+l") == 0 || strcmp(format, "+L") == 0 || strcmp(format, "+m") == 0)
        return join_lists(schema, spans, count, out, inner);
    int64_t scale = strncmp(format, "+w:", 3) == 0 ? strtoll(format + 3, NULL, 10) : 1;
    if (strcmp(format, "+s") != 0 && strncmp(format, "+w:", 3) != 0) {
        PyErr_Format(PyExc_TypeError, "Arrow format \"%s\" is not supported; cast it first",
                     format);
        return -1;
    }
    int r = 0;
    out->n_buffers = 1;
    for (int64_t i = 0; r == 0 && i < schema->n_children; i++)
        r = join_child(schema, (size_t)i, spans, count, scale, out, inner);
    return r;
}

static int join(const struct ArrowSchema *schema, const struct span *spans, size_t count,
                struct ArrowArray *out)
{
    int64_t total = 0;

    for (size_t i = 0; i < count; i++) {
        const struct ArrowArray *array = spans[i].array;
        if (array->n_children != schema->n_children ||
            (array->dictionary != NULL) != (schema->dictionary != NULL) ||
            __builtin_add_overflow(total, spans[i].length, &total)) {
            PyErr_SetString(PyExc_ValueError, "an Arrow array does not fit its schema");
            return -1;
        }
    }
    if (joined_begin(out, (size_t)schema->n_children, schema->dictionary != NULL) < 0)
        return -1;
    out->length = total;
    if (strcmp(schema->format, "n") == 0) {
        out->null_count = total;
        return 0;
    }
    struct span *inner = calloc(count + 1, sizeof(*inner));
    if (!inner)
        return no_memory();
    int r = join_masks(spans, count, out);
    if (r == 0)
        r = join_content(schema, spans, count, out, inner);
    if (r == 0 && schema->dictionary)
        r = join_dictionary(schema, spans, count, out);
    free(inner);
    return r;
}

int concat_arrays(const struct ArrowSchema *schema, const struct ArrowArray *const *arrays,
                  size_t count, struct ArrowArray *out)
{
    struct span *spans = calloc(count + 1, sizeof(*spans));

    *out = (struct ArrowArray){.release = NULL};
    if (!spans)
        return no_memory();
    for (size_t i = 0; i < count; i++)
        spans[i] = (struct span){arrays[i], arrays[i]->offset, arrays[i]->length};
    int r = join(schema, spans, count, out);
    free(spans);
    if (r < 0 && out->release)
        out->release(out);
    return r;
}
