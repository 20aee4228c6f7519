//! Why a status is not what it should be now; it is tried again.

use client::Error;
use machinery::object::Malformed;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// A call gave no result.
    #[error(transparent)]
    Api(#[from] Error),
    /// Whoever tells what an object means did not, and may the next time.
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
