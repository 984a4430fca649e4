#include "client/gpubufctl/data/csv_table.h"

#include <csv.h>
#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "client/gpubufctl/output/end.h"
#include "proto/base/limits.h"

struct gb_csv_reader {
    struct csv_parser parser;
    struct gb_csv_table table;
    bool have_header;
    bool started;           /* the bytes where a byte order mark may be have been passed */
    unsigned char first[3]; /* the first bytes, until it is known whether they are one */
    size_t first_length;
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

static int append_field(struct gb_csv_reader *reader, struct gb_csv_column *column,
                        const char *text, size_t length)
{
    column->lengths =
        grow(column->lengths, &column->rows_capacity, column->rows + 1, sizeof(uint32_t));
    if (!text) {
        column->lengths[column->rows++] = GB_CSV_NULL;
        column->nulls++;
        return 0;
    }
    if (length >= GB_CSV_NULL)
        return gb_fail(&reader->error, GPUBUF_E_INVALID, "line %" PRIu64 ": a field over 4 GiB",
                       reader->row_line);
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

static int append_header(struct gb_csv_reader *reader, const char *text, size_t length)
{
    struct gb_csv_table *table = &reader->table;

    if (table->column_count == GB_LIMIT(columns))
        return gb_fail(&reader->error, GPUBUF_E_INVALID, "line 1: more than %d columns",
                       (int)GB_LIMIT(columns));
    if (table->column_count % 64 == 0)
        table->columns = gb_grow(table->columns, table->column_count + 64, sizeof(*table->columns));
    table->columns[table->column_count++] = (struct gb_csv_column){
        .name = length ? gb_copy(text, length) : gb_text("column_%zu", table->column_count),
        .candidates = 1u << GB_CSV_BOOL | 1u << GB_CSV_INT64 | 1u << GB_CSV_UINT64 |
                      1u << GB_CSV_FLOAT64 | 1u << GB_CSV_UTF8,
    };
    return 0;
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
                               "line %" PRIu64 ", field %zu: not UTF-8 text; iconv -f latin1 -t "
                               "utf-8 makes UTF-8 of what older programs wrote",
                               reader->line, reader->field + 1);
        return;
    }
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

/* Refuses two columns of one name: they could not be told apart later. */
static int check_header(struct gb_csv_reader *reader)
{
    struct gb_csv_table *table = &reader->table;
    const char **names = gb_new(table->column_count, sizeof(*names));
    int status = 0;

    for (size_t i = 0; i < table->column_count; i++)
        names[i] = table->columns[i].name;
    qsort(names, table->column_count, sizeof(*names), compare_names);
    for (size_t i = 1; i < table->column_count && status == 0; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            status =
                gb_fail(&reader->error, GPUBUF_E_INVALID,
                        "line 1: two columns are called \"%.100s\"; rename one of them", names[i]);
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

struct gb_csv_reader *gb_csv_reader_new(char delimiter)
{
    struct gb_csv_reader *reader = gb_new(1, sizeof(*reader));

    if (csv_init(&reader->parser,
                 CSV_STRICT | CSV_STRICT_FINI | CSV_REPALL_NL | CSV_EMPTY_IS_NULL) != 0)
        gb_out_of_memory();
    csv_set_space_func(&reader->parser, is_never_space);
    csv_set_blk_size(&reader->parser, 4096);
    if (delimiter)
        csv_set_delim(&reader->parser, (unsigned char)delimiter);
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

/* Parses the bytes that were held back because they might be a byte order mark. */
static int feed_start(struct gb_csv_reader *reader)
{
    static const unsigned char bom[3] = {0xef, 0xbb, 0xbf};
    const unsigned char *start = reader->first;
    size_t length = reader->first_length;

    reader->started = true;
    if (length >= 2 && (memcmp(start, "\xff\xfe", 2) == 0 || memcmp(start, "\xfe\xff", 2) == 0))
        return reader->code =
                   gb_fail(&reader->error, GPUBUF_E_INVALID,
                           "looks like UTF-16; iconv -f utf-16 -t utf-8 makes UTF-8 of it");
    bool marked = length == sizeof(bom) && memcmp(start, bom, sizeof(bom)) == 0;
    return marked ? 0 : parse(reader, start, length);
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
        (void)parse(reader, p, length);
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

enum gb_csv_type gb_csv_column_type(const struct gb_csv_column *column)
{
    if (column->nulls < column->rows)
        for (int type = GB_CSV_BOOL; type < GB_CSV_UTF8; type++)
            if (column->candidates & 1u << type)
                return (enum gb_csv_type)type;
    return column->text_bytes > INT32_MAX ? GB_CSV_LARGE_UTF8 : GB_CSV_UTF8;
}

const char *gb_csv_type_name(enum gb_csv_type type)
{
    static const char *const names[] = {"bool", "int64", "uint64", "float64", "utf8", "large_utf8"};

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
        else if (type == GB_CSV_FLOAT64)
            ((double *)data)[i] = valid ? to_double(text, length) : 0;
        else if (valid && is_bool(text, length, &truth) && truth)
            set_bit(data, i);
        text += length;
    }
}
