//! The rules of decisions: enabled plugins and optional behavior, from `--plugins` and
//! feature gates.
//!
//! Source: Karmada's `pkg/scheduler/framework/plugins/registry.go` and
//! `framework/runtime/registry.go`.

use karmada_api::{FeatureGates, KarmadaFeature};
use serde::Serialize;

/// A plugin that filters or scores clusters, under Karmada's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum SchedulerPluginName {
    APIEnablement,
    TaintToleration,
    ClusterAffinity,
    SpreadConstraint,
    ClusterEviction,
    ClusterLocality,
    WorkloadAffinity,
    WorkloadAntiAffinity,
}

impl SchedulerPluginName {
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

    /// The points at which the plugin runs: it filters clusters, scores them, or both.
    pub fn extension_points(self) -> &'static [ExtensionPoint] {
        match self {
            Self::APIEnablement
            | Self::TaintToleration
            | Self::ClusterAffinity
            | Self::SpreadConstraint
            | Self::ClusterEviction
            | Self::WorkloadAffinity
            | Self::WorkloadAntiAffinity => &[ExtensionPoint::Filter],
            Self::ClusterLocality => &[ExtensionPoint::Score],
        }
    }
}

/// A point of the scheduling framework at which plugins run; the values of Karmada's
/// `extension_point`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtensionPoint {
    Filter,
    Score,
}

impl ExtensionPoint {
    pub(crate) const ALL: [Self; 2] = [Self::Filter, Self::Score];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Filter => "Filter",
            Self::Score => "Score",
        }
    }
}

/// A name in `--plugins` that is not a plugin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown scheduler plugin {name:?}; known plugins are {}",
    plugin_names()
)]
pub struct UnknownPluginError {
    name: String,
}

fn plugin_names() -> String {
    SchedulerPluginName::ALL
        .map(SchedulerPluginName::name)
        .join(", ")
}

/// The enabled plugins: one bit per plugin, at the position of its variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulerPluginSet(u32);

impl Default for SchedulerPluginSet {
    fn default() -> Self {
        Self::ALL
    }
}

impl SchedulerPluginSet {
    const NONE: Self = Self(0);
    const ALL: Self = {
        assert!(SchedulerPluginName::ALL.len() < u32::BITS as usize);
        Self((1 << SchedulerPluginName::ALL.len()) - 1)
    };

    /// Parses `--plugins`: `*` enables all, wherever it stands; a name enables a plugin, and
    /// `-name` disables one that was enabled before it.
    pub fn parse<S: AsRef<str>>(names: &[S]) -> Result<Self, UnknownPluginError> {
        let names = || names.iter().map(|name| name.as_ref().trim());
        let mut plugins = if names().any(|name| name == "*") {
            Self::ALL
        } else {
            Self::NONE
        };
        for name in names().filter(|name| !name.is_empty() && *name != "*") {
            let (plain, add) = match name.strip_prefix('-') {
                Some(plain) => (plain, false),
                None => (name, true),
            };
            let plugin = SchedulerPluginName::ALL
                .iter()
                .find(|plugin| plugin.name() == plain);
            let plugin = plugin.ok_or_else(|| UnknownPluginError { name: plain.into() })?;
            plugins = if add {
                plugins.with(*plugin)
            } else {
                plugins.without(*plugin)
            };
        }
        Ok(plugins)
    }

    pub fn has(self, plugin: SchedulerPluginName) -> bool {
        self.0 & Self::bit(plugin) != 0
    }

    fn with(self, plugin: SchedulerPluginName) -> Self {
        Self(self.0 | Self::bit(plugin))
    }

    fn without(self, plugin: SchedulerPluginName) -> Self {
        Self(self.0 & !Self::bit(plugin))
    }

    fn bit(plugin: SchedulerPluginName) -> u32 {
        1 << plugin as u32
    }
}

/// The rules that every decision follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulingSettings {
    pub plugins: SchedulerPluginSet,
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

impl Default for SchedulingSettings {
    fn default() -> Self {
        Self::new(
            FeatureGates::default(),
            SchedulerPluginSet::default(),
            false,
        )
    }
}

impl SchedulingSettings {
    pub fn new(gates: FeatureGates, plugins: SchedulerPluginSet, empty_workloads: bool) -> Self {
        let plugins = if gates.enabled(KarmadaFeature::WorkloadAffinity) {
            plugins
        } else {
            plugins
                .without(SchedulerPluginName::WorkloadAffinity)
                .without(SchedulerPluginName::WorkloadAntiAffinity)
        };
        Self {
            plugins,
            resource_models: gates.enabled(KarmadaFeature::CustomizedClusterResourceModeling),
            component_sets: gates.enabled(KarmadaFeature::MultiplePodTemplatesScheduling),
            reserve: gates.enabled(KarmadaFeature::SchedulingOvercommitProtection),
            empty_workloads,
            estimators: false,
        }
    }

    /// The same rules with accurate estimators enabled or not.
    #[must_use]
    pub fn with_estimators(self, estimators: bool) -> Self {
        Self { estimators, ..self }
    }

    /// Whether other bindings of an affinity group matter.
    pub fn uses_workload_affinity(self) -> bool {
        self.plugins.has(SchedulerPluginName::WorkloadAffinity)
            || self.plugins.has(SchedulerPluginName::WorkloadAntiAffinity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves: SCH-plugins
    #[test]
    fn plugins_are_enabled_and_disabled_by_name() {
        use SchedulerPluginName::{APIEnablement, ClusterLocality, TaintToleration};
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
            let plugins = SchedulerPluginSet::parse(names).unwrap();
            assert!(has.is_none_or(|p| plugins.has(p)), "{names:?}");
            assert!(!has_not.is_some_and(|p| plugins.has(p)), "{names:?}");
        }
        let rejection = SchedulerPluginSet::parse(&["*", "-Taints"]).unwrap_err();
        assert!(rejection.to_string().contains("\"Taints\""), "{rejection}");
    }

    #[test]
    fn each_plugin_has_a_bit_of_its_own() {
        for disabled in SchedulerPluginName::ALL {
            let flag = format!("-{}", disabled.name());
            let plugins = SchedulerPluginSet::parse(&["*", &flag]).unwrap();
            let enabled = SchedulerPluginName::ALL.map(|plugin| plugins.has(plugin));
            let expected = SchedulerPluginName::ALL.map(|plugin| plugin != disabled);
            assert_eq!(enabled, expected, "{}", disabled.name());
        }
    }

    // proves: SCH-workload-gate
    #[test]
    fn affinity_groups_need_their_feature_gate() {
        assert!(!SchedulingSettings::default().uses_workload_affinity());
        let gates = FeatureGates::default().with_feature(KarmadaFeature::WorkloadAffinity, true);
        assert!(
            SchedulingSettings::new(gates, SchedulerPluginSet::default(), false)
                .uses_workload_affinity()
        );
    }
}
