use std::ffi::CString;
use std::os::raw::{c_char, c_void};
use std::ptr;
use std::slice;
use std::time::Duration;

use crate::client::{c_string, milliseconds, optional, pointer, Client};
use crate::element::Element;
use crate::error::{Error, Result};
use crate::object::{Object, Which};
use crate::sys;

/// The fate of an object when memory is short and nobody holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evict {
    /// As the daemon was started.
    Default,
    /// The content moves to a tier.
    Spill,
    /// The object is removed.
    Drop,
    /// It stays.
    Keep,
}

/// How to publish.
#[derive(Clone, Debug)]
pub struct Create {
    device: Option<String>,
    mode: u32,
    replace: bool,
    is_final: bool,
    ttl: Duration,
    evict: Evict,
    wait: Duration,
    label: Option<String>,
    keep: u32,
    own: bool,
    pub(crate) live: bool,
}

impl Default for Create {
    fn default() -> Self {
        Self::new()
    }
}

impl Create {
    /// On the daemon's default device, for this user only.
    pub fn new() -> Self {
        Create {
            device: None,
            mode: 0,
            replace: false,
            is_final: false,
            ttl: Duration::ZERO,
            evict: Evict::Default,
            wait: Duration::ZERO,
            label: None,
            keep: 0,
            own: false,
            live: false,
        }
    }

    /// `host`, `cuda:N` or a GPU's UUID.
    pub fn device(mut self, device: impl Into<String>) -> Self {
        self.device = Some(device.into());
        self
    }

    /// The rights of group and others, as in `chmod`: 0o640, for example.
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    /// Takes the name from an object that has it.
    pub fn replace(mut self, replace: bool) -> Self {
        self.replace = replace;
        self
    }

    /// Once it is sealed, the kernel keeps everybody from changing it; host memory only.
    pub fn is_final(mut self, is_final: bool) -> Self {
        self.is_final = is_final;
        self
    }

    /// Deletes it that long after its seal.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Its fate when memory is short.
    pub fn evict(mut self, evict: Evict) -> Self {
        self.evict = evict;
        self
    }

    /// Waits that long for room.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// A label for this version.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// How many older versions of the name can still be opened; at most 8.
    pub fn keep(mut self, versions: u32) -> Self {
        self.keep = versions;
        self
    }

    /// In a segment of its own, as a [`View`](crate::View) needs it.
    pub fn own(mut self, own: bool) -> Self {
        self.own = own;
        self
    }

    /// Calls `f` with the C library's options and gives the version that it published.
    fn with<R>(
        &self,
        f: impl FnOnce(&sys::gpubuf_create_options) -> Result<R>,
    ) -> Result<(R, u64)> {
        let (device, label) = (optional(self.device.as_deref())?, optional(self.label.as_deref())?);
        let mut version = 0;
        let options = sys::gpubuf_create_options {
            size: std::mem::size_of::<sys::gpubuf_create_options>(),
            device: pointer(&device),
            mode: self.mode,
            replace: self.replace,
            ttl_ms: milliseconds(self.ttl),
            evict: match self.evict {
                Evict::Default => sys::GPUBUF_EVICT_DEFAULT,
                Evict::Spill => sys::GPUBUF_EVICT_SPILL,
                Evict::Drop => sys::GPUBUF_EVICT_DROP,
                Evict::Keep => sys::GPUBUF_EVICT_KEEP,
            },
            wait_ms: milliseconds(self.wait),
            final_: self.is_final,
            version: &mut version,
            label: pointer(&label),
            keep: self.keep,
            own: self.own,
            live: self.live,
            // Every member of an option struct may be 0.
            ..unsafe { std::mem::zeroed() }
        };
        let result = f(&options)?;
        Ok((result, version))
    }
}

/// A column of a table in memory, for [`Client::put_table`].
pub struct Column<'a> {
    name: CString,
    dtype: CString,
    values: *const c_void,
    valid: Option<&'a [bool]>,
    length: usize,
    // What `values` points to, for text, and the texts themselves.
    _pointers: Vec<*const c_char>,
    _texts: Vec<CString>,
}

impl<'a> Column<'a> {
    /// Numbers.
    pub fn new<T: Element>(name: &str, values: &'a [T]) -> Result<Self> {
        Ok(Column {
            name: c_string(name)?,
            dtype: c_string(T::DTYPE)?,
            values: values.as_ptr().cast(),
            valid: None,
            length: values.len(),
            _pointers: Vec::new(),
            _texts: Vec::new(),
        })
    }

    /// Texts without NUL bytes; `None` is a null.
    pub fn text<S: AsRef<str>>(name: &str, values: &[Option<S>]) -> Result<Self> {
        let mut texts = Vec::with_capacity(values.len());
        let mut pointers = Vec::with_capacity(values.len());
        for value in values {
            pointers.push(match value {
                Some(value) => {
                    texts.push(c_string(value.as_ref())?);
                    texts[texts.len() - 1].as_ptr()
                }
                None => ptr::null(),
            });
        }
        Ok(Column {
            name: c_string(name)?,
            dtype: c_string("utf8")?,
            values: pointers.as_ptr().cast(),
            valid: None,
            length: values.len(),
            _pointers: pointers,
            _texts: texts,
        })
    }

    /// False where an element is null, whatever its value.
    pub fn valid(mut self, valid: &'a [bool]) -> Self {
        self.valid = Some(valid);
        self
    }

    fn raw(&self) -> sys::gpubuf_values {
        sys::gpubuf_values {
            name: self.name.as_ptr(),
            dtype: self.dtype.as_ptr(),
            values: self.values,
            valid: self.valid.map_or(ptr::null(), |valid| valid.as_ptr()),
        }
    }
}

/// What to create: see [`Client::create`].
#[derive(Clone, Debug)]
pub struct Layout {
    bytes: u64,
    dtype: Option<String>,
    shape: Vec<u64>,
}

impl Layout {
    /// Plain bytes.
    pub fn bytes(bytes: u64) -> Self {
        Layout { bytes, dtype: None, shape: Vec::new() }
    }

    /// An array in C order of a dtype in the protocol's spelling, such as `bfloat16`.
    pub fn array(dtype: impl Into<String>, shape: &[u64]) -> Self {
        Layout { bytes: 0, dtype: Some(dtype.into()), shape: shape.to_vec() }
    }
}

/// An object that nobody else sees yet. Dropping it without a seal ends it.
#[derive(Debug)]
pub struct Writer(Object);

/// A seal that failed, with the object, which is as before and may be sealed again.
#[derive(Debug)]
pub struct SealError {
    /// Why.
    pub error: Error,
    /// What was to be sealed.
    pub writer: Writer,
}

impl From<SealError> for Error {
    fn from(failed: SealError) -> Self {
        failed.error
    }
}

impl Writer {
    /// The C library's object.
    pub fn as_ptr(&self) -> *mut sys::gpubuf_object {
        self.0.as_ptr()
    }

    /// Copies `data` to byte `offset` of a buffer, on the host or a GPU.
    pub fn write(&mut self, which: Which, offset: u64, data: &[u8]) -> Result<()> {
        self.0.write(which, offset, data)
    }

    /// The data, to be written in place; host memory only. What is not written has whatever older
    /// objects of this user left there.
    pub fn bytes_mut(&mut self) -> Result<&mut [u8]> {
        if self.0.device_ordinal().is_some() {
            return Err(Error::unsupported(format!(
                "{} lies on a GPU: write copies to it",
                self.0.name()
            )));
        }
        match self.0.memory(Which::Data)? {
            // Nobody else has the memory until the seal, which ends the borrow.
            Some(memory) if memory.bytes > 0 => Ok(unsafe {
                slice::from_raw_parts_mut(memory.pointer.cast(), memory.bytes as usize)
            }),
            _ => Ok(&mut []),
        }
    }

    /// Publishes the object, and gives a lease on it.
    pub fn seal(self) -> std::result::Result<Object, SealError> {
        let r = unsafe { sys::gpubuf_seal(self.0.as_ptr(), ptr::null()) };
        match self.0.check(r) {
            Ok(_) => Ok(self.0),
            Err(error) => Err(SealError { error, writer: self }),
        }
    }
}

impl Client {
    /// Publishes bytes, and gives the number of the version.
    pub fn put_bytes(&self, name: &str, data: &[u8], how: &Create) -> Result<u64> {
        let name = c_string(name)?;
        let put = |options: &_| {
            self.check(unsafe {
                let (first, bytes) = (data.as_ptr().cast(), data.len() as u64);
                sys::gpubuf_put_bytes(self.as_ptr(), name.as_ptr(), first, bytes, options)
            })
        };
        how.with(put).map(|(_, version)| version)
    }

    /// Publishes an array in C order, and gives the number of the version.
    pub fn put_array<T: Element>(
        &self,
        name: &str,
        values: &[T],
        shape: &[u64],
        how: &Create,
    ) -> Result<u64> {
        let count = shape.iter().try_fold(1_u64, |product, extent| product.checked_mul(*extent));
        if count != Some(values.len() as u64) {
            return Err(Error::invalid(format!(
                "{} values do not fill the shape {shape:?}",
                values.len()
            )));
        }
        let (name, dtype) = (c_string(name)?, c_string(T::DTYPE)?);
        let put = |options: &_| {
            self.check(unsafe {
                sys::gpubuf_put_array(
                    self.as_ptr(),
                    name.as_ptr(),
                    dtype.as_ptr(),
                    shape.len() as u32,
                    shape.as_ptr(),
                    ptr::null(),
                    values.as_ptr().cast(),
                    options,
                )
            })
        };
        how.with(put).map(|(_, version)| version)
    }

    /// Publishes a table, and gives the number of the version. The columns are of equal length.
    pub fn put_table(&self, name: &str, columns: &[Column<'_>], how: &Create) -> Result<u64> {
        let rows = columns.first().map_or(0, |column| column.length);
        for column in columns {
            let lengths = [column.length, column.valid.map_or(rows, |valid| valid.len())];
            if let Some(other) = lengths.iter().find(|length| **length != rows) {
                return Err(Error::invalid(format!(
                    "column {:?} has {other} values or marks, the first has {rows}",
                    column.name
                )));
            }
        }
        let (name, raw) = (c_string(name)?, columns.iter().map(Column::raw).collect::<Vec<_>>());
        let put = |options: &_| {
            self.check(unsafe {
                sys::gpubuf_put_table(
                    self.as_ptr(),
                    name.as_ptr(),
                    raw.as_ptr(),
                    raw.len(),
                    rows as u64,
                    options,
                )
            })
        };
        how.with(put).map(|(_, version)| version)
    }

    /// Allocates an object, mapped for writing: fill it, then [`Writer::seal`] it.
    pub fn create(&self, name: &str, layout: &Layout, how: &Create) -> Result<Writer> {
        self.make(name, layout, how).map(Writer)
    }

    pub(crate) fn make(&self, name: &str, layout: &Layout, how: &Create) -> Result<Object> {
        let (name, dtype) = (c_string(name)?, optional(layout.dtype.as_deref())?);
        let spec = sys::gpubuf_layout_spec {
            kind: if dtype.is_some() { sys::GPUBUF_KIND_ARRAY } else { sys::GPUBUF_KIND_BYTES },
            bytes: layout.bytes,
            dtype: pointer(&dtype),
            ndim: layout.shape.len() as u32,
            shape: layout.shape.as_ptr(),
            // A description says nothing by 0.
            ..unsafe { std::mem::zeroed() }
        };
        let mut raw = ptr::null_mut();
        how.with(|options| {
            self.check(unsafe {
                sys::gpubuf_create(self.as_ptr(), name.as_ptr(), &spec, options, &mut raw)
            })
        })?;
        Ok(unsafe { Object::from_raw(raw, self) })
    }
}
