/*
 * gpubufctl: the command line of gpubufd. The commands are in the table below, each with a file of
 * its own.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "client/gpubufctl/cli/cli.h"
#include "client/gpubufctl/commands/commands.h"
#include "client/gpubufctl/output/term.h"

enum { SOCKET, JSON, COLOR, VERSION };

static const struct gb_cli_option options[] = {
    {"socket", 'S', "PATH", "the daemon's socket ($GPUBUFD_SOCKET, else the usual places)", NULL},
    {"json", 'j', NULL, "print JSON for programs", NULL},
    {"color", 0, "WHEN", "auto, always or never (auto; NO_COLOR is respected)",
     "auto always never"},
    {"version", 'V', NULL, "print the version and exit", NULL},
    {0},
};

static const char PUBLISH[] = "Publish", READ[] = "Read", MANAGE[] = "Manage",
                  OBSERVE[] = "Observe", DAEMON[] = "The daemon", SHELL[] = "The shell";

static const struct gb_cli_command commands[] = {
    {"put", "[NAME] FILE", "Publish a file: .csv, .safetensors, raw bytes, and others by Python",
     "FILE may be - for standard input. A .csv or .tsv file needs a header row and becomes a "
     "table, with types inferred from its fields. A .safetensors file, or the index of sharded "
     "ones (model.safetensors.index.json), becomes a bundle; its NAME may follow it or be left "
     "out. The Python package reads Arrow, Parquet, .npy, .npz and .jsonl files. Any other file "
     "becomes bytes, or an array with --dtype and --shape.",
     gb_put_options, gb_cmd_put, PUBLISH},
    {"create", "NAME", "Create a live object, to be written while others read it",
     "It outlives gpubufctl and its writers. Users whom --mode lets write may open it for "
     "writing, and claim it. The command write puts a file's bytes into it.",
     gb_create_options, gb_cmd_create, PUBLISH},
    {"write", "NAME FILE", "Write a file's bytes into a live object",
     "FILE may be - for standard input. Readers see the bytes at once. Bytes after the end of the "
     "file do not change.",
     gb_write_options, gb_cmd_write, PUBLISH},
    {"get", "NAME [FILE]", "Write an object to a file: .csv, .safetensors, raw, others by Python",
     "cat is another word for it. Negative numbers in A:B count from the end. "
     "In .csv a null is an empty field and an empty string is \"\".",
     gb_get_options, gb_cmd_get, READ},
    {"show", "NAME", "Print an object's types and first rows", NULL, gb_show_options, gb_cmd_show,
     READ},
    {"ls", "[PREFIX|PATTERN]", "List objects",
     "With names that start with PREFIX, or match a PATTERN such as 'a*', 'd/?' or '[a-c]*'. A "
     "* stands for any text, \"/\" included, and \\* for itself. A PATTERN without a match fails.",
     gb_ls_options, gb_cmd_ls, MANAGE},
    {"stat", "NAME", "Describe an object without opening it", NULL, gb_stat_options, gb_cmd_stat,
     MANAGE},
    {"rm", "NAME…", "Remove names; memory is freed with the last lease",
     "A NAME may be a pattern, as for ls: rm 'tmp/*'. If an object's name is the pattern itself, "
     "only that object is removed. rm -r d/ removes d and all whose names start with d/.",
     gb_rm_options, gb_cmd_rm, MANAGE},
    {"pin", "NAME…", "Keep objects from being evicted", NULL, NULL, gb_cmd_pin, MANAGE},
    {"unpin", "NAME…", "Let objects be evicted again", NULL, NULL, gb_cmd_unpin, MANAGE},
    {"expire", "NAME… TIME", "Set when objects are deleted: 90s, 5m, 2h, 1d, or never",
     "TIME counts from now, and replaces any earlier time, including put --ttl. A program that has "
     "the object open keeps it.",
     gb_expire_options, gb_cmd_expire, MANAGE},
    {"spill", "NAME…", "Move objects off their device, to a tier below",
     "The daemon does so itself when memory is short. An object that is open stays.",
     gb_spill_options, gb_cmd_spill, MANAGE},
    {"restore", "NAME…", "Bring objects back to their device before they are opened", NULL,
     gb_restore_options, gb_cmd_restore, MANAGE},
    {"alias", "NEW OF", "Give an object, or part of it, another name without a copy", NULL,
     gb_alias_options, gb_cmd_alias, MANAGE},
    {"why", "NAME", "Show what keeps an object in place, or what leaves before it", NULL,
     gb_why_options, gb_cmd_why, OBSERVE},
    {"where", "NAME", "Show which machines of the cluster have a name",
     "Asks this machine's gpubufd-peer which machine published it, and which have a copy.", NULL,
     gb_cmd_where, OBSERVE},
    {"ps", "[NAME]", "Show leases, mappings and pins of each session",
     "\"pins\": the session still maps the segment but has no lease in it, so it cannot be freed.",
     gb_ps_options, gb_cmd_ps, OBSERVE},
    {"top", "", "Show devices, objects and sessions, refreshed until Ctrl-C",
     "Without a terminal it prints once and exits.", gb_top_options, gb_cmd_top, OBSERVE},
    {"watch", "[PREFIX]", "Print events as they happen", NULL, gb_watch_options, gb_cmd_watch,
     OBSERVE},
    {"tail", "NAME", "Print a stream's frames as they come",
     "A line for each frame: when it was published, its number, its size, and its first elements. "
     "Exits when the stream's writer ends.",
     gb_tail_options, gb_cmd_tail, OBSERVE},
    {"stats", "", "Print the daemon's counters", NULL, gb_stats_options, gb_cmd_stats, OBSERVE},
    {"ping", "", "Check whether a daemon answers, or wait until one does",
     "Exit status 0 if one answers, 3 if none does in time.", gb_ping_options, gb_cmd_ping, DAEMON},
    {"doctor", "", "Check socket, daemon, memory, driver and limits; print remedies",
     "Exit status 1 if anything fails; warnings do not count.", NULL, gb_cmd_doctor, DAEMON},
    {"stop", "", "Stop the daemon and free all objects; for its own user and root",
     "Stops its supervisor, too. Waits until it has exited.", NULL, gb_cmd_stop, DAEMON},
    {"call", "METHOD [JSON]", "Call a method of the protocol with these parameters",
     "call describe prints the protocol: methods, types, errors, limits. call trim returns "
     "unused memory to the devices.",
     NULL, gb_cmd_call, DAEMON},
    {"completion", "SHELL [WORD…]", "Print a completion script: bash, zsh or fish",
     "With WORDs, prints completions of the last one, for the scripts.", NULL, gb_cmd_completion,
     SHELL},
    {"help", "[COMMAND]", "Print help for a command, or for the program", NULL, NULL, gb_cmd_help,
     SHELL},
    {0},
};

static void apply_globals(struct gb_cli *cli)
{
    const struct gb_cli_args *globals = &cli->globals;

    cli->color = gb_term_color((enum gb_color)globals->number[COLOR]);
    cli->json = globals->option[JSON] != NULL;
    gb_cli_json_errors(cli->json);
    cli->socket = globals->option[SOCKET];
}

static void run_command(struct gb_cli *cli, int argc, char **argv)
{
    struct gb_cli_args args = {0};

    cli->command = gb_cli_find(cli, argv[0]);
    if (!cli->command)
        gb_cli_no_command(cli, argv[0]);
    if (!gb_cli_read_args(cli, argc, argv, &args)) {
        gb_cli_print_help(cli);
        return;
    }
    apply_globals(cli);
    cli->command->run(cli, &args);
}

static void run(struct gb_cli *cli, int argc, char **argv)
{
    int used;

    if (!gb_cli_read_globals(cli, argc, argv, &used)) {
        gb_cli_print_help(cli);
    } else if (cli->globals.option[VERSION]) {
        cli->json = cli->globals.option[JSON] != NULL;
        gb_cli_print_version(cli);
    } else if (used == argc) {
        gb_cli_usage(cli, "which command?");
    } else {
        run_command(cli, argc - used, argv + used);
    }
}

/* Whether failures are to be told as JSON, also that of an option before or after --json. */
static bool wants_json(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--json") == 0 || strcmp(argv[i], "-j") == 0)
            return true;
    return false;
}

/* For cJSON, which then never fails for want of memory. */
static void *allocate(size_t size)
{
    return gb_grow(NULL, size, 1);
}

int main(int argc, char **argv)
{
    struct gb_cli cli = {.commands = commands, .options = options};

    signal(SIGPIPE, SIG_IGN); /* writing to a closed pipe fails, and we end quietly */
    gb_term_init();
    gb_cli_json_errors(wants_json(argc, argv));
    cJSON_InitHooks(&(cJSON_Hooks){.malloc_fn = allocate, .free_fn = free});
    run(&cli, argc, argv);
    gpubuf_disconnect(cli.client);
    gb_cli_finish_output(cli.worst);
    return (int)cli.worst;
}
