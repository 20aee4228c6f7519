//! Measurements that are reported by median and 99th percentile.

use crate::measurement::{MeasurementLimit, MeasurementRecorder, median};

impl MeasurementRecorder {
    /// Prints the median of `values` under `name`, with its limit, and their 99th percentile
    /// under `name` with the suffix `_p99`, without a limit. The values get sorted.
    pub(crate) fn record_percentiles(
        &mut self,
        name: &str,
        values: &mut [f64],
        unit: &str,
        limit: MeasurementLimit,
        setup: &str,
    ) {
        let median = median(values);
        self.record(name, median, unit, limit, setup);
        let (name, p99) = (format!("{name}_p99"), p99(values));
        self.record(&name, p99, unit, MeasurementLimit::None, setup);
    }
}

/// The smallest value that 99 of 100 do not exceed; 0 when there are none. The values get sorted.
pub(crate) fn p99(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = (values.len() * 99).div_ceil(100);
    let value = values.get(rank.saturating_sub(1));
    value.copied().unwrap_or_default()
}
