/*
 * The whole terminal: its other screen, keys as they are typed, its size. Whatever ends the
 * program, a signal too, the terminal is as it was before; stopped (^Z) and continued, it is taken
 * over anew. There is one in a program: the signals' handlers use it.
 */
#ifndef GB_SCREEN_H
#define GB_SCREEN_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>

enum gb_key {
    GB_KEY_NONE = 0, /* nothing more was typed */
    GB_KEY_UP = 256, /* below that: the character */
    GB_KEY_DOWN,
    GB_KEY_LEFT,
    GB_KEY_RIGHT,
    GB_KEY_PAGE_UP,
    GB_KEY_PAGE_DOWN,
    GB_KEY_HOME,
    GB_KEY_END,
    GB_KEY_BACK_TAB,
    GB_KEY_UNKNOWN,
    GB_KEY_GONE, /* there is no terminal any more */
};

/* Whether standard input and output are a terminal that can be drawn on. */
bool gb_screen_possible(void);

/* Takes the terminal over. 0, or -1 with errno. */
int gb_screen_begin(void);
/* Gives it back. Fine if it was not taken. */
void gb_screen_end(void);

void gb_screen_size(unsigned *columns, unsigned *rows);

/* As poll(), but also ends with EINTR for a signal that came before the call. */
int gb_screen_poll(struct pollfd *fds, size_t count, int timeout_ms);
/* Whether everything has to be drawn anew since this was last asked: another size, or continued. */
bool gb_screen_changed(void);

/* The next key that was typed, without waiting. */
int gb_screen_key(void);

/* Shows lines, each ended by a newline and no wider than the screen; what is below them is wiped,
   lines that do not fit are left out. */
void gb_screen_draw(const char *text, size_t length);

#endif
