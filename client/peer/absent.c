#include "client/peer/absent.h"

#include <stdlib.h>
#include <string.h>

bool gb_absent_wanted(struct gb_absent *absent, const char *name, uint64_t request, uint64_t uid)
{
    size_t length = strlen(name) + 1;
    struct gb_absent_name *one = malloc(sizeof(*one) + length);

    if (!one)
        return false;
    one->request = request;
    one->uid = uid;
    one->absent = false;
    memcpy(one->name, name, length);
    one->next = absent->first;
    absent->first = one;
    return true;
}

bool gb_absent_stays(struct gb_absent *absent, uint64_t request)
{
    struct gb_absent_name *one = absent->first;

    while (one && one->request != request)
        one = one->next;
    if (one)
        one->absent = true;
    return one;
}

static void remove_at(struct gb_absent_name **place)
{
    struct gb_absent_name *one = *place;

    *place = one->next;
    free(one);
}

void gb_absent_over(struct gb_absent *absent, uint64_t request)
{
    struct gb_absent_name **place = &absent->first;

    while (*place) {
        if (!request || (*place)->request == request)
            remove_at(place);
        else
            place = &(*place)->next;
    }
}

void gb_absent_made(struct gb_absent *absent, const char *name)
{
    struct gb_absent_name **place = &absent->first;

    while (*place) {
        if (strcmp((*place)->name, name) == 0)
            remove_at(place);
        else
            place = &(*place)->next;
    }
}

const struct gb_absent_name *gb_absent_take(struct gb_absent *absent, const char *name)
{
    struct gb_absent_name *one = absent->first;

    while (one && !(one->absent && (!name || strcmp(one->name, name) == 0)))
        one = one->next;
    if (one)
        one->absent = false;
    return one;
}
