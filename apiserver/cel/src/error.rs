//! Why an evaluation has no value.

use crate::authorization::AuthorizationCheck;

/// The error of an evaluation, with cel-go's texts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    #[error("no such overload")]
    NoSuchOverload,
    /// The evaluation was ended because it became too expensive.
    #[error("operation cancelled: actual cost limit exceeded")]
    CostLimitExceeded,
    /// The evaluation needs the decision of this check.
    #[error("authorization check pending")]
    PendingAuthorization(Box<AuthorizationCheck>),
    #[error("{0}")]
    Message(String),
}

impl EvalError {
    /// Whether the evaluation cannot go on, whatever the other operands are.
    pub(crate) fn ends_evaluation(&self) -> bool {
        matches!(
            self,
            Self::CostLimitExceeded | Self::PendingAuthorization(_)
        )
    }

    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self::Message(message.into())
    }

    pub(crate) fn no_such_key(key: impl std::fmt::Display) -> Self {
        Self::Message(format!("no such key: {key}"))
    }

    pub(crate) fn overflow() -> Self {
        Self::new("integer overflow")
    }
}
