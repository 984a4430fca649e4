/*
 * The types that elements have. One table gives each its width, its Arrow format string, its NumPy
 * typestr and its DLPack code. Pure.
 */
#ifndef GB_DTYPE_H
#define GB_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gb_type {
    GB_TYPE_BOOL, /* bit-packed */
    GB_TYPE_BOOL8,
    GB_TYPE_INT8,
    GB_TYPE_INT16,
    GB_TYPE_INT32,
    GB_TYPE_INT64,
    GB_TYPE_UINT8,
    GB_TYPE_UINT16,
    GB_TYPE_UINT32,
    GB_TYPE_UINT64,
    GB_TYPE_FLOAT16,
    GB_TYPE_BFLOAT16,
    GB_TYPE_FLOAT32,
    GB_TYPE_FLOAT64,
    GB_TYPE_COMPLEX64,
    GB_TYPE_COMPLEX128,
    /* All floats that safetensors 0.8 or DLPack 1.3 name, by the names of ml_dtypes. Integers of
       fewer than 8 bits are left out: safetensors has none, and frameworks keep them in bytes. */
    GB_TYPE_FLOAT8_E3M4,
    GB_TYPE_FLOAT8_E4M3,
    GB_TYPE_FLOAT8_E4M3B11FNUZ,
    GB_TYPE_FLOAT8_E4M3FN,
    GB_TYPE_FLOAT8_E4M3FNUZ,
    GB_TYPE_FLOAT8_E5M2,
    GB_TYPE_FLOAT8_E5M2FNUZ,
    GB_TYPE_FLOAT8_E8M0FNU,
    GB_TYPE_FLOAT6_E2M3FN, /* packed: four in 3 bytes */
    GB_TYPE_FLOAT6_E3M2FN,
    GB_TYPE_FLOAT4_E2M1FN, /* packed: two in a byte */
    GB_TYPE_UTF8,
    GB_TYPE_LARGE_UTF8,
    GB_TYPE_BINARY,
    GB_TYPE_LARGE_BINARY,
    GB_TYPE_FIXED_BINARY, /* parameter: bytes */
    GB_TYPE_DATE32,
    GB_TYPE_DATE64,
    GB_TYPE_TIME32,
    GB_TYPE_TIME64,     /* unit */
    GB_TYPE_TIMESTAMP,  /* unit, time zone */
    GB_TYPE_DURATION,   /* unit */
    GB_TYPE_DECIMAL128, /* precision, scale */
    GB_TYPE_MONTH_INTERVAL,
    GB_TYPE_DAY_TIME_INTERVAL,
    GB_TYPE_MONTH_DAY_NANO_INTERVAL,
    GB_TYPE_LIST,
    GB_TYPE_LARGE_LIST,
    GB_TYPE_FIXED_LIST, /* parameter: elements a list */
    GB_TYPE_MAP,
    GB_TYPE_STRUCT,
    GB_TYPE_DICTIONARY,
    GB_TYPE_NULL,
    GB_TYPE_COUNT
};

enum gb_unit { GB_UNIT_NONE, GB_UNIT_S, GB_UNIT_MS, GB_UNIT_US, GB_UNIT_NS };

struct gb_dtype {
    enum gb_type type;
    enum gb_unit unit;
    uint32_t size;     /* fixed_binary: bytes, 1 to 2^31 - 1; fixed_list: elements */
    uint8_t precision; /* decimal128: 1 to 38 */
    int8_t scale;      /* decimal128: -38 to 38 */
    char zone[40];     /* timestamp: time zone; "" if none */
};

/* How a column of the type lies in memory. */
struct gb_type_info {
    const char *name;     /* the protocol's, without parameters */
    uint16_t bits;        /* of one element of `data`; 0: no fixed width */
    uint8_t offset_bytes; /* 4 or 8 where the type has `offsets`, else 0 */
    bool has_data, has_mask;
    int8_t children;         /* how many; -1: any number (struct) */
    const char *arrow;       /* format, up to its parameters ("ts", "w:"); NULL: none */
    const char *numpy;       /* typestr with byte order, up to its parameters; NULL: none */
    uint8_t dlpack_code;     /* DLDataTypeCode; 255: none */
    bool array;              /* may be the dtype of an `array`: whole bytes, or packed */
    const char *safetensors; /* the name in a safetensors file's head; NULL: it has none */
};

const struct gb_type_info *gb_type_info(enum gb_type type);

/* Reads "timestamp[us,UTC]". False if the text is no dtype, or its parameters are wrong; *dtype is
   written on success only. Each dtype has one spelling: no spaces, no leading zeros or plus signs.
 */
bool gb_dtype_parse(const char *text, size_t length, struct gb_dtype *dtype);
/* Writes that spelling; a `size` of 64 always suffices. Returns the length. */
size_t gb_dtype_format(const struct gb_dtype *dtype, char *buffer, size_t size);
/* Bits of one element of `data` with the parameters taken into account; 0: no fixed width. */
uint64_t gb_dtype_bits(const struct gb_dtype *dtype);
/* Whether an array's elements are *packed*: they have fewer than 8 bits, the first in the lowest
   bits, and fill whole bytes along the last axis. */
bool gb_dtype_packed(const struct gb_dtype *dtype);
/* Whether `count` packed elements fill whole bytes; true of all others. */
bool gb_dtype_fills(const struct gb_dtype *dtype, uint64_t count);
/* The bytes of an *item*, which is what an array's strides step over: an element, or a byte of
   packed elements. */
uint64_t gb_dtype_item(const struct gb_dtype *dtype);
/* How many items `count` elements along an axis are; `last`: along the last one. */
uint64_t gb_dtype_items(const struct gb_dtype *dtype, uint64_t count, bool last);

/* Arrow format strings, both ways. Formatting: false if Arrow has no such type (a dictionary is
   told by its schema); `size` of 64 suffices. Parsing: false if the protocol has no such type. */
bool gb_dtype_to_arrow(const struct gb_dtype *dtype, char *buffer, size_t size);
bool gb_dtype_from_arrow(const char *format, struct gb_dtype *dtype);
/* NumPy typestr: native-endian only ("<f8", "|u1", "<M8[us]" as timestamp, "|b1" as bool8,
   "|S5" as fixed_binary(5)); NumPy has no time zones, so writing drops them. False if there is
   none. */
bool gb_dtype_to_numpy(const struct gb_dtype *dtype, char *buffer, size_t size);
bool gb_dtype_from_numpy(const char *typestr, size_t length, struct gb_dtype *dtype);

#endif
