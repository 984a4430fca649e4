/* The index of names against sorted arrays. */
#include "tests/cases.h"

#include <time.h>

#include "failing.h"
#include "random.h"

#include "daemon/base/hash.c"
#include "daemon/base/names.c"

/* Written anew, to be compared with the index's own idea of order. */
static int order_of(const unsigned char *a, size_t a_length, const unsigned char *b,
                    size_t b_length)
{
    for (size_t i = 0;; i++) {
        if (i == a_length || i == b_length)
            return a_length == b_length ? 0 : a_length < b_length ? -1 : 1;
        if (a[i] != b[i])
            return a[i] < b[i] ? -1 : 1;
    }
}

static int order_of_names(const void *a, const void *b)
{
    const struct gb_name *x = a, *y = b;

    return order_of((const unsigned char *)x->text, x->length, (const unsigned char *)y->text,
                    y->length);
}

/* A sorted array of names, and which of them are in the index. */
struct model {
    struct gb_names index;
    struct gb_name *names;
    bool *present;
    size_t count;
};

static void check_lookups(const struct model *model, size_t at)
{
    const struct gb_name *name = &model->names[at], *lower = NULL, *after = NULL;

    for (size_t i = model->count; i-- > at;) {
        if (!model->present[i])
            continue;
        lower = &model->names[i];
        if (i > at)
            after = lower;
    }
    assert_ptr_equal(gb_names_find(&model->index, name->text, name->length),
                     model->present[at] ? name : NULL);
    assert_ptr_equal(gb_names_lower(&model->index, name->text, name->length, false), lower);
    assert_ptr_equal(gb_names_lower(&model->index, name->text, name->length, true), after);
}

/* The walk, and the shape: parents know their children and have higher priorities. */
static void check_walk(const struct model *model)
{
    struct gb_name *name = gb_names_lower(&model->index, "", 0, false);
    size_t present = 0;

    for (size_t i = 0; i < model->count; i++) {
        const struct gb_tree_node *node = &model->names[i].node;

        if (!model->present[i])
            continue;
        present++;
        assert_ptr_equal(name, &model->names[i]);
        assert_true(node->parent || model->index.root == node);
        assert_true(!node->left || node->left->parent == node);
        assert_true(!node->right || node->right->parent == node);
        assert_true(!node->parent || node->parent->priority >= node->priority);
        name = gb_names_next(name);
    }
    assert_null(name);
    assert_int_equal(gb_names_count(&model->index), present);
}

static void toggle(struct model *model, size_t at)
{
    if (model->present[at])
        gb_names_remove(&model->index, &model->names[at]);
    else
        assert_true(gb_names_insert(&model->index, &model->names[at]));
    model->present[at] = !model->present[at];
}

static void begin(struct model *model, struct gb_name *names, bool *present, size_t count)
{
    qsort(names, count, sizeof names[0], order_of_names);
    memset(present, 0, count * sizeof present[0]);
    *model = (struct model){.names = names, .present = present, .count = count};
}

enum { LETTERS = 5, LENGTH = 4, TIMES = 3, WORDS = 1 + 5 + 25 + 125 + 625 };

/* All words of up to four letters of a nasty alphabet, each three times, the empty one included. */
static void fill_words(struct gb_name names[WORDS], char text[WORDS][LENGTH * TIMES])
{
    static const char letters[LETTERS] = {'\0', '/', 'a', '\x80', '\xff'};
    size_t at = 0;

    for (unsigned length = 0, count = 1; length <= LENGTH; length++, count *= LETTERS) {
        for (unsigned word = 0; word < count; word++, at++) {
            unsigned rest = word;

            for (unsigned i = 0; i < length; i++, rest /= LETTERS)
                memset(&text[at][i * TIMES], letters[rest % LETTERS], TIMES);
            names[at] = (struct gb_name){.text = text[at], .length = (size_t)length * TIMES};
        }
    }
}

/* 200 000 random operations over a thousand words that are each other's prefixes. */
TEST(test_against_a_sorted_array)
{
    static struct gb_name names[WORDS];
    static char text[WORDS][LENGTH * TIMES];
    static bool present[WORDS];
    struct test_random random = {2};
    struct model model;

    fill_words(names, text);
    begin(&model, names, present, WORDS);
    for (unsigned i = 0; i < 200000; i++) {
        bool filling = i / 5000 % 2 == 0;
        size_t at = test_random_below(&random, WORDS);

        if (present[at] != filling || test_random_below(&random, 16) == 0)
            toggle(&model, at);
        check_lookups(&model, test_random_below(&random, WORDS));
        if (i % 500 == 0)
            check_walk(&model);
    }
    for (size_t i = 0; i < WORDS; i++)
        check_lookups(&model, i);
    gb_names_end(&model.index);
    assert_int_equal(failing_blocks, 0);
}

/* The index is ordered once all names are in it; some are removed before. */
TEST(test_ordered_at_the_end)
{
    static struct gb_name names[WORDS];
    static char text[WORDS][LENGTH * TIMES];
    static bool present[WORDS];
    struct test_random random = {3};
    struct model model;

    fill_words(names, text);
    begin(&model, names, present, WORDS);
    model.index.unordered = true;
    gb_hash_reserve(&model.index.table, WORDS);
    for (unsigned i = 0; i < 3 * WORDS; i++)
        toggle(&model, test_random_below(&random, WORDS));
    failing_from(1, 1);
    assert_false(gb_names_order(&model.index));
    failing_from(0, 0);
    assert_non_null(gb_names_any(&model.index));
    for (size_t i = 0; i < WORDS; i++)
        assert_ptr_equal(gb_names_find(&model.index, names[i].text, names[i].length),
                         present[i] ? &names[i] : NULL);
    assert_true(gb_names_order(&model.index));
    check_walk(&model);
    for (size_t i = 0; i < WORDS; i++) {
        check_lookups(&model, i);
        toggle(&model, i);
    }
    check_walk(&model);
    gb_names_end(&model.index);
    assert_int_equal(failing_blocks, 0);
}

/* Names that come in order do not make the tree deep. */
TEST(test_sorted_input_stays_shallow)
{
    enum { COUNT = 100000 };
    struct gb_name *names = calloc(COUNT, sizeof *names);
    char(*text)[8] = calloc(COUNT, sizeof *text);
    struct gb_names index = {0};
    unsigned deepest = 0;

    assert_true(names && text);
    for (unsigned i = 0; i < COUNT; i++) {
        for (unsigned j = 0, rest = i; j < 5; j++, rest /= 10)
            text[i][4 - j] = (char)('0' + rest % 10);
        names[i] = (struct gb_name){.text = text[i], .length = 5};
        assert_true(gb_names_insert(&index, &names[i]));
    }
    for (unsigned i = 0; i < COUNT; i++) {
        unsigned depth = 0;

        for (struct gb_tree_node *node = &names[i].node; node; node = node->parent)
            depth++;
        if (depth > deepest)
            deepest = depth;
    }
    /* About 40; a depth of 100 has a chance below 10^-20. */
    assert_in_range(deepest, 17, 100);
    for (unsigned i = 0; i < COUNT; i++) { /* removed while walking, every other one */
        struct gb_name *next = gb_names_next(&names[i]);

        assert_ptr_equal(next, i + 1 < COUNT ? &names[i + 1] : NULL);
        if (i % 2)
            gb_names_remove(&index, &names[i]);
    }
    assert_int_equal(gb_names_count(&index), COUNT / 2);
    gb_names_end(&index);
    free(names);
    free(text);
    assert_int_equal(failing_blocks, 0);
}

/* A daemon that cannot restore all of its objects ends without delay, however many there are. */
TEST(test_an_unordered_one_is_emptied_quickly)
{
    enum { COUNT = 200000 };
    struct gb_name *names = calloc(COUNT, sizeof *names), *name;
    uint32_t *text = calloc(COUNT, sizeof *text);
    struct gb_names index = {.unordered = true};
    clock_t begun = clock();

    assert_true(names && text);
    for (unsigned i = 0; i < COUNT; i++) {
        text[i] = i;
        names[i] = (struct gb_name){.text = (const char *)&text[i], .length = sizeof *text};
        assert_true(gb_names_insert(&index, &names[i]));
    }
    while ((name = gb_names_any(&index)))
        gb_names_remove(&index, name);
    assert_int_equal(gb_names_count(&index), 0);
    assert_true(clock() - begun < 8 * CLOCKS_PER_SEC); /* 0.1 s; a minute if each is searched for */
    gb_names_end(&index);
    free(names);
    free(text);
    assert_int_equal(failing_blocks, 0);
}

RUN_TESTS(NULL, NULL)
