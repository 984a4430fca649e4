//! The price of bytes from one process to another, beside a file in `/dev/shm`: microseconds, the median of 101 rounds.
//!
//!     cargo run --release --example costs

use std::fs;
use std::time::Instant;

use gpubuf::{Client, Create, Result};

const PATH: &str = "/dev/shm/gpubuf-costs";

/// Notes in `times` how long `work` takes.
fn timed<R>(times: &mut Vec<f64>, work: impl FnOnce() -> R) -> R {
    let begun = Instant::now();
    let result = work();
    times.push(begun.elapsed().as_secs_f64() * 1e6);
    result
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().map(|byte| u64::from(*byte)).sum()
}

fn main() -> Result<()> {
    let (client, how) = (Client::connect()?, Create::new().replace(true));
    for size in [4 << 10, 16 << 20] {
        let data = vec![7; size];
        let [mut write, mut read, mut put, mut open] = [(); 4].map(|()| Vec::new());
        for _ in 0..101 {
            timed(&mut write, || fs::write(PATH, &data)).expect("/dev/shm can be written");
            let found = timed(&mut read, || fs::read(PATH).map(|bytes| sum(&bytes)));
            timed(&mut put, || client.put_bytes("costs", &data, &how))?;
            let same = timed(&mut open, || -> Result<u64> {
                // SAFETY: what is sealed is not written to.
                Ok(sum(unsafe { client.open("costs")?.values()? }))
            })?;
            assert_eq!(found.expect("it was written"), same);
        }
        let [write, read, put, open] = [write, read, put, open].map(median);
        println!("{size} bytes: write {write:.1}, put {put:.1}; read and sum {read:.1}, open and sum {open:.1}");
    }
    client.delete("costs")?;
    let _ = fs::remove_file(PATH);
    Ok(())
}
