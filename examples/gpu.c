/*
 * gpu: publishes a column on a GPU from memory of the host, opens it with a second client, as
 * another process would, copies a slice of it to the host, and sums the slice.
 *
 *     gpu                  on the daemon's first GPU
 *     gpu cuda:1           on its second
 *
 * Needs a daemon that has a GPU (gpubufd --device cuda:0). Nothing here links against CUDA.
 * Build: cc gpu.c $(pkg-config --cflags --libs gpubuf)
 */
#include <gpubuf.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>

#define NAME "example/gpu"
#define LENGTH 1000000
#define FROM 1000
#define COUNT 10

static float values[LENGTH];

static int fail(const char *what, const char *message)
{
    fprintf(stderr, "gpu: %s: %s\n", what, message);
    return 1;
}

static int publish(struct gpubuf_client *client, const char *device)
{
    struct gpubuf_layout_spec layout = {
        .kind = GPUBUF_KIND_COLUMN,
        .column = {.dtype = "float32", .length = LENGTH},
    };
    struct gpubuf_create_options options = {
        .size = sizeof(options), .device = device, .replace = true};
    struct gpubuf_object *column = NULL;
    if (gpubuf_create(client, NAME, &layout, &options, &column) < 0)
        return fail("create", gpubuf_errmsg(client));

    /* No stream: the copy is done when this returns. A kernel could fill the column as well, on a
       stream, and gpubuf_seal_on would then not wait for it. */
    int r = gpubuf_write(column, GPUBUF_DATA, 0, values, sizeof(values), NULL);
    if (r == 0)
        r = gpubuf_seal(column, NULL);
    if (r < 0)
        fail("publish", gpubuf_errmsg(client));
    gpubuf_release(column); /* an unsealed object is discarded */
    return r < 0;
}

static int sum_slice(struct gpubuf_client *client)
{
    struct gpubuf_object *column = NULL, *slice = NULL;
    float part[COUNT];
    double sum = 0;
    int r = gpubuf_open(client, NAME, NULL, &column);
    if (r == 0) /* free, unless a producer sealed it behind work that is still under way */
        r = gpubuf_wait_ready(column, NULL);
    if (r == 0)
        r = gpubuf_slice(column, FROM, COUNT, &slice);
    if (r == 0) /* the buffer is the whole column's: the slice says where it begins */
        r = gpubuf_read(slice, GPUBUF_DATA, gpubuf_offset(slice) * sizeof(part[0]), part,
                        sizeof(part), NULL);
    if (r < 0) {
        fail("open", gpubuf_errmsg(client));
    } else {
        for (int i = 0; i < COUNT; i++)
            sum += (double)part[i];
        printf("%s lies on %s, here GPU %d\n", gpubuf_name(slice), gpubuf_device(slice),
               gpubuf_device_ordinal(slice));
        printf("elements %d to %d of %" PRIu64 ": sum %g\n", FROM, FROM + COUNT,
               gpubuf_length(column), sum);
    }
    gpubuf_release(slice);
    gpubuf_release(column);
    return r < 0;
}

int main(int argc, char **argv)
{
    struct gpubuf_client *producer = NULL, *consumer = NULL;
    for (int i = 0; i < LENGTH; i++)
        values[i] = (float)i;
    if (gpubuf_connect(&producer, NULL) < 0 || gpubuf_connect(&consumer, NULL) < 0) {
        fail("connect", gpubuf_errmsg(NULL));
        gpubuf_disconnect(producer);
        return 1;
    }
    int status = publish(producer, argc > 1 ? argv[1] : "cuda:0");
    if (status == 0)
        status = sum_slice(consumer);
    gpubuf_disconnect(consumer);
    gpubuf_disconnect(producer);
    return status;
}
