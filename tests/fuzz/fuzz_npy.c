/* Any bytes as an .npy header: refused with a sentence, or written and read back the same. */
#include <stdlib.h>
#include <string.h>

#include "client/gpubufctl/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gb_error error = {0};
    struct gb_npy npy, again;
    char header[GB_NPY_WRITE_MAX];
    size_t length;

    if (gb_npy_read(data, size, &npy, &error) != 0) {
        bool told = error.code == GPUBUF_E_INVALID || error.code == GPUBUF_E_UNSUPPORTED;
        if (!told || !error.message[0])
            abort();
        return 0;
    }
    if (npy.header_bytes > size || (npy.count > 0 && npy.data_bytes / npy.count != npy.item_bytes))
        abort();
    length = gb_npy_write(&npy.dtype, npy.shape, npy.ndim, header);
    if (length == 0 || gb_npy_read(header, length, &again, &error) != 0 || again.ndim != npy.ndim ||
        again.data_bytes != npy.data_bytes ||
        memcmp(again.shape, npy.shape, npy.ndim * sizeof(npy.shape[0])) != 0)
        abort();
    return 0;
}
