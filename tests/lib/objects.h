/*
 * Shared by the tests of objects: a daemon and a client for the whole program, and the memory of an
 * object. Each test program includes it once.
 */
#ifndef GB_TEST_OBJECTS_H
#define GB_TEST_OBJECTS_H

#include "harness.h"

static struct gpubuf_client *client;

static inline int connect_group(void **state)
{
    if (start_daemon(state) < 0)
        return -1;
    client = connect_uncached();
    return 0;
}

static inline int disconnect_group(void **state)
{
    gpubuf_disconnect(client);
    client = NULL;
    return stop_daemon(state);
}

static inline void *memory_of(struct gpubuf_object *object, enum gpubuf_which which, uint64_t bytes)
{
    struct gpubuf_memory memory;
    ok(client, gpubuf_memory(object, which, &memory));
    assert_true(memory.bytes >= bytes);
    assert_non_null(memory.pointer);
    return memory.pointer;
}

#endif
