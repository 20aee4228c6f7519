//! The leader's part in a takeover: follows the phase, imports objects, and runs the controllers
//! only in the phase that says so.

use std::time::Duration;

use aggregation::{TakeoverImporter, TakeoverRecord};
use client::TaskGroup;
use machinery::FailureLogLimiter;

use crate::controller_manager::{self, LeaderContext, MultiClusterControllerOptions};

/// The interval at which the record is read: while a command acts it waits for each phase.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// The same once Flotilla has taken over, when nobody waits.
const SERVING_POLL_INTERVAL: Duration = Duration::from_secs(2);
/// The name of the record in logs.
const RECORD: &str = "takeover";

struct PhaseFollower {
    importer: TakeoverImporter,
    leader: LeaderContext,
    settings: MultiClusterControllerOptions,
    /// The tasks of the controllers, while they run.
    running: Option<TaskGroup>,
    /// The writes to members of this process before the controllers were started.
    earlier_writes: u64,
}

/// Follows the record until the term of the leader ends.
pub(crate) fn follow(
    importer: TakeoverImporter,
    leader: LeaderContext,
    settings: MultiClusterControllerOptions,
) {
    let tasks = leader.controllers.tasks.clone();
    let stop = tasks.shutdown().clone();
    let mut follower = PhaseFollower {
        importer,
        leader,
        settings,
        running: None,
        earlier_writes: 0,
    };
    tasks.spawn(async move {
        stop.run_until_triggered(Box::pin(follower.run())).await;
        // The controllers' tasks end with the leader's, which join them.
        stop.wait().await;
    });
}

impl PhaseFollower {
    async fn run(&mut self) {
        let failures = FailureLogLimiter::new();
        loop {
            match self.follow_once().await {
                Ok(()) => {
                    failures.record_success(RECORD);
                }
                // The controllers go on: the phase is unknown, not changed.
                Err(error) => {
                    let error = format!("{error:#}");
                    if failures.record_failure(RECORD, &error) {
                        tracing::warn!(error, "the takeover cannot be followed");
                    }
                }
            }
            let pause = match self.running {
                Some(_) => SERVING_POLL_INTERVAL,
                None => POLL_INTERVAL,
            };
            tokio::time::sleep(pause).await;
        }
    }

    async fn follow_once(&mut self) -> anyhow::Result<()> {
        let Some(record) = self.importer.follower().read().await? else {
            return self.stop_controllers().await;
        };
        match record.phase.runs_controllers() {
            true => self.start_controllers().await?,
            false => self.stop_controllers().await?,
        }
        match record.is_reported() {
            true => Ok(()),
            false => self.act(&record).await,
        }
    }

    async fn act(&self, record: &TakeoverRecord) -> anyhow::Result<()> {
        let mut report = self.importer.act(record).await;
        report.member_writes = propagation::member_writes() - self.earlier_writes;
        tracing::info!(phase = %report.phase, pass = report.pass, errors = report.errors.len(), "takeover");
        self.importer.follower().report(&report).await
    }

    async fn start_controllers(&mut self) -> anyhow::Result<()> {
        if self.running.is_some() {
            return Ok(());
        }
        self.earlier_writes = propagation::member_writes();
        let tasks = self.leader.controllers.tasks.child();
        let context = self.leader.in_tasks(tasks.clone());
        let started = controller_manager::start_karmada_controllers(&context, &self.settings);
        if let Err(error) = Box::pin(started).await {
            tasks.stop().await;
            return Err(error);
        }
        self.running = Some(tasks);
        Ok(())
    }

    async fn stop_controllers(&mut self) -> anyhow::Result<()> {
        if let Some(tasks) = self.running.take() {
            tasks.stop().await;
            self.leader.decisions.clear();
        }
        Ok(())
    }
}
