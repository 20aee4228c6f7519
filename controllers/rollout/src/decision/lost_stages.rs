//! Decides about stages that have lost their clusters: all have left before their part of the stage had
//! ended. Nobody has proved the target there, so such a stage does not pass by itself.

use karmada_api::rollout::have_left_before_end;

use super::step::RolloutStep;
use crate::cluster_names::cluster_names;

impl RolloutStep<'_> {
    /// The first stage of the policy that has lost its clusters. It holds later ones, and the end of the
    /// rollout: after that, whoever comes back would get the target at once. With `Continue`, and once it
    /// is approved without clusters, a stage holds nobody.
    pub(super) fn first_lost_stage(&self) -> Option<usize> {
        let has_departures = self.clusters.iter().any(|c| c.observed.is_none());
        if !has_departures || !self.is_staged() || self.continues() {
            return None;
        }
        let is_lost = |stage: &usize| {
            let members = self.clusters.iter().filter(|c| c.stage == *stage);
            have_left_before_end(members.map(|c| &c.status))
                && !self.approvals_of(*stage).any(|a| a.without_clusters)
        };
        (0..self.input.policy.stages.len()).find(is_lost)
    }

    /// Which clusters a stage has lost, and what lets it pass.
    pub(super) fn lost_clusters_text(&self, stage: usize) -> String {
        let members = self.clusters.iter().filter(|c| c.stage == stage);
        let names: Vec<&str> = members.map(|c| &*c.status.name).collect();
        let (name, names) = (self.stage_name(stage), cluster_names(&names));
        format!(
            "all clusters of stage {name} have left before they had ended: {names}; it goes on with a cluster that \
            joins the stage, or after flotilla rollout approve --stage {name} --without-clusters"
        )
    }
}
