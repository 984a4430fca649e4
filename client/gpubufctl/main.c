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
    {"version", 'V', NULL, "print the version and end", NULL},
    {0},
};

static const struct gb_cli_command commands[] = {
    {"put", "[NAME] FILE", "Publish a file: .csv, .safetensors, raw bytes, and others by Python",
     "FILE may be - for standard input. A .csv or .tsv file needs a header row and becomes a "
     "table, with types found from its fields; a .safetensors file, or the index of sharded ones "
     "(model.safetensors.index.json), becomes a bundle, and its NAME may come after it, or be "
     "left out. Arrow's, Parquet, .npy, .npz and .jsonl files go to the Python package. Any other "
     "file becomes bytes, or an array with --dtype and --shape.",
     gb_put_options, gb_cmd_put},
    {"create", "NAME --live", "Create a live object, which is written while others read it",
     "It outlives gpubufctl and whoever writes it. Whom --mode lets write may open it for "
     "writing, and claim it; write puts a file's bytes there.",
     gb_create_options, gb_cmd_create},
    {"write", "NAME FILE", "Write a file's bytes into a live object",
     "FILE may be - for standard input. Readers see at once what is written; bytes behind the "
     "file's last one stay as they are.",
     gb_write_options, gb_cmd_write},
    {"get", "NAME [FILE]", "Write an object to a file: .csv, .safetensors, raw, others by Python",
     "FILE is another way to say -o FILE. cat is another word for it. Negative numbers in A:B "
     "count from the end. In .csv a null is an empty field and an empty string is \"\".",
     gb_get_options, gb_cmd_get},
    {"show", "NAME", "Print what an object is, and its first rows", NULL, gb_show_options,
     gb_cmd_show},
    {"ls", "[PREFIX|PATTERN]", "List objects",
     "Those whose names start with PREFIX, or match a PATTERN such as 'a*', 'd/?' or '[a-c]*'. A "
     "* stands for any text, \"/\" included, and \\* for itself. No object matches: exit status 1.",
     gb_ls_options, gb_cmd_ls},
    {"stat", "NAME", "Describe an object without opening it", NULL, gb_stat_options, gb_cmd_stat},
    {"rm", "NAME…", "Remove names; the memory goes with the last lease",
     "A NAME may be a pattern, as for ls: rm 'tmp/*'. If an object's name is the pattern itself, "
     "only that object is removed. rm -r d/ removes d and all whose names start with d/.",
     gb_rm_options, gb_cmd_rm},
    {"pin", "NAME…", "Keep objects from being evicted", NULL, NULL, gb_cmd_pin},
    {"unpin", "NAME…", "Let objects be evicted again", NULL, NULL, gb_cmd_unpin},
    {"expire", "NAME… TIME", "Set when objects go by themselves: 90s, 5m, 2h, 1d, or never",
     "Counted from now, and in the place of any earlier time, put --ttl included. A program that "
     "holds the object keeps it.",
     gb_expire_options, gb_cmd_expire},
    {"spill", "NAME…", "Move objects off their device, to a tier below",
     "The daemon does so by itself when memory is short. An object that is held stays.",
     gb_spill_options, gb_cmd_spill},
    {"restore", "NAME…", "Bring objects back to their device before they are opened", NULL,
     gb_restore_options, gb_cmd_restore},
    {"alias", "NEW OF", "Give (a part of) an object another name, without a copy", NULL,
     gb_alias_options, gb_cmd_alias},
    {"why", "NAME", "Say what keeps an object where it is, or what leaves before it", NULL,
     gb_why_options, gb_cmd_why},
    {"where", "NAME", "Say which machines of the cluster have a name",
     "gpubufd-peer of this machine answers: which machine published it, and which have a copy.",
     gb_where_options, gb_cmd_where},
    {"ps", "[NAME]", "Show who holds, maps and pins what",
     "\"pins\": the session still maps the segment but has no lease in it, so it cannot be freed.",
     gb_ps_options, gb_cmd_ps},
    {"top", "", "Show what is in memory, and go on showing it",
     "Ctrl-C ends it. Where there is no terminal it prints once and ends.", gb_top_options,
     gb_cmd_top},
    {"watch", "[PREFIX]", "Print events as they happen", NULL, gb_watch_options, gb_cmd_watch},
    {"tail", "NAME", "Print a stream's frames as they come",
     "A line for each frame: when it was published, its number, its size, and its first elements. "
     "It ends with the stream's writer.",
     gb_tail_options, gb_cmd_tail},
    {"stats", "", "Print the daemon's counters", NULL, gb_stats_options, gb_cmd_stats},
    {"ping", "", "Say whether a daemon answers; wait for one that is starting",
     "Exit status 0 if one answers, 3 if none does, or not in time.", gb_ping_options, gb_cmd_ping},
    {"doctor", "", "Check socket, daemon, memory, driver and limits, and say what to do",
     "Exit status 1 if anything fails; warnings do not count.", NULL, gb_cmd_doctor},
    {"stop", "", "End the daemon, with all objects; for its own user and root",
     "Its supervisor ends, too. Waits until it has ended.", NULL, gb_cmd_stop},
    {"call", "METHOD [JSON]", "Call a method of the protocol with these parameters",
     "call describe prints the protocol: methods, types, errors, limits. call trim gives unused "
     "memory back to the devices.",
     NULL, gb_cmd_call},
    {"completion", "SHELL [WORD…]", "Print a completion script: bash, zsh or fish",
     "With a WORD, what may be typed in the place of the last one; the scripts ask so.", NULL,
     gb_cmd_completion},
    {"help", "[COMMAND]", "Print help: of a command, or of the program", NULL, NULL, gb_cmd_help},
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
