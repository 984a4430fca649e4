#include "client/python/src/view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/python/src/dlpack.h"
#include "client/python/src/object.h"
#include "proto/layout/dtype.h"

PyTypeObject *view_type;
static PyTypeObject *view_class; /* the subclass to make; NULL: none */

/* ---- the life of a View ---- */

static struct view *view_new(void)
{
    return type_new(view_class ? view_class : view_type);
}

static void view_dealloc(PyObject *object)
{
    struct view *self = (struct view *)object;

    gpubuf_release(self->object);
    link_put(self->link);
    if (self->buffer.obj)
        PyBuffer_Release(&self->buffer);
    if (self->tensor && self->versioned) {
        struct dl_versioned *tensor = self->tensor;
        if (tensor->deleter)
            tensor->deleter(tensor);
    } else if (self->tensor) {
        struct dl_managed *tensor = self->tensor;
        if (tensor->deleter)
            tensor->deleter(tensor);
    }
    type_free(object);
}

static void set_dtype(struct view *view, const char *dtype)
{
    (void)memcpy(view->dtype, dtype, strnlen(dtype, sizeof(view->dtype) - 1));
    if (view->element.format == 'F' || view->element.format == 'D')
        (void)memcpy(view->format, view->element.format == 'F' ? "Zf" : "Zd", 2);
    else if (view->element.format)
        view->format[0] = view->element.format;
    else
        (void)snprintf(view->format, sizeof(view->format), "%zds", view->itemsize);
}

static void set_c_order(struct view *view)
{
    Py_ssize_t stride = view->itemsize;

    for (int i = view->ndim; i-- > 0;) {
        view->strides[i] = stride;
        stride *= view->shape[i];
    }
}

static Py_ssize_t count_of(const struct view *view)
{
    Py_ssize_t count = 1;

    for (int i = 0; i < view->ndim; i++)
        count *= view->shape[i];
    return count;
}

static bool is_c_order(const struct view *view)
{
    Py_ssize_t stride = view->itemsize;

    for (int i = view->ndim; i-- > 0;) {
        if (view->shape[i] == 0)
            return true;
        if (view->shape[i] != 1 && view->strides[i] != stride)
            return false;
        stride *= view->shape[i];
    }
    return true;
}

/* ---- of Objects ---- */

static struct view *view_on(struct object *owner, const struct gpubuf_memory *memory)
{
    struct view *view = view_new();

    if (!view)
        return NULL;
    view->object = gpubuf_retain(owner->object);
    view->link = link_get(owner->link);
    view->pointer = memory->pointer;
    view->readonly = !memory->writable;
    int ordinal = gpubuf_device_ordinal(owner->object);
    bool hip = strncmp(gpubuf_device(owner->object), "HIP-", 4) == 0;
    view->device_type = ordinal < 0 ? DL_CPU : hip ? DL_ROCM : DL_CUDA;
    view->device_id = ordinal < 0 ? 0 : ordinal;
    return view;
}

/* Bytes of an item, so 1 for packed elements; 0: the elements have no fixed number of bytes. */
static Py_ssize_t bytes_of_dtype(const char *dtype)
{
    struct gb_dtype parsed;

    if (!gb_dtype_parse(dtype, strlen(dtype), &parsed) || parsed.type == GB_TYPE_BOOL ||
        gb_dtype_bits(&parsed) == 0)
        return 0;
    return (Py_ssize_t)gb_dtype_item(&parsed);
}

/* itemsize(dtype): bytes of an element. */
PyObject *core_itemsize(PyObject *module, PyObject *dtype)
{
    (void)module;
    const char *text;
    if (!PyArg_Parse(dtype, "s;a dtype is a str", &text))
        return NULL;
    return PyLong_FromSsize_t(bytes_of_dtype(text));
}

PyObject *view_of_object(struct object *self)
{
    struct gpubuf_object *object = object_use(self);

    if (!object)
        return NULL;
    const char *dtype = gpubuf_kind(object) == GPUBUF_KIND_BYTES ? "uint8" : gpubuf_dtype(object);
    struct element element;
    bool known = element_of_dtype(dtype, &element);
    /* By the dtype: an array's strides may be 0, or wider than its elements. */
    Py_ssize_t size = known ? element_item(&element) : bytes_of_dtype(dtype);
    unsigned ndim = gpubuf_ndim(object);
    struct gpubuf_memory memory;
    if (size == 0 || ndim > MAX_NDIM) {
        PyErr_Format(PyExc_BufferError, "%s has no fixed number of whole bytes for each element",
                     gpubuf_kind(object) == GPUBUF_KIND_TABLE ? "a table" : gpubuf_dtype(object));
        return NULL;
    }
    int status = gpubuf_memory(object, GPUBUF_DATA, &memory);
    if (status < 0)
        return raise_status(self->link, status);
    struct view *view = view_on(self, &memory);
    if (!view)
        return NULL;
    view->itemsize = size;
    view->ndim = (int)ndim;
    for (unsigned i = 0; i < ndim; i++) {
        view->shape[i] = (Py_ssize_t)gpubuf_shape(object)[i];
        view->strides[i] = (Py_ssize_t)gpubuf_strides(object)[i];
    }
    view->element = element;
    if (known && element.bits < 8)
        view->shape[ndim - 1] = view->shape[ndim - 1] * element.bits / 8;
    view->bytes = count_of(view) * size;
    if (gpubuf_kind(object) == GPUBUF_KIND_COLUMN)
        view->pointer = (char *)view->pointer + gpubuf_offset(object) * (uint64_t)size;
    set_dtype(view, dtype);
    return (PyObject *)view;
}

static void set_bytes(struct view *view, Py_ssize_t bytes)
{
    (void)element_of_dtype("uint8", &view->element);
    view->itemsize = 1;
    view->ndim = 1;
    view->shape[0] = view->bytes = bytes;
    view->strides[0] = 1;
    set_dtype(view, "uint8");
}

PyObject *view_of_buffer(struct object *self, enum gpubuf_which which)
{
    struct gpubuf_object *object = object_use(self);

    if (!object)
        return NULL;
    struct gpubuf_memory memory;
    int status = gpubuf_memory(object, which, &memory);
    if (status < 0)
        return raise_status(self->link, status);
    if (status > 0)
        Py_RETURN_NONE;
    struct view *view = view_on(self, &memory);
    if (view)
        set_bytes(view, (Py_ssize_t)memory.bytes);
    return (PyObject *)view;
}

/* ---- Views of other libraries' memory ---- */

/* from_memory(exporter, dtype, shape): contiguous memory, read as elements of that dtype. */
static PyObject *core_from_memory(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *exporter, *shape;
    const char *dtype;
    if (!PyArg_ParseTuple(args, "OsO!:from_memory", &exporter, &dtype, &PyTuple_Type, &shape))
        return NULL;
    struct view *view = view_new();
    if (!view)
        return NULL;
    if (PyObject_GetBuffer(exporter, &view->buffer, PyBUF_SIMPLE) < 0) {
        view->buffer.obj = NULL;
        Py_DECREF(view);
        return NULL;
    }
    view->pointer = view->buffer.buf;
    view->readonly = view->buffer.readonly;
    view->device_type = DL_CPU;
    view->ndim = (int)PyTuple_Size(shape);
    view->itemsize = bytes_of_dtype(dtype);
    (void)element_of_dtype(dtype, &view->element); /* without a format where NumPy has none */
    bool good = view->itemsize > 0 && view->ndim <= MAX_NDIM;
    for (int i = 0; good && i < view->ndim; i++)
        view->shape[i] = PyLong_AsSsize_t(PyTuple_GetItem(shape, i));
    if (good) {
        set_c_order(view);
        set_dtype(view, dtype);
        good = !__builtin_mul_overflow(count_of(view), view->itemsize, &view->bytes) &&
               !PyErr_Occurred() && view->bytes <= view->buffer.len;
    }
    if (!good) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "the memory does not hold that shape and dtype");
        Py_CLEAR(view);
    }
    return (PyObject *)view;
}

/* Takes the tensor out of a capsule. NULL with an exception if the capsule holds none. */
static const struct dl_tensor *take_tensor(PyObject *capsule, struct view *view)
{
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        struct dl_versioned *tensor = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        if (tensor->major > 1) {
            PyErr_Format(PyExc_BufferError, "DLPack %u is not known here", (unsigned)tensor->major);
            return NULL;
        }
        if (PyCapsule_SetName(capsule, "used_dltensor_versioned") < 0)
            return NULL;
        view->tensor = tensor;
        view->versioned = true;
        view->readonly = tensor->flags & DL_READ_ONLY;
        return &tensor->tensor;
    }
    struct dl_managed *tensor = PyCapsule_GetPointer(capsule, "dltensor");
    if (!tensor || PyCapsule_SetName(capsule, "used_dltensor") < 0)
        return NULL;
    view->tensor = tensor;
    return &tensor->tensor;
}

/* Elements of 4 bits come in pairs (lanes 2), as from PyTorch, or one by one. */
static bool type_known(struct view *view, const struct dl_tensor *tensor, const char **dtype)
{
    bool padded =
        view->versioned && ((struct dl_versioned *)view->tensor)->flags & DL_SUBBYTE_PADDED;

    if (tensor->bits < 8 && padded)
        PyErr_Format(PyExc_TypeError,
                     "the elements of %d bits are padded to bytes: expected packed ones",
                     tensor->bits);
    else if ((tensor->lanes != 1 && (tensor->lanes != 2 || tensor->bits != 4)) ||
             !element_of_dlpack(tensor->code, tensor->bits, &view->element, dtype))
        PyErr_Format(PyExc_TypeError,
                     "DLPack type code %d of %d bits and %d lanes is not supported", tensor->code,
                     tensor->bits, tensor->lanes);
    return !PyErr_Occurred();
}

/* Turns shape and strides of packed elements into those of the bytes that they fill. */
static bool count_bytes(struct view *view)
{
    int last = view->ndim - 1, each = 8 / view->element.bits;
    bool whole = last >= 0 && view->shape[last] % each == 0, empty = count_of(view) == 0;

    whole = whole && (view->strides[last] == 1 || empty);
    for (int i = 0; whole && i < last; i++) {
        whole = view->strides[i] % each == 0 || view->shape[i] == 1 || empty;
        view->strides[i] /= each;
    }
    if (!whole) {
        PyErr_SetString(PyExc_TypeError,
                        "the packed elements do not fill whole bytes along the last axis");
        return false;
    }
    view->shape[last] /= each;
    return true;
}

/* from_dlpack(capsule) */
static PyObject *core_from_dlpack(PyObject *module, PyObject *capsule)
{
    (void)module;
    struct view *view = view_new();
    if (!view)
        return NULL;
    const struct dl_tensor *tensor = take_tensor(capsule, view);
    const char *dtype;
    if (!tensor)
        goto failed;
    if (!type_known(view, tensor, &dtype))
        goto failed;
    if (tensor->ndim < 0 || tensor->ndim > MAX_NDIM) {
        PyErr_Format(PyExc_ValueError, "an array has at most %d axes, not %d", MAX_NDIM,
                     (int)tensor->ndim);
        goto failed;
    }
    view->pointer = tensor->data ? (char *)tensor->data + tensor->byte_offset : NULL;
    view->ndim = tensor->ndim;
    view->itemsize = element_item(&view->element);
    view->device_type = tensor->device_type;
    view->device_id = tensor->device_id;
    for (int i = 0; i < view->ndim; i++) {
        view->shape[i] = (Py_ssize_t)tensor->shape[i];
        if (tensor->strides)
            view->strides[i] = (Py_ssize_t)tensor->strides[i] * view->itemsize;
    }
    if (!tensor->strides)
        set_c_order(view);
    if (tensor->bits < 8 && tensor->lanes == 1 && !count_bytes(view))
        goto failed;
    view->bytes = count_of(view) * view->itemsize;
    set_dtype(view, dtype);
    return (PyObject *)view;

failed:
    Py_DECREF(view);
    return NULL;
}

/* ---- the buffer protocol ---- */

int view_fill(struct view *view, PyObject *exporter, Py_buffer *buffer, int flags)
{
    buffer->obj = NULL;
    if (view->device_type != DL_CPU) {
        PyErr_SetString(PyExc_BufferError,
                        "the memory is on a GPU; copy_to_host() makes a copy on the host");
        return -1;
    }
    if ((flags & PyBUF_WRITABLE) && view->readonly) {
        PyErr_SetString(PyExc_BufferError, "a published object is read-only");
        return -1;
    }
    bool c_order = is_c_order(view);
    if (!c_order && ((flags & PyBUF_STRIDES) != PyBUF_STRIDES)) {
        PyErr_SetString(PyExc_BufferError, "the memory is not contiguous");
        return -1;
    }
    bool fortran = (flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS;
    if (fortran && view->ndim > 1) {
        PyErr_SetString(PyExc_BufferError, "the memory is in C order, not in Fortran's");
        return -1;
    }
    *buffer = (Py_buffer){
        .buf = view->pointer,
        .obj = new_ref(exporter),
        .len = view->bytes,
        .itemsize = view->itemsize,
        .readonly = view->readonly,
        .ndim = view->ndim,
        .format = flags & PyBUF_FORMAT ? view->format : NULL,
        .shape = flags & PyBUF_ND ? view->shape : NULL,
        .strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? view->strides : NULL,
    };
    if (!(flags & PyBUF_ND)) /* a plain run of bytes */
        buffer->ndim = 1;
    return 0;
}

static int view_getbuffer(PyObject *self, Py_buffer *buffer, int flags)
{
    return view_fill((struct view *)self, self, buffer, flags);
}

/* ---- DLPack ---- */

struct export
{
    union {
        struct dl_managed managed;
        struct dl_versioned versioned;
    } as;
    struct link *link;
    struct gpubuf_object *object;
    PyObject *owner;   /* the View, if its memory is Python's; else NULL */
    int64_t extents[]; /* the shape, and the strides */
};

/* On any thread, perhaps after the interpreter's end. */
static void export_end(struct export *export)
{
    gpubuf_release(export->object);
    link_put(export->link);
    if (export->owner && Py_IsInitialized()) { /* else it is left to the process' end */
        PyGILState_STATE state = PyGILState_Ensure();
        Py_DECREF(export->owner);
        PyGILState_Release(state);
    }
    free(export);
}

static void delete_managed(struct dl_managed *tensor)
{
    export_end(tensor->context);
}

static void delete_versioned(struct dl_versioned *tensor)
{
    export_end(tensor->context);
}

/* The destructor of a capsule that no consumer has taken. */
static void end_capsule(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        struct dl_versioned *tensor = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        tensor->deleter(tensor);
    } else if (PyCapsule_IsValid(capsule, "dltensor")) {
        struct dl_managed *tensor = PyCapsule_GetPointer(capsule, "dltensor");
        tensor->deleter(tensor);
    }
}

static void fill_tensor(const struct view *self, struct export *export, struct dl_tensor *tensor)
{
    int64_t *strides = export->extents + self->ndim;

    for (int i = 0; i < self->ndim; i++) {
        export->extents[i] = self->shape[i];
        strides[i] = self->strides[i] / self->itemsize;
    }
    *tensor = (struct dl_tensor){
        .data = self->bytes ? self->pointer : NULL,
        .device_type = self->device_type,
        .device_id = self->device_id,
        .ndim = self->ndim,
        .code = self->element.code,
        .bits = self->element.bits,
        .lanes = self->element.bits == 4 ? 2 : 1,
        .shape = export->extents,
        .strides = strides,
    };
}

/* A tensor that holds the View's memory; NULL with BufferError, MemoryError. */
static struct export *export_new(struct view *self, bool versioned, bool copied)
{
    if (!self->element.plain || self->element.code == 255) {
        PyErr_Format(PyExc_BufferError,
                     self->element.plain ? "DLPack does not say how %s is packed"
                                         : "DLPack has no type for %s",
                     self->dtype);
        return NULL;
    }
    for (int i = 0; i < self->ndim; i++) {
        if (self->strides[i] % self->itemsize != 0) {
            PyErr_SetString(PyExc_BufferError, "the strides are no multiples of an element's size");
            return NULL;
        }
    }
    struct export *export =
        calloc(1, sizeof(*export) + 2 * (size_t)self->ndim * sizeof(*export->extents));
    if (!export) {
        PyErr_NoMemory();
        return NULL;
    }
    export->object = gpubuf_retain(self->object);
    export->link = self->link ? link_get(self->link) : NULL;
    export->owner = self->object ? NULL : new_ref((PyObject *)self);
    if (versioned) {
        struct dl_versioned *out = &export->as.versioned;
        fill_tensor(self, export, &out->tensor);
        out->major = 1;
        out->minor = 0;
        out->context = export;
        out->deleter = delete_versioned;
        out->flags = (self->readonly ? DL_READ_ONLY : 0u) | (copied ? DL_IS_COPIED : 0u);
    } else {
        struct dl_managed *out = &export->as.managed;
        fill_tensor(self, export, &out->tensor);
        out->context = export;
        out->deleter = delete_managed;
    }
    return export;
}

struct dl_versioned *view_export(struct view *view)
{
    struct export *export = export_new(view, true, false);

    return export ? &export->as.versioned : NULL;
}

static PyObject *capsule_of(struct view *view, bool versioned, bool copied)
{
    struct export *export = export_new(view, versioned, copied);
    if (!export)
        return NULL;
    PyObject *capsule =
        PyCapsule_New(&export->as, versioned ? "dltensor_versioned" : "dltensor", end_capsule);
    if (!capsule)
        export_end(export);
    return capsule;
}

/* dlpack(versioned, copied) */
static PyObject *view_dlpack(PyObject *object, PyObject *args)
{
    int versioned, copied;

    if (!PyArg_ParseTuple(args, "pp:dlpack", &versioned, &copied))
        return NULL;
    return capsule_of((struct view *)object, versioned, copied);
}

/* A capsule for tensor `tensor` of the memory that `view` describes. */
static PyObject *capsule_of_tensor(struct view view, const struct gpubuf_tensor *tensor)
{
    view.itemsize = bytes_of_dtype(tensor->dtype);
    view.ndim = (int)tensor->ndim;
    view.bytes = (Py_ssize_t)tensor->bytes;
    if (view.bytes == 0 || view.itemsize == 0 || tensor->ndim > MAX_NDIM ||
        tensor->offset % (uint64_t)view.itemsize != 0 ||
        !element_of_dtype(tensor->dtype, &view.element) || !view.element.plain ||
        view.element.bits < 8 || (view.element.bits == 8 && view.element.code > DL_UINT))
        Py_RETURN_NONE;
    view.pointer = (char *)view.pointer + tensor->offset;
    for (int i = 0; i < view.ndim; i++)
        view.shape[i] = (Py_ssize_t)tensor->shape[i];
    set_c_order(&view);
    return capsule_of(&view, false, false);
}

PyObject *view_capsules(struct object *self, const struct gpubuf_bundle *bundle)
{
    struct gpubuf_memory memory;
    int status = gpubuf_memory(self->object, GPUBUF_DATA, &memory);
    if (status < 0)
        return raise_status(self->link, status);
    struct view *whole = view_on(self, &memory);
    PyObject *found = whole ? PyDict_New() : NULL;
    for (size_t i = 0; found && i < gpubuf_bundle_count(bundle); i++) {
        const struct gpubuf_tensor *tensor = gpubuf_bundle_at(bundle, i);
        PyObject *capsule = capsule_of_tensor(*whole, tensor);
        if (!capsule || PyDict_SetItemString(found, tensor->name, capsule) < 0)
            Py_CLEAR(found);
        Py_XDECREF(capsule);
    }
    Py_XDECREF((PyObject *)whole);
    return found;
}

/* as_uint8(): turns the View, of items of one byte, into one of uint8. Returns it. */
static PyObject *view_as_uint8(PyObject *object, PyObject *unused)
{
    (void)unused;
    struct view *self = (struct view *)object;
    if (self->itemsize != 1) {
        PyErr_Format(PyExc_TypeError, "elements of %s are not of one byte", self->dtype);
        return NULL;
    }
    (void)element_of_dtype("uint8", &self->element);
    set_dtype(self, "uint8");
    return new_ref(object);
}

/* at(i): turns the View into one of element i of its first axis. Returns it. */
static PyObject *view_at(PyObject *object, PyObject *index)
{
    struct view *self = (struct view *)object;
    Py_ssize_t i = PyLong_AsSsize_t(index);

    if (PyErr_Occurred())
        return NULL;
    if (self->ndim == 0 || i < 0 || i >= self->shape[0]) {
        PyErr_SetString(PyExc_IndexError, "no such element");
        return NULL;
    }
    self->pointer = (char *)self->pointer + i * self->strides[0];
    self->bytes /= self->shape[0];
    self->ndim--;
    memmove(self->shape, self->shape + 1, (size_t)self->ndim * sizeof(self->shape[0]));
    memmove(self->strides, self->strides + 1, (size_t)self->ndim * sizeof(self->strides[0]));
    return new_ref(object);
}

/* ---- what Python sees ---- */

#define VIEW_GETTER(what, expression)                                                              \
    static PyObject *get_##what(PyObject *object, void *closure)                                   \
    {                                                                                              \
        (void)closure;                                                                             \
        const struct view *self = (struct view *)object;                                           \
        return expression;                                                                         \
    }

VIEW_GETTER(pointer, PyLong_FromVoidPtr(self->pointer))
VIEW_GETTER(nbytes, PyLong_FromSsize_t(self->bytes))
VIEW_GETTER(itemsize, PyLong_FromSsize_t(self->itemsize))
VIEW_GETTER(shape, tuple_of(self->shape, (size_t)self->ndim))
VIEW_GETTER(strides, tuple_of(self->strides, (size_t)self->ndim))
VIEW_GETTER(format, PyUnicode_FromString(self->format))
VIEW_GETTER(dtype, PyUnicode_FromString(self->dtype))
VIEW_GETTER(typestr, PyUnicode_FromString(self->element.typestr))
VIEW_GETTER(readonly, PyBool_FromLong(self->readonly))
VIEW_GETTER(device, Py_BuildValue("(ii)", (int)self->device_type, (int)self->device_id))
VIEW_GETTER(contiguous, PyBool_FromLong(is_c_order(self)))

static PyGetSetDef getters[] = {
    {"pointer", get_pointer, NULL, "The memory's address, on its device.", NULL},
    {"nbytes", get_nbytes, NULL, "Bytes of all elements.", NULL},
    {"itemsize", get_itemsize, NULL, "Bytes of one element; 1 for packed ones.", NULL},
    {"shape", get_shape, NULL, "Extents, in elements; for packed ones in bytes.", NULL},
    {"strides", get_strides, NULL, "Steps from one element to the next, in bytes.", NULL},
    {"format", get_format, NULL, "The elements' format, as of the struct module.", NULL},
    {"dtype", get_dtype, NULL, "The elements' type, as the protocol spells it.", NULL},
    {"typestr", get_typestr, NULL, "NumPy's typestr; empty if NumPy has none.", NULL},
    {"readonly", get_readonly, NULL, "Whether the memory is read-only; not before seal().", NULL},
    {"device", get_device, NULL, "DLPack's (device type, device id).", NULL},
    {"contiguous", get_contiguous, NULL, "Whether the elements lie in C order without gaps.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef methods[] = {
    {"_dlpack", view_dlpack, METH_VARARGS, NULL},
    {"_as_uint8", view_as_uint8, METH_NOARGS, NULL},
    {"_at", view_at, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, view_dealloc},
    {Py_tp_getset, getters},
    {Py_tp_methods, methods},
    {Py_bf_getbuffer, view_getbuffer},
    {0, NULL},
};

static PyObject *core_set_view_class(PyObject *module, PyObject *class)
{
    (void)module;
    if (!PyType_Check(class) || !PyType_IsSubtype((PyTypeObject *)class, view_type)) {
        PyErr_SetString(PyExc_TypeError, "expected a subclass of View");
        return NULL;
    }
    PyObject *before = (PyObject *)view_class;
    view_class = (PyTypeObject *)new_ref(class);
    Py_XDECREF(before);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"set_view_class", core_set_view_class, METH_O, NULL},
    {"from_memory", core_from_memory, METH_VARARGS, NULL},
    {"from_dlpack", core_from_dlpack, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

int view_setup(PyObject *module)
{
    int r =
        add_type(module, "gpubufd._core.View", sizeof(struct view), TYPE_FLAGS, slots, &view_type);

    return r < 0 ? r : PyModule_AddFunctions(module, functions);
}
