//! The metrics of the file system of the data directory, read when they are scraped.

use std::path::Path;

use flotilla_metrics::{CallbackMetricDesc, CallbackMetricType, MetricsRegistry};
use rustix::fs::statvfs;

const FREE: &str = "flotilla_data_dir_free_bytes";
const CAPACITY: &str = "flotilla_data_dir_capacity_bytes";

/// Registers the metrics of the file system in which the directory lies.
pub(crate) fn register(dir: &Path, metrics: &MetricsRegistry) {
    let descriptions = [
        CallbackMetricDesc::new(
            FREE,
            "Bytes that the process may still write to the file system of its data directory.",
            CallbackMetricType::Gauge,
            &[],
        ),
        CallbackMetricDesc::new(
            CAPACITY,
            "Size in bytes of the file system of the data directory.",
            CallbackMetricType::Gauge,
            &[],
        ),
    ];
    let dir = dir.to_owned();
    metrics.register_callback(&descriptions, move |writer| {
        if let Ok(system) = statvfs(&dir) {
            let bytes = |blocks: u64| blocks as f64 * system.f_frsize as f64;
            writer.set(FREE, &[], bytes(system.f_bavail));
            writer.set(CAPACITY, &[], bytes(system.f_blocks));
        }
    });
}
