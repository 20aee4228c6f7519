//! Fuzz tests of what untrusted clients and files send: no input panics or hangs.
//!
//! corpus ──► random edits ──► one harness function after the other ──► the smallest failing input
//!
//! Each target is a test and a function of bytes in [`targets`], which a fuzzer with coverage can
//! call as well. By default it tries a few hundred inputs, always the same ones.
//! FLOTILLA_FUZZ_SECONDS=600 makes it run for that long with new inputs.

/// The harness functions, one per target.
mod targets;

/// Valid inputs to start from.
mod corpus;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};

const INPUTS_PER_ROUND: u32 = 400;

/// A change of some bytes.
#[derive(Clone, Debug)]
enum ByteEdit {
    Replace(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    Repeat(Index, usize, usize),
}

impl ByteEdit {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let at = |index: &Index, bytes: &[u8]| index.index(bytes.len() + 1);
        match self {
            Self::Replace(index, byte) => {
                let position = at(index, bytes);
                if let Some(target) = bytes.get_mut(position) {
                    *target = *byte;
                }
            }
            Self::Insert(index, more) => {
                let position = at(index, bytes);
                bytes.splice(position..position, more.iter().copied());
            }
            Self::Remove(index, length) => {
                let position = at(index, bytes);
                let end = (position + length).min(bytes.len());
                bytes.drain(position..end);
            }
            Self::Repeat(index, length, times) => {
                let position = at(index, bytes);
                let end = (position + length).min(bytes.len());
                let more = bytes[position..end].repeat(*times);
                bytes.splice(position..position, more);
            }
        }
    }
}

fn edit() -> impl Strategy<Value = ByteEdit> {
    let index = any::<Index>;
    prop_oneof![
        (index(), any::<u8>()).prop_map(|(i, byte)| ByteEdit::Replace(i, byte)),
        (index(), prop::collection::vec(any::<u8>(), 1..8))
            .prop_map(|(i, more)| ByteEdit::Insert(i, more)),
        (index(), "[\\[\\]{}(),:'\"/%!=~. -]{1,4}")
            .prop_map(|(i, more)| ByteEdit::Insert(i, more.into_bytes())),
        (index(), 1usize..20).prop_map(|(i, length)| ByteEdit::Remove(i, length)),
        (index(), 1usize..20, 1usize..200)
            .prop_map(|(i, length, times)| ByteEdit::Repeat(i, length, times)),
    ]
}

fn env_seconds() -> Option<u64> {
    let text = std::env::var("FLOTILLA_FUZZ_SECONDS").ok()?;
    Some(text.parse().unwrap())
}

/// Runs a target on edited inputs of its corpus and on random bytes.
fn run(name: &str, corpus: &'static [&'static [u8]], target: fn(&[u8])) {
    for input in corpus {
        target(input);
    }
    let edited = (
        prop::sample::select(corpus),
        prop::collection::vec(edit(), 0..6),
    );
    let edited = edited.prop_map(|(input, edits)| {
        let mut bytes = input.to_vec();
        edits.iter().for_each(|edit| edit.apply(&mut bytes));
        bytes
    });
    let inputs = prop_oneof![9 => edited, 1 => prop::collection::vec(any::<u8>(), 0..200)];
    let seconds = env_seconds();
    let limit = Duration::from_secs(seconds.unwrap_or(0));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let first = seconds.map_or(0, |_| now.as_millis() as u64);
    let start = Instant::now();
    for seed in first.. {
        let config = Config {
            cases: INPUTS_PER_ROUND,
            failure_persistence: None,
            ..Config::default()
        };
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let tried = TestRunner::new_with_rng(config, rng).run(&inputs, |input| {
            target(&input);
            Ok(())
        });
        match tried {
            Ok(()) => {}
            Err(TestError::Fail(reason, input)) => {
                let text = String::from_utf8_lossy(&input);
                panic!("{name}, seed {seed}: {reason}\n{text}\n{input:?}");
            }
            Err(TestError::Abort(reason)) => panic!("{name}, seed {seed}: {reason}"),
        }
        if start.elapsed() >= limit {
            return;
        }
    }
}

#[test]
fn label_selectors() {
    run(
        "label_selectors",
        corpus::LABEL_SELECTORS,
        targets::label_selector,
    );
}

#[test]
fn field_selectors() {
    run(
        "field_selectors",
        corpus::FIELD_SELECTORS,
        targets::field_selector,
    );
}

#[test]
fn quantities() {
    run("quantities", corpus::QUANTITIES, targets::quantity);
}

#[test]
fn protobuf_bodies() {
    run(
        "protobuf_bodies",
        corpus::PROTOBUF_BODIES,
        targets::protobuf_body,
    );
}

#[test]
fn patches() {
    run("patches", corpus::PATCHES, targets::patch);
}

#[test]
fn kubeconfigs() {
    run("kubeconfigs", corpus::KUBECONFIGS, targets::kubeconfig);
}

#[test]
fn audit_policies() {
    run(
        "audit_policies",
        corpus::AUDIT_POLICIES,
        targets::audit_policy,
    );
}

#[test]
fn cel_expressions() {
    run(
        "cel_expressions",
        corpus::CEL_EXPRESSIONS,
        targets::cel_expression,
    );
}

#[test]
fn managed_fields() {
    run(
        "managed_fields",
        corpus::MANAGED_FIELDS,
        targets::managed_fields,
    );
}

#[test]
fn applied_configurations() {
    run(
        "applied_configurations",
        corpus::APPLIED_CONFIGURATIONS,
        targets::applied_configuration,
    );
}
