/* gpubufctl completion SHELL: for bash, a script made from the tables of commands and options. */
#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "complete.h"

static void print_options(const struct gb_cli_option *options)
{
    for (size_t i = 0; options && options[i].name; i++) {
        printf(" --%s", options[i].name);
        if (options[i].letter)
            printf(" -%c", options[i].letter);
    }
}

/* Both spellings of an option as patterns of a case; after any command for one that all take. */
static void print_pattern(const char *command, const struct gb_cli_option *option)
{
    printf(command ? "    '%s --%s'" : "    %s' --%s'", command ? command : "*", option->name);
    if (option->letter)
        printf(command ? " | '%s -%c'" : " | %s' -%c'", command ? command : "*", option->letter);
    printf(")");
}

/* The values that may follow an option. */
static void print_values(const char *command, const struct gb_cli_option *options)
{
    for (size_t i = 0; options && options[i].name; i++) {
        if (!options[i].argument)
            continue;
        print_pattern(command, &options[i]);
        if (options[i].words)
            printf(" _gpubufctl_words '%s'", options[i].words);
        else if (options[i].complete == GB_COMPLETE_FILE)
            printf(" _gpubufctl_files");
        else
            printf(" :");
        printf("; return ;;\n");
    }
}

static const char *completer(enum gb_cli_complete complete)
{
    switch (complete) {
    case GB_COMPLETE_NAME:
        return "_gpubufctl_names";
    case GB_COMPLETE_FILE:
        return "_gpubufctl_files";
    default:
        return ":";
    }
}

static const char helpers[] =
    "# bash completion for gpubufctl. Load it with: source <(gpubufctl completion bash)\n"
    "\n"
    "_gpubufctl_words() {\n"
    "    mapfile -t COMPREPLY < <(compgen -W \"$1\" -- \"$current\")\n"
    "}\n"
    "\n"
    "_gpubufctl_files() {\n"
    "    compopt -o filenames 2>/dev/null\n"
    "    mapfile -t COMPREPLY < <(compgen -f -- \"$current\")\n"
    "}\n"
    "\n"
    "# Object names may hold spaces and colons. Behind an open quote they stand as they are; bash\n"
    "# itself completes what is behind the last colon of others.\n"
    "_gpubufctl_names() {\n"
    "    local typed=${current//\\\\/} quote='' name colons\n"
    "    if [[ $current == [\\'\\\"]* ]]; then\n"
    "        quote=${current:0:1} typed=${current:1}\n"
    "    fi\n"
    "    COMPREPLY=()\n"
    "    while IFS= read -r name; do\n"
    "        [[ $name == \"$typed\"* ]] || continue\n"
    "        [[ $quote && $name == *[\\'\\\"\\`\\$\\\\]* ]] && continue\n"
    "        [[ $quote ]] || printf -v name '%q' \"$name\"\n"
    "        COMPREPLY+=(\"$name\")\n"
    "    done < <(gpubufctl \"${global[@]}\" ls --names -- \"$typed\" 2>/dev/null)\n"
    "    if [[ ! $quote && $current == *:* && $COMP_WORDBREAKS == *:* ]]; then\n"
    "        colons=${current%\"${current##*:}\"}\n"
    "        COMPREPLY=(\"${COMPREPLY[@]#\"$colons\"}\")\n"
    "    fi\n"
    "}\n"
    "\n";

static const char find_command[] =
    "_gpubufctl() {\n"
    "    local last=$COMP_CWORD current=${COMP_WORDS[COMP_CWORD]} line=${COMP_LINE:0:COMP_POINT}\n"
    "    local previous command='' position=0 i word skip='' global=()\n"
    "    COMPREPLY=()\n"
    "    # bash cuts words at colons: the current one is put together again.\n"
    "    while ((last > 1)) && [[ ${COMP_WORDS[last]} == *: || ${COMP_WORDS[last-1]} == *: ]] &&\n"
    "        [[ $line == *\"${COMP_WORDS[last-1]}$current\" ]]; do\n"
    "        ((--last))\n"
    "        current=${COMP_WORDS[last]}$current\n"
    "    done\n"
    "    previous=${COMP_WORDS[last-1]}\n"
    "    for ((i = 1; i < last; i++)); do\n"
    "        word=${COMP_WORDS[i]}\n"
    "        if [[ -n $skip ]]; then\n"
    "            skip=''\n"
    "        elif [[ $word == --socket || $word == -S ]]; then\n"
    "            skip=yes\n"
    "            global=(--socket \"${COMP_WORDS[i+1]}\")\n"
    "        elif [[ $word == --color ]]; then\n"
    "            skip=yes\n"
    "        elif [[ $word == -* ]]; then\n"
    "            case \"$command $word\" in\n";

static void print_skips(const struct gb_cli *cli)
{
    for (const struct gb_cli_command *command = cli->commands; command->name; command++) {
        for (size_t i = 0; command->options && command->options[i].name; i++) {
            if (!command->options[i].argument)
                continue;
            printf("        ");
            print_pattern(command->name, &command->options[i]);
            printf(" skip=yes ;;\n");
        }
    }
    printf("            esac\n"
           "        elif [[ -z $command ]]; then\n"
           "            command=$word\n"
           "        else\n"
           "            ((++position))\n"
           "        fi\n"
           "    done\n");
}

static void print_names(const struct gb_cli *cli)
{
    for (const struct gb_cli_command *command = cli->commands; command->name; command++)
        printf("%s%s", command == cli->commands ? "" : " ", command->name);
}

static void print_commands(const struct gb_cli *cli)
{
    printf("    if [[ -z $command ]]; then\n"
           "        if [[ $current == -* ]]; then\n"
           "            _gpubufctl_words '");
    print_options(cli->options);
    printf(" --help'\n        else\n            _gpubufctl_words '");
    print_names(cli);
    printf("'\n        fi\n        return\n    fi\n");
}

static void print_arguments(const struct gb_cli *cli)
{
    printf("    if [[ $current == -* ]]; then\n        case $command in\n");
    for (const struct gb_cli_command *command = cli->commands; command->name; command++) {
        printf("        %s) _gpubufctl_words '", command->name);
        print_options(command->options);
        print_options(cli->options);
        printf(" --help' ;;\n");
    }
    printf("        esac\n        return\n    fi\n    case \"$command $position\" in\n");
    for (const struct gb_cli_command *command = cli->commands; command->name; command++) {
        if (gb_complete_words(command->name))
            printf("    '%s 0') _gpubufctl_words '%s' ;;\n", command->name,
                   gb_complete_words(command->name));
        else if (strcmp(command->name, "help") == 0) {
            printf("    'help 0') _gpubufctl_words '");
            print_names(cli);
            printf("' ;;\n");
        } else if (command->most != 0) {
            printf("    '%s 0') %s ;;\n", command->name, completer(command->complete[0]));
            printf("    '%s '*) %s ;;\n", command->name, completer(command->complete[1]));
        }
    }
    printf("    esac\n}\n\ncomplete -F _gpubufctl gpubufctl\n");
}

static void complete_bash(const struct gb_cli *cli)
{
    fputs(helpers, stdout);
    fputs(find_command, stdout);
    print_skips(cli);
    printf("    case \"$command $previous\" in\n");
    print_values(NULL, cli->options);
    for (const struct gb_cli_command *command = cli->commands; command->name; command++)
        print_values(command->name, command->options);
    printf("    esac\n");
    print_commands(cli);
    print_arguments(cli);
}

int gb_cmd_completion(struct gb_cli *cli, struct gb_cli_args *args)
{
    static const struct {
        const char *shell;
        void (*print)(const struct gb_cli *cli);
    } shells[] = {{"bash", complete_bash}, {"zsh", gb_complete_zsh}, {"fish", gb_complete_fish}};

    for (size_t i = 0; i < sizeof(shells) / sizeof(*shells); i++)
        if (strcmp(shells[i].shell, args->value[0]) == 0) {
            shells[i].print(cli);
            return GB_STATUS_OK;
        }
    return gb_cli_usage(cli, "there is completion for bash, zsh and fish, not for \"%s\"",
                        args->value[0]);
}
