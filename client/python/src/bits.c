/* Arrow's bitmaps and offsets: work of the package for which Python is too slow. */
#include "client/python/src/bits.h"

#include <string.h>

/* Worked on at once; gcc's -O2 does not make such of plain loops. */
typedef uint64_t pair __attribute__((vector_size(16), aligned(8), may_alias));

uint64_t count_nulls(const unsigned char *bits, uint64_t offset, uint64_t length)
{
    uint64_t nulls = 0, i = offset, end = offset + length;

    for (; i < end && i % 64 != 0; i++)
        nulls += !(bits[i / 8] >> (i % 8) & 1);
    for (; i + 64 <= end; i += 64) {
        uint64_t word;
        memcpy(&word, bits + i / 8, sizeof(word));
        nulls += (uint64_t)__builtin_popcountll(~word);
    }
    for (; i < end; i++)
        nulls += !(bits[i / 8] >> (i % 8) & 1);
    return nulls;
}

/* ---- for Python ---- */

/* count_nulls(address, offset, length): 0 bits among those of a bitmap. */
PyObject *core_count_nulls(PyObject *module, PyObject *args)
{
    (void)module;
    unsigned long long address, offset, length;
    if (!PyArg_ParseTuple(args, "KKK:count_nulls", &address, &offset, &length))
        return NULL;
    return PyLong_FromUnsignedLongLong(
        count_nulls((const unsigned char *)(uintptr_t)address, offset, length));
}

/* add_to_integers(buffer, width, delta): adds to each of the little-endian integers of 4 or 8
   bytes. ValueError if one is less than the one before, or negative afterwards. */
PyObject *core_add_to_integers(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer buffer;
    int width;
    long long delta;
    if (!PyArg_ParseTuple(args, "w*iL:add_to_integers", &buffer, &width, &delta))
        return NULL;
    char *at = buffer.buf, *end = at + buffer.len / width * width;
    int64_t before = 0;
    bool sound = true;
    for (; sound && at < end; at += width) {
        int32_t narrow = 0;
        int64_t wide = 0;
        memcpy(width == 8 ? (void *)&wide : (void *)&narrow, at, (size_t)width);
        int64_t value;
        sound = !__builtin_add_overflow(width == 8 ? wide : narrow, delta, &value) &&
                value >= before && (width == 8 || value <= INT32_MAX);
        if (!sound)
            break;
        before = value;
        narrow = (int32_t)value;
        memcpy(at, width == 8 ? (const void *)&value : (const void *)&narrow, (size_t)width);
    }
    PyBuffer_Release(&buffer);
    if (!sound) {
        PyErr_SetString(PyExc_ValueError, "an Arrow array's offsets go backwards");
        return NULL;
    }
    Py_RETURN_NONE;
}

/* is_even(int64s, step): whether each is as much more than the one before. */
PyObject *core_is_even(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer buffer;
    long long step;
    if (!PyArg_ParseTuple(args, "y*L:is_even", &buffer, &step))
        return NULL;
    const uint64_t *at = buffer.buf;
    size_t i = 1, count = (size_t)buffer.len / sizeof(*at);
    pair odd = {0}, also = {0};
    for (; i + 4 <= count; i += 4) {
        odd |= (*(const pair *)(at + i) - *(const pair *)(at + i - 1)) ^ (uint64_t)step;
        also |= (*(const pair *)(at + i + 2) - *(const pair *)(at + i + 1)) ^ (uint64_t)step;
    }
    for (; i < count; i++)
        odd[0] |= (at[i] - at[i - 1]) ^ (uint64_t)step;
    PyBuffer_Release(&buffer);
    return PyBool_FromLong((odd[0] | odd[1] | also[0] | also[1]) == 0);
}
