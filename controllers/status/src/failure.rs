//! Errors of the status controllers, all of which are retried.

use client::Error;
use machinery::object::Malformed;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// An API call failed.
    #[error(transparent)]
    Api(#[from] Error),
    /// The interpreter failed, and may succeed on a retry.
    #[error("{0}")]
    Unanswered(String),
}

impl Failure {
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, Self::Api(error) if error.is_conflict())
    }
}

impl From<Malformed> for Failure {
    fn from(error: Malformed) -> Self {
        Self::Api(error.into())
    }
}
