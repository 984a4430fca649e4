/*
 * Objects by name: by a prefix, or by a pattern of fnmatch(3). A pattern has one of * ? [ in it; a
 * backslash before a character makes that stand for itself, and * stands for "/" too.
 */
#ifndef GB_CTL_NAMES_H
#define GB_CTL_NAMES_H

#include <cjson/cJSON.h>

#include "client/gpubufctl/cli/cli.h"

/* Whether the text has a wildcard in it. */
bool gb_names_is_pattern(const char *text);

/* The objects whose names start with `text` (NULL: all), or match it if `pattern`, as `list` tells
   them, by name; with `versions` each is followed by its older versions. An array to be deleted. */
cJSON *gb_found_names(struct gb_cli *cli, const char *text, bool pattern, bool versions);

/* Says that a pattern matches nothing, and ends. */
#define GB_NAMES_NONE "no object matches \"%s\""
#define gb_names_none(pattern) gb_cli_fail(GB_STATUS_FAILED, GB_NAMES_NONE, pattern)

#endif
