/*
 * publish: publishes a table of plain C arrays under a name, and reads it again, strings included.
 *
 *     publish weather          publishes the table, and prints it as any reader sees it
 *     gpubufctl show weather
 *
 * Build: cc publish.c $(pkg-config --cflags --libs gpubuf)
 */
#include <gpubuf.h>
#include <inttypes.h>
#include <stdio.h>

static int put(struct gpubuf_client *client, const char *name)
{
    static const char *const city[] = {"Linz", NULL, "Graz"};
    static const double degrees[] = {21.5, 19, 23.25};
    static const bool measured[] = {true, true, false};
    static const struct gpubuf_values columns[] = {{"city", "utf8", city, NULL},
                                                   {"degrees", "float64", degrees, measured}};
    const struct gpubuf_create_options options = {
        .size = sizeof(options), .mode = 0644, .replace = true};

    return gpubuf_put_table(client, name, columns, 2, 3, &options);
}

static int print(const struct gpubuf_object *city, const struct gpubuf_object *degrees)
{
    struct gpubuf_memory memory;
    int r = gpubuf_memory(degrees, GPUBUF_DATA, &memory);
    if (r < 0)
        return r;

    const double *values = (const double *)memory.pointer + gpubuf_offset(degrees);
    for (uint64_t i = 0; i < gpubuf_length(city); i++) {
        uint64_t length;
        const char *text = gpubuf_string_at(city, i, &length); /* no NUL ends it */
        printf("%.*s: ", text ? (int)length : 7, text ? text : "unknown");
        printf(gpubuf_is_valid(degrees, i) ? "%.2f\n" : "not measured\n", values[i]);
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct gpubuf_client *client = NULL;
    struct gpubuf_object *table = NULL, *city = NULL, *degrees = NULL;

    if (argc != 2) {
        fprintf(stderr, "Usage: publish NAME\n");
        return 2;
    }
    int r = gpubuf_connect(&client, NULL);
    if (r == 0)
        r = put(client, argv[1]);
    if (r == 0)
        r = gpubuf_open(client, argv[1], NULL, &table);
    if (r == 0)
        r = gpubuf_column(table, "city", &city);
    if (r == 0)
        r = gpubuf_column(table, "degrees", &degrees);
    if (r == 0)
        r = print(city, degrees);
    if (r < 0)
        fprintf(stderr, "publish: %s\n", gpubuf_errmsg(client));
    gpubuf_release(degrees);
    gpubuf_release(city);
    gpubuf_release(table);
    gpubuf_disconnect(client);
    return r < 0;
}
