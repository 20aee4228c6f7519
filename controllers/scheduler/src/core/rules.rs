//! The rules of decisions: enabled plugins and optional behavior, from `--plugins` and
//! feature gates.
//!
//! Source: Karmada's `pkg/scheduler/framework/plugins/registry.go` and
//! `framework/runtime/registry.go`.

use openapi::karmada::{FeatureGates, Gate};
use serde::Serialize;

/// A plugin that filters or scores clusters, under Karmada's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Plugin {
    APIEnablement,
    TaintToleration,
    ClusterAffinity,
    SpreadConstraint,
    ClusterEviction,
    ClusterLocality,
    WorkloadAffinity,
    WorkloadAntiAffinity,
}

impl Plugin {
    pub const ALL: [Self; 8] = [
        Self::APIEnablement,
        Self::TaintToleration,
        Self::ClusterAffinity,
        Self::SpreadConstraint,
        Self::ClusterEviction,
        Self::ClusterLocality,
        Self::WorkloadAffinity,
        Self::WorkloadAntiAffinity,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::APIEnablement => "APIEnablement",
            Self::TaintToleration => "TaintToleration",
            Self::ClusterAffinity => "ClusterAffinity",
            Self::SpreadConstraint => "SpreadConstraint",
            Self::ClusterEviction => "ClusterEviction",
            Self::ClusterLocality => "ClusterLocality",
            Self::WorkloadAffinity => "WorkloadAffinity",
            Self::WorkloadAntiAffinity => "WorkloadAntiAffinity",
        }
    }
}

/// A name in `--plugins` that is not a plugin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown scheduler plugin {name:?}; known plugins are {}", known())]
pub struct UnknownPlugin {
    name: String,
}

fn known() -> String {
    Plugin::ALL.map(Plugin::name).join(", ")
}

/// The enabled plugins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plugins(u8);

impl Default for Plugins {
    fn default() -> Self {
        Self(u8::MAX)
    }
}

impl Plugins {
    /// Parses `--plugins`: `*` enables all, wherever it stands; a name enables a plugin, and
    /// `-name` disables one that was enabled before it.
    pub fn named<S: AsRef<str>>(names: &[S]) -> Result<Self, UnknownPlugin> {
        let names = || names.iter().map(|name| name.as_ref().trim());
        let mut bits = if names().any(|name| name == "*") {
            u8::MAX
        } else {
            0
        };
        for name in names().filter(|name| !name.is_empty() && *name != "*") {
            let (plain, add) = match name.strip_prefix('-') {
                Some(plain) => (plain, false),
                None => (name, true),
            };
            let plugin = Plugin::ALL.iter().find(|plugin| plugin.name() == plain);
            let plugin = plugin.ok_or_else(|| UnknownPlugin { name: plain.into() })?;
            let bit = 1 << *plugin as u8;
            bits = if add { bits | bit } else { bits & !bit };
        }
        Ok(Self(bits))
    }

    pub fn has(self, plugin: Plugin) -> bool {
        self.0 & 1 << plugin as u8 != 0
    }

    fn without(self, plugin: Plugin) -> Self {
        Self(self.0 & !(1 << plugin as u8))
    }
}

/// The rules that every decision follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    pub plugins: Plugins,
    /// Capacity is estimated by resource models if a cluster reports them.
    pub resource_models: bool,
    /// Workloads with several components are scheduled as a set.
    pub component_sets: bool,
    /// Capacity assigned by recent decisions is reserved.
    pub reserve: bool,
    /// Chosen clusters without replicas get the object as well.
    pub empty_workloads: bool,
    /// Accurate estimators are asked.
    pub estimators: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self::new(FeatureGates::default(), Plugins::default(), false)
    }
}

impl Rules {
    pub fn new(gates: FeatureGates, plugins: Plugins, empty_workloads: bool) -> Self {
        let plugins = if gates.is_on(Gate::WorkloadAffinity) {
            plugins
        } else {
            plugins
                .without(Plugin::WorkloadAffinity)
                .without(Plugin::WorkloadAntiAffinity)
        };
        Self {
            plugins,
            resource_models: gates.is_on(Gate::CustomizedClusterResourceModeling),
            component_sets: gates.is_on(Gate::MultiplePodTemplatesScheduling),
            reserve: gates.is_on(Gate::SchedulingOvercommitProtection),
            empty_workloads,
            estimators: false,
        }
    }

    /// The same rules with accurate estimators enabled or not.
    #[must_use]
    pub fn asking(self, estimators: bool) -> Self {
        Self { estimators, ..self }
    }

    /// Whether other bindings of an affinity group matter.
    pub fn looks_at_peers(self) -> bool {
        self.plugins.has(Plugin::WorkloadAffinity) || self.plugins.has(Plugin::WorkloadAntiAffinity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves: SCH-plugins
    #[test]
    fn plugins_are_enabled_and_disabled_by_name() {
        use Plugin::{APIEnablement, ClusterLocality, TaintToleration};
        for (names, has, has_not) in [
            (&["*"] as &[&str], Some(TaintToleration), None),
            (
                &["*", "-TaintToleration"],
                Some(APIEnablement),
                Some(TaintToleration),
            ),
            (
                &["-TaintToleration", "*"],
                Some(APIEnablement),
                Some(TaintToleration),
            ),
            (
                &["ClusterLocality"],
                Some(ClusterLocality),
                Some(APIEnablement),
            ),
            (&["-ClusterLocality"], None, Some(APIEnablement)),
            (
                &["APIEnablement", "-APIEnablement"],
                None,
                Some(APIEnablement),
            ),
        ] {
            let plugins = Plugins::named(names).unwrap();
            assert!(has.is_none_or(|p| plugins.has(p)), "{names:?}");
            assert!(!has_not.is_some_and(|p| plugins.has(p)), "{names:?}");
        }
        let refused = Plugins::named(&["*", "-Taints"]).unwrap_err();
        assert!(refused.to_string().contains("\"Taints\""), "{refused}");
    }

    // proves: SCH-workload-gate
    #[test]
    fn affinity_groups_need_their_feature_gate() {
        assert!(!Rules::default().looks_at_peers());
        let gates = FeatureGates::default().with(Gate::WorkloadAffinity, true);
        assert!(Rules::new(gates, Plugins::default(), false).looks_at_peers());
    }
}
