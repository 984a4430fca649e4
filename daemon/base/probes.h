/*
 * Probes for perf, bpftrace and SystemTap, where the compiler has <sys/sdt.h>: an instruction that
 * does nothing until somebody attaches. docs/METRICS.md lists them.
 */
#ifndef GB_PROBES_H
#define GB_PROBES_H

#if defined(__has_include)
#if __has_include(<sys/sdt.h>) && !defined(GB_NO_PROBES)
#include <sys/sdt.h>
#define GB_HAS_PROBES 1
#endif
#endif

#ifdef GB_HAS_PROBES
#define GB_PROBE3(name, a, b, c) DTRACE_PROBE3(gpubufd, name, a, b, c)
#define GB_PROBE4(name, a, b, c, d) DTRACE_PROBE4(gpubufd, name, a, b, c, d)
#else
#define GB_PROBE3(name, a, b, c) ((void)(a), (void)(b), (void)(c))
#define GB_PROBE4(name, a, b, c, d) ((void)(a), (void)(b), (void)(c), (void)(d))
#endif

#endif
