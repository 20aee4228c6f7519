//! Writes the condition of credentials into the status of their Cluster, and records an event.

use std::time::Duration;

use client::{Api, InvolvedObject, Result};
use flotilla_runtime::{EventRecorder, ReconcileAction, StatusWriter};
use jiff::Timestamp;
use karmada_api::Cluster;
use karmada_api::resources::CLUSTERS;
use machinery::Object;
use machinery::time::rfc3339_seconds;

use super::expiry::{ExpiringCredential, credentials_condition, next_check};

/// Timers are not kept longer, whatever the clock of the machine does.
const MAX_CHECK_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

pub(super) struct ConditionWriter<'a> {
    pub(super) api: &'a dyn Api,
    pub(super) recorder: &'a EventRecorder,
    /// The type of the condition.
    pub(super) kind: &'a str,
}

impl ConditionWriter<'_> {
    /// Writes what the credential that expires first demands, unless it is there already.
    pub(super) async fn write_if_changed(
        &self,
        object: &Object,
        first: Option<&ExpiringCredential>,
        now: Timestamp,
    ) -> Result<()> {
        let view = object.decode::<Cluster>()?;
        let current = view.condition(self.kind);
        let desired = credentials_condition(first, current.is_some(), now);
        let Some(condition) = desired else {
            return Ok(());
        };
        let mut status = object.value()?["status"].take();
        condition.set_in(&mut status["conditions"], self.kind, &rfc3339_seconds(now));
        // By an update, since agents may not patch the status of their Cluster.
        let writer = StatusWriter::new(self.api, "credential-expiry");
        if writer
            .update(&CLUSTERS, object, Some(status))
            .await?
            .is_none()
        {
            return Ok(());
        }
        let about = InvolvedObject::from_object(object);
        let (reason, message) = (condition.reason, condition.message.clone());
        match condition.is_true() {
            true => self.recorder.normal(&about, reason, message),
            false => self.recorder.warning(&about, reason, message),
        }
        Ok(())
    }
}

/// When the condition may change by itself.
pub(super) fn check_again(first: Option<&ExpiringCredential>, now: Timestamp) -> ReconcileAction {
    match next_check(first, now) {
        None => ReconcileAction::Done,
        Some(after) => {
            let after = Duration::try_from(after).unwrap_or(MAX_CHECK_INTERVAL);
            ReconcileAction::RequeueAfter(after.min(MAX_CHECK_INTERVAL))
        }
    }
}
