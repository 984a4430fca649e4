/* Completion of other shells than bash, on standard output. */
#ifndef GB_COMPLETE_H
#define GB_COMPLETE_H

#include "cli.h"

void gb_complete_zsh(const struct gb_cli *cli);
void gb_complete_fish(const struct gb_cli *cli);

/* The words that a command's first argument is one of; NULL: not of a few words. */
const char *gb_complete_words(const char *command);

#endif
