/* The type of Clients, and their blocking methods. */
#ifndef GPUBUFD_CLIENT_H
#define GPUBUFD_CLIENT_H

#include "client/python/src/core.h"

extern PyTypeObject *client_type;

#endif
