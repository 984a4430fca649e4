/*
 * summary: opens a table that another process published, takes a column, perhaps a slice of it, and
 * sums the values that are not null, in place.
 *
 *     summary movies "US Gross"
 *     summary movies "US Gross" --from 100 --to 200
 *     summary movies "US Gross" --hold       keep the lease until killed
 *
 * Build: cc summary.c $(pkg-config --cflags --libs gpubuf)
 */
#include <errno.h>
#include <gpubuf.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct options {
    const char *name, *column;
    uint64_t from, to; /* `to` UINT64_MAX: the end */
    bool hold;
};

static int fail(const char *what, const char *message)
{
    fprintf(stderr, "summary: %s: %s\n", what, message);
    return 1;
}

/* ---- the sum ---- */

/* Element i of a column's data as a double; false for a dtype that is no number. */
static bool element(const char *dtype, const void *data, uint64_t i, double *value)
{
#define TRY(name, type)                                                                            \
    if (strcmp(dtype, name) == 0) {                                                                \
        *value = (double)((const type *)data)[i];                                                  \
        return true;                                                                               \
    }
    TRY("float64", double)
    TRY("float32", float)
    TRY("int64", int64_t)
    TRY("int32", int32_t)
    TRY("int16", int16_t)
    TRY("int8", int8_t)
    TRY("uint64", uint64_t)
    TRY("uint32", uint32_t)
    TRY("uint16", uint16_t)
    TRY("uint8", uint8_t)
#undef TRY
    return false;
}

static int print_sum(const struct gpubuf_object *column)
{
    struct gpubuf_memory data;
    int r = gpubuf_memory(column, GPUBUF_DATA, &data);
    if (r < 0)
        return fail("memory", gpubuf_object_errmsg(column));

    uint64_t length = gpubuf_length(column), offset = gpubuf_offset(column), nulls = 0;
    double sum = 0, value = 0;
    for (uint64_t i = 0; i < length; i++) {
        if (!gpubuf_is_valid(column, i)) {
            nulls++;
            continue;
        }
        /* The memory is the whole column's: the slice begins at element `offset`. */
        if (!element(gpubuf_dtype(column), data.pointer, offset + i, &value))
            return fail(gpubuf_dtype(column), "cannot be summed: the column's type is no number");
        sum += value;
    }
    printf("count %" PRIu64 "\nnulls %" PRIu64 "\nsum %.17g\n", length, nulls, sum);
    return 0;
}

/* ---- opening ---- */

static int summarize(struct gpubuf_client *client, const struct options *options)
{
    struct gpubuf_object *table = NULL, *column = NULL, *slice = NULL;
    int status = 1;
    if (gpubuf_open(client, options->name, NULL, &table) < 0 ||
        gpubuf_column(table, options->column, &column) < 0) {
        fail(options->name, gpubuf_errmsg(client));
        goto out;
    }
    uint64_t to = options->to == UINT64_MAX ? gpubuf_length(column) : options->to;
    if (to < options->from) {
        fail("--to", "is before --from");
        goto out;
    }
    if (gpubuf_slice(column, options->from, to - options->from, &slice) < 0) {
        fail(options->column, gpubuf_errmsg(client));
        goto out;
    }
    status = print_sum(slice);
    if (status == 0 && options->hold) {
        puts("holding");
        fflush(stdout);
        pause();
    }
out: /* a slice holds its column, and a column its table: the order does not matter */
    gpubuf_release(table);
    gpubuf_release(column);
    gpubuf_release(slice);
    return status;
}

static int usage(void)
{
    fprintf(stderr, "Usage: summary NAME COLUMN [--from A] [--to B] [--hold]\n");
    return 2;
}

static bool read_number(const char *text, uint64_t *number)
{
    char *end;
    if (!text || *text < '0' || *text > '9')
        return false;
    errno = 0;
    *number = strtoull(text, &end, 10);
    return errno == 0 && *end == '\0';
}

int main(int argc, char **argv)
{
    struct options options = {.to = UINT64_MAX};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--hold") == 0) {
            options.hold = true;
        } else if (strcmp(argv[i], "--from") == 0) {
            if (!read_number(argv[++i], &options.from))
                return usage();
        } else if (strcmp(argv[i], "--to") == 0) {
            if (!read_number(argv[++i], &options.to))
                return usage();
        } else if (!options.name) {
            options.name = argv[i];
        } else if (!options.column) {
            options.column = argv[i];
        } else {
            return usage();
        }
    }
    if (!options.name || !options.column)
        return usage();

    struct gpubuf_client *client;
    if (gpubuf_connect(&client, NULL) < 0)
        return fail("connect", gpubuf_errmsg(NULL));
    int status = summarize(client, &options);
    gpubuf_disconnect(client);
    return status;
}
