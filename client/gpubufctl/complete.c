/* gpubufctl completion zsh, fish: scripts made from the tables of commands and options. */
#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "complete.h"

const char *gb_complete_words(const char *command)
{
    if (strcmp(command, "completion") == 0)
        return "bash zsh fish";
    if (strcmp(command, "call") == 0)
        return "alias delete describe hello leases list move release segments sessions set stat "
               "stats trim";
    return NULL;
}

/* ---- zsh ---- */

/* Within single quotes, in a part that a colon or bracket would end. */
static void zsh_text(const char *text)
{
    for (; *text; text++) {
        if (*text == '\'')
            printf("'\\''");
        else if (strchr("[]:\\", *text))
            printf("\\%c", *text);
        else
            putchar(*text);
    }
}

static void zsh_options(const struct gb_cli_option *options)
{
    for (size_t i = 0; options && options[i].name; i++) {
        const struct gb_cli_option *option = &options[i];
        if (option->letter)
            printf(" \\\n        '(-%c --%s)'{-%c%s,--%s%s}'[", option->letter, option->name,
                   option->letter, option->argument ? "+" : "", option->name,
                   option->argument ? "=" : "");
        else
            printf(" \\\n        '--%s%s[", option->name, option->argument ? "=" : "");
        zsh_text(option->help);
        putchar(']');
        if (option->argument) {
            putchar(':');
            zsh_text(option->argument);
            if (option->words)
                printf(":(%s)", option->words);
            else
                printf(option->complete == GB_COMPLETE_FILE ? ":_files" : ": ");
        }
        putchar('\'');
    }
    printf(" \\\n        '(-h --help)'{-h,--help}'[print help]'");
}

static const char *zsh_completer(enum gb_cli_complete complete)
{
    return complete == GB_COMPLETE_NAME   ? "_gpubufctl_names"
           : complete == GB_COMPLETE_FILE ? "_files"
                                          : " ";
}

static void zsh_arguments(const struct gb_cli_command *command)
{
    const char *words = gb_complete_words(command->name);

    if (words)
        printf(" \\\n        '1:argument:(%s)'", words);
    else if (strcmp(command->name, "help") == 0)
        printf(" \\\n        '1:command:_gpubufctl_commands'");
    else if (command->most != 0)
        printf(" \\\n        '1:argument:%s'", zsh_completer(command->complete[0]));
    if (command->most < 0 || command->most > 1)
        printf(" \\\n        '*:argument:%s'", zsh_completer(command->complete[1]));
}

void gb_complete_zsh(const struct gb_cli *cli)
{
    printf(
        "#compdef gpubufctl\n"
        "# zsh completion for gpubufctl: put it into a directory of $fpath as _gpubufctl, or load\n"
        "# it with: source <(gpubufctl completion zsh)\n\n"
        "_gpubufctl_socket() {\n"
        "    local given=${opt_args[-S]}${opt_args[--socket]}\n"
        "    [[ -z $given ]] || socket=(--socket \"${(Q)given}\")\n"
        "}\n\n"
        "_gpubufctl_names() {\n"
        "    local -a names\n"
        "    _gpubufctl_socket\n"
        "    names=(${(f)\"$(gpubufctl $socket ls --names 2>/dev/null)\"})\n"
        "    compadd -a names\n"
        "}\n\n"
        "_gpubufctl_commands() {\n    local -a commands\n    commands=(\n");
    for (const struct gb_cli_command *command = cli->commands; command->name; command++) {
        printf("        '%s:", command->name);
        zsh_text(command->summary);
        printf("'\n");
    }
    printf("    )\n    _describe command commands\n}\n\n"
           "_gpubufctl() {\n    local curcontext=$curcontext state line\n"
           "    local -a socket\n    typeset -A opt_args\n    _arguments -C");
    zsh_options(cli->options);
    printf(" \\\n        '1:command:_gpubufctl_commands' '*::argument:->arguments'\n"
           "    [[ $state == arguments ]] || return\n    _gpubufctl_socket\n"
           "    case $words[1] in\n");
    for (const struct gb_cli_command *command = cli->commands; command->name; command++) {
        printf("    %s) _arguments", command->name);
        zsh_options(command->options);
        zsh_options(cli->options);
        zsh_arguments(command);
        printf(" ;;\n");
    }
    printf("    esac\n}\n\n"
           "if [[ $funcstack[1] == _gpubufctl ]]; then\n    _gpubufctl \"$@\"\n"
           "else\n    compdef _gpubufctl gpubufctl\nfi\n");
}

/* ---- fish ---- */

static void fish_text(const char *text)
{
    putchar('\'');
    for (; *text; text++) {
        if (*text == '\'' || *text == '\\')
            putchar('\\');
        putchar(*text);
    }
    putchar('\'');
}

static void fish_options(const char *condition, const struct gb_cli_option *options)
{
    for (size_t i = 0; options && options[i].name; i++) {
        printf("complete -c gpubufctl%s -l %s", condition, options[i].name);
        if (options[i].letter)
            printf(" -s %c", options[i].letter);
        if (options[i].words)
            printf(" -x -a '%s'", options[i].words);
        else if (options[i].argument)
            printf(options[i].complete == GB_COMPLETE_FILE ? " -r -F" : " -x");
        printf(" -d ");
        fish_text(options[i].help);
        putchar('\n');
    }
}

/* Arguments before the one that is typed are not counted: names and files are offered together. */
static void fish_arguments(const struct gb_cli_command *command)
{
    bool file =
        command->complete[0] == GB_COMPLETE_FILE || command->complete[1] == GB_COMPLETE_FILE;
    bool name =
        command->complete[0] == GB_COMPLETE_NAME || command->complete[1] == GB_COMPLETE_NAME;
    const char *words = gb_complete_words(command->name);

    if (file)
        printf("complete -c gpubufctl -n '__fish_seen_subcommand_from %s' -F\n", command->name);
    if (name)
        printf("complete -c gpubufctl -n '__fish_seen_subcommand_from %s' -a "
               "'(__gpubufctl_names)'\n",
               command->name);
    if (words)
        printf("complete -c gpubufctl -n '__fish_seen_subcommand_from %s' -a '%s'\n", command->name,
               words);
}

static void fish_commands(const struct gb_cli *cli, const char *condition)
{
    for (const struct gb_cli_command *command = cli->commands; command->name; command++) {
        printf("complete -c gpubufctl -n '%s' -a %s -d ", condition, command->name);
        fish_text(command->summary);
        putchar('\n');
    }
}

void gb_complete_fish(const struct gb_cli *cli)
{
    char condition[96];

    printf("# fish completion for gpubufctl: gpubufctl completion fish | source\n\n"
           "function __gpubufctl_names\n"
           "    set -l words (commandline -opc)\n"
           "    set -l socket\n"
           "    for i in (seq (math (count $words) - 1))\n"
           "        contains -- $words[$i] -S --socket\n"
           "        and set socket --socket $words[(math $i + 1)]\n"
           "    end\n"
           "    gpubufctl $socket ls --names 2>/dev/null\n"
           "end\n\n"
           "complete -c gpubufctl -f\n");
    fish_commands(cli, "__fish_use_subcommand");
    fish_commands(cli, "__fish_seen_subcommand_from help");
    fish_options("", cli->options);
    printf("complete -c gpubufctl -l help -s h -d 'print help'\n");
    for (const struct gb_cli_command *command = cli->commands; command->name; command++) {
        (void)snprintf(condition, sizeof(condition), " -n '__fish_seen_subcommand_from %s'",
                       command->name);
        fish_options(condition, command->options);
        fish_arguments(command);
    }
}
