//! Decides with which revision clusters join a rollout.

use std::collections::{BTreeMap, HashSet};

use karmada_api::rollout::{LEFT_AFTER_END, RolloutPhase};

use super::clusters::ClusterState;
use super::input::ObservedTarget;
use super::step::RolloutStep;

impl RolloutStep<'_> {
    /// Adds the clusters that have become targets. They are judged by the stages as they were before.
    pub(super) fn join_clusters(&mut self) {
        let (input, goal, now) = (self.input, self.goal().to_owned(), self.input.now);
        let targets = self.clusters.iter().filter_map(|c| c.observed);
        let names: HashSet<&str> = targets.map(|target| target.name.as_str()).collect();
        let joining = input.targets.iter().filter(|t| !names.contains(&*t.name));
        let joining: BTreeMap<&str, &ObservedTarget> =
            joining.map(|target| (&*target.name, target)).collect();
        let ended_stages = self.ended_stages();
        let mut joined = Vec::new();
        for target in joining.values() {
            let kept = self.kept_replicas_of(target);
            let revision = match self.passes_at_once(target, ended_stages) {
                // One that keeps its replicas when it returns waits for its turn with them.
                _ if kept.is_some() => &target.work_revision,
                true => &goal,
                false => &self.stable,
            };
            let percent = match kept {
                Some(_) => self.batch_of_departed(target, kept).percent,
                None => 0,
            };
            let mut state = ClusterState::joined(target, (revision, percent), &goal, now);
            state.status.failed = self.departures_of(&target.name).any(|c| c.status.failed);
            joined.push(state);
        }
        // One that is back in its stage has not left any more, and one that has failed counts once.
        self.clusters.retain(|c| {
            let target = joining.get(&*c.status.name);
            c.observed.is_some() || target.is_none_or(|target| target.stage != c.stage)
        });
        for cluster in &mut self.clusters {
            cluster.status.failed &= !joining.contains_key(&*cluster.status.name);
        }
        self.clusters.extend(joined);
        self.clusters.sort_by(|a, b| a.order().cmp(&b.order()));
    }

    /// How many stages have ended for clusters that join; none while the rollout is held, so that nobody
    /// begins.
    fn ended_stages(&self) -> usize {
        let is_somewhere = self.clusters.iter().any(|c| c.observed.is_some());
        match is_somewhere && !self.is_held() {
            true => self.frontier(),
            false => 0,
        }
    }

    /// Whether a cluster that joins gets the goal at once, since its stage has ended: one that left
    /// before it had proved the target takes its turn.
    fn passes_at_once(&self, target: &ObservedTarget, ended_stages: usize) -> bool {
        let mut departures = self.departures_of(&target.name);
        !self.is_staged()
            || target.stage < ended_stages
                && self.has_proof(target.stage)
                && departures.all(|c| c.status.reason == LEFT_AFTER_END)
    }

    /// Whether a cluster of a stage is done with the goal. Without one, the first that joins the stage
    /// goes through its gates.
    fn has_proof(&self, stage: usize) -> bool {
        let goal = self.goal();
        let mut members = self.clusters.iter().filter(|c| c.stage == stage);
        members.any(|c| match c.observed {
            Some(_) => c.has(goal) && c.status.phase == RolloutPhase::Done,
            None => c.status.reason == LEFT_AFTER_END,
        })
    }

    fn departures_of(&self, name: &str) -> impl Iterator<Item = &ClusterState<'_>> {
        let departures = self.clusters.iter().filter(|c| c.observed.is_none());
        departures.filter(move |c| c.status.name == name)
    }
}
