/*
 * Reads a stream: reader [NAME]. Prints the mean of the newest frame whenever it has looked at the
 * last one, until the writer ends. The frame lies where the writer has put it, and does not change
 * while it is held.
 */
#include <inttypes.h>
#include <stdio.h>

#include <gpubuf.h>

static double mean(const unsigned char *bytes, uint64_t count)
{
    uint64_t sum = 0;

    for (uint64_t i = 0; i < count; i++)
        sum += bytes[i];
    return count > 0 ? (double)sum / (double)count : 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && argv[1][0] == '-')
        return printf("usage: %s %s\n", argv[0], "[NAME]") < 0;
    const char *name = argc > 1 ? argv[1] : "camera";
    const struct gpubuf_stream_options options = {.size = sizeof(options), .wait_ms = 10000};
    struct gpubuf_client *client = NULL;
    struct gpubuf_stream *stream = NULL;
    struct gpubuf_frame frame;

    int r = gpubuf_connect(&client, NULL);
    if (r == 0)
        r = gpubuf_stream_open(client, name, &options, &stream);
    while (r == 0 && (r = gpubuf_stream_read(stream, -1, &frame)) == 0) {
        printf("mean %.1f, %" PRIu64 " missed\n", mean(frame.pointer, frame.bytes), frame.missed);
        fflush(stdout);
        r = gpubuf_stream_done(stream, &frame, NULL);
    }
    if (r < 0 && r != GPUBUF_E_UNAVAILABLE) /* that is the end of the writer */
        fprintf(stderr, "reader: %s\n", gpubuf_errmsg(client));
    gpubuf_stream_close(stream);
    gpubuf_disconnect(client);
    return r < 0 && r != GPUBUF_E_UNAVAILABLE;
}
