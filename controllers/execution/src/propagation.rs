//! Names, from a fixed list, why an object is not in the member as its Work says, and builds the
//! condition Propagated with that reason and the versions that were propagated.
//!
//! Applied keeps the two reasons that Karmada's clients match. Where KubeFed has a status for the
//! same state, the reason bears its name.

use client::Error;
use karmada_api::well_known_keys::TEMPLATE_GENERATION;
use machinery::bounded_text;

use crate::conditions::{PROPAGATED, WorkCondition};
use crate::manifest::EncodedManifest;

/// The begin of the error of a call that takes too long.
pub(crate) const TIMEOUT_MESSAGE: &str = "the cluster did not answer within";
const MAX_MESSAGE_BYTES: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PropagationReason {
    Propagated,
    CreationFailed,
    CreationTimedOut,
    UpdateFailed,
    UpdateTimedOut,
    DeletionFailed,
    DeletionTimedOut,
    /// The member has an object of this name that the control plane does not manage.
    AlreadyExists,
    /// The interpreter's operation Retain fails.
    FieldRetentionFailed,
    /// The desired object cannot be computed or encoded.
    ComputeResourceFailed,
    /// The member's objects of the kind cannot be listed.
    CachedRetrievalFailed,
    /// There is no connection to the member.
    ClientRetrievalFailed,
    /// The control plane does not serve the kind.
    KindNotServed,
    /// A label in the member says that the object is left alone.
    ManagedLabelFalse,
    ClusterNotReady,
    DispatchingSuspended,
    /// The Work is deleted, and its objects wait for their cluster.
    WaitingForRemoval,
}

impl PropagationReason {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Propagated => "Propagated",
            Self::CreationFailed => "CreationFailed",
            Self::CreationTimedOut => "CreationTimedOut",
            Self::UpdateFailed => "UpdateFailed",
            Self::UpdateTimedOut => "UpdateTimedOut",
            Self::DeletionFailed => "DeletionFailed",
            Self::DeletionTimedOut => "DeletionTimedOut",
            Self::AlreadyExists => "AlreadyExists",
            Self::FieldRetentionFailed => "FieldRetentionFailed",
            Self::ComputeResourceFailed => "ComputeResourceFailed",
            Self::CachedRetrievalFailed => "CachedRetrievalFailed",
            Self::ClientRetrievalFailed => "ClientRetrievalFailed",
            Self::KindNotServed => "KindNotServed",
            Self::ManagedLabelFalse => "ManagedLabelFalse",
            Self::ClusterNotReady => "ClusterNotReady",
            Self::DispatchingSuspended => "DispatchingSuspended",
            Self::WaitingForRemoval => "WaitingForRemoval",
        }
    }
}

/// A change of an object in a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemberOperation {
    Create,
    Update,
    Delete,
}

impl MemberOperation {
    pub(crate) fn failure_reason(self, timed_out: bool) -> PropagationReason {
        match (self, timed_out) {
            (Self::Create, false) => PropagationReason::CreationFailed,
            (Self::Create, true) => PropagationReason::CreationTimedOut,
            (Self::Update, false) => PropagationReason::UpdateFailed,
            (Self::Update, true) => PropagationReason::UpdateTimedOut,
            (Self::Delete, false) => PropagationReason::DeletionFailed,
            (Self::Delete, true) => PropagationReason::DeletionTimedOut,
        }
    }
}

/// Whether a call has failed because nothing answered in time: here, or behind the member's API
/// server.
pub(crate) fn is_timeout(error: &Error) -> bool {
    match error {
        Error::Protocol(text) => text.starts_with(TIMEOUT_MESSAGE),
        Error::Status(status) => status.code == 504,
        Error::Transport { .. } => false,
    }
}

/// Why an object could not be propagated.
#[derive(Debug)]
pub(crate) struct PropagationFailure {
    pub(crate) reason: PropagationReason,
    pub(crate) text: String,
}

impl PropagationFailure {
    pub(crate) fn compute(error: impl ToString) -> Self {
        Self {
            reason: PropagationReason::ComputeResourceFailed,
            text: error.to_string(),
        }
    }
}

/// The objects of a Work that could not be propagated.
#[derive(Debug, Default)]
pub(crate) struct FailedObjects {
    reason: Option<PropagationReason>,
    lines: Vec<String>,
}

impl FailedObjects {
    /// `version`: the template's generation that the member has instead.
    pub(crate) fn add(
        &mut self,
        object: &str,
        failure: &PropagationFailure,
        version: Option<&str>,
    ) {
        self.reason.get_or_insert(failure.reason);
        let reason = failure.reason.as_str();
        let version = version.map_or(String::new(), |version| {
            format!(", the member has generation {version}")
        });
        let text = &failure.text;
        self.lines
            .push(format!("{object}: {reason}{version}: {text}"));
    }

    /// The condition: its reason is that of the first object.
    pub(crate) fn condition(&self) -> Option<WorkCondition> {
        let reason = self.reason?;
        Some(condition("False", reason, self.lines.join("; ")))
    }
}

/// The condition of a Work whose objects are all as their manifests say.
pub(crate) fn propagated_condition(manifests: &[EncodedManifest]) -> WorkCondition {
    let version = |manifest: &EncodedManifest| {
        let object = manifest.object_key();
        match manifest.annotation(TEMPLATE_GENERATION).as_str() {
            "" => object,
            generation => format!("{object}: generation {generation}"),
        }
    };
    let versions: Vec<String> = manifests.iter().map(version).collect();
    condition("True", PropagationReason::Propagated, versions.join("; "))
}

/// The condition of a Work that waits, or whose deletion fails.
pub(crate) fn waiting_condition(reason: PropagationReason, message: String) -> WorkCondition {
    condition("False", reason, message)
}

/// The condition of a deleted Work whose objects could not be deleted.
pub(crate) fn undeleted_condition(error: &controller_context::Error) -> WorkCondition {
    let timed_out = matches!(error, controller_context::Error::Api(error) if is_timeout(error));
    let reason = MemberOperation::Delete.failure_reason(timed_out);
    waiting_condition(reason, error.to_string())
}

fn condition(
    status: &'static str,
    reason: PropagationReason,
    mut message: String,
) -> WorkCondition {
    bounded_text::truncate(&mut message, MAX_MESSAGE_BYTES);
    WorkCondition {
        kind: PROPAGATED,
        status,
        reason: reason.as_str(),
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery::Status;

    fn manifest(generation: &str) -> EncodedManifest {
        let text = format!(
            r#"{{"kind":"Deployment","metadata":{{"namespace":"n","name":"web","annotations":{{"{TEMPLATE_GENERATION}":"{generation}"}}}}}}"#
        );
        EncodedManifest::new(text.into_bytes().into())
    }

    // proves: EXE-propagated
    #[test]
    fn the_condition_names_versions_or_the_reason() {
        let done = propagated_condition(&[manifest("7"), manifest("")]);
        assert_eq!((done.status, done.reason), ("True", "Propagated"));
        assert_eq!(
            done.message,
            "Deployment n/web: generation 7; Deployment n/web"
        );
        let mut failed = FailedObjects::default();
        assert_eq!(failed.condition(), None);
        let failure = |reason, text: &str| PropagationFailure {
            reason,
            text: text.to_owned(),
        };
        let update = failure(PropagationReason::UpdateFailed, "no");
        failed.add("Deployment n/web", &update, Some("6"));
        let create = failure(PropagationReason::CreationFailed, &"ü".repeat(1000));
        failed.add("Secret n/s", &create, None);
        let condition = failed.condition().unwrap();
        assert_eq!(
            (condition.status, condition.reason),
            ("False", "UpdateFailed")
        );
        let begin = "Deployment n/web: UpdateFailed, the member has generation 6: no; Secret n/s: CreationFailed: ü";
        assert!(
            condition.message.starts_with(begin),
            "{}",
            condition.message
        );
        assert!(condition.message.len() <= MAX_MESSAGE_BYTES);
    }

    // proves: EXE-propagated-reasons
    #[test]
    fn calls_fail_or_time_out() {
        use MemberOperation::{Create, Delete, Update};
        let late = || Error::Protocol(format!("{TIMEOUT_MESSAGE} 5 s"));
        let rejection = || Error::from(Status::internal("no"));
        for (operation, error, expected) in [
            (Create, late(), "CreationTimedOut"),
            (Create, rejection(), "CreationFailed"),
            (Update, late(), "UpdateTimedOut"),
            (Update, Error::Protocol("no JSON".into()), "UpdateFailed"),
            (Delete, late(), "DeletionTimedOut"),
            (Delete, rejection(), "DeletionFailed"),
        ] {
            let reason = operation.failure_reason(is_timeout(&error));
            assert_eq!(reason.as_str(), expected);
        }
    }
}
