//! Flags of karmada-scheduler.

use clap::Args;
use estimator::Options as Estimators;
use openapi::karmada::FeatureGates;
use scheduler::core::{Plugins, Rules, UnknownPlugin};

#[derive(Args, Clone)]
#[group(id = "scheduling")]
pub(crate) struct Flags {
    /// A list of plugins to enable. '*' enables all built-in plugins, 'foo'
    /// enables the plugin named 'foo', '*,-foo' disables the plugin named 'foo'.
    #[arg(
        long,
        value_name = "PLUGINS",
        value_delimiter = ',',
        default_value = "*",
        allow_hyphen_values = true
    )]
    plugins: Vec<String>,
    /// The name of the scheduler, by which policies select it.
    #[arg(long, value_name = "NAME", default_value = "default-scheduler")]
    scheduler_name: String,
    /// Propagate workloads also to selected clusters that get no replicas.
    #[arg(long)]
    enable_empty_workload_propagation: bool,
}

/// The values of the flags; the defaults are Karmada's.
#[derive(Clone, Debug)]
pub(crate) struct Scheduling {
    pub(crate) name: String,
    pub(crate) rules: Rules,
    /// The options of accurate scheduler estimators; `None` when they are disabled.
    pub(crate) estimators: Option<Estimators>,
}

impl Default for Scheduling {
    fn default() -> Self {
        Self::with(FeatureGates::default())
    }
}

impl Scheduling {
    /// The default options with other feature gates.
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
    /// Sets the accurate scheduler estimators.
    pub(crate) fn asking(self, estimators: Option<Estimators>) -> Self {
        Self {
            rules: self.rules.asking(estimators.is_some()),
            estimators,
            ..self
        }
    }
}
