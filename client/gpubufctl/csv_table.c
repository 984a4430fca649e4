#include "csv_table.h"

#include <csv.h>
#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "end.h"
#include "proto/limits.h"

struct gb_csv_reader {
    struct csv_parser parser;
    struct gb_csv_table table;
    bool have_header;
    struct gb_csv_options options;
    bool started;           /* the bytes where a byte order mark and "sep=;" may be have been
                               passed */
    unsigned char first[9]; /* the first bytes, until it is known whether they are one of these */
    size_t first_length;
    bool in_quotes, in_line, in_comment; /* the state of the search for comments */
    bool comment_cr;   /* the last comment ended with CR: an LF right after it belongs to it */
    size_t field;      /* fields of the current row so far */
    uint64_t line;     /* where the parser is, from 1 */
    uint64_t row_line; /* where the current row began */
    int last_end;      /* what ended the last row, if nothing came since; else 0 */
    int code;          /* the first failure, told in `error` */
    struct gb_error error;
};

/* ---- types of fields ------------------------------------------------------------------------ */

static bool is_word(const char *text, size_t length, const char *word)
{
    return length == strlen(word) && strncasecmp(text, word, length) == 0;
}

/* "true", "True", "TRUE" are booleans, "tRuE" is not. */
static bool is_bool(const char *text, size_t length, bool *value)
{
    static const char *const words[] = {"false", "False", "FALSE", "true", "True", "TRUE"};

    if (length < 4 || length > 5)
        return false;
    for (size_t i = 0; i < 6; i++) {
        if (strlen(words[i]) == length && memcmp(words[i], text, length) == 0) {
            *value = i >= 3;
            return true;
        }
    }
    return false;
}

static bool is_special_float(const char *text, size_t length)
{
    if (length > 0 && *text == '-') {
        text++;
        length--;
    }
    return is_word(text, length, "nan") || is_word(text, length, "inf") ||
           is_word(text, length, "infinity");
}

/* The types that digits may have. None of them is rounded: digits without an exact double are no
   float64, and digits that no integer has room for are text. `negative`: a minus stands before
   them. */
static unsigned integer_candidates(const char *digits, size_t count, bool negative)
{
    uint64_t value = 0;

    if (negative && count == 1 && *digits == '0')
        return 1u << GB_CSV_FLOAT64; /* only a double has -0 */
    for (size_t i = 0; i < count; i++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(digits[i] - '0'), &value))
            return 0;
    unsigned found = value <= (uint64_t)INT64_MAX + negative ? 1u << GB_CSV_INT64 : 0;
    if (!negative)
        found |= 1u << GB_CSV_UINT64;
    if (value <= 1ull << 53 || (value < UINT64_MAX - 1023 && (uint64_t)(double)value == value))
        found |= 1u << GB_CSV_FLOAT64;
    return found;
}

/* The value of a number's text, which has no NUL at its end as strtod() needs it. */
static double to_double(const char *text, size_t length)
{
    char copy[1024];

    if (length >= sizeof(copy))
        length = sizeof(copy) - 1;
    memcpy(copy, text, length);
    copy[length] = '\0';
    return strtod(copy, NULL);
}

/* The types that a number's text may have: a set of 1 << GB_CSV_INT64, GB_CSV_UINT64 and
   GB_CSV_FLOAT64. A number that a double would make infinite is text. */
static unsigned number_candidates(const char *text, size_t length)
{
    const char *p = text, *end = text + length;
    bool negative = length > 0 && *p == '-';

    if (negative)
        p++;
    const char *digits = p;
    while (p < end && *p >= '0' && *p <= '9')
        p++;
    size_t whole = (size_t)(p - digits);
    if (whole > 1 && *digits == '0')
        return 0;
    bool integer = p == end;
    size_t fraction = 0;
    if (p < end && *p == '.') {
        const char *start = ++p;
        while (p < end && *p >= '0' && *p <= '9')
            p++;
        fraction = (size_t)(p - start);
    }
    bool small = whole <= DBL_MAX_10_EXP; /* without an exponent */
    if (whole + fraction == 0)
        return is_special_float(text, length) ? 1u << GB_CSV_FLOAT64 : 0;
    if (p < end && (*p == 'e' || *p == 'E')) {
        p++;
        if (p < end && (*p == '-' || *p == '+'))
            p++;
        const char *start = p;
        while (p < end && *p >= '0' && *p <= '9')
            p++;
        if (p == start)
            return 0;
        small = false;
    }
    if (p != end || length > 1000)
        return 0;
    if (!integer && !small && isinf(to_double(text, length)))
        return 0;
    return integer ? integer_candidates(digits, whole, negative) : 1u << GB_CSV_FLOAT64;
}

static unsigned candidates_of(const char *text, size_t length)
{
    bool value;
    unsigned found = 1u << GB_CSV_UTF8;

    if (is_bool(text, length, &value))
        return found | 1u << GB_CSV_BOOL;
    return found | number_candidates(text, length);
}

/* ---- gathering ------------------------------------------------------------------------------ */

static void *grow(void *memory, uint64_t *capacity, uint64_t needed, size_t size)
{
    uint64_t wanted = *capacity + *capacity / 2 + 256;

    if (needed <= *capacity)
        return memory;
    *capacity = wanted < needed ? needed : wanted;
    return gb_grow(memory, (size_t)*capacity, size);
}

int gb_csv_column_append(struct gb_csv_column *column, const char *text, size_t length,
                         struct gb_error *error)
{
    column->lengths =
        grow(column->lengths, &column->rows_capacity, column->rows + 1, sizeof(uint32_t));
    if (!text) {
        column->lengths[column->rows++] = GB_CSV_NULL;
        column->nulls++;
        return 0;
    }
    if (length >= GB_CSV_NULL)
        return gb_fail(error, GPUBUF_E_INVALID, "a field over 4 GiB");
    if (length > 0) {
        column->text = grow(column->text, &column->text_capacity, column->text_bytes + length, 1);
        memcpy(column->text + column->text_bytes, text, length);
    }
    column->text_bytes += length;
    column->lengths[column->rows++] = (uint32_t)length;
    if (column->candidates != 1u << GB_CSV_UTF8)
        column->candidates &= candidates_of(text, length);
    return 0;
}

int gb_csv_table_add(struct gb_csv_table *table, const char *name, size_t length,
                     struct gb_error *error)
{
    if (table->column_count == GB_LIMIT(columns))
        return gb_fail(error, GPUBUF_E_INVALID, "more than %d columns", (int)GB_LIMIT(columns));
    if (table->column_count % 64 == 0)
        table->columns = gb_grow(table->columns, table->column_count + 64, sizeof(*table->columns));
    table->columns[table->column_count++] = (struct gb_csv_column){
        .name = gb_copy(name, length),
        .candidates = 1u << GB_CSV_BOOL | 1u << GB_CSV_INT64 | 1u << GB_CSV_UINT64 |
                      1u << GB_CSV_FLOAT64 | 1u << GB_CSV_UTF8,
    };
    return 0;
}

/* As gb_csv_column_append, for the field that was just parsed; a failure says where it is. */
static int append_field(struct gb_csv_reader *reader, struct gb_csv_column *column,
                        const char *text, size_t length)
{
    struct gb_error error;

    int r = gb_csv_column_append(column, text, length, &error);
    return r == 0 ? 0
                  : gb_fail(&reader->error, r, "line %" PRIu64 ": %s", reader->row_line,
                            error.message);
}

static int append_header(struct gb_csv_reader *reader, const char *text, size_t length)
{
    char made_up[32];
    struct gb_error error;

    if (length == 0) {
        length = (size_t)snprintf(made_up, sizeof(made_up), "column_%zu",
                                  reader->table.column_count + 1);
        text = made_up;
    }
    int r = gb_csv_table_add(&reader->table, text, length, &error);
    return r == 0 ? 0 : gb_fail(&reader->error, r, "line 1: %s", error.message);
}

static void count_lines(struct gb_csv_reader *reader, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (text[i] == '\n' || (text[i] == '\r' && (i + 1 == length || text[i + 1] != '\n')))
            reader->line++;
}

static void on_field(void *field, size_t length, void *arg)
{
    struct gb_csv_reader *reader = arg;
    const char *text = field;

    if (reader->code != 0)
        return;
    reader->last_end = 0;
    if (reader->field == 0)
        reader->row_line = reader->line;
    if (text && memchr(text, '\0', length)) {
        reader->code = gb_fail(&reader->error, GPUBUF_E_INVALID,
                               "line %" PRIu64 ", field %zu: a NUL byte, which no text has",
                               reader->line, reader->field + 1);
        return;
    }
    if (text && !gb_utf8_valid(text, length)) {
        reader->code = gb_fail(&reader->error, GPUBUF_E_INVALID,
                               "line %" PRIu64 ", field %zu: not UTF-8 text; --encoding latin1, or "
                               "windows-1252, reads what older programs wrote",
                               reader->line, reader->field + 1);
        return;
    }
    if (text && reader->have_header && reader->options.null &&
        strlen(reader->options.null) == length && memcmp(text, reader->options.null, length) == 0)
        text = NULL;
    if (!reader->have_header)
        reader->code = append_header(reader, text, length);
    else if (reader->field < reader->table.column_count)
        reader->code = append_field(reader, &reader->table.columns[reader->field], text, length);
    reader->field++;
    if (text)
        count_lines(reader, text, length);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* How many of the first `count` columns have this name. */
static unsigned count_columns(const struct gb_csv_table *table, size_t count, const char *name)
{
    unsigned found = 0;

    for (size_t i = 0; i < count; i++)
        found += strcmp(table->columns[i].name, name) == 0;
    return found;
}

/* Renames a column "a" with N columns of that name before it to "a.N", or to the next free number.
   Goes from the last column to the first, so that the names before a column are still those of the
   file. */
static void rename_columns(struct gb_csv_table *table)
{
    for (size_t i = table->column_count; i-- > 0;) {
        struct gb_csv_column *column = &table->columns[i];
        unsigned number = count_columns(table, i, column->name);
        char *name = NULL;
        while (number > 0 && (!name || count_columns(table, table->column_count, name) > 0)) {
            free(name);
            name = gb_text("%s.%u", column->name, number++);
        }
        if (!name)
            continue;
        free(column->name);
        column->name = name;
    }
}

/* Refuses two columns of one name: they could not be told apart later. */
static int check_header(struct gb_csv_reader *reader)
{
    struct gb_csv_table *table = &reader->table;
    const char **names = gb_new(table->column_count, sizeof(*names));
    int status = 0;

    if (reader->options.renames)
        rename_columns(table);
    for (size_t i = 0; i < table->column_count; i++)
        names[i] = table->columns[i].name;
    qsort(names, table->column_count, sizeof(*names), compare_names);
    for (size_t i = 1; i < table->column_count && status == 0; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            status = gb_fail(&reader->error, GPUBUF_E_INVALID,
                             "line 1: two columns are called \"%.100s\"; --rename-duplicates makes "
                             "the second \"%.100s.1\"",
                             names[i], names[i]);
    free(names);
    return status;
}

static int end_row(struct gb_csv_reader *reader)
{
    struct gb_csv_table *table = &reader->table;

    if (!reader->have_header) {
        reader->have_header = true;
        return check_header(reader);
    }
    if (reader->field != table->column_count)
        return gb_fail(&reader->error, GPUBUF_E_INVALID,
                       "line %" PRIu64 ": %zu field%s, but the header has %zu", reader->row_line,
                       reader->field, reader->field == 1 ? "" : "s", table->column_count);
    if (table->rows == (uint64_t)GB_LIMIT(integer))
        return gb_fail(&reader->error, GPUBUF_E_INVALID, "too many rows");
    table->rows++;
    return 0;
}

/* libcsv reports every CR and LF outside of quotes, also those of empty lines; -1 at the end. */
static void on_line(int end, void *arg)
{
    struct gb_csv_reader *reader = arg;

    if (reader->code != 0)
        return;
    if (end == '\n' && reader->last_end == '\r') { /* the other half of a CRLF */
        reader->last_end = '\n';
        return;
    }
    if (reader->field > 0) {
        reader->code = end_row(reader);
    } else if (end != -1 && reader->have_header && reader->table.column_count == 1) {
        reader->row_line = reader->line;
        reader->code = append_field(reader, &reader->table.columns[0], NULL, 0);
        if (reader->code == 0)
            reader->table.rows++;
    }
    reader->field = 0;
    reader->last_end = end;
    reader->line++;
}

/* ---- reading -------------------------------------------------------------------------------- */

static int is_never_space(unsigned char c)
{
    return 0; /* spaces are part of the field */
}

struct gb_csv_reader *gb_csv_reader_new(const struct gb_csv_options *options)
{
    struct gb_csv_reader *reader = gb_new(1, sizeof(*reader));

    if (csv_init(&reader->parser,
                 CSV_STRICT | CSV_STRICT_FINI | CSV_REPALL_NL | CSV_EMPTY_IS_NULL) != 0)
        gb_out_of_memory();
    csv_set_space_func(&reader->parser, is_never_space);
    csv_set_blk_size(&reader->parser, 4096);
    reader->options = *options;
    if (options->delimiter)
        csv_set_delim(&reader->parser, (unsigned char)options->delimiter);
    reader->line = reader->row_line = 1;
    return reader;
}

void gb_csv_reader_free(struct gb_csv_reader *reader)
{
    if (!reader)
        return;
    csv_free(&reader->parser);
    gb_csv_table_end(&reader->table);
    free(reader);
}

void gb_csv_table_end(struct gb_csv_table *table)
{
    for (size_t i = 0; i < table->column_count; i++) {
        free(table->columns[i].name);
        free(table->columns[i].text);
        free(table->columns[i].lengths);
    }
    free(table->columns);
    *table = (struct gb_csv_table){0};
}

static int parser_failure(struct gb_csv_reader *reader)
{
    if (csv_error(&reader->parser) != CSV_EPARSE)
        gb_out_of_memory();
    return gb_fail(&reader->error, GPUBUF_E_INVALID,
                   "line %" PRIu64 ", field %zu: a quote where none may be; a field with quotes is "
                   "written \"like \"\"this\"\"\"",
                   reader->line, reader->field + 1);
}

static int parse(struct gb_csv_reader *reader, const void *bytes, size_t length)
{
    if (length > 0 &&
        csv_parse(&reader->parser, bytes, length, on_field, on_line, reader) != length &&
        reader->code == 0)
        reader->code = parser_failure(reader);
    return reader->code;
}

/* Skips a comment with the end of its line. Returns its length in bytes. */
static size_t skip_comment(struct gb_csv_reader *reader, const char *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (bytes[i] != '\n' && bytes[i] != '\r')
            continue;
        reader->in_comment = false;
        reader->comment_cr = bytes[i] == '\r';
        reader->line++;
        return i + 1;
    }
    return length;
}

/* How many bytes come before the next comment. */
static size_t find_comment(struct gb_csv_reader *reader, const char *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (!reader->in_line && bytes[i] == reader->options.comment) {
            reader->in_comment = true;
            return i;
        }
        if (bytes[i] == '"')
            reader->in_quotes = !reader->in_quotes;
        reader->in_line = reader->in_quotes || (bytes[i] != '\n' && bytes[i] != '\r');
    }
    return length;
}

static int feed(struct gb_csv_reader *reader, const void *bytes, size_t length)
{
    const char *p = bytes, *end = p + length;

    if (!reader->options.comment)
        return parse(reader, bytes, length);
    while (p < end && reader->code == 0) {
        if (reader->in_comment) {
            p += skip_comment(reader, p, (size_t)(end - p));
            continue;
        }
        if (reader->comment_cr && *p == '\n')
            p++;
        reader->comment_cr = false;
        size_t count = find_comment(reader, p, (size_t)(end - p));
        (void)parse(reader, p, count);
        p += count;
    }
    return reader->code;
}

/* The length of a first line "sep=;", as spreadsheets write it; 0: there is none. */
static size_t take_separator(struct gb_csv_reader *reader, const unsigned char *bytes,
                             size_t length)
{
    if (length < 6 || strncasecmp((const char *)bytes, "sep=", 4) != 0 ||
        !strchr(",;\t|:", bytes[4]) || (bytes[5] != '\n' && bytes[5] != '\r'))
        return 0;
    if (!reader->options.delimiter)
        csv_set_delim(&reader->parser, bytes[4]);
    reader->line++;
    return bytes[5] == '\r' && length > 6 && bytes[6] == '\n' ? 7 : 6;
}

/* Parses the bytes that were held back because they might be a byte order mark or a line
   "sep=;". */
static int feed_start(struct gb_csv_reader *reader)
{
    static const unsigned char bom[3] = {0xef, 0xbb, 0xbf};
    const unsigned char *start = reader->first;
    size_t length = reader->first_length;

    reader->started = true;
    if (length >= 2 && (memcmp(start, "\xff\xfe", 2) == 0 || memcmp(start, "\xfe\xff", 2) == 0))
        return reader->code = gb_fail(&reader->error, GPUBUF_E_INVALID,
                                      "looks like UTF-16; --encoding utf-16 reads it");
    if (length >= 3 && memcmp(start, bom, 3) == 0) {
        start += 3;
        length -= 3;
    }
    size_t skipped = take_separator(reader, start, length);
    return feed(reader, start + skipped, length - skipped);
}

int gb_csv_reader_feed(struct gb_csv_reader *reader, const void *bytes, size_t length,
                       struct gb_error *error)
{
    const unsigned char *p = bytes;

    while (!reader->started && length > 0) {
        reader->first[reader->first_length++] = *p++;
        length--;
        if (reader->first_length == sizeof(reader->first) && feed_start(reader) != 0)
            break;
    }
    if (reader->code == 0)
        (void)feed(reader, p, length);
    if (reader->code != 0 && error)
        *error = reader->error;
    return reader->code;
}

static int finish(struct gb_csv_reader *reader)
{
    if (!reader->started && feed_start(reader) != 0)
        return reader->code;
    if (csv_fini(&reader->parser, on_field, on_line, reader) != 0 && reader->code == 0)
        return gb_fail(&reader->error, GPUBUF_E_INVALID,
                       "line %" PRIu64 ", field %zu: a quoted field that does not end before the "
                       "file does",
                       reader->line, reader->field + 1);
    if (reader->code != 0)
        return reader->code;
    if (!reader->have_header)
        return gb_fail(&reader->error, GPUBUF_E_INVALID,
                       "the CSV is empty; expected a row with the columns' names");
    return 0;
}

int gb_csv_reader_finish(struct gb_csv_reader *reader, struct gb_csv_table *table,
                         struct gb_error *error)
{
    int status = finish(reader);

    if (status != 0) {
        reader->code = status;
        if (error)
            *error = reader->error;
        return status;
    }
    *table = reader->table;
    reader->table = (struct gb_csv_table){0};
    return 0;
}

/* ---- writing -------------------------------------------------------------------------------- */

/* Days since 1970 of "2012-01-31". False: it is no date. */
static bool to_date(const char *text, size_t length, int32_t *days)
{
    struct tm date = {0}, back;
    char copy[11], rest;

    if (length != 10)
        return false;
    memcpy(copy, text, 10);
    copy[10] = '\0';
    if (copy[0] == '-' || strspn(copy, "0123456789-") < 10 ||
        sscanf(copy, "%4d-%2d-%2d%c", &date.tm_year, &date.tm_mon, &date.tm_mday, &rest) != 3)
        return false;
    date.tm_year -= 1900;
    date.tm_mon -= 1;
    back = date;
    time_t seconds = timegm(&back); /* makes the 1st of March of the 30th of February */
    *days = (int32_t)(seconds / 86400);
    return copy[4] == '-' && copy[7] == '-' && back.tm_mon == date.tm_mon &&
           back.tm_mday == date.tm_mday;
}

static bool all_dates(const struct gb_csv_column *column)
{
    const char *text = column->text;
    int32_t days;

    for (uint64_t i = 0; i < column->rows; i++) {
        if (column->lengths[i] == GB_CSV_NULL)
            continue;
        if (!to_date(text, column->lengths[i], &days))
            return false;
        text += column->lengths[i];
    }
    return true;
}

int gb_csv_column_force(struct gb_csv_column *column, const char *type, struct gb_error *error)
{
    for (int i = GB_CSV_BOOL; i <= GB_CSV_UTF8; i++) {
        if (strcmp(type, gb_csv_type_name((enum gb_csv_type)i)) != 0)
            continue;
        if (i == GB_CSV_DATE32 ? !all_dates(column) : !(column->candidates & 1u << i))
            return gb_fail(error, GPUBUF_E_INVALID,
                           "column \"%.100s\": not every field is of type %s", column->name, type);
        column->candidates = 1u << i;
        column->forced = true;
        return 0;
    }
    return gb_fail(error, GPUBUF_E_INVALID,
                   "there is no type \"%.50s\" for a column of a CSV file; expected bool, int64, "
                   "uint64, float64, date32 or utf8",
                   type);
}

enum gb_csv_type gb_csv_column_type(const struct gb_csv_column *column)
{
    if (column->nulls < column->rows || column->forced)
        for (int type = GB_CSV_BOOL; type < GB_CSV_UTF8; type++)
            if (column->candidates & 1u << type)
                return (enum gb_csv_type)type;
    return column->text_bytes > INT32_MAX ? GB_CSV_LARGE_UTF8 : GB_CSV_UTF8;
}

const char *gb_csv_type_name(enum gb_csv_type type)
{
    static const char *const names[] = {"bool",   "int64", "uint64",    "float64",
                                        "date32", "utf8",  "large_utf8"};

    return names[type];
}

static void write_strings(const struct gb_csv_column *column, bool large, void *data, void *offsets)
{
    uint64_t end = 0;

    for (uint64_t i = 0; i <= column->rows; i++) {
        if (large)
            ((int64_t *)offsets)[i] = (int64_t)end;
        else
            ((int32_t *)offsets)[i] = (int32_t)end;
        if (i < column->rows && column->lengths[i] != GB_CSV_NULL)
            end += column->lengths[i];
    }
    if (column->text_bytes > 0)
        memcpy(data, column->text, column->text_bytes);
}

static int64_t to_int64(const char *text, size_t length)
{
    bool negative = *text == '-';
    uint64_t value = 0;

    for (size_t i = negative ? 1 : 0; i < length; i++)
        value = value * 10 + (uint64_t)(text[i] - '0');
    return negative ? (int64_t)(0 - value) : (int64_t)value;
}

static void set_bit(uint8_t *bits, uint64_t i)
{
    bits[i / 8] = (uint8_t)(bits[i / 8] | 1u << (i % 8));
}

static void write_mask(const struct gb_csv_column *column, uint8_t *mask)
{
    memset(mask, 0, column->rows / 8 + (column->rows % 8 != 0));
    for (uint64_t i = 0; i < column->rows; i++)
        if (column->lengths[i] != GB_CSV_NULL)
            set_bit(mask, i);
}

void gb_csv_column_write(const struct gb_csv_column *column, void *data, void *mask, void *offsets)
{
    enum gb_csv_type type = gb_csv_column_type(column);
    const char *text = column->text;

    if (mask)
        write_mask(column, mask);
    if (type >= GB_CSV_UTF8) {
        write_strings(column, type == GB_CSV_LARGE_UTF8, data, offsets);
        return;
    }
    if (type == GB_CSV_BOOL)
        memset(data, 0, column->rows / 8 + (column->rows % 8 != 0));
    for (uint64_t i = 0; i < column->rows; i++) {
        bool valid = column->lengths[i] != GB_CSV_NULL;
        size_t length = valid ? column->lengths[i] : 0;
        bool truth;
        if (type == GB_CSV_INT64 || type == GB_CSV_UINT64) /* to_int64 wraps round, so that it
                                                              serves both */
            ((int64_t *)data)[i] = valid ? to_int64(text, length) : 0;
        else if (type == GB_CSV_DATE32) {
            int32_t days = 0;
            (void)(valid && to_date(text, length, &days));
            ((int32_t *)data)[i] = days;
        } else if (type == GB_CSV_FLOAT64)
            ((double *)data)[i] = valid ? to_double(text, length) : 0;
        else if (valid && is_bool(text, length, &truth) && truth)
            set_bit(data, i);
        text += length;
    }
}
