/* Publishing files that the Python package reads: Arrow's, Parquet, .npz. */
#include <stdio.h>
#include <string.h>

#include "client/gpubufctl/data/put.h"
#include "client/gpubufctl/data/python.h"
#include "client/gpubufctl/output/json_print.h"

/* The options of put() of the Python package. */
static cJSON *make_options(const struct gpubuf_create_options *create)
{
    static const char *const evicts[] = {NULL, "spill", "drop", "keep"};
    cJSON *options = cJSON_CreateObject();
    char mode[16];

    if (create->device)
        cJSON_AddStringToObject(options, "device", create->device);
    if (create->share)
        cJSON_AddStringToObject(options, "share", create->share);
    if (create->mode) {
        (void)snprintf(mode, sizeof(mode), "%o", create->mode);
        cJSON_AddStringToObject(options, "mode", mode);
    }
    if (create->ttl_ms)
        cJSON_AddNumberToObject(options, "ttl", (double)create->ttl_ms / 1000);
    if (evicts[create->evict])
        cJSON_AddStringToObject(options, "evict", evicts[create->evict]);
    if (create->wait_ms)
        cJSON_AddNumberToObject(options, "timeout", (double)create->wait_ms / 1000);
    if (create->replace)
        cJSON_AddTrueToObject(options, "replace");
    if (create->label)
        cJSON_AddStringToObject(options, "label", create->label);
    if (create->keep)
        cJSON_AddNumberToObject(options, "keep", create->keep);
    if (create->scope == GPUBUF_SCOPE_CLUSTER)
        cJSON_AddStringToObject(options, "scope", "cluster");
    if (create->final)
        cJSON_AddTrueToObject(options, "final");
    return options;
}

cJSON *gb_put_python(struct gb_put *put, const char *format, const char *file)
{
    if (strcmp(file, "-") == 0)
        gb_cli_usage(
            put->cli,
            "standard input has a .%s file, which is read from a file only: give its name, "
            "or --format raw to take the bytes as they are",
            format);
    if (put->kind != GB_PUT_AUTO && put->kind != GB_PUT_TABLE)
        gb_cli_usage(put->cli, "%s decides its own kind: leave --kind out", file);

    cJSON *request =
        gb_cjson("{'do':'put','name':%s,'path':%s,'format':%s}", put->name, file, format);
    cJSON_AddItemToObject(request, "options", make_options(&put->create));
    return gb_python_run(put->cli, request, file);
}
