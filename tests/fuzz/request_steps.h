/*
 * Steps of the programs of fuzz_request.c: from templates, so that most of them are well-formed and
 * many have an effect where they stand.
 */
#ifndef GB_FUZZ_REQUEST_STEPS_H
#define GB_FUZZ_REQUEST_STEPS_H

#include <stdio.h>

#include "program.h"

/* `'`: a quotation mark, `#`: a small number, `@`: a name, `$`: a size, `!`: a time, `~`: a mode,
   `%`: a session, the same one throughout, `&`: it sends a piece. */
/* clang-format off */
#define SAY(method, params) "%{'jsonrpc':'2.0','id':#,'method':'" method "','params':{" params "}}"
#define BYTES "'layout':{'kind':'bytes','bytes':$}"
#define ARRAY                                                                                      \
    "'layout':{'kind':'array','dtype':'int8','shape':[64],"                                        \
    "'data':{'handle':0,'offset':0,'bytes':64}}"
#define TABLE                                                                                      \
    "'layout':{'kind':'table','length':4,'columns':["                                              \
    "{'name':'@','dtype':'int32','length':4,'mask':{}},"                                           \
    "{'name':'t','dtype':'utf8','length':4,'data':{'bytes':$}}]}"
#define SLOTS "'layout':{'kind':'array','dtype':'uint8','shape':[8,64]}"
#define BUNDLE "'layout':{'kind':'bundle','bytes':$,'manifest_bytes':#}"
#define REGISTER(fds, handles)                                                                     \
    "%{'jsonrpc':'2.0','id':#,'fds':" fds ",'method':'register','params':{'name':'@'," ARRAY       \
    ",'handles':[" handles "],'replace':true,'mode':'~','wait_ms':!}}"
#define MEMFD(i, device) "{'kind':'memfd','fd':" i ",'bytes':65536,'device':'" device "'}"
#define IPC "{'kind':'cuda_ipc','ipc':'" OCTETS_64 "','bytes':65536,'device':'GPU-f0'}"
#define OCTETS_32 "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
#define OCTETS_64 OCTETS_32 OCTETS_32 "=="
#define INSTANCE "00112233445566778899aabbccddeeff" /* by_hand.h */
#define RESUME(objects) "'protocol':1,'resume':{'instance':'" INSTANCE "','objects':[" objects "]}"
#define VERSION "{'name':'@','version':#}"

static const char *const templates[] = {
    SAY("hello", "'protocol':1,'client':'@'"),
    SAY("hello", RESUME(VERSION "," VERSION)),
    SAY("create", "'name':'@'," BYTES),
    SAY("create", "'name':'@'," BYTES ",'replace':true,'wait_ms':!,'evict':'drop'"),
    SAY("create", "'name':'@'," BYTES ",'wait_ms':!,'mode':'~'"),
    SAY("create", "'name':'@'," BYTES ",'share':'ipc'"),
    SAY("create", "'name':'@'," BYTES ",'mode':'~','evict':'keep','ttl_ms':!"),
    SAY("create", "'name':'@/@'," TABLE ",'mode':'~'"),
    SAY("create", "'name':'@'," BUNDLE ",'wait_ms':!") "\n" SAY("seal", "'lease':#,'release':true"),
    SAY("create", "'name':'@'," BYTES) "\n" SAY("seal", "'lease':#,'release':true"),
    SAY("create", "'name':'@'," BYTES ",'replace':true,'keep':#,'label':'@','note':'@\\u0022'"),
    SAY("create", "'name':'@'," BYTES ",'replace':true,'keep':8,'mode':'~','evict':'drop'"),
    SAY("seal", "'lease':#,'release':true,'keep':#,'label':'\\u00e4@'"),
    SAY("seal", "'lease':#"),
    SAY("seal", "'lease':#,'release':true"),
    SAY("seal", "'lease':#,'release':true,'null_counts':{'@':#}"),
    SAY("seal", "'lease':#,'ready':'" OCTETS_64 "'"),
    SAY("settle", "'objects':[" VERSION "]"),
    SAY("release", "'lease':#"),
    SAY("open", "'name':'@'"),
    SAY("open", "'name':'@','wait_ms':!,'segments':'all','brief':true"),
    SAY("open", "'name':'@','version':#"),
    SAY("open", "'name':'@','label':'@'"),
    SAY("open", "'name':'@','label':'@','wait_ms':!"),
    SAY("open", "'names':['@','@','@/@'],'wait_ms':!"),
    SAY("release", "'lease':#"),
    SAY("release", "'leases':[#,#,#]"),
    SAY("hello", "'protocol':1,'cache':true"),
    SAY("cache", "'leases':[#,#,#]"),
    SAY("cache", "'leases':[#],'used':true"),
    SAY("hello", "'protocol':1,'cache':true") "\n" SAY("open", "'name':'@'") "\n"
        SAY("cache", "'leases':[#,#,#]"),
    SAY("open", "'name':'@'") "\n" SAY("cache", "'leases':[#,#,#]") "\n"
        SAY("create", "'name':'@'," BYTES ",'replace':true,'wait_ms':!,'evict':'drop'"),
    "F%s\n" REGISTER("1", MEMFD("0", "host")),
    "F%s\n" REGISTER("1", MEMFD("0", "GPU-f0")),
    "F%ws\n" REGISTER("2", MEMFD("1", "host") "," MEMFD("0", "host")),
    "F%ws\n" REGISTER("2", MEMFD("1", "GPU-f0") "," MEMFD("0", "GPU-f0")),
    SAY("register", "'name':'@'," ARRAY ",'handles':[" IPC "]"),
    SAY("alias", "'name':'@','of':'@','slice':{'offset':#,'length':#}"),
    SAY("alias", "'name':'@','of':'@/@','columns':['@','t'],'replace':true"),
    SAY("alias", "'name':'@','of':'@','replace':true,'keep':#,'label':'@'"),
    SAY("delete", "'name':'@'"),
    SAY("delete", "'name':'@','version':#"),
    SAY("delete", "'names':['@','@']"),
    SAY("list", "'prefix':'@','limit':#"),
    SAY("list", "'limit':#,'placements':true"),
    SAY("list", "'versions':true,'placements':true"),
    SAY("stat", "'name':'@'"),
    SAY("stat", "'name':'@','label':'@'"),
    SAY("set", "'name':'@','pinned':true"),
    SAY("set", "'name':'@','pinned':false"),
    SAY("set", "'name':'@','ttl_ms':!"),
    SAY("set", "'name':'@','ttl_ms':0"),
    SAY("move", "'name':'@'"),
    SAY("move", "'name':'@','tier':'host'"),
    SAY("move", "'name':'@','tier':'disk'"),
    SAY("move", "'name':'@','tier':'device'"),
    SAY("move", "'name':'@','tier':'device','wait_ms':!"),
    SAY("stat", "'name':'@','why':true"),
    SAY("stat", "'name':'@','version':#,'why':true"),
    SAY("leases", ""),
    SAY("leases", "'name':'@'"),
    SAY("unmap", "'segments':[#,#]"),
    SAY("create", "'name':'@','live':true," SLOTS),
    SAY("open", "'name':'@','access':'write','exclusive':true"),
    SAY("join", "'lease':#"),
    SAY("join", "'lease':#,'hold':#,'lag':#,'since':#"),
    SAY("trim", ""),
    SAY("trim", "'device':'host'"),
    SAY("watch", ""),
    SAY("watch", "'prefix':'@','kinds':['sealed','evicted','spilled','withdrawn']"),
    SAY("watch", "'existing':false,'placements':true"),
    SAY("unwatch", "'watch':#"),
    SAY("provide", "'prefix':'@'"),
    SAY("provide", "'prefix':''"),
    SAY("provide", "'prefix':'@','end':true"),
    SAY("decline", "'request':#"),
    SAY("decline", "'request':#,'kind':'unavailable','message':'@'"),
    SAY("segments", "'cursor':#"),
    SAY("sessions", "'cursor':#"),
    SAY("stats", "'families':true"),
    SAY("stats", ""),
    SAY("describe", ""),
    "%{'jsonrpc':'2.0','method':'open','params':{'name':'@'}}",
    "&{'jsonrpc':'2.0','id':#,'method':'op\nX%", /* it ends in the middle of a line */
    "&{'jsonrpc':'2.0','id':#,'meth\nT30000",
    "F%s", "F%ws", "F%un", "F%rpkdzh", "F%gixqcyoe",
    "F%qc\n&{'jsonrpc':'2.0','id':#,'meth", /* held by half a line */
    "F%sqgc\n" REGISTER("4", MEMFD("0", "host") "," MEMFD("2", "host")),
    "X%", "H%", "Q%", "R%",
    "T!", "T!", "P1", "P0",
    "J0", "J1", "J1", "J9",
    "E#", "L",
    "Z0", "Z1", "Z2",
    "K0", "K0",
};
/* clang-format on */

#define ONE_OF(array, random) (array)[test_random_below(random, sizeof(array) / sizeof((array)[0]))]

static size_t fill_in(char *out, const char *template, struct test_random *random)
{
    static const char *const sizes[] = {"0",       "1",       "64",      "4096",
                                        "100000",  "300000",  "500000",  "900000",
                                        "2097152", "4194304", "16777216"};
    static const char *const times[] = {"0", "1", "250", "5000", "60000", "60000", "86400000"};
    static const char *const modes[] = {"0600", "0644", "0666", "0640", "0400"};
    unsigned peer = test_random_below(random, 4);
    size_t length = 0;

    for (; *template; template ++) {
        const char *text = *template == '$'   ? ONE_OF(sizes, random)
                           : *template == '!' ? ONE_OF(times, random)
                           : *template == '~' ? ONE_OF(modes, random)
                                              : NULL;

        if (text) {
            length += (size_t)sprintf(out + length, "%s", text);
            continue;
        }
        out[length++] = *template == '#'    ? (char)('0' + test_random_below(random, 10))
                        : *template == '@'  ? (char)('p' + test_random_below(random, 4))
                        : *template == '%'  ? (char)('0' + peer)
                        : *template == '&'  ? (char)('a' + peer)
                        : *template == '\'' ? '"'
                                            : *template;
    }
    out[length++] = '\n';
    return length;
}

static size_t make_step(char out[PROGRAM_STEP_BYTES], struct test_random *random)
{
    return fill_in(out, ONE_OF(templates, random), random);
}

static uint8_t piece_of(uint8_t kind)
{
    return kind >= '0' && kind <= '3' ? (uint8_t)(kind - '0' + 'a') : 0;
}

#endif
