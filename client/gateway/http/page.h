/* The files of the page, which are part of the program. */
#ifndef GB_GATEWAY_PAGE_H
#define GB_GATEWAY_PAGE_H

#include <stddef.h>

/* The file at a path of the page: made from client/gateway/page by build.mk. */
struct gb_gateway_page_file {
    const char *path, *type, *etag;
    const unsigned char *data;
    size_t length;
};
extern const struct gb_gateway_page_file gb_gateway_page_files[];
extern const size_t gb_gateway_page_file_count;

#endif
