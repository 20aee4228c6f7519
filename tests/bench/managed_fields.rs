//! Measures what `managedFields` cost: patches of Deployments that have managers, and of
//! Deployments whose managers were removed, which no longer are tracked.

use crate::create_rate::{CreateLoadConfig, create_objects};
use crate::http_connection::BenchConnection;
use crate::measured_process::MeasuredProcess;
use crate::measurement::{MeasurementLimit, MeasurementRecorder};
use crate::objects::{DEPLOYMENTS, deployment};

const OBJECTS: usize = 500;
const ROUNDS: usize = 30;
/// The highest cost of a patch of a managed object, in patches of an unmanaged one.
const MAX_COST: f64 = 1.25;

pub(crate) fn run(report: &mut MeasurementRecorder) -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let process = MeasuredProcess::serve(dir.path())?;
    let administrator = process.read_kubeconfig()?;
    let load = CreateLoadConfig {
        path: DEPLOYMENTS,
        count: 2 * OBJECTS,
        connections: 4,
    };
    create_objects(&administrator, &load, |n| {
        deployment(&format!("managed-{n}"), 1)
    })?;
    let mut connection = BenchConnection::open(&administrator)?;
    let path = |n: usize| format!("{DEPLOYMENTS}/managed-{n}");
    for n in OBJECTS..2 * OBJECTS {
        let reset = r#"{"metadata":{"managedFields":[]}}"#;
        connection.patch(&path(n), reset)?;
    }
    let mut cpu = [0.0; 2];
    // The first round moves the replicas to the patching manager, and warms up.
    for round in 0..=ROUNDS {
        let body = format!(r#"{{"spec":{{"replicas":{}}}}}"#, round + 2);
        for (kind, cpu) in cpu.iter_mut().enumerate() {
            let before = process.cpu_seconds()?;
            for n in kind * OBJECTS..(kind + 1) * OBJECTS {
                connection.patch(&path(n), &body)?;
            }
            if round > 0 {
                *cpu += process.cpu_seconds()? - before;
            }
        }
    }
    let [managed, unmanaged] = cpu.map(|seconds| seconds / (OBJECTS * ROUNDS) as f64 * 1000.0);
    let setup = "merge patches of Deployments of 2 KiB, one client, HTTPS, durable";
    let no_limit = MeasurementLimit::None;
    report.record("patch_managed_cpu", managed, "ms", no_limit, setup);
    report.record("patch_unmanaged_cpu", unmanaged, "ms", no_limit, setup);
    let limit = MeasurementLimit::Below(MAX_COST);
    report.record("managed_fields_cost", managed / unmanaged, "", limit, setup);
    process.stop()
}
