//! The client of [gpubufd](https://github.com/gpubufd/gpubufd), which shares memory of GPUs and of
//! the host between processes, by name, with no copy.
//!
//! ```no_run
//! use gpubuf::{Client, Create};
//!
//! # fn main() -> gpubuf::Result<()> {
//! let client = Client::connect()?;
//! client.put_array("prices", &[9.5, 9.7, 9.6], &[3], &Create::new())?;
//!
//! // in another process
//! let prices = client.open("prices")?;
//! let copied: Vec<f64> = prices.to_vec()?;
//! // SAFETY: this program's users publish by `put_…`, and nobody writes to what is sealed.
//! let in_place: &[f64] = unsafe { prices.values()? };
//! assert_eq!(in_place, &copied[..]);
//! # Ok(())
//! # }
//! ```
//!
//! An [`Object`] is a lease: while it lives, the daemon keeps the content and the memory stays
//! mapped. A borrow of its memory cannot outlive it. A clone is one more reference to the same
//! lease, and the last one that is dropped gives it back. Objects hold their [`Client`].
//!
//! Clients and objects may be used from any thread. After `fork` the child connects anew.
//!
//! What has no function here (requests without waiting, providers, Arrow's C interface, memory of
//! CUDA's that is registered) is reached by [`sys`], the functions of `gpubuf.h` as they are, and
//! [`Client::as_ptr`] and [`Object::as_ptr`].

#![warn(missing_docs)]

mod client;
mod create;
mod element;
mod error;
mod live;
mod object;
mod view;
mod watch;

/// `gpubuf.h`, as bindgen translates it. The header documents every function.
#[rustfmt::skip]
#[allow(missing_docs, non_camel_case_types, non_upper_case_globals, dead_code, clippy::all)]
pub mod sys;

pub use client::{Alias, Client, Connect, Info, Open};
pub use create::{Column, Create, Evict, Layout, SealError, Writer};
pub use element::Element;
pub use error::{Error, Kind, Result};
pub use live::{Access, Live};
pub use object::{Memory, Object, ObjectKind, Which};
pub use view::View;
pub use watch::{Event, Watch};
