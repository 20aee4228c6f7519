//! Profiles of this test process.

use std::hint::black_box;
use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use flate2::read::GzDecoder;
use prost::Message;

use crate::pprof::{Profile, encode};
use crate::sampler::{SampleCounts, SampledStack};
use crate::{ProfileError, cpu_profile};

fn decode(profile: &[u8]) -> Profile {
    let mut bytes = Vec::new();
    GzDecoder::new(profile).read_to_end(&mut bytes).unwrap();
    Profile::decode(bytes.as_slice()).unwrap()
}

/// The names of the functions of each sample, the leaf first, and its count.
fn named_stacks(profile: &Profile) -> Vec<(Vec<&str>, i64)> {
    let function = |id: u64| {
        let entry = profile.function.iter().find(|f| f.id == id).unwrap();
        profile.string_table[usize::try_from(entry.name).unwrap()].as_str()
    };
    let names = |id: &u64| {
        let entry = profile.location.iter().find(|l| l.id == *id).unwrap();
        entry.line.iter().map(|line| function(line.function_id))
    };
    let stack = |s: &crate::pprof::Sample| s.location_id.iter().flat_map(names).collect();
    let samples = profile.sample.iter();
    samples.map(|s| (stack(s), s.value[0])).collect()
}

#[inline(never)]
fn outer_of_the_profile(stop: &AtomicBool) -> u64 {
    let mut sum = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        sum = sum.wrapping_add(black_box(inner_of_the_profile()));
    }
    sum
}

#[inline(never)]
fn inner_of_the_profile() -> u64 {
    (0..black_box(10_000_u64)).fold(0, |sum, i| black_box(sum ^ i))
}

#[test]
fn equal_stacks_are_counted_and_share_their_locations() {
    let mut counts = SampleCounts::default();
    let address = outer_of_the_profile as *const () as u64;
    for (addresses, count) in [(vec![address, address + 1], 3), (vec![address], 2)] {
        let thread_name = "worker".into();
        let stack = SampledStack {
            thread_name,
            addresses,
        };
        counts.stacks.insert(stack, count);
    }
    counts.lost_samples = 7;
    let profile = decode(&encode(&counts, Duration::from_secs(1), 100).unwrap());
    // A return address one behind the running one is the same place.
    assert_eq!(profile.location.len(), 1);
    assert_eq!(profile.location[0].address, address);
    let mut values: Vec<_> = profile.sample.iter().map(|s| s.value.clone()).collect();
    values.sort();
    assert_eq!(values, [[2, 20_000_000], [3, 30_000_000]]);
    let text = |index: i64| profile.string_table[usize::try_from(index).unwrap()].as_str();
    assert_eq!(text(profile.comment[0]), "7 samples were lost");
    assert_eq!(text(profile.sample[0].label[0].str), "worker");
    assert_eq!(text(0), "");
    let stacks = named_stacks(&profile);
    assert!(
        stacks[0].0[0].contains("outer_of_the_profile"),
        "{stacks:?}"
    );
}

#[test]
fn a_profile_ends_when_it_is_stopped_and_has_threads_that_began_later() {
    for _ in 0..2 {
        let (go_on, stop) = channel();
        drop(go_on);
        // It would outlive every test.
        let result = cpu_profile(Duration::MAX, &stop);
        assert!(!matches!(result, Err(ProfileError::InUse)));
    }
    let stop = Arc::new(AtomicBool::new(false));
    let (begin, end) = (Arc::clone(&stop), Arc::clone(&stop));
    let profiled = std::thread::spawn(move || {
        let (_go_on, stop) = channel();
        let profile = cpu_profile(Duration::from_secs(1), &stop);
        end.store(true, Ordering::Relaxed);
        profile
    });
    let busy = std::thread::Builder::new().name("busy-thread".into());
    let busy = busy.spawn(move || outer_of_the_profile(&begin)).unwrap();
    let profile = profiled.join().unwrap();
    busy.join().unwrap();
    match profile {
        Ok(profile) => assert_busy_thread(&decode(&profile)),
        // Containers and hardened kernels forbid it.
        Err(ProfileError::Kernel(error)) => {
            let kinds = [ErrorKind::PermissionDenied, ErrorKind::Unsupported];
            assert!(kinds.contains(&error.kind()), "{error}");
        }
        Err(ProfileError::InUse) => unreachable!("nobody else takes a profile"),
    }
}

fn assert_busy_thread(profile: &Profile) {
    let stacks = named_stacks(profile);
    let is_sampled = stacks.iter().any(|(stack, count)| {
        let inner = stack.iter().position(|f| f.contains("inner_of_the"));
        let outer = stack.iter().position(|f| f.contains("outer_of_the"));
        *count > 0 && inner.is_some() && outer > inner
    });
    assert!(is_sampled, "{stacks:?}");
    assert!(profile.string_table.iter().any(|s| s == "busy-thread"));
}
