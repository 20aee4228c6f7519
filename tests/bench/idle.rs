//! Measures the startup time of a control plane, and its CPU and memory when it is idle.

use std::time::Duration;

use anyhow::ensure;

use crate::figure::{Limit, Report};
use crate::fleet;
use crate::process::{MIB, Process};
use crate::wire::Connection;

pub(crate) fn up(report: &mut Report) -> anyhow::Result<()> {
    let mut times = Vec::new();
    for _ in 0..3 {
        let dir = tempfile::tempdir()?;
        let path = dir.path().display().to_string();
        let process = Process::start(&[
            "up",
            "--dir",
            &path,
            "--listen",
            "127.0.0.1:0",
            "--members",
            "3",
        ])?;
        times.push(process.took.as_secs_f64());
        let ready = fleet::ready(&mut Connection::open(&process.access()?)?)?;
        ensure!(
            ready == fleet::MEMBERS,
            "{ready} clusters at the ready line"
        );
        process.stop()?;
    }
    let value = crate::figure::median(&mut times);
    let setup = "up --members 3 on an empty directory, to its ready line, median of 3";
    report.tell("up_ready", value, "s", Limit::Below(1.0), setup);
    Ok(())
}

pub(crate) fn serve(report: &mut Report) -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let process = Process::serve(dir.path())?;
    let setup = "serve on an empty directory, no members";
    report.tell(
        "serve_ready",
        process.took.as_secs_f64(),
        "s",
        Limit::Below(1.0),
        setup,
    );
    process.quiet(Duration::from_secs(10))?;
    let before = process.cpu()?;
    std::thread::park_timeout(Duration::from_secs(10));
    let cpu = (process.cpu()? - before) / 10.0 * 100.0;
    let resident = process.resident()? / MIB;
    report.tell("idle_memory", resident, "MiB", Limit::Below(40.0), setup);
    report.tell("idle_cpu", cpu, "% of a core", Limit::Below(2.0), setup);
    process.stop()
}
