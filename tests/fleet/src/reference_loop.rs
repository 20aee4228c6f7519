//! The reference loop: work of which every machine does more or less in a second of CPU, so that
//! times of different machines can be compared as multiples of it.

use std::hint::black_box;

use harness::process_stat::own_threads_cpu_seconds;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::load::objects::template;
use crate::resource_usage::LOAD_THREADS;
use crate::sizes::FleetSize;

/// Of the kernel's clock ticks of 10 ms enough for a precision of 2 %.
const CPU_SECONDS: f64 = 0.5;
const TURNS_PER_BATCH: usize = 500;

/// The CPU seconds in which a manifest of the load is decoded, encoded and hashed. Called on the
/// thread of the load, whose CPU it reads: other work on the machine does not count.
pub(crate) fn measure_reference_loop(size: &FleetSize) -> anyhow::Result<f64> {
    let manifest = serde_json::to_vec(&template(size, 0).object)?;
    let before = own_threads_cpu_seconds(LOAD_THREADS)?;
    let mut batches = 0;
    loop {
        for _ in 0..TURNS_PER_BATCH {
            let object: Value = machinery::json::from_slice(black_box(&manifest))?;
            black_box(Sha256::digest(serde_json::to_vec(&object)?));
        }
        batches += 1;
        let used = own_threads_cpu_seconds(LOAD_THREADS)? - before;
        if used >= CPU_SECONDS {
            return Ok(used / (batches * TURNS_PER_BATCH) as f64);
        }
    }
}
