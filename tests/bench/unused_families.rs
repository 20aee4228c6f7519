//! Measures what autoscalers, services across clusters and metrics cost while nobody uses them: a control
//! plane with all of them beside one without, both idle at the same time.

use std::time::Duration;

use crate::measured_process::{MIB, MeasuredProcess};
use crate::measurement::{MeasurementLimit, MeasurementRecorder, median};

const ROUNDS: usize = 5;
const OBSERVATION_TIME: Duration = Duration::from_secs(20);
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
const ALL: &[&str] = &["--feature-gates", "MultiClusterService=true"];
const NONE: &[&str] = &[
    "--controllers=*,-federatedHorizontalPodAutoscaler,-cronFederatedHorizontalPodAutoscaler,-serviceExport,-endpointSlice,-serviceImport",
];

fn serve(flags: &[&str]) -> anyhow::Result<(MeasuredProcess, tempfile::TempDir)> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().display().to_string();
    let serve = ["serve", "--data-dir", &path, "--listen", "127.0.0.1:0"];
    let process = MeasuredProcess::start(&[&serve, flags].concat())?;
    Ok((process, dir))
}

pub(crate) fn run(report: &mut MeasurementRecorder) -> anyhow::Result<()> {
    let (mut memory, mut cpu) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (with, without) = (serve(ALL)?, serve(NONE)?);
        let both = [&with.0, &without.0];
        for process in both {
            process.wait_until_idle(IDLE_TIMEOUT)?;
        }
        let before = [both[0].cpu_seconds()?, both[1].cpu_seconds()?];
        std::thread::park_timeout(OBSERVATION_TIME);
        let used = [
            both[0].cpu_seconds()? - before[0],
            both[1].cpu_seconds()? - before[1],
        ];
        cpu.push((used[0] - used[1]) / OBSERVATION_TIME.as_secs_f64() * 100.0);
        memory.push((both[0].resident_bytes()? - both[1].resident_bytes()?) / MIB);
    }
    let setup = "serve with autoscalers and services across clusters, unused, over serve without, both idle for 20 s; median of 5";
    let limit = MeasurementLimit::Below(2.0);
    report.record("unused_memory", median(&mut memory), "MiB", limit, setup);
    // The kernel counts CPU in hundredths of a second, a twentieth of a percent here.
    let limit = MeasurementLimit::Below(0.15);
    report.record("unused_cpu", median(&mut cpu), "% of a core", limit, setup);
    Ok(())
}
