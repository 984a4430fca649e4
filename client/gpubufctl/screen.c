#include "screen.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "end.h"

/* TAKE: the alternate screen, no cursor, no wrapping. GIVE_BACK undoes that and turns colours
   off. */
#define TAKE "\033[?1049h\033[?25l\033[?7l\033[2J"
#define GIVE_BACK "\033[0m\033[?7h\033[?25h\033[?1049l"

/* The signals that end a program and can be caught. */
static const int ends[] = {SIGHUP,  SIGINT, SIGQUIT, SIGTERM, SIGABRT,
                           SIGSEGV, SIGBUS, SIGFPE,  SIGILL};

static struct {
    struct termios before;
    volatile sig_atomic_t active;  /* the terminal is ours at present */
    volatile sig_atomic_t changed; /* its size changed, or it was given back in between */
    sigset_t outside;              /* signals that are let through while waiting */
    char typed[256];
    size_t typed_length;
} screen;

bool gb_screen_possible(void)
{
    const char *term = getenv("TERM");

    return isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1 && term && *term &&
           strcmp(term, "dumb") != 0;
}

/* ---- taking and giving back; safe in a signal's handler ---- */

static void write_all(const char *text, size_t length)
{
    while (length > 0) {
        ssize_t written = write(STDOUT_FILENO, text, length);

        if (written < 0 && errno == EAGAIN) {
            struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
            (void)poll(&out, 1, 1000);
            continue;
        }
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return;
        text += written;
        length -= (size_t)written;
    }
}

static int take(void)
{
    struct termios raw = screen.before;

    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO | IEXTEN);
    raw.c_iflag &= ~(tcflag_t)(IXON | ICRNL);
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    if (tcsetattr(STDOUT_FILENO, TCSADRAIN, &raw) < 0)
        return -1;
    screen.active = 1;
    screen.changed = 1;
    write_all(TAKE, sizeof(TAKE) - 1);
    return 0;
}

static void give_back(void)
{
    if (!screen.active)
        return;
    screen.active = 0;
    write_all(GIVE_BACK, sizeof(GIVE_BACK) - 1);
    (void)tcsetattr(STDOUT_FILENO, TCSADRAIN, &screen.before);
}

/* ---- signals ---- */

static void set_handler(int number, void (*handler)(int), int flags)
{
    struct sigaction action = {.sa_flags = flags};

    action.sa_handler = handler;
    sigemptyset(&action.sa_mask);
    (void)sigaction(number, &action, NULL);
}

/* Lets the signal's default action happen. */
static void let_happen(int number)
{
    sigset_t one;

    set_handler(number, SIG_DFL, 0);
    sigemptyset(&one);
    sigaddset(&one, number);
    (void)raise(number);
    (void)sigprocmask(SIG_UNBLOCK, &one, NULL);
}

static void on_end(int number)
{
    give_back();
    let_happen(number);
}

static void on_stop(int number)
{
    int error = errno;

    give_back();
    let_happen(number); /* returns once we are continued */
    set_handler(number, on_stop, 0);
    errno = error;
}

static void on_continue(int number)
{
    int error = errno;

    (void)take(); /* in the background tcsetattr() stops us again (SIGTTOU) until we are in the
                     foreground */
    errno = error;
}

static void on_resize(int number)
{
    screen.changed = 1;
}

/* Sets the handlers. These signals are blocked except while gb_screen_poll waits. */
static void set_handlers(void)
{
    sigset_t held;

    sigemptyset(&held);
    sigaddset(&held, SIGTSTP);
    sigaddset(&held, SIGCONT);
    sigaddset(&held, SIGWINCH);
    sigaddset(&held, SIGHUP);
    sigaddset(&held, SIGINT);
    sigaddset(&held, SIGTERM);
    (void)sigprocmask(SIG_BLOCK, &held, &screen.outside);
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
        set_handler(ends[i], on_end, 0);
    set_handler(SIGTSTP, on_stop, 0);
    set_handler(SIGCONT, on_continue, 0);
    set_handler(SIGWINCH, on_resize, 0);
}

/* ---- the whole ---- */

int gb_screen_begin(void)
{
    if (tcgetattr(STDOUT_FILENO, &screen.before) < 0)
        return -1;
    if (take() < 0)
        return -1;
    gb_cli_undo(gb_screen_end);
    set_handlers();
    return 0;
}

void gb_screen_end(void)
{
    if (!screen.active)
        return;
    give_back();
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
        set_handler(ends[i], SIG_DFL, 0);
    set_handler(SIGTSTP, SIG_DFL, 0);
    set_handler(SIGCONT, SIG_DFL, 0);
    set_handler(SIGWINCH, SIG_DFL, 0);
    (void)sigprocmask(SIG_SETMASK, &screen.outside, NULL);
}

void gb_screen_size(unsigned *columns, unsigned *rows)
{
    struct winsize size;

    *columns = 80;
    *rows = 24;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0)
        return;
    if (size.ws_col > 0)
        *columns = size.ws_col;
    if (size.ws_row > 0)
        *rows = size.ws_row;
}

int gb_screen_poll(struct pollfd *fds, size_t count, int timeout_ms)
{
    struct timespec timeout = {timeout_ms / 1000, timeout_ms % 1000 * 1000000L};

    return ppoll(fds, count, timeout_ms < 0 ? NULL : &timeout, &screen.outside);
}

bool gb_screen_changed(void)
{
    bool changed = screen.changed;

    screen.changed = 0;
    return changed;
}

/* ---- keys ---- */

static const struct {
    const char *sequence;
    int key;
} sequences[] = {
    {"\033[A", GB_KEY_UP},         {"\033OA", GB_KEY_UP},       {"\033[B", GB_KEY_DOWN},
    {"\033OB", GB_KEY_DOWN},       {"\033[C", GB_KEY_RIGHT},    {"\033OC", GB_KEY_RIGHT},
    {"\033[D", GB_KEY_LEFT},       {"\033OD", GB_KEY_LEFT},     {"\033[5~", GB_KEY_PAGE_UP},
    {"\033[6~", GB_KEY_PAGE_DOWN}, {"\033[H", GB_KEY_HOME},     {"\033OH", GB_KEY_HOME},
    {"\033[1~", GB_KEY_HOME},      {"\033[F", GB_KEY_END},      {"\033OF", GB_KEY_END},
    {"\033[4~", GB_KEY_END},       {"\033[Z", GB_KEY_BACK_TAB},
};

/* The length of the escape sequence that has been typed, 0 if it is not whole yet. */
static size_t sequence_length(void)
{
    if (screen.typed_length < 2)
        return 0;
    if (screen.typed[1] == 'O')
        return screen.typed_length < 3 ? 0 : 3;
    if (screen.typed[1] != '[')
        return 1; /* the escape key, then another */
    for (size_t i = 2; i < screen.typed_length; i++)
        if (screen.typed[i] >= '@' && screen.typed[i] <= '~')
            return i + 1;
    return screen.typed_length == sizeof(screen.typed) ? screen.typed_length : 0;
}

static int take_typed(size_t length)
{
    int key = length == 1 ? (unsigned char)screen.typed[0] : GB_KEY_UNKNOWN;

    for (size_t i = 0; i < sizeof(sequences) / sizeof(sequences[0]); i++)
        if (strlen(sequences[i].sequence) == length &&
            memcmp(sequences[i].sequence, screen.typed, length) == 0)
            key = sequences[i].key;
    screen.typed_length -= length;
    memmove(screen.typed, screen.typed + length, screen.typed_length);
    return key == GB_KEY_NONE ? GB_KEY_UNKNOWN : key;
}

int gb_screen_key(void)
{
    size_t room = sizeof(screen.typed) - screen.typed_length, length;
    ssize_t got = room ? read(STDIN_FILENO, screen.typed + screen.typed_length, room) : 0;

    if (got < 0 && errno != EINTR && errno != EAGAIN)
        return GB_KEY_GONE;
    if (got > 0)
        screen.typed_length += (size_t)got;
    if (screen.typed_length == 0)
        return GB_KEY_NONE;
    length = screen.typed[0] == '\033' ? sequence_length() : 1;
    return length > 0 ? take_typed(length) : GB_KEY_NONE;
}

/* ---- drawing ---- */

void gb_screen_draw(const char *text, size_t length)
{
    const char *end = text + length;
    struct gb_writer out;
    unsigned columns, rows, row = 0;

    gb_screen_size(&columns, &rows);
    gb_writer_init(&out, 0);
    GB_WRITE_LITERAL(&out, "\033[?2026h\033[H"); /* synchronized output: the terminal shows the
                                                    frame when it is complete, if it knows this */
    while (text < end && row < rows) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        const char *stop = newline ? newline : end;

        if (row++ > 0)
            GB_WRITE_LITERAL(&out, "\r\n");
        GB_WRITE_LITERAL(&out, "\033[K"); /* before the line: after a full line it would erase its
                                             last character */
        gb_write(&out, text, (size_t)(stop - text));
        text = newline ? newline + 1 : end;
    }
    if (row < rows)
        GB_WRITE_LITERAL(&out, "\r\n\033[J");
    GB_WRITE_LITERAL(&out, "\033[?2026l");
    write_all(gb_writer_text(&out), out.length);
    gb_writer_end(&out);
}
