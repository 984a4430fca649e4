// Made of include/gpubuf.h by `make rust-bindings`: change nothing here.

pub const GPUBUF_PROTOCOL: u32 = 1;
pub const GPUBUF_NO_RESUME: i32 = -2;
pub const GPUBUF_NO_CACHE: i32 = -1;
pub const GPUBUF_E_PARSE: gpubuf_error = -32700;
pub const GPUBUF_E_REQUEST: gpubuf_error = -32600;
pub const GPUBUF_E_METHOD: gpubuf_error = -32601;
pub const GPUBUF_E_INVALID: gpubuf_error = -32602;
pub const GPUBUF_E_INTERNAL: gpubuf_error = -32603;
pub const GPUBUF_E_NOT_FOUND: gpubuf_error = -32001;
pub const GPUBUF_E_EXISTS: gpubuf_error = -32002;
pub const GPUBUF_E_NO_SPACE: gpubuf_error = -32003;
pub const GPUBUF_E_DENIED: gpubuf_error = -32004;
pub const GPUBUF_E_BUSY: gpubuf_error = -32005;
pub const GPUBUF_E_TIMEOUT: gpubuf_error = -32006;
pub const GPUBUF_E_STALE: gpubuf_error = -32007;
pub const GPUBUF_E_LIMIT: gpubuf_error = -32008;
pub const GPUBUF_E_DEVICE: gpubuf_error = -32009;
pub const GPUBUF_E_UNSUPPORTED: gpubuf_error = -32010;
pub const GPUBUF_E_UNAVAILABLE: gpubuf_error = -32011;
pub const GPUBUF_E_NO_MEMORY: gpubuf_error = -1;
pub const GPUBUF_E_CONNECT: gpubuf_error = -2;
pub const GPUBUF_E_CLOSED: gpubuf_error = -3;
pub const GPUBUF_E_PROTOCOL: gpubuf_error = -4;
pub const GPUBUF_E_AGAIN: gpubuf_error = -5;
pub const GPUBUF_E_FORKED: gpubuf_error = -6;
pub const GPUBUF_E_SYSTEM: gpubuf_error = -7;
pub const GPUBUF_E_CANCELED: gpubuf_error = -8;
pub type gpubuf_error = ::std::os::raw::c_int;
#[repr(C)]
#[derive(Debug)]
pub struct gpubuf_client {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct gpubuf_object {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct gpubuf_connect_options {
    pub size: usize,
    pub path: *const ::std::os::raw::c_char,
    pub client_name: *const ::std::os::raw::c_char,
    pub timeout_ms: ::std::os::raw::c_int,
    pub cache_bytes: u64,
    pub answer_timeout_ms: ::std::os::raw::c_int,
    pub resume_ms: ::std::os::raw::c_int,
    pub cache_leases: ::std::os::raw::c_int,
    pub cache_lease_ms: ::std::os::raw::c_int,
    pub own_daemon: bool,
    pub while_listening: bool,
    pub progress: ::core::option::Option<
        unsafe extern "C" fn(arg: *mut ::core::ffi::c_void, bytes: u64) -> ::std::os::raw::c_int,
    >,
    pub progress_arg: *mut ::core::ffi::c_void,
}
pub type gpubuf_call_cb = ::core::option::Option<
    unsafe extern "C" fn(
        client: *mut gpubuf_client,
        status: ::std::os::raw::c_int,
        result: *const ::std::os::raw::c_char,
        length: usize,
        arg: *mut ::core::ffi::c_void,
    ),
>;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct gpubuf_open_options {
    pub size: usize,
    pub version: u64,
    pub wait_ms: i64,
    pub label: *const ::std::os::raw::c_char,
    pub write: bool,
    pub exclusive: bool,
}
pub type gpubuf_object_cb = ::core::option::Option<
    unsafe extern "C" fn(
        client: *mut gpubuf_client,
        status: ::std::os::raw::c_int,
        object: *mut gpubuf_object,
        arg: *mut ::core::ffi::c_void,
    ),
>;
pub type gpubuf_objects_cb = ::core::option::Option<
    unsafe extern "C" fn(
        client: *mut gpubuf_client,
        status: ::std::os::raw::c_int,
        objects: *const *mut gpubuf_object,
        errors: *const ::std::os::raw::c_int,
        count: usize,
        arg: *mut ::core::ffi::c_void,
    ),
>;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct gpubuf_view {
    _unused: [u8; 0],
}
pub const GPUBUF_KIND_BYTES: gpubuf_kind = 0;
pub const GPUBUF_KIND_ARRAY: gpubuf_kind = 1;
pub const GPUBUF_KIND_COLUMN: gpubuf_kind = 2;
pub const GPUBUF_KIND_TABLE: gpubuf_kind = 3;
pub const GPUBUF_KIND_BUNDLE: gpubuf_kind = 4;
pub type gpubuf_kind = ::std::os::raw::c_uint;
pub const GPUBUF_DATA: gpubuf_which = 0;
pub const GPUBUF_MASK: gpubuf_which = 1;
pub const GPUBUF_OFFSETS: gpubuf_which = 2;
pub type gpubuf_which = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct gpubuf_memory {
    pub pointer: *mut ::core::ffi::c_void,
    pub bytes: u64,
    pub writable: bool,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct gpubuf_column_spec {
    pub name: *const ::std::os::raw::c_char,
    pub dtype: *const ::std::os::raw::c_char,
    pub length: u64,
    pub offset: u64,
    pub null_count: i64,
    pub mask: bool,
    pub data_bytes: u64,
    pub children: *const gpubuf_column_spec,
    pub child_count: usize,
    pub metadata: *const *const ::std::os::raw::c_char,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct gpubuf_layout_spec {
    pub kind: gpubuf_kind,
    pub bytes: u64,
    pub manifest_bytes: u64,
    pub dtype: *const ::std::os::raw::c_char,
    pub ndim: ::std::os::raw::c_uint,
    pub shape: *const u64,
    pub mask: bool,
    pub column: gpubuf_column_spec,
}
pub const GPUBUF_EVICT_DEFAULT: gpubuf_evict = 0;
pub const GPUBUF_EVICT_SPILL: gpubuf_evict = 1;
pub const GPUBUF_EVICT_DROP: gpubuf_evict = 2;
pub const GPUBUF_EVICT_KEEP: gpubuf_evict = 3;
pub type gpubuf_evict = ::std::os::raw::c_uint;
pub const GPUBUF_SCOPE_LOCAL: gpubuf_scope = 0;
pub const GPUBUF_SCOPE_CLUSTER: gpubuf_scope = 1;
pub type gpubuf_scope = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct gpubuf_create_options {
    pub size: usize,
    pub device: *const ::std::os::raw::c_char,
    pub share: *const ::std::os::raw::c_char,
    pub mode: ::std::os::raw::c_uint,
    pub replace: bool,
    pub ttl_ms: i64,
    pub evict: gpubuf_evict,
    pub wait_ms: i64,
    pub final_: bool,
    pub version: *mut u64,
    pub label: *const ::std::os::raw::c_char,
    pub keep: ::std::os::raw::c_uint,
    pub scope: gpubuf_scope,
    pub own: bool,
    pub live: bool,
    pub note: *const ::std::os::raw::c_char,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct gpubuf_file_range {
    pub fd: ::std::os::raw::c_int,
    pub offset: u64,
    pub bytes: u64,
    pub at: u64,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct gpubuf_pinned_memory {
    pub size: usize,
    pub objects: u64,
    pub buffers: u64,
    pub buffers_max: u64,
    pub refused: u64,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct gpubuf_fill_options {
    pub size: usize,
    pub readers: ::std::os::raw::c_uint,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct gpubuf_fill {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct gpubuf_values {
    pub name: *const ::std::os::raw::c_char,
    pub dtype: *const ::std::os::raw::c_char,
    pub values: *const ::core::ffi::c_void,
    pub valid: *const bool,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct gpubuf_stream {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct gpubuf_stream_options {
    pub size: usize,
    pub wait_ms: i64,
    pub device: *const ::std::os::raw::c_char,
    pub mode: ::std::os::raw::c_uint,
    pub slots: ::std::os::raw::c_uint,
    pub each: bool,
    pub waits: bool,
    pub lag: ::std::os::raw::c_uint,
    pub hold: ::std::os::raw::c_uint,
    pub ahead: bool,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct gpubuf_frame {
    pub pointer: *mut ::core::ffi::c_void,
    pub bytes: u64,
    pub number: u64,
    pub time_ns: u64,
    pub missed: u64,
    pub slot: ::std::os::raw::c_uint,
}
#[repr(C)]
#[derive(Debug)]
pub struct gpubuf_bundle {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct gpubuf_tensor {
    pub name: *const ::std::os::raw::c_char,
    pub dtype: *const ::std::os::raw::c_char,
    pub ndim: ::std::os::raw::c_uint,
    pub shape: *const u64,
    pub offset: u64,
    pub bytes: u64,
    pub pointer: *mut ::core::ffi::c_void,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct gpubuf_tensor_spec {
    pub name: *const ::std::os::raw::c_char,
    pub dtype: *const ::std::os::raw::c_char,
    pub ndim: ::std::os::raw::c_uint,
    pub shape: *const u64,
}
#[repr(C)]
#[derive(Debug)]
pub struct ArrowSchema {
    pub format: *const ::std::os::raw::c_char,
    pub name: *const ::std::os::raw::c_char,
    pub metadata: *const ::std::os::raw::c_char,
    pub flags: i64,
    pub n_children: i64,
    pub children: *mut *mut ArrowSchema,
    pub dictionary: *mut ArrowSchema,
    pub release: ::core::option::Option<unsafe extern "C" fn(arg1: *mut ArrowSchema)>,
    pub private_data: *mut ::core::ffi::c_void,
}
#[repr(C)]
#[derive(Debug)]
pub struct ArrowArray {
    pub length: i64,
    pub null_count: i64,
    pub offset: i64,
    pub n_buffers: i64,
    pub n_children: i64,
    pub buffers: *mut *const ::core::ffi::c_void,
    pub children: *mut *mut ArrowArray,
    pub dictionary: *mut ArrowArray,
    pub release: ::core::option::Option<unsafe extern "C" fn(arg1: *mut ArrowArray)>,
    pub private_data: *mut ::core::ffi::c_void,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct gpubuf_info {
    pub name: [::std::os::raw::c_char; 256usize],
    pub version: u64,
    pub state: [::std::os::raw::c_char; 8usize],
    pub tier: [::std::os::raw::c_char; 8usize],
    pub device: [::std::os::raw::c_char; 64usize],
    pub bytes: u64,
    pub mode: ::std::os::raw::c_uint,
    pub uid: u32,
    pub gid: u32,
    pub created_ms: i64,
    pub leases: u64,
    pub pinned: bool,
    pub ttl_ms: i64,
    pub idle_ms: i64,
    pub final_: bool,
    pub label: [::std::os::raw::c_char; 256usize],
    pub keep: ::std::os::raw::c_uint,
    pub older: bool,
    pub gone: bool,
    pub scope: gpubuf_scope,
    pub note: [::std::os::raw::c_char; 256usize],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct gpubuf_alias_options {
    pub size: usize,
    pub slice: bool,
    pub offset: u64,
    pub length: u64,
    pub columns: *const *const ::std::os::raw::c_char,
    pub mode: ::std::os::raw::c_uint,
    pub replace: bool,
    pub label: *const ::std::os::raw::c_char,
    pub keep: ::std::os::raw::c_uint,
    pub scope: gpubuf_scope,
}
pub type gpubuf_event_cb = ::core::option::Option<
    unsafe extern "C" fn(
        client: *mut gpubuf_client,
        kind: *const ::std::os::raw::c_char,
        info: *const gpubuf_info,
        arg: *mut ::core::ffi::c_void,
    ),
>;
pub type gpubuf_watch_cb = ::core::option::Option<
    unsafe extern "C" fn(
        client: *mut gpubuf_client,
        status: ::std::os::raw::c_int,
        watch: u64,
        arg: *mut ::core::ffi::c_void,
    ),
>;
pub type gpubuf_event_json_cb = ::core::option::Option<
    unsafe extern "C" fn(
        client: *mut gpubuf_client,
        event: *const ::std::os::raw::c_char,
        length: usize,
        arg: *mut ::core::ffi::c_void,
    ),
>;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct gpubuf_wanted {
    pub request: u64,
    pub name: *const ::std::os::raw::c_char,
    pub uid: u32,
    pub gid: u32,
    pub ended: bool,
}
pub type gpubuf_wanted_cb = ::core::option::Option<
    unsafe extern "C" fn(
        client: *mut gpubuf_client,
        wanted: *const gpubuf_wanted,
        arg: *mut ::core::ffi::c_void,
    ),
>;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct gpubuf_part {
    pub pointer: *const ::core::ffi::c_void,
    pub bytes: u64,
}
pub type ArrowDeviceType = i32;
#[repr(C)]
#[derive(Debug)]
pub struct ArrowDeviceArray {
    pub array: ArrowArray,
    pub device_id: i64,
    pub device_type: ArrowDeviceType,
    pub sync_event: *mut ::core::ffi::c_void,
    pub reserved: [i64; 3usize],
}
extern "C" {
    pub fn gpubuf_version() -> *const ::std::os::raw::c_char;
    pub fn gpubuf_strerror(error: ::std::os::raw::c_int) -> *const ::std::os::raw::c_char;
    pub fn gpubuf_errkind(error: ::std::os::raw::c_int) -> *const ::std::os::raw::c_char;
    pub fn gpubuf_errmsg(client: *const gpubuf_client) -> *const ::std::os::raw::c_char;
    pub fn gpubuf_object_errmsg(object: *const gpubuf_object) -> *const ::std::os::raw::c_char;
    pub fn gpubuf_free(pointer: *mut ::core::ffi::c_void);
    pub fn gpubuf_connect(
        client: *mut *mut gpubuf_client,
        options: *const gpubuf_connect_options,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_disconnect(client: *mut gpubuf_client);
    pub fn gpubuf_is_stale(object: *const gpubuf_object) -> bool;
    pub fn gpubuf_instance(client: *const gpubuf_client) -> *const ::std::os::raw::c_char;
    pub fn gpubuf_session(client: *const gpubuf_client) -> u64;
    pub fn gpubuf_fd(client: *const gpubuf_client) -> ::std::os::raw::c_int;
    pub fn gpubuf_events(client: *const gpubuf_client) -> ::std::os::raw::c_short;
    pub fn gpubuf_dispatch(client: *mut gpubuf_client) -> ::std::os::raw::c_int;
    pub fn gpubuf_call(
        client: *mut gpubuf_client,
        method: *const ::std::os::raw::c_char,
        params: *const ::std::os::raw::c_char,
        timeout_ms: ::std::os::raw::c_int,
        result: *mut *mut ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_call_async(
        client: *mut gpubuf_client,
        method: *const ::std::os::raw::c_char,
        params: *const ::std::os::raw::c_char,
        callback: gpubuf_call_cb,
        arg: *mut ::core::ffi::c_void,
        request: *mut u64,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_cancel(client: *mut gpubuf_client, request: u64) -> ::std::os::raw::c_int;
    pub fn gpubuf_open(
        client: *mut gpubuf_client,
        name: *const ::std::os::raw::c_char,
        options: *const gpubuf_open_options,
        object: *mut *mut gpubuf_object,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_open_many(
        client: *mut gpubuf_client,
        names: *const *const ::std::os::raw::c_char,
        count: usize,
        options: *const gpubuf_open_options,
        objects: *mut *mut gpubuf_object,
        errors: *mut ::std::os::raw::c_int,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_open_async(
        client: *mut gpubuf_client,
        name: *const ::std::os::raw::c_char,
        options: *const gpubuf_open_options,
        callback: gpubuf_object_cb,
        arg: *mut ::core::ffi::c_void,
        request: *mut u64,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_open_many_async(
        client: *mut gpubuf_client,
        names: *const *const ::std::os::raw::c_char,
        count: usize,
        options: *const gpubuf_open_options,
        callback: gpubuf_objects_cb,
        arg: *mut ::core::ffi::c_void,
        request: *mut u64,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_retain(object: *mut gpubuf_object) -> *mut gpubuf_object;
    pub fn gpubuf_release(object: *mut gpubuf_object);
    pub fn gpubuf_release_many(objects: *const *mut gpubuf_object, count: usize);
    pub fn gpubuf_follow(
        client: *mut gpubuf_client,
        name: *const ::std::os::raw::c_char,
        options: *const gpubuf_open_options,
        view: *mut *mut gpubuf_view,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_view_object(view: *const gpubuf_view) -> *mut gpubuf_object;
    pub fn gpubuf_switch(
        view: *mut gpubuf_view,
        options: *const gpubuf_open_options,
        streams: *const *mut ::core::ffi::c_void,
        stream_count: usize,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_park(
        view: *mut gpubuf_view,
        streams: *const *mut ::core::ffi::c_void,
        stream_count: usize,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_resume(view: *mut gpubuf_view, wait_ms: i64) -> ::std::os::raw::c_int;
    pub fn gpubuf_is_parked(view: *const gpubuf_view) -> bool;
    pub fn gpubuf_unfollow(view: *mut gpubuf_view);
    pub fn gpubuf_kind(object: *const gpubuf_object) -> gpubuf_kind;
    pub fn gpubuf_name(object: *const gpubuf_object) -> *const ::std::os::raw::c_char;
    pub fn gpubuf_object_version(object: *const gpubuf_object) -> u64;
    pub fn gpubuf_label(object: *const gpubuf_object) -> *const ::std::os::raw::c_char;
    pub fn gpubuf_device(object: *const gpubuf_object) -> *const ::std::os::raw::c_char;
    pub fn gpubuf_column_name(object: *const gpubuf_object) -> *const ::std::os::raw::c_char;
    pub fn gpubuf_dtype(object: *const gpubuf_object) -> *const ::std::os::raw::c_char;
    pub fn gpubuf_length(object: *const gpubuf_object) -> u64;
    pub fn gpubuf_offset(object: *const gpubuf_object) -> u64;
    pub fn gpubuf_null_count(object: *const gpubuf_object) -> i64;
    pub fn gpubuf_ndim(object: *const gpubuf_object) -> ::std::os::raw::c_uint;
    pub fn gpubuf_shape(object: *const gpubuf_object) -> *const u64;
    pub fn gpubuf_strides(object: *const gpubuf_object) -> *const i64;
    pub fn gpubuf_memory(
        object: *const gpubuf_object,
        which: gpubuf_which,
        memory: *mut gpubuf_memory,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_is_valid(object: *const gpubuf_object, i: u64) -> bool;
    pub fn gpubuf_string_at(
        column: *const gpubuf_object,
        i: u64,
        length: *mut u64,
    ) -> *const ::std::os::raw::c_char;
    pub fn gpubuf_child_count(object: *const gpubuf_object) -> usize;
    pub fn gpubuf_child(
        object: *mut gpubuf_object,
        i: usize,
        child: *mut *mut gpubuf_object,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_column(
        object: *mut gpubuf_object,
        name: *const ::std::os::raw::c_char,
        column: *mut *mut gpubuf_object,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_slice(
        object: *mut gpubuf_object,
        offset: u64,
        length: u64,
        slice: *mut *mut gpubuf_object,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_select(
        table: *mut gpubuf_object,
        names: *const *const ::std::os::raw::c_char,
        count: usize,
        view: *mut *mut gpubuf_object,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_metadata(
        object: *const gpubuf_object,
        key: *const ::std::os::raw::c_char,
    ) -> *const ::std::os::raw::c_char;
    pub fn gpubuf_metadata_at(
        object: *const gpubuf_object,
        i: usize,
        key: *mut *const ::std::os::raw::c_char,
        value: *mut *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_create(
        client: *mut gpubuf_client,
        name: *const ::std::os::raw::c_char,
        layout: *const gpubuf_layout_spec,
        options: *const gpubuf_create_options,
        object: *mut *mut gpubuf_object,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_create_async(
        client: *mut gpubuf_client,
        name: *const ::std::os::raw::c_char,
        layout: *const gpubuf_layout_spec,
        options: *const gpubuf_create_options,
        callback: gpubuf_object_cb,
        arg: *mut ::core::ffi::c_void,
        request: *mut u64,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_seal(
        object: *mut gpubuf_object,
        null_counts: *const i64,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_protect(object: *mut gpubuf_object) -> ::std::os::raw::c_int;
    pub fn gpubuf_set_label(
        object: *mut gpubuf_object,
        label: *const ::std::os::raw::c_char,
        keep: ::std::os::raw::c_int,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_seal_async(
        object: *mut gpubuf_object,
        null_counts: *const i64,
        callback: gpubuf_object_cb,
        arg: *mut ::core::ffi::c_void,
        request: *mut u64,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_edit(
        client: *mut gpubuf_client,
        name: *const ::std::os::raw::c_char,
        options: *const gpubuf_open_options,
        object: *mut *mut gpubuf_object,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_fill_file(
        object: *mut gpubuf_object,
        which: gpubuf_which,
        ranges: *const gpubuf_file_range,
        count: usize,
        options: *const gpubuf_fill_options,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_fill_begin(
        object: *mut gpubuf_object,
        which: gpubuf_which,
        ranges: *const gpubuf_file_range,
        count: usize,
        options: *const gpubuf_fill_options,
        fill: *mut *mut gpubuf_fill,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_fill_wait(
        fill: *mut gpubuf_fill,
        at: u64,
        bytes: u64,
        timeout_ms: ::std::os::raw::c_int,
        done: *mut u64,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_fill_end(fill: *mut gpubuf_fill);
    pub fn gpubuf_put_bytes(
        client: *mut gpubuf_client,
        name: *const ::std::os::raw::c_char,
        data: *const ::core::ffi::c_void,
        bytes: u64,
        options: *const gpubuf_create_options,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_put_array(
        client: *mut gpubuf_client,
        name: *const ::std::os::raw::c_char,
        dtype: *const ::std::os::raw::c_char,
        ndim: ::std::os::raw::c_uint,
        shape: *const u64,
        strides: *const i64,
        data: *const ::core::ffi::c_void,
        options: *const gpubuf_create_options,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_put_table(
        client: *mut gpubuf_client,
        name: *const ::std::os::raw::c_char,
        columns: *const gpubuf_values,
        count: usize,
        length: u64,
        options: *const gpubuf_create_options,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_put_column(
        client: *mut gpubuf_client,
        name: *const ::std::os::raw::c_char,
        column: *const gpubuf_values,
        length: u64,
        options: *const gpubuf_create_options,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_is_live(object: *const gpubuf_object) -> bool;
    pub fn gpubuf_generation(object: *const gpubuf_object) -> u64;
    pub fn gpubuf_stream_create(
        client: *mut gpubuf_client,
        name: *const ::std::os::raw::c_char,
        dtype: *const ::std::os::raw::c_char,
        ndim: ::std::os::raw::c_uint,
        shape: *const u64,
        options: *const gpubuf_stream_options,
        stream: *mut *mut gpubuf_stream,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_stream_open(
        client: *mut gpubuf_client,
        name: *const ::std::os::raw::c_char,
        options: *const gpubuf_stream_options,
        stream: *mut *mut gpubuf_stream,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_stream_close(stream: *mut gpubuf_stream);
    pub fn gpubuf_stream_object(stream: *const gpubuf_stream) -> *mut gpubuf_object;
    pub fn gpubuf_stream_next(
        stream: *mut gpubuf_stream,
        timeout_ms: i64,
        frame: *mut gpubuf_frame,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_stream_publish(
        stream: *mut gpubuf_stream,
        frame: *const gpubuf_frame,
        work: *mut ::core::ffi::c_void,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_stream_read(
        stream: *mut gpubuf_stream,
        timeout_ms: i64,
        frame: *mut gpubuf_frame,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_stream_wait(
        stream: *mut gpubuf_stream,
        frame: *const gpubuf_frame,
        work: *mut ::core::ffi::c_void,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_stream_done(
        stream: *mut gpubuf_stream,
        frame: *const gpubuf_frame,
        work: *mut ::core::ffi::c_void,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_bundle_open(
        object: *mut gpubuf_object,
        bundle: *mut *mut gpubuf_bundle,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_bundle_parse(
        manifest: *const ::std::os::raw::c_char,
        manifest_bytes: u64,
        bytes: u64,
        bundle: *mut *mut gpubuf_bundle,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_bundle_plan(
        tensors: *const gpubuf_tensor_spec,
        count: usize,
        metadata: *const *const ::std::os::raw::c_char,
        bundle: *mut *mut gpubuf_bundle,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_bundle_layout(bundle: *const gpubuf_bundle, layout: *mut gpubuf_layout_spec);
    pub fn gpubuf_bundle_head(
        bundle: *const gpubuf_bundle,
        bytes: *mut u64,
    ) -> *const ::core::ffi::c_void;
    pub fn gpubuf_bundle_free(bundle: *mut gpubuf_bundle);
    pub fn gpubuf_bundle_count(bundle: *const gpubuf_bundle) -> usize;
    pub fn gpubuf_bundle_at(bundle: *const gpubuf_bundle, i: usize) -> *const gpubuf_tensor;
    pub fn gpubuf_bundle_find(
        bundle: *const gpubuf_bundle,
        name: *const ::std::os::raw::c_char,
        i: *mut usize,
    ) -> *const gpubuf_tensor;
    pub fn gpubuf_bundle_metadata(
        bundle: *const gpubuf_bundle,
        key: *const ::std::os::raw::c_char,
    ) -> *const ::std::os::raw::c_char;
    pub fn gpubuf_bundle_metadata_at(
        bundle: *const gpubuf_bundle,
        i: usize,
        key: *mut *const ::std::os::raw::c_char,
        value: *mut *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_bundle_array(
        bundle: *const gpubuf_bundle,
        i: usize,
        array: *mut *mut gpubuf_object,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_bundle_copy(
        bundle: *const gpubuf_bundle,
        i: usize,
        array: *mut *mut gpubuf_object,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_is_foreign(object: *const gpubuf_object) -> bool;
    pub fn gpubuf_export_arrow(
        object: *mut gpubuf_object,
        schema: *mut ArrowSchema,
        array: *mut ArrowArray,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_put_arrow(
        client: *mut gpubuf_client,
        name: *const ::std::os::raw::c_char,
        schema: *const ArrowSchema,
        array: *const ArrowArray,
        as_table: bool,
        options: *const gpubuf_create_options,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_register_memfd(
        client: *mut gpubuf_client,
        name: *const ::std::os::raw::c_char,
        fd: ::std::os::raw::c_int,
        bytes: u64,
        layout_json: *const ::std::os::raw::c_char,
        options: *const gpubuf_create_options,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_stat(
        client: *mut gpubuf_client,
        name: *const ::std::os::raw::c_char,
        info: *mut gpubuf_info,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_list(
        client: *mut gpubuf_client,
        prefix: *const ::std::os::raw::c_char,
        each: ::core::option::Option<
            unsafe extern "C" fn(
                info: *const gpubuf_info,
                arg: *mut ::core::ffi::c_void,
            ) -> ::std::os::raw::c_int,
        >,
        arg: *mut ::core::ffi::c_void,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_versions(
        client: *mut gpubuf_client,
        name: *const ::std::os::raw::c_char,
        each: ::core::option::Option<
            unsafe extern "C" fn(
                info: *const gpubuf_info,
                arg: *mut ::core::ffi::c_void,
            ) -> ::std::os::raw::c_int,
        >,
        arg: *mut ::core::ffi::c_void,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_delete(
        client: *mut gpubuf_client,
        name: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_pin(
        client: *mut gpubuf_client,
        name: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_unpin(
        client: *mut gpubuf_client,
        name: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_expire(
        client: *mut gpubuf_client,
        name: *const ::std::os::raw::c_char,
        ttl_ms: i64,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_spill(
        client: *mut gpubuf_client,
        name: *const ::std::os::raw::c_char,
        tier: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_restore(
        client: *mut gpubuf_client,
        name: *const ::std::os::raw::c_char,
        wait_ms: i64,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_delete_version(
        client: *mut gpubuf_client,
        name: *const ::std::os::raw::c_char,
        version: u64,
        label: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_expire_version(
        client: *mut gpubuf_client,
        name: *const ::std::os::raw::c_char,
        version: u64,
        label: *const ::std::os::raw::c_char,
        ttl_ms: i64,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_spill_version(
        client: *mut gpubuf_client,
        name: *const ::std::os::raw::c_char,
        version: u64,
        label: *const ::std::os::raw::c_char,
        tier: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_restore_version(
        client: *mut gpubuf_client,
        name: *const ::std::os::raw::c_char,
        version: u64,
        label: *const ::std::os::raw::c_char,
        wait_ms: i64,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_alias(
        client: *mut gpubuf_client,
        name: *const ::std::os::raw::c_char,
        of: *const ::std::os::raw::c_char,
        options: *const gpubuf_alias_options,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_watch(
        client: *mut gpubuf_client,
        prefix: *const ::std::os::raw::c_char,
        callback: gpubuf_event_cb,
        arg: *mut ::core::ffi::c_void,
        watch: *mut u64,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_watch_async(
        client: *mut gpubuf_client,
        prefix: *const ::std::os::raw::c_char,
        callback: gpubuf_event_cb,
        done: gpubuf_watch_cb,
        arg: *mut ::core::ffi::c_void,
        request: *mut u64,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_watch_json(
        client: *mut gpubuf_client,
        params: *const ::std::os::raw::c_char,
        callback: gpubuf_event_json_cb,
        arg: *mut ::core::ffi::c_void,
        watch: *mut u64,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_unwatch(client: *mut gpubuf_client, watch: u64) -> ::std::os::raw::c_int;
    pub fn gpubuf_provide(
        client: *mut gpubuf_client,
        prefix: *const ::std::os::raw::c_char,
        callback: gpubuf_wanted_cb,
        arg: *mut ::core::ffi::c_void,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_provide_async(
        client: *mut gpubuf_client,
        prefix: *const ::std::os::raw::c_char,
        callback: gpubuf_wanted_cb,
        done: gpubuf_call_cb,
        arg: *mut ::core::ffi::c_void,
        request: *mut u64,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_provide_end(
        client: *mut gpubuf_client,
        prefix: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_decline(
        client: *mut gpubuf_client,
        request: u64,
        error: ::std::os::raw::c_int,
        message: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_device_ordinal(object: *const gpubuf_object) -> ::std::os::raw::c_int;
    pub fn gpubuf_read(
        object: *const gpubuf_object,
        which: gpubuf_which,
        offset: u64,
        data: *mut ::core::ffi::c_void,
        bytes: u64,
        stream: *mut ::core::ffi::c_void,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_write(
        object: *mut gpubuf_object,
        which: gpubuf_which,
        offset: u64,
        data: *const ::core::ffi::c_void,
        bytes: u64,
        stream: *mut ::core::ffi::c_void,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_pin_memory(object: *mut gpubuf_object) -> ::std::os::raw::c_int;
    pub fn gpubuf_pinned_memory(figures: *mut gpubuf_pinned_memory) -> ::std::os::raw::c_int;
    pub fn gpubuf_seal_on(
        object: *mut gpubuf_object,
        null_counts: *const i64,
        stream: *mut ::core::ffi::c_void,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_wait_ready(
        object: *mut gpubuf_object,
        stream: *mut ::core::ffi::c_void,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_release_on(
        object: *mut gpubuf_object,
        stream: *mut ::core::ffi::c_void,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_register_device(
        client: *mut gpubuf_client,
        name: *const ::std::os::raw::c_char,
        pointer: *const ::core::ffi::c_void,
        bytes: u64,
        layout_json: *const ::std::os::raw::c_char,
        options: *const gpubuf_create_options,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_register_parts(
        client: *mut gpubuf_client,
        name: *const ::std::os::raw::c_char,
        parts: *const gpubuf_part,
        count: usize,
        layout_json: *const ::std::os::raw::c_char,
        options: *const gpubuf_create_options,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_register_parts_async(
        client: *mut gpubuf_client,
        name: *const ::std::os::raw::c_char,
        parts: *const gpubuf_part,
        count: usize,
        layout_json: *const ::std::os::raw::c_char,
        options: *const gpubuf_create_options,
        callback: gpubuf_call_cb,
        arg: *mut ::core::ffi::c_void,
        request: *mut u64,
    ) -> ::std::os::raw::c_int;
    pub fn gpubuf_export_arrow_device(
        object: *mut gpubuf_object,
        schema: *mut ArrowSchema,
        array: *mut ArrowDeviceArray,
    ) -> ::std::os::raw::c_int;
}
