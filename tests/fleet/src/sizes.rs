//! The sizes of fleets that are measured.
//!
//! Clusters are divided into groups of equal size, and each template goes to all clusters of one
//! group, so that each size has the same objects in the same members in every run.

use std::time::Duration;

/// How many clusters and templates there are, and which template goes where.
#[derive(Debug)]
pub struct FleetSize {
    pub name: &'static str,
    pub description: &'static str,
    pub clusters: usize,
    pub templates: usize,
    /// The number of groups of clusters.
    pub groups: usize,
    /// Whether each template has a policy, an override policy and a ConfigMap of its own. Otherwise
    /// each group has one policy.
    pub has_own_policies: bool,
    /// The CPU of the server per object in members, as a multiple of the reference loop. At the first
    /// size four fifths of what it was before content was shared; it may grow by three tenths up to
    /// the largest.
    pub(crate) cpu_ratio_goal: Option<f64>,
    /// Whether the changes of templates go through the clusters in stages; then nothing else is
    /// measured.
    pub(crate) is_staged: bool,
    /// A run of seconds, which shows that the benchmark works.
    pub is_smoke: bool,
}

/// All sizes, smallest first.
pub(crate) const SIZES: [FleetSize; 8] = [
    FleetSize {
        name: "smoke",
        description: "6 templates with policies, overrides and ConfigMaps, in 2 of 4 clusters each",
        clusters: 4,
        templates: 6,
        groups: 2,
        has_own_policies: true,
        cpu_ratio_goal: None,
        is_staged: false,
        is_smoke: true,
    },
    FleetSize {
        name: "300x3",
        description: "300 templates in 3 clusters",
        clusters: 3,
        templates: 300,
        groups: 1,
        has_own_policies: false,
        cpu_ratio_goal: Some(160.0),
        is_staged: false,
        is_smoke: false,
    },
    FleetSize {
        name: "5000x10",
        description: "5,000 templates with policies, overrides and ConfigMaps, in 10 clusters",
        clusters: 10,
        templates: 5_000,
        groups: 1,
        has_own_policies: true,
        cpu_ratio_goal: None,
        is_staged: false,
        is_smoke: false,
    },
    FleetSize {
        name: "100000x2",
        description: "100,000 templates in 2 of 100 clusters each",
        clusters: 100,
        templates: 100_000,
        groups: 50,
        has_own_policies: false,
        cpu_ratio_goal: None,
        is_staged: false,
        is_smoke: false,
    },
    FleetSize {
        name: "1000x100",
        description: "1,000 templates in 100 of 1,000 clusters each",
        clusters: 1_000,
        templates: 1_000,
        groups: 10,
        has_own_policies: false,
        cpu_ratio_goal: Some(208.0),
        is_staged: false,
        is_smoke: false,
    },
    FleetSize {
        name: "20000x5",
        description: "20,000 templates in 5 of 1,000 clusters each",
        clusters: 1_000,
        templates: 20_000,
        groups: 200,
        has_own_policies: false,
        cpu_ratio_goal: None,
        is_staged: false,
        is_smoke: false,
    },
    FleetSize {
        name: "rollout-smoke",
        description: "4 templates, whose changes go through 6 clusters in 3 stages",
        clusters: 6,
        templates: 4,
        groups: 1,
        has_own_policies: false,
        cpu_ratio_goal: None,
        is_staged: true,
        is_smoke: true,
    },
    FleetSize {
        name: "rollout",
        description: "100 templates, whose changes go through 100 clusters in 3 stages",
        clusters: 100,
        templates: 100,
        groups: 1,
        has_own_policies: false,
        cpu_ratio_goal: None,
        is_staged: true,
        is_smoke: false,
    },
];

/// The stages of rollouts, in order.
pub(crate) const STAGES: [&str; 3] = ["first", "second", "third"];

impl FleetSize {
    /// How long the load may take to reach the members and to be reported, and a change that waits
    /// behind it.
    pub(crate) fn rollout_timeout(&self) -> Duration {
        Duration::from_secs(if self.is_smoke { 300 } else { 7200 })
    }

    /// The size with this name.
    pub fn find(name: &str) -> Option<&'static Self> {
        SIZES.iter().find(|size| size.name == name)
    }

    pub(crate) fn cluster_name(&self, cluster: usize) -> String {
        format!("member-{cluster:04}")
    }

    pub(crate) fn template_name(&self, template: usize) -> String {
        format!("load-{template:06}")
    }

    /// The group of a cluster or of a template.
    pub(crate) fn group_of(&self, index: usize) -> usize {
        index % self.groups
    }

    /// The index of the stage of a cluster: a tenth of the clusters are in the first stage, three
    /// tenths in the second.
    pub(crate) fn stage_of(&self, cluster: usize) -> usize {
        match cluster * 10 / self.clusters {
            0 => 0,
            1..=3 => 1,
            _ => 2,
        }
    }

    /// The number of clusters in each group.
    pub(crate) fn clusters_per_group(&self) -> usize {
        self.clusters / self.groups
    }

    /// The number of objects that the templates of the load come to in all members.
    pub(crate) fn member_objects(&self) -> usize {
        let kinds = if self.has_own_policies { 2 } else { 1 };
        self.templates * self.clusters_per_group() * kinds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_each_size_have_as_many_clusters() {
        for size in &SIZES {
            assert_eq!(size.clusters % size.groups, 0, "{}", size.name);
        }
        let objects = SIZES.iter().map(FleetSize::member_objects);
        let expected = [24, 900, 100_000, 200_000, 100_000, 100_000, 24, 10_000];
        assert_eq!(objects.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn each_stage_has_clusters() {
        let staged = SIZES.iter().filter(|size| size.is_staged);
        let counts = staged.map(|size| {
            let stages: Vec<usize> = (0..size.clusters).map(|c| size.stage_of(c)).collect();
            [0, 1, 2].map(|stage| stages.iter().filter(|s| **s == stage).count())
        });
        assert_eq!(counts.collect::<Vec<_>>(), [[1, 2, 3], [10, 30, 60]]);
    }
}
