use std::ptr;

use crate::client::{c_string, open_options, optional};
use crate::{sys, Client, Create, Layout, Object, Open, Result, Which};

/// What a [`Live`] object is opened for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Access {
    /// To read it. Its memory is mapped read-only.
    Read,
    /// To write it, beside others who write.
    Write,
    /// To write it as the only writer. Opening waits ([`Open::wait`]) until all others are over.
    Exclusive,
}

/// Memory that changes while others read it: an object that is never sealed.
///
/// ```no_run
/// # fn main() -> gpubuf::Result<()> {
/// # let client = gpubuf::Client::connect()?;
/// use gpubuf::{Access, Create, Layout, Open, Which};
///
/// client.create_live("position", &Layout::array("float64", &[3]), &Create::new())?;
/// let mut mine = client.open_live("position", Access::Exclusive, &Open::new())?;
/// mine.write(Which::Data, 0, &1.5_f64.to_ne_bytes())?;
///
/// // in another process
/// let seen = client.open_live("position", Access::Read, &Open::new())?;
/// let mut bytes = [0; 8];
/// seen.read(Which::Data, 0, &mut bytes)?;
/// # Ok(())
/// # }
/// ```
///
/// It outlives its creator, and is there at once. A reader sees at once what is written, also a half
/// of it: put into the memory what your readers need to know what is complete. Copies are all that
/// is safe here; who knows more has the pointer by [`object`](Self::object).
///
/// A claim ([`Access::Exclusive`]) ends with the object, or when its holder's process executes
/// nothing any more. Each has a [`generation`](Self::generation).
#[derive(Debug)]
pub struct Live(Object);

impl Live {
    /// The object. [`Object::values`] of it is not sound: others may write meanwhile.
    pub fn object(&self) -> &Object {
        &self.0
    }

    /// The number of the claim, one higher each time; `None` without one.
    pub fn generation(&self) -> Option<u64> {
        let generation = unsafe { sys::gpubuf_generation(self.0.as_ptr()) };
        (generation > 0).then_some(generation)
    }

    /// Copies `data` to byte `offset` of a buffer, on the host or a GPU.
    pub fn write(&mut self, which: Which, offset: u64, data: &[u8]) -> Result<()> {
        self.0.write(which, offset, data)
    }

    /// Copies from a buffer, from byte `offset` on.
    pub fn read(&self, which: Which, offset: u64, to: &mut [u8]) -> Result<()> {
        self.0.read(which, offset, to)
    }
}

impl Client {
    /// Makes live memory, which others find at once, mapped for writing. Zeros to begin with.
    pub fn create_live(&self, name: &str, layout: &Layout, how: &Create) -> Result<Live> {
        let mut how = how.clone();
        how.live = true;
        self.make(name, layout, &how).map(Live)
    }

    /// Opens live memory.
    pub fn open_live(&self, name: &str, access: Access, how: &Open) -> Result<Live> {
        let (name, label) = (c_string(name)?, optional(how.label.as_deref())?);
        let mut options = open_options(how, &label);
        options.write = access != Access::Read;
        options.exclusive = access == Access::Exclusive;
        let mut raw = ptr::null_mut();
        self.check(unsafe { sys::gpubuf_open(self.as_ptr(), name.as_ptr(), &options, &mut raw) })?;
        Ok(Live(unsafe { Object::from_raw(raw, self) }))
    }
}
