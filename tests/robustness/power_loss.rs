//! Power losses while a process writes: pages that it had not synced are lost, or some of
//! them survive.
//!
//! Every acknowledged write must survive. The same check must detect a store that does not
//! wait for the disk, and a disk whose fsync does nothing.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use harness::{FaultyDisk, FsyncMode};
use storage::EmbeddedStoreOptions;

use crate::robustness::crash_store::new_runtime;
use crate::robustness::durability_check::{
    StoreDefectMessage, check, check_after_failures, write_until_killed,
};
use crate::robustness::record::{
    WRITERS, WriteHistory, WriterProcess, child_command, kill_after, random_below,
    variable_from_parent,
};

const DIRECTORY_VARIABLE: &str = "FLOTILLA_POWER_DIRECTORY";
const SYNC_VARIABLE: &str = "FLOTILLA_POWER_SYNC";
const WRITERS_VARIABLE: &str = "FLOTILLA_POWER_WRITERS";
/// Acknowledged writes after which the write-ahead log has been checkpointed into the
/// database, and restarted, several times.
const CHECKPOINTED_WRITES: u64 = 2_000;

/// The test that runs in the child.
const WRITER_TEST: &str = "robustness::power_loss::child_writes";

/// The child of the other tests; without a parent it does nothing.
#[test]
fn child_writes() {
    if let Some(directory) = variable_from_parent(DIRECTORY_VARIABLE) {
        let number = |name| {
            let text = variable_from_parent(name).unwrap().into_string().unwrap();
            text.parse::<u64>().unwrap()
        };
        let options = EmbeddedStoreOptions {
            sync: number(SYNC_VARIABLE) == 1,
            // A short history, so that compaction removes rows, too.
            history_retention: Some(Duration::from_millis(100)),
            ..EmbeddedStoreOptions::default()
        };
        let writing = write_until_killed(Path::new(&directory), options, number(WRITERS_VARIABLE));
        new_runtime().block_on(writing);
    }
}

/// A child process that writes to a store on a simulated disk.
struct WriterProcessConfig<'a> {
    directory: &'a Path,
    disk: &'a FaultyDisk,
    sync: bool,
    writers: u64,
}

impl WriterProcessConfig<'_> {
    /// Kills it after `writes` acknowledged writes, and returns them.
    async fn run_and_kill(&self, writes: u64) -> WriteHistory {
        kill_after(&self.command(), writes).await
    }

    fn command(&self) -> Command {
        let mut command = child_command(WRITER_TEST);
        let number = |n: u64| OsString::from(n.to_string());
        command
            .env(DIRECTORY_VARIABLE, self.directory)
            .env(SYNC_VARIABLE, number(self.sync.into()))
            .env(WRITERS_VARIABLE, number(self.writers))
            .envs(self.disk.environment(&std::env::current_exe().unwrap()));
        command
    }
}

#[test]
fn survives_power_loss_at_any_moment() {
    survive_power_losses(8);
}

#[harness::slow]
#[test]
fn survives_power_loss_sixty_times() {
    survive_power_losses(60);
}

fn survive_power_losses(rounds: u64) {
    let directory = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::new(directory.path());
    let child = WriterProcessConfig {
        directory: directory.path(),
        disk: &disk,
        sync: true,
        writers: WRITERS,
    };
    let mut history = WriteHistory::new();
    for round in 0..rounds {
        new_runtime().block_on(async {
            let writes = if round % 4 == 3 {
                CHECKPOINTED_WRITES
            } else {
                random_below(5) * random_below(200)
            };
            let acknowledged = child.run_and_kill(writes).await;
            // No page that was not synced survives, or one in two, or one in three.
            let odds = round % 3;
            disk.lose_power(|| odds > 0 && random_below(odds + 1) == 0);
            let checked = check(directory.path(), &acknowledged, &mut history).await;
            checked.unwrap();
        });
    }
    assert!(history.len() > 100, "only {} writes in all", history.len());
}

/// The result of the check after a power loss that must have lost acknowledged writes.
fn check_after_power_loss(fsync: FsyncMode, sync: bool) -> Result<(), StoreDefectMessage> {
    let directory = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::new(directory.path());
    disk.set_fsync(fsync);
    let child = WriterProcessConfig {
        directory: directory.path(),
        disk: &disk,
        sync,
        writers: WRITERS,
    };
    new_runtime().block_on(async {
        let acknowledged = child.run_and_kill(100).await;
        disk.lose_power(|| false);
        check(directory.path(), &acknowledged, &mut WriteHistory::new()).await
    })
}

#[test]
fn check_finds_what_a_store_without_sync_loses() {
    let checked = check_after_power_loss(FsyncMode::Works, false);
    assert!(checked.is_err(), "synchronous=OFF passes for durable");
}

#[test]
fn check_finds_what_a_disk_that_forgets_loses() {
    let checked = check_after_power_loss(FsyncMode::Forgets, true);
    assert!(checked.is_err(), "a forgotten fsync passes for durable");
}

#[test]
fn each_acknowledged_write_has_waited_for_an_fsync() {
    let directory = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::new(directory.path());
    let child = WriterProcessConfig {
        directory: directory.path(),
        disk: &disk,
        sync: true,
        writers: 1,
    };
    let acknowledged = new_runtime().block_on(child.run_and_kill(50));
    let fsyncs = disk.fsyncs().worked;
    let writes = acknowledged.len() as u64;
    assert!(
        fsyncs >= writes,
        "{fsyncs} fsyncs for {writes} writes, one at a time"
    );
}

/// After a failed fsync, pages can be read from the page cache but are not on the disk. The
/// store writes again when fsync works, and has lost no acknowledged write.
#[test]
fn store_whose_fsync_failed_writes_again_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::new(directory.path());
    let child = WriterProcessConfig {
        directory: directory.path(),
        disk: &disk,
        sync: true,
        writers: WRITERS,
    };
    let mut history = WriteHistory::new();
    for round in 0..4 {
        let mut running = WriterProcess::start(&child.command());
        for failure in 1..=3 {
            // The log has been checkpointed in part, or not at all.
            running.wait_until(|report| report.acknowledged_count >= failure * (20 + round * 200));
            disk.set_fsync(FsyncMode::Fails);
            running.wait_until(|report| report.failed_count >= failure * 2 * WRITERS);
            disk.set_fsync(FsyncMode::Works);
        }
        let count = 3 * (20 + round * 200) + 100;
        running.wait_until(|report| report.acknowledged_count >= count);
        let report = running.kill();
        disk.lose_power(|| false);
        let checked = check_after_failures(
            directory.path(),
            &report.acknowledged,
            &mut history,
            report.failed_count,
        );
        new_runtime().block_on(checked).unwrap();
    }
    assert!(disk.fsyncs().failed > 0);
}

/// The process ends after a failed fsync and starts again on the same kernel, which still
/// regards the pages as clean.
#[test]
fn process_after_one_whose_fsync_failed_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::new(directory.path());
    let child = WriterProcessConfig {
        directory: directory.path(),
        disk: &disk,
        sync: true,
        writers: WRITERS,
    };
    let mut running = WriterProcess::start(&child.command());
    running.wait_until(|report| report.acknowledged_count >= 50);
    disk.set_fsync(FsyncMode::Fails);
    running.wait_until(|report| report.failed_count > 0);
    let mut report = running.kill();
    disk.set_fsync(FsyncMode::Works);
    report
        .acknowledged
        .extend(new_runtime().block_on(child.run_and_kill(100)));
    disk.lose_power(|| false);
    let mut history = WriteHistory::new();
    let (refused_writes, acknowledged) = (report.failed_count + WRITERS, report.acknowledged);
    let checked = check_after_failures(
        directory.path(),
        &acknowledged,
        &mut history,
        refused_writes,
    );
    new_runtime().block_on(checked).unwrap();
}
