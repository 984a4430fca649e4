#include "client/gateway/http/access.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

bool gb_gateway_http_is(struct gb_gateway_http_text text, const char *word)
{
    return text.text && text.length == strlen(word) && memcmp(text.text, word, text.length) == 0;
}

bool gb_gateway_http_is_nocase(struct gb_gateway_http_text text, const char *word)
{
    return text.text && text.length == strlen(word) &&
           strncasecmp(text.text, word, text.length) == 0;
}

/* ---- queries and cookies ---- */

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static long decode(struct gb_gateway_http_text value, char *out, size_t size)
{
    size_t length = 0;

    for (size_t i = 0; i < value.length; i++) {
        int c = (unsigned char)value.text[i];

        if (c == '+') {
            c = ' ';
        } else if (c == '%') {
            int high = i + 2 < value.length ? hex_digit(value.text[i + 1]) : -1;
            int low = high >= 0 ? hex_digit(value.text[i + 2]) : -1;

            if (low < 0)
                return -2;
            c = high * 16 + low;
            i += 2;
        }
        if (c == 0 || length + 1 >= size)
            return -2;
        out[length++] = (char)c;
    }
    out[length] = '\0';
    return (long)length;
}

long gb_gateway_http_parameter(struct gb_gateway_http_text query, const char *name, char *out,
                               size_t size)
{
    const char *at = query.text, *end = at ? at + query.length : NULL;
    size_t name_length = strlen(name);

    while (at < end) {
        const char *stop = memchr(at, '&', (size_t)(end - at));

        if (!stop)
            stop = end;
        if ((size_t)(stop - at) > name_length && at[name_length] == '=' &&
            memcmp(at, name, name_length) == 0) {
            at += name_length + 1;
            return decode((struct gb_gateway_http_text){at, (size_t)(stop - at)}, out, size);
        }
        at = stop < end ? stop + 1 : end;
    }
    return -1;
}

struct gb_gateway_http_text gb_gateway_http_cookie(struct gb_gateway_http_text header,
                                                   const char *name)
{
    const char *at = header.text, *end = at ? at + header.length : NULL;
    size_t name_length = strlen(name);

    while (at < end) {
        const char *stop = memchr(at, ';', (size_t)(end - at));

        if (!stop)
            stop = end;
        while (at < stop && *at == ' ')
            at++;
        if ((size_t)(stop - at) > name_length && at[name_length] == '=' &&
            memcmp(at, name, name_length) == 0) {
            at += name_length + 1;
            return (struct gb_gateway_http_text){at, (size_t)(stop - at)};
        }
        at = stop < end ? stop + 1 : end;
    }
    return (struct gb_gateway_http_text){0};
}

/* ---- lists ---- */

/* The next item of a list that commas separate, without the spaces around it. */
static struct gb_gateway_http_text next_item(struct gb_gateway_http_text *list)
{
    const char *stop = memchr(list->text, ',', list->length);
    struct gb_gateway_http_text item = {list->text,
                                        stop ? (size_t)(stop - list->text) : list->length};
    size_t passed = item.length + (stop != NULL);

    list->text += passed;
    list->length -= passed;
    while (item.length > 0 && strchr(" \t", *item.text))
        item = (struct gb_gateway_http_text){item.text + 1, item.length - 1};
    while (item.length > 0 && strchr(" \t", item.text[item.length - 1]))
        item.length--;
    return item;
}

/* An entity tag without the mark of a weak one. */
static struct gb_gateway_http_text opaque(struct gb_gateway_http_text tag)
{
    bool weak = tag.length > 2 && memcmp(tag.text, "W/", 2) == 0;

    return weak ? (struct gb_gateway_http_text){tag.text + 2, tag.length - 2} : tag;
}

bool gb_gateway_http_names_tag(struct gb_gateway_http_text header, const char *tag)
{
    struct gb_gateway_http_text own = opaque((struct gb_gateway_http_text){tag, strlen(tag)});

    while (header.text && header.length > 0) {
        struct gb_gateway_http_text item = next_item(&header);
        bool any = gb_gateway_http_is(item, "*");

        item = opaque(item);
        if (any || (item.length == own.length && memcmp(item.text, own.text, own.length) == 0))
            return true;
    }
    return false;
}

/* Whether an item such as "gzip;q=0" has the weight zero. */
static bool is_refused(const char *weight, size_t length)
{
    const char *equals = memchr(weight, '=', length);

    if (!equals)
        return false;
    for (const char *c = equals + 1; c < weight + length; c++)
        if (*c >= '1' && *c <= '9')
            return false;
    return true;
}

bool gb_gateway_http_accepts(struct gb_gateway_http_text header, const char *coding)
{
    while (header.text && header.length > 0) {
        struct gb_gateway_http_text item = next_item(&header), name = item;
        const char *weight = memchr(item.text, ';', item.length);

        if (weight)
            name.length = (size_t)(weight - item.text);
        while (name.length > 0 && name.text[name.length - 1] == ' ')
            name.length--;
        if (gb_gateway_http_is_nocase(name, coding))
            return !weight || !is_refused(weight, item.length - (size_t)(weight - item.text));
    }
    return false;
}

/* ---- who asks ---- */

/* Splits "name:port" or "[::1]:port". Without a port *port is `fallback`. */
static bool split_host(struct gb_gateway_http_text host, unsigned fallback,
                       struct gb_gateway_http_text *name, unsigned *port)
{
    const char *end = host.text + host.length, *at = host.text;
    const char *colon;

    if (host.length == 0)
        return false;
    if (*at == '[') {
        const char *close = memchr(at, ']', host.length);

        if (!close)
            return false;
        *name = (struct gb_gateway_http_text){at + 1, (size_t)(close - at) - 1};
        at = close + 1;
        if (at < end && *at != ':')
            return false;
        colon = at;
    } else {
        colon = memchr(at, ':', host.length);
        if (!colon)
            colon = end;
        *name = (struct gb_gateway_http_text){at, (size_t)(colon - at)};
    }
    *port = fallback;
    if (colon == end)
        return true;
    *port = 0;
    if (end - colon < 2 || end - colon > 6)
        return false;
    for (at = colon + 1; at < end; at++) {
        if (*at < '0' || *at > '9')
            return false;
        *port = *port * 10 + (unsigned)(*at - '0');
    }
    return true;
}

static bool is_address(struct gb_gateway_http_text name)
{
    char text[INET6_ADDRSTRLEN];
    unsigned char address[sizeof(struct in6_addr)];

    if (name.length >= sizeof(text) || memchr(name.text, '\0', name.length))
        return false;
    memcpy(text, name.text, name.length);
    text[name.length] = '\0';
    return inet_pton(AF_INET, text, address) == 1 || inet_pton(AF_INET6, text, address) == 1;
}

bool gb_gateway_http_host_known(struct gb_gateway_http_text host, unsigned port,
                                const char *const *names)
{
    struct gb_gateway_http_text name;
    unsigned given;

    if (!host.text || !split_host(host, 80, &name, &given))
        return false;
    if (*host.text == '[')
        return given == port && is_address(name);
    /* A name that the operator gave may stand for a proxy with a port of its own. */
    for (; names && *names; names++)
        if (gb_gateway_http_is_nocase(name, *names))
            return true;
    return given == port && (gb_gateway_http_is_nocase(name, "localhost") || is_address(name));
}

bool gb_gateway_http_origin_same(struct gb_gateway_http_text origin,
                                 struct gb_gateway_http_text host)
{
    static const char *const schemes[] = {"http://", "https://"};

    for (unsigned i = 0; i < 2; i++) {
        size_t length = strlen(schemes[i]);

        if (origin.length > length && strncasecmp(origin.text, schemes[i], length) == 0 &&
            origin.length - length == host.length && host.text &&
            strncasecmp(origin.text + length, host.text, host.length) == 0)
            return true;
    }
    return false;
}

bool gb_gateway_http_secret_same(struct gb_gateway_http_text given, const char *secret,
                                 size_t length)
{
    unsigned char difference = given.length != length;

    for (size_t i = 0; given.text && i < given.length; i++)
        difference |= (unsigned char)(given.text[i] ^ (length ? secret[i % length] : 1));
    return given.text && length > 0 && difference == 0;
}
