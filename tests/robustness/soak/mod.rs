//! An hour of mixed traffic, in whose last twenty minutes the process uses as much memory as
//! in the twenty minutes before them.
//!
//! The allocator gives memory that other threads freed back from time to time only, so that
//! the resident memory rises and falls by a tenth within ten to twenty minutes. Medians of
//! twenty minutes level this out.
//!
//! Every kind of traffic replaces what it creates, so the number of stored objects is constant
//! and what still grows is a leak. `FLOTILLA_SOAK_SECONDS` shortens the hour.

mod memory;
mod traffic;

use std::time::Duration;

use harness::{FlotillaUpProcess, HttpTestClient};
use tokio::task::JoinSet;
use tokio::time::Instant;

use memory::MemorySamples;
use traffic::{MEMBERS, SoakClient};

const DEFAULT_DURATION: Duration = Duration::from_secs(3600);
const SAMPLE_INTERVAL: Duration = Duration::from_secs(5);
/// The highest memory at the end, in memory after the warm-up.
const MAX_GROWTH: f64 = 1.05;

fn duration() -> Duration {
    let seconds = std::env::var("FLOTILLA_SOAK_SECONDS").ok();
    let seconds = seconds.map(|text| text.parse().unwrap());
    seconds.map_or(DEFAULT_DURATION, Duration::from_secs)
}

#[harness::slow]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_is_flat_under_an_hour_of_mixed_traffic() {
    let up = FlotillaUpProcess::start(env!("CARGO_BIN_EXE_flotilla"), MEMBERS, &[]);
    let read = |name: &str| std::fs::read(up.dir().join("pki").join(name)).unwrap();
    let identity = (read("admin.crt"), read("admin.key"));
    let identity = Some((identity.0.as_slice(), identity.1.as_slice()));
    let connect =
        |identity| HttpTestClient::new(up.address(), "127.0.0.1", &read("ca.crt"), identity);
    let end = Instant::now() + duration();
    let client = SoakClient {
        client: connect(identity),
        anonymous: connect(None),
        end,
    };

    let mut tasks = JoinSet::new();
    traffic::spawn_all(&client, &mut tasks);
    let mut memory = MemorySamples::of_process(up.process_id());
    while Instant::now() < end {
        tokio::time::sleep(SAMPLE_INTERVAL).await;
        memory.sample();
        while let Some(ended) = tasks.try_join_next() {
            // A panic of a task is a request with an unexpected answer.
            ended.unwrap();
        }
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    let (warm, last) = (memory.after_warm_up(), memory.at_the_end());
    assert!(
        last <= warm * MAX_GROWTH,
        "{warm:.1} MiB after the warm-up, {last:.1} MiB at the end: {memory}"
    );
}
