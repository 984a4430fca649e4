/*
 * Binds code that is built with a later glibc to the functions of glibc 2.28. The Makefile forces
 * this header into the artifacts that are published ready-made (PUBLISHED=1): the wheel and the
 * addon for Node. A later glibc keeps the older versions of these functions for programs that were
 * linked long ago. scripts/check-manylinux finds a function that is missing here.
 *
 * In glibc 2.28 these functions lie in libpthread and libdl. The Makefile links the artifacts to
 * both.
 */
#ifndef GB_CLIENT_COMMON_OLD_GLIBC_H
#define GB_CLIENT_COMMON_OLD_GLIBC_H

#include <features.h>
#include <sys/stat.h>

#if defined(__x86_64__)
#define GB_FIRST "GLIBC_2.2.5"
#define GB_CONDATTR_SETCLOCK "GLIBC_2.3.3"
#define GB_STAT_VERSION 1
#elif defined(__aarch64__)
#define GB_FIRST "GLIBC_2.17"
#define GB_CONDATTR_SETCLOCK "GLIBC_2.17"
#define GB_STAT_VERSION 0
#else
#error "published artifacts are built for x86_64 and aarch64 only"
#endif

#define GB_BIND(name, version) __asm__(".symver " #name "," #name "@" version)

GB_BIND(dlclose, GB_FIRST);
GB_BIND(dlerror, GB_FIRST);
GB_BIND(dlopen, GB_FIRST);
GB_BIND(dlsym, GB_FIRST);
GB_BIND(pthread_condattr_setclock, GB_CONDATTR_SETCLOCK);
GB_BIND(pthread_create, GB_FIRST);
GB_BIND(pthread_join, GB_FIRST);
GB_BIND(pthread_once, GB_FIRST);
GB_BIND(pthread_sigmask, GB_FIRST);

/* Until 2.33, fstat() was a macro for this function. */
int __fxstat(int version, int fd, struct stat *status);
#define fstat(fd, status) __fxstat(GB_STAT_VERSION, fd, status)

/* Since 2.38, strtol() and its like are bound to new functions, which know binary numbers (0b1). */
#undef __GLIBC_USE_C2X_STRTOL
#define __GLIBC_USE_C2X_STRTOL 0
#undef __GLIBC_USE_C23_STRTOL
#define __GLIBC_USE_C23_STRTOL 0

#endif
