//! Samples the resident memory of a process and compares two windows of the samples.

use std::fmt;
use std::fs;

/// Resident memory in the order of time.
pub(super) struct MemorySamples {
    process_id: u32,
    /// MiB.
    samples: Vec<f64>,
}

impl MemorySamples {
    pub(super) fn of_process(process_id: u32) -> Self {
        Self {
            process_id,
            samples: Vec::new(),
        }
    }

    pub(super) fn sample(&mut self) {
        let text = fs::read_to_string(format!("/proc/{}/status", self.process_id)).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next());
        let kib: f64 = kib.unwrap().parse().unwrap();
        self.samples.push(kib / 1024.0);
    }

    /// The median of the second third: the first is the warm-up.
    pub(super) fn after_warm_up(&self) -> f64 {
        self.median_of_part(1, 3)
    }

    /// The median of the last third.
    pub(super) fn at_the_end(&self) -> f64 {
        self.median_of_part(2, 3)
    }

    fn median_of_part(&self, number: usize, parts: usize) -> f64 {
        let length = self.samples.len();
        let window = &self.samples[length * number / parts..length * (number + 1) / parts];
        let mut window = window.to_vec();
        window.sort_by(f64::total_cmp);
        window[window.len() / 2]
    }
}

/// The median of each twelfth.
impl fmt::Display for MemorySamples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for number in 0..12 {
            write!(f, "{:.1} ", self.median_of_part(number, 12))?;
        }
        f.write_str("MiB")
    }
}
