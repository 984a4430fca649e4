/* Addresses of IP as people write them. */
#ifndef GB_ADDRESS_H
#define GB_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>

/* Splits "127.0.0.1:9464", "[::1]:9464", "localhost:9464". False if it is none of these. */
bool gb_address_split(const char *text, char *host, size_t size, unsigned *port);

#endif
