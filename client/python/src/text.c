#include "client/python/src/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GIL_EVERY 32768 /* values between two chances for other threads */

/* In the limited API only since 3.10, and the same in all versions before. */
extern const char *PyUnicode_AsUTF8AndSize(PyObject *text, Py_ssize_t *size);

static void let_others_run(Py_ssize_t i)
{
    if (i % GIL_EVERY == GIL_EVERY - 1)
        WITHOUT_GIL();
}

/* ---- from Python ---- */

enum kind { ABSENT, TEXT, BYTES, NAN_FLOAT, OTHER };

static enum kind kind_of(PyObject *value, PyObject *missing)
{
    if (PyUnicode_Check(value))
        return TEXT;
    if (value == Py_None)
        return ABSENT;
    if (PyBytes_Check(value))
        return BYTES;
    if (PyFloat_Check(value) && isnan(PyFloat_AsDouble(value)))
        return NAN_FLOAT;
    for (Py_ssize_t i = 0; i < PyTuple_Size(missing); i++)
        if ((PyObject *)Py_TYPE(value) == PyTuple_GetItem(missing, i))
            return ABSENT;
    return OTHER;
}

/* A str's UTF-8, or bytes. NULL without an exception: the str has no UTF-8. */
static const char *characters(PyObject *value, enum kind kind, Py_ssize_t *size)
{
    const char *text = NULL;

    *size = 0;
    if (kind == TEXT) {
        text = PyUnicode_AsUTF8AndSize(value, size);
        if (!text && PyErr_ExceptionMatches(PyExc_UnicodeError))
            PyErr_Clear();
    } else {
        *size = PyBytes_Size(value);
        text = PyBytes_AsString(value);
    }
    return text;
}

struct measured {
    enum kind kind; /* TEXT or BYTES; ABSENT: there is neither */
    bool fits;      /* all values are of that kind, or missing */
    Py_ssize_t nulls;
    uint64_t bytes;
};

static struct measured measure(PyObject *values, PyObject *missing)
{
    struct measured found = {.kind = ABSENT, .fits = true};
    bool nan = false;
    Py_ssize_t count = PyTuple_Size(values);

    for (Py_ssize_t i = 0; i < count && found.fits; i++) {
        PyObject *value = PyTuple_GetItem(values, i);
        enum kind kind = kind_of(value, missing);
        nan |= kind == NAN_FLOAT;
        if (kind == ABSENT || kind == NAN_FLOAT) {
            found.nulls++;
        } else {
            Py_ssize_t size = 0;
            if (found.kind == ABSENT)
                found.kind = kind;
            found.fits = kind != OTHER && kind == found.kind && characters(value, kind, &size);
            found.bytes += (uint64_t)size;
        }
        let_others_run(i);
    }
    if (found.kind == ABSENT || (nan && found.kind != TEXT))
        found.fits = false;
    return found;
}

static void fill(PyObject *values, PyObject *missing, const struct measured *found, char *data,
                 char *offsets, unsigned char *mask)
{
    bool wide = found->bytes > INT32_MAX;
    uint64_t end = 0;
    Py_ssize_t count = PyTuple_Size(values);

    for (Py_ssize_t i = 0; i <= count; i++) {
        int32_t narrow = (int32_t)end;
        memcpy(offsets + (size_t)i * (wide ? 8 : 4), wide ? (void *)&end : (void *)&narrow,
               wide ? 8 : 4);
        if (i == count)
            break;
        PyObject *value = PyTuple_GetItem(values, i);
        if (kind_of(value, missing) == found->kind) {
            Py_ssize_t size;
            const char *text = characters(value, found->kind, &size);
            if (size > 0)
                memcpy(data + end, text, (size_t)size);
            end += (uint64_t)size;
            if (mask)
                mask[i / 8] |= (unsigned char)(1u << (i % 8));
        }
        let_others_run(i);
    }
}

static PyObject *buffers_of(PyObject *values, PyObject *missing, const struct measured *found)
{
    Py_ssize_t count = PyTuple_Size(values), width = found->bytes > INT32_MAX ? 8 : 4;
    PyObject *offsets = PyBytes_FromStringAndSize(NULL, (count + 1) * width);
    PyObject *data = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)found->bytes);
    PyObject *mask =
        found->nulls ? PyBytes_FromStringAndSize(NULL, (count + 7) / 8) : new_ref(Py_None);
    PyObject *result = NULL;

    if (offsets && data && mask) {
        unsigned char *bits = found->nulls ? (unsigned char *)PyBytes_AsString(mask) : NULL;
        if (bits)
            memset(bits, 0, (size_t)(count + 7) / 8);
        fill(values, missing, found, PyBytes_AsString(data), PyBytes_AsString(offsets), bits);
        result = Py_BuildValue("OnOOO", found->kind == TEXT ? Py_True : Py_False, found->nulls,
                               mask, offsets, data);
    }
    Py_XDECREF(offsets);
    Py_XDECREF(data);
    Py_XDECREF(mask);
    return result;
}

PyObject *core_text_of(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *list, *missing;
    if (!PyArg_ParseTuple(args, "O!O!:text_of", &PyList_Type, &list, &PyTuple_Type, &missing))
        return NULL;
    PyObject *values = PyList_AsTuple(list); /* which other threads cannot change meanwhile */
    if (!values)
        return NULL;
    struct measured found = measure(values, missing);
    PyObject *result = NULL;
    if (!PyErr_Occurred())
        result = found.fits ? buffers_of(values, missing, &found) : new_ref(Py_None);
    Py_DECREF(values);
    return result;
}

/* ---- to Python ---- */

struct column {
    bool text, wide;
    Py_buffer offsets, data, mask;
    long long start, length;
};

static int64_t offset_at(const struct column *column, long long i)
{
    const char *at = (const char *)column->offsets.buf + i * (column->wide ? 8 : 4);
    int64_t wide;
    int32_t narrow;

    memcpy(column->wide ? (void *)&wide : (void *)&narrow, at, column->wide ? 8 : 4);
    return column->wide ? wide : narrow;
}

/* Recent strings, by a hash: columns repeat values, and finding one costs less than making one. */
#define RECENT_BITS_MAX 12 /* with a few hundred values hardly two are in one slot */

struct slot {
    const char *text;
    Py_ssize_t size;
    PyObject *value; /* a reference */
};

struct recent {
    struct slot *slots; /* 1 << bits: no more than there are elements, or a few */
    unsigned bits;
};

static int recent_begin(struct recent *recent, long long elements)
{
    recent->bits = 4;
    while (recent->bits < RECENT_BITS_MAX && 1ll << recent->bits < elements)
        recent->bits++;
    recent->slots = calloc((size_t)1 << recent->bits, sizeof(*recent->slots));
    if (recent->slots)
        return 0;
    PyErr_NoMemory();
    return -1;
}

static void recent_end(struct recent *recent)
{
    for (size_t i = 0; i < (size_t)1 << recent->bits; i++)
        Py_XDECREF(recent->slots[i].value);
    free(recent->slots);
}

static struct slot *slot_of(const struct recent *recent, const char *text, Py_ssize_t size)
{
    uint64_t head = 0, tail = 0;
    size_t some = size < 8 ? (size_t)size : 8;

    memcpy(&head, text, some);
    memcpy(&tail, text + size - some, some);
    uint64_t hash = head * 0x9e3779b97f4a7c15 ^ tail * 0xc2b2ae3d27d4eb4f ^ (uint64_t)size;
    return recent->slots + (hash * 0xff51afd7ed558ccd >> (64 - recent->bits));
}

static PyObject *value_of(const struct column *column, struct recent *recent, const char *text,
                          Py_ssize_t size)
{
    struct slot *slot = slot_of(recent, text, size);

    if (slot->value && slot->size == size && memcmp(slot->text, text, (size_t)size) == 0)
        return new_ref(slot->value);
    PyObject *value = column->text ? PyUnicode_DecodeUTF8(text, size, "surrogateescape")
                                   : PyBytes_FromStringAndSize(text, size);
    if (value) {
        Py_XDECREF(slot->value);
        *slot = (struct slot){text, size, new_ref(value)};
    }
    return value;
}

/* `*end`: where the elements before it ended. So all together are no more than the data. */
static PyObject *element(const struct column *column, struct recent *recent, long long i,
                         int64_t *end)
{
    const unsigned char *mask = column->mask.buf;

    if (mask && !(mask[i / 8] >> (i % 8) & 1))
        return new_ref(Py_None);
    int64_t from = offset_at(column, i), to = offset_at(column, i + 1);
    if (from < *end || to < from || to > column->data.len)
        return PyErr_Format(PyExc_ValueError, "the offsets %lld to %lld are not within %lld to %zd",
                            (long long)from, (long long)to, (long long)*end, column->data.len);
    *end = to;
    return value_of(column, recent, (const char *)column->data.buf + from, (Py_ssize_t)(to - from));
}

static bool has_all(const struct column *column)
{
    long long end = column->start + column->length;

    return column->start >= 0 && column->length >= 0 &&
           column->offsets.len / (column->wide ? 8 : 4) > end &&
           (!column->mask.buf || column->mask.len * 8 >= end);
}

/* Puts the elements into a list, or into memory that holds references to objects. */
static int put_elements(const struct column *column, PyObject *list, PyObject **objects)
{
    struct recent recent;
    int64_t end = 0;
    int r = recent_begin(&recent, column->length);

    if (r < 0)
        return r;
    for (long long i = 0; r == 0 && i < column->length; i++) {
        PyObject *value = element(column, &recent, column->start + i, &end);
        if (!value) {
            r = -1;
        } else if (list) {
            r = PyList_SetItem(list, (Py_ssize_t)i, value);
        } else {
            PyObject *before = objects[i];
            objects[i] = value;
            Py_XDECREF(before);
        }
        let_others_run((Py_ssize_t)i);
    }
    recent_end(&recent);
    return r;
}

static PyObject *into(const struct column *column, PyObject *target)
{
    Py_buffer buffer;

    if (PyObject_GetBuffer(target, &buffer, PyBUF_WRITABLE | PyBUF_ND | PyBUF_FORMAT) < 0)
        return NULL;
    int r = -1;
    if (!buffer.format || strcmp(buffer.format, "O") != 0 ||
        buffer.len / (Py_ssize_t)sizeof(PyObject *) != column->length)
        PyErr_SetString(PyExc_ValueError, "the target is no buffer of that many objects");
    else
        r = put_elements(column, NULL, buffer.buf);
    PyBuffer_Release(&buffer);
    return r == 0 ? new_ref(target) : NULL;
}

static PyObject *elements(const struct column *column, PyObject *target)
{
    if (!has_all(column)) {
        PyErr_SetString(PyExc_ValueError, "the column has fewer elements");
        return NULL;
    }
    if (target != Py_None)
        return into(column, target);
    PyObject *list = PyList_New((Py_ssize_t)column->length);
    if (list && put_elements(column, list, NULL) < 0)
        Py_CLEAR(list);
    return list;
}

PyObject *core_text_list(PyObject *module, PyObject *args)
{
    (void)module;
    struct column column = {0};
    PyObject *target;
    int text, wide;
    if (!PyArg_ParseTuple(args, "ppy*y*z*LLO:text_list", &text, &wide, &column.offsets,
                          &column.data, &column.mask, &column.start, &column.length, &target))
        return NULL;
    column.text = text;
    column.wide = wide;
    PyObject *result = elements(&column, target);
    PyBuffer_Release(&column.offsets);
    PyBuffer_Release(&column.data);
    if (column.mask.buf)
        PyBuffer_Release(&column.mask);
    return result;
}

/* ---- from views ---- */

#define VIEW_BYTES 16
#define INLINE_BYTES 12 /* of an element that lies in its view */

struct views {
    const unsigned char *mask, *views;
    const char **data;
    const int64_t *sizes;
    Py_ssize_t count, start, end;
};

/* An element's bytes; false: its view is not within the data. */
static bool view_at(const struct views *views, Py_ssize_t i, const char **text, int32_t *length)
{
    struct {
        int32_t length, prefix, buffer, offset;
    } view;
    const unsigned char *at = views->views + i * VIEW_BYTES;
    *text = NULL;
    *length = 0;
    if (i < views->start || (views->mask && !(views->mask[i / 8] >> (i % 8) & 1)))
        return true;
    memcpy(&view, at, sizeof(view));
    *length = view.length;
    *text = (const char *)at + sizeof(view.length);
    if (view.length <= INLINE_BYTES)
        return view.length >= 0;
    if (view.buffer < 0 || view.buffer >= views->count || view.offset < 0 ||
        view.length > views->sizes[view.buffer] - view.offset)
        return false;
    *text = views->data[view.buffer] + view.offset;
    return true;
}

/* Bytes of all elements; -1: a view is not within the data. */
static int64_t measure_views(const struct views *views)
{
    int64_t total = 0;

    for (Py_ssize_t i = views->start; i < views->end; i++) {
        const char *text;
        int32_t length;
        if (!view_at(views, i, &text, &length))
            return -1;
        total += length;
    }
    return total;
}

static void copy_views(const struct views *views, char *offsets, char *data)
{
    int64_t at = 0;

    memset(offsets, 0, sizeof(at));
    for (Py_ssize_t i = 0; i < views->end; i++) {
        const char *text;
        int32_t length;
        (void)view_at(views, i, &text, &length); /* they have been measured */
        if (length > 0)
            memcpy(data + at, text, (size_t)length);
        at += length;
        memcpy(offsets + (i + 1) * (Py_ssize_t)sizeof(at), &at, sizeof(at));
    }
}

static PyObject *text_of_views(const struct views *views)
{
    int64_t total;

    WITHOUT_GIL(total = measure_views(views));
    if (total < 0) {
        PyErr_SetString(PyExc_ValueError, "a view of a string is not within its data");
        return NULL;
    }
    PyObject *offsets =
        PyBytes_FromStringAndSize(NULL, (views->end + 1) * (Py_ssize_t)sizeof(total));
    PyObject *data = offsets ? PyBytes_FromStringAndSize(NULL, (Py_ssize_t)total) : NULL;
    if (!data) {
        Py_XDECREF(offsets);
        return NULL;
    }
    char *offsets_at = PyBytes_AsString(offsets), *data_at = PyBytes_AsString(data);
    WITHOUT_GIL(copy_views(views, offsets_at, data_at));
    return Py_BuildValue("(NN)", offsets, data);
}

PyObject *core_text_of_views(PyObject *module, PyObject *args)
{
    PyObject *buffers;
    struct views views = {.count = 0};

    (void)module;
    if (!PyArg_ParseTuple(args, "O!nn:text_of_views", &PyTuple_Type, &buffers, &views.start,
                          &views.end))
        return NULL;
    Py_ssize_t count = PyTuple_Size(buffers);
    const char **addresses = count < 2 ? NULL : calloc((size_t)count, sizeof(*addresses));
    if (!addresses)
        return count < 2 ? PyErr_Format(PyExc_ValueError, "views of strings have no buffers")
                         : PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count; i++)
        addresses[i] = PyLong_AsVoidPtr(PyTuple_GetItem(buffers, i));
    views.mask = (const unsigned char *)addresses[0];
    views.views = (const unsigned char *)addresses[1];
    views.data = addresses + 2;
    views.count = count > 3 ? count - 3 : 0;
    views.sizes = (const int64_t *)(const void *)addresses[count - 1];
    PyObject *found = PyErr_Occurred() ? NULL : text_of_views(&views);
    free(addresses);
    return found;
}
