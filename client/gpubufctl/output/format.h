/*
 * Values as text: sizes and ages for people; numbers, dates and times so that reading the text
 * gives the same value back. Pure, but for gb_user. Texts for people are values, whose `text` lasts
 * to the end of the statement: gb_size(bytes).text. Buffers of GB_FORMAT_MAX bytes always suffice
 * for the others, which are NUL-terminated; their functions return the length.
 */
#ifndef GB_FORMAT_H
#define GB_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/layout/dtype.h"

#define GB_FORMAT_MAX 96

/* Whether counts are written without spaces between thousands. Process-wide, set once. */
void gb_format_plain(bool plain);

struct gb_short {
    char text[64];
};

/* "512 B", "1.5 KiB", "12 MiB": three digits at most, or four before a unit's end. */
struct gb_short gb_size(uint64_t bytes);
/* "3201", "12 345 678" with narrow spaces for groups of three, from five digits on. */
struct gb_short gb_count(uint64_t count);
/* "0.3 s", "12 s", "5 min", "3 h", "12 d". */
struct gb_short gb_age(int64_t ms);
/* "12:03:11" in local time, of seconds since 1970; "" if there is no such time. */
struct gb_short gb_clock(int64_t seconds);
/* "2012-01-01 12:00:00 +0000" in local time, of milliseconds since 1970. */
struct gb_short gb_local_time(int64_t ms);
/* A user's name, or the number if there is no such user. */
struct gb_short gb_user(int64_t uid);

/* The shortest decimal that reads back as the same number; always with a point, an exponent, or
   one of nan, inf, -inf, so that it is not taken for an integer. */
size_t gb_format_float64(double value, char *out);
size_t gb_format_float32(float value, char *out);
size_t gb_format_float16(uint16_t bits, char *out);
size_t gb_format_bfloat16(uint16_t bits, char *out);
double gb_float16_value(uint16_t bits);
/* One of the floats of 8 bits and fewer. */
size_t gb_format_small_float(enum gb_type type, uint8_t bits, char *out);
double gb_small_float_value(enum gb_type type, uint8_t bits);

/* ISO 8601. Fractions are written, in full, where they are not zero. Years outside of 0000 to 9999
   have a sign. */
size_t gb_format_date(int64_t days, char *out);                     /* 2012-01-31 */
size_t gb_format_time(int64_t value, enum gb_unit unit, char *out); /* 23:59:59.001 */
size_t gb_format_timestamp(int64_t value, enum gb_unit unit, bool utc, char *out); /* …Z if utc */
size_t gb_format_duration(int64_t value, enum gb_unit unit, char *out);            /* PT1.5S */
/* P1M2DT1.5S of a dtype of intervals, whose parts have signs of their own. */
size_t gb_format_interval(enum gb_type type, const void *bytes, char *out);

/* 16 bytes, little-endian two's complement, with `scale` digits after the point. */
size_t gb_format_decimal128(const void *bytes, int scale, char *out);

#endif
