#include "daemon/objects/page.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/base/failure.h"

#define BYTES (GB_PAGE_SLOTS * sizeof(_Atomic uint64_t))
#define WORDS (GB_PAGE_SLOTS / 64)

int gb_page_memory(size_t bytes, bool ours, void **memory, int *out, struct gb_error *error)
{
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW | (ours ? F_SEAL_FUTURE_WRITE : 0) | F_SEAL_SEAL;
    int fd = memfd_create("gpubufd-page", MFD_CLOEXEC | MFD_ALLOW_SEALING), r;
    void *mapped = NULL;

    if (fd < 0)
        return gb_fail_call(error, "memory for a page: memfd_create");
    if (fchmod(fd, 0400) < 0 || ftruncate(fd, (off_t)bytes) < 0)
        mapped = MAP_FAILED;
    else if (memory)
        mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    /* F_SEAL_FUTURE_WRITE spares our mapping, which was there before. */
    if (mapped != MAP_FAILED && fcntl(fd, F_ADD_SEALS, seals) == 0) {
        if (memory)
            *memory = mapped;
        *out = fd;
        return 0;
    }
    r = gb_fail_call(error, "a page that is shared");
    if (mapped && mapped != MAP_FAILED)
        munmap(mapped, bytes);
    close(fd);
    return r;
}

int gb_pulse_begin(struct gb_pulse *pulse, struct gb_error *error)
{
    pthread_mutexattr_t attributes;
    int r = gb_page_memory(sizeof(pthread_mutex_t), true, &pulse->mutex, &pulse->fd, error);

    if (r < 0) {
        pulse->mutex = NULL;
        return r;
    }
    pthread_mutexattr_init(&attributes); /* none of these calls can fail */
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(pulse->mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
    pthread_mutex_lock(pulse->mutex);
    return 0;
}

void gb_pulse_end(struct gb_pulse *pulse)
{
    if (!pulse->mutex)
        return;
    pthread_mutex_unlock(pulse->mutex);
    munmap(pulse->mutex, sizeof(pthread_mutex_t));
    close(pulse->fd);
    pulse->mutex = NULL;
}

int gb_page_new(struct gb_page **out, int *fd, struct gb_error *error)
{
    struct gb_page *page = calloc(1, sizeof(*page));
    void *slots;
    int r = page ? gb_page_memory(BYTES, true, &slots, fd, error) : gb_fail_memory(error);

    if (r < 0) {
        free(page);
        return r;
    }
    page->slots = slots;
    *out = page;
    return 0;
}

void gb_page_free(struct gb_page *page)
{
    if (!page)
        return;
    munmap(page->slots, BYTES);
    free(page);
}

unsigned gb_page_fill_slot(struct gb_page *page, uint64_t lease)
{
    while (page && page->lowest < WORDS) {
        uint64_t *word = &page->taken[page->lowest];

        if (~*word) {
            unsigned bit = (unsigned)__builtin_ctzll(~*word);
            unsigned slot = page->lowest * 64 + bit;

            *word |= UINT64_C(1) << bit;
            atomic_store_explicit(&page->slots[slot], lease, memory_order_release);
            return slot + 1;
        }
        page->lowest++;
    }
    return 0;
}

void gb_page_clear(struct gb_page *page, unsigned slot)
{
    atomic_store_explicit(&page->slots[slot - 1], 0, memory_order_release);
}

void gb_page_drop(struct gb_page *page, unsigned slot)
{
    unsigned word = (slot - 1) / 64;

    if (!slot)
        return;
    gb_page_clear(page, slot);
    page->taken[word] &= ~(UINT64_C(1) << (slot - 1) % 64);
    if (word < page->lowest)
        page->lowest = word;
}
