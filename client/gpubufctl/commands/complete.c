/* Completion of the words that are typed: from the tables of commands and options, with objects'
   names from the daemon. */
#include <stdio.h>
#include <string.h>

#include "client/gpubufctl/answers/names.h"
#include "client/gpubufctl/commands/commands.h"
#include "client/gpubufctl/output/json_print.h"
#include "client/gpubufctl/output/term.h"
#include "proto/layout/dtype.h"

/* The words before the one that is typed, as far as they matter for it. */
struct typed {
    struct gb_cli *cli;
    enum gb_shell shell;
    const struct gb_cli_command *command; /* NULL: it is typed */
    const struct gb_cli_option *option;   /* whose value is typed; NULL: none is */
    int position;                         /* of the argument, behind the command */
    const char *text;                     /* the word that is typed */
};

/* One candidate, with a part before it that is typed already. zsh wants "candidate:what it is" and
   fish a tab between them; in bash only those that begin with what is typed are told. */
static void offer(const struct typed *typed, const char *before, const char *text, const char *what)
{
    char word[512];

    (void)snprintf(word, sizeof(word), "%s%s", before, text);
    if (typed->shell == GB_SHELL_BASH && strncmp(word, typed->text, strlen(typed->text)) != 0)
        return;
    for (const char *at = word; *at; at++)
        printf(typed->shell == GB_SHELL_ZSH && *at == ':' ? "\\%c" : "%c", *at);
    if (typed->shell != GB_SHELL_BASH && *what)
        printf("%c%s", typed->shell == GB_SHELL_ZSH ? ':' : '\t', what);
    putchar('\n');
}

static void offer_words(const struct typed *typed, const char *before, const char *words)
{
    char word[64];

    for (size_t length; *words; words += length + (words[length] == ' ')) {
        length = strcspn(words, " ");
        (void)snprintf(word, sizeof(word), "%.*s", (int)length, words);
        offer(typed, before, word, "");
    }
}

static void offer_names(const struct typed *typed)
{
    const char *prefix = typed->shell == GB_SHELL_BASH ? typed->text : NULL;
    cJSON *objects = gb_found_names(typed->cli, prefix, false, false);

    GB_CJSON_EACH(object, objects)
        offer(typed, "", gb_cjson_string_of(object, "name", ""), "");
    cJSON_Delete(objects);
}

static void offer_commands(const struct typed *typed)
{
    for (const struct gb_cli_command *command = typed->cli->commands; command->name; command++)
        offer(typed, "", command->name, command->summary);
}

/* The name of an argument, or of an option's value, tells what it may be, where no `words` do. The
   shell completes files itself, where it is told a tab alone. */
static void offer_values(const struct typed *typed, const char *before, const char *argument,
                         const char *words)
{
    char what[16];

    argument += *argument == '[';
    (void)snprintf(what, sizeof(what), "%.*s", (int)strcspn(argument, "|…] "), argument);
    for (int type = 0; strcmp(what, "DTYPE") == 0 && type < GB_TYPE_COUNT; type++)
        if (gb_type_info((enum gb_type)type)->array)
            offer(typed, before, gb_type_info((enum gb_type)type)->name, "");
    if (strcmp(what, "SHELL") == 0)
        words = "bash zsh fish";
    if (strcmp(what, "METHOD") == 0)
        words = "alias delete describe hello leases list move release segments sessions set stat "
                "stats trim";
    if (words)
        offer_words(typed, before, words);
    else if (gb_cli_place(what, "FILE PATH DIR") > 0)
        puts("\t");
    else if (gb_cli_place(what, "NAME PREFIX NEW OF FROM TO") > 0)
        offer_names(typed);
    else if (strcmp(what, "COMMAND") == 0)
        offer_commands(typed);
}

static void offer_options(const struct typed *typed, const struct gb_cli_option *options)
{
    char letter[2] = "";

    for (; options && options->name; options++) {
        offer(typed, "--", options->name, options->help);
        letter[0] = options->letter;
        if (letter[0] && typed->text[1] != '-')
            offer(typed, "-", letter, options->help);
    }
}

/* The option that a word names, if its value is the next word, or `within` this one. */
static const struct gb_cli_option *option_of(const struct typed *typed, const char *word,
                                             bool within)
{
    const struct gb_cli_option *tables[] = {typed->cli->options,
                                            typed->command ? typed->command->options : NULL};
    bool is_long = strncmp(word, "--", 2) == 0;
    size_t length = strcspn(word + is_long + 1, "=");

    for (size_t t = 0; t < 2; t++)
        for (const struct gb_cli_option *option = tables[t]; option && option->name; option++)
            if (option->argument && (is_long ? strlen(option->name) == length &&
                                                   strncmp(option->name, word + 2, length) == 0 &&
                                                   (word[2 + length] == '=') == within
                                             : !within && word[1] == option->letter && !word[2]))
                return option;
    return NULL;
}

/* Takes in a word before the one that is typed. */
static void take_word(struct typed *typed, const char *word)
{
    if (typed->option) {
        if (typed->option == typed->cli->options) /* --socket, the first of all */
            typed->cli->socket = word;
        typed->option = NULL;
    } else if (word[0] == '-' && word[1]) {
        typed->option = option_of(typed, word, false);
    } else if (typed->command) {
        typed->position++;
    } else {
        typed->command = gb_cli_find(typed->cli, word);
    }
}

/* bash cuts words at colons. */
static bool is_cut(const char *before, const char *word)
{
    return word[0] == ':' || (*before && before[strlen(before) - 1] == ':');
}

void gb_complete(struct gb_cli *cli, enum gb_shell shell, char *const *words, int count)
{
    struct typed typed = {.cli = cli, .shell = shell, .text = words[count - 1]};
    const char *equals = strchr(typed.text, '=');
    char before[64] = "";
    size_t length;

    for (int i = 0; i < count - 1; i++)
        if (shell != GB_SHELL_BASH || i == 0 || !is_cut(words[i - 1], words[i]))
            take_word(&typed, words[i]);
    bool dashes = !typed.option && typed.text[0] == '-';
    if (dashes && equals && (typed.option = option_of(&typed, typed.text, true)))
        (void)snprintf(before, sizeof(before), "%.*s", (int)(equals - typed.text) + 1, typed.text);
    if (typed.option) {
        offer_values(&typed, before, typed.option->argument, typed.option->words);
    } else if (dashes) {
        offer_options(&typed, typed.command ? typed.command->options : NULL);
        offer_options(&typed, cli->options);
        offer(&typed, "", "--help", "print this and exit");
    } else if (typed.command) {
        const char *argument = gb_cli_argument(typed.command, typed.position, &length);
        if (argument)
            offer_values(&typed, "", argument, NULL);
    } else {
        offer_commands(&typed);
    }
}
