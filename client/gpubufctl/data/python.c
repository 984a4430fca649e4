#include "client/gpubufctl/data/python.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/gpubufctl/output/json_print.h"
#include "proto/wire/json.h"

enum { ANSWER_MAX = 1 << 20, NO_PACKAGE = 65 };

/* The first lines take the working directory out of the path: anybody may have put a module
   there. */
static const char program[] = "import sys\n"
                              "sys.path[:] = [place for place in sys.path if place]\n"
                              "try:\n"
                              "    from gpubufd._gpubufctl import main\n"
                              "except ImportError as error:\n"
                              "    print(error)\n"
                              "    sys.exit(65)\n"
                              "sys.exit(main(sys.argv[1]))\n";

static const char *const formats[] = {"arrow", "arrows", "parquet", "npy", "npz", "jsonl"};

const char *gb_python_format(const char *file, const void *start, size_t length)
{
    static const char *const ends[][2] = {
        {".arrow", "arrow"},     {".feather", "arrow"}, {".ipc", "arrow"}, {".arrows", "arrows"},
        {".parquet", "parquet"}, {".pq", "parquet"},    {".npy", "npy"},   {".npz", "npz"},
        {".jsonl", "jsonl"},     {".ndjson", "jsonl"},
    };
    const char *end = strrchr(file, '.');

    for (size_t i = 0; end && i < sizeof(ends) / sizeof(*ends); i++)
        if (strcasecmp(end, ends[i][0]) == 0)
            return ends[i][1];
    if (length >= 8 && memcmp(start, "ARROW1\0\0", 8) == 0)
        return "arrow";
    if (length >= 6 && memcmp(start, "\x93NUMPY", 6) == 0)
        return "npy";
    return length >= 4 && memcmp(start, "PAR1", 4) == 0 ? "parquet" : NULL;
}

bool gb_python_is_format(const char *name)
{
    for (size_t i = 0; i < sizeof(formats) / sizeof(*formats); i++)
        if (strcmp(formats[i], name) == 0)
            return true;
    return false;
}

/* The Python of the virtual environment that this program is installed in, such as by a wheel; else
   the first one of PATH. */
static void choose_python(char *path, size_t size)
{
    char own[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", own, sizeof(own) - 1);

    own[length < 0 ? 0 : length] = '\0';
    char *slash = strrchr(own, '/');
    if (slash) {
        *slash = '\0';
        char mark[PATH_MAX + 16];
        (void)snprintf(mark, sizeof(mark), "%s/../pyvenv.cfg", own);
        bool environment = access(mark, F_OK) == 0;
        if (environment && snprintf(path, size, "%s/python3", own) < (int)size &&
            access(path, X_OK) == 0)
            return;
    }
    (void)snprintf(path, size, "python3");
}

/* Starts Python; *output is the pipe to read what it prints. 0, or errno. */
static int start(char *request, pid_t *process, int *output)
{
    extern char **environ;
    char name[PATH_MAX + 16], option[] = "-c", code[sizeof(program)];

    char *const words[] = {name, option, code, request, NULL};
    posix_spawn_file_actions_t actions;
    int ends[2];

    choose_python(name, sizeof(name));
    memcpy(code, program, sizeof(program));
    if (pipe2(ends, O_CLOEXEC) != 0)
        return errno;
    int cause = posix_spawn_file_actions_init(&actions);
    if (cause == 0) {
        cause = posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
        if (cause == 0)
            cause = posix_spawnp(process, name, &actions, NULL, words, environ);
        (void)posix_spawn_file_actions_destroy(&actions);
    }
    close(ends[1]);
    if (cause != 0)
        close(ends[0]);
    else
        *output = ends[0];
    return cause;
}

/* Reads all that it prints and waits for its end. Returns its exit status, or -1. */
static int wait_for(pid_t process, int output, struct gb_writer *answer)
{
    char piece[4096];
    ssize_t count;
    int status;

    while ((count = read(output, piece, sizeof(piece))) > 0 || (count < 0 && errno == EINTR))
        if (count > 0)
            gb_write(answer, piece, (size_t)count);
    close(output);
    while (waitpid(process, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static _Noreturn void tell_missing(const char *what, const char *why)
{
    gb_cli_fail(GB_STATUS_FAILED,
                "%s: such files are for the Python package gpubufd, which the first python3 of "
                "PATH has not (%.*s): activate the virtual environment that has it, or run pip "
                "install ./client/python in gpubufd's source; Arrow's and Parquet files need "
                "pyarrow, too; --format raw takes bytes as they are",
                what, (int)strcspn(why, "\n"), why);
}

/* A failure that the package tells; its sentence may begin with the file's name already. */
static _Noreturn void tell_failure(const struct gb_cli *cli, const cJSON *answer, const char *what)
{
    const char *message = gb_cjson_string_of(answer, "message", "");
    size_t length = strlen(what);

    if (strncmp(message, what, length) == 0 && message[length] == ':')
        message += length + 1 + (message[length + 1] == ' ');
    int code = (int)gb_cjson_int_of(answer, "code", 0);
    if (code == 0)
        gb_cli_fail(GB_STATUS_FAILED, "%s: %s", what, message);
    struct gb_error error;
    (void)gb_fail(&error, code, "%s", message);
    gb_cli_fail_with(cli, &error, "%s", what);
}

cJSON *gb_python_run(const struct gb_cli *cli, cJSON *request, const char *what)
{
    struct gb_writer text;
    pid_t process = -1;
    int output = -1;

    if (cli->socket)
        cJSON_AddStringToObject(request, "socket", cli->socket);
    char *asked = gb_cjson_text(request);
    cJSON_Delete(request);
    int cause = start(asked, &process, &output);
    free(asked);
    if (cause != 0)
        tell_missing(what, strerror(cause));
    gb_writer_init(&text, ANSWER_MAX);
    int status = wait_for(process, output, &text);
    if (status == NO_PACKAGE)
        tell_missing(what, gb_writer_text(&text));
    cJSON *answer = text.failed ? NULL : gb_cjson_parse(gb_writer_text(&text));
    gb_writer_end(&text);
    cJSON *names = cJSON_DetachItemFromObjectCaseSensitive(answer, "names");
    if (status > 0 && gb_cjson_string_of(answer, "message", NULL))
        tell_failure(cli, answer, what);
    if (status != 0 || !cJSON_IsArray(names))
        gb_cli_fail(GB_STATUS_FAILED, "%s: python3 ended before all was done", what);
    cJSON_Delete(answer);
    return names;
}
