#include "proto/base/option.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct gb_option *find(const struct gb_program *program, const char *name,
                                    size_t length)
{
    for (const struct gb_option *option = program->options; option->name; option++)
        if (strlen(option->name) == length && memcmp(option->name, name, length) == 0)
            return option;
    return NULL;
}

/* ---- values ---- */

int gb_option_keep(char **text, const char *value, struct gb_error *error)
{
    char *copy = strdup(value);

    if (!copy)
        return gb_fail_memory(error);
    free(*text);
    *text = copy;
    return 0;
}

static int add(char **list, uint64_t most, const char *value, struct gb_error *error)
{
    uint64_t i = 0;

    while (list[i])
        i++;
    if (i == most)
        return gb_fail(error, GPUBUF_E_INVALID, "given more than %d times", (int)most);
    return gb_option_keep(&list[i], value, error);
}

static int read_number(const struct gb_option *option, const char *value, uint64_t *number,
                       struct gb_error *error)
{
    char *end = NULL;
    uint64_t read;

    errno = 0;
    read = isdigit((unsigned char)*value) ? strtoull(value, &end, 10) : 0;
    if (!end || *end || errno || read < option->least || read > option->most)
        return gb_fail(error, GPUBUF_E_INVALID, "\"%s\": expected %s, a number from %llu to %llu",
                       value, option->argument, (unsigned long long)option->least,
                       (unsigned long long)option->most);
    *number = read;
    return 0;
}

static int set(void *settings, const struct gb_option *option, const char *value,
               struct gb_error *error)
{
    void *at = (char *)settings + option->member;
    uint64_t number;

    if (option->set && option->set(at, value, error) < 0)
        return error->code;
    switch (option->kind) {
    case GB_OPTION_FLAG:
        *(bool *)at = true;
        return 0;
    case GB_OPTION_TEXT:
        if (!*value)
            return gb_fail(error, GPUBUF_E_INVALID, "expected %s", option->argument);
        return gb_option_keep(at, value, error);
    case GB_OPTION_LIST:
        return add(at, option->most, value, error);
    case GB_OPTION_COUNT:
        if (read_number(option, value, &number, error) < 0)
            return error->code;
        *(unsigned *)at = (unsigned)number;
        return 0;
    case GB_OPTION_NUMBER:
        return read_number(option, value, at, error);
    default:
        return 0;
    }
}

void gb_option_free(const struct gb_program *program, void *settings)
{
    for (const struct gb_option *option = program->options; option->name; option++) {
        char **texts = (void *)((char *)settings + option->member);
        uint64_t count = option->kind == GB_OPTION_TEXT   ? 1
                         : option->kind == GB_OPTION_LIST ? option->most
                                                          : 0;

        for (uint64_t i = 0; i < count; i++)
            free(texts[i]);
    }
}

/* ---- the file ---- */

static char *trim(char *text)
{
    char *end = text + strlen(text);

    while (isspace((unsigned char)*text))
        text++;
    while (end > text && isspace((unsigned char)end[-1]))
        end--;
    *end = '\0';
    return text;
}

static int read_key(const struct gb_program *program, void *settings, char *line,
                    struct gb_error *error)
{
    const struct gb_option *option;
    char *key = trim(line), *equals = strchr(key, '=');

    if (!*key || *key == '#')
        return 0;
    if (!equals)
        return gb_fail(error, GPUBUF_E_INVALID, "expected `key = value`, found \"%s\"", key);
    *equals = '\0';
    key = trim(key);
    option = find(program, key, strlen(key));
    if (!option || option->kind == GB_OPTION_FILE || option->kind == GB_OPTION_FLAG)
        return gb_fail(error, GPUBUF_E_INVALID, "unknown key \"%s\"", key);
    return set(settings, option, trim(equals + 1), error);
}

static void note_place(const struct gb_program *program, void *settings, const char *file,
                       unsigned line)
{
    if (program->place)
        *(struct gb_option_place *)((char *)settings + program->place) =
            (struct gb_option_place){file, line};
}

static int read_file(const struct gb_program *program, void *settings, const char *path,
                     struct gb_error *error)
{
    FILE *file = fopen(path, "re");
    char *line = NULL;
    size_t size = 0;
    unsigned number = 0;
    ssize_t length;
    int r = 0;

    if (!file)
        return gb_fail_errno(error, "cannot read the configuration file %s", path);
    while (r == 0 && (length = getline(&line, &size, file)) >= 0) {
        struct gb_error why;

        note_place(program, settings, path, ++number);
        if (strlen(line) < (size_t)length) /* what a crash of the machine may leave of a file */
            r = gb_fail(&why, GPUBUF_E_INVALID, "a NUL octet: the file is damaged, or no text");
        else
            r = read_key(program, settings, line, &why);
        if (r < 0)
            gb_fail(error, why.code, "%s:%u: %s", path, number, why.message);
    }
    if (r == 0 && !feof(file))
        r = gb_fail_errno(error, "cannot read the configuration file %s", path);
    note_place(program, settings, NULL, 0);
    free(line);
    fclose(file);
    return r;
}

/* ---- the command line ---- */

/* Reads `--name VALUE` or `--name=VALUE` and moves *at past it. `file`: only the option that names
   the file has an effect; else all others have. */
static int read_argument(const struct gb_program *program, void *settings, char ***at, bool file,
                         struct gb_error *error)
{
    const char *word = *(*at)++, *equals = strchr(word, '='), *value = equals ? equals + 1 : NULL;
    const struct gb_option *option;
    struct gb_error why;
    bool is_file;

    if (strncmp(word, "--", 2) != 0 || !word[2])
        return gb_fail(error, GPUBUF_E_INVALID, "unexpected argument \"%s\"; see %s --help", word,
                       program->name);
    option = find(program, word + 2, equals ? (size_t)(equals - word) - 2 : strlen(word + 2));
    if (!option)
        return gb_fail(error, GPUBUF_E_INVALID, "unknown option \"%s\"; see %s --help", word,
                       program->name);
    if (!option->argument && value)
        return gb_fail(error, GPUBUF_E_INVALID, "--%s takes no value", option->name);
    if (option->argument && !value && !(value = *(*at)++))
        return gb_fail(error, GPUBUF_E_INVALID, "--%s needs a value: %s", option->name,
                       option->argument);
    is_file = option->kind == GB_OPTION_FILE;
    if (is_file != file)
        return 0;
    if (is_file && option->member)
        *(bool *)((char *)settings + option->member) = true;
    if (is_file)
        return read_file(program, settings, value, error);
    if (set(settings, option, value, &why) < 0)
        return gb_fail(error, why.code, "--%s: %s", option->name, why.message);
    return 0;
}

static int read_arguments(const struct gb_program *program, void *settings, char **argv, bool file,
                          struct gb_error *error)
{
    int r = 0;

    argv += *argv ? 1 : 0;
    while (r == 0 && *argv)
        r = read_argument(program, settings, &argv, file, error);
    return r;
}

int gb_option_read_file(const struct gb_program *program, void *settings, char **argv,
                        struct gb_error *error)
{
    return read_arguments(program, settings, argv, true, error);
}

int gb_option_read_line(const struct gb_program *program, void *settings, char **argv,
                        struct gb_error *error)
{
    return read_arguments(program, settings, argv, false, error);
}

/* ---- help ---- */

/* Prints a text in lines of 80 columns, all but the first indented. */
static void print_wrapped(const char *text)
{
    const unsigned indent = 26, most = 80 - indent;
    unsigned at = 0;

    while (*text) {
        unsigned length = (unsigned)strcspn(text, " ");

        if (at > 0 && at + 1 + length > most) {
            printf("\n%*s", (int)indent, "");
            at = 0;
        }
        at += (unsigned)printf("%s%.*s", at > 0 ? " " : "", (int)length, text);
        text += length + strspn(text + length, " ");
    }
    putchar('\n');
}

void gb_option_help(const struct gb_program *program)
{
    for (const struct gb_option *option = program->options; option->name; option++) {
        char left[40];

        snprintf(left, sizeof(left), "--%s%s%s", option->name, option->argument ? " " : "",
                 option->argument ? option->argument : "");
        printf("  %-23s", left);
        printf(strlen(left) > 23 ? "\n%26s" : "%1s", "");
        print_wrapped(option->help);
    }
}
