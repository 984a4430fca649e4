/* Telling failures: one sentence on standard error, or a line of JSON with --json. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "proto/json.h"
#include "term.h"

static bool as_json;

void gb_cli_json_errors(bool json)
{
    as_json = json;
}

static void say(const char *kind, const char *text)
{
    struct gb_writer out;

    gb_writer_init(&out, 0);
    if (as_json) {
        struct gb_writer clean; /* what is no UTF-8 is no JSON */
        gb_writer_init(&clean, 0);
        gb_text_clean(&clean, text, strlen(text));
        gb_write_char(&clean, '\0');
        gb_write_format(&out, "{\"error\":{\"kind\":\"%s\",\"message\":", kind);
        gb_write_cstring(&out, clean.failed ? "out of memory" : clean.data);
        GB_WRITE_LITERAL(&out, "}}");
        gb_writer_end(&clean);
    } else {
        GB_WRITE_LITERAL(&out, "gpubufctl: ");
        gb_text_clean(&out, text, strlen(text));
    }
    gb_write_text(&out, "\n");
    if (out.failed)
        fputs("gpubufctl: out of memory\n", stderr);
    else
        fwrite(out.data, 1, out.length, stderr);
    gb_writer_end(&out);
}

int gb_cli_fail(enum gb_status status, const char *format, ...)
{
    static const char *const kinds[] = {"ok", "failed", "usage", "no_daemon", "timeout"};
    char text[2048];
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    say(kinds[status], text);
    return (int)status;
}

int gb_cli_usage(const struct gb_cli *cli, const char *format, ...)
{
    char text[2048];
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    size_t length = strlen(text);
    const char *mark = length > 0 && text[length - 1] == '?' ? " See" : "; see";
    if (cli && cli->command)
        return gb_cli_fail(GB_STATUS_USAGE, "%s%s gpubufctl %s --help", text, mark,
                           cli->command->name);
    return gb_cli_fail(GB_STATUS_USAGE, "%s%s gpubufctl --help", text, mark);
}

static enum gb_status status_of(int code)
{
    switch (code) {
    case GPUBUF_E_CONNECT:
    case GPUBUF_E_CLOSED:
    case GPUBUF_E_PROTOCOL:
        return GB_STATUS_NO_DAEMON;
    case GPUBUF_E_TIMEOUT:
        return GB_STATUS_TIMEOUT;
    default:
        return GB_STATUS_FAILED;
    }
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
        {"slice: ", "--slice: "}, {"columns: ", "--columns: "},
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
        (void)snprintf(out, size, "--columns: %s", key + list);
    else
        (void)snprintf(out, size, "%s", key);
    substitute(out, size, "say replace to take its name", "--replace takes its name");
    substitute(out, size, "hello says which it serves", "\"gpubufctl stats\" lists them");
    substitute(out, size, "; hello says what it can", "");
    substitute(out, size, "; --tier makes one", "; the daemon makes one with its option --tier");
}

/* "what: sentence", the sentence in the words of the command line. */
static int tell(const struct gb_cli *cli, int code, const char *sentence, const char *format,
                va_list arguments)
{
    char what[512], text[1536];
    bool name = false;

    (void)vsnprintf(what, sizeof(what), format, arguments);
    if (cli->command && strcmp(cli->command->name, "call") == 0) /* its users write the protocol's
                                                                    parameters themselves */
        (void)snprintf(text, sizeof(text), "%s: %s", what, sentence);
    else {
        char own[768];
        translate(sentence, own, sizeof(own), &name);
        (void)snprintf(text, sizeof(text), "%s: %s", what, own);
    }
    say(gpubuf_errkind(code), text);
    return (int)(name && code == GPUBUF_E_INVALID ? GB_STATUS_USAGE : status_of(code));
}

int gb_cli_error(const struct gb_cli *cli, int code, const char *format, ...)
{
    const char *sentence = gpubuf_errmsg(cli->client);
    va_list arguments;

    va_start(arguments, format);
    int status = tell(cli, code, sentence[0] ? sentence : gpubuf_strerror(code), format, arguments);
    va_end(arguments);
    return status;
}

int gb_cli_error_of(const struct gb_cli *cli, const struct gb_error *error, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    int status = tell(cli, error->code, error->message, format, arguments);
    va_end(arguments);
    return status;
}

int gb_cli_tell(const struct gb_error *error)
{
    say(gpubuf_errkind(error->code), error->message);
    return (int)status_of(error->code);
}
