//! The same load on etcd itself, by its own protocol and without TLS: what an API server
//! above it adds to.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context, ensure};
use etcd_client::{Client, Compare, CompareOp, GetOptions, Txn, TxnOp, WatchOptions};
use harness::{EtcdCluster, etcd};
use tokio::task::JoinSet;

use super::compared_server::{
    CREATORS, ComparedServer, GETS, LIST_ROUNDS, OBJECT_BYTES, OBJECTS, WATCH_WRITES,
};
use crate::measurement::{MeasurementLimit, MeasurementRecorder, median};
use crate::watch_fanout::WATCHERS;

const PREFIX: &str = "/compared/";
/// The watches that share a connection; each is a gRPC stream of its own.
const WATCHES_PER_CONNECTION: usize = 100;
const NONE: MeasurementLimit = MeasurementLimit::None;

pub(super) fn run(report: &mut MeasurementRecorder) -> anyhow::Result<()> {
    let etcd = EtcdCluster::start(etcd::VERSION_3_5, 1).context("no etcd")?;
    let url = etcd.endpoints();
    let server = ComparedServer::new("etcd", vec![etcd.nodes[0].daemon.pid()], etcd);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        measure_creates(report, &server, &url).await?;
        measure_reads(report, &server, &url).await?;
        measure_watches(report, &server, &url).await
    })
}

fn key(n: usize) -> String {
    format!("{PREFIX}object-{n:05}")
}

/// Creates a key that must be absent, as an API server does.
async fn create(client: &mut Client, key: String) -> anyhow::Result<()> {
    let absent = Compare::version(key.as_str(), CompareOp::Equal, 0);
    let put = TxnOp::put(key, vec![b'x'; OBJECT_BYTES], None);
    let reply = client
        .txn(Txn::new().when([absent]).and_then([put]))
        .await?;
    ensure!(reply.succeeded(), "the key exists");
    Ok(())
}

async fn measure_creates(
    report: &mut MeasurementRecorder,
    server: &ComparedServer,
    url: &str,
) -> anyhow::Result<()> {
    let next = Arc::new(AtomicUsize::new(0));
    let cpu = server.cpu_seconds()?;
    let start = Instant::now();
    let mut creators = JoinSet::new();
    for _ in 0..CREATORS {
        let mut client = Client::connect([url], None).await?;
        let next = Arc::clone(&next);
        creators.spawn(async move {
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= OBJECTS {
                    return anyhow::Ok(());
                }
                create(&mut client, key(n)).await?;
            }
        });
    }
    while let Some(ended) = creators.join_next().await {
        ended??;
    }
    let rate = OBJECTS as f64 / start.elapsed().as_secs_f64();
    let cpu = (server.cpu_seconds()? - cpu) / OBJECTS as f64 * 1000.0;
    let setup = "10,000 keys of 4 KiB, 16 clients, gRPC without TLS, durable";
    report.record("etcd_create_rate", rate, "1/s", NONE, setup);
    report.record("etcd_create_cpu", cpu, "ms", NONE, setup);
    Ok(())
}

async fn measure_reads(
    report: &mut MeasurementRecorder,
    server: &ComparedServer,
    url: &str,
) -> anyhow::Result<()> {
    let mut client = Client::connect([url], None).await?.kv_client();
    client = client.max_decoding_message_size(4 * OBJECTS * OBJECT_BYTES);
    for (name, rounds, setup) in [
        ("list", LIST_ROUNDS, "a range of 10,000 keys of 4 KiB"),
        ("get", GETS, "one key of 4 KiB, one client"),
    ] {
        let mut times = Vec::with_capacity(rounds);
        let cpu = server.cpu_seconds()?;
        for _ in 0..rounds {
            let (key, options) = match name {
                "list" => (PREFIX.to_owned(), Some(GetOptions::new().with_prefix())),
                _ => (key(7777), None),
            };
            let start = Instant::now();
            client.get(key, options).await?;
            times.push(start.elapsed().as_secs_f64() * 1000.0);
        }
        let cpu = (server.cpu_seconds()? - cpu) / rounds as f64 * 1000.0;
        let time = median(&mut times);
        report.record(&format!("etcd_{name}_time"), time, "ms", NONE, setup);
        report.record(&format!("etcd_{name}_cpu"), cpu, "ms", NONE, setup);
    }
    Ok(())
}

async fn measure_watches(
    report: &mut MeasurementRecorder,
    server: &ComparedServer,
    url: &str,
) -> anyhow::Result<()> {
    let mut writer = Client::connect([url], None).await?;
    let arrived = Arc::new(AtomicUsize::new(0));
    let mut watchers = JoinSet::new();
    for _ in 0..WATCHERS / WATCHES_PER_CONNECTION {
        let client = Client::connect([url], None).await?;
        for _ in 0..WATCHES_PER_CONNECTION {
            let options = WatchOptions::new().with_prefix();
            let mut stream = client.watch_client().watch(PREFIX, Some(options)).await?;
            let arrived = Arc::clone(&arrived);
            watchers.spawn(async move {
                while let Ok(Some(reply)) = stream.message().await {
                    arrived.fetch_add(reply.events().len(), Ordering::Relaxed);
                }
            });
        }
    }
    let events = WATCH_WRITES * WATCHERS;
    let cpu = server.cpu_seconds()?;
    let start = Instant::now();
    for n in 0..WATCH_WRITES {
        create(&mut writer, format!("{PREFIX}watched-{n}")).await?;
    }
    while arrived.load(Ordering::Relaxed) < events {
        ensure!(start.elapsed().as_secs() < 120, "events are missing");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let rate = events as f64 / start.elapsed().as_secs_f64();
    let cpu = (server.cpu_seconds()? - cpu) / events as f64 * 1e6;
    let setup = "100 writes of 4 KiB to 1,000 watchers over gRPC, the writes included";
    report.record("etcd_watch_rate", rate, "1/s", NONE, setup);
    report.record("etcd_watch_cpu", cpu, "µs", NONE, setup);
    Ok(())
}
