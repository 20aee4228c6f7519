//! How bindings are scheduled: flags of Karmada's scheduler, by its names.

use clap::Args;
use estimator::Options as Estimators;
use openapi::karmada::FeatureGates;
use scheduler::core::{Plugins, Rules, UnknownPlugin};

#[derive(Args, Clone)]
#[group(id = "scheduling")]
pub(crate) struct Flags {
    /// Plugins by which clusters are filtered and scored: * stands for all, a name
    /// adds one, -name takes one away.
    #[arg(
        long,
        value_name = "PLUGINS",
        value_delimiter = ',',
        default_value = "*",
        allow_hyphen_values = true
    )]
    plugins: Vec<String>,
    /// The name by which policies choose this scheduler.
    #[arg(long, value_name = "NAME", default_value = "default-scheduler")]
    scheduler_name: String,
    /// Send workloads to chosen clusters that get no replicas, too.
    #[arg(long)]
    enable_empty_workload_propagation: bool,
}

/// What the flags mean; the default is Karmada's.
#[derive(Clone, Debug)]
pub(crate) struct Scheduling {
    pub(crate) name: String,
    pub(crate) rules: Rules,
    /// How accurate estimators are asked, where they are.
    pub(crate) estimators: Option<Estimators>,
}

impl Default for Scheduling {
    fn default() -> Self {
        Self::with(FeatureGates::default())
    }
}

impl Scheduling {
    /// Karmada's, but for some gates.
    pub(crate) fn with(gates: FeatureGates) -> Self {
        Self {
            name: scheduler::Options::default().name,
            rules: Rules::new(gates, Plugins::default(), false),
            estimators: None,
        }
    }
}

impl Flags {
    pub(crate) fn under(&self, gates: FeatureGates) -> Result<Scheduling, UnknownPlugin> {
        let plugins = Plugins::named(&self.plugins)?;
        Ok(Scheduling {
            name: self.scheduler_name.clone(),
            rules: Rules::new(gates, plugins, self.enable_empty_workload_propagation),
            estimators: None,
        })
    }
}

impl Scheduling {
    /// The same, with accurate estimators.
    pub(crate) fn asking(self, estimators: Option<Estimators>) -> Self {
        Self {
            rules: self.rules.asking(estimators.is_some()),
            estimators,
            ..self
        }
    }
}
