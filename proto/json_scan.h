/*
 * Finding the next interesting byte of JSON text, many bytes at a time: the inner loops of json*.c.
 * With SSE2 (every x86-64) or, elsewhere, in plain 64-bit arithmetic. Nothing is read at or past
 * `end`. Pure; any thread.
 */
#ifndef GB_JSON_SCAN_H
#define GB_JSON_SCAN_H

#include <endian.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "pool.h"

#if defined(__SSE2__) && !defined(GB_JSON_SCAN_PORTABLE)
#include <emmintrin.h>
#define GB_SCAN_SSE2 1
#endif

static inline bool gb_is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static inline bool gb_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static inline const char *gb_skip_space(const char *p, const char *end)
{
    /* Mostly there is none, and one comparison says so. */
    while (p < end && (unsigned char)*p <= ' ' && gb_is_space(*p))
        p++;
    return p;
}

/* Whether a byte of a string stands for itself and needs no look: printable ASCII, no '"', no '\'.
 */
static inline bool gb_is_plain(char c)
{
    return (signed char)c >= 0x20 && c != '"' && c != '\\';
}

#ifdef GB_SCAN_SSE2

#define GB_SCAN_STEP 16

static inline unsigned gb_scan_equal(__m128i bytes, char c)
{
    return (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(c)));
}

/* A bit for each of the 16 bytes that is not plain; a signed comparison finds control characters
   and bytes from 0x80 at once. */
static inline unsigned gb_scan_not_plain(const char *p)
{
    __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)p);
    __m128i low = _mm_cmplt_epi8(bytes, _mm_set1_epi8(0x20));
    return (unsigned)_mm_movemask_epi8(low) | gb_scan_equal(bytes, '"') |
           gb_scan_equal(bytes, '\\');
}

static inline unsigned gb_scan_quotes_and_escapes(const char *p)
{
    __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)p);
    return gb_scan_equal(bytes, '"') | gb_scan_equal(bytes, '\\');
}

static inline unsigned gb_scan_first(unsigned bits)
{
    return (unsigned)__builtin_ctz(bits);
}

#else

#define GB_SCAN_STEP 8
#define GB_SCAN_ONES UINT64_C(0x0101010101010101)
#define GB_SCAN_HIGH UINT64_C(0x8080808080808080)

static inline uint64_t gb_scan_load(const char *p)
{
    uint64_t word;
    memcpy(&word, p, sizeof(word));
    return le64toh(word);
}

/* The high bit of every byte equal to c. Exact: no carry from one byte to the next. */
static inline uint64_t gb_scan_equal(uint64_t word, unsigned char c)
{
    uint64_t x = word ^ (GB_SCAN_ONES * c);
    return ~(((x & ~GB_SCAN_HIGH) + ~GB_SCAN_HIGH) | x) & GB_SCAN_HIGH;
}

static inline uint64_t gb_scan_not_plain(const char *p)
{
    uint64_t word = gb_scan_load(p);
    /* The high bit of bytes from 0x20 on, for those under 0x80. */
    uint64_t printable = (word & ~GB_SCAN_HIGH) + GB_SCAN_ONES * (0x80 - 0x20);
    return ((~printable | word) & GB_SCAN_HIGH) | gb_scan_equal(word, '"') |
           gb_scan_equal(word, '\\');
}

static inline uint64_t gb_scan_quotes_and_escapes(const char *p)
{
    uint64_t word = gb_scan_load(p);
    return gb_scan_equal(word, '"') | gb_scan_equal(word, '\\');
}

/* The bytes' high bits as the lowest eight: the multiplication brings them to the top byte. */
static inline uint64_t gb_scan_gather(uint64_t bits)
{
    return ((bits >> 7) * UINT64_C(0x0102040810204080)) >> 56;
}

static inline unsigned gb_scan_first(uint64_t bits)
{
    return (unsigned)__builtin_ctzll(bits) / 8;
}

#endif

/* The place in a text from which on a pause is due. */
static inline const char *gb_pause_next(const char *p, const char *end, const struct gb_pool *pool)
{
    bool due = pool && pool->pause && end - p > GB_POOL_PAUSE_BYTES;
    return due ? p + GB_POOL_PAUSE_BYTES : end;
}

/* At `p`: pauses if that is past `*at`. */
static inline void gb_pause_past(const char **at, const char *p, const char *end,
                                 struct gb_pool *pool)
{
    if (p <= *at)
        return;
    gb_pool_pause(pool);
    *at = gb_pause_next(p, end, pool);
}

/* The first byte that is not plain, or `end`. */
static inline const char *gb_skip_plain(const char *p, const char *end)
{
    for (; end - p >= GB_SCAN_STEP; p += GB_SCAN_STEP) {
        __auto_type bits = gb_scan_not_plain(p);
        if (bits != 0)
            return p + gb_scan_first(bits);
    }
    while (p < end && gb_is_plain(*p))
        p++;
    return p;
}

/* From after a string's opening quote to its closing one, which is there in checked text. Fast, but
   where there are escapes: among many it pauses. */
static inline const char *gb_string_end(const char *p, const char *end, struct gb_pool *pool)
{
    const char *pause_at = gb_pause_next(p, end, pool);
    for (;;) {
        gb_pause_past(&pause_at, p, end, pool);
        const char *found = NULL;
        for (; end - p >= GB_SCAN_STEP; p += GB_SCAN_STEP) {
            __auto_type bits = gb_scan_quotes_and_escapes(p);
            if (bits != 0) {
                found = p + gb_scan_first(bits);
                break;
            }
        }
        if (found == NULL) {
            while (p < end && *p != '"' && *p != '\\')
                p++;
            found = p;
        }
        if (found >= end || *found == '"')
            return found;
        if (end - found < 2)
            return end;
        p = found + 2; /* whatever was escaped, its next byte is no end */
    }
}

/* One bit a byte of 64 bytes of text, the first byte's lowest. */
struct gb_scan {
    uint64_t quotes, escapes, opens, closes;
};

/* Adds what a step finds whose first byte is byte `at` of the block. */
static inline void gb_scan_step(struct gb_scan *scan, const char *p, unsigned at)
{
#ifdef GB_SCAN_SSE2
    __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(p + at));
    __m128i folded = _mm_or_si128(bytes, _mm_set1_epi8(0x20)); /* [ ] to { } */
    scan->quotes |= (uint64_t)gb_scan_equal(bytes, '"') << at;
    scan->escapes |= (uint64_t)gb_scan_equal(bytes, '\\') << at;
    scan->opens |= (uint64_t)gb_scan_equal(folded, '{') << at;
    scan->closes |= (uint64_t)gb_scan_equal(folded, '}') << at;
#else
    uint64_t word = gb_scan_load(p + at);
    uint64_t folded = word | GB_SCAN_ONES * 0x20;
    scan->quotes |= gb_scan_gather(gb_scan_equal(word, '"')) << at;
    scan->escapes |= gb_scan_gather(gb_scan_equal(word, '\\')) << at;
    scan->opens |= gb_scan_gather(gb_scan_equal(folded, '{')) << at;
    scan->closes |= gb_scan_gather(gb_scan_equal(folded, '}')) << at;
#endif
}

static inline struct gb_scan gb_scan_block(const char *p)
{
    struct gb_scan scan = {0};
    /* Spelled out, since gcc -O2 unrolls no loop and would shift by a variable. */
    gb_scan_step(&scan, p, 0);
    gb_scan_step(&scan, p, 16);
    gb_scan_step(&scan, p, 32);
    gb_scan_step(&scan, p, 48);
#if GB_SCAN_STEP == 8
    gb_scan_step(&scan, p, 8);
    gb_scan_step(&scan, p, 24);
    gb_scan_step(&scan, p, 40);
    gb_scan_step(&scan, p, 56);
#endif
    return scan;
}

#endif
