/* Telling failures in the words of the command line. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "client/gpubufctl/cli/cli.h"

_Noreturn void gb_cli_usage(const struct gb_cli *cli, const char *format, ...)
{
    char text[2048];
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    size_t length = strlen(text);
    const char *mark = length > 0 && text[length - 1] == '?' ? " See" : "; see";
    if (cli && cli->command)
        gb_cli_fail(GB_STATUS_USAGE, "%s%s gpubufctl %s --help", text, mark, cli->command->name);
    gb_cli_fail(GB_STATUS_USAGE, "%s%s gpubufctl --help", text, mark);
}

/* ---- the daemon's sentences in the words of the command line ---- */

static bool starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

/* The command line's name for a parameter of the protocol: --device for "device". NULL: there is
   none. */
static const char *option_of(const char *key)
{
    static const char *const names[][2] = {
        {"name: ", ""},           {"of: ", ""},
        {"prefix: ", ""},         {"device: ", "--device: "},
        {"share: ", "--share: "}, {"mode: ", "--mode: "},
        {"slice: ", "--slice: "}, {"columns: ", "--column: "},
        {"evict: ", "--evict: "}, {"ttl_ms: ", "--ttl: "},
        {"tier: ", "--tier: "},   {"wait_ms: ", "--wait: "},
    };

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (starts_with(key, names[i][0]))
            return names[i][1];
    return NULL;
}

/* Replaces `what` in the text by `with`, if it is there. */
static void substitute(char *text, size_t size, const char *what, const char *with)
{
    char rest[1024];
    char *found = strstr(text, what);

    if (!found)
        return;
    (void)snprintf(rest, sizeof(rest), "%s", found + strlen(what));
    (void)snprintf(found, size - (size_t)(found - text), "%s%s", with, rest);
}

/* Rewrites a sentence of the daemon's without the protocol's parameter names. *name becomes true if
   it is about a name that is wrong. */
static void translate(const char *sentence, char *out, size_t size, bool *name)
{
    const char *key = starts_with(sentence, "params.") ? sentence + strlen("params.") : sentence;
    const char *option = option_of(key);
    int column, used = 0, list = 0;

    *name = option && !option[0];
    if (option)
        (void)snprintf(out, size, "%s%s", option, strchr(key, ' ') + 1);
    else if (sscanf(key, "layout.columns[%d].name: %n", &column, &used) == 1 && used > 0)
        (void)snprintf(out, size, "the name of column %d: %s", column + 1, key + used);
    else if (sscanf(key, "columns[%d]: %n", &column, &list) == 1 && list > 0)
        (void)snprintf(out, size, "--column: %s", key + list);
    else
        (void)snprintf(out, size, "%.*s", (int)size - 1, key);
    substitute(out, size, "set replace to take its name", "--replace takes its name");
    substitute(out, size, "; hello says what it can", "");
    substitute(out, size, "; --tier makes one", "; the daemon makes one with its option --tier");
}

/* Tells "what: sentence", the sentence in the words of the command line; the status. */
static enum gb_status print_failure(const struct gb_cli *cli, const struct gb_error *error,
                                    const char *format, va_list arguments)
{
    char what[512], text[1536], own[768];
    bool name = false;

    (void)vsnprintf(what, sizeof(what), format, arguments);
    /* The users of `call` write the protocol's parameters themselves. */
    if (cli->command && strcmp(cli->command->name, "call") == 0)
        (void)snprintf(own, sizeof(own), "%.760s", error->message);
    else
        translate(error->message, own, sizeof(own), &name);
    (void)snprintf(text, sizeof(text), "%s: %s", what, own);
    gb_cli_say(gpubuf_errkind(error->code), text);
    return name && error->code == GPUBUF_E_INVALID ? GB_STATUS_USAGE
                                                   : gb_cli_status_of(error->code);
}

struct gb_error gb_cli_last(const struct gb_cli *cli, int code)
{
    const char *sentence = gpubuf_errmsg(cli->client);
    struct gb_error error;

    (void)gb_fail(&error, code, "%s", sentence[0] ? sentence : gpubuf_strerror(code));
    return error;
}

void gb_cli_check(const struct gb_cli *cli, int code, const char *format, ...)
{
    va_list arguments;

    if (code >= 0)
        return;
    struct gb_error error = gb_cli_last(cli, code);
    va_start(arguments, format);
    enum gb_status status = print_failure(cli, &error, format, arguments);
    va_end(arguments);
    gb_cli_end(status);
}

_Noreturn void gb_cli_fail_with(const struct gb_cli *cli, const struct gb_error *error,
                                const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    enum gb_status status = print_failure(cli, error, format, arguments);
    va_end(arguments);
    gb_cli_end(status);
}

void gb_cli_note(struct gb_cli *cli, const struct gb_error *error, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    enum gb_status status = print_failure(cli, error, format, arguments);
    va_end(arguments);
    if (cli->worst == GB_STATUS_OK || status == GB_STATUS_NO_DAEMON)
        cli->worst = status;
}
