#include "client/gpubufctl/data/file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "client/gpubufctl/output/end.h"

/* ---- reading -------------------------------------------------------------------------------- */

/* Ends the program: what is said, and errno's sentence. */
static _Noreturn void fail(const char *what, const char *name)
{
    gb_cli_refuse(GPUBUF_E_SYSTEM, "cannot %s %s: %m", what, name);
}

void gb_input_open(struct gb_input *input, const char *path)
{
    struct stat status;

    *input = (struct gb_input){.fd = STDIN_FILENO, .name = "standard input"};
    if (strcmp(path, "-") != 0) {
        input->name = path;
        input->fd = open(path, O_RDONLY | O_CLOEXEC);
    }
    if (input->fd < 0 || fstat(input->fd, &status) != 0)
        fail("read", input->name);
    if (S_ISDIR(status.st_mode))
        gb_cli_refuse(GPUBUF_E_INVALID, "%s is a directory; expected a file", input->name);
    /* A shell may hand over a file that is read in part already. */
    off_t at = lseek(input->fd, 0, SEEK_CUR);
    input->bytes = GB_FILE_UNKNOWN;
    if (S_ISREG(status.st_mode) && at >= 0)
        input->bytes = at < status.st_size ? (uint64_t)(status.st_size - at) : 0;
}

void gb_input_close(struct gb_input *input)
{
    if (input->fd > STDIN_FILENO)
        close(input->fd);
    input->fd = -1;
}

uint64_t gb_input_read(struct gb_input *input, void *buffer, uint64_t size)
{
    enum { CHUNK = 4 << 20 }; /* so that the progress bar moves */
    char *bytes = buffer;
    uint64_t done = 0;

    while (done < size) {
        size_t wanted = size - done < CHUNK ? (size_t)(size - done) : CHUNK;
        ssize_t count = read(input->fd, bytes + done, wanted);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            fail("read", input->name);
        if (count == 0)
            break;
        done += (uint64_t)count;
        input->done += (uint64_t)count;
        if (input->progress)
            gb_progress_update(input->progress, input->done);
    }
    return done;
}

/* Tells if a copy to the GPU had to do without pinned memory. */
static void tell_pinned(void)
{
    struct gpubuf_pinned_memory pinned = {.size = sizeof(pinned)};

    if (gpubuf_pinned_memory(&pinned) == 0 && pinned.refused > 0)
        (void)fprintf(stderr, "gpubufctl: memory could not be pinned, which made the copy to the "
                              "GPU slower\n");
}

int gb_file_fill(struct gpubuf_object *object, enum gpubuf_which which,
                 const struct gpubuf_file_range *range, struct gb_progress *progress,
                 uint64_t before)
{
    enum { EVERY_MS = 100 };
    struct gpubuf_fill *fill;
    uint64_t done = 0;

    int code = gpubuf_fill_begin(object, which, range, 1, NULL, &fill);
    if (code < 0)
        return code;
    do {
        code = gpubuf_fill_wait(fill, 0, UINT64_MAX, EVERY_MS, &done);
        if (progress)
            gb_progress_update(progress, before + done);
    } while (code == GPUBUF_E_TIMEOUT);
    gpubuf_fill_end(fill);
    tell_pinned();
    return code;
}

/* ---- writing -------------------------------------------------------------------------------- */

/* The temporary file, while there is one; one at a time. */
static char *volatile doomed;

static void remove_doomed(void)
{
    if (doomed)
        (void)unlink(doomed);
}

static void on_signal(int number)
{
    remove_doomed();
    signal(number, SIG_DFL);
    raise(number);
}

static void watch_signals(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};

    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        struct sigaction old, action = {.sa_handler = on_signal};
        sigemptyset(&action.sa_mask);
        if (sigaction(numbers[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL)
            (void)sigaction(numbers[i], &action, NULL);
    }
}

static void open_temporary(struct gb_output *output, mode_t mode)
{
    const char *slash = strrchr(output->path, '/');
    int directory = slash ? (int)(slash - output->path) + 1 : 0;

    output->temporary =
        gb_text("%.*s.%.200s.XXXXXX", directory, output->path, output->path + directory);
    int fd = mkostemp(output->temporary, O_CLOEXEC);
    if (fd < 0)
        fail("write", output->path);
    doomed = output->temporary;
    gb_cli_undo(remove_doomed);
    watch_signals();
    if (fchmod(fd, mode) == 0)
        output->file = fdopen(fd, "w");
}

void gb_output_open(struct gb_output *output, const char *path)
{
    struct stat status;

    *output = (struct gb_output){.file = stdout};
    if (strcmp(path, "-") == 0)
        return;
    bool exists = stat(path, &status) == 0;
    if (exists && S_ISDIR(status.st_mode))
        gb_cli_refuse(GPUBUF_E_INVALID, "cannot write %s: it is a directory", path);
    /* A symbolic link is followed, so that its target is replaced and the link stays. */
    output->path = exists ? realpath(path, NULL) : gb_text("%s", path);
    if (!output->path || (exists && S_ISREG(status.st_mode) && access(path, W_OK) != 0))
        fail("write", path);
    mode_t mask = umask(0);
    umask(mask);
    output->file = NULL;
    if (exists && !S_ISREG(status.st_mode))
        output->file = fopen(output->path, "we");
    else
        open_temporary(output, exists ? status.st_mode & 07777 : 0666 & ~mask);
    if (!output->file)
        fail("write", output->path);
}

void gb_output_commit(struct gb_output *output)
{
    if (!output->path) /* standard output: main flushes it and tells failures */
        return;
    errno = 0;
    bool failed = ferror(output->file) != 0 || fflush(output->file) != 0;
    int cause = errno;
    errno = 0;
    failed = fclose(output->file) != 0 || failed;
    errno = cause ? cause : errno ? errno : EIO;
    if (failed || (output->temporary && rename(output->temporary, output->path) != 0))
        fail("write", output->path);
    gb_cli_undo(NULL);
    doomed = NULL;
    free(output->temporary);
    free(output->path);
}
