#include "client/gpubufctl/answers/names.h"

#include <fnmatch.h>
#include <string.h>

#include "client/gpubufctl/output/json_print.h"

bool gb_names_is_pattern(const char *text)
{
    return strpbrk(text, "*?[") != NULL;
}

/* The parameters of `list`. Names that match a pattern start with what stands before its first
   wildcard. */
static cJSON *parameters(const char *text, bool pattern, bool versions)
{
    size_t length = !text ? 0 : pattern ? strcspn(text, "*?[\\") : strlen(text);
    cJSON *params = gb_cjson("{'prefix':%.*s}", (int)length, text ? text : "");

    if (versions)
        cJSON_AddTrueToObject(params, "versions");
    return params;
}

/* Takes the objects of a page that match. */
static void take_page(cJSON *page, const char *pattern, cJSON *all)
{
    cJSON *found = gb_cjson_member(page, "objects");

    if (!found)
        gb_cli_no_sense("list");
    while (found->child) {
        cJSON *object = cJSON_DetachItemViaPointer(found, found->child);
        const char *name = gb_cjson_string_of(object, "name", "");
        if (!pattern || fnmatch(pattern, name, 0) == 0)
            cJSON_AddItemToArray(all, object);
        else
            cJSON_Delete(object);
    }
}

cJSON *gb_found_names(struct gb_cli *cli, const char *text, bool pattern, bool versions)
{
    cJSON *all = cJSON_CreateArray(), *params = parameters(text, pattern, versions);

    for (bool more = true; more;) {
        cJSON *page = gb_cli_ask(cli, "list", cJSON_Duplicate(params, true));
        take_page(page, pattern ? text : NULL, all);
        const char *cursor = gb_cjson_string_of(page, "cursor", NULL);
        cJSON_DeleteItemFromObjectCaseSensitive(params, "cursor");
        more = cursor != NULL;
        if (more)
            cJSON_AddStringToObject(params, "cursor", cursor);
        cJSON_Delete(page);
    }
    cJSON_Delete(params);
    return all;
}
