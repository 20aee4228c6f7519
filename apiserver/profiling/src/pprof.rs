//! Encodes samples as pprof's `perftools.profiles.Profile` (`proto/profile.proto` of
//! google/pprof), gzipped, with the names of the functions.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ahash::AHashMap;
use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

use crate::sampler::{SampleCounts, SampledStack};

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Profile {
    #[prost(message, repeated, tag = "1")]
    pub(crate) sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) function: Vec<SampledFunction>,
    #[prost(string, repeated, tag = "6")]
    pub(crate) string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    pub(crate) time_nanos: i64,
    #[prost(int64, tag = "10")]
    pub(crate) duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    pub(crate) period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    pub(crate) period: i64,
    #[prost(int64, repeated, tag = "13")]
    pub(crate) comment: Vec<i64>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct ValueType {
    #[prost(int64, tag = "1")]
    pub(crate) r#type: i64,
    #[prost(int64, tag = "2")]
    pub(crate) unit: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Sample {
    /// The leaf comes first.
    #[prost(uint64, repeated, tag = "1")]
    pub(crate) location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    pub(crate) value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) label: Vec<SampleLabel>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct SampleLabel {
    #[prost(int64, tag = "1")]
    pub(crate) key: i64,
    #[prost(int64, tag = "2")]
    pub(crate) str: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Mapping {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    #[prost(int64, tag = "5")]
    pub(crate) filename: i64,
    #[prost(bool, tag = "7")]
    pub(crate) has_functions: bool,
    #[prost(bool, tag = "8")]
    pub(crate) has_filenames: bool,
    #[prost(bool, tag = "9")]
    pub(crate) has_line_numbers: bool,
    #[prost(bool, tag = "10")]
    pub(crate) has_inline_frames: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Location {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) mapping_id: u64,
    #[prost(uint64, tag = "3")]
    pub(crate) address: u64,
    /// The function into which others are inlined comes last.
    #[prost(message, repeated, tag = "4")]
    pub(crate) line: Vec<Line>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Line {
    #[prost(uint64, tag = "1")]
    pub(crate) function_id: u64,
    #[prost(int64, tag = "2")]
    pub(crate) line: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct SampledFunction {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    #[prost(int64, tag = "2")]
    pub(crate) name: i64,
    #[prost(int64, tag = "3")]
    pub(crate) system_name: i64,
    #[prost(int64, tag = "4")]
    pub(crate) filename: i64,
}

/// Encodes a profile of `duration` with `frequency` samples in each second of CPU time.
///
/// # Errors
/// None is expected: the compressed bytes are written to memory.
pub(crate) fn encode(
    counts: &SampleCounts,
    duration: Duration,
    frequency: u64,
) -> io::Result<Vec<u8>> {
    let mut builder = ProfileBuilder::new(1_000_000_000 / frequency.cast_signed());
    for (stack, count) in &counts.stacks {
        builder.add_sample(stack, count.cast_signed());
    }
    let profile = builder.finish(duration, counts.lost_samples);
    let mut compressed = GzEncoder::new(Vec::new(), Compression::fast());
    compressed.write_all(&profile.encode_to_vec())?;
    compressed.finish()
}

/// Gives strings, functions and locations their numbers.
struct ProfileBuilder {
    profile: Profile,
    strings: AHashMap<String, i64>,
    functions: BTreeMap<(i64, i64), u64>,
    /// By the address that is resolved.
    locations: AHashMap<u64, u64>,
}

impl ProfileBuilder {
    fn new(period: i64) -> Self {
        let mut builder = Self {
            profile: Profile::default(),
            strings: AHashMap::new(),
            functions: BTreeMap::new(),
            locations: AHashMap::new(),
        };
        // The first string is empty by definition.
        builder.string("");
        let mut value_type = |name, unit| ValueType {
            r#type: builder.string(name),
            unit: builder.string(unit),
        };
        let samples = value_type("samples", "count");
        let cpu = value_type("cpu", "nanoseconds");
        builder.profile.sample_type = vec![samples, cpu];
        builder.profile.period_type = Some(cpu);
        builder.profile.period = period;
        let program = std::env::current_exe().unwrap_or_default();
        let filename = builder.string(&program.to_string_lossy());
        builder.profile.mapping.push(Mapping {
            id: 1,
            filename,
            has_functions: true,
            has_filenames: true,
            has_line_numbers: true,
            has_inline_frames: true,
        });
        builder
    }

    fn string(&mut self, text: &str) -> i64 {
        if let Some(existing) = self.strings.get(text) {
            return *existing;
        }
        let index = i64::try_from(self.strings.len()).unwrap_or(i64::MAX);
        self.strings.insert(text.to_owned(), index);
        self.profile.string_table.push(text.to_owned());
        index
    }

    fn add_sample(&mut self, stack: &SampledStack, count: i64) {
        let mut location_id = Vec::with_capacity(stack.addresses.len());
        for (depth, address) in stack.addresses.iter().enumerate() {
            // A call returns behind itself: the resolver looks one byte before an address,
            // which is wrong for the one that was running.
            let resolved = if depth == 0 { address + 1 } else { *address };
            location_id.push(self.location(resolved));
        }
        let label = SampleLabel {
            key: self.string("thread"),
            str: self.string(&stack.thread_name),
        };
        self.profile.sample.push(Sample {
            location_id,
            value: vec![count, count * self.profile.period],
            label: vec![label],
        });
    }

    fn location(&mut self, address: u64) -> u64 {
        if let Some(existing) = self.locations.get(&address) {
            return *existing;
        }
        let id = self.locations.len() as u64 + 1;
        self.locations.insert(address, id);
        let mut line = Vec::new();
        backtrace::resolve(address as *mut _, |symbol| {
            let name = symbol.name().map_or_else(String::new, |n| format!("{n:#}"));
            let file = symbol.filename().map(|f| f.to_string_lossy().into_owned());
            line.push(Line {
                function_id: self.function(&name, &file.unwrap_or_default()),
                line: symbol.lineno().unwrap_or_default().into(),
            });
        });
        self.profile.location.push(Location {
            id,
            mapping_id: 1,
            address: address - 1,
            line,
        });
        id
    }

    fn function(&mut self, name: &str, file: &str) -> u64 {
        let (name, filename) = (self.string(name), self.string(file));
        if let Some(existing) = self.functions.get(&(name, filename)) {
            return *existing;
        }
        let id = self.functions.len() as u64 + 1;
        self.functions.insert((name, filename), id);
        self.profile.function.push(SampledFunction {
            id,
            name,
            system_name: name,
            filename,
        });
        id
    }

    fn finish(mut self, duration: Duration, lost_samples: u64) -> Profile {
        let nanos = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let begin = now.unwrap_or_default().saturating_sub(duration);
        self.profile.time_nanos = nanos(begin);
        self.profile.duration_nanos = nanos(duration);
        if lost_samples > 0 {
            let comment = self.string(&format!("{lost_samples} samples were lost"));
            self.profile.comment.push(comment);
        }
        self.profile
    }
}
