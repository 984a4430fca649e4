use std::ffi::CStr;
use std::fmt;
use std::os::raw::c_int;

use crate::sys;

/// What a call failed of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// An argument is missing, unknown, of the wrong type or out of range.
    Invalid,
    /// No such object, or none that this user may read.
    NotFound,
    /// The name is taken.
    Exists,
    /// Not enough memory on the device.
    NoSpace,
    /// Not permitted.
    Denied,
    /// In a state that forbids it.
    Busy,
    /// The time allowed has passed.
    Timeout,
    /// A lease, version or segment that is no more.
    Stale,
    /// A limit is reached.
    Limit,
    /// The device or its driver failed.
    Device,
    /// Not supported by this build, device or object.
    Unsupported,
    /// Cannot be had now; it may be there later.
    Unavailable,
    /// The process is out of memory.
    NoMemory,
    /// No daemon there.
    Connect,
    /// The connection is closed.
    Closed,
    /// The connection belongs to the parent process.
    Forked,
    /// Any other; see [`Error::code`].
    Other,
}

/// A failed call: a code, and the sentence that explains it, often the daemon's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    code: c_int,
    message: String,
}

/// What calls of this crate return.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(code: c_int, message: impl Into<String>) -> Self {
        Error { code, message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(sys::GPUBUF_E_INVALID, message)
    }

    pub(crate) fn unsupported(message: impl Into<String>) -> Self {
        Self::new(sys::GPUBUF_E_UNSUPPORTED, message)
    }

    /// The code alone, with its fixed text.
    pub(crate) fn of_code(code: c_int) -> Self {
        // Static text, never NULL.
        Self::new(code, unsafe { text(sys::gpubuf_strerror(code)) })
    }

    /// The GPUBUF_E_ code.
    pub fn code(&self) -> i32 {
        self.code
    }

    /// What it is, to match on.
    pub fn kind(&self) -> Kind {
        match self.code {
            sys::GPUBUF_E_INVALID => Kind::Invalid,
            sys::GPUBUF_E_NOT_FOUND => Kind::NotFound,
            sys::GPUBUF_E_EXISTS => Kind::Exists,
            sys::GPUBUF_E_NO_SPACE => Kind::NoSpace,
            sys::GPUBUF_E_DENIED => Kind::Denied,
            sys::GPUBUF_E_BUSY => Kind::Busy,
            sys::GPUBUF_E_TIMEOUT => Kind::Timeout,
            sys::GPUBUF_E_STALE => Kind::Stale,
            sys::GPUBUF_E_LIMIT => Kind::Limit,
            sys::GPUBUF_E_DEVICE => Kind::Device,
            sys::GPUBUF_E_UNSUPPORTED => Kind::Unsupported,
            sys::GPUBUF_E_UNAVAILABLE => Kind::Unavailable,
            sys::GPUBUF_E_NO_MEMORY => Kind::NoMemory,
            sys::GPUBUF_E_CONNECT => Kind::Connect,
            sys::GPUBUF_E_CLOSED => Kind::Closed,
            sys::GPUBUF_E_FORKED => Kind::Forked,
            _ => Kind::Other,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// A copy of a C string; empty for NULL. The caller answers for `pointer`.
pub(crate) unsafe fn text(pointer: *const std::os::raw::c_char) -> String {
    if pointer.is_null() {
        String::new()
    } else {
        CStr::from_ptr(pointer).to_string_lossy().into_owned()
    }
}
