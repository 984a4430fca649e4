#include "client/python/src/element.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DL_INT = 0,
    DL_UINT = 1,
    DL_FLOAT = 2,
    DL_BFLOAT = 4,
    DL_COMPLEX = 5,
    DL_BOOL = 6,
    DL_NONE = 255
};

/* format: the struct module's, where memoryview and NumPy agree on it; for floats that NumPy lacks
   that of integers of the same width, so that numpy.asarray() has their bits and no strings. 'l' is
   NumPy's int64 itself; of 'q' it makes a type that is equal to it, and that zarr does not know. */
static const struct {
    const char *dtype;
    struct element element;
} numbers[] = {
    {"bool8", {'?', DL_BOOL, 8, true, "|b1"}},
    {"int8", {'b', DL_INT, 8, true, "|i1"}},
    {"int16", {'h', DL_INT, 16, true, "<i2"}},
    {"int32", {'i', DL_INT, 32, true, "<i4"}},
    {"int64", {'l', DL_INT, 64, true, "<i8"}},
    {"uint8", {'B', DL_UINT, 8, true, "|u1"}},
    {"uint16", {'H', DL_UINT, 16, true, "<u2"}},
    {"uint32", {'I', DL_UINT, 32, true, "<u4"}},
    {"uint64", {'L', DL_UINT, 64, true, "<u8"}},
    {"float16", {'e', DL_FLOAT, 16, true, "<f2"}},
    {"bfloat16", {'H', DL_BFLOAT, 16, true, ""}},
    {"float32", {'f', DL_FLOAT, 32, true, "<f4"}},
    {"float64", {'d', DL_FLOAT, 64, true, "<f8"}},
    {"complex64", {'F', DL_COMPLEX, 64, true, "<c8"}},
    {"complex128", {'D', DL_COMPLEX, 128, true, "<c16"}},
    {"float8_e3m4", {'B', 7, 8, true, ""}},
    {"float8_e4m3", {'B', 8, 8, true, ""}},
    {"float8_e4m3b11fnuz", {'B', 9, 8, true, ""}},
    {"float8_e4m3fn", {'B', 10, 8, true, ""}},
    {"float8_e4m3fnuz", {'B', 11, 8, true, ""}},
    {"float8_e5m2", {'B', 12, 8, true, ""}},
    {"float8_e5m2fnuz", {'B', 13, 8, true, ""}},
    {"float8_e8m0fnu", {'B', 14, 8, true, ""}},
    /* packed: seen as bytes; DLPack has them in pairs, as PyTorch does, or not at all */
    {"float4_e2m1fn", {'B', 17, 4, true, ""}},
    {"float6_e2m3fn", {'B', DL_NONE, 6, true, ""}},
    {"float6_e3m2fn", {'B', DL_NONE, 6, true, ""}},
};

#define NUMBERS (sizeof(numbers) / sizeof(numbers[0]))

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* "[us,UTC]" → "us" */
static void read_unit(const char *dtype, char *unit, size_t size)
{
    const char *from = strchr(dtype, '[');
    size_t length = from ? strcspn(from + 1, ",]") : 0;

    if (length >= size)
        length = 0;
    if (from)
        memcpy(unit, from + 1, length);
    unit[length] = '\0';
}

bool element_of_dtype(const char *dtype, struct element *element)
{
    for (size_t i = 0; i < NUMBERS; i++) {
        if (strcmp(dtype, numbers[i].dtype) == 0) {
            *element = numbers[i].element;
            return true;
        }
    }
    char unit[8];
    *element = (struct element){.format = 'l', .code = DL_INT, .bits = 64};
    if (begins(dtype, "timestamp") || begins(dtype, "duration")) {
        read_unit(dtype, unit, sizeof(unit));
        (void)snprintf(element->typestr, sizeof(element->typestr), "<%c8[%s]",
                       dtype[0] == 't' ? 'M' : 'm', unit);
        return true;
    }
    if (strcmp(dtype, "date64") == 0) {
        strcpy(element->typestr, "<M8[ms]");
        return true;
    }
    if (begins(dtype, "time64"))
        return true;
    if (begins(dtype, "time32") || strcmp(dtype, "date32") == 0) {
        element->format = 'i';
        element->bits = 32;
        return true;
    }
    *element = (struct element){.format = 0}; /* bits, strings, nested, decimals, fixed_binary */
    return false;
}

Py_ssize_t element_item(const struct element *element)
{
    return element->bits < 8 ? 1 : element->bits / 8;
}

bool element_of_dlpack(uint8_t code, uint8_t bits, struct element *element, const char **dtype)
{
    for (size_t i = 0; i < NUMBERS; i++) {
        if (code != DL_NONE && numbers[i].element.code == code && numbers[i].element.bits == bits) {
            *element = numbers[i].element;
            *dtype = numbers[i].dtype;
            return true;
        }
    }
    return false;
}
