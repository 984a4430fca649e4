#include "client/peer/fetch/transfer.h"

#include <stdlib.h>
#include <string.h>

enum { IN_FLIGHT_MOST = 8 }; /* of each sender */

enum { TO_COME, ASKED, HERE };

/* A chunk that was asked for. */
struct slot {
    struct gb_peer_transfer *transfer;
    struct gb_peer_sender *sender;
    uint64_t chunk;
    struct gb_staging *block; /* NULL: the chunk comes into the object's own memory */
};

int gb_peer_transfer_init(struct gb_peer_transfer *transfer, struct gb_peer_content *content,
                          void (*moved)(struct gb_peer_transfer *transfer), struct gb_error *error)
{
    transfer->content = content;
    transfer->moved = moved;
    transfer->chunks = transfer->left = gb_peer_content_chunks(content->bytes);
    transfer->states = calloc(transfer->chunks + 1, sizeof(*transfer->states));
    if (transfer->states)
        return 0;
    *transfer = (struct gb_peer_transfer){0};
    return gb_fail_memory(error);
}

static void give_back(const struct gb_peer_sender *sender)
{
    if (sender->epoch == gb_peer_remote_epoch(sender->remote))
        gb_peer_remote_release(sender->remote, sender->lease);
    gb_peer_remote_drop(sender->remote);
}

void gb_peer_transfer_end(struct gb_peer_transfer *transfer)
{
    for (unsigned i = 0; i < transfer->count; i++)
        give_back(&transfer->senders[i]);
    free(transfer->states);
    *transfer = (struct gb_peer_transfer){0};
}

void gb_peer_transfer_add(struct gb_peer_transfer *transfer, struct gb_peer_remote *remote,
                          uint64_t lease)
{
    struct gb_peer_sender *sender = NULL;

    for (unsigned i = 0; i < transfer->count && !sender; i++)
        if (transfer->senders[i].failed && transfer->senders[i].in_flight == 0)
            sender = &transfer->senders[i];
    if (sender)
        give_back(sender);
    if (!sender && transfer->count < GB_PEER_SOURCES_MOST)
        sender = &transfer->senders[transfer->count++];
    if (!sender) {
        gb_peer_remote_release(remote, lease);
        return;
    }
    gb_peer_remote_hold(remote);
    *sender = (struct gb_peer_sender){remote, lease, gb_peer_remote_epoch(remote), 0, false};
}

bool gb_peer_transfer_can_ask(const struct gb_peer_transfer *transfer)
{
    for (unsigned i = 0; i < transfer->count; i++) {
        const struct gb_peer_sender *sender = &transfer->senders[i];
        if (!sender->failed && sender->epoch == gb_peer_remote_epoch(sender->remote))
            return true;
    }
    return false;
}

uint64_t gb_peer_transfer_came(struct gb_peer_transfer *transfer)
{
    while (transfer->came < transfer->chunks && transfer->states[transfer->came] == HERE)
        transfer->came++;
    return transfer->came;
}

void gb_peer_transfer_restart(struct gb_peer_transfer *transfer)
{
    memset(transfer->states, TO_COME, transfer->chunks);
    transfer->left = transfer->chunks;
    transfer->next = transfer->came = 0;
}

static void put_back(struct gb_peer_transfer *transfer, uint64_t chunk)
{
    transfer->states[chunk] = TO_COME;
    if (chunk < transfer->next)
        transfer->next = chunk;
}

/* In any thread. The content stays, since the chunk is in flight. */
static int land(void *user, struct gb_error *error)
{
    const struct slot *slot = user;

    return slot->block ? gb_peer_content_write(slot->transfer->content, slot->chunk,
                                               gb_staging_memory(slot->block), error)
                       : 0;
}

static void on_chunk(void *user, int status, uint64_t chunk, const struct gb_error *error)
{
    struct slot *slot = user;
    struct gb_peer_transfer *transfer = slot->transfer;

    slot->sender->in_flight--;
    transfer->in_flight--;
    if (status == 0) {
        transfer->states[chunk] = HERE;
        transfer->left--;
    } else {
        put_back(transfer, chunk);
        slot->sender->failed = true;
        transfer->error = *error;
    }
    gb_staging_release(slot->block);
    free(slot);
    transfer->moved(transfer);
}

/* False: memory is out. */
static bool ask(struct gb_peer_transfer *transfer, struct gb_peer_sender *sender, uint64_t chunk)
{
    struct slot *slot = malloc(sizeof(*slot));
    void *memory = gb_peer_content_direct(transfer->content, chunk);
    uint64_t bytes = gb_peer_content_chunk_bytes(transfer->content->bytes, chunk);
    struct gb_error ignored;

    if (!slot)
        return false;
    *slot = (struct slot){transfer, sender, chunk, NULL};
    if (!memory && gb_peer_content_stage(transfer->content, chunk, &slot->block, &ignored) == 0)
        memory = gb_staging_memory(slot->block);
    if (!memory || !gb_peer_remote_read(sender->remote, sender->lease, chunk, memory, bytes, land,
                                        on_chunk, slot)) {
        gb_staging_release(slot->block);
        free(slot);
        return false;
    }
    transfer->states[chunk] = ASKED;
    sender->in_flight++;
    transfer->in_flight++;
    return true;
}

void gb_peer_transfer_pump(struct gb_peer_transfer *transfer)
{
    bool asked = true;

    /* Senders take turns, so that each has some chunks of a small object. */
    while (asked && !transfer->stopped) {
        asked = false;
        for (unsigned i = 0; i < transfer->count; i++) {
            struct gb_peer_sender *sender = &transfer->senders[i];
            if (sender->epoch != gb_peer_remote_epoch(sender->remote))
                sender->failed = true;
            while (transfer->next < transfer->chunks && transfer->states[transfer->next] != TO_COME)
                transfer->next++;
            if (transfer->next == transfer->chunks)
                return;
            if (sender->failed || sender->in_flight >= IN_FLIGHT_MOST)
                continue;
            if (!ask(transfer, sender, transfer->next)) {
                (void)gb_fail_memory(&transfer->error);
                sender->failed = true;
                continue;
            }
            asked = true;
        }
    }
}
