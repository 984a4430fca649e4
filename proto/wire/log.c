#include "proto/wire/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "proto/wire/json.h"

static struct {
    enum gb_log_level level;
    bool json;
    bool journal;
} setup = {.level = GB_LOG_INFO};

static const char *const level_names[] = {"debug", "info", "warning", "error"};

/* Whether stderr is the stream that systemd connected to its journal (systemd.exec(5)). */
static bool stderr_is_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    struct stat st;
    unsigned long device, inode;

    return stream && fstat(STDERR_FILENO, &st) == 0 &&
           sscanf(stream, "%lu:%lu", &device, &inode) == 2 && st.st_dev == device &&
           st.st_ino == inode;
}

void gb_log_setup(enum gb_log_level level, bool json)
{
    setup.level = level;
    setup.json = json;
    setup.journal = stderr_is_journal();
}

int gb_log_read_level(void *at, const char *value, struct gb_error *error)
{
    enum gb_log_level *level = at;

    if (strcmp(value, "warn") == 0)
        value = "warning";
    for (unsigned i = 0; i < 4; i++)
        if (strcmp(value, level_names[i]) == 0) {
            *level = (enum gb_log_level)i;
            return 0;
        }
    return gb_fail(error, GPUBUF_E_INVALID,
                   "\"%s\" is no level; expected debug, info, warning or error", value);
}

int gb_log_read_format(void *at, const char *value, struct gb_error *error)
{
    bool *json = at;

    if (strcmp(value, "text") != 0 && strcmp(value, "json") != 0)
        return gb_fail(error, GPUBUF_E_INVALID, "\"%s\" is no format; expected text or json",
                       value);
    *json = *value == 'j';
    return 0;
}

bool gb_log_enabled(enum gb_log_level level)
{
    return level >= setup.level;
}

static void write_time(struct gb_writer *line)
{
    struct timespec now;
    struct tm tm;
    char text[32];

    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
    gb_write_format(line, "%s.%03dZ", text, (int)(now.tv_nsec / 1000000));
}

/* Writes a text as it is if it is one plain word, else as a JSON string. */
static void write_word(struct gb_writer *line, const char *text)
{
    if (*text && strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                              "_-./:+%@,[]") == strlen(text))
        gb_write_text(line, text);
    else
        gb_write_cstring(line, text);
}

static void write_text_line(struct gb_writer *line, enum gb_log_level level,
                            const struct gb_log_field *fields)
{
    static const int priorities[] = {7, 6, 4, 3};

    if (setup.journal) {
        gb_write_format(line, "<%d>", priorities[level]);
    } else {
        write_time(line);
        gb_write_format(line, " %-7s ", level_names[level]);
    }
    gb_write_text(line, fields->text);
    for (const struct gb_log_field *field = fields + 1; field->key; field++) {
        gb_write_format(line, " %s=", field->key);
        if (field->text)
            write_word(line, field->text);
        else
            gb_write_int(line, field->number);
    }
}

static void write_json_line(struct gb_writer *line, enum gb_log_level level,
                            const struct gb_log_field *fields)
{
    GB_WRITE_LITERAL(line, "{\"time\":\"");
    write_time(line);
    gb_write_format(line, "\",\"level\":\"%s\"", level_names[level]);
    for (const struct gb_log_field *field = fields; field->key; field++) {
        gb_write_format(line, ",\"%s\":", field->key);
        if (field->text)
            gb_write_cstring(line, field->text);
        else
            gb_write_int(line, field->number);
    }
    gb_write_char(line, '}');
}

void gb_log_write(enum gb_log_level level, const struct gb_log_field *fields)
{
    struct gb_writer line;

    gb_writer_init(&line, 8192);
    if (setup.json)
        write_json_line(&line, level, fields);
    else
        write_text_line(&line, level, fields);
    gb_write_char(&line, '\n');
    if (!line.failed && write(STDERR_FILENO, line.data, line.length) < 0) {
        /* There is no other place to report it to. */
    }
    gb_writer_end(&line);
}
