use std::ptr::{self, NonNull};
use std::time::Duration;

use crate::client::{c_string, milliseconds, open_options, optional};
use crate::{sys, Client, Object, Open, Result};

/// One version of a name after another, at the same addresses: pointers that were made for one
/// version, and what was compiled with them, work on the next.
///
/// ```no_run
/// # fn main() -> gpubuf::Result<()> {
/// # let client = gpubuf::Client::connect()?;
/// use gpubuf::{Create, Open, Which};
///
/// client.put_bytes("policy", &[1; 4096], &Create::new().own(true))?;
/// let mut view = client.follow("policy", &Open::new())?;
/// let pointer = view.object().memory(Which::Data)?.unwrap().pointer;
/// client.put_bytes("policy", &[2; 4096], &Create::new().own(true).replace(true))?;
/// // SAFETY: nobody reads through the view meanwhile.
/// unsafe { view.switch(&Open::new())? }; // what `pointer` points to is the new version now
/// # let _ = pointer;
/// # Ok(())
/// # }
/// ```
///
/// The versions must have the same layout, each in a segment of its own ([`Create::own`]). Nothing
/// may read through the view while it is switched or parked: the borrow of the view sees to that
/// for what is borrowed from [`object`](Self::object), but not for clones of the object, nor for
/// pointers. On a GPU all work of the process' context is waited for.
///
/// [`Create::own`]: crate::Create::own
pub struct View {
    raw: NonNull<sys::gpubuf_view>,
    object: Object,
}

// A view may be used from any thread, by one at a time (gpubuf.h).
unsafe impl Send for View {}

impl View {
    /// What is shown. It stays the same object, with the same memory, through all switches.
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// Shows what [`open_with`](Client::open_with) would open now; `false` if it was shown already.
    /// On failure all is as it was.
    ///
    /// # Safety
    /// Meanwhile nobody uses the memory by a clone of [`object`](Self::object) or a pointer into it.
    pub unsafe fn switch(&mut self, how: &Open) -> Result<bool> {
        let label = optional(how.label.as_deref())?;
        let options = open_options(how, &label);
        let r = sys::gpubuf_switch(self.raw.as_ptr(), &options, ptr::null(), 0);
        Ok(self.object.client.check(r)? == 0)
    }

    /// Shows nothing, and keeps the claim: the version may leave for a tier, but is not dropped. To
    /// read its memory is a fault then. `false` if it was parked already.
    ///
    /// # Safety
    /// Until [`resume`](Self::resume) or [`switch`](Self::switch) nobody may use the memory: not by
    /// [`object`](Self::object), its clones, or pointers into it.
    pub unsafe fn park(&mut self) -> Result<bool> {
        let r = sys::gpubuf_park(self.raw.as_ptr(), ptr::null(), 0);
        Ok(self.object.client.check(r)? == 0)
    }

    /// Shows again what was parked, and waits for room that long; `false` if it was not parked.
    pub fn resume(&mut self, wait: Duration) -> Result<bool> {
        let r = unsafe { sys::gpubuf_resume(self.raw.as_ptr(), milliseconds(wait)) };
        Ok(self.object.client.check(r)? == 0)
    }

    /// Whether it is parked.
    pub fn is_parked(&self) -> bool {
        unsafe { sys::gpubuf_is_parked(self.raw.as_ptr()) }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        unsafe { sys::gpubuf_unfollow(self.raw.as_ptr()) }
    }
}

impl Client {
    /// Opens a name as [`open_with`](Self::open_with) does, and shows it at addresses of its own.
    pub fn follow(&self, name: &str, how: &Open) -> Result<View> {
        let (name, label) = (c_string(name)?, optional(how.label.as_deref())?);
        let options = open_options(how, &label);
        let mut raw = ptr::null_mut();
        self.check(unsafe {
            sys::gpubuf_follow(self.as_ptr(), name.as_ptr(), &options, &mut raw)
        })?;
        let raw = NonNull::new(raw).expect("a call that succeeded gives a view");
        // The view's own reference ends with the view, and ours with the field.
        let object = unsafe { sys::gpubuf_retain(sys::gpubuf_view_object(raw.as_ptr())) };
        Ok(View { raw, object: unsafe { Object::from_raw(object, self) } })
    }
}
