//! Why a resource could not be interpreted.

use karmada_api::identity_fields::IdentityChange;

/// Why an object could not be interpreted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A field does not have the type its kind prescribes.
    #[error("failed to interpret {what}: {source}")]
    Malformed {
        what: &'static str,
        source: machinery::object::MalformedObject,
    },
    /// The status of a cluster does not have the shape its kind prescribes.
    #[error("failed to read the status collected from cluster {cluster}: {source}")]
    Status {
        cluster: String,
        source: serde_json::Error,
    },
    /// The annotation with the generation of the template is not a number.
    #[error("annotation {0} is not a generation")]
    Generation(String),
    /// The observed object lacks a field that has to be retained.
    #[error("failed to get {0} from the observed object")]
    Missing(&'static str),
    /// A field that a rule requires is absent or has the wrong type.
    #[error("{path}: {expected} is needed")]
    Field {
        path: String,
        expected: &'static str,
    },
    /// A quantity that cannot be parsed.
    #[error("{0}")]
    Quantity(String),
    /// A dependency without apiVersion, kind, or both name and selector.
    #[error("{0}")]
    Dependency(String),
    /// A script of a customization failed or returned an invalid result.
    #[error("ResourceInterpreterCustomization {customization}: {function}: {why}")]
    Script {
        customization: String,
        function: &'static str,
        why: String,
    },
    /// A script of a customization is not called for now, because its circuit breaker is open.
    #[error("ResourceInterpreterCustomization {customization}: {function}: {why}")]
    ScriptRefused {
        customization: String,
        function: &'static str,
        why: String,
    },
    /// An operation returned another object than it was given.
    #[error("{rule}: {:?}: {change}", .change.path)]
    Identity {
        /// Whose rule it is, and of which operation.
        rule: String,
        change: IdentityChange,
    },
    /// A webhook could not be called or returned an invalid response.
    #[error("Internal error occurred: failed calling webhook {hook:?}: {why}")]
    Webhook { hook: String, why: String },
}

impl Error {
    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Webhook { .. } | Self::ScriptRefused { .. })
    }
}
