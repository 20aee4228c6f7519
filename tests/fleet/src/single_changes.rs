//! Single changes and new placements, and how long they take to reach all members that they concern.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::load::LoadClient;
use crate::load::objects::{own_policy, single_template};
use crate::members::FleetProgress;
use crate::sizes::FleetSize;

/// The template that single changes are made to. It is no part of the load.
const CHANGED_TEMPLATE: &str = "changed";
const CHANGE_PAUSE: Duration = Duration::from_millis(200);

/// Makes changes, one at a time.
pub(crate) struct SingleChanges<'a> {
    size: &'a FleetSize,
    client: &'a LoadClient,
    progress: &'a FleetProgress,
    /// Distinguishes its rounds from those of others.
    phase: &'static str,
    rounds: Cell<usize>,
}

impl<'a> SingleChanges<'a> {
    pub(crate) fn new(
        size: &'a FleetSize,
        client: &'a LoadClient,
        progress: &'a FleetProgress,
        phase: &'static str,
    ) -> Self {
        Self {
            phase,
            size,
            client,
            progress,
            rounds: Cell::new(0),
        }
    }

    fn next_round(&self) -> String {
        self.rounds.set(self.rounds.get() + 1);
        format!("{}-{}", self.phase, self.rounds.get())
    }

    /// Creates the template that is changed.
    pub(crate) async fn create_changed_template(&self) -> anyhow::Result<()> {
        self.place(CHANGED_TEMPLATE).await.map(drop)
    }

    /// Creates a template with a policy that places it in the first group of clusters; returns the
    /// seconds from the first request until all of them have it.
    async fn place(&self, name: &str) -> anyhow::Result<f64> {
        let round = self.next_round();
        let objects = [own_policy(name, 0), single_template(name, &round)];
        let began = Instant::now();
        self.client.create(&objects).await?;
        self.wait_for_clusters(&round, began).await
    }

    /// The seconds of as many new placements.
    pub(crate) async fn measure_placements(&self, count: usize) -> anyhow::Result<Vec<f64>> {
        let mut seconds = Vec::new();
        for n in 0..count {
            seconds.push(self.place(&format!("placed-{n}")).await?);
            tokio::time::sleep(CHANGE_PAUSE).await;
        }
        Ok(seconds)
    }

    /// Changes the template until `is_done`; returns the seconds that each change took.
    pub(crate) async fn measure_changes(
        &self,
        is_done: impl Fn(usize) -> bool,
    ) -> anyhow::Result<Vec<f64>> {
        let mut seconds = Vec::new();
        while !is_done(seconds.len()) {
            let round = self.next_round();
            let began = Instant::now();
            self.client.change_round(CHANGED_TEMPLATE, &round).await?;
            seconds.push(self.wait_for_clusters(&round, began).await?);
            tokio::time::sleep(CHANGE_PAUSE).await;
        }
        Ok(seconds)
    }

    async fn wait_for_clusters(&self, round: &str, began: Instant) -> anyhow::Result<f64> {
        let clusters = self.size.clusters_per_group();
        let last = self
            .progress
            .wait_for_objects(round, clusters, self.size.rollout_timeout());
        Ok(last.await?.duration_since(began).as_secs_f64())
    }
}
