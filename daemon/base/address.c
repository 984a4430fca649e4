#include "daemon/base/address.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

bool gb_address_split(const char *text, char *host, size_t size, unsigned *port)
{
    const char *colon = strrchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : 0;
    char *end;
    unsigned long number;

    if (length == 0 || !isdigit((unsigned char)colon[1]))
        return false;
    number = strtoul(colon + 1, &end, 10);
    if (*end || number > 65535)
        return false;
    if (text[0] == '[' && text[length - 1] == ']') {
        text++;
        length -= 2;
    }
    if (length == 0 || length >= size)
        return false;
    memcpy(host, text, length);
    host[length] = '\0';
    *port = (unsigned)number;
    return true;
}
