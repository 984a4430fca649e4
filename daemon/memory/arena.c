/*
 * Free ranges of open blocks are listed in classes of size: by the position of the highest bit of
 * the number of granules (first level) and by the SECOND_BITS bits below it (second level); two
 * bitmaps say which classes have any. Within a class they are ordered by age of the block, then by
 * offset, in a tree whose nodes know the largest range below them. A request takes the first range
 * of its own class that is large enough, or else the first one of the next class that has any.
 *
 * Finer classes come closer to best fit, which is quick. Coarser ones come closer to first fit,
 * which fills the oldest segments first, so that the others empty when the load falls. Eight
 * classes to a power of two give much of both (docs/PERFORMANCE.md).
 */
#include "daemon/memory/arena.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>

#include "daemon/base/hash.h"
#include "daemon/base/tree.h"
#include "gpubuf.h"

#define GRANULE_BITS 8u
#define BYTES_MAX (UINT64_C(1) << 47)
#define SECOND_BITS 3u
#define SECOND_COUNT (1u << SECOND_BITS)
/* Sizes below SECOND_COUNT granules share first level 0; then one for each position of the highest
   bit, up to that of BYTES_MAX. */
#define FIRST_COUNT (47 - GRANULE_BITS - SECOND_BITS + 2)
#define CLASS_COUNT (FIRST_COUNT * SECOND_COUNT)

#define SLAB_MIN 16u  /* records in the first slab; each further one is twice as large … */
#define SLAB_MAX 512u /* … up to this */

_Static_assert(1u << GRANULE_BITS == GB_ARENA_GRANULE, "the granule's two names agree");
_Static_assert(FIRST_COUNT <= 64 && SECOND_COUNT <= 8, "bitmaps hold a bit for each class");

/* A piece of a block, in use or free: the ranges of a block follow each other without a gap. */
struct gb_range {
    struct gb_arena_block *block;
    struct gb_range *prev, *next; /* neighbours by offset; next: also the chain of unused records */
    uint64_t offset, bytes;
    union {
        struct {                      /* free in an open block */
            struct gb_tree_node node; /* in the tree of its class */
            uint64_t largest;         /* the most bytes of a range in its subtree */
        };
        struct {           /* in use */
            uint64_t look; /* the last one that counted it as leaving; 0: none */
            /* At either end of the ranges that leave side by side in that look, but for free ones
               between them: the other end. */
            struct gb_range *far;
        };
    };
    bool free;
};

struct gb_arena_block {
    struct gb_link link; /* in the arena's blocks, oldest first */
    struct gb_range *first;
    uint64_t bytes, used;
    uint64_t number; /* counts up: a block's age */
    void *owner;
    bool closed;
};

struct slab {
    struct slab *next;
    struct gb_range records[];
};

struct gb_arena {
    struct gb_tree_node *classes[CLASS_COUNT];
    uint64_t first_map;              /* bit i: second_map[i] is not 0 */
    uint8_t second_map[FIRST_COUNT]; /* bit j of i: class i * SECOND_COUNT + j has a range */
    struct gb_link blocks;
    struct slab *slabs;
    struct gb_range *unused; /* records */
    size_t next_slab;        /* records that the next slab gets */
    uint64_t records;        /* in all slabs */
    uint64_t next_number;
    uint64_t random;             /* priorities in the trees come from it */
    struct gb_arena_stats stats; /* all but largest_free */
};

/* ---- records ---- */

static bool add_slab(struct gb_arena *arena)
{
    size_t count = arena->next_slab;
    struct slab *slab = malloc(sizeof *slab + count * sizeof slab->records[0]);

    if (!slab)
        return false;
    slab->next = arena->slabs;
    arena->slabs = slab;
    for (size_t i = count; i-- > 0;) {
        slab->records[i].next = arena->unused;
        arena->unused = &slab->records[i];
    }
    arena->records += count;
    if (arena->next_slab < SLAB_MAX)
        arena->next_slab *= 2;
    return true;
}

/* A record for a range that is not yet among the block's; NULL if memory is out. */
static struct gb_range *acquire_record(struct gb_arena *arena, struct gb_arena_block *block,
                                       uint64_t offset, uint64_t bytes)
{
    struct gb_range *range;

    if (!arena->unused && !add_slab(arena))
        return NULL;
    range = arena->unused;
    assert(range);
    arena->unused = range->next;
    *range = (struct gb_range){.block = block, .offset = offset, .bytes = bytes, .free = true};
    return range;
}

static void release_record(struct gb_arena *arena, struct gb_range *range)
{
    range->next = arena->unused;
    arena->unused = range;
}

/* ---- classes ---- */

static unsigned class_of(uint64_t bytes)
{
    uint64_t granules = bytes >> GRANULE_BITS;
    unsigned high, first;

    if (granules < SECOND_COUNT)
        return (unsigned)granules;
    high = 63u - (unsigned)__builtin_clzll(granules);
    first = high - SECOND_BITS + 1;
    return first * SECOND_COUNT + (unsigned)(granules >> (high - SECOND_BITS) & (SECOND_COUNT - 1));
}

/* The first class from `from` on that has a range; CLASS_COUNT if there is none. */
static unsigned class_from(const struct gb_arena *arena, unsigned from)
{
    unsigned first = from / SECOND_COUNT, second;
    uint64_t above;

    if (from >= CLASS_COUNT)
        return CLASS_COUNT;
    second = arena->second_map[first] & (UINT_MAX << from % SECOND_COUNT);
    if (!second) {
        above = arena->first_map & ~((UINT64_C(2) << first) - 1);
        if (!above)
            return CLASS_COUNT;
        first = (unsigned)__builtin_ctzll(above);
        second = arena->second_map[first];
    }
    return first * SECOND_COUNT + (unsigned)__builtin_ctz(second);
}

static inline struct gb_range *range_of(const struct gb_tree_node *node)
{
    return GB_CONTAINER(node, struct gb_range, node);
}

/* The order within a class. */
static bool before(const struct gb_range *a, const struct gb_range *b)
{
    if (a->block != b->block)
        return a->block->number < b->block->number;
    return a->offset < b->offset;
}

static uint64_t largest_under(const struct gb_tree_node *node)
{
    uint64_t largest = range_of(node)->bytes;

    if (node->left && range_of(node->left)->largest > largest)
        largest = range_of(node->left)->largest;
    if (node->right && range_of(node->right)->largest > largest)
        largest = range_of(node->right)->largest;
    return largest;
}

static bool update_largest(struct gb_tree_node *node)
{
    uint64_t known = range_of(node)->largest;

    range_of(node)->largest = largest_under(node);
    return range_of(node)->largest != known;
}

/* Makes a free range known to gb_arena_alloc. Those of closed blocks stay unknown. */
static void offer(struct gb_arena *arena, struct gb_range *range)
{
    unsigned size_class = class_of(range->bytes), first = size_class / SECOND_COUNT;
    struct gb_tree_node *parent = NULL, **place = &arena->classes[size_class];

    if (range->block->closed)
        return;
    while (*place) {
        parent = *place;
        place = before(range, range_of(parent)) ? &parent->left : &parent->right;
    }
    range->node.priority = gb_hash_id(arena->random++);
    gb_tree_attach(&arena->classes[size_class], parent, place, &range->node, update_largest);
    arena->first_map |= UINT64_C(1) << first;
    arena->second_map[first] |= (uint8_t)(1u << size_class % SECOND_COUNT);
    arena->stats.free_ranges++;
}

static void withdraw(struct gb_arena *arena, struct gb_range *range)
{
    unsigned size_class = class_of(range->bytes), first = size_class / SECOND_COUNT;

    if (range->block->closed)
        return;
    gb_tree_remove(&arena->classes[size_class], &range->node, update_largest);
    if (!arena->classes[size_class]) {
        arena->second_map[first] &= (uint8_t)(~(1u << size_class % SECOND_COUNT));
        if (!arena->second_map[first])
            arena->first_map &= ~(UINT64_C(1) << first);
    }
    arena->stats.free_ranges--;
}

/* The first range of a tree that is large enough; NULL if there is none. */
static struct gb_range *first_fit(struct gb_tree_node *node, uint64_t bytes)
{
    if (!node || range_of(node)->largest < bytes)
        return NULL;
    for (;;) {
        struct gb_range *range = range_of(node);

        if (node->left && range_of(node->left)->largest >= bytes)
            node = node->left;
        else if (range->bytes >= bytes)
            return range;
        else
            node = node->right;
    }
}

static struct gb_range *find(const struct gb_arena *arena, uint64_t bytes)
{
    unsigned size_class = class_of(bytes);
    struct gb_range *range = first_fit(arena->classes[size_class], bytes);

    if (range)
        return range;
    size_class = class_from(arena, size_class + 1);
    return size_class < CLASS_COUNT ? first_fit(arena->classes[size_class], bytes) : NULL;
}

/* ---- arena and blocks ---- */

struct gb_arena *gb_arena_new(void)
{
    struct gb_arena *arena = calloc(1, sizeof *arena);

    if (!arena)
        return NULL;
    arena->next_slab = SLAB_MIN;
    arena->random = gb_hash_bytes(&arena, sizeof arena);
    return arena;
}

void gb_arena_free(struct gb_arena *arena)
{
    if (!arena)
        return;
    GB_LIST_EACH(&arena->blocks, struct gb_arena_block, block, link)
        free(block);
    for (struct slab *slab = arena->slabs, *next; slab; slab = next) {
        next = slab->next;
        free(slab);
    }
    free(arena);
}

struct gb_arena_block *gb_arena_add(struct gb_arena *arena, uint64_t bytes, void *owner)
{
    struct gb_arena_block *block;

    assert(bytes > 0 && bytes % GB_ARENA_GRANULE == 0 && bytes <= BYTES_MAX);
    block = calloc(1, sizeof *block);
    if (!block)
        return NULL;
    block->first = acquire_record(arena, block, 0, bytes);
    if (!block->first) {
        free(block);
        return NULL;
    }
    block->bytes = bytes;
    block->number = arena->next_number++;
    block->owner = owner;
    gb_list_append(&arena->blocks, &block->link);
    arena->stats.blocks++;
    arena->stats.bytes += bytes;
    offer(arena, block->first);
    return block;
}

void gb_arena_remove(struct gb_arena *arena, struct gb_arena_block *block)
{
    assert(gb_arena_block_empty(block));
    withdraw(arena, block->first);
    release_record(arena, block->first);
    gb_list_remove(&block->link);
    arena->stats.blocks--;
    arena->stats.bytes -= block->bytes;
    free(block);
}

void gb_arena_close(struct gb_arena *arena, struct gb_arena_block *block)
{
    if (block->closed)
        return;
    for (struct gb_range *range = block->first; range; range = range->next)
        if (range->free)
            withdraw(arena, range);
    block->closed = true;
}

bool gb_arena_block_empty(const struct gb_arena_block *block)
{
    return block->used == 0;
}

uint64_t gb_arena_block_used(const struct gb_arena_block *block)
{
    return block->used;
}

/* ---- ranges ---- */

/* Merges the next range, which is not offered any more, into `range`. */
static void absorb_next(struct gb_arena *arena, struct gb_range *range)
{
    struct gb_range *next = range->next;

    range->bytes += next->bytes;
    range->next = next->next;
    if (range->next)
        range->next->prev = range;
    release_record(arena, next);
}

/* Cuts a free range that is not offered down to `bytes`, and offers the rest. */
static int cut_off_rest(struct gb_arena *arena, struct gb_range *range, uint64_t bytes)
{
    struct gb_range *rest;

    if (range->bytes == bytes)
        return 0;
    rest = acquire_record(arena, range->block, range->offset + bytes, range->bytes - bytes);
    if (!rest)
        return GPUBUF_E_NO_MEMORY;
    range->bytes = bytes;
    rest->prev = range;
    rest->next = range->next;
    if (rest->next)
        rest->next->prev = rest;
    range->next = rest;
    offer(arena, rest);
    return 0;
}

static void use(struct gb_arena *arena, struct gb_range *range)
{
    range->free = false;
    range->look = 0;
    range->block->used += range->bytes;
    arena->stats.used += range->bytes;
    arena->stats.ranges++;
}

int gb_arena_alloc(struct gb_arena *arena, uint64_t bytes, struct gb_range **result)
{
    struct gb_range *range;

    assert(bytes > 0);
    if (bytes > BYTES_MAX)
        return 1;
    bytes = (bytes + GB_ARENA_GRANULE - 1) & ~(uint64_t)(GB_ARENA_GRANULE - 1);
    range = find(arena, bytes);
    if (!range)
        return 1;
    withdraw(arena, range);
    if (cut_off_rest(arena, range, bytes) < 0) {
        offer(arena, range);
        return GPUBUF_E_NO_MEMORY;
    }
    use(arena, range);
    *result = range;
    return 0;
}

int gb_arena_alloc_at(struct gb_arena *arena, struct gb_arena_block *block, struct gb_range *after,
                      uint64_t offset, uint64_t bytes, struct gb_range **result)
{
    struct gb_range *range = after ? after : block->first, *front = NULL;

    if (block->closed || bytes == 0 || (offset | bytes) % GB_ARENA_GRANULE)
        return 1;
    while (range && (range->offset > offset || offset - range->offset >= range->bytes))
        range = range->next;
    if (!range || !range->free || range->bytes - (offset - range->offset) < bytes)
        return 1;
    withdraw(arena, range);
    if (offset > range->offset) {
        front = range;
        if (cut_off_rest(arena, front, offset - front->offset) < 0) {
            offer(arena, front);
            return GPUBUF_E_NO_MEMORY;
        }
        offer(arena, front);
        range = front->next;
        withdraw(arena, range);
    }
    if (cut_off_rest(arena, range, bytes) < 0) {
        if (front) { /* joins the two pieces again */
            withdraw(arena, front);
            absorb_next(arena, front);
            range = front;
        }
        offer(arena, range);
        return GPUBUF_E_NO_MEMORY;
    }
    use(arena, range);
    *result = range;
    return 0;
}

/* Takes `bytes` off the end of a free range that is next to another, or off its beginning. */
static void shrink(struct gb_arena *arena, struct gb_range *range, uint64_t bytes, bool at_end)
{
    withdraw(arena, range);
    range->bytes -= bytes;
    if (!at_end)
        range->offset += bytes;
    if (range->bytes > 0) {
        offer(arena, range);
        return;
    }
    if (range->prev)
        range->prev->next = range->next;
    else
        range->block->first = range->next;
    if (range->next)
        range->next->prev = range->prev;
    release_record(arena, range);
}

static uint64_t at_most(uint64_t bytes, uint64_t most)
{
    return bytes < most ? bytes : most;
}

void gb_range_widen(struct gb_arena *arena, struct gb_range *range, uint64_t unit)
{
    uint64_t before = range->offset % unit, after = range->offset + range->bytes;

    after = (after + unit - 1) / unit * unit - after;
    before = range->prev && range->prev->free ? at_most(range->prev->bytes, before) : 0;
    after = range->next && range->next->free ? at_most(range->next->bytes, after) : 0;
    if (before > 0)
        shrink(arena, range->prev, before, true);
    if (after > 0)
        shrink(arena, range->next, after, false);
    range->offset -= before;
    range->bytes += before + after;
    range->block->used += before + after;
    arena->stats.used += before + after;
}

void gb_range_free(struct gb_arena *arena, struct gb_range *range)
{
    assert(!range->free);
    range->block->used -= range->bytes;
    arena->stats.used -= range->bytes;
    arena->stats.ranges--;
    range->free = true;
    if (range->next && range->next->free) {
        withdraw(arena, range->next);
        absorb_next(arena, range);
    }
    if (range->prev && range->prev->free) {
        range = range->prev;
        withdraw(arena, range);
        absorb_next(arena, range);
    }
    offer(arena, range);
}

static bool leaves(const struct gb_range *range, uint64_t look)
{
    return range && !range->free && range->look == look;
}

uint64_t gb_range_leave(struct gb_range *range, uint64_t look)
{
    struct gb_range *before = range->prev, *after = range->next, *first = range, *last = range;
    uint64_t bytes;

    if (before && before->free)
        before = before->prev;
    if (after && after->free)
        after = after->next;
    if (leaves(before, look))
        first = before->far;
    if (leaves(after, look))
        last = after->far;
    range->look = look;
    first->far = last;
    last->far = first;
    bytes = last->offset + last->bytes - first->offset;
    if (first->prev && first->prev->free)
        bytes += first->prev->bytes;
    if (last->next && last->next->free)
        bytes += last->next->bytes;
    return range->block->closed ? 0 : bytes;
}

uint64_t gb_range_offset(const struct gb_range *range)
{
    return range->offset;
}

uint64_t gb_range_bytes(const struct gb_range *range)
{
    return range->bytes;
}

void *gb_range_owner(const struct gb_range *range)
{
    return range->block->owner;
}

void gb_arena_stats(const struct gb_arena *arena, struct gb_arena_stats *stats)
{
    *stats = arena->stats;
    stats->largest_free = 0;
    if (arena->first_map) {
        unsigned first = 63u - (unsigned)__builtin_clzll(arena->first_map);
        unsigned second = 31u - (unsigned)__builtin_clz(arena->second_map[first]);

        stats->largest_free = range_of(arena->classes[first * SECOND_COUNT + second])->largest;
    }
}
