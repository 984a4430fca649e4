#include "daemon/serve/load.h"

#include <string.h>

#include "proto/base/utf8.h"

static struct gb_load *find(struct gb_loads *loads, const char *prefix, size_t length)
{
    for (unsigned i = 0; i < loads->count; i++) {
        struct gb_load *load = &loads->all[i];

        if (load->length == length && memcmp(load->prefix, prefix, length) == 0)
            return load;
    }
    return NULL;
}

/* A place that no prefix has, or one that nobody provides; NULL: there is none. */
static struct gb_load *find_place(struct gb_loads *loads)
{
    if (loads->count < GB_LOADS)
        return &loads->all[loads->count++];
    for (unsigned i = 0; i < GB_LOADS; i++)
        if (loads->all[i].sessions == 0)
            return &loads->all[i];
    return NULL;
}

void gb_loads_begin(struct gb_loads *loads, const char *prefix, size_t length)
{
    struct gb_load *load = find(loads, prefix, length);

    if (!load && gb_utf8_is_plain(prefix, length) && (load = find_place(loads))) {
        *load = (struct gb_load){.length = length};
        memcpy(load->prefix, prefix, length);
    }
    if (load)
        load->sessions++;
}

void gb_loads_end(struct gb_loads *loads, const char *prefix, size_t length)
{
    struct gb_load *load = find(loads, prefix, length);

    if (load && load->sessions > 0)
        load->sessions--;
}

void gb_loads_opened(struct gb_loads *loads, const char *name, size_t length, bool hit)
{
    struct gb_load *best = NULL;

    for (unsigned i = 0; i < loads->count; i++) {
        struct gb_load *load = &loads->all[i];

        if (load->length <= length && memcmp(load->prefix, name, load->length) == 0 &&
            (!best || load->length > best->length))
            best = load;
    }
    if (best)
        *(hit ? &best->hits : &best->misses) += 1;
}

void gb_loads_provided(struct gb_loads *loads, const char *prefix, size_t length, uint64_t ms)
{
    struct gb_load *load = find(loads, prefix, length);

    if (!load)
        return;
    load->provided++;
    load->provided_ms += ms;
}
