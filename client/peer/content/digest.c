#include "client/peer/content/digest.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TURN_CHUNKS = 64 }; /* of one piece of work, so that other work has its turn */

struct gb_peer_digest {
    uv_loop_t *loop;
    const struct gb_peer_content *content;
    void (*moved)(void *user);
    void *user;
    uv_work_t work;
    atomic_bool ended;    /* the owner has; the content may be no more */
    uv_sem_t left;        /* posted when the thread is done with the content */
    bool busy;            /* the thread has the members below */
    uint64_t done, there; /* chunks; the thread goes to `end` */
    uint64_t end;
    EVP_MD_CTX *context;
    unsigned char sum[EVP_MAX_MD_SIZE];
    int status;
    struct gb_error error;
};

bool gb_peer_word_describe(struct gb_peer_word *word, const char *layout, size_t length,
                           uint64_t mode, uint64_t bytes, const char *label)
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    unsigned char digest[EVP_MAX_MD_SIZE];
    char head[80];
    int head_length = snprintf(head, sizeof(head), "%" PRIu64 " %" PRIu64 " %zd ", mode, bytes,
                               label ? (ssize_t)strlen(label) : -1);

    bool made = context && EVP_DigestInit_ex(context, EVP_sha256(), NULL) == 1 &&
                EVP_DigestUpdate(context, head, (size_t)head_length) == 1 &&
                EVP_DigestUpdate(context, label ? label : "", label ? strlen(label) : 0) == 1 &&
                EVP_DigestUpdate(context, layout, length) == 1 &&
                EVP_DigestFinal_ex(context, digest, NULL) == 1;
    EVP_MD_CTX_free(context);
    memcpy(word->described, digest, made ? sizeof(word->described) : 0);
    return made;
}

static int add_chunk(struct gb_peer_digest *digest, uint64_t chunk, struct gb_error *error)
{
    struct gb_staging *block;
    const void *bytes;
    int r = gb_peer_content_read(digest->content, chunk, &block, &bytes, error);

    if (r == 0 && EVP_DigestUpdate(digest->context, bytes,
                                   gb_peer_content_chunk_bytes(digest->content->bytes, chunk)) != 1)
        r = gb_fail_memory(error);
    gb_staging_release(block);
    return r;
}

/* In a thread of the pool. */
static void add(uv_work_t *work)
{
    struct gb_peer_digest *digest = work->data;

    for (; digest->status == 0 && digest->done < digest->end && !digest->ended; digest->done++)
        digest->status = add_chunk(digest, digest->done, &digest->error);
    if (digest->status == 0 && digest->done == gb_peer_content_chunks(digest->content->bytes) &&
        EVP_DigestFinal_ex(digest->context, digest->sum, NULL) != 1)
        digest->status = gb_fail_memory(&digest->error);
    uv_sem_post(&digest->left);
}

static void drop(struct gb_peer_digest *digest)
{
    EVP_MD_CTX_free(digest->context);
    uv_sem_destroy(&digest->left);
    free(digest);
}

static void submit_chunks(struct gb_peer_digest *digest);

static void on_added(uv_work_t *work, int status)
{
    struct gb_peer_digest *digest = work->data;

    digest->busy = false;
    if (digest->ended) {
        drop(digest);
        return;
    }
    (void)uv_sem_trywait(&digest->left);
    submit_chunks(digest);
    if (!digest->busy)
        digest->moved(digest->user);
}

static void submit_chunks(struct gb_peer_digest *digest)
{
    if (digest->busy || digest->status < 0 || digest->done >= digest->there)
        return;
    digest->end =
        digest->there - digest->done < TURN_CHUNKS ? digest->there : digest->done + TURN_CHUNKS;
    digest->busy = uv_queue_work(digest->loop, &digest->work, add, on_added) == 0;
}

struct gb_peer_digest *gb_peer_digest_new(uv_loop_t *loop, const struct gb_peer_content *content,
                                          void (*moved)(void *user), void *user)
{
    struct gb_peer_digest *digest = calloc(1, sizeof(*digest));

    if (!digest || uv_sem_init(&digest->left, 0) != 0) {
        free(digest);
        return NULL;
    }
    digest->loop = loop;
    digest->content = content;
    digest->moved = moved;
    digest->user = user;
    digest->work.data = digest;
    digest->context = EVP_MD_CTX_new();
    if (digest->context && EVP_DigestInit_ex(digest->context, EVP_sha256(), NULL) == 1)
        return digest;
    drop(digest);
    return NULL;
}

void gb_peer_digest_move(struct gb_peer_digest *digest, uint64_t chunks)
{
    digest->there = chunks;
    submit_chunks(digest);
}

int gb_peer_digest_sum(const struct gb_peer_digest *digest, unsigned char sum[GB_PEER_WORD_BYTES],
                       struct gb_error *error)
{
    if (digest->busy ||
        (digest->status == 0 && digest->done < gb_peer_content_chunks(digest->content->bytes)))
        return 0;
    memcpy(sum, digest->sum, GB_PEER_WORD_BYTES);
    *error = digest->error;
    return digest->status < 0 ? digest->status : 1;
}

void gb_peer_digest_end(struct gb_peer_digest *digest)
{
    if (!digest)
        return;
    digest->ended = true;
    if (!digest->busy)
        drop(digest);
    else if (uv_cancel((uv_req_t *)&digest->work) != 0) /* it runs, or has just run */
        uv_sem_wait(&digest->left);
}
