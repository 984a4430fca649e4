/*
 * Steps of the programs of fuzz_reply.c: what a program calls, and answers that are mostly
 * well-formed.
 */
#ifndef GB_FUZZ_REPLY_STEPS_H
#define GB_FUZZ_REPLY_STEPS_H

#include <stdio.h>

#include "program.h"

/* `'`: a quotation mark, `#`: a small number, `@`: a name, `%`: a segment, the same one
   throughout. */
/* clang-format off */
#define SENT(fds, rest) ">{'jsonrpc':'2.0','id':$," fds rest "}"
#define ANSWER(result) SENT("", "'result':" result)
#define GRANT(fds, object, segments)                                                               \
    SENT(fds, "'result':{'lease':#,'object':" object ",'segments':[" segments "]}")
#define KEPT(object, segments)                                                                     \
    SENT(FDS("1"), "'result':{'lease':%,'slot':%,'object':" object ",'segments':[" segments "]}")
#define MANY(fds, objects, segments)                                                               \
    SENT(fds, "'result':{'objects':[" objects "],'segments':[" segments "]}")
#define TOLD(method, params) ">{'jsonrpc':'2.0','method':'" method "','params':{" params "}}"
#define FDS(count) "'fds':" count ","
#define OBJECT(layout) "{'name':'@','version':#,'device':'host','layout':" layout "}"
#define OPENED(layout) "{'name':'p','version':#,'device':'host','layout':" layout "}"
#define BUFFER(offset, bytes) "{'segment':%,'offset':" offset ",'bytes':" bytes "}"
#define SEGMENT(access, fd)                                                                        \
    "{'id':%,'device':'host','bytes':65536,'access':'" access "',"                                 \
    "'handle':{'kind':'memfd','fd':" fd "}}"
#define BYTES "{'kind':'bytes','bytes':100,'data':" BUFFER("256", "100") "}"
#define ARRAY                                                                                      \
    "{'kind':'array','dtype':'int32','shape':[4,5],'data':" BUFFER("0", "80")                      \
    ",'mask':" BUFFER("256", "64") "}"
#define BUNDLE                                                                                     \
    "{'kind':'bundle','bytes':356,'manifest_bytes':248,'data':" BUFFER("256", "356") "}"
#define COLUMN_X                                                                                   \
    "{'name':'x','dtype':'int32','length':3,'null_count':1,'data':" BUFFER("0", "12")              \
    ",'mask':" BUFFER("256", "64") ",'metadata':{'k':'v'}}"
#define COLUMN_S                                                                                   \
    "{'name':'s','dtype':'utf8','length':3,'offsets':" BUFFER("512", "16")                         \
    ",'data':" BUFFER("768", "9") "}"
#define COLUMN_D                                                                                   \
    "{'name':'d','dtype':'dictionary','length':3,'children':["                                     \
    "{'dtype':'int8','length':3,'data':" BUFFER("1024", "3") "},"                                  \
    "{'dtype':'float32','length':2,'data':" BUFFER("1280", "8") "}]}"
#define TABLE "{'kind':'table','length':3,'columns':[" COLUMN_X "," COLUMN_S "," COLUMN_D "]}"
#define INFO                                                                                       \
    "{'name':'@','version':#,'state':'sealed','tier':'host','device':'host','bytes':5,"            \
    "'mode':'0600','uid':0,'gid':0,'created_ms':1,'leases':0,'pinned':false,'ttl_ms':0}"
#define WELCOME(instance, more)                                                                    \
    ANSWER("{'protocol':1,'server':'x','instance':'" instance "','session':#,'devices':[]" more "}")
#define REFUSED(code, kind, more)                                                                  \
    SENT("", "'error':{'code':" code ",'message':'no','data':{'kind':'" kind "'" more "}}")

static const char *const answers[] = {
    "Fs\n" GRANT(FDS("1"), OBJECT(BYTES), SEGMENT("r", "0")),
    "Fs\n" GRANT(FDS("1"), OBJECT(ARRAY), SEGMENT("r", "0")),
    "Fs\n" GRANT(FDS("1"), OBJECT(TABLE), SEGMENT("r", "0")),
    "Fs\n" GRANT(FDS("1"), OBJECT(BYTES), SEGMENT("rw", "0")),
    "Fs\n" GRANT(FDS("1"), OBJECT(TABLE), SEGMENT("rw", "0")),
    "Fs\n" GRANT(FDS("1"), OBJECT(BUNDLE), SEGMENT("rw", "0")),
    "Fs\n" KEPT(OPENED(BYTES), SEGMENT("r", "0")),
    "Fs\n" KEPT(OPENED(TABLE), SEGMENT("r", "0")),
    "Fs\n" MANY(FDS("1"), "{'lease':%,'slot':%,'object':" OPENED(BYTES) "},"
                "{'lease':#,'slot':#,'object':" OBJECT(BYTES) "},"
                "{'lease':#,'slot':#,'object':" OBJECT(ARRAY) "}", SEGMENT("r", "0")),
    "Ft\n" GRANT(FDS("1"), OBJECT(BYTES), SEGMENT("r", "0")),
    "Fn\n" GRANT(FDS("1"), OBJECT(BYTES), SEGMENT("r", "0")),
    "Fu\n" GRANT(FDS("1"), OBJECT(BYTES), SEGMENT("r", "0")),
    "Fss\n" GRANT(FDS("2"), OBJECT(BYTES), SEGMENT("r", "0") "," SEGMENT("r", "1")),
    GRANT("", OBJECT(BYTES), ""),
    "Fs\n" MANY(FDS("1"), "{'lease':#,'object':" OBJECT(BYTES) "},"
                "{'error':{'code':-32001,'message':'no'}},"
                "{'lease':#,'object':" OBJECT(ARRAY) "}", SEGMENT("r", "0")),
    ANSWER("{'version':#}"),
    ANSWER("{}"),
    ANSWER("{'object':" INFO "}"),
    ANSWER("{'objects':[" INFO "," INFO "],'cursor':'p'}"),
    ANSWER("{'objects':[" INFO "]}"),
    ANSWER("{'watch':#}"),
    WELCOME("f0", ",'limits':{'names':3,'line_bytes':4096},'resumed':[]"),
    WELCOME("f0", ",'resumed':[#]"),
    WELCOME("f0", ",'resumed':[#,null]"),
    WELCOME("f1", ""),
    "Fpp\n" SENT(FDS("2"), "'result':{'protocol':1,'server':'x','instance':'f1','session':#,"
                 "'cache':{'fd':0,'slots':8,'pulse':1}}"),
    REFUSED("-32001", "not_found", ",'name':'@'"),
    REFUSED("-32008", "limit", ",'limit':'fds'"),
    REFUSED("-32010", "unsupported", ""),
    ">{'jsonrpc':'2.0','id':#,'result':{}}",
    TOLD("event", "'watch':#,'kind':'sealed','object':" INFO),
    TOLD("event", "'watch':#,'kind':'synced'"),
    TOLD("event", "'watch':#,'kind':'deleted','lost':#,'object':" INFO),
    TOLD("wanted", "'request':#,'prefix':'p','name':'@','uid':0,'gid':0"),
    TOLD("unwanted", "'request':#,'prefix':'p'"),
    TOLD("segments.retire", "'segments':[%,#]"),
    TOLD("leases.recall", "'leases':[%]"),
    TOLD("leases.recall", "'leases':[#,#,#,#]"),
    TOLD("shutdown", "'reason':'bye','resume':false"),
    TOLD("shutdown", "'reason':'bye','resume':true"),
    "Fss",
    "P%",
    "P#",
    "P0",
    "X",
    "H",
    "T100",
    "T3000",
};
/* clang-format on */

#define ONE_OF(array, random) (array)[test_random_below(random, sizeof(array) / sizeof((array)[0]))]

static size_t make_answer(char *out, struct test_random *random)
{
    char segment = (char)('1' + test_random_below(random, 3));
    const char *template = ONE_OF(answers, random);
    size_t length = 0;

    for (; *template; template ++)
        out[length++] = *template == '#'    ? (char)('0' + test_random_below(random, 7))
                        : *template == '@'  ? "pqrsu"[test_random_below(random, 5)]
                        : *template == '%'  ? segment
                        : *template == '\'' ? '"'
                                            : *template;
    out[length++] = '\n';
    return length;
}

static size_t make_step(char out[PROGRAM_STEP_BYTES], struct test_random *random)
{
    static const char calls[] = "ovmOMctnbaAsldpigkKwWPeNRTVEHLDBYSZqu..f..OORoRxoR";
    size_t length = 0;

    if (test_random_below(random, 2) == 0)
        length =
            (size_t)sprintf(out, "C%c%u\n", calls[test_random_below(random, sizeof(calls) - 1)],
                            test_random_below(random, 6));
    if (length == 0 || test_random_below(random, 2) == 0)
        length += make_answer(out + length, random);
    return length;
}

static uint8_t piece_of(uint8_t kind)
{
    return kind == '>' ? '|' : 0;
}

#endif
