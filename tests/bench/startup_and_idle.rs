//! Measures the startup time of a control plane, and its CPU and memory when it is idle.

use std::time::Duration;

use anyhow::ensure;

use crate::fleet;
use crate::http_connection::BenchConnection;
use crate::measured_process::{MIB, MeasuredProcess};
use crate::measurement::{MeasurementLimit, MeasurementRecorder};

pub(crate) fn measure_up(report: &mut MeasurementRecorder) -> anyhow::Result<()> {
    let mut times = Vec::new();
    for _ in 0..3 {
        let dir = tempfile::tempdir()?;
        let path = dir.path().display().to_string();
        let process = MeasuredProcess::start(&[
            "up",
            "--dir",
            &path,
            "--listen",
            "127.0.0.1:0",
            "--members",
            "3",
        ])?;
        times.push(process.startup_time.as_secs_f64());
        let ready =
            fleet::count_ready_clusters(&mut BenchConnection::open(&process.read_kubeconfig()?)?)?;
        ensure!(
            ready == fleet::MEMBERS,
            "{ready} clusters at the ready line"
        );
        process.stop()?;
    }
    let value = crate::measurement::median(&mut times);
    let setup = "up --members 3 on an empty directory, to its ready line, median of 3";
    report.record("up_ready", value, "s", MeasurementLimit::Below(1.0), setup);
    Ok(())
}

pub(crate) fn measure_serve(report: &mut MeasurementRecorder) -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let process = MeasuredProcess::serve(dir.path())?;
    let setup = "serve on an empty directory, no members";
    report.record(
        "serve_ready",
        process.startup_time.as_secs_f64(),
        "s",
        MeasurementLimit::Below(1.0),
        setup,
    );
    process.wait_until_idle(Duration::from_secs(10))?;
    let before = process.cpu_seconds()?;
    std::thread::park_timeout(Duration::from_secs(10));
    let cpu = (process.cpu_seconds()? - before) / 10.0 * 100.0;
    let resident = process.resident_bytes()? / MIB;
    report.record(
        "idle_memory",
        resident,
        "MiB",
        MeasurementLimit::Below(40.0),
        setup,
    );
    report.record(
        "idle_cpu",
        cpu,
        "% of a core",
        MeasurementLimit::Below(2.0),
        setup,
    );
    process.stop()
}
