#include "client/lib/wire/wait.h"

#include <poll.h>
#include <time.h>

#include "client/lib/base/clock.h"
#include "client/lib/wire/output.h"
#include "client/lib/wire/progress.h"
#include "client/lib/wire/receive.h"
#include "client/lib/wire/report.h"

/* How long to wait for room to send before checking for the answer again. */
#define OUTPUT_POLL_MS 100

int64_t gb_answer_timeout(const struct gpubuf_client *client, int64_t wait_ms)
{
    if (client->requests.timeout_ms < 0)
        return -1;
    return client->requests.timeout_ms + (wait_ms > 0 ? wait_ms : 0);
}

/* ---- leading ---- */

/* Sleeps until something can be received or sent, for at most `timeout_ms`; then does it. */
static void lead_sleeping(struct gpubuf_client *client, int timeout_ms)
{
    struct pollfd socket = {.fd = client->conn.fd, .events = POLLIN};

    if (gb_conn_has_output(&client->conn) && !client->end.write_failed)
        socket.events |= POLLOUT;

    pthread_mutex_unlock(&client->lock);
    int ready = poll(&socket, 1, timeout_ms);
    pthread_mutex_lock(&client->lock);
    if (ready > 0 && !client->end.lost.code) {
        if (socket.revents & POLLOUT)
            gb_flush(client);
        if (socket.revents & ~POLLOUT)
            (void)gb_receive(client, false);
    }
}

/* Waits until it is time to try to connect again, or something has changed. */
static void lead_down(struct gpubuf_client *client, int pause_ms)
{
    int64_t until = gb_now_ms() + pause_ms;
    struct timespec time = {
        .tv_sec = (time_t)(until / 1000),
        .tv_nsec = (long)(until % 1000) * 1000000,
    };

    client->polling.waiters++;
    (void)pthread_cond_timedwait(&client->changed, &client->lock, &time);
    client->polling.waiters--;
}

/* Polls and handles what comes, for at most `timeout_ms` (-1: for ever). Lets the lock go. */
static void lead(struct gpubuf_client *client, int timeout_ms)
{
    if (client->link != GB_LINK_UP) {
        int pause_ms = client->hooks->mend(client, timeout_ms);
        if (client->end.lost.code)
            return;
        if (client->link == GB_LINK_DOWN) {
            lead_down(client, pause_ms);
            return;
        }
        timeout_ms = pause_ms;
    }
    gb_flush(client);
    client->polling.leader = true;
    client->polling.pollers++;
    if (gb_conn_has_output(&client->conn) || client->end.lost.code || !gb_receive_soon(client))
        lead_sleeping(client, timeout_ms);
    client->polling.pollers--;
    client->polling.leader = false;
    gb_client_changed(client);
}

/* ---- following ---- */

/* Waits for another thread to lead or to end the request. */
static void follow(struct gpubuf_client *client, int64_t deadline)
{
    client->polling.waiters++;
    if (deadline < 0) {
        pthread_cond_wait(&client->changed, &client->lock);
    } else {
        struct timespec until = {
            .tv_sec = (time_t)(deadline / 1000),
            .tv_nsec = (long)(deadline % 1000) * 1000000,
        };
        (void)pthread_cond_timedwait(&client->changed, &client->lock, &until);
    }
    client->polling.waiters--;
}

/* Sends while another thread polls, which may not know that there is something to send. */
static void push_output(struct gpubuf_client *client, int left)
{
    struct pollfd socket = {.fd = client->conn.fd, .events = POLLOUT};

    client->polling.pollers++;
    pthread_mutex_unlock(&client->lock);
    (void)poll(&socket, 1, left < 0 || left > OUTPUT_POLL_MS ? OUTPUT_POLL_MS : left);
    pthread_mutex_lock(&client->lock);
    client->polling.pollers--;
    if (client->ended)
        gb_client_changed(client);
    gb_flush(client);
}

static void give_up(struct gb_request **request)
{
    (*request)->canceled = true;
    *request = NULL;
}

/* Whether the program wants the wait to end. Lets the lock go. */
static bool is_unwanted(struct gpubuf_client *client, const struct gb_request *request)
{
    if (!client->progress.report || request->firm || request->ended)
        return false;
    pthread_mutex_unlock(&client->lock);
    bool unwanted = gb_progress(client, 0) < 0;
    pthread_mutex_lock(&client->lock);
    return unwanted && !request->ended;
}

int gb_request_wait(struct gpubuf_client *client, struct gb_request **request, int64_t timeout_ms)
{
    int64_t end = gb_deadline_ms(timeout_ms);

    while (!(*request)->ended) {
        int64_t deadline = end;
        int left = gb_left_ms(deadline);
        if (left == 0) {
            give_up(request);
            return gb_report_text(client, GPUBUF_E_TIMEOUT, "the daemon has not answered in time");
        }
        if (client->progress.report && !(*request)->firm && (left < 0 || left > GB_PROGRESS_MS)) {
            left = GB_PROGRESS_MS;
            deadline = gb_deadline_ms(left);
        }
        if (!client->polling.leader) {
            lead(client, left);
            gb_deliver(client, true);
        } else if (gb_conn_has_output(&client->conn) && !client->end.write_failed) {
            push_output(client, left);
        } else {
            follow(client, deadline);
        }
        if (is_unwanted(client, *request)) {
            give_up(request);
            return GPUBUF_E_CANCELED;
        }
    }
    gb_request_remove(*request);
    return (*request)->status < 0 ? gb_report(client, &(*request)->error) : (*request)->status;
}
