/* Every command's function and options, for the table in main.c. */
#ifndef GB_COMMANDS_H
#define GB_COMMANDS_H

#include "client/gpubufctl/cli/cli.h"

#define GB_COMMAND(name)                                                                           \
    void gb_cmd_##name(struct gb_cli *cli, struct gb_cli_args *args);                              \
    extern const struct gb_cli_option gb_##name##_options[]

GB_COMMAND(put);
GB_COMMAND(create);
GB_COMMAND(write);
GB_COMMAND(get);
GB_COMMAND(show);
GB_COMMAND(ls);
GB_COMMAND(stat);
GB_COMMAND(why);
GB_COMMAND(where);
GB_COMMAND(rm);
GB_COMMAND(expire);
GB_COMMAND(spill);
GB_COMMAND(restore);
GB_COMMAND(alias);
GB_COMMAND(ps);
GB_COMMAND(top);
GB_COMMAND(watch);
GB_COMMAND(tail);
GB_COMMAND(stats);
GB_COMMAND(ping);
void gb_cmd_help(struct gb_cli *cli, struct gb_cli_args *args);
void gb_cmd_stop(struct gb_cli *cli, struct gb_cli_args *args);
void gb_cmd_doctor(struct gb_cli *cli, struct gb_cli_args *args);
void gb_cmd_pin(struct gb_cli *cli, struct gb_cli_args *args);
void gb_cmd_unpin(struct gb_cli *cli, struct gb_cli_args *args);
void gb_cmd_call(struct gb_cli *cli, struct gb_cli_args *args);
void gb_cmd_completion(struct gb_cli *cli, struct gb_cli_args *args);

/* Prints what the last of `words`, which is being typed, may become, for a shell's completion; the
   others are those before it, behind the program's name. */
enum gb_shell { GB_SHELL_BASH, GB_SHELL_ZSH, GB_SHELL_FISH };
extern const char *const gb_completion_scripts[]; /* of each shell: completion/ */
void gb_complete(struct gb_cli *cli, enum gb_shell shell, char *const *words, int count);

#endif
