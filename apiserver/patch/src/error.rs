//! Why a patch was not applied, by what the server answers.

/// A refused patch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The patch is not well formed (400).
    #[error("{0}")]
    BadRequest(String),
    /// The patch is well formed but does not fit the object (422).
    #[error("{0}")]
    Unprocessable(String),
    /// Applying the patch would take too much (413).
    #[error("{0}")]
    TooLarge(String),
}
