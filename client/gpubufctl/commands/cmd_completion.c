/* gpubufctl completion SHELL: a script that asks gpubufctl at each Tab what may follow, and the
   answer. */
#include <stdio.h>
#include <string.h>

#include "client/gpubufctl/commands/commands.h"

void gb_cmd_completion(struct gb_cli *cli, struct gb_cli_args *args)
{
    int64_t shell = gb_cli_place(args->value[0], "bash zsh fish");

    if (shell == 0)
        gb_cli_usage(cli, "there is completion for bash, zsh and fish, not for \"%s\"",
                     args->value[0]);
    if (args->count > 1)
        gb_complete(cli, (enum gb_shell)(shell - 1), args->value + 1, args->count - 1);
    else
        fputs(gb_completion_scripts[shell - 1], stdout);
}
