//! The error of a patch, by the status code of the response.

/// The error of a patch that was not applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The patch is malformed (400).
    #[error("{0}")]
    BadRequest(String),
    /// The patch is well-formed but cannot be applied to the object (422).
    #[error("{0}")]
    Unprocessable(String),
    /// The patch exceeds a limit (413).
    #[error("{0}")]
    TooLarge(String),
}
