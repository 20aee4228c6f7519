//! A large list: time to the last byte, and what it costs in memory.

use std::time::Instant;

use crate::create::{Load, load};
use crate::figure::{Limit, Report, median};
use crate::objects::{CONFIGMAPS, configmap};
use crate::process::{MIB, Process};
use crate::wire::Connection;

const OBJECTS: usize = 10_000;
const SIZE: usize = 4096;
const ROUNDS: usize = 11;

pub(crate) fn run(report: &mut Report) -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let process = Process::serve(dir.path())?;
    let to = process.access()?;
    // What the server adds to an object's metadata belongs to the 4 KiB.
    let bare = configmap("object-00000", 0).len() + 180;
    load(
        &to,
        &Load {
            path: CONFIGMAPS,
            count: OBJECTS,
            connections: 16,
        },
        |n| configmap(&format!("object-{n:05}"), SIZE - bare),
    )?;
    let mut connection = Connection::open(&to)?;
    connection.get("/version")?;
    process.quiet(std::time::Duration::from_secs(20))?;
    process.forget_peak()?;
    let before = process.resident()?;
    let (mut times, mut length) = (Vec::new(), 0);
    let cpu = process.cpu()?;
    for _ in 0..ROUNDS {
        let began = Instant::now();
        length = connection.discard(CONFIGMAPS)?;
        times.push(began.elapsed().as_secs_f64() * 1000.0);
    }
    let cpu = (process.cpu()? - cpu) / ROUNDS as f64 * 1000.0;
    let above = (process.peak()? - before) / MIB;
    let allowed = length as f64 / MIB + 2.0;
    let setup = "LIST of 10,000 ConfigMaps of 4 KiB, TLS 1.3, HTTP/1.1, body discarded, 11 times";
    report.tell(
        "list_time",
        median(&mut times),
        "ms",
        Limit::Below(60.0),
        setup,
    );
    report.tell("list_cpu", cpu, "ms", Limit::None, setup);
    report.tell("list_peak", above, "MiB", Limit::Below(allowed), setup);
    report.tell(
        "list_length",
        length as f64 / MIB,
        "MiB",
        Limit::None,
        setup,
    );
    process.stop()
}
