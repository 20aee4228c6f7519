//! Restarts a control plane whose members are in sync: measures how soon it serves, and
//! checks that it writes nothing to any member.

use std::time::{Duration, Instant};

use anyhow::Context;

use crate::figure::{Limit, Report};
use crate::fleet::{Fleet, items};
use crate::objects::DEPLOYMENTS;
use crate::process::Process;
use crate::wire::Connection;

/// Long enough for every informer to sync and every key to be reconciled.
const SETTLE: Duration = Duration::from_secs(30);
/// How long writes to members are counted.
const LOOK: Duration = Duration::from_secs(10);

pub(crate) fn run(report: &mut Report, fleet: Fleet) -> anyhow::Result<()> {
    let before = state(&fleet.members)?;
    let Fleet {
        plane,
        members,
        dir,
    } = fleet;
    plane.stop()?;
    let plane = Process::serve(&dir.path().join("plane"))?;
    let took = plane.took.as_secs_f64();
    let fleet = Fleet {
        plane,
        members,
        dir,
    };
    fleet.wait_ready()?;
    let ready = Instant::now();
    let cpu = fleet.plane.quiet(SETTLE)?;
    // Late writes count, too.
    while let Some(rest) = LOOK.checked_sub(ready.elapsed()) {
        std::thread::park_timeout(rest);
    }
    let after = state(&fleet.members)?;
    let setup = "serve restarted with 1,000 Deployments in step in 3 members";
    report.tell("restart_ready", took, "s", Limit::Below(1.0), setup);
    report.tell("restart_cpu", cpu, "s", Limit::None, setup);
    let setup = "the same, in at least 10 s after all clusters are ready and until it is quiet";
    let writes = after.requests - before.requests;
    report.tell(
        "restart_writes",
        writes,
        "requests",
        Limit::Below(1.0),
        setup,
    );
    let changed = before
        .versions
        .iter()
        .zip(&after.versions)
        .filter(|(a, b)| a != b)
        .count();
    report.tell(
        "restart_changed",
        changed as f64,
        "objects",
        Limit::Below(1.0),
        setup,
    );
    Ok(())
}

/// The state of the members that shows whether a write happened.
struct State {
    /// The mutating requests that all members have served over the network.
    requests: f64,
    /// Name and resourceVersion of every Deployment, in the order of the lists.
    versions: Vec<String>,
}

fn state(members: &[Process]) -> anyhow::Result<State> {
    let mut state = State {
        requests: 0.0,
        versions: Vec::new(),
    };
    for member in members {
        let mut connection = Connection::open(&member.access()?)?;
        let metrics = connection.get("/metrics")?.expect(200, "/metrics")?;
        for line in String::from_utf8_lossy(&metrics.body).lines() {
            let Some(series) = line.strip_prefix("apiserver_request_total{") else {
                continue;
            };
            let reads = ["GET", "LIST", "WATCH", "CONNECT"];
            if reads
                .iter()
                .any(|v| series.contains(&format!("verb=\"{v}\"")))
            {
                continue;
            }
            let value = series.rsplit(' ').next().context("a metric's value")?;
            state.requests += value.parse::<f64>()?;
        }
        let list = connection.get(DEPLOYMENTS)?.json()?;
        state.versions.extend(items(&list).map(|d| {
            let metadata = &d["metadata"];
            format!("{}@{}", metadata["name"], metadata["resourceVersion"])
        }));
    }
    Ok(state)
}
