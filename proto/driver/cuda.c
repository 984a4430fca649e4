#include "proto/driver/cuda.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* cuGetProcAddress has had two forms: since 12.0 it also says why a symbol was not found. */
typedef CUresult (*get_proc_11030)(const char *, void **, int, cuuint64_t);
typedef CUresult (*get_proc_12000)(const char *, void **, int, cuuint64_t,
                                   CUdriverProcAddressQueryResult *);

struct finder {
    void *library;
    get_proc_11030 plain;
    get_proc_12000 telling; /* preferred */
};

const struct gb_driver_names gb_driver_names[] = {
    {"CUDA", "cuda", "CUDA_VISIBLE_DEVICES"},
    {"HIP", "hip", "HIP_VISIBLE_DEVICES"},
};

/* A driver as it is loaded; its library's names, the preferred one first. */
static struct loaded {
    const char *libraries[2];
    pthread_once_t once;
    struct gb_cuda table;
    struct gb_error failure; /* code 0: `table` is good */
    atomic_bool seen;
    atomic_ullong missed; /* libraries loaded so far when dlopen did not find the driver */
} all[] = {
    {.libraries = {"libcuda.so.1"}, .once = PTHREAD_ONCE_INIT},
    {.libraries = {"libamdhip64.so.7", "libamdhip64.so"}, .once = PTHREAD_ONCE_INIT},
};

enum gb_driver gb_driver_of(const char *device)
{
    return strncmp(device, "HIP-", 4) == 0 || strncmp(device, "hip:", 4) == 0 ? GB_HIP : GB_CUDA;
}

static void *open_library(const struct loaded *driver, int flags)
{
    void *library = dlopen(driver->libraries[0], flags);

    return library || !driver->libraries[1] ? library : dlopen(driver->libraries[1], flags);
}

/* ISO C has no conversion from void * to a pointer to a function; POSIX promises the same bits. */
static void *symbol_bits(void *library, const char *symbol, void *function, size_t size)
{
    void *found = dlsym(library, symbol);

    if (found)
        __builtin_memcpy(function, &found, size);
    return found;
}

/*
 * Asks the driver's own look-up first, which picks the form of the function by `version`. Where the
 * look-up fails the plain symbol, which names the same form, does.
 */
static void *find(const struct finder *finder, const char *name, const char *symbol, int version)
{
    void *found = NULL;
    CUdriverProcAddressQueryResult why;
    CUresult result = CUDA_ERROR_NOT_FOUND;

    if (finder->telling)
        result = finder->telling(name, &found, version, CU_GET_PROC_ADDRESS_DEFAULT, &why);
    else if (finder->plain)
        result = finder->plain(name, &found, version, CU_GET_PROC_ADDRESS_DEFAULT);
    if (result == CUDA_SUCCESS && found)
        return found;
    return dlsym(finder->library, symbol);
}

static int fill(struct loaded *driver, bool hip, const struct finder *finder)
{
    struct gb_cuda *table = &driver->table;
    const char *called = gb_driver_names[hip].name;

#define GB_CUDA_FIND(name, suffix, version, hip_name, parameters)                                  \
    {                                                                                              \
        const char *symbol = hip ? #hip_name : #name #suffix;                                      \
        void *found = find(finder, #name, symbol, (version));                                      \
        if (!found && (version) <= GB_CUDA_DRIVER_MIN)                                             \
            return gb_fail(&driver->failure, GPUBUF_E_UNSUPPORTED, "%s of %s %d.%d lacks %s",      \
                           driver->libraries[0], called, table->driver_version / 1000,             \
                           table->driver_version % 1000 / 10, symbol);                             \
        __builtin_memcpy(&table->name, &found, sizeof(found));                                     \
    }
    GB_CUDA_FUNCTION_MAP(GB_CUDA_FIND)
#undef GB_CUDA_FIND
    if (hip)
        gb_hip_adapt(table);
    return 0;
}

static int check_version(struct loaded *driver, bool hip, const struct finder *finder)
{
    const char *name = gb_driver_names[hip].name, *library = driver->libraries[0];
    const char *symbol = hip ? "hipDriverGetVersion" : "cuDriverGetVersion";
    int version = 0, least = hip ? GB_HIP_DRIVER_MIN : GB_CUDA_DRIVER_MIN;
    CUresult (*get_version)(int *);

    if (!symbol_bits(finder->library, symbol, &get_version, sizeof(get_version)))
        return gb_fail(&driver->failure, GPUBUF_E_UNSUPPORTED, "%s is no %s driver: it lacks %s",
                       library, name, symbol);
    CUresult result = get_version(&version);
    if (result == CUDA_ERROR_STUB_LIBRARY)
        return gb_fail(&driver->failure, GPUBUF_E_UNSUPPORTED,
                       "%s is the CUDA Toolkit's stub for linking, not the driver; take "
                       "its directory out of the loader's path",
                       library);
    if (result != CUDA_SUCCESS)
        return gb_fail(&driver->failure, GPUBUF_E_UNSUPPORTED,
                       "the %s driver does not report its version (error %u)", name,
                       (unsigned)result);
    if (hip) /* 70100000 is 7.1 */
        version = version / 10000000 * 1000 + version / 100000 % 100 * 10;
    if (version < least)
        return gb_fail(&driver->failure, GPUBUF_E_UNSUPPORTED,
                       "the %s driver is too old: it speaks %s %d.%d, and %d.%d is needed", name,
                       name, version / 1000, version % 1000 / 10, least / 1000, least % 1000 / 10);
    driver->table.driver_version = version;
    return 0;
}

static int load(struct loaded *driver, bool hip)
{
    struct finder finder = {.library = open_library(driver, RTLD_NOW | RTLD_LOCAL)};

    driver->table.driver = hip ? GB_HIP : GB_CUDA;
    if (!finder.library) {
        const char *why = dlerror();
        return gb_fail(&driver->failure, GPUBUF_E_UNSUPPORTED, "no %s driver here: %s",
                       gb_driver_names[hip].name, why ? why : "its library cannot be loaded");
    }
    int r = check_version(driver, hip, &finder);
    if (r < 0)
        return r;
    if (!hip && !symbol_bits(finder.library, "cuGetProcAddress_v2", &finder.telling,
                             sizeof(finder.telling)))
        symbol_bits(finder.library, "cuGetProcAddress", &finder.plain, sizeof(finder.plain));
    return fill(driver, hip, &finder);
}

/* The libraries stay loaded even after a failure: a driver does not survive being unloaded. */
static void load_cuda(void)
{
    load(&all[GB_CUDA], false);
}

static void load_hip(void)
{
    load(&all[GB_HIP], true);
}

int gb_cuda_load(enum gb_driver driver, const struct gb_cuda **cuda, struct gb_error *error)
{
    struct loaded *loaded = &all[driver];

    pthread_once(&loaded->once, driver == GB_HIP ? load_hip : load_cuda);
    if (loaded->failure.code) {
        if (error)
            *error = loaded->failure;
        return loaded->failure.code;
    }
    *cuda = &loaded->table;
    return 0;
}

static int note_loads(struct dl_phdr_info *info, size_t size, void *loads)
{
    *(unsigned long long *)loads = info->dlpi_adds;
    return 1; /* stop: every entry has the same count */
}

/* While the driver is not loaded dlopen looks for its file, which takes 20 us. So it is asked again
   only after the process has loaded another library. A driver is never unloaded. */
bool gb_cuda_is_loaded(enum gb_driver driver)
{
    struct loaded *loaded = &all[driver];
    unsigned long long loads = 0;

    if (atomic_load(&loaded->seen))
        return true;
    dl_iterate_phdr(note_loads, &loads);
    if (loads == atomic_load(&loaded->missed))
        return false;
    void *library = open_library(loaded, RTLD_LAZY | RTLD_NOLOAD);
    if (!library) {
        atomic_store(&loaded->missed, loads);
        return false;
    }
    dlclose(library);
    atomic_store(&loaded->seen, true);
    return true;
}

/* HIP's UUID is text: the 16 hexadecimal digits of the GPU's own number, or "XX" if it has none. */
static CUresult hip_device_id(const struct gb_cuda *cuda, CUdevice device, const CUuuid *uuid,
                              char id[GB_CUDA_ID_BYTES])
{
    char bus[32] = "";

    if (strnlen(uuid->bytes, sizeof(uuid->bytes)) > 2) {
        snprintf(id, GB_CUDA_ID_BYTES, "HIP-%.16s", uuid->bytes);
        return CUDA_SUCCESS;
    }
    CUresult result = cuda->cuDeviceGetPCIBusId(bus, sizeof(bus) - 1, device);
    for (char *colon; (colon = strchr(bus, ':'));)
        *colon = '-'; /* a colon begins a size in --device */
    snprintf(id, GB_CUDA_ID_BYTES, "HIP-%s", bus);
    return result;
}

CUresult gb_cuda_device_id(const struct gb_cuda *cuda, CUdevice device, char id[GB_CUDA_ID_BYTES])
{
    char name[256] = "";
    CUuuid uuid;
    CUresult result = cuda->cuDeviceGetUuid(&uuid, device);

    if (result == CUDA_SUCCESS && cuda->driver == GB_HIP)
        return hip_device_id(cuda, device, &uuid, id);
    if (result == CUDA_SUCCESS)
        result = cuda->cuDeviceGetName(name, sizeof(name) - 1, device);
    if (result != CUDA_SUCCESS)
        return result;

    const unsigned char *b = (const unsigned char *)uuid.bytes;
    snprintf(id, GB_CUDA_ID_BYTES,
             "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
             strstr(name, "MIG ") ? "MIG" : "GPU", b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7],
             b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
    return CUDA_SUCCESS;
}

const char *gb_cuda_error_name(const struct gb_cuda *cuda, CUresult result)
{
    const char *name = NULL;

    if (cuda->cuGetErrorName(result, &name) != CUDA_SUCCESS || !name)
        return cuda->driver == GB_HIP ? "an unknown HIP error" : "an unknown CUDA error";
    return name;
}

int gb_cuda_fail(struct gb_error *error, const struct gb_cuda *cuda, CUresult result,
                 const char *format, ...)
{
    char what[256];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(what, sizeof(what), format, arguments);
    va_end(arguments);

    const char *name = gb_cuda_error_name(cuda, result);
    const char *text = NULL;
    if (cuda->cuGetErrorString(result, &text) != CUDA_SUCCESS || !text)
        text = "the driver has no text for it";
    gb_fail(error, GPUBUF_E_DEVICE, "%s failed: %s (%u): %s", what, name, (unsigned)result, text);
    if (error)
        error->cuda = name;
    return GPUBUF_E_DEVICE;
}
