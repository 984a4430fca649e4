use std::ffi::{CString, NulError};
use std::fmt;
use std::os::raw::{c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Duration;

use crate::error::{text, Error, Result};
use crate::object::Object;
use crate::sys;

/// A connection to the daemon. A clone is the same connection, which ends with the last clone and
/// the last [`Object`] of it.
#[derive(Clone)]
pub struct Client(Arc<Handle>);

struct Handle(NonNull<sys::gpubuf_client>);

// The library's clients may be used from any thread (gpubuf.h, "Threads").
unsafe impl Send for Handle {}
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        unsafe { sys::gpubuf_disconnect(self.0.as_ptr()) }
    }
}

/// How to connect.
#[derive(Clone, Debug, Default)]
pub struct Connect {
    path: Option<PathBuf>,
    name: Option<String>,
    timeout: Option<Duration>,
}

impl Connect {
    /// To the socket that `GPUBUFD_SOCKET` names, or the first usual one that exists.
    pub fn new() -> Self {
        Self::default()
    }

    /// The daemon's socket.
    pub fn path(mut self, path: impl AsRef<Path>) -> Self {
        self.path = Some(path.as_ref().to_owned());
        self
    }

    /// What `gpubufctl ps` shows, in place of the program's name.
    pub fn client_name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// How long to try to connect and greet; 5 s if this is not called.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Connects.
    pub fn connect(&self) -> Result<Client> {
        let path = self.path.as_ref().map(|path| CString::new(path.as_os_str().as_bytes()));
        let path = path.transpose().map_err(has_nul)?;
        let name = optional(self.name.as_deref())?;
        let options = sys::gpubuf_connect_options {
            size: std::mem::size_of::<sys::gpubuf_connect_options>(),
            path: pointer(&path),
            client_name: pointer(&name),
            timeout_ms: self
                .timeout
                .map_or(0, |time| milliseconds(time).clamp(1, 1 << 30) as c_int),
            // Every member of an option struct may be 0.
            ..unsafe { std::mem::zeroed() }
        };
        let mut raw = ptr::null_mut();
        let r = unsafe { sys::gpubuf_connect(&mut raw, &options) };
        match NonNull::new(raw) {
            Some(raw) if r >= 0 => Ok(Client(Arc::new(Handle(raw)))),
            _ => Err(Error::new(r, unsafe { text(sys::gpubuf_errmsg(ptr::null())) })),
        }
    }
}

/// Which version to open, and for how long to wait.
#[derive(Clone, Debug, Default)]
pub struct Open {
    version: u64,
    pub(crate) label: Option<String>,
    wait: Duration,
}

impl Open {
    /// The current version; no waiting.
    pub fn new() -> Self {
        Self::default()
    }

    /// This version of the name.
    pub fn version(mut self, version: u64) -> Self {
        self.version = version;
        self
    }

    /// The newest version with this label.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Waits that long for the object to exist, and for a provider to make it.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }
}

/// A name for a part of an object.
#[derive(Clone, Debug, Default)]
pub struct Alias {
    rows: Option<(u64, u64)>,
    columns: Vec<String>,
    replace: bool,
}

impl Alias {
    /// The whole object.
    pub fn new() -> Self {
        Self::default()
    }

    /// Rows, elements or bytes `range.start` to `range.end`.
    pub fn rows(mut self, range: std::ops::Range<u64>) -> Self {
        self.rows = Some((range.start, range.end.saturating_sub(range.start)));
        self
    }

    /// Some columns of a table.
    pub fn columns<I: IntoIterator<Item = S>, S: Into<String>>(mut self, names: I) -> Self {
        self.columns = names.into_iter().map(Into::into).collect();
        self
    }

    /// Takes the name from an object that has it.
    pub fn replace(mut self, replace: bool) -> Self {
        self.replace = replace;
        self
    }
}

/// What the daemon knows of one version of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Info {
    /// Its name.
    pub name: String,
    /// Its number.
    pub version: u64,
    /// Its producer's label; empty: none.
    pub label: String,
    /// Whether it is published.
    pub sealed: bool,
    /// Where the content is: `device`, or the tier `host` or `disk`.
    pub tier: String,
    /// `host`, or a GPU's UUID.
    pub device: String,
    /// Its length.
    pub bytes: u64,
    /// The rights of its user, group and others, as in `chmod`.
    pub mode: u32,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// How many sessions hold it.
    pub leases: u64,
    /// Whether it is never evicted.
    pub pinned: bool,
    /// Whether the kernel lets nobody write its memory any more.
    pub is_final: bool,
    /// Whether it is an earlier version that can still be opened.
    pub older: bool,
}

impl Info {
    pub(crate) unsafe fn from_raw(raw: &sys::gpubuf_info) -> Self {
        Info {
            name: text(raw.name.as_ptr()),
            version: raw.version,
            label: text(raw.label.as_ptr()),
            sealed: text(raw.state.as_ptr()) == "sealed",
            tier: text(raw.tier.as_ptr()),
            device: text(raw.device.as_ptr()),
            bytes: raw.bytes,
            mode: raw.mode,
            uid: raw.uid,
            gid: raw.gid,
            leases: raw.leases,
            pinned: raw.pinned,
            is_final: raw.final_,
            older: raw.older,
        }
    }
}

unsafe extern "C" fn collect(info: *const sys::gpubuf_info, to: *mut c_void) -> c_int {
    (*to.cast::<Vec<Info>>()).push(Info::from_raw(&*info));
    0
}

impl Client {
    /// Connects to the daemon: [`Connect`] has options.
    pub fn connect() -> Result<Self> {
        Connect::new().connect()
    }

    /// The C library's client, for functions of [`sys`]. It lives as long as this clone.
    pub fn as_ptr(&self) -> *mut sys::gpubuf_client {
        self.0 .0.as_ptr()
    }

    /// The daemon's identity, which a restart that loses no object keeps.
    pub fn instance(&self) -> String {
        unsafe { text(sys::gpubuf_instance(self.as_ptr())) }
    }

    /// Opens a sealed object for reading, at the cost of one round trip at most; nothing is copied.
    pub fn open(&self, name: &str) -> Result<Object> {
        self.open_with(name, &Open::new())
    }

    /// As [`open`](Self::open), with options.
    pub fn open_with(&self, name: &str, how: &Open) -> Result<Object> {
        let (name, label) = (c_string(name)?, optional(how.label.as_deref())?);
        let options = open_options(how, &label);
        let mut raw = ptr::null_mut();
        self.check(unsafe { sys::gpubuf_open(self.as_ptr(), name.as_ptr(), &options, &mut raw) })?;
        Ok(unsafe { Object::from_raw(raw, self) })
    }

    /// Opens several objects by one request. Each that could not be opened has an error of its own.
    pub fn open_many(&self, names: &[&str], how: &Open) -> Result<Vec<Result<Object>>> {
        let names = names.iter().map(|name| c_string(name)).collect::<Result<Vec<_>>>()?;
        let pointers: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
        let label = optional(how.label.as_deref())?;
        let options = open_options(how, &label);
        let (mut raw, mut errors) = (vec![ptr::null_mut(); names.len()], vec![0; names.len()]);
        self.check(unsafe {
            sys::gpubuf_open_many(
                self.as_ptr(),
                pointers.as_ptr(),
                pointers.len(),
                &options,
                raw.as_mut_ptr(),
                errors.as_mut_ptr(),
            )
        })?;
        let object = |(raw, error): (*mut sys::gpubuf_object, c_int)| {
            if raw.is_null() {
                Err(Error::of_code(error))
            } else {
                Ok(unsafe { Object::from_raw(raw, self) })
            }
        };
        Ok(raw.into_iter().zip(errors).map(object).collect())
    }

    /// Describes an object without opening it.
    pub fn stat(&self, name: &str) -> Result<Info> {
        let name = c_string(name)?;
        let mut info = unsafe { std::mem::zeroed() };
        self.check(unsafe { sys::gpubuf_stat(self.as_ptr(), name.as_ptr(), &mut info) })?;
        Ok(unsafe { Info::from_raw(&info) })
    }

    /// The objects whose names begin with `prefix`, in the order of their names.
    pub fn list(&self, prefix: &str) -> Result<Vec<Info>> {
        let (prefix, mut found) = (c_string(prefix)?, Vec::new());
        let to = ptr::addr_of_mut!(found).cast();
        self.check(unsafe { sys::gpubuf_list(self.as_ptr(), prefix.as_ptr(), Some(collect), to) })?;
        Ok(found)
    }

    /// Each version of a name, the newest first.
    pub fn versions(&self, name: &str) -> Result<Vec<Info>> {
        let (name, mut found) = (c_string(name)?, Vec::new());
        let to = ptr::addr_of_mut!(found).cast();
        self.check(unsafe {
            sys::gpubuf_versions(self.as_ptr(), name.as_ptr(), Some(collect), to)
        })?;
        Ok(found)
    }

    /// Removes a name with all its versions; the memory is freed with the last lease.
    pub fn delete(&self, name: &str) -> Result<()> {
        let name = c_string(name)?;
        self.done(unsafe { sys::gpubuf_delete(self.as_ptr(), name.as_ptr()) })
    }

    /// Keeps an object from being evicted.
    pub fn pin(&self, name: &str) -> Result<()> {
        let name = c_string(name)?;
        self.done(unsafe { sys::gpubuf_pin(self.as_ptr(), name.as_ptr()) })
    }

    /// Lets it be evicted again.
    pub fn unpin(&self, name: &str) -> Result<()> {
        let name = c_string(name)?;
        self.done(unsafe { sys::gpubuf_unpin(self.as_ptr(), name.as_ptr()) })
    }

    /// Deletes the object that long from now; `None`: never.
    pub fn expire(&self, name: &str, after: Option<Duration>) -> Result<()> {
        let (name, ttl) = (c_string(name)?, after.map_or(0, |time| milliseconds(time).max(1)));
        self.done(unsafe { sys::gpubuf_expire(self.as_ptr(), name.as_ptr(), ttl) })
    }

    /// Moves an object to a tier below its device; `None`: the first that there is.
    pub fn spill(&self, name: &str, tier: Option<&str>) -> Result<()> {
        let (name, tier) = (c_string(name)?, optional(tier)?);
        self.done(unsafe { sys::gpubuf_spill(self.as_ptr(), name.as_ptr(), pointer(&tier)) })
    }

    /// Brings it back ahead of an open, waiting at most so long for room.
    pub fn restore(&self, name: &str, wait: Duration) -> Result<()> {
        let name = c_string(name)?;
        let wait = milliseconds(wait);
        self.done(unsafe { sys::gpubuf_restore(self.as_ptr(), name.as_ptr(), wait) })
    }

    /// Gives a part of a sealed object a name of its own; the memory is shared.
    pub fn alias(&self, name: &str, of: &str, part: &Alias) -> Result<()> {
        let (name, of) = (c_string(name)?, c_string(of)?);
        let columns = part.columns.iter().map(|name| c_string(name)).collect::<Result<Vec<_>>>()?;
        let mut pointers: Vec<_> = columns.iter().map(|name| name.as_ptr()).collect();
        pointers.push(ptr::null());
        let (offset, length) = part.rows.unwrap_or_default();
        let options = sys::gpubuf_alias_options {
            size: std::mem::size_of::<sys::gpubuf_alias_options>(),
            slice: part.rows.is_some(),
            offset,
            length,
            columns: if columns.is_empty() { ptr::null() } else { pointers.as_ptr() },
            replace: part.replace,
            ..unsafe { std::mem::zeroed() }
        };
        self.done(unsafe { sys::gpubuf_alias(self.as_ptr(), name.as_ptr(), of.as_ptr(), &options) })
    }

    /// Calls any method of the protocol that carries no descriptors: `params` and the result are
    /// JSON. Waits at most so long; `None`: for ever.
    pub fn call(&self, method: &str, params: &str, timeout: Option<Duration>) -> Result<String> {
        let (method, params) = (c_string(method)?, c_string(params)?);
        let timeout = timeout.map_or(-1, |time| milliseconds(time).min(1 << 30) as c_int);
        let mut result = ptr::null_mut();
        self.check(unsafe {
            sys::gpubuf_call(self.as_ptr(), method.as_ptr(), params.as_ptr(), timeout, &mut result)
        })?;
        let json = unsafe { text(result) };
        unsafe { sys::gpubuf_free(result.cast()) };
        Ok(json)
    }

    pub(crate) fn check(&self, r: c_int) -> Result<c_int> {
        if r < 0 {
            return Err(Error::new(r, unsafe { text(sys::gpubuf_errmsg(self.as_ptr())) }));
        }
        Ok(r)
    }

    fn done(&self, r: c_int) -> Result<()> {
        self.check(r).map(drop)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("instance", &self.instance()).finish()
    }
}

pub(crate) fn open_options(how: &Open, label: &Option<CString>) -> sys::gpubuf_open_options {
    sys::gpubuf_open_options {
        size: std::mem::size_of::<sys::gpubuf_open_options>(),
        version: how.version,
        wait_ms: milliseconds(how.wait),
        label: pointer(label),
        // Every member of an option struct may be 0.
        ..unsafe { std::mem::zeroed() }
    }
}

pub(crate) fn milliseconds(time: Duration) -> i64 {
    time.as_millis().min(i64::MAX as u128) as i64
}

pub(crate) fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(has_nul)
}

fn has_nul(error: NulError) -> Error {
    Error::invalid(format!("a NUL byte at {} of a text, which has none", error.nul_position()))
}

pub(crate) fn optional(text: Option<&str>) -> Result<Option<CString>> {
    text.map(c_string).transpose()
}

pub(crate) fn pointer(text: &Option<CString>) -> *const c_char {
    text.as_ref().map_or(ptr::null(), |text| text.as_ptr())
}
