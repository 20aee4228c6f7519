//! Measures what a flood of one user costs another: 1,000 endless lists of one
//! ServiceAccount, and the time of a GET of another one meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use tokio::task::JoinSet;

use crate::create_rate::{CreateLoadConfig, create_objects};
use crate::http_connection::BenchConnection;
use crate::http2_connection::Http2Connection;
use crate::kubeconfig::Kubeconfig;
use crate::measured_process::{MeasuredProcess, wait_until};
use crate::measurement::{MeasurementLimit, MeasurementRecorder};
use crate::objects::{CONFIGMAPS, configmap};
use crate::service_account::create_user;

const OBJECTS: usize = 500;
const CONNECTIONS: usize = 10;
const LOOPS_PER_CONNECTION: usize = 100;
const LOOPS: usize = CONNECTIONS * LOOPS_PER_CONNECTION;
const GETS: usize = 1000;
/// The time between two GETs, as of a user who is not in a hurry.
const GET_INTERVAL: Duration = Duration::from_millis(10);
/// How long a refused list waits, as client-go does on `Retry-After: 1`.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The lists that were answered and refused.
#[derive(Default)]
struct FloodCounts {
    answered: AtomicUsize,
    refused: AtomicUsize,
}

pub(crate) fn run(report: &mut MeasurementRecorder) -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let process = MeasuredProcess::serve(dir.path())?;
    let administrator = process.read_kubeconfig()?;
    let flooder = create_user(&administrator, "flooder")?;
    let other = create_user(&administrator, "other")?;
    let load = CreateLoadConfig {
        path: CONFIGMAPS,
        count: OBJECTS,
        connections: 4,
    };
    create_objects(&administrator, &load, |n| {
        configmap(&format!("object-{n}"), 1000)
    })?;
    let setup = format!(
        "GET of a ConfigMap of 1 KiB each {} ms by a ServiceAccount",
        GET_INTERVAL.as_millis()
    );
    let mut quiet = time_gets(&other)?;
    let no_limit = MeasurementLimit::None;
    report.record_percentiles("fairness_quiet", &mut quiet, "ms", no_limit, &setup);

    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let counts = Arc::new(FloodCounts::default());
    let start = Instant::now();
    let flood = runtime.block_on(start_flood(&flooder, &counts))?;
    wait_until("lists of the flood", Duration::from_secs(60), || {
        Ok(counts.answered.load(Ordering::Relaxed) > LOOPS / 10)
    })?;
    let mut flooded = time_gets(&other)?;
    let seconds = start.elapsed().as_secs_f64();
    drop(flood);
    runtime.shutdown_timeout(Duration::from_secs(1));
    let setup = format!(
        "{setup} while {LOOPS} loops of another one list {OBJECTS} of them over HTTP/2 from the same two cores"
    );
    report.record_percentiles("fairness_flooded", &mut flooded, "ms", no_limit, &setup);
    // `record_percentiles` has sorted the times.
    let p99 = flooded[GETS * 99 / 100];
    let limit = MeasurementLimit::Below(100.0);
    report.record("fairness_p99", p99, "ms", limit, &setup);
    for (name, count) in [
        ("fairness_lists", &counts.answered),
        ("fairness_refused", &counts.refused),
    ] {
        let rate = count.load(Ordering::Relaxed) as f64 / seconds;
        report.record(name, rate, "1/s", no_limit, &setup);
    }
    process.stop()
}

/// The milliseconds of each GET.
fn time_gets(user: &Kubeconfig) -> anyhow::Result<Vec<f64>> {
    let mut connection = BenchConnection::open(user)?;
    let path = format!("{CONFIGMAPS}/object-7");
    let mut times = Vec::with_capacity(GETS);
    for _ in 0..GETS {
        let start = Instant::now();
        connection.get(&path)?.expect_code(200, &path)?;
        times.push(start.elapsed().as_secs_f64() * 1000.0);
        std::thread::park_timeout(GET_INTERVAL);
    }
    Ok(times)
}

/// Starts the loops; they end when the returned tasks are dropped.
async fn start_flood(user: &Kubeconfig, counts: &Arc<FloodCounts>) -> anyhow::Result<JoinSet<()>> {
    let mut tasks = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let connection = Http2Connection::open(user, &mut tasks).await?;
        for _ in 0..LOOPS_PER_CONNECTION {
            let (mut connection, counts) = (connection.clone(), Arc::clone(counts));
            tasks.spawn(async move {
                while let Ok(reply) = connection.get(CONFIGMAPS).await {
                    let is_refused = reply.status() == 429;
                    let mut body = reply.into_body();
                    while let Some(Ok(_)) = body.frame().await {}
                    let count = if is_refused {
                        &counts.refused
                    } else {
                        &counts.answered
                    };
                    count.fetch_add(1, Ordering::Relaxed);
                    if is_refused {
                        tokio::time::sleep(RETRY_AFTER).await;
                    }
                }
            });
        }
    }
    Ok(tasks)
}
