//! Why a decision has no result.

/// Why there is no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchedulingFailure {
    /// No cluster passes the filters; a retry alone does not help.
    #[error("{0}")]
    NoFit(String),
    /// The clusters lack capacity at present.
    #[error("{0}")]
    Unschedulable(String),
    /// The placement cannot be satisfied or is invalid.
    #[error("{0}")]
    Error(String),
}

impl SchedulingFailure {
    pub(super) fn with_context(self, what: &str) -> Self {
        let context = |reason| format!("failed to {what}: {reason}");
        match self {
            Self::NoFit(reason) => Self::NoFit(reason),
            Self::Unschedulable(reason) => Self::Unschedulable(context(reason)),
            Self::Error(reason) => Self::Error(context(reason)),
        }
    }
}
