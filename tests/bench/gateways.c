#include "attacks.h"

#include <netinet/in.h>

#include "measure.h"

#define PEERS 64
#define EVENTS 5 /* that are asked for at a time: more would be felt by themselves */

static char program[512];

static void find_program(void)
{
    ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 32);
    char *end;

    if (n < 0)
        die("cannot tell where this program is");
    program[n] = '\0';
    for (int i = 0; i < 3; i++) /* BUILD/tests/bench/bench_hostile */
        if ((end = strrchr(program, '/')))
            *end = '\0';
    strcat(program, "/bin/gpubufd-gateway");
}

/* Where gateways are to listen; also finds their program. */
static unsigned free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
        getsockname(fd, (struct sockaddr *)&address, &length) < 0)
        die("no port can be had");
    close(fd);
    find_program();
    return ntohs(address.sin_port);
}

/* Starts a gateway and waits until it has found the daemon. */
static pid_t start_gateway(unsigned port)
{
    char line[256] = "", address[32];
    int said[2];
    FILE *log;
    pid_t pid;

    snprintf(address, sizeof(address), "127.0.0.1:%u", port);
    if (pipe2(said, O_CLOEXEC) < 0)
        die("a gateway cannot be started");
    pid = fork_child();
    if (pid == 0) {
        dup2(said[1], STDERR_FILENO);
        execl(program, program, "--socket", attacked, "--http", address, NULL);
        _exit(127);
    }
    close(said[1]);
    log = fdopen(said[0], "r");
    if (!log)
        die("out of memory");
    while (!strstr(line, "connected instance="))
        if (!fgets(line, sizeof(line), log))
            die("%s does not start", program);
    fclose(log); /* what it logs later goes nowhere */
    return pid;
}

static void end_gateway(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

void gateway_killed(void)
{
    unsigned port = free_port();

    for (;;) {
        pid_t pid = start_gateway(port);

        usleep(50000);
        end_gateway(pid);
    }
}

void gateway_hung(void)
{
    unsigned port = free_port();
    char text[EVENTS * 160], *at = text;
    struct raw raw;

    raw_open(&raw, attacked);
    publish_one(&raw, "gateway/base");
    for (int i = 0; i < EVENTS; i++)
        at += sprintf(at,
                      "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"alias\",\"params\":{\"name\":"
                      "\"gateway/%d\",\"of\":\"gateway/base\",\"replace\":true}}\n",
                      i);
    for (;;) {
        pid_t pid = start_gateway(port);

        kill(pid, SIGSTOP);
        for (int batch = 0; batch < 20000; batch++) { /* then another: it has been thrown out */
            raw_send(&raw, text, (size_t)(at - text));
            for (int i = 0; i < EVENTS; i++)
                raw_line(&raw, &(size_t){0});
            usleep(500);
        }
        end_gateway(pid);
    }
}

static int ask(unsigned port, bool whole)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    char text[80];
    int length = snprintf(text, sizeof(text),
                          "GET /api/objects HTTP/1.1\r\nHost: 127.0.0.1:%u\r\n\r\n", port);

    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
        struct pollfd polled = {.fd = fd, .events = POLLOUT};

        poll(&polled, 1, 1000);
    }
    if (fd >= 0)
        (void)!send(fd, text, whole ? (size_t)length : 20, MSG_NOSIGNAL);
    return fd;
}

void gateway_flooded(void)
{
    unsigned port = free_port();
    struct pollfd peers[PEERS];
    static char buffer[1 << 20];

    start_gateway(port);
    for (unsigned i = 0; i < PEERS; i++)
        peers[i] = (struct pollfd){.fd = ask(port, i % 2), .events = POLLIN};
    for (;;) {
        poll(peers, PEERS, 10);
        for (unsigned i = 0; i < PEERS; i++) {
            bool half = i % 2 == 0;
            ssize_t n = recv(peers[i].fd, buffer, sizeof(buffer), 0);

            /* A list goes on until its last chunk; half a request until there is a newer one. */
            if (!half && (n < 0 || (n > 0 && !memmem(buffer, (size_t)n, "\r\n0\r\n\r\n", 7))))
                continue;
            close(peers[i].fd);
            peers[i].fd = ask(port, !half);
        }
    }
}
