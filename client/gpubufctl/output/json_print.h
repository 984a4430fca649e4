/*
 * Printing and making JSON with cJSON. cJSON's own printer writes integers beyond 10^15 in
 * exponent form; this one writes every integer of the protocol in full.
 */
#ifndef GB_JSON_PRINT_H
#define GB_JSON_PRINT_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

/* Walks the members of an object or the elements of an array (NULL: of nothing). */
#define GB_CJSON_EACH(item, container)                                                             \
    for (const cJSON *item = gb_cjson_first(container); item; item = item->next)

static inline const cJSON *gb_cjson_first(const cJSON *container)
{
    return container ? container->child : NULL;
}

/* Prints a value on standard output, indented or on one line, with a newline. */
void gb_cjson_print(const cJSON *value, bool indented);

/* Parses a result that the library returned; NULL if it is not JSON. */
cJSON *gb_cjson_parse(const char *text);

/* The text of a value to send, to be freed with free(). */
char *gb_cjson_text(const cJSON *value);

/* A value by a pattern (gb_write_pattern). gb_cjson_print_pattern prints it, indented. */
cJSON *gb_cjson(const char *pattern, ...) __attribute__((format(printf, 1, 2)));
void gb_cjson_print_pattern(const char *pattern, ...) __attribute__((format(printf, 1, 2)));

static inline cJSON *gb_cjson_member(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

/* A member's value, or the default if it is absent or of another type. */
const char *gb_cjson_string_of(const cJSON *object, const char *key, const char *otherwise);
int64_t gb_cjson_int_of(const cJSON *object, const char *key, int64_t otherwise);
bool gb_cjson_bool_of(const cJSON *object, const char *key);

/* Orders a list of objects by a number that each has, then by another (or NULL): the largest first,
   or the smallest where "-" stands before its name; then by their names, or as they stand. */
void gb_cjson_sort(cJSON *list, const char *first, const char *second);

#endif
