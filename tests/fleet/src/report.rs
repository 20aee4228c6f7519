//! Prints figures to standard output, one JSON line each, with goals and as multiples of the
//! reference loop.

use std::io::Write as _;

use serde_json::{Value, json};

use crate::sizes::FleetSize;

/// The goal of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum FleetGoal {
    AtMost(f64),
    /// For the ratio to the reference loop.
    RatioAtMost(f64),
    /// The figure is printed for comparison.
    None,
}

/// Prints figures, and remembers what was lost.
pub struct FleetReport {
    size: &'static FleetSize,
    reference_seconds: f64,
    /// Faults that must never happen: objects lost or doubled, and writes after a restart.
    pub violations: Vec<String>,
}

impl FleetReport {
    pub(crate) fn new(size: &'static FleetSize, reference_seconds: f64) -> Self {
        let mut report = Self {
            size,
            reference_seconds,
            violations: Vec::new(),
        };
        report.record(
            "reference_loop",
            reference_seconds * 1e6,
            "us",
            FleetGoal::None,
        );
        report
    }

    /// Prints a figure. A time (`s`, `ms`, `us`) has a ratio to the reference loop. A goal that is
    /// missed is reported, and is no failure: the machine may be slow.
    pub(crate) fn record(&mut self, name: &str, value: f64, unit: &str, goal: FleetGoal) {
        print_line(&self.line(name, value, unit, goal));
    }

    /// Prints a count that has to be 0.
    pub(crate) fn record_violations(&mut self, name: &str, count: usize) {
        self.record(name, count as f64, "", FleetGoal::AtMost(0.0));
        if count > 0 {
            self.violations.push(format!("{name}: {count}"));
        }
    }

    /// Prints a text, such as a checksum.
    pub(crate) fn record_text(&mut self, name: &str, text: &str) {
        print_line(&json!({"size": self.size.name, "name": name, "value": text}));
    }

    /// Prints median and 99th percentile, in milliseconds.
    pub(crate) fn record_latencies(&mut self, name: &str, mut seconds: Vec<f64>, goal: FleetGoal) {
        seconds.sort_by(f64::total_cmp);
        let percentile = |percent: usize| {
            let rank = (seconds.len() * percent).div_ceil(100);
            seconds.get(rank.saturating_sub(1)).copied()
        };
        let (p50, p99) = (percentile(50), percentile(99));
        for (suffix, value, goal) in [("p50", p50, goal), ("p99", p99, FleetGoal::None)] {
            if let Some(value) = value {
                self.record(&format!("{name}_{suffix}"), value * 1e3, "ms", goal);
            }
        }
        self.record(
            &format!("{name}_count"),
            seconds.len() as f64,
            "",
            FleetGoal::None,
        );
    }

    fn line(&self, name: &str, value: f64, unit: &str, goal: FleetGoal) -> Value {
        let seconds = match unit {
            "s" => Some(value),
            "ms" => Some(value / 1e3),
            "us" => Some(value / 1e6),
            _ => None,
        };
        let ratio = seconds.map(|seconds| round(seconds / self.reference_seconds));
        let mut line = json!({
            "size": self.size.name, "name": name, "value": round(value), "unit": unit,
            "ratio": ratio,
        });
        let (field, most, is_met) = match goal {
            FleetGoal::AtMost(most) => ("goal", most, value <= most),
            FleetGoal::RatioAtMost(most) => {
                ("goal_of_ratio", most, ratio.is_some_and(|r| r <= most))
            }
            FleetGoal::None => return line,
        };
        line[field] = most.into();
        line["met"] = is_met.into();
        line
    }
}

fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

fn print_line(line: &Value) {
    // A closed pipe does not end the run.
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_goal_and_ratio() {
        let size = FleetSize::find("smoke").unwrap();
        let report = FleetReport::new(size, 0.000_01);
        let line = report.line("cpu", 1500.0, "us", FleetGoal::AtMost(1000.0));
        let expected = json!({"size": "smoke", "name": "cpu", "value": 1500.0, "unit": "us",
                              "goal": 1000.0, "met": false, "ratio": 150.0});
        assert_eq!(line, expected);
        let line = report.line("cpu", 1500.0, "us", FleetGoal::RatioAtMost(150.0));
        assert_eq!(
            (&line["goal_of_ratio"], &line["met"]),
            (&json!(150.0), &json!(true))
        );
        let line = report.line("bytes", 7.0, "B", FleetGoal::None);
        assert_eq!((&line["ratio"], &line["met"]), (&Value::Null, &Value::Null));
    }
}
