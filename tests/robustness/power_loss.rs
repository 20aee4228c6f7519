//! Power losses while a process writes: pages that it had not synced are lost, or some of
//! them survive.
//!
//! Every acknowledged write must survive. The same check must detect a store that does not
//! wait for the disk, and a disk whose fsync does nothing.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use harness::{Disk, Fsync};
use storage::Options;

use crate::record::{History, Running, WRITERS, child, kill_after, parent_gave, random};
use crate::runtime;
use crate::survival::{Defect, check, check_after_failures, write_until_killed};

const DIRECTORY: &str = "FLOTILLA_POWER_DIRECTORY";
const SYNC: &str = "FLOTILLA_POWER_SYNC";
const WRITING: &str = "FLOTILLA_POWER_WRITERS";
/// Acknowledged writes after which the write-ahead log has been checkpointed into the
/// database, and restarted, several times.
const LOGS: u64 = 2_000;

/// The test that runs in the child.
const WRITER: &str = "power_loss::child_writes";

/// The child of the other tests; without a parent it does nothing.
#[test]
fn child_writes() {
    if let Some(directory) = parent_gave(DIRECTORY) {
        let number = |name| {
            let text = parent_gave(name).unwrap().into_string().unwrap();
            text.parse::<u64>().unwrap()
        };
        let options = Options {
            sync: number(SYNC) == 1,
            // A short history, so that compaction removes rows, too.
            history: Some(Duration::from_millis(100)),
            ..Options::default()
        };
        let writing = write_until_killed(Path::new(&directory), options, number(WRITING));
        runtime().block_on(writing);
    }
}

/// A child process that writes to a store on a simulated disk.
struct Child<'a> {
    directory: &'a Path,
    disk: &'a Disk,
    sync: bool,
    writers: u64,
}

impl Child<'_> {
    /// Kills it after `writes` acknowledged writes, and returns them.
    async fn run(&self, writes: u64) -> History {
        kill_after(self.command(), writes).await
    }

    fn command(&self) -> Command {
        let mut command = child(WRITER);
        let number = |n: u64| OsString::from(n.to_string());
        command
            .env(DIRECTORY, self.directory)
            .env(SYNC, number(self.sync.into()))
            .env(WRITING, number(self.writers))
            .envs(self.disk.environment(&std::env::current_exe().unwrap()));
        command
    }
}

#[test]
fn survives_power_loss_at_any_moment() {
    survives(8);
}

#[harness::slow]
#[test]
fn survives_power_loss_sixty_times() {
    survives(60);
}

fn survives(rounds: u64) {
    let directory = tempfile::tempdir().unwrap();
    let disk = Disk::new(directory.path());
    let child = Child {
        directory: directory.path(),
        disk: &disk,
        sync: true,
        writers: WRITERS,
    };
    let mut known = History::new();
    for round in 0..rounds {
        runtime().block_on(async {
            let writes = if round % 4 == 3 {
                LOGS
            } else {
                random(5) * random(200)
            };
            let acknowledged = child.run(writes).await;
            // No page that was not synced survives, or one in two, or one in three.
            let odds = round % 3;
            disk.lose_power(|| odds > 0 && random(odds + 1) == 0);
            let checked = check(directory.path(), &acknowledged, &mut known).await;
            checked.unwrap();
        });
    }
    assert!(known.len() > 100, "only {} writes in all", known.len());
}

/// The result of the check after a power loss that must have lost acknowledged writes.
fn defect(fsync: Fsync, sync: bool) -> Result<(), Defect> {
    let directory = tempfile::tempdir().unwrap();
    let disk = Disk::new(directory.path());
    disk.set_fsync(fsync);
    let child = Child {
        directory: directory.path(),
        disk: &disk,
        sync,
        writers: WRITERS,
    };
    runtime().block_on(async {
        let acknowledged = child.run(100).await;
        disk.lose_power(|| false);
        check(directory.path(), &acknowledged, &mut History::new()).await
    })
}

#[test]
fn check_finds_what_a_store_without_sync_loses() {
    let found = defect(Fsync::Works, false);
    assert!(found.is_err(), "synchronous=OFF passes for durable");
}

#[test]
fn check_finds_what_a_disk_that_forgets_loses() {
    let found = defect(Fsync::Forgets, true);
    assert!(found.is_err(), "a forgotten fsync passes for durable");
}

#[test]
fn each_acknowledged_write_has_waited_for_an_fsync() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Disk::new(directory.path());
    let child = Child {
        directory: directory.path(),
        disk: &disk,
        sync: true,
        writers: 1,
    };
    let acknowledged = runtime().block_on(child.run(50));
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
    let disk = Disk::new(directory.path());
    let child = Child {
        directory: directory.path(),
        disk: &disk,
        sync: true,
        writers: WRITERS,
    };
    let mut known = History::new();
    for round in 0..4 {
        let mut running = Running::start(child.command());
        for failure in 1..=3 {
            // The log has been checkpointed in part, or not at all.
            running.until(|report| report.count >= failure * (20 + round * 200));
            disk.set_fsync(Fsync::Fails);
            running.until(|report| report.refused >= failure * 2 * WRITERS);
            disk.set_fsync(Fsync::Works);
        }
        let count = 3 * (20 + round * 200) + 100;
        running.until(|report| report.count >= count);
        let report = running.kill();
        disk.lose_power(|| false);
        let checked = check_after_failures(
            directory.path(),
            &report.acknowledged,
            &mut known,
            report.refused,
        );
        runtime().block_on(checked).unwrap();
    }
    assert!(disk.fsyncs().failed > 0);
}

/// The process ends after a failed fsync and starts again on the same kernel, which still
/// regards the pages as clean.
#[test]
fn process_after_one_whose_fsync_failed_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Disk::new(directory.path());
    let child = Child {
        directory: directory.path(),
        disk: &disk,
        sync: true,
        writers: WRITERS,
    };
    let mut running = Running::start(child.command());
    running.until(|report| report.count >= 50);
    disk.set_fsync(Fsync::Fails);
    running.until(|report| report.refused > 0);
    let mut report = running.kill();
    disk.set_fsync(Fsync::Works);
    report
        .acknowledged
        .extend(runtime().block_on(child.run(100)));
    disk.lose_power(|| false);
    let mut known = History::new();
    let (refused, acknowledged) = (report.refused + WRITERS, report.acknowledged);
    let checked = check_after_failures(directory.path(), &acknowledged, &mut known, refused);
    runtime().block_on(checked).unwrap();
}
