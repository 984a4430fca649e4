#include "client/node/src/values.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct gb_addon *gb_arguments(napi_env env, napi_callback_info info, napi_value *values)
{
    size_t count = GB_ARGUMENTS_MAX;
    void *data = NULL;

    if (napi_get_cb_info(env, info, &count, values, NULL, &data) != napi_ok)
        return NULL;
    return data;
}

static bool type_error(napi_env env, const char *what, const char *expected)
{
    char text[160];

    (void)snprintf(text, sizeof(text), "%s is not %s", what, expected);
    (void)napi_throw_type_error(env, NULL, text);
    return false;
}

bool gb_read_number(napi_env env, napi_value value, const char *what, double *number)
{
    if (napi_get_value_double(env, value, number) != napi_ok)
        return type_error(env, what, "a number");
    return true;
}

bool gb_read_index(napi_env env, napi_value value, const char *what, uint64_t *number)
{
    double given;

    if (!gb_read_number(env, value, what, &given))
        return false;
    if (!(given >= 0 && given <= 9007199254740991.0) || floor(given) != given)
        return type_error(env, what, "a whole number from 0 to 2^53 - 1");
    *number = (uint64_t)given;
    return true;
}

bool gb_is_absent(napi_env env, napi_value value)
{
    napi_valuetype type;

    return !value || napi_typeof(env, value, &type) != napi_ok || type == napi_undefined ||
           type == napi_null;
}

bool gb_read_text(napi_env env, napi_value value, const char *what, char **text)
{
    *text = NULL;
    if (gb_is_absent(env, value))
        return true;
    size_t length;
    if (napi_get_value_string_utf8(env, value, NULL, 0, &length) != napi_ok)
        return type_error(env, what, "a string");
    char *copy = malloc(length + 1);
    if (!copy) {
        (void)gb_throw_memory(env);
        return false;
    }
    if (napi_get_value_string_utf8(env, value, copy, length + 1, &length) != napi_ok ||
        strlen(copy) != length) {
        free(copy);
        return type_error(env, what, "a string without NUL");
    }
    *text = copy;
    return true;
}

bool gb_read_flag(napi_env env, napi_value value)
{
    bool flag = false;

    return napi_get_value_bool(env, value, &flag) == napi_ok && flag;
}

bool gb_read_stream(napi_env env, napi_value value, void **stream)
{
    uint64_t handle = 0;
    bool lossless = true;

    *stream = NULL;
    if (gb_is_absent(env, value))
        return true;
    if (napi_get_value_bigint_uint64(env, value, &handle, &lossless) != napi_ok || !lossless) {
        (void)napi_throw_type_error(env, NULL, "the stream is not a handle of 64 bits");
        return false;
    }
    *stream = (void *)(uintptr_t)handle; /* NOLINT(performance-no-int-to-ptr): as CUDA has it */
    return true;
}

napi_value gb_member(napi_env env, napi_value object, const char *name)
{
    napi_value value = NULL;

    if (napi_get_named_property(env, object, name, &value) != napi_ok)
        return NULL;
    return value;
}

uint32_t gb_array_length(napi_env env, napi_value array)
{
    uint32_t length = 0;
    bool is_array = false;

    if (!array || napi_is_array(env, array, &is_array) != napi_ok || !is_array)
        return 0;
    (void)napi_get_array_length(env, array, &length);
    return length;
}

napi_value gb_number(napi_env env, double number)
{
    napi_value value = NULL;

    (void)napi_create_double(env, number, &value);
    return value;
}

napi_value gb_flag(napi_env env, bool flag)
{
    napi_value value = NULL;

    (void)napi_get_boolean(env, flag, &value);
    return value;
}

napi_value gb_text(napi_env env, const char *text)
{
    napi_value value = NULL;

    if (text)
        (void)napi_create_string_utf8(env, text, NAPI_AUTO_LENGTH, &value);
    else
        (void)napi_get_undefined(env, &value);
    return value;
}

napi_value gb_throw(napi_env env, int status, const char *message)
{
    napi_value error = NULL;

    if (napi_create_error(env, NULL, gb_text(env, message), &error) == napi_ok) {
        (void)napi_set_named_property(env, error, "status", gb_number(env, status));
        (void)napi_throw(env, error);
    }
    return NULL;
}

napi_value gb_throw_memory(napi_env env)
{
    return gb_throw(env, GPUBUF_E_NO_MEMORY, "out of memory");
}

void gb_set_number(napi_env env, napi_value object, const char *name, double number)
{
    (void)napi_set_named_property(env, object, name, gb_number(env, number));
}

void gb_set_text(napi_env env, napi_value object, const char *name, const char *text)
{
    (void)napi_set_named_property(env, object, name, gb_text(env, text));
}
