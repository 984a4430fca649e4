#include "daemon/base/log.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "proto/json.h"

static struct {
    enum gb_log_level level;
    bool json;
    bool journal;
} setup = {.level = GB_LOG_INFO};

#define PAUSES 256 /* of event and user; the last is for all that the others have no room for */

struct pause {
    const char *event; /* NULL: unused */
    uid_t uid;
    uint64_t until, left_out;
};

static struct {
    pthread_mutex_t mutex;
    struct pause all[PAUSES];
} pauses = {.mutex = PTHREAD_MUTEX_INITIALIZER};

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

bool gb_log_enabled(enum gb_log_level level)
{
    return level >= setup.level;
}

static void write_time(struct gb_writer *line)
{
    int64_t now = gb_wall_ms();
    time_t seconds = (time_t)(now / 1000);
    struct tm tm;
    char text[32];

    gmtime_r(&seconds, &tm);
    strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
    gb_write_format(line, "%s.%03dZ", text, (int)(now % 1000));
}

/* Writes a text as it is if it is one plain word, else as a JSON string. */
static void write_word(struct gb_writer *line, const char *text)
{
    if (*text && strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                              "_-./:+%@,") == strlen(text))
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

/* The event's and the user's, or one that is unused or over. */
static struct pause *find_pause(const char *event, uid_t uid, uint64_t now)
{
    struct pause *unused = NULL;

    for (unsigned i = 0; i < PAUSES - 1; i++) {
        struct pause *pause = &pauses.all[i];

        if (pause->event && pause->uid == uid && strcmp(pause->event, event) == 0)
            return pause;
        if (!unused && (!pause->event || (pause->until <= now && pause->left_out == 0)))
            unused = pause;
    }
    if (!unused)
        return &pauses.all[PAUSES - 1];
    *unused = (struct pause){.event = event, .uid = uid};
    return unused;
}

bool gb_log_may(const char *event, uid_t uid, uint64_t now, uint64_t *left_out)
{
    struct pause *pause;
    bool may;

    pthread_mutex_lock(&pauses.mutex);
    pause = find_pause(event, uid, now);
    may = pause->until <= now;
    *left_out = pause->left_out;
    pause->left_out = may ? 0 : pause->left_out + 1;
    if (may)
        pause->until = now + GB_LOG_PAUSE_MS;
    pthread_mutex_unlock(&pauses.mutex);
    return may;
}
