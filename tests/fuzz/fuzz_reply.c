/*
 * reply: the library reading arbitrary lines from a daemon, over a socketpair. The input is what the
 * daemon sends after the greeting; its first byte says what the library has asked for. A byte 0x01
 * in it stands for "the descriptor of a good memfd comes with what follows".
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/lib/internal.h"

#define DESCRIPTOR 0x01

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int memory_fd(void)
{
    static int fd = -1;
    if (fd < 0) {
        fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (fd < 0 || ftruncate(fd, 65536) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0)
            abort();
    }
    return fd;
}

static void send_piece(int fd, const uint8_t *data, size_t size, bool descriptor)
{
    struct iovec vector = {(void *)(uintptr_t)data, size};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    if (descriptor) {
        int memory = memory_fd();
        memset(&control, 0, sizeof(control));
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof(control.bytes);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &memory, sizeof(memory));
    }
    if (size > 0)
        (void)sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void send_input(int fd, const uint8_t *data, size_t size)
{
    const uint8_t *end = data + size;
    bool descriptor = false;
    while (data < end) {
        const uint8_t *stop = memchr(data, DESCRIPTOR, (size_t)(end - data));
        if (!stop)
            stop = end;
        send_piece(fd, data, (size_t)(stop - data), descriptor);
        descriptor = true;
        data = stop + 1;
    }
}

/* Touches all that it is given. */
static void take_object(struct gpubuf_client *client, int status, struct gpubuf_object *object,
                        void *arg)
{
    (void)client;
    (void)arg;
    if ((status < 0) != (object == NULL))
        abort();
    if (!object)
        return;
    struct gpubuf_memory memory;
    struct gpubuf_object *view;
    volatile unsigned char sum = 0;
    for (unsigned which = GPUBUF_DATA; which <= GPUBUF_OFFSETS; which++) {
        if (gpubuf_memory(object, (enum gpubuf_which)which, &memory) == 0 && memory.bytes > 0)
            sum = (unsigned char)(sum + *(unsigned char *)memory.pointer +
                                  ((unsigned char *)memory.pointer)[memory.bytes - 1]);
    }
    uint64_t length = gpubuf_length(object);
    for (uint64_t i = 0; i < length && i < 100; i++)
        (void)gpubuf_is_valid(object, i);
    (void)gpubuf_is_valid(object, length ? length - 1 : 0);
    if (gpubuf_slice(object, length / 3, length / 3, &view) == 0) {
        struct ArrowSchema schema;
        struct ArrowArray array;
        if (gpubuf_export_arrow(view, &schema, &array) == 0) {
            schema.release(&schema);
            array.release(&array);
        }
        gpubuf_release(view);
    }
    for (size_t i = 0; i < gpubuf_child_count(object) && i < 10; i++) {
        if (gpubuf_child(object, i, &view) == 0)
            take_object(client, 0, view, NULL);
    }
    gpubuf_release(object);
}

static void take_text(struct gpubuf_client *client, int status, const char *result, size_t length,
                      void *arg)
{
    (void)client;
    (void)arg;
    if (status == 0 && strnlen(result, length + 1) != length)
        abort();
}

static void ignore_event(struct gpubuf_client *client, const char *kind,
                         const struct gpubuf_info *info, void *arg)
{
    (void)client;
    (void)arg;
    if (!kind || (info && strnlen(info->name, sizeof(info->name)) == sizeof(info->name)))
        abort();
}

/* The one request is number 1: input that is to be believed says so. A blocking call finds its
   answer, and the end, already there. */
static void ask(struct gpubuf_client *client, uint8_t what)
{
    static const char *const names[] = {"a", "b", "c"};
    const struct gpubuf_layout_spec bytes = {.kind = GPUBUF_KIND_BYTES, .bytes = 100};
    struct gpubuf_object *objects[3];
    struct gpubuf_info info;
    uint64_t watch;
    switch (what % 7) {
    case 0:
        (void)gpubuf_open_async(client, "a", NULL, take_object, NULL, NULL);
        break;
    case 1:
        if (gpubuf_open_many(client, names, 3, NULL, objects, NULL) >= 0)
            gpubuf_release_many(objects, 3);
        break;
    case 2:
        (void)gpubuf_create_async(client, "a", &bytes, NULL, take_object, NULL, NULL);
        break;
    case 3:
        (void)gpubuf_call_async(client, "stats", NULL, take_text, NULL, NULL);
        break;
    case 4:
        (void)gpubuf_watch(client, NULL, ignore_event, NULL, &watch);
        break;
    case 5:
        (void)gpubuf_stat(client, "a", &info);
        break;
    case 6:
        if (gpubuf_open(client, "a", NULL, &objects[0]) == 0)
            take_object(client, 0, objects[0], NULL);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int ends[2];
    if (size == 0)
        return 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
        abort();
    struct gpubuf_client *client = gb_client_new(ends[0]);
    if (!client)
        abort();
    strcpy(client->instance, "f0");
    /* What the peer says is there before it is asked, and then it is gone for writing. */
    send_input(ends[1], data + 1, size - 1);
    (void)shutdown(ends[1], SHUT_WR);
    ask(client, data[0]);
    while (gpubuf_dispatch(client) >= 0)
        ;
    gpubuf_disconnect(client);
    close(ends[1]);
    return 0;
}
