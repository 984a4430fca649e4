/*
 * Publishing a file: what the readers of its formats (put_npy.c, put_csv.c, put_raw.c,
 * put_safetensors.c) share with `gpubufctl put`.
 */
#ifndef GB_PUT_H
#define GB_PUT_H

#include <cjson/cJSON.h>

#include "cli.h"
#include "csv_table.h"
#include "file.h"
#include "parse.h"
#include "proto/dtype.h"

enum gb_put_kind { GB_PUT_AUTO, GB_PUT_BYTES, GB_PUT_ARRAY, GB_PUT_COLUMN, GB_PUT_TABLE };

struct gb_put_stage;

struct gb_put {
    struct gb_cli *cli;
    const char *name;
    struct gpubuf_create_options create;
    enum gb_put_kind kind;
    struct gb_input input;
    uint64_t most;   /* bytes of input whose length is not known; 0: it is known */
    char where[192]; /* the device with most room for it, and its capacity */
    struct gb_progress progress;
    /* The file's first bytes: read to tell its format, and given out again by gb_put_read. */
    unsigned char start[16];
    size_t start_length;
    /* Raw files only. */
    bool has_dtype, has_shape;
    struct gb_dtype dtype;
    unsigned ndim;
    uint64_t shape[GB_PARSE_NDIM];
    /* CSV files only; `encoding` and `types` also for JSON lines. */
    struct gb_csv_options csv;
    const char *encoding;        /* of a CSV file or JSON lines; NULL: UTF-8 */
    const char *types;           /* "zip=utf8,day=date32"; NULL: as found */
    struct gb_put_stage *stages; /* of an object on a GPU: what is to be copied there */
    /* The outcome. */
    struct gpubuf_object *object; /* created; the command seals it */
    int64_t *null_counts;         /* for the seal; or NULL */
    struct gb_error error;        /* what gb_put_failure tells */
};

/* Each creates put->object and fills it. 0, or a status of the command. For an .npy file of a dtype
   that only the Python package can publish it is GB_PUT_FOREIGN. */
#define GB_PUT_FOREIGN (-1)
int gb_put_npy(struct gb_put *put);
int gb_put_csv(struct gb_put *put);
int gb_put_jsonl(struct gb_put *put);
int gb_put_raw(struct gb_put *put);
int gb_put_safetensors(struct gb_put *put);
int gb_put_shards(struct gb_put *put); /* of an index: model.safetensors.index.json */

/* Has the Python package publish a file of this format. *names is a list of the names published, to
   be deleted with cJSON_Delete. 0, or a status of the command. */
int gb_put_python(struct gb_put *put, const char *format, const char *file, cJSON **names);

/* Refuses a file whose name says that it is of a format that gpubufctl does not read. 0, or a
   status; the failure has been told. */
int gb_put_check_name(const struct gb_put *put, const char *file);

/* Asks how much input of unknown length, or how much text, could ever be put: a pipe without end is
   not to fill this program's memory. 0, or a status; the failure has been told. */
int gb_put_bound(struct gb_put *put, bool text);

/* Takes input, `start` first, until `size` bytes are there or the file ends. 0 or a code, told in
   put->error. */
int gb_put_read(struct gb_put *put, void *buffer, uint64_t size, uint64_t *got);

/* Reads the next bytes of a regular file to byte `at` of the object's data, by the library. 0, or a
   status, also where the file ends before or is changed. */
int gb_put_stream(struct gb_put *put, uint64_t at, uint64_t bytes);

/* Tells put->error with the file's name in front; returns GB_STATUS_FAILED or what fits. */
int gb_put_failure(struct gb_put *put);

/* Creates the object. 0, or a status; the failure has been told. */
int gb_put_create(struct gb_put *put, const struct gpubuf_layout_spec *layout);

/* Creates an array of this shape, or a column for GB_PUT_COLUMN, and gives its memory unless `data`
   is NULL. */
int gb_put_create_array(struct gb_put *put, const struct gb_dtype *dtype, unsigned ndim,
                        const uint64_t *shape, void **data);

/* The memory of one of an object's buffers, to be filled before gb_put_finish. 0, or a status; the
   failure has been told. */
int gb_put_memory(struct gb_put *put, struct gpubuf_object *object, enum gpubuf_which which,
                  void **data);

/* Everything is filled: copies what is for a GPU to it. 0, or a status; the failure has been
   told. */
int gb_put_finish(struct gb_put *put);

/* Frees what the readers made; an object that is not sealed is taken back. */
void gb_put_end(struct gb_put *put);

/* Tells that the data end before `expected` bytes, after `got`, or with `more` that they go on
   after them. Returns a status. */
int gb_put_wrong_length(struct gb_put *put, uint64_t expected, uint64_t got, bool more);

#endif
