//! Prints measurements to standard output, one JSON line each, and checks their limits.

use std::io::Write as _;
use std::process::ExitCode;

use serde_json::json;

/// The limit of a measurement.
#[derive(Clone, Copy)]
pub(crate) enum MeasurementLimit {
    Below(f64),
    AtLeast(f64),
    /// The measurement is printed for comparison and has no limit.
    None,
}

/// Counts the measurements and remembers the names of the ones that missed their limit.
#[derive(Default)]
pub(crate) struct MeasurementRecorder {
    recorded: usize,
    missed: Vec<String>,
}

impl MeasurementRecorder {
    /// Prints a measurement; `setup` describes in a few words what was running.
    pub(crate) fn record(
        &mut self,
        name: &str,
        value: f64,
        unit: &str,
        limit: MeasurementLimit,
        setup: &str,
    ) {
        let (ok, limit) = match limit {
            MeasurementLimit::Below(limit) => (value < limit, json!(limit)),
            MeasurementLimit::AtLeast(limit) => (value >= limit, json!(limit)),
            MeasurementLimit::None => (true, json!(null)),
        };
        let value = (value * 1000.0).round() / 1000.0;
        print_line(&json!({
            "name": name, "value": value, "unit": unit, "limit": limit, "ok": ok, "setup": setup,
        }));
        self.recorded += 1;
        if !ok {
            self.missed.push(name.to_owned());
        }
    }

    /// A group that could not be measured counts as missed.
    pub(crate) fn record_failure(&mut self, group: &str, error: &anyhow::Error) {
        print_line(&json!({ "name": group, "ok": false, "error": format!("{error:#}") }));
        self.missed.push(group.to_owned());
    }

    pub(crate) fn finish(self) -> ExitCode {
        print_line(&json!({ "figures": self.recorded, "missed": self.missed }));
        ExitCode::from(u8::from(!self.missed.is_empty()))
    }
}

fn print_line(value: &serde_json::Value) {
    // A closed pipe does not end the run: the exit code still reports the result.
    let _ = writeln!(std::io::stdout().lock(), "{value}");
}

/// The median of `values`, which get sorted; 0 when there are none.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
