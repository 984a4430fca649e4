/*
 * Objects by name: by a prefix, or by a pattern of fnmatch(3). A pattern has one of * ? [ in it; a
 * backslash before a character makes that stand for itself, and * stands for "/" too.
 */
#ifndef GB_CTL_NAMES_H
#define GB_CTL_NAMES_H

#include <cjson/cJSON.h>

#include "cli.h"

/* Whether the text has a wildcard in it. */
bool gb_names_is_pattern(const char *text);

/* The objects whose names start with `text` (NULL: all), or match it if `pattern`, as `list` tells
   them, by name. 0 and an array to be deleted; or a status, which has been told. */
int gb_found_names(struct gb_cli *cli, const char *text, bool pattern, cJSON **objects);
/* As gb_found_names; with `versions` each object is followed by its older versions. */
int gb_found_versions(struct gb_cli *cli, const char *text, bool pattern, bool versions,
                      cJSON **objects);

/* Says that a pattern matches nothing. Returns a status. */
int gb_names_none(const char *pattern);

#endif
