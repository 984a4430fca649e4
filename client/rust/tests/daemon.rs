//! Beside a real daemon: that of GPUBUF_BUILD, `build` of the repository by default.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use gpubuf::{
    Access, Alias, Client, Column, Connect, Create, Kind, Layout, ObjectKind, Open, Watch, Which,
};

struct Daemon {
    process: Child,
    folder: PathBuf,
}

static STARTED: AtomicU32 = AtomicU32::new(0);
const DEADLINE: Duration = Duration::from_secs(60);

impl Daemon {
    fn start() -> Self {
        let build = env::var("GPUBUF_BUILD").unwrap_or_else(|_| "../../build".into());
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let folder = env::temp_dir().join(format!("gpubuf-rust-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let process = Command::new(PathBuf::from(build).join("bin/gpubufd"))
            .args(["--device", "host:64M", "--socket"])
            .arg(folder.join("s"))
            .stderr(Stdio::null())
            .spawn()
            .expect("gpubufd starts");
        let daemon = Daemon { process, folder };
        let end = Instant::now() + DEADLINE;
        while daemon.connect().is_err() {
            assert!(Instant::now() < end, "the daemon does not listen");
            std::thread::yield_now();
        }
        daemon
    }

    fn connect(&self) -> gpubuf::Result<Client> {
        Connect::new().path(self.folder.join("s")).client_name("rust").connect()
    }

    fn client(&self) -> Client {
        self.connect().unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Until nobody holds `name`: a release is a message without an answer.
fn wait_for_leases(client: &Client, name: &str, leases: u64) {
    let end = Instant::now() + DEADLINE;
    while client.stat(name).unwrap().leases != leases {
        assert!(Instant::now() < end, "{:?}", client.stat(name));
    }
}

#[test]
fn an_array_goes_from_one_client_to_another() {
    let daemon = Daemon::start();
    let values = [1.5_f64, -2.0, 3.25, 4.0, 5.0, 6.0];
    let version = daemon.client().put_array("a", &values, &[3, 2], &Create::new()).unwrap();

    let reader = daemon.client();
    let object = reader.open("a").unwrap();
    assert_eq!((object.kind(), object.dtype()), (ObjectKind::Array, "float64".into()));
    assert_eq!((object.shape(), object.strides()), (&[3_u64, 2][..], &[16_i64, 8][..]));
    assert_eq!((object.version(), object.len(), object.label()), (version, 3, None));
    assert_eq!(object.to_vec::<f64>().unwrap(), values);
    // SAFETY: nobody writes here.
    assert_eq!(unsafe { object.values::<f64>() }.unwrap(), values);
    let rows = object.slice(1..3).unwrap();
    assert_eq!(unsafe { rows.values::<f64>() }.unwrap(), &values[2..]);
    assert!(!object.memory(Which::Data).unwrap().unwrap().writable);
    assert!(object.memory(Which::Offsets).unwrap().is_none());
}

#[test]
fn what_does_not_fit_is_told() {
    let daemon = Daemon::start();
    let client = daemon.client();
    client.put_array("a", &[1_i32, 2], &[2], &Create::new()).unwrap();
    let object = client.open("a").unwrap();
    let error = object.to_vec::<f32>().unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    assert_eq!(error.to_string(), "a has elements of int32, not of float32");
    assert_eq!(object.slice(1..9).unwrap_err().kind(), Kind::Invalid);
    assert_eq!(client.open("nothing").unwrap_err().kind(), Kind::NotFound);
    assert!(client.open("no\0name").unwrap_err().to_string().contains("a NUL byte at 2"));
    let taken = client.put_bytes("a", b"x", &Create::new()).unwrap_err();
    assert_eq!(taken.kind(), Kind::Exists);
    let shape = client.put_array("b", &[1_u8, 2], &[3], &Create::new()).unwrap_err();
    assert_eq!(shape.to_string(), "2 values do not fill the shape [3]");
    let nobody = Connect::new().path("/nowhere/s").connect().unwrap_err();
    assert_eq!(nobody.kind(), Kind::Connect);
}

#[test]
fn a_table_has_columns_texts_and_nulls() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let day = [1_i64, 2, 3];
    let degrees = [21.5_f32, 0.0, 23.25];
    let columns = [
        Column::new("day", &day).unwrap(),
        Column::new("degrees", &degrees).unwrap().valid(&[true, false, true]),
        Column::text("city", &[Some("Linz"), None, Some("Graz")]).unwrap(),
    ];
    client.put_table("weather", &columns, &Create::new()).unwrap();

    let table = client.open("weather").unwrap();
    assert_eq!((table.kind(), table.len(), table.child_count()), (ObjectKind::Table, 3, 3));
    assert_eq!(table.column("day").unwrap().to_vec::<i64>().unwrap(), day);
    let degrees = table.column("degrees").unwrap();
    assert_eq!(degrees.null_count(), Some(1));
    assert_eq!([0, 1, 2, 3].map(|i| degrees.is_valid(i)), [true, false, true, false]);
    let city = table.slice(1..3).unwrap().column("city").unwrap();
    assert_eq!((city.offset(), city.column_name()), (1, Some("city".into())));
    assert_eq!((city.text(0), city.text(1), city.text(2)), (None, Some("Graz".into()), None));
    let some = table.select(&["city", "day"]).unwrap();
    assert_eq!(some.child(1).unwrap().column_name(), Some("day".into()));
    assert_eq!(table.column("rain").unwrap_err().kind(), Kind::NotFound);
    assert_eq!(table.to_vec::<i64>().unwrap_err().kind(), Kind::Invalid);

    let uneven = [Column::new("a", &day).unwrap(), Column::new("b", &day[1..]).unwrap()];
    let error = client.put_table("uneven", &uneven, &Create::new()).unwrap_err();
    assert_eq!(error.to_string(), "column \"b\" has 2 values or marks, the first has 3");
}

#[test]
fn the_lease_ends_with_the_last_reference() {
    let daemon = Daemon::start();
    let client = daemon.client();
    client.put_bytes("a", b"0123456789", &Create::new()).unwrap();
    let reader = daemon.client();
    let object = reader.open("a").unwrap();
    assert_eq!(client.stat("a").unwrap().leases, 1);
    let part = object.slice(2..5).unwrap();
    let again = object.clone();
    drop((object, reader)); // its objects hold the connection
    client.delete("a").unwrap();
    assert_eq!(unsafe { part.values::<u8>() }.unwrap(), b"234");
    drop(part);
    assert_eq!(again.to_vec::<u8>().unwrap(), b"0123456789");

    client.put_bytes("b", b"x", &Create::new()).unwrap();
    let objects = daemon.client().open_many(&["b", "c"], &Open::new()).unwrap();
    assert_eq!(client.stat("b").unwrap().leases, 1);
    assert_eq!(objects[1].as_ref().unwrap_err().kind(), Kind::NotFound);
    drop(objects);
    wait_for_leases(&client, "b", 0);
}

#[test]
fn a_writer_fills_and_seals() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let mut writer =
        client.create("w", &Layout::array("float32", &[4]), &Create::new().is_final(true)).unwrap();
    assert_eq!(client.open("w").unwrap_err().kind(), Kind::NotFound);
    writer.bytes_mut().unwrap().copy_from_slice(&[0; 16]);
    writer.write(Which::Data, 4, &1.5_f32.to_le_bytes()).unwrap();
    let object = writer.seal().unwrap();
    assert_eq!(object.to_vec::<f32>().unwrap(), [0.0, 1.5, 0.0, 0.0]);
    assert!(client.stat("w").unwrap().is_final);

    let late = client.create("x", &Layout::bytes(3), &Create::new()).unwrap();
    client.put_bytes("x", b"new", &Create::new()).unwrap();
    let failed = late.seal().unwrap_err();
    assert_eq!(failed.error.kind(), Kind::Exists);
    client.delete("x").unwrap();
    assert_eq!(failed.writer.seal().unwrap().len(), 3); // it may be sealed again
    drop(client.create("y", &Layout::bytes(3), &Create::new()).unwrap());
    assert_eq!(client.stat("y").unwrap_err().kind(), Kind::NotFound);
}

#[test]
fn versions_labels_and_parts_have_names() {
    let daemon = Daemon::start();
    let client = daemon.client();
    for step in ["step-1", "step-2"] {
        let how = Create::new().label(step).keep(1).replace(true).mode(0o640);
        client.put_bytes("policy", step.as_bytes(), &how).unwrap();
    }
    let first = client.open_with("policy", &Open::new().label("step-1")).unwrap();
    assert_eq!(first.to_vec::<u8>().unwrap(), b"step-1");
    let versions = client.versions("policy").unwrap();
    assert_eq!(versions.iter().map(|v| &v.label[..]).collect::<Vec<_>>(), ["step-2", "step-1"]);
    assert_eq!((versions[0].mode, versions[1].older), (0o640, true));
    client.alias("end", "policy", &Alias::new().rows(5..6)).unwrap();
    assert_eq!(client.open("end").unwrap().to_vec::<u8>().unwrap(), b"2");
    let names: Vec<_> = client.list("").unwrap().into_iter().map(|info| info.name).collect();
    assert_eq!(names, ["end", "policy"]);
    client.pin("end").unwrap();
    assert!(client.stat("end").unwrap().pinned);
    client.unpin("end").unwrap();
    client.expire("end", Some(Duration::from_millis(1))).unwrap();
    let end = Instant::now() + DEADLINE;
    while client.stat("end").is_ok() {
        assert!(Instant::now() < end);
    }
    assert!(client.call("stats", "{}", None).unwrap().starts_with('{'));
    let wait = Open::new().wait(Duration::from_millis(20));
    assert_eq!(client.open_with("end", &wait).unwrap_err().kind(), Kind::Timeout);
}

fn until(watch: &mut Watch, kind: &str) -> Vec<String> {
    let mut names = Vec::new();
    loop {
        let event = watch.next(DEADLINE).unwrap().expect("an event");
        names.extend(event.info.map(|info| info.name));
        if event.kind == kind {
            return names;
        }
    }
}

#[test]
fn a_watch_tells_what_comes_and_goes() {
    let daemon = Daemon::start();
    let client = daemon.client();
    client.put_bytes("a/old", b"x", &Create::new()).unwrap();
    let mut watch = client.watch("a/").unwrap();
    assert_eq!(until(&mut watch, "synced"), ["a/old"]);
    assert_eq!(watch.next(Duration::ZERO).unwrap(), None);
    let other = daemon.client();
    other.put_bytes("b", b"x", &Create::new()).unwrap();
    other.put_bytes("a/new", b"x", &Create::new()).unwrap();
    assert_eq!(until(&mut watch, "sealed"), ["a/new"]);
    // What another thread receives is told, too.
    let busy = client.clone();
    let thread = std::thread::spawn(move || {
        for _ in 0..200 {
            busy.stat("a/new").unwrap();
        }
    });
    for _ in 0..20 {
        other.put_bytes("a/new", b"y", &Create::new().replace(true)).unwrap();
        assert_eq!(until(&mut watch, "sealed"), ["a/new"]);
    }
    thread.join().unwrap();
    other.delete("a/new").unwrap();
    assert_eq!(until(&mut watch, "deleted"), ["a/new"]);
}

#[test]
fn threads_share_a_client() {
    let daemon = Daemon::start();
    let client = daemon.client();
    client.put_array("a", &[7_u64; 512], &[512], &Create::new()).unwrap();
    let object = client.open("a").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..100 {
                    let own = client.open("a").unwrap();
                    assert_eq!(own.to_vec::<u64>().unwrap(), unsafe { object.values().unwrap() });
                }
            });
        }
    });
}

#[test]
fn a_view_keeps_its_addresses() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let own = Create::new().own(true).replace(true).keep(2);
    let put = |byte: u8, label: &str| {
        client.put_bytes("policy", &[byte; 8192], &own.clone().label(label)).unwrap()
    };
    put(1, "one");
    let mut view = client.follow("policy", &Open::new()).unwrap();
    let memory = view.object().memory(Which::Data).unwrap().unwrap();
    let shown = |view: &gpubuf::View| {
        let mut bytes = [0; 8192];
        view.object().read(Which::Data, 0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == bytes[0]));
        assert_eq!(view.object().memory(Which::Data).unwrap().unwrap().pointer, memory.pointer);
        bytes[0]
    };
    assert_eq!(shown(&view), 1);
    let second = put(2, "two");
    let switch = |view: &mut gpubuf::View, how: &Open| unsafe { view.switch(how) };
    assert!(switch(&mut view, &Open::new()).unwrap() && !switch(&mut view, &Open::new()).unwrap());
    assert_eq!((shown(&view), view.object().version()), (2, second));
    switch(&mut view, &Open::new().label("one")).unwrap();
    assert_eq!((shown(&view), view.object().label().as_deref()), (1, Some("one")));

    assert!(!view.resume(Duration::ZERO).unwrap());
    assert!(unsafe { view.park() }.unwrap() && view.is_parked());
    assert!(!unsafe { view.park() }.unwrap());
    assert!(view.resume(DEADLINE).unwrap() && !view.is_parked());
    assert_eq!(shown(&view), 1);

    client.put_bytes("policy", b"of another size", &own).unwrap();
    assert_eq!(switch(&mut view, &Open::new()).unwrap_err().kind(), Kind::Unsupported);
    assert_eq!(shown(&view), 1);
    client.put_bytes("shared", b"x", &Create::new()).unwrap();
    assert_eq!(client.follow("shared", &Open::new()).err().unwrap().kind(), Kind::Unsupported);
    // The object outlives the view, with what was shown last.
    let object = view.object().clone();
    std::thread::spawn(move || drop(view)).join().unwrap();
    assert_eq!(object.to_vec::<u8>().unwrap()[0], 1);
}

#[test]
fn live_memory_has_one_writer_at_a_time() {
    let daemon = Daemon::start();
    let (client, other) = (daemon.client(), daemon.client());
    let layout = Layout::array("float64", &[3]);
    let made = client.create_live("position", &layout, &Create::new()).unwrap();
    assert_eq!(made.generation(), None);
    drop(made);
    let mut mine = client.open_live("position", Access::Exclusive, &Open::new()).unwrap();
    let first = mine.generation().unwrap();
    let seen = other.open_live("position", Access::Read, &Open::new()).unwrap();
    let mut bytes = [1; 8];
    seen.read(Which::Data, 16, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 8]);
    mine.write(Which::Data, 16, &1.5_f64.to_ne_bytes()).unwrap();
    seen.read(Which::Data, 16, &mut bytes).unwrap();
    assert_eq!(f64::from_ne_bytes(bytes), 1.5);
    assert!(!seen.object().memory(Which::Data).unwrap().unwrap().writable);

    let claim = |wait| other.open_live("position", Access::Exclusive, &Open::new().wait(wait));
    assert_eq!(claim(Duration::ZERO).unwrap_err().kind(), Kind::Busy);
    assert_eq!(claim(Duration::from_millis(20)).unwrap_err().kind(), Kind::Timeout);
    drop(mine);
    assert_eq!(claim(DEADLINE).unwrap().generation(), Some(first + 1));
    client.put_bytes("sealed", b"x", &Create::new()).unwrap();
    let sealed = client.open_live("sealed", Access::Write, &Open::new());
    assert_eq!(sealed.unwrap_err().kind(), Kind::Unsupported);
}
