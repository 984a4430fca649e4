#include "client/lib/objects/create_options.h"

#include <string.h>

#include "client/lib/wire/report.h"

int gb_check_title(const struct gpubuf_client *client, const char *label, unsigned keep)
{
    if (label && (strlen(label) > GB_LIMIT(label_bytes) || !gb_utf8_valid(label, strlen(label))))
        return gb_report_text(client, GPUBUF_E_INVALID,
                              "options.label: expected at most %d bytes of UTF-8",
                              (int)GB_LIMIT(label_bytes));
    if (keep > GB_LIMIT(keep))
        return gb_report_text(client, GPUBUF_E_INVALID, "options.keep is not from 0 to %d",
                              (int)GB_LIMIT(keep));
    return 0;
}

void gb_write_title(struct gb_writer *writer, const char *label, int keep)
{
    if (label) {
        GB_WRITE_LITERAL(writer, ",\"label\":");
        gb_write_cstring(writer, label);
    }
    if (keep >= 0)
        gb_write_format(writer, ",\"keep\":%d", keep);
}

void gb_write_texts(struct gb_writer *writer, const char *key, const char *const *texts)
{
    if (!texts)
        return;
    gb_write_text(writer, key);
    gb_write_char(writer, '[');
    for (size_t i = 0; texts[i]; i++) {
        if (i)
            gb_write_char(writer, ',');
        gb_write_cstring(writer, texts[i]);
    }
    gb_write_char(writer, ']');
}

int gb_read_create_options(const struct gpubuf_client *client,
                           const struct gpubuf_create_options *given,
                           struct gpubuf_create_options *options)
{
    int r = gb_read_options(client, given, options, sizeof(*options));

    if (r < 0 || !given)
        return r;
    static const char *const names[] = {"device", "share", "note"};
    const char *const texts[] = {options->device, options->share, options->note};
    for (size_t i = 0; i < 3; i++) {
        if (texts[i] && !gb_utf8_valid(texts[i], strlen(texts[i])))
            return gb_report_text(client, GPUBUF_E_INVALID, "options.%s is not UTF-8", names[i]);
    }
    if (options->mode > 0777)
        return gb_report_text(client, GPUBUF_E_INVALID, "options.mode 0%o is not from 0 to 0777",
                              options->mode);
    if ((unsigned)options->scope > GPUBUF_SCOPE_CLUSTER)
        return gb_report_text(client, GPUBUF_E_INVALID, "options.scope %d is none",
                              (int)options->scope);
    if ((unsigned)options->evict > GPUBUF_EVICT_KEEP)
        return gb_report_text(client, GPUBUF_E_INVALID, "options.evict %d is none",
                              (int)options->evict);
    if (options->ttl_ms < 0 || options->ttl_ms > (int64_t)GB_LIMIT(integer))
        return gb_report_text(client, GPUBUF_E_INVALID, "options.ttl_ms is not from 0 to 2^52 - 1");
    if (options->wait_ms < 0 || options->wait_ms > GB_LIMIT(wait_ms))
        return gb_report_text(client, GPUBUF_E_INVALID, "options.wait_ms is not from 0 to %d",
                              (int)GB_LIMIT(wait_ms));
    return gb_check_title(client, options->label, options->keep);
}

void gb_write_create_options(struct gb_writer *writer, const struct gpubuf_create_options *options)
{
    static const char *const evict[] = {NULL, "spill", "drop", "keep"};
    if (options->device) {
        GB_WRITE_LITERAL(writer, ",\"device\":");
        gb_write_cstring(writer, options->device);
    }
    if (options->share) {
        GB_WRITE_LITERAL(writer, ",\"share\":");
        gb_write_cstring(writer, options->share);
    }
    if (options->mode)
        gb_write_format(writer, ",\"mode\":\"0%o\"", options->mode);
    if (options->replace)
        GB_WRITE_LITERAL(writer, ",\"replace\":true");
    if (options->ttl_ms) {
        GB_WRITE_LITERAL(writer, ",\"ttl_ms\":");
        gb_write_int(writer, options->ttl_ms);
    }
    if (options->evict != GPUBUF_EVICT_DEFAULT)
        gb_write_format(writer, ",\"evict\":\"%s\"", evict[options->evict]);
    if (options->final)
        GB_WRITE_LITERAL(writer, ",\"final\":true");
    if (options->own)
        GB_WRITE_LITERAL(writer, ",\"own\":true");
    if (options->live)
        GB_WRITE_LITERAL(writer, ",\"live\":true");
    gb_write_title(writer, options->label, options->keep ? (int)options->keep : -1);
    if (options->scope == GPUBUF_SCOPE_CLUSTER)
        GB_WRITE_LITERAL(writer, ",\"scope\":\"cluster\"");
    if (options->note) {
        GB_WRITE_LITERAL(writer, ",\"note\":");
        gb_write_cstring(writer, options->note);
    }
    if (options->wait_ms) {
        GB_WRITE_LITERAL(writer, ",\"wait_ms\":");
        gb_write_int(writer, options->wait_ms);
    }
}
