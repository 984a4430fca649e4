/*
 * Writes a stream of frames: writer [NAME] [FRAMES]. Each is a picture of 640 × 480 bytes, thirty a
 * second. Readers come and go as they like; see reader.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <gpubuf.h>

enum { WIDTH = 640, HEIGHT = 480 };

static void draw(unsigned char *picture, uint64_t number)
{
    for (size_t y = 0; y < HEIGHT; y++)
        memset(picture + y * WIDTH, (int)((y + number) % 256), WIDTH);
}

int main(int argc, char **argv)
{
    if (argc > 1 && argv[1][0] == '-')
        return printf("usage: %s %s\n", argv[0], "[NAME] [FRAMES]") < 0;
    const char *name = argc > 1 ? argv[1] : "camera";
    long frames = argc > 2 ? strtol(argv[2], NULL, 10) : -1;
    const uint64_t shape[] = {HEIGHT, WIDTH};
    const struct gpubuf_stream_options options = {
        .size = sizeof(options), .device = "host", .wait_ms = 10000};
    const struct timespec pause = {.tv_nsec = 33000000};
    struct gpubuf_client *client = NULL;
    struct gpubuf_stream *stream = NULL;
    struct gpubuf_frame frame;

    int r = gpubuf_connect(&client, NULL);
    if (r == 0)
        r = gpubuf_stream_create(client, name, "uint8", 2, shape, &options, &stream);
    for (long i = 0; r == 0 && i != frames; i++) {
        r = gpubuf_stream_next(stream, 0, &frame);
        if (r < 0)
            break;
        draw(frame.pointer, frame.number);
        r = gpubuf_stream_publish(stream, &frame, NULL);
        (void)nanosleep(&pause, NULL);
    }
    if (r < 0)
        fprintf(stderr, "writer: %s\n", gpubuf_errmsg(client));
    gpubuf_stream_close(stream);
    gpubuf_disconnect(client);
    return r < 0;
}
