//! Flags of karmada-scheduler.

use clap::Args;
use karmada_api::FeatureGates;
use scheduler::core::{SchedulerPluginSet, SchedulingSettings, UnknownPluginError};

#[derive(Args, Clone)]
#[group(id = "scheduling")]
#[command(next_help_heading = "Scheduler flags")]
pub struct SchedulerArgs {
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
pub struct SchedulerFlagValues {
    pub name: String,
    pub scheduling_settings: SchedulingSettings,
}

impl Default for SchedulerFlagValues {
    fn default() -> Self {
        Self::with_gates(FeatureGates::default())
    }
}

impl SchedulerFlagValues {
    /// The default options with other feature gates.
    pub fn with_gates(gates: FeatureGates) -> Self {
        Self {
            name: scheduler::DEFAULT_SCHEDULER.into(),
            scheduling_settings: SchedulingSettings::new(
                gates,
                SchedulerPluginSet::default(),
                false,
            ),
        }
    }
}

impl SchedulerArgs {
    pub fn options(&self, gates: FeatureGates) -> Result<SchedulerFlagValues, UnknownPluginError> {
        let plugins = SchedulerPluginSet::parse(&self.plugins)?;
        Ok(SchedulerFlagValues {
            name: self.scheduler_name.clone(),
            scheduling_settings: SchedulingSettings::new(
                gates,
                plugins,
                self.enable_empty_workload_propagation,
            ),
        })
    }
}
