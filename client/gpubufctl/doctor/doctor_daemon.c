/* Checks of the daemon: its socket, its version, its memory. */
#include "client/gpubufctl/doctor/doctor_daemon.h"

#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/gpubufctl/doctor/daemon_place.h"
#include "client/gpubufctl/output/format.h"
#include "client/gpubufctl/output/json_print.h"

#define FEW_DESCRIPTORS 4096

/* ---- the socket ---- */

static void tell_denied(struct gb_doctor *doctor, const struct gb_daemon_place *place,
                        const struct stat *status)
{
    struct group entry, *group = NULL;
    char buffer[4096];

    (void)getgrgid_r(status->st_gid, &entry, buffer, sizeof(buffer), &group);
    gb_doctor_find(doctor, GB_HEALTH_FAIL, "socket",
                   "%s: you may not connect: it is %s's and the group %s's, mode %04o", place->path,
                   gb_user(status->st_uid).text, group ? group->gr_name : "?",
                   (unsigned)status->st_mode & 07777);
    if (group && (status->st_mode & 0020))
        gb_doctor_advise(doctor, "join its group: usermod -aG %s YOU (as root), then log in again",
                         group->gr_name);
    else
        gb_doctor_advise(doctor, "start gpubufd with --mode 0660 or 0666");
}

static void tell_unreachable(struct gb_doctor *doctor, const struct gb_daemon_place *place,
                             int error)
{
    struct stat status;
    bool exists = stat(place->path, &status) == 0;

    if (!exists && errno == ENOENT) {
        gb_doctor_find(doctor, GB_HEALTH_FAIL, "socket", "%s does not exist (%s)", place->path,
                       place->why);
        gb_doctor_advise(doctor, "start a daemon: systemctl start gpubufd, or gpubufd --socket "
                                 "PATH; set $GPUBUFD_SOCKET to where it is");
    } else if (!exists) {
        int cause = errno;
        gb_doctor_find(doctor, GB_HEALTH_FAIL, "socket", "%s: %s", place->path, strerror(cause));
        if (cause == EACCES)
            gb_doctor_advise(doctor, "you need to be allowed to go through its directories (x)");
    } else if (!S_ISSOCK(status.st_mode)) {
        gb_doctor_find(doctor, GB_HEALTH_FAIL, "socket", "%s is no socket (%s)", place->path,
                       place->why);
        gb_doctor_advise(doctor, "name its socket with --socket or $GPUBUFD_SOCKET");
    } else if (error == EACCES || error == EPERM) {
        tell_denied(doctor, place, &status);
    } else if (error == ECONNREFUSED) {
        gb_doctor_find(doctor, GB_HEALTH_FAIL, "socket", "nobody listens at %s any more",
                       place->path);
        gb_doctor_advise(doctor, "the daemon has ended: look at journalctl -u gpubufd, and start "
                                 "it again");
    } else {
        gb_doctor_find(doctor, GB_HEALTH_FAIL, "socket", "%s: %s", place->path, strerror(error));
        if (error == EAGAIN)
            gb_doctor_advise(doctor, "the daemon accepts nobody at the moment: it hangs, or is "
                                     "stopped");
    }
}

/* The process that listens there decides what this user reads. It should run as root, as this user,
   or as a user made for the daemon. */
static void tell_peer(struct gb_doctor *doctor, const struct gb_daemon_place *place)
{
    const struct ucred *peer = &place->peer;
    bool suspect = peer->uid != 0 && peer->uid != geteuid() && peer->uid >= 1000;
    const struct gb_short user = gb_user(peer->uid);

    doctor->daemon_pid = peer->pid;
    gb_doctor_find(
        doctor, suspect ? GB_HEALTH_WARN : GB_HEALTH_OK, "socket",
        "%s (%s): pid %d of user %s listens%s", place->path, place->why, (int)peer->pid, user.text,
        place->is_supervisor ? ", the daemon's supervisor: gpubufctl stop ends both" : "");
    if (suspect)
        gb_doctor_advise(doctor,
                         "that is another person's daemon: whatever you publish, %s can "
                         "read",
                         user.text);
}

void gb_doctor_check_socket(struct gb_doctor *doctor)
{
    struct gpubuf_connect_options options = {
        .size = sizeof(options), .client_name = "gpubufctl", .resume_ms = GPUBUF_NO_RESUME};
    struct gb_daemon_place place;

    gb_daemon_place_find(&place, doctor->cli);
    int error = gb_daemon_place_ask(&place);
    if (error != 0) {
        tell_unreachable(doctor, &place, error);
        return;
    }
    tell_peer(doctor, &place);
    options.path = place.path;
    int code = gpubuf_connect(&doctor->cli->client, &options);
    doctor->connected = code == 0;
    if (code == 0)
        return;
    gb_doctor_find(doctor, GB_HEALTH_FAIL, "daemon", "%s", gpubuf_errmsg(NULL));
    if (code == GPUBUF_E_TIMEOUT)
        gb_doctor_advise(doctor, "it hangs, or is stopped: look at pid %d, and at its log",
                         (int)place.peer.pid);
    else if (code == GPUBUF_E_LIMIT || code == GPUBUF_E_CLOSED)
        gb_doctor_advise(doctor, "it may have as many sessions as it serves: --limit sessions, "
                                 "user_sessions");
    else
        gb_doctor_advise(doctor, "is it gpubufd that listens there?");
}

/* ---- versions, and the daemon's own words ---- */

static cJSON *call(struct gb_doctor *doctor, const char *method)
{
    cJSON *answer;

    if (gb_cli_request(doctor->cli->client, method, NULL, &answer) < 0)
        gb_doctor_find(doctor, GB_HEALTH_FAIL, "daemon", "%s: %s", method,
                       gpubuf_errmsg(doctor->cli->client));
    return answer;
}

static void check_version(struct gb_doctor *doctor, const char *server)
{
    char own[64];

    (void)snprintf(own, sizeof(own), "gpubufd %s", GPUBUF_VERSION);
    bool same = strcmp(server, own) == 0;
    gb_doctor_find(doctor, same ? GB_HEALTH_OK : GB_HEALTH_WARN, "version",
                   "the daemon is %s, up %s; this is gpubufctl %s", server,
                   gb_age(doctor->memory.uptime_ms).text, GPUBUF_VERSION);
    if (!same)
        gb_doctor_advise(doctor,
                         "they understand each other, but install the same version of both; "
                         "restart the daemon after an upgrade");
}

static void check_stock(struct gb_doctor *doctor, const cJSON *descriptors, const char *name,
                        const char *what, const char *advice)
{
    const cJSON *stock = gb_cjson_member(descriptors, name);
    int64_t used = gb_cjson_int_of(stock, "used", 0), most = gb_cjson_int_of(stock, "most", 0);
    bool scarce = used > most / 2;

    if (most == 0)
        return;
    gb_doctor_find(doctor, scarce ? GB_HEALTH_WARN : GB_HEALTH_OK, "descriptors",
                   "%" PRId64 " of the %" PRId64 " %s", used, most, what);
    if (scarce)
        gb_doctor_advise(doctor, "%s; gpubufctl stats --json shows each user", advice);
}

/* Each session and each segment takes descriptors, and so do messages on their way. */
static void check_descriptors(struct gb_doctor *doctor, const cJSON *stats)
{
    const cJSON *descriptors = gb_cjson_member(stats, "descriptors");
    int64_t limit = gb_cjson_int_of(descriptors, "limit", 0);

    if (limit > 0 && limit < FEW_DESCRIPTORS) {
        gb_doctor_find(doctor, GB_HEALTH_WARN, "descriptors",
                       "the daemon may open %" PRId64 ", which limits sessions and segments",
                       limit);
        gb_doctor_advise(doctor,
                         "give it %d or more: LimitNOFILE= in its unit, or ulimit -n before "
                         "it is started",
                         FEW_DESCRIPTORS);
    }
    check_stock(doctor, descriptors, "open", "that the daemon may open for users are open",
                "end sessions, delete objects, or raise LimitNOFILE=");
    check_stock(doctor, descriptors, "kept", "that the service manager keeps for it are kept",
                "delete objects, or raise FileDescriptorStoreMax=");
    check_stock(doctor, descriptors, "in_flight", "that may be on their way to clients are",
                "some clients do not read what they are sent");
    if (strcmp(gb_cjson_string_of(stats, "handover", ""), "lost") != 0)
        return;
    gb_doctor_find(doctor, GB_HEALTH_WARN, "survival",
                   "its supervisor, or the service manager, has ended or does not answer: a crash "
                   "would lose every object");
    gb_doctor_advise(
        doctor, "when its clients can do without it for a moment, gpubufctl stop, and start it "
                "with its supervisor again");
}

void gb_doctor_check_versions(struct gb_doctor *doctor)
{
    bool same = strcmp(gpubuf_version(), GPUBUF_VERSION) == 0;

    gb_doctor_find(doctor, same ? GB_HEALTH_OK : GB_HEALTH_WARN, "version",
                   "libgpubuf is %s, and gpubufctl was built with %s", gpubuf_version(),
                   GPUBUF_VERSION);
    if (!same)
        gb_doctor_advise(doctor,
                         "an older libgpubuf.so is found first: ldd $(command -v gpubufctl)");
    if (!doctor->connected)
        return;
    cJSON *stats = call(doctor, "stats"), *leases = call(doctor, "leases");
    doctor->has_memory = stats && gb_inventory_read_stats(&doctor->memory, stats);
    if (leases)
        (void)gb_inventory_read_leases(&doctor->memory, leases);
    if (doctor->has_memory)
        check_version(doctor, gb_cjson_string_of(stats, "server", "of an unknown version"));
    if (doctor->has_memory)
        check_descriptors(doctor, stats);
    cJSON_Delete(stats);
    cJSON_Delete(leases);
}

/* ---- memory ---- */

/* The session for which a figure is highest; NULL if it is 0 for all. */
static const cJSON *who_has_most(const struct gb_inventory *memory, const char *key)
{
    const cJSON *most = NULL;

    GB_CJSON_EACH(session, memory->sessions)
        if (gb_cjson_int_of(session, key, 0) > gb_cjson_int_of(most, key, 0))
            most = session;
    return most;
}

/* "session 7 (trainer, pid 4711)" */
static const char *session_text(const cJSON *session, char *out, size_t size)
{
    (void)snprintf(out, size, "session %" PRId64 " (%s, pid %" PRId64 ")",
                   gb_cjson_int_of(session, "session", 0),
                   gb_cjson_string_of(session, "client", ""), gb_cjson_int_of(session, "pid", -1));
    return out;
}

/* Whether the tiers below are so full that the next object of a usual size will be refused. */
static bool tiers_refuse(const struct gb_doctor *doctor, const struct gb_inventory_place *device)
{
    uint64_t objects = device->objects ? device->objects : 1;
    bool has_tier = false;

    for (size_t i = 0; i < doctor->memory.place_count; i++)
        has_tier |= doctor->memory.places[i].is_tier && doctor->memory.places[i].capacity > 0;
    return has_tier && device->stays > 0 &&
           device->free + device->evictable < (device->used + device->spilled_bytes) / objects;
}

static void check_room(struct gb_doctor *doctor, const struct gb_inventory_place *device)
{
    uint64_t available = device->free + device->retained + device->evictable;
    const cJSON *most = who_has_most(&doctor->memory, "holds");
    char session[384];
    bool refuse = tiers_refuse(doctor, device);
    bool tight = refuse || available < device->capacity / 10;

    gb_doctor_find(doctor, tight ? GB_HEALTH_WARN : GB_HEALTH_OK, "memory",
                   "%s: of %s, %s are free or can be made so; %s leased, %s pinned or kept",
                   device->name, gb_size(device->capacity).text, gb_size(available).text,
                   gb_size(device->leased).text, gb_size(device->pinned).text);
    if (!tight)
        return;
    if (refuse)
        gb_doctor_advise(doctor,
                         "%s of it stay, since the tiers are nearly full: delete objects, or give "
                         "them more (gpubufd --tier); create gets no_space meanwhile",
                         gb_size(device->stays).text);
    else if (most && device->leased >= device->pinned)
        gb_doctor_advise(doctor,
                         "%s holds most, %s: gpubufctl ps; or give the device more (gpubufd "
                         "--device)",
                         session_text(most, session, sizeof(session)),
                         gb_size((uint64_t)gb_cjson_int_of(most, "holds", 0)).text);
    else if (device->pinned > 0)
        gb_doctor_advise(doctor, "gpubufctl ls marks what is pinned or kept; unpin or delete what "
                                 "need not stay, or give the device more (gpubufd --device)");
    else
        gb_doctor_advise(doctor, "gpubufctl top shows what is there");
}

static void check_mappings(struct gb_doctor *doctor, const struct gb_inventory_place *device)
{
    const cJSON *most = who_has_most(&doctor->memory, "pins");
    char session[384];

    if (device->pinned_by_clients == 0)
        return;
    gb_doctor_find(
        doctor, device->pinned_by_clients > device->capacity / 20 ? GB_HEALTH_WARN : GB_HEALTH_OK,
        "memory", "%s: %s were given back but are still mapped by clients", device->name,
        gb_size(device->pinned_by_clients).text);
    if (most)
        gb_doctor_advise(doctor,
                         "%s maps most of it, %s: it should unmap when it is asked to "
                         "(segments.retire)",
                         session_text(most, session, sizeof(session)),
                         gb_size((uint64_t)gb_cjson_int_of(most, "pins", 0)).text);
}

static void check_device(struct gb_doctor *doctor, const struct gb_inventory_place *device)
{
    uint64_t sum = device->free + device->used + device->retained + device->pinned_by_clients;

    if (sum != device->capacity) {
        gb_doctor_find(doctor, GB_HEALTH_FAIL, "memory",
                       "%s: free, used, retained and pinned by clients are %" PRIu64
                       " bytes, but its capacity is %" PRIu64,
                       device->name, sum, device->capacity);
        gb_doctor_advise(doctor, "that is a defect: please report it, with gpubufctl stats --json");
    }
    check_room(doctor, device);
    check_mappings(doctor, device);
}

/* Without capacity it was unusable when the daemon started; else the last write failed. */
static void tell_fault(struct gb_doctor *doctor, const struct gb_inventory_place *tier)
{
    bool missing = tier->capacity == 0;

    gb_doctor_find(
        doctor, missing ? GB_HEALTH_FAIL : GB_HEALTH_WARN, "memory", "tier %s: %s: %s", tier->name,
        missing ? "the daemon runs without it" : "nothing can be written there", tier->fault);
    gb_doctor_advise(doctor, "%s",
                     missing
                         ? "mend the directory: within seconds a daemon takes over that has the "
                           "tier, and the objects in it, which are lost meanwhile"
                         : "mend the directory, its rights or its room; objects stay where they "
                           "are meanwhile, and the daemon tries again");
}

static void check_tier(struct gb_doctor *doctor, const struct gb_inventory_place *tier)
{
    uint64_t stays = tier->used - (tier->clean < tier->used ? tier->clean : tier->used);
    bool full = stays > tier->capacity / 10 * 9;

    if (tier->fault[0]) {
        tell_fault(doctor, tier);
        return;
    }
    gb_doctor_find(doctor, full || tier->failures ? GB_HEALTH_WARN : GB_HEALTH_OK, "memory",
                   "tier %s: of %s, %s hold what is nowhere else; %" PRIu64 " failures", tier->name,
                   gb_size(tier->capacity).text, gb_size(stays).text, tier->failures);
    if (tier->failures)
        gb_doctor_advise(doctor, "the daemon's log shows what failed: journalctl -u gpubufd");
    else if (full)
        gb_doctor_advise(doctor, "when it is full the least recently used is lost: give it more "
                                 "(gpubufd --tier), or delete what is not needed");
}

void gb_doctor_check_memory(struct gb_doctor *doctor)
{
    for (size_t i = 0; doctor->has_memory && i < doctor->memory.place_count; i++) {
        const struct gb_inventory_place *place = &doctor->memory.places[i];

        if (place->is_tier)
            check_tier(doctor, place);
        else
            check_device(doctor, place);
    }
}
