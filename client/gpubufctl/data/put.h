/*
 * Publishing a file: what the readers of its formats (put_csv.c, put_raw.c, put_safetensors.c)
 * share with `gpubufctl put`. Whatever fails ends the program (end.h), and the daemon takes back an
 * object that is not sealed.
 */
#ifndef GB_PUT_H
#define GB_PUT_H

#include <cjson/cJSON.h>

#include "client/gpubufctl/cli/cli.h"
#include "client/gpubufctl/cli/parse.h"
#include "client/gpubufctl/data/file.h"
#include "proto/layout/dtype.h"

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
    char delimiter;              /* CSV files only; 0: a comma */
    struct gb_put_stage *stages; /* of an object on a GPU: what is to be copied there */
    /* The outcome. */
    struct gpubuf_object *object; /* created; the command seals it */
    int64_t *null_counts;         /* for the seal; or NULL */
};

/* Each creates put->object and fills it. */
void gb_put_csv(struct gb_put *put);
void gb_put_raw(struct gb_put *put);
void gb_put_safetensors(struct gb_put *put);
void gb_put_shards(struct gb_put *put); /* of an index: model.safetensors.index.json */

/* Has the Python package publish a file of this format. The names published, to be deleted with
   cJSON_Delete. */
cJSON *gb_put_python(struct gb_put *put, const char *format, const char *file);

/* Refuses a file whose name says that it is of a format that gpubufctl does not read. */
void gb_put_check_name(const struct gb_put *put, const char *file);

/* Asks how much input of unknown length, or how much text, could ever be put: a pipe without end is
   not to fill this program's memory. */
void gb_put_bound(struct gb_put *put, bool text);

/* Takes input, `start` first, until `size` bytes are there or the file ends; returns how many. */
uint64_t gb_put_read(struct gb_put *put, void *buffer, uint64_t size);

/* Reads the next bytes of a regular file to byte `at` of the object's data, by the library. It
   refuses a file that ends before, or is changed. */
void gb_put_stream(struct gb_put *put, uint64_t at, uint64_t bytes);

/* Creates the object. */
void gb_put_create(struct gb_put *put, const struct gpubuf_layout_spec *layout);
/* Creates an array of this shape, or a column for GB_PUT_COLUMN. */
void gb_put_create_array(struct gb_put *put, const struct gb_dtype *dtype, unsigned ndim,
                         const uint64_t *shape);

/* The memory of one of an object's buffers, to be filled before gb_put_finish; NULL: it has
   none. */
void *gb_put_memory(struct gb_put *put, struct gpubuf_object *object, enum gpubuf_which which);

/* Everything is filled: copies what is for a GPU to it. */
void gb_put_finish(struct gb_put *put);

/* Frees what the readers made. */
void gb_put_end(struct gb_put *put);

/* Refuses data that end before `expected` bytes, after `got`, or with `more` go on after them. */
void gb_put_check_length(const struct gb_put *put, uint64_t expected, uint64_t got, bool more);

#endif
