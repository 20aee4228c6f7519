//! Writes the conditions of MultiClusterServices, and records the events about them.

use std::sync::Arc;

use client::{Api, Error, InvolvedObject, Patch, ResourcePath, WriteOptions};
use flotilla_runtime::EventRecorder;
use machinery::Object;
use machinery::conditions::set_json_condition;
use machinery::time::{Clock, rfc3339_seconds};
use openapi::karmada::resources::MULTI_CLUSTER_SERVICES;
use serde_json::{Value, json};

use super::object::{API_VERSION, ClusterState};
use crate::ServicesContext;
use crate::slice_fields::MULTI_CLUSTER_SERVICE_KIND;

/// A condition with its reasons, and the events of a success and of a failure.
pub(super) struct ReportedCondition {
    pub(super) condition_type: &'static str,
    /// The reason and the message of the condition that is True.
    pub(super) success: (&'static str, &'static str),
    pub(super) success_event: &'static str,
    /// The reason of the condition that is False.
    pub(super) failure: &'static str,
    pub(super) failure_event: &'static str,
}

/// Reports what a controller has done for MultiClusterServices.
pub(super) struct ServiceReports {
    api: Arc<dyn Api>,
    recorder: EventRecorder,
    clock: Arc<dyn Clock>,
    condition: ReportedCondition,
}

impl ServiceReports {
    pub(super) fn new(deps: &ServicesContext, condition: ReportedCondition) -> Self {
        Self {
            api: Arc::clone(&deps.control_plane),
            recorder: deps.recorder.clone(),
            clock: Arc::clone(&deps.clock),
            condition,
        }
    }

    /// Sets the condition. An event is recorded if the condition was another one, and of a success
    /// if something was written.
    pub(super) async fn set(
        &self,
        service: &Object,
        outcome: Result<(), String>,
        written: bool,
    ) -> Result<(), Error> {
        let reported = &self.condition;
        let condition = match &outcome {
            Ok(()) => ("True", reported.success.0, reported.success.1),
            Err(message) => ("False", reported.failure, message.as_str()),
        };
        let changed = self.set_condition(service, condition).await?;
        let about = || InvolvedObject::new(API_VERSION, MULTI_CLUSTER_SERVICE_KIND, service);
        match &outcome {
            Ok(()) if written || changed => {
                self.recorder
                    .normal(&about(), reported.success_event, condition.2);
            }
            Err(message) if changed => {
                self.recorder
                    .warning(&about(), reported.failure_event, message);
            }
            _ => {}
        }
        Ok(())
    }

    /// Records that `what` is not propagated to a cluster with this role. Returns whether the
    /// cluster is available.
    pub(super) fn warn_of_cluster(
        &self,
        service: &Object,
        (role, cluster): (&str, &str),
        state: ClusterState,
        what: &str,
    ) -> bool {
        let Some((reason, message)) = state.warning(role, cluster, what) else {
            return true;
        };
        let about = InvolvedObject::new(API_VERSION, MULTI_CLUSTER_SERVICE_KIND, service);
        self.recorder.warning(&about, reason, message);
        false
    }

    /// Returns whether it was another one.
    async fn set_condition(
        &self,
        service: &Object,
        (status, reason, message): (&str, &str, &str),
    ) -> Result<bool, Error> {
        let condition_type = self.condition.condition_type;
        let mut conditions = service.value()?["status"]["conditions"].take();
        let is_same = |c: &Value| {
            c["type"] == condition_type
                && c["status"] == status
                && c["reason"] == reason
                && c["message"] == message
        };
        let mut present = conditions.as_array().into_iter().flatten();
        if present.any(is_same) {
            return Ok(false);
        }
        let condition = json!({"type": condition_type, "status": status, "reason": reason,
            "message": message, "lastTransitionTime": rfc3339_seconds(self.clock.now())});
        set_json_condition(&mut conditions, condition);
        let patch = json!({"metadata": {"resourceVersion": service.revision().to_string()},
            "status": {"conditions": conditions}});
        let at = ResourcePath::of_object(&MULTI_CLUSTER_SERVICES, service).subresource("status");
        let options = WriteOptions::default();
        self.api.patch(at, Patch::Merge(patch), &options).await?;
        Ok(true)
    }
}
