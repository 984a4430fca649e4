/* Reading values of JavaScript, making values for it, throwing. In the environment's thread. */
#ifndef GB_NODE_VALUES_H
#define GB_NODE_VALUES_H

#include "client/node/src/addon.h"
#include <stdbool.h>
#include <stdint.h>

#define GB_ARGUMENTS_MAX 9

/* The call's arguments, padded with undefined, and the addon. */
struct gb_addon *gb_arguments(napi_env env, napi_callback_info info, napi_value *values);

/* False after throwing a TypeError that names `what`. */
bool gb_read_number(napi_env env, napi_value value, const char *what, double *number);
bool gb_read_index(napi_env env, napi_value value, const char *what, uint64_t *number);
/* A copy of a string, for free(); NULL, and true, for undefined and null. A string with a NUL is a
   failure. */
bool gb_read_text(napi_env env, napi_value value, const char *what, char **text);
bool gb_read_flag(napi_env env, napi_value value);
bool gb_is_absent(napi_env env, napi_value value);
/* A CUDA stream's handle, a bigint; NULL for undefined. False after throwing. */
bool gb_read_stream(napi_env env, napi_value value, void **stream);
napi_value gb_member(napi_env env, napi_value object, const char *name);
uint32_t gb_array_length(napi_env env, napi_value array);

napi_value gb_number(napi_env env, double number);
napi_value gb_flag(napi_env env, bool flag);
napi_value gb_text(napi_env env, const char *text);

/* Throws an Error for a failed call of the library, with `status`, which lib/ translates. */
napi_value gb_throw(napi_env env, int status, const char *message);
napi_value gb_throw_memory(napi_env env);

/* Sets a property; after a failure it is missing. */
void gb_set_number(napi_env env, napi_value object, const char *name, double number);
void gb_set_text(napi_env env, napi_value object, const char *name, const char *text);

#endif
