#include "client/gpubufctl/cli/cli.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/gpubufctl/cli/parse.h"
#include "client/gpubufctl/output/json_print.h"
#include "client/gpubufctl/output/term.h"

/* ---- the daemon ---------------------------------------------------------------------------- */

void gb_cli_connect(struct gb_cli *cli)
{
    if (cli->client)
        return;

    struct gpubuf_connect_options options = {
        .size = sizeof(options),
        .path = cli->socket,
        .client_name = "gpubufctl",
    };
    int code = gpubuf_connect(&cli->client, &options);
    if (code < 0)
        gb_cli_fail(code == GPUBUF_E_NO_MEMORY ? GB_STATUS_FAILED : GB_STATUS_NO_DAEMON, "%s",
                    gb_cli_last(cli, code).message);
}

/* Ends if a call has failed: in the command's words where there are any, else with the method's
   name. */
static void check_call(const struct gb_cli *cli, int code, const char *method)
{
    static const char *const verbs[][2] = {{"stat", "describe"}, {"leases", "tell who holds"}};
    /* The first argument of `call` is METHOD, and no name. */
    bool named = cli->subject && strcmp(cli->command->name, "call") != 0;

    for (size_t i = 0; i < sizeof(verbs) / sizeof(*verbs) && named; i++)
        if (strcmp(verbs[i][0], method) == 0)
            gb_cli_check(cli, code, "cannot %s %s", verbs[i][1], cli->subject);
    gb_cli_check(cli, code, "%s", method);
}

char *gb_cli_call(struct gb_cli *cli, const char *method, const char *params)
{
    char *result = NULL;

    gb_cli_connect(cli);
    check_call(cli, gpubuf_call(cli->client, method, params, GB_CLI_CALL_MS, &result), method);
    return result;
}

int gb_cli_request(struct gpubuf_client *client, const char *method, cJSON *params, cJSON **answer)
{
    char *text = params ? gb_cjson_text(params) : NULL, *result = NULL;

    cJSON_Delete(params);
    int code = gpubuf_call(client, method, text, GB_CLI_CALL_MS, &result);
    *answer = code == 0 ? gb_cjson_parse(result) : NULL;
    gpubuf_free(result);
    free(text);
    return code;
}

_Noreturn void gb_cli_no_sense(const char *method)
{
    gb_cli_fail(GB_STATUS_FAILED, "the daemon's answer to %s makes no sense", method);
}

cJSON *gb_cli_ask(struct gb_cli *cli, const char *method, cJSON *params)
{
    cJSON *answer;

    gb_cli_connect(cli);
    check_call(cli, gb_cli_request(cli->client, method, params, &answer), method);
    if (!answer)
        gb_cli_no_sense(method);
    return answer;
}

cJSON *gb_cli_stat(struct gb_cli *cli, bool why, const char *name, int64_t version,
                   const char *label)
{
    cJSON *params = cJSON_CreateObject();

    cJSON_AddStringToObject(params, "name", name);
    if (version)
        cJSON_AddNumberToObject(params, "version", (double)version);
    if (label)
        cJSON_AddStringToObject(params, "label", label);
    if (why)
        cJSON_AddTrueToObject(params, "why");
    cJSON *answer = gb_cli_ask(cli, "stat", params);
    if (!cJSON_IsObject(gb_cjson_member(answer, "object")))
        gb_cli_no_sense("stat");
    return answer;
}

/* ---- options ------------------------------------------------------------------------------- */

/* The tables of options that are searched: the command's, then that of the options which every
   command takes. */
struct tables {
    const struct gb_cli_option *options[2];
    struct gb_cli_args *into[2];
};

enum { FOUND = 1000, HELP = 999, TABLE_SIZE = 100 }; /* what getopt returns for long options */

/* Makes getopt's tables. Option i of table t has the number FOUND + t * TABLE_SIZE + i, which
   cannot be that of a letter. */
static void make_getopt_tables(const struct tables *tables, bool permute, struct option *longs,
                               char *shorts)
{
    if (!permute)
        *shorts++ = '+';
    *shorts++ = ':';
    *shorts++ = 'h';
    for (int t = 0; t < 2; t++) {
        const struct gb_cli_option *option = tables->options[t];
        for (int i = 0; option && option->name && i < GB_CLI_OPTIONS_MAX; i++, option++) {
            int value = option->argument ? required_argument : no_argument;
            *longs++ = (struct option){option->name, value, NULL, FOUND + t * TABLE_SIZE + i};
            if (!option->letter)
                continue;
            *shorts++ = option->letter;
            if (option->argument)
                *shorts++ = ':';
        }
    }
    *longs++ = (struct option){"help", no_argument, NULL, HELP};
    *longs = (struct option){0};
    *shorts = '\0';
}

int64_t gb_cli_place(const char *word, const char *words)
{
    int64_t place = 1;

    for (size_t length; *words; words += length + (words[length] == ' '), place++) {
        length = strcspn(words, " ");
        if (strlen(word) == length && strncmp(word, words, length) == 0)
            return place;
    }
    return 0;
}

/* "--evict is spill, drop or keep, not …" */
static _Noreturn void not_a_word(const struct gb_cli *cli, const struct gb_cli_option *option,
                                 const char *value)
{
    char list[128] = "";
    size_t length, used = 0;

    for (const char *word = option->words; *word; word += length + (word[length] == ' ')) {
        length = strcspn(word, " ");
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%.*s",
                                 word == option->words ? ""
                                 : strchr(word, ' ')   ? ", "
                                                       : " or ",
                                 (int)length, word);
    }
    gb_cli_usage(cli, "--%s is %s, not \"%s\"", option->name, list, value);
}

/* Reads the value of an option that is no text. */
static void read_value(const struct gb_cli *cli, const struct gb_cli_option *option,
                       const char *value, int64_t *number)
{
    static const struct {
        const char *argument;
        int (*read)(const char *text, int64_t *out, struct gb_error *error);
    } kinds[] = {{"TIME", gb_parse_duration},
                 {"SIZE", gb_parse_bytes},
                 {"MODE", gb_parse_mode},
                 {"N", gb_parse_count},
                 {"VERSION", gb_parse_version}};
    struct gb_error error;

    if (gb_cli_place(option->argument, "FORMAT HOW KIND ORDER TIER WHAT WHEN") > 0) {
        *number = gb_cli_place(value, option->words);
        if (*number == 0)
            not_a_word(cli, option, value);
        return;
    }
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
        if (strcmp(option->argument, kinds[i].argument) == 0 &&
            kinds[i].read(value, number, &error) != 0)
            gb_cli_usage(cli, "--%s: %s", option->name, error.message);
}

static void take_option(const struct gb_cli *cli, const struct tables *tables, int found,
                        const char *value)
{
    for (int t = 0; t < 2; t++) {
        const struct gb_cli_option *options = tables->options[t];
        for (int i = 0; options && options[i].name; i++) {
            if (found != FOUND + t * TABLE_SIZE + i && found != options[i].letter)
                continue;
            tables->into[t]->option[i] = value ? value : "";
            if (value)
                read_value(cli, &options[i], value, &tables->into[t]->number[i]);
            return;
        }
    }
}

/* Runs getopt over `argv` by the tables. Its index of the first word that is no option stays in
   optind. False: --help was asked for. */
static bool read_options(struct gb_cli *cli, const struct tables *tables, bool permute, int argc,
                         char **argv)
{
    struct option longs[2 * GB_CLI_OPTIONS_MAX + 2];
    char shorts[4 * GB_CLI_OPTIONS_MAX + 4];

    make_getopt_tables(tables, permute, longs, shorts);
    optind = 0; /* start anew: globals and commands are read one after the other */
    opterr = 0;
    for (;;) {
        int found = getopt_long(argc, argv, shorts, longs, NULL);
        if (found == -1)
            return true;
        if (found == HELP || found == 'h')
            return false;
        if (found == ':')
            gb_cli_usage(cli, "option %s needs a value", argv[optind - 1]);
        if (found == '?' && optopt > 0 && optopt < 256)
            gb_cli_usage(cli, "there is no option -%c", optopt);
        if (found == '?' && optopt >= HELP)
            gb_cli_usage(cli, "option %s takes no value", argv[optind - 1]);
        if (found == '?')
            gb_cli_usage(cli, "option %s is unknown, or could be several", argv[optind - 1]);
        take_option(cli, tables, found, optarg);
    }
}

const char *gb_cli_argument(const struct gb_cli_command *command, int i, size_t *length)
{
    const char *at = command->arguments;

    for (; *at && strncmp(at, "--", 2) != 0; at += *length + (at[*length] == ' ')) {
        *length = strcspn(at, " ");
        if (i-- == 0 || memmem(at, *length, "…", strlen("…")))
            return at;
    }
    return NULL;
}

bool gb_cli_read_args(struct gb_cli *cli, int argc, char **argv, struct gb_cli_args *args)
{
    const struct gb_cli_command *command = cli->command;
    struct tables tables = {{command->options, cli->options}, {args, &cli->globals}};
    bool any = strstr(command->arguments, "…") != NULL;
    int least = 0, most = 0;

    for (const char *at = command->arguments; *at; at += strcspn(at, " "), at += *at == ' ') {
        most += strncmp(at, "--", 2) != 0;
        least += strncmp(at, "--", 2) != 0 && *at != '[';
    }

    if (!read_options(cli, &tables, true, argc, argv))
        return false;
    args->count = argc - optind;
    args->value = argv + optind;
    cli->subject = args->count ? args->value[0] : NULL;
    if (args->count < least)
        gb_cli_usage(cli, "%s needs %s", command->name, command->arguments);
    if (args->count > most && !any)
        gb_cli_usage(cli, "%s: one argument too many, \"%s\"", command->name, args->value[most]);
    return true;
}

bool gb_cli_read_globals(struct gb_cli *cli, int argc, char **argv, int *used)
{
    struct tables tables = {{NULL, cli->options}, {NULL, &cli->globals}};

    bool goes_on = read_options(cli, &tables, false, argc, argv);
    *used = optind;
    return goes_on;
}

/* ---- help ---------------------------------------------------------------------------------- */

/* Prints a text in lines of 80 columns. The first line has `at` columns already, the others are
   indented by `indent`. */
static void print_wrapped(const char *text, unsigned at, unsigned indent)
{
    const unsigned most = 80;

    for (bool first = true; *text; first = false) {
        size_t length = strcspn(text, " \n");
        unsigned width = gb_text_width(text, length);
        if (!first && at + 1 + width > most) {
            printf("\n%*s", (int)indent, "");
            at = indent;
        } else if (!first) {
            putchar(' ');
            at++;
        }
        printf("%.*s", (int)length, text);
        at += width;
        text += length;
        text += strspn(text, " \n");
    }
    putchar('\n');
}

/* "  left      right", aligned by what `left` takes on a terminal. */
static void print_pair(const char *left, const char *right)
{
    enum { LEFT = 25 };
    unsigned width = gb_text_width(left, strlen(left));
    unsigned gap = width < LEFT ? LEFT - width : 1;

    printf("  %s%*s", left, (int)gap, "");
    print_wrapped(right, 2 + width + gap, 2 + LEFT);
}

static void print_options(const struct gb_cli_option *options)
{
    for (size_t i = 0; options && options[i].name; i++) {
        char left[64];
        char letter[8] = "    ";
        if (options[i].letter)
            (void)snprintf(letter, sizeof(letter), "-%c, ", options[i].letter);
        (void)snprintf(left, sizeof(left), "%s--%s%s%s", letter, options[i].name,
                       options[i].argument ? " " : "",
                       options[i].argument ? options[i].argument : "");
        print_pair(left, options[i].help);
    }
}

static void print_command_help(const struct gb_cli *cli)
{
    const struct gb_cli_command *command = cli->command;

    printf("usage: gpubufctl %s [OPTION]…%s%s\n\n%s.\n", command->name,
           command->arguments[0] ? " " : "", command->arguments, command->summary);
    if (command->details) {
        putchar('\n');
        print_wrapped(command->details, 0, 0);
    }
    if (command->options && command->options[0].name) {
        printf("\nOptions:\n");
        print_options(command->options);
    }
    printf("\nOptions of all commands:\n");
    print_options(cli->options);
    print_pair("-h, --help", "print this and exit");
}

void gb_cli_print_help(const struct gb_cli *cli)
{
    if (cli->command) {
        print_command_help(cli);
        return;
    }
    printf("usage: gpubufctl [OPTION]… COMMAND [ARGUMENT]…\n\n"
           "Publishes, reads and manages the objects of gpubufd.\n");
    const char *group = NULL;
    for (const struct gb_cli_command *command = cli->commands; command->name; command++) {
        char left[64];
        if (command->group != group)
            printf("\n%s:\n", command->group);
        group = command->group;
        (void)snprintf(left, sizeof(left), "%s %s", command->name, command->arguments);
        print_pair(left, command->summary);
    }
    printf("\nlist, info and cat are other words for ls, stat and get.\n\nOptions:\n");
    print_options(cli->options);
    print_pair("-h, --help", "print this and exit");
    printf("\nExit status: 0 done, 1 failed, 2 wrong usage, 3 no daemon, 4 timed out.\n"
           "See also: gpubufctl help COMMAND, and gpubufctl(1).\n");
}

/* ---- the end ------------------------------------------------------------------------------- */

void gb_cli_print(struct gb_writer *text)
{
    (void)gb_writer_text(text);
    fwrite(text->data, 1, text->length, stdout);
    gb_writer_end(text);
}

void gb_cli_finish_output(enum gb_status worst)
{
    errno = 0;
    bool failed = fflush(stdout) != 0;
    int cause = errno;

    /* Where an earlier write failed, stdio remembers that, but not why. The output is spoilt
       already, so one byte more does no harm, and its failure tells why. */
    if (!failed && ferror(stdout)) {
        failed = true;
        cause = write(STDOUT_FILENO, "\n", 1) < 0 ? errno : EIO;
    }
    if (failed && cause != EPIPE)
        gb_cli_fail(worst ? worst : GB_STATUS_FAILED, "cannot write to standard output: %s",
                    strerror(cause));
}
