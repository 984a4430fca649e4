/* Streams of frames: gpubuf_stream_…, for _stream.py. */
#ifndef GPUBUFD_STREAM_H
#define GPUBUFD_STREAM_H

#include "client/python/src/core.h"

int stream_setup(PyObject *module);

#endif
