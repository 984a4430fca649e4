#include "import.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/mman.h>
#include <sys/stat.h>

static int memfd_identify(const struct gb_segment_info *segment, int fd,
                          struct gb_memory_identity *identity, struct gb_error *error)
{
    struct stat status;
    if (fstat(fd, &status) < 0)
        return gb_fail_errno(error, "segment %" PRIu64 ": fstat", segment->id);
    if (!S_ISREG(status.st_mode) || status.st_size < 0 ||
        (uint64_t)status.st_size < segment->bytes || segment->bytes > SIZE_MAX) {
        return gb_fail(error, GPUBUF_E_PROTOCOL,
                       "segment %" PRIu64 ": its descriptor is not a file of %" PRIu64 " bytes",
                       segment->id, segment->bytes);
    }

    /* Without the seal the daemon, or whoever it adopted the memory from, could shrink the file, and
       reading would end in SIGBUS. */
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK))
        return gb_fail(error, GPUBUF_E_PROTOCOL,
                       "segment %" PRIu64 ": its descriptor is not a memfd sealed against shrinking",
                       segment->id);

    identity->device = (uint64_t)status.st_dev;
    identity->file = (uint64_t)status.st_ino;
    return 0;
}

static int memfd_map(const struct gb_segment_info *segment, int fd, struct gb_imported *imported,
                     struct gb_error *error)
{
    int protection = segment->writable ? PROT_READ | PROT_WRITE : PROT_READ;
    void *address = mmap(NULL, (size_t)segment->bytes, protection, MAP_SHARED, fd, 0);
    if (address == MAP_FAILED) {
        if (errno == ENOMEM)
            return gb_fail(error, GPUBUF_E_NO_MEMORY,
                           "segment %" PRIu64 ": no room to map %" PRIu64 " bytes", segment->id,
                           segment->bytes);
        if (errno == EACCES || errno == EPERM)
            return gb_fail(error, GPUBUF_E_PROTOCOL,
                           "segment %" PRIu64 ": its descriptor does not allow the access promised",
                           segment->id);
        return gb_fail_errno(error, "segment %" PRIu64 ": mmap of %" PRIu64 " bytes", segment->id,
                             segment->bytes);
    }

    *imported = (struct gb_imported){
        .kind = GB_HANDLE_MEMFD,
        .address = address,
        .bytes = segment->bytes,
        .writable = segment->writable,
    };
    return 0;
}

static int refuse_cuda(const struct gb_segment_info *segment, struct gb_error *error)
{
    return gb_fail(error, GPUBUF_E_UNSUPPORTED,
                   "segment %" PRIu64 " lies on %s, and this build of the library has no support "
                   "for GPUs",
                   segment->id, segment->device);
}

int gb_import_identify(const struct gb_segment_info *segment, int fd,
                       struct gb_memory_identity *identity, struct gb_error *error)
{
    switch (segment->handle.kind) {
    case GB_HANDLE_MEMFD:
        return memfd_identify(segment, fd, identity, error);
    case GB_HANDLE_CUDA_FD:
    case GB_HANDLE_CUDA_IPC:
        break;
    }
    return refuse_cuda(segment, error);
}

int gb_import_map(const struct gb_segment_info *segment, int fd, struct gb_imported *imported,
                  struct gb_error *error)
{
    switch (segment->handle.kind) {
    case GB_HANDLE_MEMFD:
        return memfd_map(segment, fd, imported, error);
    case GB_HANDLE_CUDA_FD:
    case GB_HANDLE_CUDA_IPC:
        break;
    }
    return refuse_cuda(segment, error);
}

void gb_import_unmap(const struct gb_imported *imported)
{
    switch (imported->kind) {
    case GB_HANDLE_MEMFD:
        (void)munmap(imported->address, (size_t)imported->bytes);
        break;
    case GB_HANDLE_CUDA_FD:
    case GB_HANDLE_CUDA_IPC:
        break;
    }
}
