/* Linked into an addon by --wrap: its list of completions cannot grow past the first 64. */
#include <stdlib.h>

#include "client/node/src/completion.h"

void *__real_realloc(void *memory, size_t size);
void *__wrap_realloc(void *memory, size_t size);

void *__wrap_realloc(void *memory, size_t size)
{
    return size == 128 * sizeof(struct gb_completion) ? NULL : __real_realloc(memory, size);
}
