/* Where the daemon's socket is, for a program that is not told. The library, the daemon, and
   `gpubufctl doctor` all use this, so that they agree. */
#ifndef PROTO_PLACE_H
#define PROTO_PLACE_H

#include <stdbool.h>
#include <stddef.h>

#define GB_SYSTEM_DIRECTORY "/run/gpubufd" /* made by the service manager */
#define GB_SYSTEM_SOCKET GB_SYSTEM_DIRECTORY "/gpubufd.sock"

/* Shared by the containers that have a claim on the same GPUs: docs/GPU.md, "Containers". */
#define GB_CLAIM_VARIABLE "NVIDIA_DRA_LOCAL_IPC_DIR"

/* The socket that a client tries. `given`: by the program, or NULL. `why`, unless NULL, gets what
   decided, as a phrase. The path is `given`, or of the environment, or in `buffer`. */
const char *gb_place_of_client(const char *given, char *buffer, size_t size, const char **why);

/* The path that a daemon listens at; the caller frees it. NULL: memory is out, or there is no place
   (`*nowhere`). May make the user's own directory. */
char *gb_place_of_daemon(bool *nowhere);

#endif
