#include "client/node/src/turn.h"

#include <sched.h>

#include "client/node/src/client.h"
#include "client/node/src/deliver.h"

#define LOOK_CLIENTS 16     /* the first ones, whose answers are looked for */
#define LOOK_EXPECTED_MAX 8 /* with more requests under way, one answer is not worth a turn */
#define LOOK_NS 50000
#define LOOK_MISSES_MAX 7 /* at most 127 times in a row without looking */

/* Does nothing: with an active idle handle the loop does not wait. */
static void on_no_wait(uv_idle_t *idle)
{
    (void)idle;
}

static void send_all(const struct gb_addon *addon)
{
    for (size_t i = 0; i < addon->client_count; i++) {
        if (addon->clients[i])
            gb_client_send(addon->clients[i]);
    }
}

/* Whether to look for this client's answers now. */
static bool is_worth_a_look(struct gb_node_client *client)
{
    if (!client || client->expected == 0 || client->expected > LOOK_EXPECTED_MAX ||
        client->events == 0)
        return false;
    if (client->look_pause > 0) {
        client->look_pause--;
        return false;
    }
    return true;
}

/* Looks for LOOK_NS at most. Whether something has come. */
static bool look(struct gb_addon *addon, const bool *wanted, size_t count)
{
    uint64_t until = uv_hrtime() + LOOK_NS;

    do {
        for (size_t i = 0; i < count && i < addon->client_count; i++) {
            struct gb_node_client *client = addon->clients[i];
            if (wanted[i] && client && gb_client_receive(client))
                return true;
        }
        (void)sched_yield();
    } while (uv_hrtime() < until);
    return false;
}

static bool look_for_answers(struct gb_addon *addon)
{
    bool wanted[LOOK_CLIENTS] = {false}, any = false;
    size_t count = addon->client_count < LOOK_CLIENTS ? addon->client_count : LOOK_CLIENTS;

    for (size_t i = 0; i < count; i++)
        any |= wanted[i] = is_worth_a_look(addon->clients[i]);
    if (!any)
        return false;
    bool found = look(addon, wanted, count);
    for (size_t i = 0; i < count && i < addon->client_count; i++) {
        struct gb_node_client *client = addon->clients[i];
        if (!wanted[i] || !client)
            continue;
        if (found) {
            client->look_misses = 0;
        } else {
            client->look_misses += client->look_misses < LOOK_MISSES_MAX;
            client->look_pause = (1u << client->look_misses) - 1;
        }
    }
    return found;
}

static bool is_needed(const struct gb_addon *addon)
{
    for (size_t i = 0; i < addon->client_count; i++) {
        const struct gb_node_client *client = addon->clients[i];
        if (client && (client->expected > 0 || client->gathered))
            return true;
    }
    return false;
}

static void on_before_wait(uv_prepare_t *prepare)
{
    struct gb_addon *addon = prepare->data;

    (void)uv_idle_stop(&addon->no_wait);
    send_all(addon);
    if (uv_backend_timeout(addon->loop) != 0 && look_for_answers(addon) && !addon->closing) {
        send_all(addon); /* requests that callbacks have begun */
        (void)uv_idle_start(&addon->no_wait, on_no_wait);
    }
    if (!addon->closing && !is_needed(addon)) {
        (void)uv_prepare_stop(prepare);
        (void)uv_idle_stop(&addon->no_wait);
    }
}

static void on_elsewhere(uv_async_t *async)
{
    gb_deliver_from_loop(async->data);
}

void gb_turns_begin(struct gb_addon *addon)
{
    (void)uv_prepare_init(addon->loop, &addon->before_wait); /* these three cannot fail */
    (void)uv_idle_init(addon->loop, &addon->no_wait);
    (void)uv_async_init(addon->loop, &addon->from_elsewhere, on_elsewhere);
    addon->turn = on_before_wait;
    addon->before_wait.data = addon->no_wait.data = addon->from_elsewhere.data = addon;
    uv_unref((uv_handle_t *)&addon->before_wait); /* requests keep their client's handle alive */
    uv_unref((uv_handle_t *)&addon->no_wait);
    uv_unref((uv_handle_t *)&addon->from_elsewhere);
    addon->handles += 3;
    addon->references += 3;
}

static void on_closed(uv_handle_t *handle)
{
    gb_handle_closed(handle->data);
}

void gb_turns_end(struct gb_addon *addon)
{
    uv_close((uv_handle_t *)&addon->before_wait, on_closed);
    uv_close((uv_handle_t *)&addon->no_wait, on_closed);
    uv_close((uv_handle_t *)&addon->from_elsewhere, on_closed);
}
