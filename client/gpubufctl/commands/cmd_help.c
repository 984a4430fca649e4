/* gpubufctl help [COMMAND], version; and finding the command that a word names, or means. */
#include <stdio.h>
#include <string.h>

#include "client/gpubufctl/commands/commands.h"
#include "client/gpubufctl/output/json_print.h"

/* Words that other programs use: with `same` the word is another name of the command, without it
   only a hint. */
static const struct {
    const char *word, *command;
    bool same;
} other_words[] = {
    {"list", "ls", true},        {"info", "stat", true},     {"cat", "get", true},
    {"delete", "rm", false},     {"del", "rm", false},       {"remove", "rm", false},
    {"unlink", "rm", false},     {"rename", "alias", false}, {"move", "alias", false},
    {"mv", "alias", false},      {"cp", "alias", false},     {"copy", "alias", false},
    {"ln", "alias", false},      {"link", "alias", false},   {"upload", "put", false},
    {"import", "put", false},    {"publish", "put", false},  {"load", "put", false},
    {"save", "get", false},      {"export", "get", false},   {"dump", "get", false},
    {"download", "get", false},  {"print", "show", false},   {"head", "show", false},
    {"view", "show", false},     {"lsof", "ps", false},      {"who", "ps", false},
    {"leases", "ps", false},     {"keys", "ls", false},      {"dir", "ls", false},
    {"monitor", "watch", false}, {"events", "watch", false}, {"describe", "call", false},
    {"trim", "call", false},
};

enum { OTHER_WORDS = sizeof(other_words) / sizeof(*other_words), WORD_MAX = 24 };

const struct gb_cli_command *gb_cli_find(const struct gb_cli *cli, const char *name)
{
    for (size_t i = 0; i < OTHER_WORDS; i++)
        if (other_words[i].same && strcmp(other_words[i].word, name) == 0)
            name = other_words[i].command;
    for (const struct gb_cli_command *command = cli->commands; command->name; command++)
        if (strcmp(command->name, name) == 0)
            return command;
    return NULL;
}

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

/* How many characters have to be left out, added, changed or swapped with the next to get from `a`
   to `b`. */
static unsigned distance(const char *a, const char *b)
{
    /* The distances for the last two prefixes of `a`, and for this one. */
    unsigned rows[3][WORD_MAX + 1];
    size_t m = strlen(a), n = strlen(b);

    for (size_t j = 0; j <= n; j++)
        rows[0][j] = (unsigned)j;
    for (size_t i = 1; i <= m; i++) {
        unsigned *now = rows[i % 3], *last = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        now[0] = (unsigned)i;
        for (size_t j = 1; j <= n; j++) {
            now[j] = least(least(last[j], now[j - 1]) + 1, last[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = least(now[j], before[j - 2] + 1);
        }
    }
    return rows[m % 3][n];
}

/* The command that was probably meant; NULL: none comes near. */
static const char *suggest(const struct gb_cli *cli, const char *name)
{
    const char *best = NULL;
    size_t length = strlen(name);
    unsigned nearest = (unsigned)least((unsigned)(length + 1) / 3, 2); /* farther: no hint */

    if (length > WORD_MAX)
        return NULL;
    for (size_t i = 0; i < OTHER_WORDS; i++)
        if (distance(name, other_words[i].word) < nearest + !best) {
            nearest = distance(name, other_words[i].word);
            best = other_words[i].command;
        }
    for (const struct gb_cli_command *command = cli->commands; command->name; command++)
        if (distance(name, command->name) < nearest + !best) {
            nearest = distance(name, command->name);
            best = command->name;
        }
    return best;
}

_Noreturn void gb_cli_no_command(const struct gb_cli *cli, const char *name)
{
    const char *meant = suggest(cli, name);

    if (meant)
        gb_cli_usage(cli, "there is no command \"%s\"; did you mean \"%s\"?", name, meant);
    gb_cli_usage(cli, "there is no command \"%s\"", name);
}

void gb_cmd_help(struct gb_cli *cli, struct gb_cli_args *args)
{
    cli->command = args->count ? gb_cli_find(cli, args->value[0]) : NULL;
    if (args->count && !cli->command)
        gb_cli_no_command(cli, args->value[0]);
    gb_cli_print_help(cli);
}

void gb_cli_print_version(const struct gb_cli *cli)
{
    if (!cli->json)
        printf("gpubufctl %s\n", gpubuf_version());
    else
        gb_cjson_print_pattern("{'version':%s}", gpubuf_version());
}
