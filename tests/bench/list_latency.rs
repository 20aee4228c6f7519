//! Measures a large list: time to the last byte, CPU and peak memory; plain and compressed,
//! for the administrator and for a user whose rights come from RBAC rules.

use std::time::{Duration, Instant};

use anyhow::ensure;

use crate::create_rate::{CreateLoadConfig, create_objects};
use crate::http_connection::BenchConnection;
use crate::kubeconfig::Kubeconfig;
use crate::measured_process::{MIB, MeasuredProcess};
use crate::measurement::{MeasurementLimit, MeasurementRecorder};
use crate::objects::{CONFIGMAPS, configmap};
use crate::service_account::create_user;

const OBJECTS: usize = 10_000;
const OBJECT_BYTES: usize = 4096;
const ROUNDS: usize = 101;
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);

/// The user and encoding of a list.
struct ListVariant<'a> {
    /// The suffix of the measurements' names, after `list`.
    name: &'a str,
    kubeconfig: &'a Kubeconfig,
    gzip: bool,
    /// Milliseconds.
    limit: MeasurementLimit,
}

pub(crate) fn run(report: &mut MeasurementRecorder) -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let process = MeasuredProcess::serve(dir.path())?;
    let administrator = process.read_kubeconfig()?;
    let user = create_user(&administrator, "bench")?;
    // The 4 KiB include the metadata that the server adds.
    let bare = configmap("object-00000", 0).len() + 180;
    let of = CreateLoadConfig {
        path: CONFIGMAPS,
        count: OBJECTS,
        connections: 16,
    };
    create_objects(&administrator, &of, |n| {
        configmap(&format!("object-{n:05}"), OBJECT_BYTES - bare)
    })?;
    let variant = |name, access, gzip, limit| ListVariant {
        name,
        kubeconfig: access,
        gzip,
        limit,
    };
    for variant in [
        variant("", &administrator, false, MeasurementLimit::Below(60.0)),
        variant("_gzip", &administrator, true, MeasurementLimit::None),
        variant("_user", &user, false, MeasurementLimit::Below(60.0)),
        variant("_user_gzip", &user, true, MeasurementLimit::None),
    ] {
        measure(report, &process, &variant)?;
    }
    process.stop()
}

fn measure(
    report: &mut MeasurementRecorder,
    process: &MeasuredProcess,
    variant: &ListVariant<'_>,
) -> anyhow::Result<()> {
    let mut connection = BenchConnection::open(variant.kubeconfig)?;
    if variant.gzip {
        connection.accept_gzip();
    }
    connection.get_discarding_body("/version")?;
    process.wait_until_idle(IDLE_TIMEOUT)?;
    process.reset_peak()?;
    let before = process.resident_bytes()?;
    let (mut times, mut length) = (Vec::new(), 0);
    let cpu = process.cpu_seconds()?;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let (bytes, compressed) = connection.get_discarding_body(CONFIGMAPS)?;
        times.push(start.elapsed().as_secs_f64() * 1000.0);
        ensure!(compressed == variant.gzip, "compressed: {compressed}");
        length = bytes;
    }
    let cpu = (process.cpu_seconds()? - cpu) / ROUNDS as f64 * 1000.0;
    let above = (process.peak_resident_bytes()? - before) / MIB;
    let length = length as f64 / MIB;
    let who = match variant.kubeconfig.token {
        None => "the administrator",
        Some(_) => "a ServiceAccount with a Role",
    };
    let how = match variant.gzip {
        true => "gzip, which the client does not unpack",
        false => "not compressed",
    };
    let setup = format!(
        "LIST of 10,000 ConfigMaps of 4 KiB by {who}, {how}, TLS 1.3, HTTP/1.1, body discarded, {ROUNDS} times"
    );
    let name = |figure: &str| format!("list{}_{figure}", variant.name);
    report.record_percentiles(&name("time"), &mut times, "ms", variant.limit, &setup);
    report.record(&name("cpu"), cpu, "ms", MeasurementLimit::None, &setup);
    let allowed = MeasurementLimit::Below((OBJECTS * OBJECT_BYTES) as f64 / MIB + 2.0);
    report.record(&name("peak"), above, "MiB", allowed, &setup);
    report.record(
        &name("length"),
        length,
        "MiB",
        MeasurementLimit::None,
        &setup,
    );
    Ok(())
}
