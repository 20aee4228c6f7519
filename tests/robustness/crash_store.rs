//! Kills a process with SIGKILL at random moments while it writes to the embedded store, and
//! opens the store again.
//!
//! Every acknowledged write must be present, the revision must not be lower, and a watch
//! from the last acknowledged revision must deliver the rest exactly once. `power_loss`
//! checks the same after a power loss. The child is this binary, selected by an environment
//! variable; it prints one line for each acknowledged write. A normal run has 10 rounds, a
//! slow one 200.

use std::path::Path;
use std::time::Duration;

use crate::robustness::durability_check::{check, write_until_killed};
use crate::robustness::record::{WRITERS, WriteHistory, run_and_kill, variable_from_parent};
use storage::{DeltaOptions, EmbeddedStoreOptions};

const WRITER_TEST: &str = "robustness::crash_store::survives_sigkill_at_any_moment";
const DIRECTORY_VARIABLE: &str = "FLOTILLA_CRASH_DIRECTORY";

#[test]
fn survives_sigkill_at_any_moment() {
    if let Some(directory) = variable_from_parent(DIRECTORY_VARIABLE) {
        // A short history, so that some kills hit a compaction.
        let options = EmbeddedStoreOptions {
            history_retention: Some(Duration::from_millis(100)),
            // The writers share the last segments of their keys, and so their bases.
            deltas: DeltaOptions {
                prefixes: vec!["/crash/".into()],
                minimum_bytes: 64,
            },
            ..EmbeddedStoreOptions::default()
        };
        new_runtime().block_on(write_until_killed(Path::new(&directory), options, WRITERS));
        return;
    }
    survive_kills(10);
}

#[harness::slow]
#[test]
fn survives_sigkill_two_hundred_times() {
    survive_kills(200);
}

fn survive_kills(rounds: usize) {
    let directory = tempfile::tempdir().unwrap();
    let mut history = WriteHistory::new();
    for _ in 0..rounds {
        new_runtime().block_on(async {
            let acknowledged = run_and_kill(
                WRITER_TEST,
                DIRECTORY_VARIABLE,
                directory.path().as_os_str(),
            )
            .await;
            let checked = check(directory.path(), &acknowledged, &mut history).await;
            checked.unwrap();
        });
    }
    assert!(
        history.len() > rounds,
        "only {} writes in all",
        history.len()
    );
}

pub(crate) fn new_runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}
