//! Changes templates that go through the clusters in three stages.
//!
//! Unstaged changes of all templates come first, so that the cost of the stages can be told from that
//! of the changes.

use std::time::{Duration, Instant};

use super::{FleetRun, MIB};
use crate::load::objects::{
    LOAD_ROUND, group_policy, group_selector, name_selector, template_with_companions,
};
use crate::load::staged_policies::rollout_policy;
use crate::load::{RolloutStatuses, TemplateStatuses};
use crate::report::FleetGoal;
use crate::sizes::STAGES;

/// The seconds that a client may wait for one rollout, and for as many as there are templates,
/// beside the time for which clusters soak.
const ONE_ROLLOUT_GOAL: f64 = 5.0;
const ALL_ROLLOUTS_GOAL: f64 = 15.0;
/// Between the last write to a cluster of a stage and the first one to a cluster of the next.
const NEXT_STAGE_GOAL_MS: f64 = 100.0;
/// The most that a policy may cost that selects no template, as a multiple of a change without it.
const UNSELECTING_POLICY_GOAL: f64 = 1.1;
const BYTES_PER_CLUSTER_GOAL: f64 = 1024.0;
const CHANGE_TIMEOUT: Duration = Duration::from_secs(900);

impl FleetRun {
    pub(super) async fn stage_changes(&mut self) -> anyhow::Result<()> {
        self.propagate_templates().await?;
        let plain = self.change_unstaged("unstaged").await?;
        let selector = name_selector("absent");
        let policy = rollout_policy("selects-nothing", &selector, self.limits.soak_seconds);
        self.client.create(&[policy]).await?;
        let unselected = self.change_unstaged("unselected").await?;
        let goal = self.goal_at("rollout", UNSELECTING_POLICY_GOAL);
        let report = &mut self.report;
        report.record("unstaged_changes_cpu", plain, "s", FleetGoal::None);
        report.record("unselecting_policy_cost", unselected / plain, "", goal);
        let statuses = self.adopt_templates().await?;
        self.roll_out_one(&statuses).await?;
        self.measure_next_stages(&statuses).await?;
        self.roll_out_all(&statuses).await
    }

    async fn propagate_templates(&mut self) -> anyhow::Result<()> {
        let (size, client) = (self.size, &self.client);
        client.create(&[group_policy(0)]).await?;
        let statuses = TemplateStatuses::watch(client, size.clusters);
        let create = |template| template_with_companions(size, template);
        client.create_all(size.templates, create).await?;
        let progress = &self.fleet.progress;
        let objects = size.member_objects();
        let present = progress.wait_for_objects(LOAD_ROUND, objects, CHANGE_TIMEOUT);
        present.await?;
        statuses
            .wait_for_ready(size.templates, CHANGE_TIMEOUT)
            .await?;
        self.wait_until_idle().await
    }

    async fn wait_until_idle(&self) -> anyhow::Result<()> {
        let idle = self
            .server
            .wait_until_idle(self.size.clusters, self.limits.idle);
        idle.await.map(drop)
    }

    fn template_names(&self) -> Vec<String> {
        let size = self.size;
        (0..size.templates).map(|n| size.template_name(n)).collect()
    }

    /// Changes all templates; returns the CPU seconds of the server until it is idle again.
    async fn change_unstaged(&self, round: &str) -> anyhow::Result<f64> {
        let before = self.server.cpu_seconds()?;
        let names = self.template_names();
        self.client.change_revisions(&names, round).await?;
        let objects = self.size.member_objects();
        let present = self
            .fleet
            .progress
            .wait_for_objects(round, objects, CHANGE_TIMEOUT);
        present.await?;
        self.wait_until_idle().await?;
        Ok(self.server.cpu_seconds()? - before)
    }

    /// Puts all templates under a policy, and measures the memory for which it accounts.
    async fn adopt_templates(&mut self) -> anyhow::Result<RolloutStatuses> {
        let size = self.size;
        let before = self.server.resident_bytes()?;
        let statuses = RolloutStatuses::watch(&self.client);
        let began = Instant::now();
        let policy = rollout_policy("all", &group_selector(0), self.limits.soak_seconds);
        self.client.create(&[policy]).await?;
        let none = statuses.completed();
        let staged = statuses
            .wait_for_completed(&none, size.templates, CHANGE_TIMEOUT)
            .await?;
        self.wait_until_idle().await?;
        let bytes = (self.server.resident_bytes()? - before) / size.member_objects() as f64;
        let seconds = staged.duration_since(began).as_secs_f64();
        let goal = self.goal_at("rollout", BYTES_PER_CLUSTER_GOAL);
        let report = &mut self.report;
        report.record("policy_adopted", seconds, "s", FleetGoal::None);
        report.record("memory_per_rollout_cluster", bytes, "B", goal);
        Ok(statuses)
    }

    async fn roll_out_one(&mut self, statuses: &RolloutStatuses) -> anyhow::Result<()> {
        let (name, round) = (self.size.template_name(0), "one");
        let (before, cpu) = (statuses.completed(), self.server.cpu_seconds()?);
        let began = Instant::now();
        self.client.change_revision(&name, round).await?;
        let ended = statuses.wait_for_completed(&before, 1, CHANGE_TIMEOUT);
        let elapsed = ended.await?.duration_since(began).as_secs_f64();
        let seconds = elapsed - self.soaking_seconds();
        let cpu = self.server.cpu_seconds()? - cpu;
        let goal = self.goal_at("rollout", ONE_ROLLOUT_GOAL);
        let missing = self.size.clusters - self.fleet.progress.objects(round);
        let is_late = self
            .stage_gaps(round)
            .iter()
            .any(|gap| *gap < self.limits.soak_seconds as f64);
        let report = &mut self.report;
        report.record("one_rollout_beside_soaking", seconds, "s", goal);
        report.record("one_rollout_cpu", cpu, "s", FleetGoal::None);
        report.record_violations("one_rollout_missing", missing);
        report.record_violations("one_rollout_short_soaks", usize::from(is_late));
        Ok(())
    }

    /// The seconds between the last write to each stage and the first one to the next stage; negative
    /// if they overlap.
    fn stage_gaps(&self, round: &str) -> Vec<f64> {
        let mut bounds: [Option<(Instant, Instant)>; STAGES.len()] = [None; STAGES.len()];
        for (member, at) in self.fleet.progress.arrivals(round) {
            let bound = &mut bounds[self.size.stage_of(member)];
            let (first, last) = bound.unwrap_or((at, at));
            *bound = Some((first.min(at), last.max(at)));
        }
        let bounds: Vec<(Instant, Instant)> = bounds.into_iter().flatten().collect();
        let gap = |pair: &[(Instant, Instant)]| {
            let ((_, last), (first, _)) = (pair[0], pair[1]);
            match first.checked_duration_since(last) {
                Some(gap) => gap.as_secs_f64(),
                None => -last.duration_since(first).as_secs_f64(),
            }
        };
        bounds.windows(2).map(gap).collect()
    }

    /// Rolls one template out without soaking, so that each stage follows at once.
    async fn measure_next_stages(&mut self, statuses: &RolloutStatuses) -> anyhow::Result<()> {
        let name = self.size.template_name(1);
        let policy = rollout_policy("at-once", &name_selector(&name), 0);
        self.client.create(&[policy]).await?;
        self.wait_until_idle().await?;
        let mut gaps = Vec::new();
        for n in 0..self.limits.placements {
            let (round, before) = (format!("at-once-{n}"), statuses.completed());
            self.client.change_revision(&name, &round).await?;
            statuses
                .wait_for_completed(&before, 1, CHANGE_TIMEOUT)
                .await?;
            gaps.extend(self.stage_gaps(&round));
        }
        let overlaps = gaps.iter().filter(|gap| **gap < 0.0).count();
        let goal = self.goal_at("rollout", NEXT_STAGE_GOAL_MS);
        self.report.record_latencies("next_stage", gaps, goal);
        self.report
            .record_violations("overlapping_stages", overlaps);
        Ok(())
    }

    async fn roll_out_all(&mut self, statuses: &RolloutStatuses) -> anyhow::Result<()> {
        self.wait_until_idle().await?;
        let (size, round, names) = (self.size, "all", self.template_names());
        let (before, cpu) = (statuses.completed(), self.server.cpu_seconds()?);
        let began = Instant::now();
        self.client.change_revisions(&names, round).await?;
        let ended = statuses.wait_for_completed(&before, size.templates, CHANGE_TIMEOUT);
        let elapsed = ended.await?.duration_since(began).as_secs_f64();
        let cpu = self.server.cpu_seconds()? - cpu;
        let peak = self.server.peak_resident_bytes()? / MIB;
        let seconds = elapsed - self.soaking_seconds();
        let missing = size.member_objects() - self.fleet.progress.objects(round);
        let goal = self.goal_at("rollout", ALL_ROLLOUTS_GOAL);
        let report = &mut self.report;
        report.record("all_rollouts_beside_soaking", seconds, "s", goal);
        report.record("all_rollouts_cpu", cpu, "s", FleetGoal::None);
        report.record(
            "all_rollouts_cores",
            cpu / elapsed,
            "cores",
            FleetGoal::None,
        );
        report.record("memory_peak", peak, "MiB", FleetGoal::None);
        report.record_violations("all_rollouts_missing", missing);
        Ok(())
    }

    /// How long the clusters of all stages soak.
    fn soaking_seconds(&self) -> f64 {
        (self.limits.soak_seconds * STAGES.len() as u64) as f64
    }
}
