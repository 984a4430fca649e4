/* Prints the completion scripts of zsh and fish on standard output; that of bash is in
   cmd_completion.c. */
#ifndef GB_COMPLETE_H
#define GB_COMPLETE_H

#include "cli.h"

void gb_complete_zsh(const struct gb_cli *cli);
void gb_complete_fish(const struct gb_cli *cli);

/* The words that may be a command's first argument, separated by spaces; NULL if it is not one of a
   fixed set of words. */
const char *gb_complete_words(const char *command);

#endif
