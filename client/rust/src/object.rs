use std::fmt;
use std::ops::Range;
use std::os::raw::c_void;
use std::ptr::{self, NonNull};
use std::slice;

use crate::client::{c_string, Client};
use crate::element::Element;
use crate::error::{text, Error, Result};
use crate::sys;

/// What an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ObjectKind {
    /// Plain bytes.
    Bytes,
    /// An n-dimensional array of one dtype.
    Array,
    /// An Arrow column.
    Column,
    /// Columns of equal length, by name.
    Table,
    /// Many arrays, by name: a safetensors file.
    Bundle,
    /// A later version's.
    Other(u32),
}

/// One of an object's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Which {
    /// Values; of strings, the characters.
    Data,
    /// The bitmap of valid elements: least significant bit first, 1 is valid, from bit `offset`.
    Mask,
    /// Of strings and lists: `offset + len + 1` integers, `i64` where the dtype begins with
    /// `large_`, else `i32`.
    Offsets,
}

impl Which {
    pub(crate) fn raw(self) -> sys::gpubuf_which {
        match self {
            Which::Data => sys::GPUBUF_DATA,
            Which::Mask => sys::GPUBUF_MASK,
            Which::Offsets => sys::GPUBUF_OFFSETS,
        }
    }
}

/// A stretch of mapped memory: a device pointer for objects on a GPU. Valid while the object lives.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Its first byte; not null.
    pub pointer: *mut c_void,
    /// Its length.
    pub bytes: u64,
    /// Whether it is mapped for writing.
    pub writable: bool,
}

/// An opened object, or a view of one: a reference to a lease. Dropping the last one gives it back.
pub struct Object {
    pub(crate) raw: NonNull<sys::gpubuf_object>,
    pub(crate) client: Client,
}

// The library's objects may be used from any thread (gpubuf.h, "Threads").
unsafe impl Send for Object {}
unsafe impl Sync for Object {}

impl Object {
    /// Takes over a reference that a function of the library has given.
    pub(crate) unsafe fn from_raw(raw: *mut sys::gpubuf_object, client: &Client) -> Self {
        let raw = NonNull::new(raw).expect("a call that succeeded gives an object");
        Object { raw, client: client.clone() }
    }

    /// The C library's object, for functions of [`sys`]. It lives as long as this reference.
    pub fn as_ptr(&self) -> *mut sys::gpubuf_object {
        self.raw.as_ptr()
    }

    /// Its name, or that of the object that a view was made from.
    pub fn name(&self) -> String {
        unsafe { text(sys::gpubuf_name(self.as_ptr())) }
    }

    /// The number of its version, from 1.
    pub fn version(&self) -> u64 {
        unsafe { sys::gpubuf_object_version(self.as_ptr()) }
    }

    /// Its producer's label for the version.
    pub fn label(&self) -> Option<String> {
        let label = unsafe { sys::gpubuf_label(self.as_ptr()) };
        (!label.is_null()).then(|| unsafe { text(label) })
    }

    /// `host`, or a GPU's UUID.
    pub fn device(&self) -> String {
        unsafe { text(sys::gpubuf_device(self.as_ptr())) }
    }

    /// CUDA's ordinal of its GPU in this process; `None` for host memory.
    pub fn device_ordinal(&self) -> Option<u32> {
        u32::try_from(unsafe { sys::gpubuf_device_ordinal(self.as_ptr()) }).ok()
    }

    /// What it is.
    pub fn kind(&self) -> ObjectKind {
        match unsafe { sys::gpubuf_kind(self.as_ptr()) } {
            sys::GPUBUF_KIND_BYTES => ObjectKind::Bytes,
            sys::GPUBUF_KIND_ARRAY => ObjectKind::Array,
            sys::GPUBUF_KIND_COLUMN => ObjectKind::Column,
            sys::GPUBUF_KIND_TABLE => ObjectKind::Table,
            sys::GPUBUF_KIND_BUNDLE => ObjectKind::Bundle,
            other => ObjectKind::Other(other),
        }
    }

    /// The dtype in the protocol's spelling (`float64`, `timestamp[us,UTC]`); empty for bytes,
    /// tables and bundles.
    pub fn dtype(&self) -> String {
        unsafe { text(sys::gpubuf_dtype(self.as_ptr())) }
    }

    /// Rows of a table, elements of a column, extent of an array's first axis (1 without axes), or
    /// bytes.
    pub fn len(&self) -> u64 {
        unsafe { sys::gpubuf_length(self.as_ptr()) }
    }

    /// Whether `len()` is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The column's offset: element i is element `offset() + i` of its buffers.
    pub fn offset(&self) -> u64 {
        unsafe { sys::gpubuf_offset(self.as_ptr()) }
    }

    /// How many elements are null; `None` where that is not known, as for slices.
    pub fn null_count(&self) -> Option<u64> {
        u64::try_from(unsafe { sys::gpubuf_null_count(self.as_ptr()) }).ok()
    }

    /// Whether element i is not null. False past the end, and on a GPU.
    pub fn is_valid(&self, i: u64) -> bool {
        unsafe { sys::gpubuf_is_valid(self.as_ptr(), i) }
    }

    /// An array's extents, in elements.
    pub fn shape(&self) -> &[u64] {
        // The values are the object's own, and never change.
        unsafe { self.axes(sys::gpubuf_shape(self.as_ptr())) }
    }

    /// An array's strides, in bytes.
    pub fn strides(&self) -> &[i64] {
        unsafe { self.axes(sys::gpubuf_strides(self.as_ptr())) }
    }

    unsafe fn axes<T>(&self, values: *const T) -> &[T] {
        match sys::gpubuf_ndim(self.as_ptr()) {
            0 => &[],
            count => slice::from_raw_parts(values, count as usize),
        }
    }

    /// The name of this column in its table or struct.
    pub fn column_name(&self) -> Option<String> {
        let name = unsafe { sys::gpubuf_column_name(self.as_ptr()) };
        (!name.is_null()).then(|| unsafe { text(name) })
    }

    /// The value of a key in the metadata of any object but a bundle.
    pub fn metadata(&self, key: &str) -> Option<String> {
        let key = c_string(key).ok()?;
        let value = unsafe { sys::gpubuf_metadata(self.as_ptr(), key.as_ptr()) };
        (!value.is_null()).then(|| unsafe { text(value) })
    }

    /// Whether the lease was lost when a connection broke: the memory is still mapped, but its
    /// content is no longer promised.
    pub fn is_stale(&self) -> bool {
        unsafe { sys::gpubuf_is_stale(self.as_ptr()) }
    }

    // ---- parts ----

    /// How many columns a table has, or children a nested column.
    pub fn child_count(&self) -> usize {
        unsafe { sys::gpubuf_child_count(self.as_ptr()) }
    }

    /// Child i of a table or nested column: a view that costs no message.
    pub fn child(&self, i: usize) -> Result<Object> {
        self.view(|out| unsafe { sys::gpubuf_child(self.as_ptr(), i, out) })
    }

    /// The column with a name.
    pub fn column(&self, name: &str) -> Result<Object> {
        let name = c_string(name)?;
        self.view(|out| unsafe { sys::gpubuf_column(self.as_ptr(), name.as_ptr(), out) })
    }

    /// Some elements of bytes, an array's first axis, a column or a table.
    pub fn slice(&self, range: Range<u64>) -> Result<Object> {
        let length = range.end.checked_sub(range.start).ok_or_else(|| {
            Error::invalid(format!(
                "the range {}..{} ends before it begins",
                range.start, range.end
            ))
        })?;
        self.view(|out| unsafe { sys::gpubuf_slice(self.as_ptr(), range.start, length, out) })
    }

    /// Some columns of a table, in that order.
    pub fn select(&self, names: &[&str]) -> Result<Object> {
        let names = names.iter().map(|name| c_string(name)).collect::<Result<Vec<_>>>()?;
        let pointers: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
        self.view(|out| unsafe {
            sys::gpubuf_select(self.as_ptr(), pointers.as_ptr(), pointers.len(), out)
        })
    }

    fn view(&self, make: impl FnOnce(*mut *mut sys::gpubuf_object) -> i32) -> Result<Object> {
        let mut raw = ptr::null_mut();
        self.check(make(&mut raw))?;
        Ok(unsafe { Object::from_raw(raw, &self.client) })
    }

    // ---- content ----

    /// Where a buffer lies; `None` if the object has no such buffer.
    pub fn memory(&self, which: Which) -> Result<Option<Memory>> {
        let mut memory = sys::gpubuf_memory { pointer: ptr::null_mut(), bytes: 0, writable: false };
        let r =
            self.check(unsafe { sys::gpubuf_memory(self.as_ptr(), which.raw(), &mut memory) })?;
        Ok((r == 0).then_some(Memory {
            pointer: memory.pointer,
            bytes: memory.bytes,
            writable: memory.writable,
        }))
    }

    /// Copies from a buffer, from byte `offset` of what [`memory`](Self::memory) gives, on the host
    /// or a GPU. Waits until the content is there.
    pub fn read(&self, which: Which, offset: u64, to: &mut [u8]) -> Result<()> {
        self.wait_ready()?;
        let bytes = to.len() as u64;
        let to = to.as_mut_ptr().cast();
        self.check(unsafe {
            sys::gpubuf_read(self.as_ptr(), which.raw(), offset, to, bytes, ptr::null_mut())
        })
        .map(drop)
    }

    /// Waits until the producer's work on a GPU is done. On the host it always is.
    pub fn wait_ready(&self) -> Result<()> {
        self.check(unsafe { sys::gpubuf_wait_ready(self.as_ptr(), ptr::null_mut()) }).map(drop)
    }

    /// A copy of the elements of an array in C order, of a column without its nulls' marks, or of
    /// bytes (`u8`), from the host or a GPU. What a null's element holds is not defined.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        let (offset, count) = self.extent::<T>()?;
        let mut values: Vec<T> = Vec::with_capacity(count);
        self.wait_ready()?;
        let (to, bytes) = (values.as_mut_ptr().cast(), (count * std::mem::size_of::<T>()) as u64);
        self.check(unsafe {
            sys::gpubuf_read(self.as_ptr(), sys::GPUBUF_DATA, offset, to, bytes, ptr::null_mut())
        })?;
        // As many were written, and every pattern of bits is a value.
        unsafe { values.set_len(count) };
        Ok(values)
    }

    /// The same elements in place, with no copy: host memory only.
    ///
    /// # Safety
    /// Nobody may write to the memory while the slice lives. Whoever publishes promises that by
    /// sealing, and the library keeps the producer's own process from it where it can; but the
    /// kernel enforces it only for objects that were created `final` ([`Create::is_final`]).
    ///
    /// [`Create::is_final`]: crate::Create::is_final
    pub unsafe fn values<T: Element>(&self) -> Result<&[T]> {
        if let Some(gpu) = self.device_ordinal() {
            return Err(Error::unsupported(format!(
                "{} lies on GPU {gpu}: to_vec copies it, memory gives the device pointer",
                self.name()
            )));
        }
        let (offset, count) = self.extent::<T>()?;
        if count == 0 {
            return Ok(&[]);
        }
        let memory = self.memory(Which::Data)?.expect("elements have data");
        let first = memory.pointer.cast::<u8>().add(offset as usize).cast::<T>();
        if first as usize % std::mem::align_of::<T>() != 0 {
            return Err(Error::unsupported(format!(
                "{} is not aligned to elements of {}: to_vec copies it",
                self.name(),
                T::DTYPE
            )));
        }
        Ok(slice::from_raw_parts(first, count))
    }

    /// The byte of the first element in the data, and how many elements follow without a gap.
    fn extent<T: Element>(&self) -> Result<(u64, usize)> {
        let (kind, dtype, size) = (self.kind(), self.dtype(), std::mem::size_of::<T>() as u64);
        let fits = match kind {
            ObjectKind::Bytes => T::DTYPE == "uint8",
            ObjectKind::Array | ObjectKind::Column => T::fits(&dtype),
            _ => {
                return Err(Error::invalid(format!(
                    "{} is a {kind:?}, which has parts",
                    self.name()
                )))
            }
        };
        if !fits {
            return Err(Error::invalid(format!(
                "{} has elements of {}, not of {}",
                self.name(),
                if dtype.is_empty() { "bytes" } else { &dtype },
                T::DTYPE
            )));
        }
        let mut count = self.len();
        let mut offset = 0;
        if kind == ObjectKind::Array {
            let mut stride = size as i64;
            count = self.shape().iter().product();
            for (extent, own) in self.shape().iter().zip(self.strides()).rev() {
                if count > 0 && *extent > 1 && *own != stride {
                    return Err(Error::unsupported(format!("{} is not in C order", self.name())));
                }
                stride *= *extent as i64;
            }
        } else if kind == ObjectKind::Column {
            offset = self.offset() * size;
        }
        // The library has checked every buffer's length against the layout; this is for `unsafe`.
        let bytes = self.memory(Which::Data)?.map_or(0, |memory| memory.bytes);
        match count.checked_mul(size).and_then(|length| length.checked_add(offset)) {
            Some(end) if end <= bytes || count == 0 => Ok((offset, count as usize)),
            _ => Err(Error::invalid(format!("{} has {bytes} bytes of data, too few", self.name()))),
        }
    }

    /// The text of element i of a column of strings, copied; `None` if it is null, past the end, no
    /// UTF-8, or on a GPU.
    pub fn text(&self, i: u64) -> Option<String> {
        let mut length = 0;
        let first = unsafe { sys::gpubuf_string_at(self.as_ptr(), i, &mut length) };
        let first = NonNull::new(first as *mut u8)?;
        let mut copy = vec![0; length as usize];
        unsafe { ptr::copy_nonoverlapping(first.as_ptr(), copy.as_mut_ptr(), copy.len()) };
        String::from_utf8(copy).ok()
    }

    pub(crate) fn write(&self, which: Which, offset: u64, data: &[u8]) -> Result<()> {
        let (bytes, from) = (data.len() as u64, data.as_ptr().cast());
        self.check(unsafe {
            sys::gpubuf_write(self.as_ptr(), which.raw(), offset, from, bytes, ptr::null_mut())
        })
        .map(drop)
    }

    pub(crate) fn check(&self, r: i32) -> Result<i32> {
        if r < 0 {
            let message = unsafe { text(sys::gpubuf_object_errmsg(self.as_ptr())) };
            return Err(Error::new(r, message));
        }
        Ok(r)
    }
}

impl Clone for Object {
    fn clone(&self) -> Self {
        unsafe { Object::from_raw(sys::gpubuf_retain(self.as_ptr()), &self.client) }
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        unsafe { sys::gpubuf_release(self.as_ptr()) }
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Object")
            .field("name", &self.name())
            .field("version", &self.version())
            .field("kind", &self.kind())
            .field("dtype", &self.dtype())
            .field("len", &self.len())
            .field("device", &self.device())
            .finish()
    }
}
