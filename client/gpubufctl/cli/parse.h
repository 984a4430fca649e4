/*
 * Reading what people type: numbers, spans of time, slices, shapes. Each returns 0, or
 * GPUBUF_E_INVALID and a sentence that shows what was typed and what was expected. Pure.
 */
#ifndef GB_PARSE_H
#define GB_PARSE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/errors.h"

#define GB_PARSE_NDIM 32

/* A whole decimal number up to 2^52 - 1; of versions, from 1. */
int gb_parse_count(const char *text, int64_t *out, struct gb_error *error);
int gb_parse_version(const char *text, int64_t *out, struct gb_error *error);

/* "4096", "64K", "1.5G", "2GiB": bytes, powers of 1024. */
int gb_parse_bytes(const char *text, int64_t *out, struct gb_error *error);

/* "90", "90s", "500ms", "5m", "2h", "1d": milliseconds; a bare number is seconds. */
int gb_parse_duration(const char *text, int64_t *out_ms, struct gb_error *error);

/* Splits "a,b,c" at its commas; a comma that is part of a name is written "\,". The list is one
   allocation, ended by a NULL. */
const char **gb_parse_list(const char *text);

/* Whether a text ends so, in capitals or not: a file's suffix. */
bool gb_ends_with(const char *text, const char *end);

/* "0640": octal, three digits, with or without leading zero; only r and w bits. */
int gb_parse_mode(const char *text, int64_t *out, struct gb_error *error);

/* "3,4" or "3x4"; "" is a shape of no axes. */
int gb_parse_shape(const char *text, uint64_t *shape, unsigned *ndim, struct gb_error *error);

/* "A:B", "A:", ":B", ":"; negative numbers count from the end, as in Python. */
struct gb_slice_text {
    bool has_start, has_stop;
    int64_t start, stop;
};
int gb_parse_slice(const char *text, struct gb_slice_text *out, struct gb_error *error);

/* The elements that a slice takes out of `length` ones, clipped as Python does. */
void gb_slice_resolve(const struct gb_slice_text *slice, uint64_t length, uint64_t *offset,
                      uint64_t *count);

#endif
