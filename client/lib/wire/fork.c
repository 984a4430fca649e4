#include "client/lib/wire/fork.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/lib/wire/flusher.h"
#include "client/lib/wire/loop.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int once_status;
static pthread_mutex_t clients_lock = PTHREAD_MUTEX_INITIALIZER;
static struct gpubuf_client *clients;

static void before_fork(void)
{
    pthread_mutex_lock(&clients_lock);
    gb_cache_before_fork();
    gb_flusher_before_fork();
}

static void in_parent(void)
{
    gb_flusher_in_parent();
    gb_cache_after_fork();
    pthread_mutex_unlock(&clients_lock);
}

/* A client's lock may be held by a thread that the child does not have. So only the links, the
   socket and the loop of a client are touched here. */
static void in_child(void)
{
    gb_process_forked();
    for (struct gpubuf_client *client = clients; client; client = client->next) {
        close(client->conn.fd);
        gb_loop_end(client);
    }
    clients = NULL;
    gb_flusher_in_child();
    gb_cache_in_child();
    pthread_mutex_unlock(&clients_lock);
}

static void install_handlers(void)
{
    once_status = pthread_atfork(before_fork, in_parent, in_child);
    gb_process_at_end(gb_flusher_stop);
}

int gb_fork_watch(struct gpubuf_client *client)
{
    pthread_once(&once, install_handlers);
    if (once_status != 0)
        return GPUBUF_E_NO_MEMORY;

    pthread_mutex_lock(&clients_lock);
    client->generation = gb_generation();
    client->previous = NULL;
    client->next = clients;
    if (clients)
        clients->previous = client;
    clients = client;
    pthread_mutex_unlock(&clients_lock);
    return 0;
}

void gb_fork_unwatch(struct gpubuf_client *client)
{
    pthread_mutex_lock(&clients_lock);
    if (client->next)
        client->next->previous = client->previous;
    if (client->previous)
        client->previous->next = client->next;
    else
        clients = client->next;
    gb_conn_end(&client->conn);
    gb_loop_end(client);
    pthread_mutex_unlock(&clients_lock);
}

uid_t gb_socket_uid(int fd)
{
    struct ucred peer = {.uid = (uid_t)-1};
    socklen_t length = sizeof(peer);

    (void)getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length);
    return peer.uid;
}

/* With the lock that a fork takes: a child forked in between would have a descriptor of the new
   connection that nobody closes. */
int gb_fork_reconnect(struct gpubuf_client *client)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int error = 0;

    strcpy(address.sun_path, client->path); /* it was connected to by this name before */
    pthread_mutex_lock(&clients_lock);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
        error = errno;
    else if (client->daemon.own_daemon && gb_socket_uid(fd) != geteuid())
        error = EACCES;
    else if (dup3(fd, client->conn.fd, O_CLOEXEC) < 0)
        error = errno;
    if (fd >= 0)
        close(fd);
    pthread_mutex_unlock(&clients_lock);
    return error;
}
