//! Defines from which versions of its template and its policy a binding was built.

use karmada_api::replica_preference::ReplicaSchedulingPreferenceSpec;

/// The versions from which a binding was built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AppliedVersions {
    /// The hash of the template without its status.
    pub(crate) template_hash: u64,
    pub(crate) policy_uid: String,
    pub(crate) policy_generation: i64,
    pub(crate) replica_preference: Option<ReplicaSchedulingPreferenceSpec>,
}
