//! Measures a large list: time to the last byte, CPU and peak memory; plain and compressed,
//! for the administrator and for a user whose rights come from RBAC rules.

use std::time::{Duration, Instant};

use anyhow::ensure;

use crate::create::{Load, load};
use crate::figure::{Limit, Report};
use crate::kubeconfig::Kubeconfig;
use crate::objects::{CONFIGMAPS, configmap};
use crate::process::{MIB, Process};
use crate::user::ordinary;
use crate::wire::Connection;

const OBJECTS: usize = 10_000;
const SIZE: usize = 4096;
const ROUNDS: usize = 101;
const PATIENCE: Duration = Duration::from_secs(20);

/// The user and encoding of a list.
struct Variant<'a> {
    /// The suffix of the measurements' names, after `list`.
    name: &'a str,
    access: &'a Kubeconfig,
    gzip: bool,
    /// Milliseconds.
    limit: Limit,
}

pub(crate) fn run(report: &mut Report) -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let process = Process::serve(dir.path())?;
    let administrator = process.access()?;
    let user = ordinary(&administrator)?;
    // The 4 KiB include the metadata that the server adds.
    let bare = configmap("object-00000", 0).len() + 180;
    let of = Load {
        path: CONFIGMAPS,
        count: OBJECTS,
        connections: 16,
    };
    load(&administrator, &of, |n| {
        configmap(&format!("object-{n:05}"), SIZE - bare)
    })?;
    let variant = |name, access, gzip, limit| Variant {
        name,
        access,
        gzip,
        limit,
    };
    for variant in [
        variant("", &administrator, false, Limit::Below(60.0)),
        variant("_gzip", &administrator, true, Limit::None),
        variant("_user", &user, false, Limit::Below(60.0)),
        variant("_user_gzip", &user, true, Limit::None),
    ] {
        measure(report, &process, &variant)?;
    }
    process.stop()
}

fn measure(report: &mut Report, process: &Process, variant: &Variant<'_>) -> anyhow::Result<()> {
    let mut connection = Connection::open(variant.access)?;
    if variant.gzip {
        connection.accept_gzip();
    }
    connection.discard("/version")?;
    process.quiet(PATIENCE)?;
    process.forget_peak()?;
    let before = process.resident()?;
    let (mut times, mut length) = (Vec::new(), 0);
    let cpu = process.cpu()?;
    for _ in 0..ROUNDS {
        let began = Instant::now();
        let (bytes, compressed) = connection.discard(CONFIGMAPS)?;
        times.push(began.elapsed().as_secs_f64() * 1000.0);
        ensure!(compressed == variant.gzip, "compressed: {compressed}");
        length = bytes;
    }
    let cpu = (process.cpu()? - cpu) / ROUNDS as f64 * 1000.0;
    let above = (process.peak()? - before) / MIB;
    let length = length as f64 / MIB;
    let who = match variant.access.token {
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
    report.percentiles(&name("time"), &mut times, "ms", variant.limit, &setup);
    report.tell(&name("cpu"), cpu, "ms", Limit::None, &setup);
    let allowed = Limit::Below((OBJECTS * SIZE) as f64 / MIB + 2.0);
    report.tell(&name("peak"), above, "MiB", allowed, &setup);
    report.tell(&name("length"), length, "MiB", Limit::None, &setup);
    Ok(())
}
