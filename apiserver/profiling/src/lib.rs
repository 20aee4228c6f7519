//! CPU profiles of this process in pprof's format.
//!
//! kernel samples every thread ──► [`cpu_profile`] counts equal stacks ──► names of functions ──► profile.proto, gzip
//!
//! The kernel takes the samples (`perf_event_open(2)`) and walks the stacks by their frame
//! pointers, so nothing runs inside a signal handler and no other code is interrupted. The
//! program must be built with frame pointers (`-C force-frame-pointers=yes`).

mod pprof;
mod sampler;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use sampler::ProcessSampler;

/// Samples of one thread per second of its CPU time, as in Go's profiles.
const FREQUENCY: u64 = 100;

/// How often samples are read from the kernel's buffers and new threads are found.
const READ_INTERVAL: Duration = Duration::from_millis(100);

/// Whether a profile is being taken; at most one is at a time.
static PROFILING: AtomicBool = AtomicBool::new(false);

/// Why there is no profile.
#[derive(Debug)]
pub enum ProfileError {
    /// Another profile is being taken.
    InUse,
    /// The kernel takes no samples for this process.
    Kernel(io::Error),
}

/// Blocks for `duration`, or until the sender of `stop` sends or is dropped, and returns a profile of the CPU time of
/// all threads of this process (a gzipped `perftools.profiles.Profile`).
///
/// # Errors
/// A profile is being taken, or the kernel refuses to sample.
pub fn cpu_profile(duration: Duration, stop: &Receiver<()>) -> Result<Vec<u8>, ProfileError> {
    let _running = RunningProfile::begin()?;
    let mut sampler = ProcessSampler::start(FREQUENCY).map_err(ProfileError::Kernel)?;
    let mut remaining = duration;
    while !remaining.is_zero() {
        let pause = remaining.min(READ_INTERVAL);
        if stop.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
            break;
        }
        remaining -= pause;
        sampler.read().map_err(ProfileError::Kernel)?;
    }
    let samples = sampler.finish();
    pprof::encode(&samples, duration, FREQUENCY).map_err(ProfileError::Kernel)
}

/// Marks the process as being profiled, until it is dropped.
struct RunningProfile;

impl RunningProfile {
    fn begin() -> Result<Self, ProfileError> {
        match PROFILING.swap(true, Ordering::Acquire) {
            true => Err(ProfileError::InUse),
            false => Ok(Self),
        }
    }
}

impl Drop for RunningProfile {
    fn drop(&mut self) {
        PROFILING.store(false, Ordering::Release);
    }
}
