//! Reads CPU time, memory and written bytes of processes from `/proc`.

use std::fs;
use std::io::{Error, Result};

/// `USER_HZ`: the unit of CPU times in `/proc`, 100 on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// CPU seconds used so far by all threads of a process, user and kernel.
pub fn cpu_seconds(process_id: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{process_id}/stat"))?;
    stat_cpu_seconds(&stat).ok_or_else(|| Error::other("a line of /proc/stat"))
}

/// CPU seconds used so far by those threads of this process that are alive and whose name begins so.
pub fn own_threads_cpu_seconds(name: &str) -> Result<f64> {
    let mut sum = 0.0;
    for thread in fs::read_dir("/proc/self/task")? {
        // The thread may end meanwhile.
        let Ok(stat) = fs::read_to_string(thread?.path().join("stat")) else {
            continue;
        };
        let thread_name = stat.split_once('(').map_or("", |(_, rest)| rest);
        if thread_name.starts_with(name) {
            sum += stat_cpu_seconds(&stat).unwrap_or_default();
        }
    }
    Ok(sum)
}

/// The resident bytes of a process now.
pub fn resident_bytes(process_id: u32) -> Result<f64> {
    Ok(field(process_id, "status", "VmRSS:")? * 1024.0)
}

/// The most resident bytes that a process had.
pub fn peak_resident_bytes(process_id: u32) -> Result<f64> {
    Ok(field(process_id, "status", "VmHWM:")? * 1024.0)
}

/// The bytes that a process has caused to be sent to the disk.
pub fn written_bytes(process_id: u32) -> Result<f64> {
    field(process_id, "io", "write_bytes:")
}

/// User and kernel time of a line of `stat`.
fn stat_cpu_seconds(stat: &str) -> Option<f64> {
    // The name in parentheses may contain anything; the fields follow it.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<f64>().ok();
    Some((next()? + next()?) / TICKS_PER_SECOND)
}

/// The number behind a name in a file of a process.
fn field(process_id: u32, file: &str, name: &str) -> Result<f64> {
    let path = format!("/proc/{process_id}/{file}");
    let text = fs::read_to_string(&path)?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.ok_or_else(|| Error::other(format!("{path} has no {name}")))
}
