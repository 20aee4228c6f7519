//! Errors of the status controllers, all of which are retried.

use client::Error;
use flotilla_runtime::ReconcileError;
use machinery::object::MalformedObject;

#[derive(Debug, thiserror::Error)]
pub(crate) enum StatusControllersError {
    /// An API call failed.
    #[error(transparent)]
    Api(#[from] Error),
    /// The interpreter failed, and may succeed on a retry.
    #[error("{0}")]
    InterpreterUnavailable(String),
}

impl StatusControllersError {
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, Self::Api(error) if error.is_conflict())
    }
}

impl ReconcileError for StatusControllersError {
    fn is_unanswered(&self) -> bool {
        matches!(self, Self::Api(error) if error.is_unanswered())
    }
}

impl From<MalformedObject> for StatusControllersError {
    fn from(error: MalformedObject) -> Self {
        Self::Api(error.into())
    }
}
