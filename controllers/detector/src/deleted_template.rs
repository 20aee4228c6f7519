//! The record of a template whose deletion the detector has observed.

use karmada_api::well_known_keys::is_orphaned_on_deletion;
use machinery::Object;

/// A template whose deletion was observed.
#[derive(Clone, Debug)]
pub(crate) struct DeletedTemplate {
    pub(crate) kind: String,
    pub(crate) uid: String,
    /// Whether its objects stay in members.
    pub(crate) orphans: bool,
}

impl DeletedTemplate {
    /// `template` is its last version.
    pub(crate) fn new(kind: &str, template: &Object) -> Self {
        Self {
            kind: kind.to_owned(),
            uid: template.uid().to_owned(),
            orphans: is_orphaned_on_deletion(&template.annotations()),
        }
    }
}
