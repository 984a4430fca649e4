#include "names.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "json_print.h"

bool gb_names_is_pattern(const char *text)
{
    return strpbrk(text, "*?[") != NULL;
}

/* The parameters of `list`. Names that match a pattern start with what stands before its first
   wildcard. */
static cJSON *parameters(const char *text, bool pattern)
{
    cJSON *params = cJSON_CreateObject();
    char *prefix = text ? strdup(text) : NULL;

    if (prefix && pattern)
        prefix[strcspn(prefix, "*?[\\")] = '\0';
    if (prefix)
        cJSON_AddStringToObject(params, "prefix", prefix);
    free(prefix);
    return params;
}

/* Takes the objects of a page that match. False: the answer makes no sense. */
static bool take_page(cJSON *page, const char *pattern, cJSON *all)
{
    cJSON *found = cJSON_GetObjectItemCaseSensitive(page, "objects");

    if (!found)
        return false;
    while (found->child) {
        cJSON *object = cJSON_DetachItemViaPointer(found, found->child);
        const char *name = gb_cjson_string_of(object, "name", "");
        if (!pattern || fnmatch(pattern, name, 0) == 0)
            cJSON_AddItemToArray(all, object);
        else
            cJSON_Delete(object);
    }
    return true;
}

int gb_found_names(struct gb_cli *cli, const char *text, bool pattern, cJSON **objects)
{
    return gb_found_versions(cli, text, pattern, false, objects);
}

int gb_found_versions(struct gb_cli *cli, const char *text, bool pattern, bool versions,
                      cJSON **objects)
{
    cJSON *all = cJSON_CreateArray();
    cJSON *params = parameters(text, pattern);
    int status = GB_STATUS_OK;
    bool more = true;

    if (versions)
        cJSON_AddTrueToObject(params, "versions");
    while (status == GB_STATUS_OK && more) {
        cJSON *page;
        status = gb_cli_ask(cli, "list", cJSON_Duplicate(params, true), &page);
        if (status != GB_STATUS_OK)
            break;
        if (!take_page(page, pattern ? text : NULL, all))
            status = gb_cli_fail(GB_STATUS_FAILED, "the daemon's answer to list makes no sense");
        const char *cursor = gb_cjson_string_of(page, "cursor", NULL);
        cJSON_DeleteItemFromObjectCaseSensitive(params, "cursor");
        more = cursor != NULL;
        if (more)
            cJSON_AddStringToObject(params, "cursor", cursor);
        cJSON_Delete(page);
    }
    cJSON_Delete(params);
    if (status != GB_STATUS_OK) {
        cJSON_Delete(all);
        return status;
    }
    *objects = all;
    return GB_STATUS_OK;
}

int gb_names_none(const char *pattern)
{
    return gb_cli_fail(GB_STATUS_FAILED, "no object matches \"%s\"", pattern);
}
