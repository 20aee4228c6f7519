//! Reads the state of this process, and pins it to processors.

use std::fs;
use std::process::Command;

use anyhow::{Context, ensure};

/// A field of `/proc/self/status`.
pub(super) fn read_own_status(field: &str) -> anyhow::Result<String> {
    let text = fs::read_to_string("/proc/self/status")?;
    let value = text.lines().find_map(|line| line.strip_prefix(field));
    Ok(value
        .context("a line of /proc/self/status")?
        .trim()
        .to_owned())
}

pub(super) fn resident_bytes() -> anyhow::Result<f64> {
    let text = read_own_status("VmRSS:")?;
    let kib = text.split_whitespace().next().context("a size")?;
    Ok(kib.parse::<f64>()? * 1024.0)
}

/// Pins the main thread, and the threads that it starts from now on, to these processors.
pub(super) fn pin_to_processors(processors: &str) -> anyhow::Result<()> {
    let process = std::process::id().to_string();
    let done = Command::new("taskset")
        .args(["-pc", processors, &process])
        .output()
        .context("taskset")?;
    ensure!(done.status.success(), "taskset {processors} has failed");
    Ok(())
}
