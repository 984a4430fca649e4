/*
 * Every limit of the protocol and of the daemon, once. X(name, value, text): GB_LIMIT(name) in C,
 * `limits.name` in the answer to `hello`, and the word in `error.data.limit`.
 */
#ifndef GB_LIMITS_H
#define GB_LIMITS_H

/* These size something fixed, or both sides must agree on them. */
#define GB_LIMITS_FIXED(X)                                                                         \
    X(line_bytes, 1048576, "bytes in one message, newline included")                               \
    X(request_bytes, 65536, "bytes in a request that brings no layout, newline included")          \
    X(depth, 32, "levels of nesting in one message")                                               \
    X(fds, 16, "descriptors with one message")                                                     \
    X(pending_fds, 64, "descriptors received and not yet taken by a message")                      \
    X(name_bytes, 255, "bytes in a name")                                                          \
    X(label_bytes, 255, "bytes in a version's label")                                              \
    X(keep, 8, "older versions that a name keeps")                                                 \
    X(decline_bytes, 500, "bytes in the message of decline")                                       \
    X(names, 64, "names in one request")                                                           \
    X(ids, 256, "leases or segments in one request")                                               \
    X(columns, 4096, "columns in a layout, nested ones included")                                  \
    X(layout_depth, 12, "levels of nested columns")                                                \
    X(ndim, 32, "axes of an array")                                                                \
    X(metadata_pairs, 256, "metadata pairs of an object or a column")                              \
    X(alias_text, 3145728, "bytes of text of an object and all its aliases")                       \
    X(wait_ms, 86400000, "milliseconds that a request may wait")                                   \
    X(list, 256, "objects in one answer to list")                                                  \
    X(integer, 4503599627370495, "the largest integer in a message, 2^52 - 1")                     \
    X(live_writers, 1024, "leases for writing one live object")                                    \
    X(stream_readers, 64, "readers that take part in a stream")

/* The operator can change these. */
#define GB_LIMITS_TO_SET(X)                                                                        \
    X(half_line_ms, 30000, "milliseconds that a message may take to arrive")                       \
    X(unmap_ms, 10000, "milliseconds that a session may take to unmap segments when asked")        \
    X(recall_ms, 100, "milliseconds that a session may take to release cached leases")             \
    X(output_bytes, 8388608, "bytes queued for a session: replies, and unsent events")             \
    X(session_leases, 1048576, "leases of a session")                                              \
    X(session_unsealed, 4096, "unsealed objects of a session, and live ones that it writes")       \
    X(session_watches, 64, "watches of a session")                                                 \
    X(session_provides, 64, "prefixes that a session provides")                                    \
    X(session_wanted, 1024, "names that a provider is asked for at a time")                        \
    X(session_waits, 256, "waiting requests of a session")                                         \
    X(sessions, 16384, "sessions of the daemon")                                                   \
    X(user_sessions, 12288, "sessions of a user")                                                  \
    X(user_objects, 1048576, "objects of a user")                                                  \
    X(user_segments, 65536, "segments of a user")                                                  \
    X(user_leases, 1048576, "leases of a user")                                                    \
    X(user_text_bytes, 536870912, "bytes of a user's names, layouts and metadata")                 \
    X(user_bytes, 4503599627370495, "bytes of a user's objects, and of its segments, on a device") \
    X(user_watches, 1024, "watches of a user")                                                     \
    X(user_provides, 256, "prefixes that a user's sessions provide")                               \
    X(user_wanted, 64, "names that a user waits for and a provider is asked for at a time")        \
    X(user_waits, 1024, "waiting requests of a user")                                              \
    X(held_bytes, 1073741824, "bytes kept for a user: messages incomplete, waiting, or unread")    \
    X(held_fds, 1024, "descriptors of a user's messages: incomplete, or not closed yet")

#define GB_LIMIT_MAP(X) GB_LIMITS_FIXED(X) GB_LIMITS_TO_SET(X)

/* Integer constant expressions (a long for `integer`, by GNU C). */
enum gb_limit {
#define GB_LIMIT_ENUM(name, value, text) GB_LIMIT_##name = (value),
    GB_LIMIT_MAP(GB_LIMIT_ENUM)
#undef GB_LIMIT_ENUM
};

#define GB_LIMIT(name) GB_LIMIT_##name

/* A message of this length is *long*. Buffers that reach it grow to the limit at once, instead of
   being moved again and again; and a long message is handed on rather than copied. */
#define GB_LONG_BYTES 65536u

#endif
