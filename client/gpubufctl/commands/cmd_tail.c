/* gpubufctl tail NAME: one line a frame of a stream, until interrupted or its writer ends. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "client/gpubufctl/commands/commands.h"
#include "client/gpubufctl/data/series.h"
#include "client/gpubufctl/output/format.h"
#include "client/gpubufctl/output/term.h"
#include "proto/wire/json.h"
#include "proto/wire/stream.h"

#define FIRST_ELEMENTS 8u
#define PIECE_MS 500 /* how long until it looks whether its reader is still there */

enum { COUNT, NEWEST };

const struct gb_cli_option gb_tail_options[] = {
    {"count", 'n', "N", "exit after N frames", NULL},
    {"newest", 'N', NULL, "skip to the newest frame each time", NULL},
    {0},
};

/* Appends the first elements of a frame, separated by commas. */
static void write_first(const struct gb_cli *cli, struct gpubuf_stream *stream,
                        const struct gpubuf_frame *frame, struct gb_writer *writer)
{
    struct gpubuf_object *part;
    struct gb_series series;

    int r =
        gpubuf_slice(gpubuf_stream_object(stream), frame->slot, (uint64_t)frame->slot + 1, &part);
    if (r < 0)
        gb_cli_refuse(r, "cannot look at a frame");
    gb_series_init(&series, part);
    if (cli->json)
        gb_series_as_json(&series);
    for (uint64_t i = 0; i < series.length && i < FIRST_ELEMENTS; i++) {
        if (series.item_bytes && (i + 1) * series.item_bytes > frame->bytes)
            break; /* it is shorter than its slot */
        if (i > 0)
            gb_write_text(writer, cli->json ? "," : ", ");
        if (cli->json)
            gb_series_write_json(&series, i, writer);
        else
            gb_series_write(&series, i, writer);
    }
    if (series.length > FIRST_ELEMENTS && !cli->json)
        gb_write_text(writer, ", …");
    gb_series_end(&series);
    gpubuf_release(part);
}

/* Local time at which a frame was published. */
static void write_clock(struct gb_writer *writer, uint64_t time_ns)
{
    struct timespec wall, monotonic;

    (void)clock_gettime(CLOCK_REALTIME, &wall);
    (void)clock_gettime(CLOCK_MONOTONIC, &monotonic);
    int64_t age = (int64_t)monotonic.tv_sec * 1000000000 + monotonic.tv_nsec - (int64_t)time_ns;
    int64_t ns = (int64_t)wall.tv_sec * 1000000000 + wall.tv_nsec - age;
    gb_write_format(writer, "%s.%03d", gb_clock(ns / 1000000000).text, (int)(ns / 1000000 % 1000));
}

static void print_frame(const struct gb_cli *cli, struct gpubuf_stream *stream,
                        const struct gpubuf_frame *frame)
{
    struct gb_writer writer;

    gb_writer_init(&writer, 0);
    if (cli->json) {
        gb_write_format(&writer,
                        "{\"number\":%" PRIu64 ",\"time_ns\":%" PRIu64 ",\"bytes\":%" PRIu64
                        ",\"missed\":%" PRIu64 ",\"slot\":%u,\"first\":[",
                        frame->number, frame->time_ns, frame->bytes, frame->missed, frame->slot);
    } else {
        const char *dim = gb_style_on(cli->color, GB_STYLE_DIM),
                   *off = gb_style_off(cli->color, GB_STYLE_DIM);

        gb_write_text(&writer, dim);
        write_clock(&writer, frame->time_ns);
        gb_write_format(&writer, "%s  %" PRIu64 "  %s%s", off,
                        frame->number & ((UINT64_C(1) << GB_STREAM_COUNT_BITS) - 1), dim,
                        gb_size(frame->bytes).text);
        if (frame->missed > 0)
            gb_write_format(&writer, ", %" PRIu64 " missed", frame->missed);
        gb_write_format(&writer, "%s  ", off);
    }
    write_first(cli, stream, frame, &writer);
    gb_write_text(&writer, cli->json ? "]}\n" : "\n");
    gb_cli_print(&writer);
}

/* Prints frames until that many are, or their reader is gone. */
static void follow(const struct gb_cli *cli, struct gpubuf_stream *stream, uint64_t left)
{
    struct gpubuf_frame frame;

    while (left > 0 && fflush(stdout) == 0) {
        int r = gpubuf_stream_read(stream, PIECE_MS, &frame);

        if (r == GPUBUF_E_UNAVAILABLE)
            return; /* the writer has ended */
        if (r == GPUBUF_E_TIMEOUT)
            continue;
        gb_cli_check(cli, r, "cannot read %s", cli->subject);
        print_frame(cli, stream, &frame);
        (void)gpubuf_stream_done(stream, &frame, NULL);
        left--;
    }
}

void gb_cmd_tail(struct gb_cli *cli, struct gb_cli_args *args)
{
    const struct gpubuf_stream_options options = {.size = sizeof(options),
                                                  .each = !args->option[NEWEST]};
    struct gpubuf_stream *stream;

    gb_cli_connect(cli);
    gb_cli_check(cli, gpubuf_stream_open(cli->client, args->value[0], &options, &stream),
                 "cannot read %s", args->value[0]);
    follow(cli, stream, args->option[COUNT] ? (uint64_t)args->number[COUNT] : UINT64_MAX);
    gpubuf_stream_close(stream);
}
