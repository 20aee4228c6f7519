//! Writes the conditions of MultiClusterServices, and records the events about them.

use std::collections::HashMap;
use std::sync::Arc;

use client::{Api, Error, InvolvedObject};
use flotilla_runtime::{ControllerContext, EventRecorder, StatusWriter};
use karmada_api::resources::MULTI_CLUSTER_SERVICES;
use machinery::Object;
use machinery::conditions::set_json_condition;
use machinery::time::{Clock, rfc3339_seconds};
use parking_lot::Mutex;
use serde_json::json;

use super::object::{API_VERSION, ClusterStates};
use crate::slice_fields::{MAX_SLICES, MULTI_CLUSTER_SERVICE_KIND};

/// A condition with its reasons, and the events of a success and of a failure.
pub(super) struct OutcomeCondition {
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
    condition: OutcomeCondition,
    /// By key of the MultiClusterService: its uid, and the states of its clusters that were reported last.
    reported_clusters: Mutex<HashMap<String, (Box<str>, ClusterStates)>>,
}

impl ServiceReports {
    pub(super) fn new(context: &ControllerContext, condition: OutcomeCondition) -> Self {
        Self {
            api: Arc::clone(&context.control_plane),
            recorder: context.recorder.clone(),
            clock: Arc::clone(&context.clock),
            condition,
            reported_clusters: Mutex::default(),
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

    /// Records that `what` is not propagated to clusters with this role that have become unavailable. A
    /// service that has the condition was reported before this process began, with its clusters.
    pub(super) fn warn_of_clusters(
        &self,
        service: &Object,
        (role, what): (&str, &str),
        states: ClusterStates,
    ) -> Result<(), Error> {
        let uid: Box<str> = service.uid().into();
        let before = self
            .reported_clusters
            .lock()
            .insert(service.meta().key(), (uid, states.clone()))
            .filter(|(uid, _)| **uid == *service.uid());
        let before = match before {
            Some((_, before)) => before,
            None if self.has_condition(service)? => return Ok(()),
            None => ClusterStates::new(),
        };
        let about = InvolvedObject::new(API_VERSION, MULTI_CLUSTER_SERVICE_KIND, service);
        for (cluster, state) in &states {
            if before.get(cluster) != Some(state)
                && let Some((reason, message)) = state.warning(role, cluster, what)
            {
                self.recorder.warning(&about, reason, message);
            }
        }
        Ok(())
    }

    /// Records that a slice of a provider is not dispatched.
    pub(super) fn warn_of_slice(&self, service: &Object, provider: &str, work: &str, why: &str) {
        let about = InvolvedObject::new(API_VERSION, MULTI_CLUSTER_SERVICE_KIND, service);
        let message = format!(
            "the EndpointSlice of the cluster {provider} in the Work {work} is refused: {why}"
        );
        self.recorder
            .warning(&about, "EndpointSliceRefused", message);
    }

    /// Records that a provider reports more slices than are dispatched.
    pub(super) fn warn_of_left_out(&self, service: &Object, provider: &str, count: usize) {
        if count <= MAX_SLICES {
            return;
        }
        let about = InvolvedObject::new(API_VERSION, MULTI_CLUSTER_SERVICE_KIND, service);
        let message = format!(
            "the cluster {provider} has {count} EndpointSlices; the first {MAX_SLICES} by name are dispatched"
        );
        self.recorder
            .warning(&about, "EndpointSlicesLeftOut", message);
    }

    /// Forgets what was reported of a service that is gone.
    pub(super) fn forget(&self, key: &str) {
        self.reported_clusters.lock().remove(key);
    }

    fn has_condition(&self, service: &Object) -> Result<bool, Error> {
        let conditions = service.value()?["status"]["conditions"].take();
        let mut conditions = conditions.as_array().into_iter().flatten();
        Ok(conditions.any(|c| c["type"] == self.condition.condition_type))
    }

    /// Returns whether it was another one.
    async fn set_condition(
        &self,
        service: &Object,
        (status, reason, message): (&str, &str, &str),
    ) -> Result<bool, Error> {
        let condition_type = self.condition.condition_type;
        let mut conditions = service.value()?["status"]["conditions"].take();
        let condition = json!({"type": condition_type, "status": status, "reason": reason,
            "message": message, "lastTransitionTime": rfc3339_seconds(self.clock.now())});
        let fields = set_json_condition(&mut conditions, condition)
            .then(|| json!({"conditions": conditions}));
        let writer = StatusWriter::new(&*self.api, "multi-cluster-service");
        let written = writer.patch(&MULTI_CLUSTER_SERVICES, service, fields);
        Ok(written.await?.is_some())
    }
}
