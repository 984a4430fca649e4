use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::raw::{c_char, c_int, c_short, c_ulong, c_void};
use std::os::unix::io::AsRawFd;
use std::os::unix::net::UnixStream;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::client::{c_string, Client, Info};
use crate::error::{text, Error, Result};
use crate::sys;

/// What happened to a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// `sealed`, `deleted`, `evicted`, `spilled`, `restored`, `withdrawn`, `synced` (all objects
    /// that existed have been told), `reconnected` or `refused`. A later daemon may send others.
    pub kind: String,
    /// The version concerned; `None` for the last three.
    pub info: Option<Info>,
}

/// What the callback, which runs in whichever thread dispatches, leaves for the watch.
struct Inbox {
    events: Mutex<VecDeque<Event>>,
    bell: UnixStream,
}

/// Events of the names with a prefix. It ends when it is dropped.
pub struct Watch {
    client: Client,
    id: u64,
    inbox: Box<Inbox>,
    heard: UnixStream,
}

#[repr(C)]
struct PollFd {
    fd: c_int,
    events: c_short,
    revents: c_short,
}

const POLLIN: c_short = 1;

extern "C" {
    fn poll(fds: *mut PollFd, count: c_ulong, timeout: c_int) -> c_int;
}

unsafe extern "C" fn received(
    _: *mut sys::gpubuf_client,
    kind: *const c_char,
    info: *const sys::gpubuf_info,
    inbox: *mut c_void,
) {
    // A panic may not pass through C.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        let inbox = &*inbox.cast::<Inbox>();
        let event =
            Event { kind: text(kind), info: info.as_ref().map(|info| Info::from_raw(info)) };
        inbox.events.lock().unwrap_or_else(|broken| broken.into_inner()).push_back(event);
        let _ = (&inbox.bell).write(&[0]); // where it is full it rings already
    }));
}

impl Client {
    /// Watches the names that begin with `prefix`. First each that exists is told as `sealed`, then
    /// `synced`.
    pub fn watch(&self, prefix: &str) -> Result<Watch> {
        let prefix = c_string(prefix)?;
        let system = |error: std::io::Error| Error::new(sys::GPUBUF_E_SYSTEM, error.to_string());
        let (bell, heard) = UnixStream::pair().map_err(system)?;
        bell.set_nonblocking(true).map_err(system)?;
        heard.set_nonblocking(true).map_err(system)?;
        let inbox = Box::new(Inbox { events: Mutex::new(VecDeque::new()), bell });
        let arg = &*inbox as *const Inbox as *mut c_void;
        let mut id = 0;
        self.check(unsafe {
            sys::gpubuf_watch(self.as_ptr(), prefix.as_ptr(), Some(received), arg, &mut id)
        })?;
        Ok(Watch { client: self.clone(), id, inbox, heard })
    }
}

impl Watch {
    /// The next event; `None` if there is none within `timeout`.
    pub fn next(&mut self, timeout: Duration) -> Result<Option<Event>> {
        let end = Instant::now() + timeout;
        loop {
            self.client.check(unsafe { sys::gpubuf_dispatch(self.client.as_ptr()) })?;
            let first = {
                let mut events =
                    self.inbox.events.lock().unwrap_or_else(|broken| broken.into_inner());
                events.pop_front()
            };
            if first.is_some() {
                return Ok(first);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.wait(left);
        }
    }

    /// Until the connection has something, another thread has received an event, or time is over.
    fn wait(&mut self, timeout: Duration) {
        let client = self.client.as_ptr();
        let mut fds = [
            PollFd {
                fd: unsafe { sys::gpubuf_fd(client) },
                events: unsafe { sys::gpubuf_events(client) },
                revents: 0,
            },
            PollFd { fd: self.heard.as_raw_fd(), events: POLLIN, revents: 0 },
        ];
        let timeout = timeout.as_millis().clamp(1, 1 << 30) as c_int;
        unsafe { poll(fds.as_mut_ptr(), 2, timeout) };
        let mut rung = [0; 64];
        while matches!(self.heard.read(&mut rung), Ok(count) if count > 0) {}
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // No callback begins afterwards, and none is running: then the inbox may go.
        unsafe { sys::gpubuf_unwatch(self.client.as_ptr(), self.id) };
    }
}
