//! The events of one request, stage by stage.

use std::collections::BTreeMap;
use std::sync::Arc;

use admission::AuditAnnotations;
use jiff::Timestamp;
use machinery::time::rfc3339_micros;
use machinery::{Status, UserInfo};
use parking_lot::Mutex;
use registry::ObjectListPage;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::event::{
    AuditEvent, AuditObjectReference, AuthenticationMetadata, MAX_EVENT_BYTES, SourceRequest,
    TRUNCATED,
};
use super::level_and_stage::{AuditLevel, AuditStage};
use super::policy::RequestAuditConfig;
use super::redaction::BodyRedaction;
use super::{AuditEventQueue, Auditor};
use crate::requestinfo::RequestInfo;
use crate::response_writers;

/// The audit context of a request (`k8s.io/apiserver/pkg/audit/context.go`): the filters
/// and handlers add what they find out.
pub(crate) struct RequestAudit {
    auditor: Arc<Auditor>,
    source: SourceRequest,
    received_at: Timestamp,
    /// Whether the bodies of this resource hold tokens.
    has_tokens: bool,
    fields: Mutex<AuditEventFields>,
    admission_annotations: Arc<AuditAnnotations>,
}

/// The fields of the events that are found out while the request is served.
#[derive(Default)]
struct AuditEventFields {
    /// `None` until the user is known.
    config: Option<RequestAuditConfig>,
    user: Arc<UserInfo>,
    impersonated_user: Option<Arc<UserInfo>>,
    impersonation_constraint: Option<&'static str>,
    object_ref: Option<AuditObjectReference>,
    request_object: Option<Box<RawValue>>,
    response_object: Option<Box<RawValue>>,
    response_status: Option<Value>,
    annotations: BTreeMap<&'static str, String>,
    is_complete: bool,
}

impl AuditEventFields {
    fn is_at_least(&self, level: AuditLevel) -> bool {
        self.config.is_some_and(|config| config.level >= level)
    }
}

impl RequestAudit {
    pub(crate) fn new(auditor: &Arc<Auditor>, source: SourceRequest, info: &RequestInfo) -> Self {
        let requested = info.resource.as_ref();
        let object_ref = requested.map(|r| AuditObjectReference {
            resource: r.resource.clone(),
            namespace: r.namespace.clone(),
            name: r.name.clone(),
            api_group: r.group.clone(),
            api_version: r.version.clone(),
            subresource: r.subresource.clone(),
            ..AuditObjectReference::default()
        });
        Self {
            auditor: Arc::clone(auditor),
            source,
            received_at: auditor.clock.now(),
            has_tokens: requested
                .is_some_and(|r| r.subresource == "token" || r.resource == "tokenreviews"),
            fields: Mutex::new(AuditEventFields {
                object_ref,
                ..AuditEventFields::default()
            }),
            admission_annotations: Arc::default(),
        }
    }

    /// Evaluates the policy for an authenticated request.
    pub(crate) fn start(&self, user: &Arc<UserInfo>, info: &RequestInfo) {
        self.evaluate_policy(user, info);
        self.generate(AuditStage::RequestReceived);
    }

    /// Records a request whose credentials are invalid.
    pub(crate) fn fail_authentication(&self, info: &RequestInfo, message: String) {
        self.evaluate_policy(&Arc::default(), info);
        self.fields.lock().response_status =
            Some(json!({"metadata": {}, "message": message, "code": 401}));
        self.generate(AuditStage::ResponseStarted);
        self.fields.lock().is_complete = true;
    }

    fn evaluate_policy(&self, user: &Arc<UserInfo>, info: &RequestInfo) {
        let config = self.auditor.policy.evaluate(user, info);
        let level = format!("{:?}", config.level);
        self.auditor.levels.with_label_values([&level]).inc();
        let mut fields = self.fields.lock();
        fields.config = Some(config);
        fields.user = Arc::clone(user);
    }

    /// Records whom the request acts as, and the verb of the constrained mode that allows it.
    pub(crate) fn set_impersonated_user(
        &self,
        user: &Arc<UserInfo>,
        constraint: Option<&'static str>,
    ) {
        let mut fields = self.fields.lock();
        fields.impersonated_user = Some(Arc::clone(user));
        fields.impersonation_constraint = constraint;
    }

    pub(crate) fn annotate(&self, key: &'static str, value: impl Into<String>) {
        self.fields.lock().annotations.insert(key, value.into());
    }

    /// Where admission puts annotations.
    pub(crate) fn admission_annotations(&self) -> Arc<AuditAnnotations> {
        Arc::clone(&self.admission_annotations)
    }

    /// Records the object in the request, and which object it is.
    pub(crate) fn log_request_object(&self, object: &Value) {
        let mut fields = self.fields.lock();
        if !fields.is_at_least(AuditLevel::Metadata) {
            return;
        }
        if let Some(object_ref) = &mut fields.object_ref {
            let metadata = object.get("metadata");
            for (field, key) in [
                (&mut object_ref.namespace, "namespace"),
                (&mut object_ref.name, "name"),
                (&mut object_ref.uid, "uid"),
                (&mut object_ref.resource_version, "resourceVersion"),
            ] {
                let value = metadata.and_then(|m| m.get(key)).and_then(Value::as_str);
                if field.is_empty() {
                    value.unwrap_or_default().clone_into(field);
                }
            }
        }
        if let Some(redaction) = self.redaction(&fields, AuditLevel::Request) {
            fields.request_object = redaction.encode_value(object);
        }
    }

    /// Records the patch in the request.
    pub(crate) fn log_request_patch(&self, patch: &Value) {
        let mut fields = self.fields.lock();
        if let Some(redaction) = self.redaction(&fields, AuditLevel::Request) {
            fields.request_object = redaction.encode_value(patch);
        }
    }

    /// Records the object in the response, whatever the form in which it is sent.
    pub(crate) fn log_response_object(&self, encoded: &[u8]) {
        let mut fields = self.fields.lock();
        if let Some(redaction) = self.redaction(&fields, AuditLevel::RequestResponse) {
            if encoded.len() > MAX_EVENT_BYTES {
                fields.annotations.insert(TRUNCATED, "true".to_owned());
                return;
            }
            let text = String::from_utf8(encoded.to_vec()).ok();
            fields.response_object = text.and_then(|text| redaction.encode_text(text));
        }
    }

    /// Like [`RequestAudit::log_response_object`], of a list.
    pub(crate) fn log_response_list(&self, list: &ObjectListPage) {
        let mut fields = self.fields.lock();
        if let Some(redaction) = self.redaction(&fields, AuditLevel::RequestResponse) {
            let items = list.items.iter().map(|object| object.encoded_len());
            if items.sum::<usize>() > MAX_EVENT_BYTES {
                fields.annotations.insert(TRUNCATED, "true".to_owned());
                return;
            }
            let text = String::from_utf8(response_writers::encode_list(list)).ok();
            fields.response_object = text.and_then(|text| redaction.encode_text(text));
        }
    }

    /// Records a `Status` that is the response.
    pub(crate) fn log_response_status(&self, status: &Status) {
        let mut object = status.to_json();
        let mut fields = self.fields.lock();
        if fields.is_at_least(AuditLevel::RequestResponse) {
            fields.response_object = serde_json::value::to_raw_value(&object).ok();
        }
        if let Some(map) = object.as_object_mut() {
            map.remove("kind");
            map.remove("apiVersion");
        }
        fields.response_status = Some(object);
    }

    /// The response begins with this status code.
    pub(crate) fn respond(&self, code: u16, long_running: bool) {
        let mut fields = self.fields.lock();
        let status = fields
            .response_status
            .get_or_insert_with(|| json!({"metadata": {}}));
        status["code"] = code.into();
        drop(fields);
        if long_running {
            self.generate(AuditStage::ResponseStarted);
        }
    }

    /// The response has ended, or the client is gone.
    pub(crate) fn complete(&self) {
        let mut fields = self.fields.lock();
        if std::mem::replace(&mut fields.is_complete, true) {
            return;
        }
        // kube-apiserver's text and code.
        fields.response_status.get_or_insert_with(|| {
            json!({"metadata": {}, "status": "Success", "message": "Connection closed early", "code": 200})
        });
        drop(fields);
        self.generate(AuditStage::ResponseComplete);
    }

    /// Serving the request panicked.
    pub(crate) fn record_panic(&self, message: &str) {
        let mut fields = self.fields.lock();
        if std::mem::replace(&mut fields.is_complete, true) {
            return;
        }
        fields.response_status = Some(json!({
            "metadata": {}, "status": "Failure", "reason": "InternalError", "code": 500,
            "message": format!("APIServer panic'd: {message}"),
        }));
        drop(fields);
        self.generate(AuditStage::Panic);
    }

    /// How a body is encoded that the events contain from this level on.
    fn redaction(&self, fields: &AuditEventFields, level: AuditLevel) -> Option<BodyRedaction> {
        let config = fields.config.filter(|config| config.level >= level)?;
        Some(BodyRedaction {
            managed_fields: config.omit_managed_fields,
            tokens: self.has_tokens,
        })
    }

    fn generate(&self, stage: AuditStage) {
        let fields = self.fields.lock();
        let Some(config) = fields.config else {
            return;
        };
        if config.level == AuditLevel::None || config.omit_stages.contains(stage) {
            return;
        }
        let stage_at = match stage {
            AuditStage::RequestReceived => self.received_at,
            _ => self.auditor.clock.now(),
        };
        let mut annotations = self
            .admission_annotations
            .to_map(config.level >= AuditLevel::Request);
        for (key, value) in &fields.annotations {
            annotations.insert((*key).to_owned(), value.clone());
        }
        let event = AuditEvent {
            kind: AuditEvent::KIND,
            api_version: AuditEvent::API_VERSION,
            level: config.level,
            audit_id: &self.source.audit_id,
            stage,
            request_uri: &self.source.request_uri,
            verb: self.source.verb,
            user: &fields.user,
            impersonated_user: fields.impersonated_user.as_deref(),
            authentication_metadata: fields.impersonation_constraint.map(|constraint| {
                AuthenticationMetadata {
                    impersonation_constraint: constraint,
                }
            }),
            source_ips: &self.source.source_ips,
            user_agent: &self.source.user_agent,
            object_ref: fields.object_ref.as_ref(),
            response_status: fields.response_status.as_ref(),
            request_object: fields.request_object.as_deref(),
            response_object: fields.response_object.as_deref(),
            request_received_timestamp: rfc3339_micros(self.received_at),
            stage_timestamp: rfc3339_micros(stage_at),
            annotations: &annotations,
        };
        let Some(encoded) = event.encode() else {
            tracing::error!(id = self.source.audit_id, "cannot encode an audit event");
            return;
        };
        drop(fields);
        self.auditor.events.inc();
        self.auditor
            .queues
            .iter()
            .for_each(|queue: &AuditEventQueue| queue.send(encoded.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::super::event_queue::{AuditErrorCounters, AuditEventReceiver, AuditQueueLimits};
    use super::super::policy::AuditPolicy;
    use super::*;
    use crate::requestinfo::{QueryParams, parse_request};
    use std::time::Duration;

    fn audit(rule: &str) -> (RequestAudit, RequestInfo, AuditEventReceiver) {
        let text = format!("{{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{rule}]}}");
        let metrics = flotilla_metrics::MetricsRegistry::new();
        let errors = AuditErrorCounters::new(&metrics);
        let (queue, receiver) = AuditEventQueue::new(AuditQueueLimits::default(), &errors, "log");
        let clock = Arc::new(machinery::time::SystemClock);
        let policy = AuditPolicy::parse(&text).unwrap();
        let auditor = Auditor::new(policy, vec![queue], clock, &metrics);
        let query = QueryParams::parse(None);
        let info = parse_request(&http::Method::GET, "/api/v1/pods", &query).unwrap();
        let audit = RequestAudit::new(&auditor, SourceRequest::default(), &info);
        (audit, info, receiver)
    }

    async fn events(mut receiver: AuditEventReceiver) -> Vec<Value> {
        receiver.close();
        let batch = receiver.next_batch(10, Duration::ZERO).await;
        let decode = |event: &bytes::Bytes| machinery::json::from_slice(event).unwrap();
        batch.iter().map(decode).collect()
    }

    #[tokio::test]
    async fn a_panic_ends_the_events_of_a_request() {
        let (audit, info, receiver) = audit("{level: Metadata}");
        audit.start(&Arc::default(), &info);
        audit.record_panic("index out of bounds");
        audit.complete();
        let events = events(receiver).await;
        let stages: Vec<&Value> = events.iter().map(|event| &event["stage"]).collect();
        assert_eq!(stages, ["RequestReceived", "Panic"]);
        let status = &events[1]["responseStatus"];
        assert_eq!(status["message"], "APIServer panic'd: index out of bounds");
        assert_eq!(status["code"], 500);
    }

    #[tokio::test]
    async fn an_event_is_bounded() {
        let (audit, info, receiver) = audit("{level: RequestResponse}");
        audit.start(&Arc::default(), &info);
        audit.log_request_object(&json!({"metadata": {"name": "a"}, "data": "x".repeat(3 << 20)}));
        let annotations = audit.admission_annotations();
        annotations.add("example.io/long".into(), "y".repeat(MAX_EVENT_BYTES));
        audit.log_response_status(&Status::bad_request("z".repeat(MAX_EVENT_BYTES)));
        audit.complete();
        let events = events(receiver).await;
        let event = &events[1];
        assert!(event.to_string().len() < 200_000);
        assert_eq!(event["annotations"][TRUNCATED], "true");
        assert_eq!(event["objectRef"]["name"], "a");
        let annotation = event["annotations"]["example.io/long"].as_str().unwrap();
        assert!(annotation.ends_with('…'), "{annotation}");
        assert_eq!(event["requestObject"], Value::Null);
    }

    #[tokio::test]
    async fn requests_of_level_none_and_omitted_stages_have_no_events() {
        for (rule, expected) in [
            ("{level: None}", &[][..]),
            ("{level: Metadata, users: [other]}", &[]),
            (
                "{level: Metadata, omitStages: [RequestReceived]}",
                &["ResponseComplete"],
            ),
        ] {
            let (audit, info, receiver) = audit(rule);
            audit.start(&Arc::default(), &info);
            audit.complete();
            let events = events(receiver).await;
            let stages: Vec<&Value> = events.iter().map(|event| &event["stage"]).collect();
            assert_eq!(stages, expected);
            for event in &events {
                let status = &event["responseStatus"];
                assert_eq!(status["message"], "Connection closed early");
            }
        }
    }
}
