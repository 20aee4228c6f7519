//! Fuzz tests of the interpreter: no input panics, and a conversion there and back changes nothing.
//!
//! realistic objects ──► random edits ──► one target after the other ──► the smallest failing input
//!
//! Each target is a test. By default it tries a few hundred inputs, always the same ones.
//! FLOTILLA_FUZZ_SECONDS=600 makes it run for that long with new inputs each time. A failure names its
//! seed; FLOTILLA_FUZZ_SEED repeats it.

pub(crate) mod edits;
pub(crate) mod inputs;
mod rules;
mod seeds;

use std::fmt::Debug;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseResult, TestError, TestRng, TestRunner};

/// Inputs per round; the clock is read after each round.
const INPUTS_PER_ROUND: u32 = 400;

fn env_number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().expect("a whole number"))
}

/// Runs a target on inputs until the time is up; `show` prints a failing input.
pub(crate) fn run<S: Strategy>(
    target: &str,
    inputs: &S,
    show: impl Fn(&S::Value) -> String,
    property: impl Fn(S::Value) -> TestCaseResult,
) where
    S::Value: Debug,
{
    let seconds = env_number("FLOTILLA_FUZZ_SECONDS");
    let time = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let fresh = || seconds.map_or(0, |_| time().as_millis() as u64);
    let first = env_number("FLOTILLA_FUZZ_SEED").unwrap_or_else(fresh);
    let limit = Duration::from_secs(seconds.unwrap_or(0));
    let began = Instant::now();
    let mut tried = 0;
    for seed in first.. {
        let config = Config {
            cases: INPUTS_PER_ROUND,
            failure_persistence: None,
            max_shrink_iters: 20_000,
            ..Config::default()
        };
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        match TestRunner::new_with_rng(config, rng).run(inputs, &property) {
            Ok(()) => {}
            Err(TestError::Fail(reason, input)) => {
                panic!("{target}, seed {seed}: {reason}\n{}", show(&input));
            }
            Err(TestError::Abort(reason)) => panic!("{target}, seed {seed}: {reason}"),
        }
        tried += u64::from(INPUTS_PER_ROUND);
        if began.elapsed() >= limit {
            break;
        }
    }
    let rate = tried as f64 / began.elapsed().as_secs_f64();
    println!("{target}: {tried} inputs from seed {first} on, {rate:.0} in a second");
}
