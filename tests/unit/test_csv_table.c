/* CSV into typed columns, in one piece and cut at every place; and fields written as CSV. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cases.h"

#include "client/gpubufctl/csv_table.h"
#include "client/gpubufctl/csv_write.h"

/* Reads `text` in pieces of `step` bytes. */
static int read_in_steps(const char *text, size_t length, size_t step, struct gb_csv_table *table,
                         struct gb_error *error)
{
    struct gb_csv_reader *reader;

    assert_int_equal(gb_csv_reader_new(&reader, error), 0);
    int code = 0;
    for (size_t at = 0; at < length && code == 0; at += step) {
        size_t count = length - at < step ? length - at : step;
        code = gb_csv_reader_feed(reader, text + at, count, error);
    }
    if (code == 0)
        code = gb_csv_reader_finish(reader, table, error);
    gb_csv_reader_free(reader);
    return code;
}

static void read_good(const char *text, struct gb_csv_table *table)
{
    struct gb_error error;

    for (size_t step = 1; step <= 7; step++) { /* a reading that hangs on the pieces would differ */
        struct gb_csv_table other = {0};
        assert_int_equal(read_in_steps(text, strlen(text), step, &other, &error), 0);
        if (step < 7) {
            gb_csv_table_end(&other);
            continue;
        }
        if (read_in_steps(text, strlen(text), SIZE_MAX / 2, table, &error) != 0)
            fail_msg("%s: %s", text, error.message);
        assert_int_equal(table->rows, other.rows);
        assert_int_equal(table->column_count, other.column_count);
        for (size_t i = 0; i < other.column_count; i++) {
            assert_string_equal(table->columns[i].name, other.columns[i].name);
            assert_int_equal(table->columns[i].nulls, other.columns[i].nulls);
            assert_int_equal(table->columns[i].text_bytes, other.columns[i].text_bytes);
            assert_int_equal(gb_csv_column_type(&table->columns[i]),
                             gb_csv_column_type(&other.columns[i]));
        }
        gb_csv_table_end(&other);
    }
}

static void read_bad_bytes(const char *text, size_t length, const char *sentence)
{
    struct gb_error error = {0};
    struct gb_csv_table table = {0};
    static const size_t steps[] = {1, 3, SIZE_MAX / 2};

    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(read_in_steps(text, length, steps[i], &table, &error), GPUBUF_E_INVALID);
        if (!strstr(error.message, sentence))
            fail_msg("%s: expected \"%s\", got \"%s\"", text, sentence, error.message);
        assert_null(table.columns);
    }
}

static void read_bad(const char *text, const char *sentence)
{
    read_bad_bytes(text, strlen(text), sentence);
}

TEST(test_types)
{
    static const struct {
        const char *fields[3];
        enum gb_csv_type type;
    } cases[] = {
        {{"1", "2", "3"}, GB_CSV_INT64},
        {{"-9223372036854775808", "9223372036854775807", "0"}, GB_CSV_INT64},
        {{"9223372036854775808", "1", "0"}, GB_CSV_UINT64},
        {{"18446744073709551615", "", "0"}, GB_CSV_UINT64},
        {{"18446744073709551615", "-1", "0"}, GB_CSV_UTF8},
        {{"18446744073709551616", "1", "0"}, GB_CSV_UTF8},
        {{"-9223372036854775809", "1", "0"}, GB_CSV_UTF8},
        {{"123456789012345678901234567890", "1", "2"}, GB_CSV_UTF8},
        {{"9007199254740992", "1.5", "2"}, GB_CSV_FLOAT64},
        {{"9007199254740993", "1.5", "2"}, GB_CSV_UTF8},
        {{"9007199254740994", "1.5", "2"}, GB_CSV_FLOAT64},
        {{"18446744073709551615", "1.5", "2"}, GB_CSV_UTF8},
        {{"1", "2.5", "3"}, GB_CSV_FLOAT64},
        {{".5", "1.", "-1e-3"}, GB_CSV_FLOAT64},
        {{"1e5", "1E+5", "2"}, GB_CSV_FLOAT64},
        {{"NaN", "nan", "1"}, GB_CSV_FLOAT64},
        {{"inf", "-Infinity", "INF"}, GB_CSV_FLOAT64},
        {{"1.7976931348623157e308", "1e-400", "-1e308"}, GB_CSV_FLOAT64},
        {{"1e309", "1", "2"}, GB_CSV_UTF8},
        {{"1.5", "-1e999999999999", "2"}, GB_CSV_UTF8},
        {{"-0", "1", "2"}, GB_CSV_FLOAT64},
        {{"0.5", "0", "-0.0"}, GB_CSV_FLOAT64},
        {{"true", "false", "true"}, GB_CSV_BOOL},
        {{"True", "FALSE", "TRUE"}, GB_CSV_BOOL},
        {{"tRue", "false", "true"}, GB_CSV_UTF8},
        {{"true", "1", "0"}, GB_CSV_UTF8},
        {{"007", "1", "2"}, GB_CSV_UTF8},
        {{"00", "1", "2"}, GB_CSV_UTF8},
        {{"01.5", "1", "2"}, GB_CSV_UTF8},
        {{"-01", "1", "2"}, GB_CSV_UTF8},
        {{"+49", "1", "2"}, GB_CSV_UTF8},
        {{"+inf", "1", "2"}, GB_CSV_UTF8},
        {{"0x10", "1", "2"}, GB_CSV_UTF8},
        {{"1_000", "1", "2"}, GB_CSV_UTF8},
        {{" 1", "1", "2"}, GB_CSV_UTF8},
        {{"1 ", "1", "2"}, GB_CSV_UTF8},
        {{"1e", "1", "2"}, GB_CSV_UTF8},
        {{"e5", "1", "2"}, GB_CSV_UTF8},
        {{".", "1", "2"}, GB_CSV_UTF8},
        {{"-", "1", "2"}, GB_CSV_UTF8},
        {{"1.2.3", "1", "2"}, GB_CSV_UTF8},
        {{"nano", "1", "2"}, GB_CSV_UTF8},
        {{"1", "\"\"", "2"}, GB_CSV_UTF8},
        {{"1", "", "2"}, GB_CSV_INT64},
        {{"", "", "2.5"}, GB_CSV_FLOAT64},
        {{"", "", "true"}, GB_CSV_BOOL},
        {{"", "", ""}, GB_CSV_UTF8},
    };
    char text[256];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct gb_csv_table table = {0};
        const char *const *fields = cases[i].fields;
        (void)snprintf(text, sizeof(text), "a,b\n%s,1\n%s,1\n%s,1\n", fields[0], fields[1],
                       fields[2]);
        read_good(text, &table);
        assert_int_equal(table.rows, 3);
        assert_int_equal(table.column_count, 2);
        if (gb_csv_column_type(&table.columns[0]) != cases[i].type)
            fail_msg("%s %s %s: %s", fields[0], fields[1], fields[2],
                     gb_csv_type_name(gb_csv_column_type(&table.columns[0])));
        assert_int_equal(gb_csv_column_type(&table.columns[1]), GB_CSV_INT64);
        gb_csv_table_end(&table);
    }
}

TEST(test_values)
{
    struct gb_csv_table table = {0};
    int64_t whole[4];
    double real[4];
    unsigned char truth = 0xff, mask = 0xff;
    char text[16];
    int32_t offsets[5];

    read_good("i,f,b,s\n-9223372036854775808,0.1,true,one\n,,,\n"
              "42,-1e300,False,\"\"\n9223372036854775807,NaN,true,\"a,\"\"b\"\n",
              &table);
    assert_int_equal(table.rows, 4);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(table.columns[i].nulls, 1);

    gb_csv_column_write(&table.columns[0], whole, &mask, NULL);
    assert_true(whole[0] == INT64_MIN && whole[1] == 0 && whole[2] == 42 && whole[3] == INT64_MAX);
    assert_int_equal(mask, 0x0d);
    gb_csv_column_write(&table.columns[1], real, &mask, NULL);
    assert_true(real[0] == 0.1 && real[1] == 0 && real[2] == -1e300 && real[3] != real[3]);
    gb_csv_column_write(&table.columns[2], &truth, &mask, NULL);
    assert_int_equal(truth, 0x09);
    assert_int_equal(mask, 0x0d);
    mask = 0xff;
    assert_int_equal(table.columns[3].text_bytes, 7);
    gb_csv_column_write(&table.columns[3], text, &mask, offsets);
    assert_memory_equal(text, "onea,\"b", 7);
    assert_int_equal(mask, 0x0d);
    static const int32_t expected[] = {0, 3, 3, 3, 7};
    assert_memory_equal(offsets, expected, sizeof(expected));
    gb_csv_table_end(&table);
}

static void check_one_column(const char *text, uint64_t rows, uint64_t nulls)
{
    struct gb_csv_table table = {0};

    read_good(text, &table);
    assert_int_equal(table.rows, rows);
    assert_int_equal(table.columns[0].nulls, nulls);
    gb_csv_table_end(&table);
}

TEST(test_line_ends)
{
    check_one_column("a,b\n1,2\n3,4\n", 2, 0);
    check_one_column("a,b\n1,2\n3,4", 2, 0);
    check_one_column("a,b\r\n1,2\r\n3,4\r\n", 2, 0);
    check_one_column("a,b\r1,2\r3,4\r", 2, 0);
    check_one_column("a,b\n\n1,2\n\n\n3,4\n\n", 2, 0);
    check_one_column("\n\na,b\n1,2\n3,4\n", 2, 0);
    check_one_column("a,b\n,2\n3,4\n", 2, 1);
    check_one_column("a,b\n", 0, 0);
    check_one_column("a,b", 0, 0);
    /* One column: an empty line is a null. */
    check_one_column("a\n1\n\n3\n", 3, 1);
    check_one_column("a\r\n1\r\n\r\n3\r\n", 3, 1);
    check_one_column("a\r1\r\r3\r", 3, 1);
    check_one_column("a\n\n\n", 2, 2);
    check_one_column("a\n\"\"\n1\n", 2, 0);
    /* A byte order mark. */
    check_one_column("\xef\xbb\xbf"
                     "a,b\n1,2\n",
                     1, 0);
}

TEST(test_names)
{
    struct gb_csv_table table = {0};

    read_good("\xef\xbb\xbf\"a \"\"b\"\"\nc\",,\xc3\xbc\n1,2,3\n", &table);
    assert_int_equal(table.column_count, 3);
    assert_string_equal(table.columns[0].name, "a \"b\"\nc");
    assert_string_equal(table.columns[1].name, "column_2");
    assert_string_equal(table.columns[2].name, "\xc3\xbc");
    gb_csv_table_end(&table);
}

TEST(test_mistakes)
{
    read_bad("", "the CSV is empty");
    read_bad("\n\r\n", "the CSV is empty");
    read_bad("\xef\xbb\xbf", "the CSV is empty");
    read_bad("a,b\n1,2\n3\n", "line 3: 1 field, but the header has 2");
    read_bad("a,b\n1,2,3\n", "line 2: 3 fields, but the header has 2");
    read_bad("a,b\r\n1,2\r\n1,2,3\r\n", "line 3: 3 fields");
    read_bad("a,b\n1,2\n\n\n1\n", "line 5: 1 field");
    read_bad("a,b\n\"1\n1\r\n1\r1\",2\n1\n", "line 6: 1 field");
    read_bad("a,b\n1,2\n1", "line 3: 1 field");
    read_bad("a,b,a\n1,2,3\n", "two columns are called \"a\"");
    read_bad("column_2,\n", "two columns are called \"column_2\"");
    read_bad("a,b\n1,x\"y\n", "line 2, field 2: a quote where none may be");
    read_bad("a,b\n\"1\"x,2\n", "line 2, field 1: a quote where none may be");
    read_bad("a,b\n1,\"2\n3\n", "line 2, field 2: a quoted field that does not end");
    read_bad("a,b\n1,\xff\n", "line 2, field 2: not UTF-8");
    read_bad("a\xc3,b\n1,2\n", "line 1, field 1: not UTF-8");
    read_bad("a,b\n1,2\n\"\n\xed\xa0\x80\",2\n", "line 3, field 1: not UTF-8");
    read_bad_bytes("a,b\n1,\0\n", 8, "line 2, field 2: a NUL byte");
}

TEST(test_too_many_columns)
{
    char *text = malloc(5000 * 8);
    size_t length = 0;

    assert_non_null(text);
    for (int i = 0; i < 4097; i++)
        length += (size_t)sprintf(text + length, "%sc%d", i ? "," : "", i);
    read_bad_bytes(text, length, "more than 4096 columns");
    free(text);
}

static void check_field(const char *text, const char *expected)
{
    struct gb_writer writer;

    gb_writer_init(&writer, 0);
    gb_csv_write_field(&writer, text, strlen(text));
    gb_write_char(&writer, '\0');
    assert_false(writer.failed);
    assert_string_equal(writer.data, expected);
    gb_writer_end(&writer);
}

TEST(test_fields_written)
{
    check_field("plain", "plain");
    check_field("", "\"\"");
    check_field("a,b", "\"a,b\"");
    check_field("a\"b", "\"a\"\"b\"");
    check_field("\"", "\"\"\"\"");
    check_field("a\nb", "\"a\nb\"");
    check_field("a\rb", "\"a\rb\"");
    check_field(" a", "\" a\"");
    check_field("a ", "\"a \"");
    check_field("a b", "a b");
    check_field("\xef\xbb\xbfx", "\"\xef\xbb\xbfx\"");
}

/* Any fields, written and read, are the same again. */
TEST(test_round_trip)
{
    static const char alphabet[] = "ab,\"\n\r 1.-";
    unsigned seed = 1;

    for (int round = 0; round < 300; round++) {
        struct gb_writer csv, all;
        struct gb_csv_table table = {0};
        struct gb_error error;
        uint64_t lengths[16];
        gb_writer_init(&csv, 0);
        gb_writer_init(&all, 0);
        gb_write_text(&csv, "x,y\n");
        for (int i = 0; i < 16; i++) {
            char field[8];
            seed = seed * 1103515245 + 12345;
            size_t length = seed >> 16 & 7;
            for (size_t k = 0; k < length; k++) {
                seed = seed * 1103515245 + 12345;
                field[k] = alphabet[(seed >> 16) % (sizeof(alphabet) - 1)];
            }
            lengths[i] = length;
            gb_write(&all, field, length);
            gb_csv_write_field(&csv, field, length);
            gb_write_text(&csv, ",1\n");
        }
        assert_int_equal(read_in_steps(csv.data, csv.length, 5, &table, &error), 0);
        assert_int_equal(table.rows, 16);
        assert_int_equal(table.columns[0].text_bytes, all.length);
        if (all.length)
            assert_memory_equal(table.columns[0].text, all.data, all.length);
        for (int i = 0; i < 16; i++)
            assert_int_equal(table.columns[0].lengths[i], lengths[i]);
        gb_csv_table_end(&table);
        gb_writer_end(&csv);
        gb_writer_end(&all);
    }
}

RUN_TESTS(NULL, NULL)
