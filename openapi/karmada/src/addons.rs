//! The addons of a control plane: families of controllers and endpoints that are switched on and
//! off while it runs (karmadactl's `addons`), by a ConfigMap whose data has a state for each name.

use std::collections::BTreeMap;
use std::fmt;

use machinery::{Gvr, Object};
use serde::{Deserialize, Serialize};

pub static CONFIG_MAPS: Gvr = Gvr::from_static("", "v1", "configmaps");
/// The name of the ConfigMap.
pub const ADDONS_CONFIG_MAP: &str = "flotilla-addons";
/// Its namespace in a standalone server. Behind another API server it is Flotilla's own.
pub const ADDONS_NAMESPACE: &str = "karmada-system";
/// The annotation of the ConfigMap in which the server reports what it has done.
pub const ADDON_STATUSES: &str = "flotilla.io/addon-statuses";

/// The words of karmadactl.
pub const ENABLED: &str = "enabled";
pub const DISABLED: &str = "disabled";
pub const UNHEALTHY: &str = "unhealthy";
pub const UNKNOWN: &str = "unknown";

/// An addon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Addon {
    /// The controllers of FederatedHPAs, CronFederatedHPAs and of autoscalers in the members.
    Autoscalers,
    /// The controller that keeps a ClusterProfile for each Cluster.
    ClusterInventory,
    /// The controllers of ServiceExports, ServiceImports and MultiClusterServices.
    MultiClusterServices,
    Descheduler,
    /// The metrics of all members: `metrics.k8s.io`, custom and external metrics.
    MetricsAdapter,
    /// The accurate estimates of the scheduler.
    SchedulerEstimator,
    /// The cache of objects of members, the search and the global proxy.
    Search,
}

impl Addon {
    /// All addons, by their names.
    pub const ALL: [Self; 7] = [
        Self::Autoscalers,
        Self::ClusterInventory,
        Self::MultiClusterServices,
        Self::Descheduler,
        Self::MetricsAdapter,
        Self::SchedulerEstimator,
        Self::Search,
    ];

    /// The name of the addon, as in karmadactl if karmadactl has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Autoscalers => "flotilla-autoscalers",
            Self::ClusterInventory => "flotilla-cluster-inventory",
            Self::MultiClusterServices => "flotilla-multicluster-services",
            Self::Descheduler => "karmada-descheduler",
            Self::MetricsAdapter => "karmada-metrics-adapter",
            Self::SchedulerEstimator => "karmada-scheduler-estimator",
            Self::Search => "karmada-search",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|addon| addon.name() == name)
    }
}

impl fmt::Display for Addon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The data of the ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddonConfiguration {
    states: BTreeMap<Addon, bool>,
    /// Values that are neither enabled nor disabled.
    invalid_values: BTreeMap<Addon, String>,
    unknown_names: Vec<String>,
}

#[derive(Deserialize)]
struct ConfigMapData {
    #[serde(default)]
    data: Option<BTreeMap<String, String>>,
}

impl AddonConfiguration {
    /// Reads a ConfigMap. What cannot be understood is kept for the report.
    pub fn from_config_map(map: &Object) -> Self {
        let decoded = map.decode::<ConfigMapData>().ok();
        let data = decoded.as_ref().and_then(|map| map.data.as_ref());
        let mut configuration = Self::default();
        for (name, value) in data.into_iter().flatten() {
            let Some(addon) = Addon::from_name(name) else {
                configuration.unknown_names.push(name.clone());
                continue;
            };
            match value.trim() {
                ENABLED => _ = configuration.states.insert(addon, true),
                DISABLED => _ = configuration.states.insert(addon, false),
                _ => _ = configuration.invalid_values.insert(addon, value.clone()),
            }
        }
        configuration
    }

    /// The configured state; `None` if the flags of the server decide.
    pub fn state(&self, addon: Addon) -> Option<bool> {
        self.states.get(&addon).copied()
    }

    /// The value of an addon that is not understood.
    pub fn invalid_value(&self, addon: Addon) -> Option<&str> {
        self.invalid_values.get(&addon).map(String::as_str)
    }

    /// The names of no addon.
    pub fn unknown_names(&self) -> &[String] {
        &self.unknown_names
    }
}

/// The server's report of an addon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddonStatus {
    pub name: String,
    /// `enabled`, `disabled`, `unhealthy` while it starts, or `unknown`.
    pub status: String,
    /// The source of the decision.
    pub reason: String,
    #[serde(default)]
    pub message: String,
}

impl AddonStatus {
    /// The report of the server, if it has written one.
    pub fn from_config_map(map: &Object) -> Option<Vec<Self>> {
        machinery::json::from_str(&map.annotation(ADDON_STATUSES)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // proves: ADD-invalid
    #[test]
    fn what_is_not_understood_leaves_the_flags_to_decide() {
        let map = json!({"metadata": {"name": ADDONS_CONFIG_MAP}, "data": {
            "karmada-search": "disabled", "karmada-descheduler": "enabled",
            "karmada-metrics-adapter": "off", "karmada-serch": "enabled"}});
        let read = AddonConfiguration::from_config_map(&Object::from_value(&map).unwrap());
        for (addon, state) in [
            (Addon::Search, Some(false)),
            (Addon::Descheduler, Some(true)),
            (Addon::MetricsAdapter, None),
            (Addon::Autoscalers, None),
        ] {
            assert_eq!(read.state(addon), state, "{addon}");
        }
        assert_eq!(read.invalid_value(Addon::MetricsAdapter), Some("off"));
        assert_eq!(read.unknown_names(), ["karmada-serch"]);
        let empty = json!({"metadata": {"name": ADDONS_CONFIG_MAP}});
        let empty = AddonConfiguration::from_config_map(&Object::from_value(&empty).unwrap());
        assert_eq!(empty, AddonConfiguration::default());
    }

    #[test]
    fn all_addons_are_in_the_order_of_their_names() {
        assert!(Addon::ALL.map(Addon::name).is_sorted());
        for addon in Addon::ALL {
            assert_eq!(Addon::from_name(addon.name()), Some(addon));
        }
    }
}
