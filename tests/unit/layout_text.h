/*
 * Shared by the tests of layouts: reading them from text, with the failure shown, and writing them
 * back. Each test program includes it once, after cmocka.h.
 */
#ifndef GB_TEST_LAYOUT_TEXT_H
#define GB_TEST_LAYOUT_TEXT_H

#include <stdlib.h>
#include <string.h>

#include "layouts.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define MAX "4503599627370495" /* 2^52 - 1 */

static const struct gb_path params = {.key = "params"};
static const struct gb_path at_layout = {.up = &params, .key = "layout"};

static struct gb_pool pool;

static inline int end_pool(void **state)
{
    gb_pool_end(&pool);
    return 0;
}

/* Reads `text` from memory that ends right after it. */
static inline int read_text(const char *text, enum gb_layout_form form, struct gb_layout *layout,
                            struct gb_error *error)
{
    size_t length = strlen(text);
    char *copy = malloc(length);
    struct gb_json value;

    assert_non_null(copy);
    memcpy(copy, text, length);
    int r = gb_json_check(copy, length, &pool, &value, error);
    if (r == 0)
        r = gb_layout_read(value, form, &at_layout, &pool, layout, error);
    free(copy);
    return r;
}

static inline struct gb_layout read_good(const char *text, enum gb_layout_form form)
{
    struct gb_layout layout;
    struct gb_error error;

    memset(&layout, 0, sizeof(layout));
    if (read_text(text, form, &layout, &error) != 0)
        fail_msg("%s: %s", text, error.message);
    return layout;
}

/* `message`: what follows "params.layout". */
static inline void assert_refused(const char *text, enum gb_layout_form form, int code,
                                  const char *message)
{
    struct gb_error error = {.code = 0};
    struct gb_layout layout, before;
    char expected[512];

    memset(&layout, 0x5a, sizeof(layout));
    before = layout;
    int r = read_text(text, form, &layout, &error);
    if (r == 0)
        fail_msg("%s: is accepted, but expected: %s", text, message);
    snprintf(expected, sizeof(expected), "params.layout%s", message);
    if (strcmp(error.message, expected) != 0)
        fail_msg("%s:\n  %s\nexpected:\n  %s", text, error.message, expected);
    assert_int_equal(r, code);
    assert_int_equal(error.code, code);
    assert_memory_equal(&layout, &before, sizeof(layout));
}

static inline char *written(const struct gb_layout *layout, enum gb_layout_form form)
{
    struct gb_writer writer;

    gb_writer_init(&writer, 0);
    gb_layout_write(&writer, layout, form);
    char *text = gb_writer_take(&writer, NULL);
    assert_non_null(text);
    return text;
}

static inline void assert_written(const struct gb_layout *layout, enum gb_layout_form form,
                                  const char *expected)
{
    char *text = written(layout, form);

    assert_string_equal(text, expected);
    free(text);
}

#define CREATE GB_LAYOUT_CREATE
#define REGISTER GB_LAYOUT_REGISTER
#define REPLY GB_LAYOUT_REPLY
#define INVALID GPUBUF_E_INVALID
#define COLUMN "{\"kind\":\"column\",\"dtype\":"
#define ARRAY "{\"kind\":\"array\",\"dtype\":\"int32\",\"shape\":"
#define PACKED(type) "{\"kind\":\"array\",\"dtype\":\"float" type "\",\"shape\":"
#define BUNDLE "{\"kind\":\"bundle\",\"bytes\":"
#define TABLE "{\"kind\":\"table\",\"length\":4,\"columns\":["
#define INT8(name) "{\"name\":\"" name "\",\"dtype\":\"int8\",\"length\":4}"

#endif
