//! The decision of one of several authorizers about a request.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Decision {
    Allow,
    Deny,
    #[default]
    NoOpinion,
}

/// A decision with its reason.
#[derive(Clone, Debug, Default)]
pub(crate) struct AuthorizerOpinion {
    pub(crate) decision: Decision,
    pub(crate) reason: String,
    /// Why the authorizer could not decide; empty if it could.
    pub(crate) error: String,
}
