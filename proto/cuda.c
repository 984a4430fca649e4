#include "cuda.h"

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

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct gb_cuda table;
static struct gb_error failure; /* code 0: `table` is good */

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

static int fill(const struct finder *finder)
{
#define GB_CUDA_FIND(name, suffix, version, parameters)                                            \
    {                                                                                              \
        void *found = find(finder, #name, #name #suffix, (version));                               \
        if (!found && (version) <= GB_CUDA_DRIVER_MIN)                                             \
            return gb_fail(&failure, GPUBUF_E_UNSUPPORTED, "libcuda.so.1 of CUDA %d.%d lacks %s",  \
                           table.driver_version / 1000, table.driver_version % 1000 / 10,          \
                           #name #suffix);                                                         \
        __builtin_memcpy(&table.name, &found, sizeof(found));                                      \
    }
    GB_CUDA_FUNCTION_MAP(GB_CUDA_FIND)
#undef GB_CUDA_FIND
    return 0;
}

static int load(void)
{
    struct finder finder = {.library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)};

    if (!finder.library) {
        const char *why = dlerror();
        return gb_fail(&failure, GPUBUF_E_UNSUPPORTED, "no CUDA driver here: %s",
                       why ? why : "libcuda.so.1 cannot be loaded");
    }

    CUresult (*get_version)(int *);
    if (!symbol_bits(finder.library, "cuDriverGetVersion", &get_version, sizeof(get_version)))
        return gb_fail(&failure, GPUBUF_E_UNSUPPORTED,
                       "libcuda.so.1 is no CUDA driver: it lacks cuDriverGetVersion");
    int version = 0;
    CUresult result = get_version(&version);
    if (result == CUDA_ERROR_STUB_LIBRARY)
        return gb_fail(&failure, GPUBUF_E_UNSUPPORTED,
                       "libcuda.so.1 is the CUDA Toolkit's stub for linking, not the driver; take "
                       "its directory out of the loader's path");
    if (result != CUDA_SUCCESS)
        return gb_fail(&failure, GPUBUF_E_UNSUPPORTED,
                       "the CUDA driver does not tell its version (error %u)", (unsigned)result);
    if (version < GB_CUDA_DRIVER_MIN)
        return gb_fail(&failure, GPUBUF_E_UNSUPPORTED,
                       "the CUDA driver is too old: it speaks CUDA %d.%d, and %d.%d is needed",
                       version / 1000, version % 1000 / 10, GB_CUDA_DRIVER_MIN / 1000,
                       GB_CUDA_DRIVER_MIN % 1000 / 10);
    table.driver_version = version;

    if (!symbol_bits(finder.library, "cuGetProcAddress_v2", &finder.telling,
                     sizeof(finder.telling)))
        symbol_bits(finder.library, "cuGetProcAddress", &finder.plain, sizeof(finder.plain));
    return fill(&finder);
}

/* The library stays loaded even after a failure: a driver does not survive being unloaded. */
static void load_once(void)
{
    load();
}

int gb_cuda_load(const struct gb_cuda **cuda, struct gb_error *error)
{
    pthread_once(&once, load_once);
    if (failure.code) {
        if (error)
            *error = failure;
        return failure.code;
    }
    *cuda = &table;
    return 0;
}

static int note_loads(struct dl_phdr_info *info, size_t size, void *loads)
{
    (void)size;
    *(unsigned long long *)loads = info->dlpi_adds;
    return 1; /* stop: every entry has the same count */
}

/* While the driver is not loaded dlopen looks for its file, which takes 20 us. So it is asked again
   only after the process has loaded another library. A driver is never unloaded. */
bool gb_cuda_is_loaded(void)
{
    static atomic_bool loaded;
    static atomic_ullong missed; /* libraries loaded so far when dlopen did not find the driver */
    unsigned long long loads = 0;

    if (atomic_load(&loaded))
        return true;
    dl_iterate_phdr(note_loads, &loads);
    if (loads == atomic_load(&missed))
        return false;
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (!library) {
        atomic_store(&missed, loads);
        return false;
    }
    dlclose(library);
    atomic_store(&loaded, true);
    return true;
}

CUresult gb_cuda_device_id(const struct gb_cuda *cuda, CUdevice device, char id[GB_CUDA_ID_BYTES])
{
    char name[256] = "";
    CUuuid uuid;
    CUresult result = cuda->cuDeviceGetUuid(&uuid, device);

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
        return "an unknown CUDA error";
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
