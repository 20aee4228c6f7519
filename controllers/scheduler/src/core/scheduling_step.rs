//! The steps of the scheduling algorithm and what each reports when it ends.

use super::scheduling_settings::{ExtensionPoint, SchedulerPluginName};

/// The steps of the scheduling algorithm, in order; the values of Karmada's `schedule_step`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedulingStep {
    Filter,
    Score,
    Select,
    AssignReplicas,
}

/// Numbers of clusters that passed a filter step or plugin and that it rejected; for other
/// steps, whether the step itself succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterCounts {
    pub passed: usize,
    pub rejected: usize,
}

impl FilterCounts {
    pub(super) fn from_success(success: bool) -> Self {
        Self {
            passed: usize::from(success),
            rejected: usize::from(!success),
        }
    }
}

/// A step or plugin that has just finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepOrPluginCompletion {
    Step(SchedulingStep, FilterCounts),
    /// A plugin at one of its extension points, over all clusters.
    Plugin(SchedulerPluginName, ExtensionPoint, FilterCounts),
}
