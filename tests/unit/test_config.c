/* Options and configuration files: every option in both, what wins, and what is said when wrong. */
#include "tests/cases.h"

#include "failing.h"

/* Copies are counted, and fail, like other memory. */
static char *failing_strdup(const char *text)
{
    char *copy = failing_malloc(strlen(text) + 1);

    return copy ? strcpy(copy, text) : NULL;
}
#undef strdup
#define strdup failing_strdup

#include "proto/base/option.c"

#include "daemon/config.c"

static char path[] = "/tmp/gpubufd-config-XXXXXX";

static int make_file(void **state)
{
    int fd = mkstemp(path);

    return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state)
{
    return unlink(path);
}

static void write_file(const char *text)
{
    FILE *file = fopen(path, "we");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* Options, separated by one space each. */
static int read_words(struct gb_config *config, const char *words, struct gb_error *error)
{
    static char copy[1024];
    char *argv[32] = {(char *)"gpubufd"};
    int argc = 1;

    snprintf(copy, sizeof(copy), "%s", words);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " "))
        argv[argc++] = word;
    argv[argc] = NULL;
    return gb_config_read(config, argv, error);
}

static void read_ok(struct gb_config *config, const char *words)
{
    struct gb_error error;

    if (read_words(config, words, &error) != 0)
        fail_msg("%s: %s", words, error.message);
}

static void refused(const char *words, const char *part)
{
    struct gb_config config;
    struct gb_error error = {0};
    int r = read_words(&config, words, &error);

    assert_true(r < 0);
    assert_int_equal(r, error.code);
    if (!strstr(error.message, part))
        fail_msg("%s: expected \"%s\" in: %s", words, part, error.message);
    gb_config_end(&config);
}

/* ---- the tests ---- */

TEST(test_sizes)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        {"0", 0},
        {"1", 1},
        {"1048576", 1048576},
        {"3k", 3072},
        {"3K", 3072},
        {"512M", 536870912},
        {"2G", 2147483648},
        {"1T", 1099511627776},
        {"2GB", 2147483648},
        {"2GiB", 2147483648},
        {"2gi", 2147483648},
        {"18446744073709551615", UINT64_MAX},
        {"16777215T", 16777215ull << 40},
    };
    static const char *const bad[] = {
        "",    "M",        "-1", "+1",  " 1",  "1 ",   "1.5G",
        "0x1", "1P",       "1B", "1GG", "1iB", "1KBi", "18446744073709551616",
        "1e3", "16777216T"};
    uint64_t bytes = 7;

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_true(gb_size_parse(good[i].text, &bytes));
        assert_int_equal(bytes, good[i].bytes);
    }
    bytes = 7;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (gb_size_parse(bad[i], &bytes))
            fail_msg("\"%s\" is taken for a size", bad[i]);
    assert_int_equal(bytes, 7);
}

TEST(test_defaults)
{
    struct gb_config config;

    read_ok(&config, "");
    assert_null(config.socket);
    assert_int_equal(config.mode, 0666);
    assert_int_equal(config.device_count, 1);
    assert_string_equal(config.devices[0].id, "host");
    assert_int_equal(config.devices[0].bytes, 0);
    assert_int_equal(config.devices[0].percent, 50);
    assert_int_equal(config.log_level, GB_LOG_INFO);
    assert_int_equal(config.retire_after_ms, 60000);
    assert_int_equal(config.grace_ms, 10000);
    assert_int_equal(config.watchdog_ms, 60000);
    assert_false(config.supervise);
    assert_false(config.log_json || config.probe || config.help || config.version);
#define SAME(name, value, text) assert_int_equal(config.limits.name, (value));
    GB_LIMIT_MAP(SAME)
#undef SAME
    gb_config_end(&config);
}

static void expect_all(const struct gb_config *config)
{
    assert_string_equal(config->socket, "/s");
    assert_int_equal(config->mode, 0640);
    assert_int_equal(config->device_count, 3);
    assert_string_equal(config->devices[0].id, "host");
    assert_non_null(strstr(config->devices[0].text, strchr(config->devices[0].text, '=')
                                                        ? ":6: device = host:2G"
                                                        : "--device host:2G"));
    assert_int_equal(config->devices[0].bytes, 2147483648);
    assert_string_equal(config->devices[1].id, "cuda:1");
    assert_int_equal(config->devices[1].percent, 25);
    assert_string_equal(config->devices[2].id, "GPU-12ab");
    assert_int_equal(config->devices[2].percent, 50);
    assert_int_equal(config->limits.sessions, 100);
    assert_int_equal(config->limits.output_bytes, 1048576);
    assert_int_equal(config->log_level, GB_LOG_ERROR);
    assert_true(config->log_json);
}

TEST(test_every_option)
{
    struct gb_config config;

    read_ok(&config,
            "--socket /s --mode 640 --device host:2G --device cuda:1:25% --device GPU-12ab "
            "--limit sessions=100 --limit output_bytes=1M --log-level error "
            "--log-format json --probe --version --help");
    expect_all(&config);
    assert_true(config.probe && config.help && config.version);
    gb_config_end(&config);
    read_ok(&config, "--socket=/s --mode=0640 --device=host:2G --device=cuda:1:25% "
                     "--device=GPU-12ab --limit=sessions=100 --limit=output_bytes=1M "
                     "--log-level=error --log-format=json");
    expect_all(&config);
    gb_config_end(&config);
}

TEST(test_retire_after)
{
    struct gb_config config;

    read_ok(&config, "--retire-after 0");
    assert_int_equal(config.retire_after_ms, 0);
    gb_config_end(&config);
    read_ok(&config, "--retire-after=never");
    assert_true(config.retire_after_ms == UINT64_MAX);
    gb_config_end(&config);
    assert_int_equal(config.idle_exit_ms, 0);
    read_ok(&config, "--grace=0 --supervise --watchdog=100 --idle-exit 5000");
    assert_int_equal(config.idle_exit_ms, 5000);
    assert_int_equal(config.grace_ms, 0);
    assert_int_equal(config.watchdog_ms, 100);
    assert_true(config.supervise);
    gb_config_end(&config);
}

TEST(test_file)
{
    struct gb_config config;
    char words[128];

    write_file("# comment\n\n  \t\n socket =  /s \nmode=0640\r\ndevice = host:2G\n"
               "device = cuda:1:25%\ndevice = GPU-12ab\nlimit = sessions=100\n"
               "limit=output_bytes=1M\nlog-level = error\n   # another\nlog-format = json");
    snprintf(words, sizeof(words), "--config %s", path);
    read_ok(&config, words);
    expect_all(&config);
    gb_config_end(&config);

    /* The command line wins, wherever it names the file; its devices take the place of the
       file's. */
    for (int after = 0; after < 2; after++) {
        char more[320];

        snprintf(more, sizeof(more), "%s --socket /t --limit sessions=7 --device host %s",
                 after ? "" : words, after ? words : "");
        read_ok(&config, more);
        assert_string_equal(config.socket, "/t");
        assert_int_equal(config.limits.sessions, 7);
        assert_int_equal(config.limits.output_bytes, 1048576);
        assert_int_equal(config.device_count, 1);
        assert_string_equal(config.devices[0].text, "--device host");
        assert_int_equal(config.mode, 0640);
        gb_config_end(&config);
    }
}

TEST(test_file_errors)
{
    static const struct {
        const char *text;
        unsigned line;
        const char *part;
    } bad[] = {
        {"socket\n", 1, "expected `key = value`, found \"socket\""},
        {"\n\nsockets = x\n", 3, "unknown key \"sockets\""},
        {"# x\nprobe = 1\n", 2, "unknown key \"probe\""},
        {"config = other\n", 1, "unknown key \"config\""},
        {"= x\n", 1, "unknown key \"\""},
        {"mode = 0666\nmode = 8", 2, "octal"},
        {"socket =\n", 1, "expected PATH"},
        {"device = host\n\ndevice = host:1G\n", 3, "twice"},
        {"limit = sessions\n", 1, "NAME=VALUE"},
        {"log-level = loud\n", 1, "no level"},
    };
    char words[128], where[128];

    snprintf(words, sizeof(words), "--config=%s", path);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        write_file(bad[i].text);
        snprintf(where, sizeof(where), "%s:%u: ", path, bad[i].line);
        refused(words, where);
        refused(words, bad[i].part);
    }
    write_file("");
    assert_int_equal(truncate(path, 100), 0);
    snprintf(where, sizeof(where), "%s:1: a NUL octet", path);
    refused(words, where);
    refused("--config /nowhere/at/all", "/nowhere/at/all: No such file");
    refused("--config /tmp", "Is a directory");
}

TEST(test_errors)
{
    static const char *const bad[][2] = {
        {"stray", "unexpected argument \"stray\""},
        {"-h", "unexpected argument"},
        {"--", "unexpected argument"},
        {"--sockets x", "unknown option \"--sockets\""},
        {"--socket", "--socket needs a value: PATH"},
        {"--socket=", "--socket: expected PATH"},
        {"--probe=1", "--probe takes no value"},
        {"--config", "--config needs a value: FILE"},
        {"--mode rw", "--mode: \"rw\" is no octal mode"},
        {"--mode 1777", "octal"},
        {"--mode 0o640", "octal"},
        {"--mode -1", "octal"},
        {"--device disk", "unknown device \"disk\""},
        {"--device cuda:", "unknown device"},
        {"--device cuda:one", "unknown device"},
        {"--device host:", "no size"},
        {"--device host:much", "no size"},
        {"--device host:0", "no size"},
        {"--device host:-1", "no size"},
        {"--device host:0%", "expected 1% to 100%"},
        {"--device host:101%", "expected 1% to 100%"},
        {"--device host:99999999999999999999999%", "expected 1% to 100%"},
        {"--device host --device host:1G", "twice"},
        {"--limit sessions", "NAME=VALUE"},
        {"--limit =5", "no limit \"\""},
        {"--limit session=5", "no limit \"session\""},
        {"--limit sessions=0", "NAME=VALUE"},
        {"--limit sessions=4503599627370496", "NAME=VALUE"},
        {"--limit sessions=many", "NAME=VALUE"},
        {"--limit line_bytes=5", "the protocol's"},
        {"--limit wait_ms=5", "the protocol's"},
        {"--retire-after later", "expected milliseconds"},
        {"--retire-after 1s", "expected milliseconds"},
        {"--retire-after 86400001", "0 to 86400000, or never"},
        {"--log-level info2", "no level"},
        {"--log-format xml", "no format"},
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        refused(bad[i][0], bad[i][1]);
}

TEST(test_many_devices)
{
    char words[512] = "";
    struct gb_config config;

    for (int i = 0; i < GB_DEVICES - 1; i++)
        sprintf(words + strlen(words), "--device=cuda:%d ", i);
    strcat(words, "--device=host ");
    read_ok(&config, words);
    assert_int_equal(config.device_count, GB_DEVICES);
    gb_config_end(&config);
    strcat(words, "--device=cuda:99");
    refused(words, "more than 16 devices");
}

TEST(test_capacity)
{
    static const struct {
        struct gb_device_spec spec;
        uint64_t total, capacity; /* 0: refused */
    } cases[] = {
        {{.bytes = 4 << 20}, 4 << 20, 4 << 20},  {{.bytes = (4 << 20) + 1}, 4 << 20, 0},
        {{.bytes = 2 << 20}, 8 << 20, 2 << 20},  {{.bytes = (2 << 20) - 1}, 8 << 20, 0},
        {{.percent = 50}, 800 << 20, 400 << 20}, {{.percent = 100}, 800 << 20, 800 << 20},
        {{.percent = 1}, 100 << 20, 0},
    };
    struct gb_error error;
    uint64_t capacity;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct gb_device_spec spec = cases[i].spec;
        int r;

        r = gb_device_spec_capacity(&spec, cases[i].total, &capacity, &error);
        assert_int_equal(r, cases[i].capacity ? 0 : GPUBUF_E_INVALID);
        if (cases[i].capacity)
            assert_int_equal(capacity, cases[i].capacity);
        else
            assert_non_null(strstr(error.message, "than the device")
                                ?: strstr(error.message, "2M"));
    }
}

TEST(test_no_memory)
{
    struct gb_config config;
    struct gb_error error;
    long before = failing_blocks; /* getline's blocks are freed here, and not counted before */
    int r = -1;

    for (size_t n = 1; r != 0; n++) {
        failing_from(n, 1);
        r = read_words(&config, "--socket /a --socket /b --device host --device cuda:0", &error);
        failing_from(0, 0);
        assert_true(r == 0 || (r == GPUBUF_E_NO_MEMORY && error.code == r));
        gb_config_end(&config);
        assert_int_equal(failing_blocks, before);
        assert_true(n < 10);
    }
}

RUN_TESTS(make_file, remove_file)
