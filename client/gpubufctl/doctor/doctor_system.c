/* Checks of this machine: the CUDA driver, the kernel, the limits of processes. */
#include "client/gpubufctl/doctor/doctor_system.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "client/gpubufctl/output/format.h"
#include "proto/driver/cuda.h"
#include "proto/wire/handle.h"

/* ---- the driver ---- */

static bool daemon_has_gpus(const struct gb_doctor *doctor)
{
    for (size_t i = 0; doctor->has_memory && i < doctor->memory.place_count; i++)
        if (!doctor->memory.places[i].is_tier && !gb_is_host(doctor->memory.places[i].id))
            return true;
    return false;
}

static bool daemon_has(const struct gb_doctor *doctor, const char *id)
{
    for (size_t i = 0; i < doctor->memory.place_count; i++)
        if (!doctor->memory.places[i].is_tier && strcmp(doctor->memory.places[i].id, id) == 0)
            return true;
    return false;
}

static int attribute(const struct gb_cuda *cuda, CUdevice_attribute which, CUdevice device)
{
    int value = 0;

    return cuda->cuDeviceGetAttribute(&value, which, device) == CUDA_SUCCESS ? value : 0;
}

static void check_gpu(struct gb_doctor *doctor, const struct gb_cuda *cuda, int ordinal)
{
    char id[GB_CUDA_ID_BYTES] = "", name[128] = "";
    CUdevice device;
    size_t bytes = 0;

    CUresult result = cuda->cuDeviceGet(&device, ordinal);
    if (result == CUDA_SUCCESS)
        result = gb_cuda_device_id(cuda, device, id);
    if (result == CUDA_SUCCESS)
        result = cuda->cuDeviceGetName(name, (int)sizeof(name), device);
    if (result == CUDA_SUCCESS)
        result = cuda->cuDeviceTotalMem(&bytes, device);
    if (result != CUDA_SUCCESS) {
        gb_doctor_find(doctor, GB_HEALTH_FAIL, "driver", "GPU %d: %s", ordinal,
                       gb_cuda_error_name(cuda, result));
        gb_doctor_advise(doctor, "nvidia-smi -q shows more; dmesg | grep -i xid has what failed");
        return;
    }
    bool fd =
        attribute(cuda, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device) &&
        attribute(cuda, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, device);
    gb_doctor_find(doctor, fd ? GB_HEALTH_OK : GB_HEALTH_WARN, "driver",
                   "GPU %d is %s, %s, %s: memory %s be shared by descriptor%s", ordinal, id, name,
                   gb_size(bytes).text, fd ? "can" : "cannot",
                   doctor->has_memory && daemon_has(doctor, id) ? "; the daemon serves it" : "");
    if (!fd)
        gb_doctor_advise(doctor, "share by legacy handles there: --share ipc");
}

static void tell_no_gpus(struct gb_doctor *doctor, const char *cause)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");

    gb_doctor_find(doctor, daemon_has_gpus(doctor) ? GB_HEALTH_FAIL : GB_HEALTH_WARN, "driver",
                   "there is a driver, but no GPU for this process: %s", cause);
    if (visible)
        gb_doctor_advise(doctor, "CUDA_VISIBLE_DEVICES is \"%s\": unset it", visible);
    else if (access("/dev/nvidiactl", F_OK) == 0 && access("/dev/nvidiactl", R_OK | W_OK) != 0)
        gb_doctor_advise(doctor, "you may not open /dev/nvidiactl: see the permissions of "
                                 "/dev/nvidia*");
    else
        gb_doctor_advise(doctor, "nvidia-smi shows whether the driver is loaded and sees them");
}

void gb_doctor_check_driver(struct gb_doctor *doctor)
{
    const struct gb_cuda *cuda;
    struct gb_error error;
    int count = 0;

    if (gb_cuda_load(GB_CUDA, &cuda, &error) < 0 && gb_cuda_load(GB_HIP, &cuda, NULL) < 0) {
        bool wanted = daemon_has_gpus(doctor);
        gb_doctor_find(doctor, wanted ? GB_HEALTH_FAIL : GB_HEALTH_OK, "driver", "%s",
                       error.message);
        gb_doctor_advise(doctor, "%s",
                         wanted
                             ? "the daemon serves GPUs: this process needs libcuda.so.1, too (in "
                               "a container: --gpus all)"
                             : "objects on the host need none");
        return;
    }
    CUresult result = cuda->cuInit(0);
    if (result == CUDA_SUCCESS)
        result = cuda->cuDeviceGetCount(&count);
    if (result != CUDA_SUCCESS || count == 0) {
        tell_no_gpus(doctor, result ? gb_cuda_error_name(cuda, result) : "it counts 0");
        return;
    }
    gb_doctor_find(doctor, GB_HEALTH_OK, "driver", "%s %d.%d, %d GPU%s",
                   gb_driver_names[cuda->driver].name, cuda->driver_version / 1000,
                   cuda->driver_version % 1000 / 10, count, count == 1 ? "" : "s");
    for (int i = 0; i < count; i++)
        check_gpu(doctor, cuda, i);
}

/* ---- limits ---- */

#define FILES_ENOUGH 1024u
#define FILES_OF_DAEMON 4096u

/* A limit of another process, from /proc. 0: it cannot be read. */
static uint64_t limit_of(pid_t pid, const char *name)
{
    char path[64], line[256];
    uint64_t value = 0;

    (void)snprintf(path, sizeof(path), "/proc/%d/limits", (int)pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    while (fgets(line, sizeof(line), file))
        if (strncmp(line, name, strlen(name)) == 0) {
            const char *text = line + strlen(name);
            text += strspn(text, " ");
            value = strncmp(text, "unlimited", 9) == 0 ? UINT64_MAX : strtoull(text, NULL, 10);
        }
    (void)fclose(file);
    return value;
}

static void check_files(struct gb_doctor *doctor)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        bool few = limit.rlim_cur < FILES_ENOUGH;
        gb_doctor_find(doctor, few ? GB_HEALTH_WARN : GB_HEALTH_OK, "limits",
                       "this process may have %llu descriptors open",
                       (unsigned long long)limit.rlim_cur);
        if (few)
            gb_doctor_advise(doctor, "every message may bring 16: ulimit -n %u", FILES_ENOUGH);
    }
    uint64_t files = doctor->daemon_pid ? limit_of(doctor->daemon_pid, "Max open files") : 0;
    if (files == 0)
        return;
    bool few = files < FILES_OF_DAEMON;
    gb_doctor_find(doctor, few ? GB_HEALTH_WARN : GB_HEALTH_OK, "limits",
                   "the daemon may have %" PRIu64 " descriptors open", files);
    if (few)
        gb_doctor_advise(doctor, "it needs one for each session and two for each segment: "
                                 "LimitNOFILE= of its unit, or ulimit -n");
}

static void check_locked_memory(struct gb_doctor *doctor)
{
    struct rlimit limit;
    char text[GB_FORMAT_MAX] = "as much memory as it likes";

    if (getrlimit(RLIMIT_MEMLOCK, &limit) < 0)
        return;
    if (limit.rlim_cur != RLIM_INFINITY)
        (void)snprintf(text, sizeof(text), "%llu KiB of memory",
                       (unsigned long long)limit.rlim_cur / 1024);
    gb_doctor_find(doctor, GB_HEALTH_OK, "limits", "this process may lock %s", text);
}

static void check_memfd(struct gb_doctor *doctor)
{
    int fd = memfd_create("gpubufctl-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    bool sealed = fd >= 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0;

    if (sealed) {
        gb_doctor_find(doctor, GB_HEALTH_OK, "limits", "memfds can be made and sealed");
    } else {
        gb_doctor_find(doctor, GB_HEALTH_FAIL, "limits", "memfds cannot be made or sealed: %s",
                       strerror(errno));
        gb_doctor_advise(doctor, "a filter of system calls forbids memfd_create or its seals");
    }
    if (fd >= 0)
        close(fd);
}

/* A reader's descriptor is the daemon's own, opened anew through /proc. */
static void check_proc(struct gb_doctor *doctor)
{
    if (access("/proc/self/fd", R_OK | X_OK) == 0) {
        gb_doctor_find(doctor, GB_HEALTH_OK, "system", "/proc is mounted");
        return;
    }
    gb_doctor_find(doctor, GB_HEALTH_FAIL, "system", "/proc/self/fd: %s", strerror(errno));
    gb_doctor_advise(doctor, "the daemon needs it to open memory for reading only: mount -t proc "
                             "proc /proc");
}

static void check_kernel(struct gb_doctor *doctor)
{
    struct utsname system;
    int major = 0, minor = 0;

    if (uname(&system) < 0)
        return;
    char *end;
    major = (int)strtol(system.release, &end, 10);
    if (*end == '.')
        minor = (int)strtol(end + 1, NULL, 10);
    bool old = major < 5 || (major == 5 && minor < 3);
    gb_doctor_find(doctor, old ? GB_HEALTH_WARN : GB_HEALTH_OK, "system", "%s %s", system.sysname,
                   system.release);
    if (old)
        gb_doctor_advise(doctor, "Linux 5.3 or later is expected");
}

/* The host memory that devices and tiers may take, against what there is. */
static void check_host_memory(struct gb_doctor *doctor)
{
    uint64_t wanted = 0;
    uint64_t total = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);

    for (size_t i = 0; doctor->has_memory && i < doctor->memory.place_count; i++)
        if (strcmp(doctor->memory.places[i].name, "host") == 0)
            wanted += doctor->memory.places[i].capacity;
    if (wanted == 0)
        return;
    bool much = wanted > total / 10 * 9;
    gb_doctor_find(doctor, much ? GB_HEALTH_WARN : GB_HEALTH_OK, "system",
                   "the daemon may use %s of this machine's %s of memory", gb_size(wanted).text,
                   gb_size(total).text);
    if (much)
        gb_doctor_advise(doctor, "less for gpubufd --device host or --tier host, or the kernel "
                                 "may have to end processes");
}

void gb_doctor_check_system(struct gb_doctor *doctor)
{
    check_files(doctor);
    check_locked_memory(doctor);
    check_memfd(doctor);
    check_proc(doctor);
    check_kernel(doctor);
    check_host_memory(doctor);
}
