/*
 * A directory in etcd on a pipe, for tests: reads commands from stdin, a line each, and tells on
 * stdout what comes of them and what the directory says by itself, in JSON, a line each.
 *
 *     directory --etcd URL… --node NAME [--ttl SECONDS] [--port PORT]
 *               [--timeout MS] [--witness NODE]
 *               [--ca FILE --certificate FILE --key FILE]
 *     publish NAME VERSION BYTES SEEN | withdraw NAME REVISION | copied NAME REVISION VERSION
 *     word NAME VERSION | find NAME | list [PREFIX] | knows NODE | close
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/peer/directory/directory_etcd.h"

struct probe {
    uv_loop_t loop;
    uv_pipe_t in;
    struct gb_peer_directory *directory;
    const char *witness; /* a node: each change tells whether it is known; or NULL */
    char line[4096];
    size_t length;
};

static void say(struct gb_writer *writer)
{
    GB_WRITE_LITERAL(writer, "}\n");
    fwrite(writer->data, 1, writer->length, stdout);
    fflush(stdout);
    gb_writer_end(writer);
}

static struct gb_writer begin(const char *event, const char *name)
{
    struct gb_writer writer;

    gb_writer_init(&writer, 0);
    GB_WRITE_LITERAL(&writer, "{\"event\":");
    gb_write_cstring(&writer, event);
    if (name) {
        GB_WRITE_LITERAL(&writer, ",\"name\":");
        gb_write_cstring(&writer, name);
    }
    return writer;
}

static void write_status(struct gb_writer *writer, int status, const struct gb_error *error)
{
    gb_write_format(writer, ",\"status\":%d", status);
    if (!error)
        return;
    GB_WRITE_LITERAL(writer, ",\"message\":");
    gb_write_cstring(writer, error->message);
}

static void on_found(void *user, int status, const struct gb_peer_place *places, size_t count,
                     const struct gb_error *error)
{
    char *name = user;
    struct gb_writer writer = begin("found", name);
    size_t i;

    write_status(&writer, status, error);
    GB_WRITE_LITERAL(&writer, ",\"places\":[");
    for (i = 0; i < count; i++)
        gb_write_format(&writer,
                        "%s{\"node\":\"%s\",\"host\":\"%s\",\"port\":%u,\"origin\":\"%s\","
                        "\"revision\":%llu,\"version\":%llu,\"bytes\":%llu}",
                        i ? "," : "", places[i].node, places[i].host, places[i].port,
                        places[i].origin, (unsigned long long)places[i].revision,
                        (unsigned long long)places[i].version, (unsigned long long)places[i].bytes);
    GB_WRITE_LITERAL(&writer, "]");
    say(&writer);
    free(name);
}

static void on_published(void *user, int status, uint64_t revision, const struct gb_error *error)
{
    char *name = user;
    struct gb_writer writer = begin("published", name);

    write_status(&writer, status, error);
    gb_write_format(&writer, ",\"revision\":%llu", (unsigned long long)revision);
    say(&writer);
    free(name);
}

/* A page after the other, as gpubufd-peer is asked for them. */
static void list(struct gb_peer_directory *directory, const char *prefix)
{
    struct gb_peer_listed listed[256];
    const char *after = NULL;
    int count = 256;

    while (count == 256) {
        struct gb_writer writer = begin("listed", NULL);
        struct gb_error error;

        count = directory->methods->list(directory, prefix, after, listed, 256, &error);
        write_status(&writer, count < 0 ? count : 0, count < 0 ? &error : NULL);
        GB_WRITE_LITERAL(&writer, ",\"names\":[");
        for (int i = 0; i < count; i++) {
            if (i)
                gb_write_char(&writer, ',');
            gb_write_cstring(&writer, listed[i].name);
            after = listed[i].name;
        }
        gb_write_format(&writer, "],\"last\":%s", count < 256 ? "true" : "false");
        say(&writer);
    }
}

static void on_changed(void *user, const char *name, uint64_t revision)
{
    struct probe *probe = user;
    struct gb_writer writer = begin("changed", name);

    gb_write_format(&writer, ",\"revision\":%llu", (unsigned long long)revision);
    if (probe->witness)
        gb_write_text(&writer, probe->directory->methods->knows(probe->directory, probe->witness)
                                   ? ",\"known\":true"
                                   : ",\"known\":false");
    say(&writer);
}

static void on_state(void *user, const char *why, bool forgot)
{
    struct gb_writer writer = begin("state", NULL);

    gb_write_format(&writer, ",\"forgot\":%s,\"why\":", forgot ? "true" : "false");
    if (why)
        gb_write_cstring(&writer, why);
    else
        GB_WRITE_LITERAL(&writer, "null");
    say(&writer);
}

/* ---- commands ---- */

static void command(struct probe *probe, char *line)
{
    struct gb_peer_directory *directory = probe->directory;
    char *words[5] = {0}, *rest = line;
    unsigned long long numbers[5] = {0};
    struct gb_peer_word word = {.told = true};
    struct gb_writer writer;
    size_t i;

    for (i = 0; i < 5 && (words[i] = strsep(&rest, " ")); i++)
        numbers[i] = strtoull(words[i], NULL, 10);
    if (strcmp(words[0], "publish") == 0) {
        struct gb_peer_published object = {words[1], numbers[2], numbers[3], numbers[4]};

        directory->methods->publish(directory, &object, on_published, strdup(words[1]));
    } else if (strcmp(words[0], "withdraw") == 0) {
        directory->methods->withdraw(directory, words[1], numbers[2]);
    } else if (strcmp(words[0], "copied") == 0) {
        directory->methods->copied(directory, words[1], numbers[2], numbers[3]);
    } else if (strcmp(words[0], "word") == 0) {
        directory->methods->word(directory, words[1], numbers[2], &word);
    } else if (strcmp(words[0], "find") == 0) {
        directory->methods->find(directory, words[1], on_found, strdup(words[1]));
    } else if (strcmp(words[0], "list") == 0) {
        list(directory, words[1] ? words[1] : "");
    } else if (strcmp(words[0], "knows") == 0) {
        writer = begin("knows", words[1]);
        gb_write_format(&writer, ",\"knows\":%s",
                        directory->methods->knows(directory, words[1]) ? "true" : "false");
        say(&writer);
    } else if (strcmp(words[0], "close") == 0) {
        uv_close((uv_handle_t *)&probe->in, NULL);
        directory->methods->close(directory);
    }
}

static void on_room(uv_handle_t *handle, size_t wanted, uv_buf_t *buffer)
{
    struct probe *probe = handle->data;

    *buffer = uv_buf_init(probe->line + probe->length,
                          (unsigned)(sizeof(probe->line) - probe->length - 1));
}

static void on_read(uv_stream_t *stream, ssize_t got, const uv_buf_t *buffer)
{
    struct probe *probe = stream->data;
    char last[] = "close", *line = probe->line, *end;

    if (got < 0) {
        command(probe, last);
        return;
    }
    probe->length += (size_t)got;
    probe->line[probe->length] = '\0';
    while ((end = strchr(line, '\n')) && !uv_is_closing((uv_handle_t *)stream)) {
        *end = '\0';
        command(probe, line);
        line = end + 1;
    }
    probe->length = strlen(line);
    memmove(probe->line, line, probe->length + 1);
}

int main(int argc, char **argv)
{
    static struct probe probe;
    struct gb_peer_directory_etcd_settings settings = {.host = "127.0.0.1",
                                                       .events = {&probe, on_changed, on_state}};
    struct gb_error error;
    unsigned port = 1;
    const struct {
        const char *name, **text;
        unsigned *number;
    } options[] = {
        {"--node", &settings.node, NULL},
        {"--ttl", NULL, &settings.ttl_s},
        {"--port", NULL, &port},
        {"--timeout", NULL, &settings.etcd.timeout_ms},
        {"--witness", &probe.witness, NULL},
        {"--ca", &settings.etcd.ca, NULL},
        {"--certificate", &settings.etcd.certificate, NULL},
        {"--key", &settings.etcd.key, NULL},
    };
    enum { OPTIONS = sizeof(options) / sizeof(options[0]) };

    for (int i = 1; i + 1 < argc; i += 2) {
        size_t which = 0;
        while (which < OPTIONS && strcmp(argv[i], options[which].name) != 0)
            which++;
        if (which == OPTIONS)
            settings.etcd.endpoints[settings.etcd.endpoint_count++] = argv[i + 1];
        else if (options[which].text)
            *options[which].text = argv[i + 1];
        else
            *options[which].number = (unsigned)atoi(argv[i + 1]);
    }
    settings.port = (uint16_t)port;
    uv_loop_init(&probe.loop);
    if (gb_peer_directory_etcd_create(&probe.loop, &settings, &probe.directory, &error) < 0) {
        fprintf(stderr, "%s\n", error.message);
        return 2;
    }
    uv_pipe_init(&probe.loop, &probe.in, 0);
    probe.in.data = &probe;
    uv_pipe_open(&probe.in, 0);
    uv_read_start((uv_stream_t *)&probe.in, on_room, on_read);
    uv_run(&probe.loop, UV_RUN_DEFAULT);
    return uv_loop_close(&probe.loop) < 0 ? 3 : 0;
}
