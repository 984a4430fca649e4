#include "daemon/observe/http_request.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

bool gb_http_is(struct gb_http_text text, const char *word)
{
    return text.text && text.length == strlen(word) && memcmp(text.text, word, text.length) == 0;
}

bool gb_http_is_nocase(struct gb_http_text text, const char *word)
{
    return text.text && text.length == strlen(word) &&
           strncasecmp(text.text, word, text.length) == 0;
}

/* ---- the head ---- */

/* RFC 9110's token. */
static bool is_token(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

/* The next line without its CR LF; false where there is none, or where one is bare. */
static bool next_line(const char **at, const char *end, struct gb_http_text *line)
{
    const char *newline = memchr(*at, '\n', (size_t)(end - *at));

    if (!newline || newline == *at || newline[-1] != '\r')
        return false;
    *line = (struct gb_http_text){*at, (size_t)(newline - *at) - 1};
    *at = newline + 1;
    return true;
}

static enum gb_http_method method_of(struct gb_http_text word)
{
    return gb_http_is(word, "GET")    ? GB_HTTP_GET
           : gb_http_is(word, "HEAD") ? GB_HTTP_HEAD
           : gb_http_is(word, "POST") ? GB_HTTP_POST
                                      : GB_HTTP_OTHER;
}

/* "GET /path?query HTTP/1.1"; 0, or minus a status. */
static int read_request_line(struct gb_http_text line, struct gb_http_request *request)
{
    const char *end = line.text + line.length, *word = line.text, *target, *version, *mark;

    while (word < end && is_token(*word))
        word++;
    if (word == line.text || word == end || *word != ' ')
        return -400;
    request->method = method_of((struct gb_http_text){line.text, (size_t)(word - line.text)});
    target = word + 1;
    for (version = target; version<end && * version> ' ' && *version < 0x7f;)
        version++;
    if (version == target || *target != '/' || version == end || *version != ' ')
        return -400;
    mark = memchr(target, '?', (size_t)(version - target));
    request->path.text = target;
    request->path.length = (size_t)((mark ? mark : version) - target);
    if (mark)
        request->query = (struct gb_http_text){mark + 1, (size_t)(version - mark) - 1};
    version++;
    if (end - version != 8 || memcmp(version, "HTTP/", 5) != 0)
        return -400;
    request->http_1_0 = memcmp(version + 5, "1.0", 3) == 0;
    if (!request->http_1_0 && memcmp(version + 5, "1.1", 3) != 0)
        return -505;
    request->keep_alive = !request->http_1_0;
    return 0;
}

/* Whether a list such as "keep-alive, Upgrade" has the word. */
static bool list_has(struct gb_http_text list, const char *word)
{
    const char *at = list.text, *end = list.text + list.length;

    while (at < end) {
        const char *stop = memchr(at, ',', (size_t)(end - at));
        struct gb_http_text item;

        if (!stop)
            stop = end;
        while (at < stop && (*at == ' ' || *at == '\t'))
            at++;
        item = (struct gb_http_text){at, (size_t)(stop - at)};
        while (item.length > 0 &&
               (item.text[item.length - 1] == ' ' || item.text[item.length - 1] == '\t'))
            item.length--;
        if (gb_http_is_nocase(item, word))
            return true;
        at = stop < end ? stop + 1 : end;
    }
    return false;
}

static int read_content_length(struct gb_http_text value, uint64_t *length)
{
    *length = 0;
    if (value.length == 0 || value.length > 15)
        return -400;
    for (size_t i = 0; i < value.length; i++) {
        if (value.text[i] < '0' || value.text[i] > '9')
            return -400;
        *length = *length * 10 + (uint64_t)(value.text[i] - '0');
    }
    return 0;
}

/* What the headers said, until they are all there. */
struct headers {
    struct gb_http_text connection, upgrade, content_length, transfer_encoding;
};

static int note_header(struct gb_http_text name, struct gb_http_text value,
                       struct gb_http_request *request, struct headers *headers)
{
    const struct {
        const char *name;
        struct gb_http_text *value;
    } known[] = {
        {"host", &request->host},
        {"origin", &request->origin},
        {"authorization", &request->authorization},
        {"cookie", &request->cookie},
        {"if-none-match", &request->if_none_match},
        {"content-type", &request->content_type},
        {"sec-websocket-key", &request->websocket_key},
        {"sec-websocket-version", &request->websocket_version},
        {"sec-websocket-protocol", &request->websocket_protocol},
        {"connection", &headers->connection},
        {"upgrade", &headers->upgrade},
        {"content-length", &headers->content_length},
        {"transfer-encoding", &headers->transfer_encoding},
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (gb_http_is_nocase(name, known[i].name)) {
            if (known[i].value->text)
                return -400; /* twice: whoever stands between may have read the other one */
            *known[i].value = value;
        }
    return 0;
}

static int read_header(struct gb_http_text line, struct gb_http_request *request,
                       struct headers *headers)
{
    const char *at = line.text, *end = line.text + line.length;
    struct gb_http_text name = {at, 0}, value;

    while (at < end && is_token(*at))
        at++;
    name.length = (size_t)(at - name.text);
    if (name.length == 0 || at == end || *at != ':')
        return -400;
    for (at++; at < end && (*at == ' ' || *at == '\t');)
        at++;
    while (end > at && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    value = (struct gb_http_text){at, (size_t)(end - at)};
    for (; at < end; at++)
        if (((unsigned char)*at < ' ' && *at != '\t') || *at == 0x7f)
            return -400;
    return note_header(name, value, request, headers);
}

static int conclude(struct gb_http_request *request, const struct headers *headers)
{
    if (headers->transfer_encoding.text)
        return -501;
    if (!request->host.text && !request->http_1_0)
        return -400;
    if (headers->content_length.text &&
        read_content_length(headers->content_length, &request->content_length) < 0)
        return -400;
    if (headers->connection.text) {
        if (list_has(headers->connection, "close"))
            request->keep_alive = false;
        request->upgrade = list_has(headers->connection, "upgrade") &&
                           gb_http_is_nocase(headers->upgrade, "websocket");
    }
    return 0;
}

int gb_http_request_read(const char *text, size_t length, struct gb_http_request *request)
{
    static const char blank[] = "\r\n\r\n";
    const char *stop = memmem(text, length, blank, 4), *at = text;
    struct headers headers = {0};
    struct gb_http_text line;
    unsigned count = 0;
    int r;

    memset(request, 0, sizeof(*request));
    if (!stop)
        return length >= GB_HTTP_HEAD_BYTES ? -431 : 0;
    stop += 4;
    if (stop - text > GB_HTTP_HEAD_BYTES)
        return -431;
    if (!next_line(&at, stop, &line))
        return -400;
    r = read_request_line(line, request);
    while (r == 0) {
        if (!next_line(&at, stop, &line))
            return -400;
        if (line.length == 0)
            break;
        if (++count > GB_HTTP_HEADERS)
            return -431;
        r = read_header(line, request, &headers);
    }
    if (r == 0)
        r = conclude(request, &headers);
    return r < 0 ? r : (int)(at - text);
}

/* ---- queries and cookies ---- */

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static long decode(struct gb_http_text value, char *out, size_t size)
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

long gb_http_parameter(struct gb_http_text query, const char *name, char *out, size_t size)
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
            return decode((struct gb_http_text){at, (size_t)(stop - at)}, out, size);
        }
        at = stop < end ? stop + 1 : end;
    }
    return -1;
}

struct gb_http_text gb_http_cookie(struct gb_http_text header, const char *name)
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
            return (struct gb_http_text){at, (size_t)(stop - at)};
        }
        at = stop < end ? stop + 1 : end;
    }
    return (struct gb_http_text){0};
}

/* ---- who asks ---- */

/* Splits "name:port", "[::1]:port"; the port is `fallback` where there is none. */
static bool split_host(struct gb_http_text host, unsigned fallback, struct gb_http_text *name,
                       unsigned *port)
{
    const char *end = host.text + host.length, *at = host.text;
    const char *colon;

    if (host.length == 0)
        return false;
    if (*at == '[') {
        const char *close = memchr(at, ']', host.length);

        if (!close)
            return false;
        *name = (struct gb_http_text){at + 1, (size_t)(close - at) - 1};
        at = close + 1;
        if (at < end && *at != ':')
            return false;
        colon = at;
    } else {
        colon = memchr(at, ':', host.length);
        if (!colon)
            colon = end;
        *name = (struct gb_http_text){at, (size_t)(colon - at)};
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

static bool is_address(struct gb_http_text name)
{
    char text[INET6_ADDRSTRLEN];
    unsigned char address[sizeof(struct in6_addr)];

    if (name.length >= sizeof(text) || memchr(name.text, '\0', name.length))
        return false;
    memcpy(text, name.text, name.length);
    text[name.length] = '\0';
    return inet_pton(AF_INET, text, address) == 1 || inet_pton(AF_INET6, text, address) == 1;
}

bool gb_http_host_known(struct gb_http_text host, unsigned port, const char *const *names)
{
    struct gb_http_text name;
    unsigned given;

    if (!host.text || !split_host(host, 80, &name, &given))
        return false;
    if (*host.text == '[')
        return given == port && is_address(name);
    /* A name that the operator gave may stand for a proxy with a port of its own. */
    for (; names && *names; names++)
        if (gb_http_is_nocase(name, *names))
            return true;
    return given == port && (gb_http_is_nocase(name, "localhost") || is_address(name));
}

bool gb_http_origin_same(struct gb_http_text origin, struct gb_http_text host)
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

bool gb_http_secret_same(struct gb_http_text given, const char *secret, size_t length)
{
    unsigned char difference = given.length != length;

    for (size_t i = 0; given.text && i < given.length; i++)
        difference |= (unsigned char)(given.text[i] ^ (length ? secret[i % length] : 1));
    return given.text && length > 0 && difference == 0;
}
