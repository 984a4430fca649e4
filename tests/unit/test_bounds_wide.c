/*
 * How long the loop is held by what is noted of the widest object: its record in the journal, its
 * text when it moves between its device and a tier. bounds.h says how that is measured.
 */
#include <dirent.h>

#include "tests/cases.h"

#include "bounds.h"

/* Two of the widest texts are written at once, in 0.9 ms: what fails has become three times as
   slow, as it was before only places changed. */
#define WIDE_US 3000

static char directory[] = "/tmp/gpubufd-wide-XXXXXX";
static struct gb_notify notify;
static int manager = -1;
static bool metadata;
static uint64_t lease;

/* A journal is only written for a manager that keeps it; this one lets the descriptors go. */
static void empty_manager(void)
{
    char text[256];

    while (recv(manager, text, sizeof(text), MSG_DONTWAIT) > 0)
        ;
}

/* `more`: further params. */
static void of_name(const char *method, const char *more)
{
    begin_line(method);
    gb_write_format(&line, "\"name\":\"wide\"%s", more);
    end_line();
}

#define SPILL "move", ""
#define RESTORE "move", ",\"tier\":\"device\",\"wait_ms\":60000"

static void prepare_unsealed(void)
{
    empty_manager();
    lease = create_wide(&asker, "wide", metadata);
}

static void prepare_resident(void)
{
    prepare_unsealed();
    seal(&asker, lease);
}

static void prepare_spilled(void)
{
    prepare_resident();
    of_name(SPILL);
    prepare(&asker, "\"result\":{}");
}

/* It has a copy, and leaves without being copied. */
static void prepare_clean(void)
{
    prepare_spilled();
    of_name(RESTORE);
    prepare(&asker, "\"result\":{}");
}

static void ask_seal(void)
{
    begin_line("seal");
    gb_write_format(&line, "\"lease\":%llu,\"release\":true", (unsigned long long)lease);
    end_line();
}

static void ask_pin(void)
{
    of_name("set", ",\"pinned\":true");
}

static void ask_spill(void)
{
    of_name(SPILL);
}

static void ask_restore(void)
{
    of_name(RESTORE);
}

ASK(ask_alias, "alias", "\"name\":\"other\",\"of\":\"wide\",\"replace\":true")

static const struct ask asks[] = {
    {"seal", prepare_unsealed, ask_seal, NULL, "\"version\":"},
    {"pin", prepare_resident, ask_pin, NULL, "\"result\":{}"},
    {"alias", prepare_resident, ask_alias, NULL, "\"version\":"},
    {"spill", prepare_resident, ask_spill, NULL, "\"result\":{}"},
    {"spill, with a copy", prepare_clean, ask_spill, NULL, "\"result\":{}"},
    {"restore", prepare_spilled, ask_restore, NULL, "\"result\":{}"},
};

/* RELIABILITY.md: Hostile clients 12 */
TEST(test_wide)
{
    for (int kind = 0; kind < 2; kind++) {
        metadata = kind == 1;
        print_message("%s\n", metadata ? "metadata" : "4096 columns");
        play_all(asks, sizeof(asks) / sizeof(asks[0]), WIDE_US);
    }
    assert_true(inside.server.state.journal.bytes > 0 && !inside.server.state.failed);
    assert_true(inside.server.devices[0]->so_far.restores > 0);
}

/* With the files that the daemon has left to a successor. */
static void remove_directory(void)
{
    DIR *files = opendir(directory);
    struct dirent *entry;

    while (files && (entry = readdir(files)))
        (void)unlinkat(dirfd(files), entry->d_name, 0);
    if (files)
        closedir(files);
    (void)rmdir(directory);
}

int main(void)
{
    char tier[64];
    const char *const options[] = {"--device", "host:512M", "--tier", tier, NULL};
    int pair[2], failed;

    if (!mkdtemp(directory) || socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair) < 0)
        return 1;
    snprintf(tier, sizeof(tier), "disk:512M:%s", directory);
    manager = pair[1];
    notify = (struct gb_notify){.socket = pair[0]};
    begin_world(options, &notify);
    failed = cmocka_run_group_tests(listed_tests, NULL, NULL);
    end_world();
    close(pair[0]);
    close(manager);
    remove_directory();
    return failed;
}
