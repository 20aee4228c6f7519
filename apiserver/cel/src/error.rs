//! Why an evaluation has no value.

/// The error of an evaluation, with cel-go's texts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    #[error("no such overload")]
    NoSuchOverload,
    /// The evaluation was ended because it became too expensive.
    #[error("operation cancelled: actual cost limit exceeded")]
    CostLimitExceeded,
    #[error("{0}")]
    Message(String),
}

impl EvalError {
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
