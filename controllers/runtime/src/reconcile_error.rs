//! The properties of reconciliation errors that workers need.

use std::convert::Infallible;
use std::fmt::Display;

/// An error of a reconciliation, whose key is retried.
pub trait ReconcileError: Display {
    /// Whether a server did not answer. It may answer at any time, so the backoff of the key stays
    /// short.
    fn is_unanswered(&self) -> bool;
}

impl ReconcileError for client::Error {
    fn is_unanswered(&self) -> bool {
        matches!(self, Self::Transport { .. })
    }
}

impl ReconcileError for String {
    fn is_unanswered(&self) -> bool {
        false
    }
}

impl ReconcileError for Infallible {
    fn is_unanswered(&self) -> bool {
        match *self {}
    }
}
