//! The replicas of a template in one cluster, as its member reports them.

/// A member is untrusted: the decision counts no more available replicas than the cluster should
/// have.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ObservedReplicas {
    /// How many the cluster should have by the binding.
    pub(crate) desired: u64,
    /// How many the manifest of the Work has after overrides; `None` without a Work or
    /// for a kind without replicas.
    pub(crate) in_manifest: Option<u64>,
    /// `None` if the member reports none, not even that there are none.
    pub(crate) available: Option<u64>,
    pub(crate) updated: u64,
    /// Whether the report is about the newest generation of the object in the member.
    pub(crate) is_current: bool,
    /// Whether all replicas are of the revision that the report names.
    pub(crate) are_updated: bool,
}
