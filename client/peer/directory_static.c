#include "client/peer/directory_static.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/json.h"

struct fixed {
    struct gb_peer_directory directory;
    struct gb_peer_remotes *remotes;
    struct gb_peer_machine peers[GB_PEER_MACHINES_MOST];
    size_t count;
    char self[GB_PEER_NODE_BYTES];
};

/* A `find` under way: the question to all machines. */
struct finding {
    gb_peer_found_cb callback;
    void *user;
    unsigned left; /* answers to come */
    struct gb_peer_place places[GB_PEER_MACHINES_MOST];
    size_t count;
    struct gb_error unknown; /* why a machine could not be asked; code 0: all could */
    const char *self;
};

struct asking {
    struct finding *finding;
    const struct gb_peer_machine *peer;
};

struct answer {
    struct gb_string origin;
    uint64_t revision, version, bytes, since;
};

/* ---- the end ---- */

static bool is_origin(const struct gb_peer_place *place)
{
    return strcmp(place->node, place->origin) == 0;
}

/* Keeps the places of the one machine that has published the name. It alone says what the revision
   is, so a machine with another one, or with a copy of a machine that does not have the name, is
   left out. This machine's own name was not asked for here. */
static int choose(struct finding *finding, struct gb_error *error)
{
    struct gb_peer_place *places = finding->places;
    struct gb_peer_place said = {0}; /* by the origin, or of this machine's own */
    size_t kept = 0;

    for (size_t i = 0; i < finding->count; i++) {
        if (is_origin(&places[i]) && said.node[0] && is_origin(&said))
            return gb_fail(error, GPUBUF_E_EXISTS,
                           "the name is ambiguous: %s and %s have different objects of it",
                           said.node, places[i].node);
        if (is_origin(&places[i]) ||
            (!said.node[0] && strcmp(places[i].origin, finding->self) == 0))
            said = places[i];
    }
    for (size_t i = 0; i < finding->count; i++)
        if (strcmp(places[i].origin, said.origin) == 0 && places[i].revision == said.revision)
            places[kept++] = places[i];
    finding->count = kept;
    return 0;
}

static void finish(struct finding *finding)
{
    struct gb_error error = finding->unknown;

    int r = choose(finding, &error);
    if (r == 0 && finding->count > 0) {
        finding->callback(finding->user, 0, finding->places, finding->count, NULL);
    } else {
        if (r == 0 && !error.code)
            (void)gb_fail(&error, GPUBUF_E_NOT_FOUND, "no machine has it");
        else if (r == 0 && error.code != GPUBUF_E_BUSY && error.code != GPUBUF_E_CLOSED)
            error.code = GPUBUF_E_UNAVAILABLE;
        finding->callback(finding->user, error.code, NULL, 0, &error);
    }
    free(finding);
}

/* ---- answers ---- */

static int read_answer(const char *text, size_t length, struct gb_pool *pool, struct answer *answer,
                       struct gb_error *error)
{
    static const struct gb_field fields[] = {
        GB_FIELD(struct answer, origin, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0,
                 GB_PEER_NODE_BYTES - 1),
        GB_FIELD(struct answer, revision, GB_FIELD_UINT, GB_FIELD_REQUIRED, 1, 0),
        GB_FIELD(struct answer, version, GB_FIELD_UINT, GB_FIELD_REQUIRED, 1, 0),
        GB_FIELD(struct answer, bytes, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct answer, since, GB_FIELD_UINT, 0, 0, 0),
    };

    return gb_json_read_text(text, length, fields, sizeof(fields) / sizeof(fields[0]), "answer",
                             pool, answer, error);
}

static void add_place(struct finding *finding, const struct gb_peer_machine *peer,
                      const struct answer *answer)
{
    struct gb_peer_place *place = &finding->places[finding->count++];

    *place = (struct gb_peer_place){.port = peer->port,
                                    .revision = answer->revision,
                                    .version = answer->version,
                                    .bytes = answer->bytes,
                                    .since_ms = answer->since};
    strcpy(place->node, peer->node);
    strcpy(place->host, peer->host);
    snprintf(place->origin, sizeof(place->origin), "%s", answer->origin.text);
}

static void on_answer(void *user, int status, const char *result, size_t length,
                      const struct gb_error *error)
{
    struct asking asking = *(struct asking *)user;
    struct finding *finding = asking.finding;
    struct gb_pool pool = {0};
    struct answer answer = {0};
    struct gb_error why;

    free(user);
    if (status == 0) {
        status = read_answer(result, length, &pool, &answer, &why);
        error = &why;
    }
    if (status == 0)
        add_place(finding, asking.peer, &answer);
    else if (status != GPUBUF_E_NOT_FOUND)
        finding->unknown = *error;
    gb_pool_end(&pool);
    if (--finding->left == 0)
        finish(finding);
}

/* ---- asking ---- */

static bool ask(struct fixed *fixed, struct finding *finding, const struct gb_peer_machine *peer,
                const struct gb_writer *text)
{
    struct gb_peer_remote *remote =
        gb_peer_remotes_get(fixed->remotes, peer->node, peer->host, peer->port);
    struct asking *asking = remote ? malloc(sizeof(*asking)) : NULL;

    if (!asking)
        return false;
    *asking = (struct asking){finding, peer};
    if (gb_peer_remote_ask(remote, text->data, text->length, on_answer, asking))
        return true;
    free(asking);
    return false;
}

static bool find(struct gb_peer_directory *directory, const char *name, gb_peer_found_cb callback,
                 void *user)
{
    struct fixed *fixed = (struct fixed *)directory;
    struct finding *finding = calloc(1, sizeof(*finding));
    struct gb_writer writer;

    if (!finding)
        return false;
    finding->callback = callback;
    finding->user = user;
    finding->self = fixed->self;
    gb_writer_init(&writer, 0);
    gb_write_pattern(&writer, "{'method':'find','name':%s}", name);
    for (size_t i = 0; i < fixed->count && !writer.failed; i++) {
        if (ask(fixed, finding, &fixed->peers[i], &writer))
            finding->left++;
        else
            (void)gb_fail(&finding->unknown, GPUBUF_E_NO_MEMORY,
                          "%s could not be asked: out of memory", fixed->peers[i].node);
    }
    gb_writer_end(&writer);
    if (finding->left > 0)
        return true;
    free(finding);
    return false;
}

static bool knows(struct gb_peer_directory *directory, const char *node)
{
    struct fixed *fixed = (struct fixed *)directory;

    for (size_t i = 0; i < fixed->count; i++)
        if (strcmp(fixed->peers[i].node, node) == 0)
            return true;
    return false;
}

static int machines(struct gb_peer_directory *directory, gb_peer_machine_cb each, void *user,
                    struct gb_error *error)
{
    struct fixed *fixed = (struct fixed *)directory;

    for (size_t i = 0; i < fixed->count; i++)
        each(user, fixed->peers[i].node, fixed->peers[i].host, fixed->peers[i].port);
    return 0;
}

static void close_directory(struct gb_peer_directory *directory)
{
    free(directory);
}

struct gb_peer_directory *gb_peer_directory_static(struct gb_peer_remotes *remotes,
                                                   const struct gb_peer_machine *peers,
                                                   size_t count, const char *self)
{
    static const struct gb_peer_directory_methods methods = {
        .find = find,
        .machines = machines,
        .knows = knows,
        .close = close_directory,
    };
    struct fixed *fixed = calloc(1, sizeof(*fixed));

    if (!fixed)
        return NULL;
    fixed->directory.methods = &methods;
    fixed->remotes = remotes;
    snprintf(fixed->self, sizeof(fixed->self), "%s", self);
    for (size_t i = 0; i < count; i++)
        if (strcmp(peers[i].node, self) != 0)
            fixed->peers[fixed->count++] = peers[i];
    return &fixed->directory;
}
