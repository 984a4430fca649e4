/* Every command's function and options, for the table in main.c; and what several of them share. */
#ifndef GB_COMMANDS_H
#define GB_COMMANDS_H

#include "cli.h"
#include "proto/json.h"

#define GB_COMMAND(name)                                                                           \
    int gb_cmd_##name(struct gb_cli *cli, struct gb_cli_args *args);                               \
    extern const struct gb_cli_option gb_##name##_options[]

GB_COMMAND(put);
GB_COMMAND(get);
GB_COMMAND(show);
GB_COMMAND(ls);
GB_COMMAND(stat);
GB_COMMAND(rm);
GB_COMMAND(spill);
GB_COMMAND(restore);
GB_COMMAND(alias);
GB_COMMAND(ps);
GB_COMMAND(top);
GB_COMMAND(watch);
GB_COMMAND(events);
GB_COMMAND(stats);
GB_COMMAND(trim);
int gb_cmd_doctor(struct gb_cli *cli, struct gb_cli_args *args);
int gb_cmd_why(struct gb_cli *cli, struct gb_cli_args *args);
int gb_cmd_pin(struct gb_cli *cli, struct gb_cli_args *args);
int gb_cmd_unpin(struct gb_cli *cli, struct gb_cli_args *args);
int gb_cmd_call(struct gb_cli *cli, struct gb_cli_args *args);
int gb_cmd_describe(struct gb_cli *cli, struct gb_cli_args *args);
int gb_cmd_completion(struct gb_cli *cli, struct gb_cli_args *args);

/* A user's name, or the number if there is no such user (user_name.c). */
void gb_user_name(int64_t uid, char *out, size_t size);

/* ---- view.c: opening a part of an object ---- */

/*
 * Opens `name` and narrows it to a column and a slice, each NULL for the whole. *object is to be
 * released. 0, or a status; the failure has been told.
 */
struct gb_view_options {
    const char *column, *slice;
    const char *version, *wait; /* as typed */
};
int gb_view_open(struct gb_cli *cli, const char *name, const struct gb_view_options *options,
                 struct gpubuf_object **object);

/* "table, 3201 rows × 16 columns"; "array of float64, 3 × 4". */
void gb_describe(struct gpubuf_object *object, struct gb_writer *writer);

#endif
