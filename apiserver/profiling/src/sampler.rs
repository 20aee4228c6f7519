//! Reads the samples that the kernel takes of every thread of this process.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use ahash::AHashMap;
use perf_event::events::Software;
use perf_event::{Builder, SampleFlag, Sampler, data};

/// Bytes of the buffer of one thread. It has room for the samples of several read intervals;
/// together the buffers stay within what the kernel lets an unprivileged process lock.
const BUFFER_SIZE: usize = 32 * 1024;

/// Stacks that are counted apart; samples with further ones are counted as lost. It bounds
/// the memory of a long profile to some 30 MiB.
const MAX_STACKS: usize = 32 * 1024;

/// Frames above this address are no code: the kernel separates the parts of a stack by them.
const CONTEXT_MARKERS: u64 = u64::MAX - 4095;

/// A stack of a thread. The first address is the one that was running, the others are
/// addresses to which calls return.
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct SampledStack {
    pub(crate) thread_name: Box<str>,
    pub(crate) addresses: Vec<u64>,
}

/// The parts of a profile.
#[derive(Default)]
pub(crate) struct SampleCounts {
    pub(crate) stacks: AHashMap<SampledStack, u64>,
    /// Samples that did not fit into a buffer, or had one stack too many.
    pub(crate) lost_samples: u64,
}

impl SampleCounts {
    fn add(&mut self, stack: SampledStack) {
        if self.stacks.len() < MAX_STACKS || self.stacks.contains_key(&stack) {
            *self.stacks.entry(stack).or_default() += 1;
        } else {
            self.lost_samples += 1;
        }
    }
}

/// Samples all threads of this process until it is dropped.
pub(crate) struct ProcessSampler {
    frequency: u64,
    threads: BTreeMap<i32, ThreadSampler>,
    counts: SampleCounts,
}

struct ThreadSampler {
    id: i32,
    name: Box<str>,
    sampler: Sampler,
}

impl ProcessSampler {
    /// Starts to sample the present threads, `frequency` times in each second of their CPU
    /// time.
    pub(crate) fn start(frequency: u64) -> io::Result<Self> {
        let mut started = Self {
            frequency,
            threads: BTreeMap::new(),
            counts: SampleCounts::default(),
        };
        started.follow_threads()?;
        Ok(started)
    }

    /// Counts the samples that were taken since the last call, and follows the threads that
    /// began since then.
    pub(crate) fn read(&mut self) -> io::Result<()> {
        for thread in self.threads.values_mut() {
            thread.read(&mut self.counts);
        }
        self.follow_threads()
    }

    /// Ends the sampling.
    pub(crate) fn finish(mut self) -> SampleCounts {
        for thread in self.threads.values_mut() {
            thread.read(&mut self.counts);
        }
        self.counts
    }

    /// Forgets the threads that ended and starts to sample those that began.
    fn follow_threads(&mut self) -> io::Result<()> {
        let mut present = Vec::new();
        for entry in fs::read_dir("/proc/self/task")? {
            if let Some(id) = entry?.file_name().to_str().and_then(|id| id.parse().ok()) {
                present.push(id);
            }
        }
        self.threads.retain(|id, _| present.contains(id));
        for id in present {
            if self.threads.contains_key(&id) {
                continue;
            }
            match start_thread_sampler(id, self.frequency) {
                Ok(sampler) => {
                    let name = thread_name(id).unwrap_or_default();
                    self.threads.insert(id, ThreadSampler { id, name, sampler });
                }
                // A thread may end in between.
                Err(_) if fs::metadata(format!("/proc/self/task/{id}")).is_err() => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

impl ThreadSampler {
    fn read(&mut self, counts: &mut SampleCounts) {
        // A thread takes its name after its start; one that has ended has no name anymore.
        if let Some(name) = thread_name(self.id) {
            self.name = name;
        }
        while let Some(record) = self.sampler.next_record() {
            match record.parse_record() {
                Ok(data::Record::Sample(sample)) => {
                    let chain = sample.callchain().unwrap_or_default().iter();
                    let code = chain.filter(|a| (1..CONTEXT_MARKERS).contains(*a));
                    counts.add(SampledStack {
                        thread_name: self.name.clone(),
                        addresses: code.copied().collect(),
                    });
                }
                Ok(data::Record::Lost(records)) => counts.lost_samples += records.lost,
                Ok(_) => {}
                Err(_) => counts.lost_samples += 1,
            }
        }
    }
}

fn thread_name(id: i32) -> Option<Box<str>> {
    let name = fs::read_to_string(format!("/proc/self/task/{id}/comm")).ok()?;
    Some(name.trim_end().into())
}

fn start_thread_sampler(id: i32, frequency: u64) -> io::Result<Sampler> {
    let mut builder = Builder::new(Software::CPU_CLOCK);
    builder
        .observe_pid(id)
        .any_cpu()
        .exclude_kernel(true)
        .exclude_hv(true)
        .sample_frequency(frequency)
        .sample(SampleFlag::CALLCHAIN);
    let mut sampler = builder.build()?.sampled(BUFFER_SIZE)?;
    sampler.enable()?;
    Ok(sampler)
}
