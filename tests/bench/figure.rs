//! Prints measurements to standard output, one JSON line each, and checks their limits.

use std::io::Write as _;
use std::process::ExitCode;

use serde_json::json;

/// The limit of a measurement.
#[derive(Clone, Copy)]
pub(crate) enum Limit {
    Below(f64),
    AtLeast(f64),
    /// The measurement is printed for comparison and has no limit.
    None,
}

/// Counts the measurements and remembers the names of those that missed their limit.
#[derive(Default)]
pub(crate) struct Report {
    told: usize,
    missed: Vec<String>,
}

impl Report {
    /// Prints a measurement; `setup` describes in a few words what was running.
    pub(crate) fn tell(&mut self, name: &str, value: f64, unit: &str, limit: Limit, setup: &str) {
        let (ok, limit) = match limit {
            Limit::Below(limit) => (value < limit, json!(limit)),
            Limit::AtLeast(limit) => (value >= limit, json!(limit)),
            Limit::None => (true, json!(null)),
        };
        let value = (value * 1000.0).round() / 1000.0;
        line(&json!({
            "name": name, "value": value, "unit": unit, "limit": limit, "ok": ok, "setup": setup,
        }));
        self.told += 1;
        if !ok {
            self.missed.push(name.to_owned());
        }
    }

    /// A group that could not be measured counts as missed.
    pub(crate) fn failed(&mut self, group: &str, error: &anyhow::Error) {
        line(&json!({ "name": group, "ok": false, "error": format!("{error:#}") }));
        self.missed.push(group.to_owned());
    }

    pub(crate) fn end(self) -> ExitCode {
        line(&json!({ "figures": self.told, "missed": self.missed }));
        ExitCode::from(u8::from(!self.missed.is_empty()))
    }
}

fn line(value: &serde_json::Value) {
    // A closed pipe does not end the run: the exit code still reports the result.
    let _ = writeln!(std::io::stdout().lock(), "{value}");
}

/// The median of `values`, which get sorted; 0 when there are none.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
