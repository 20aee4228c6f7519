//! ResourceInterpreterContext of `config.karmada.io/v1alpha1`: builds the request body and parses the
//! response.
//!
//! An error says why a response is invalid. Pure. Source: Karmada's `webhook/request`; its error texts
//! are kept verbatim, typos included.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use karmada_api::DependentObjectReference;
use karmada_api::binding::{AggregatedStatusItem, Component};
use machinery::Gvk;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::native::TemplateReplicas;
use crate::native::dependencies::validate_dependencies;
use crate::operation::InterpreterOperation;
use crate::script_result::canonical_requirements;

/// Applies a JSON patch (second argument) to a document.
pub type ApplyJsonPatch = fn(&Value, &Value) -> Result<Value, String>;

const API_VERSION: &str = "config.karmada.io/v1alpha1";
const KIND: &str = "ResourceInterpreterContext";
const JSON_PATCH_TYPE: &str = "JSONPatch";

/// The attributes of a request besides the operation and the kind.
#[derive(Default)]
pub(crate) struct InterpreterRequestAttributes<'a> {
    pub(crate) object: Value,
    /// The object in the member cluster; set for `Retain`.
    pub(crate) observed: Option<&'a Value>,
    /// The replicas of one cluster; set for `ReviseReplica`.
    pub(crate) replicas: i64,
    /// The statuses of all clusters; set for `AggregateStatus`.
    pub(crate) items: &'a [AggregatedStatusItem],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct InterpreterContextRequest<'a> {
    kind: &'static str,
    api_version: &'static str,
    request: ResourceInterpreterRequest<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceInterpreterRequest<'a> {
    uid: &'a str,
    kind: RequestGroupVersionKind<'a>,
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    operation: &'static str,
    object: &'a Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    observed_object: Option<&'a Value>,
    replicas: i64,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    aggregated_status: &'a [AggregatedStatusItem],
}

#[derive(Serialize)]
struct RequestGroupVersionKind<'a> {
    group: &'a str,
    version: &'a str,
    kind: &'a str,
}

impl InterpreterRequestAttributes<'_> {
    /// Encodes the request body.
    pub(super) fn encode(
        &self,
        uid: &str,
        kind: &Gvk,
        operation: InterpreterOperation,
    ) -> Result<Bytes, serde_json::Error> {
        let meta = |field: &str| self.object["metadata"][field].as_str().unwrap_or_default();
        let context = InterpreterContextRequest {
            kind: KIND,
            api_version: API_VERSION,
            request: ResourceInterpreterRequest {
                uid,
                kind: RequestGroupVersionKind {
                    group: &kind.group,
                    version: &kind.version,
                    kind: &kind.kind,
                },
                name: meta("name"),
                namespace: meta("namespace"),
                operation: operation.name(),
                object: &self.object,
                observed_object: self.observed,
                replicas: self.replicas,
                aggregated_status: self.items,
            },
        };
        serde_json::to_vec(&context).map(Bytes::from)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InterpreterContextResponse {
    kind: Option<String>,
    api_version: Option<String>,
    response: Option<ResourceInterpreterResponse>,
}

#[derive(Debug, Default, Deserialize)]
struct RequestStatus {
    #[serde(default)]
    message: String,
    #[serde(default)]
    code: i32,
}

/// The response of a webhook. Each operation uses its own fields.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ResourceInterpreterResponse {
    uid: String,
    successful: bool,
    status: Option<RequestStatus>,
    /// Base64.
    patch: Option<String>,
    patch_type: Option<String>,
    replicas: Option<i32>,
    replica_requirements: Option<Value>,
    components: Option<Vec<Component>>,
    dependencies: Option<Vec<DependentObjectReference>>,
    raw_status: Option<Value>,
    healthy: Option<bool>,
}

/// Parses and validates the body of a response; the error says why the call failed.
pub(super) fn parse_response(
    uid: &str,
    operation: InterpreterOperation,
    body: &[u8],
) -> Result<ResourceInterpreterResponse, String> {
    let failed = |reason: String| format!("failed to call webhook: {reason}");
    let replied: InterpreterContextResponse = machinery::json::from_slice(body)
        .map_err(|e| failed(format!("the response is not a {KIND}: {e}")))?;
    let matches = |field: &Option<String>, expected: &str| {
        let field = field.as_deref();
        field.is_none_or(|text| text.is_empty() || text == expected)
    };
    if !matches(&replied.kind, KIND) || !matches(&replied.api_version, API_VERSION) {
        let version = replied.api_version.unwrap_or_default();
        let kind = replied.kind.unwrap_or_default();
        return Err(failed(format!(
            "expected webhook response of {API_VERSION}, Kind={KIND}, got {version}, Kind={kind}"
        )));
    }
    let response = validate_response(uid, operation, replied.response);
    let response =
        response.map_err(|reason| format!("reveived invalid webhook response: {reason}"))?;
    match &response.status {
        Some(RequestStatus { message, code }) if !response.successful => Err(format!(
            "webhook call failed, get status code: {code}, msg: {message}"
        )),
        _ => Ok(response),
    }
}

fn validate_response(
    uid: &str,
    operation: InterpreterOperation,
    response: Option<ResourceInterpreterResponse>,
) -> Result<ResourceInterpreterResponse, String> {
    let response = response.ok_or("webhook response was absent")?;
    if response.uid != uid {
        return Err(format!(
            "expected response.uid {uid:?}, got {:?}",
            response.uid
        ));
    }
    if !response.successful {
        return match response.status {
            None => Err("webhook require response.status when response.successful is false".into()),
            Some(_) => Ok(response),
        };
    }
    match operation {
        InterpreterOperation::InterpretReplica if response.replicas.is_none() => {
            Err("webhook returned nil response.replicas".into())
        }
        InterpreterOperation::InterpretStatus if response.raw_status.is_none() => {
            Err("webhook returned nill response.rawStatus".into())
        }
        InterpreterOperation::InterpretStatus
            if !response.raw_status.as_ref().is_some_and(Value::is_object) =>
        {
            Err("webhook returned response.rawStatus that is not an object".into())
        }
        InterpreterOperation::InterpretHealth if response.healthy.is_none() => {
            Err("webhook returned nil response.healthy".into())
        }
        InterpreterOperation::InterpretDependency => {
            let all = response.dependencies.as_deref().unwrap_or_default();
            validate_dependencies(all).map_err(|e| e.to_string())?;
            Ok(response)
        }
        InterpreterOperation::ReviseReplica
        | InterpreterOperation::Retain
        | InterpreterOperation::AggregateStatus => {
            validate_patch_type(&response)?;
            Ok(response)
        }
        _ => Ok(response),
    }
}

fn validate_patch_type(response: &ResourceInterpreterResponse) -> Result<(), String> {
    let has_patch = response.patch.as_ref().is_some_and(|p| !p.is_empty());
    match (has_patch, response.patch_type.as_deref()) {
        (false, None) | (true, Some(JSON_PATCH_TYPE)) => Ok(()),
        (true, None) => Err("webhook returned nil response.patchType".into()),
        (false, Some(_)) => Err("webhook returned empty response.patch".into()),
        (true, Some(other)) => Err(format!(
            "webhook returned invalid response.patchType of {other:?}"
        )),
    }
}

impl ResourceInterpreterResponse {
    pub(super) fn replicas(self) -> Result<TemplateReplicas, String> {
        let requirements = match self.replica_requirements {
            None => None,
            Some(Value::Object(fields)) => Some(canonical_requirements(fields)?),
            Some(_) => return Err("response.replicaRequirements is not an object".into()),
        };
        Ok(TemplateReplicas {
            count: self.replicas.unwrap_or(0).into(),
            requirements,
        })
    }

    pub(super) fn components(self) -> Result<Vec<Component>, String> {
        let canonicalize = |mut component: Component| {
            component.replica_requirements = match component.replica_requirements {
                None => None,
                Some(Value::Object(fields)) => Some(canonical_requirements(fields)?),
                Some(_) => {
                    return Err("replicaRequirements of a component is not an object".to_owned());
                }
            };
            Ok(component)
        };
        let components = self.components.unwrap_or_default().into_iter();
        components.map(canonicalize).collect()
    }

    pub(super) fn dependencies(self) -> Vec<DependentObjectReference> {
        self.dependencies.unwrap_or_default()
    }

    pub(super) fn status(self) -> Option<Value> {
        self.raw_status
    }

    pub(super) fn healthy(self) -> Option<bool> {
        self.healthy
    }

    /// The object with the JSON patch of the response applied.
    pub(super) fn apply_patch(self, object: Value, apply: ApplyJsonPatch) -> Result<Value, String> {
        let Some(patch) = self.patch.filter(|p| !p.is_empty()) else {
            return Ok(object);
        };
        let patch = STANDARD
            .decode(patch)
            .map_err(|e| format!("response.patch: {e}"))?;
        let steps: Value =
            machinery::json::from_slice(&patch).map_err(|e| format!("response.patch: {e}"))?;
        let patched = apply(&object, &steps)?;
        match patched["kind"].as_str() {
            Some(kind) if !kind.is_empty() => Ok(patched),
            _ => Err("the patched object has no kind".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const THING: Gvk = Gvk::from_static("example.io", "v1", "Thing");

    // proves: WEB-request
    #[test]
    fn request_has_the_fields_of_the_operation() {
        let object = json!({"apiVersion": "example.io/v1", "kind": "Thing", "metadata": {"name": "t", "namespace": "n"}});
        let sent = |attributes: InterpreterRequestAttributes<'_>, operation| -> Value {
            let body = attributes.encode("u", &THING, operation).unwrap();
            machinery::json::from_slice(&body).unwrap()
        };
        let expected = |operation: &str, more: Value| {
            let mut request = json!({
                "uid": "u", "kind": {"group": "example.io", "version": "v1", "kind": "Thing"},
                "name": "t", "namespace": "n", "operation": operation, "object": object, "replicas": 0,
            });
            for (field, value) in more.as_object().unwrap() {
                request[field] = value.clone();
            }
            json!({"apiVersion": "config.karmada.io/v1alpha1", "kind": "ResourceInterpreterContext", "request": request})
        };
        let about = || InterpreterRequestAttributes {
            object: object.clone(),
            ..InterpreterRequestAttributes::default()
        };
        assert_eq!(
            sent(about(), InterpreterOperation::InterpretReplica),
            expected("InterpretReplica", json!({}))
        );
        let revise = InterpreterRequestAttributes {
            replicas: 3,
            ..about()
        };
        assert_eq!(
            sent(revise, InterpreterOperation::ReviseReplica),
            expected("ReviseReplica", json!({"replicas": 3}))
        );
        let observed = json!({"spec": {}});
        let retain = InterpreterRequestAttributes {
            observed: Some(&observed),
            ..about()
        };
        assert_eq!(
            sent(retain, InterpreterOperation::Retain),
            expected("Retain", json!({"observedObject": observed}))
        );
        let items =
            json!([{"clusterName": "a", "status": {"x": 1}, "applied": true, "health": "Healthy"}]);
        let parsed: Vec<AggregatedStatusItem> = serde_json::from_value(items.clone()).unwrap();
        let sum = InterpreterRequestAttributes {
            items: &parsed,
            ..about()
        };
        assert_eq!(
            sent(sum, InterpreterOperation::AggregateStatus),
            expected("AggregateStatus", json!({"aggregatedStatus": items}))
        );
        let wide = InterpreterRequestAttributes {
            object: json!({"metadata": {"name": "t"}}),
            ..InterpreterRequestAttributes::default()
        };
        let sent = sent(wide, InterpreterOperation::InterpretHealth);
        assert!(sent["request"].get("namespace").is_none(), "{sent}");
    }

    fn response_body(response: Value) -> Vec<u8> {
        let mut response = response;
        if response.is_object() && response.get("uid").is_none() {
            response["uid"] = "u".into();
        }
        json!({"kind": KIND, "apiVersion": API_VERSION, "response": response})
            .to_string()
            .into()
    }

    // proves: WEB-response
    #[test]
    fn incomplete_response_is_an_error() {
        let check = |operation, body: &[u8], reason: Option<&str>| {
            let actual = parse_response("u", operation, body).err();
            let body = String::from_utf8_lossy(body);
            match reason {
                None => assert_eq!(actual, None, "{body}"),
                Some(reason) => assert!(
                    actual.is_some_and(|f| f.contains(reason)),
                    "{body}: {reason}"
                ),
            }
        };
        let ok = |more: Value| {
            let mut all = json!({"successful": true});
            all.as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            response_body(all)
        };
        let health = InterpreterOperation::InterpretHealth;
        check(
            health,
            b"<html>",
            Some("failed to call webhook: the response is not a ResourceInterpreterContext: "),
        );
        check(
            health,
            br#"{"kind": "Status", "apiVersion": "v1"}"#,
            Some("Kind=ResourceInterpreterContext, got v1, Kind=Status"),
        );
        check(
            health,
            b"{}",
            Some("reveived invalid webhook response: webhook response was absent"),
        );
        check(
            health,
            &response_body(json!({"uid": "v", "successful": true})),
            Some("reveived invalid webhook response: expected response.uid \"u\", got \"v\""),
        );
        check(
            health,
            &response_body(json!({"successful": false})),
            Some("webhook require response.status when response.successful is false"),
        );
        check(
            health,
            &response_body(
                json!({"successful": false, "status": {"code": 403, "message": "not this one"}}),
            ),
            Some("webhook call failed, get status code: 403, msg: not this one"),
        );
        for (operation, part, value, reason) in [
            (
                InterpreterOperation::InterpretReplica,
                "replicas",
                json!(0),
                "webhook returned nil response.replicas",
            ),
            (
                InterpreterOperation::InterpretStatus,
                "rawStatus",
                json!({}),
                "webhook returned nill response.rawStatus",
            ),
            (
                health,
                "healthy",
                json!(false),
                "webhook returned nil response.healthy",
            ),
        ] {
            check(operation, &ok(json!({})), Some(reason));
            check(operation, &ok(json!({part: null})), Some(reason));
            check(operation, &ok(json!({part: value})), None);
        }
        check(
            InterpreterOperation::InterpretStatus,
            &ok(json!({"rawStatus": 1})),
            Some("is not an object"),
        );
        check(
            InterpreterOperation::InterpretDependency,
            &ok(json!({"dependencies": [{"apiVersion": "v1", "kind": "", "name": "a"}]})),
            Some("missing required kind"),
        );
        check(
            InterpreterOperation::InterpretDependency,
            &ok(json!({})),
            None,
        );
        check(
            InterpreterOperation::InterpretComponent,
            &ok(json!({})),
            None,
        );
        for operation in [
            InterpreterOperation::ReviseReplica,
            InterpreterOperation::Retain,
            InterpreterOperation::AggregateStatus,
        ] {
            check(operation, &ok(json!({})), None);
            check(
                operation,
                &ok(json!({"patch": "W10=", "patchType": "JSONPatch"})),
                None,
            );
            check(
                operation,
                &ok(json!({"patch": "W10="})),
                Some("webhook returned nil response.patchType"),
            );
            check(
                operation,
                &ok(json!({"patchType": "JSONPatch"})),
                Some("webhook returned empty response.patch"),
            );
            check(
                operation,
                &ok(json!({"patch": "W10=", "patchType": "MergePatch"})),
                Some("webhook returned invalid response.patchType of \"MergePatch\""),
            );
        }
    }

    // proves: WEB-patch
    #[test]
    fn patch_applies_to_the_object_of_the_request() {
        let apply: ApplyJsonPatch = |object, steps| {
            let mut object = object.clone();
            for step in steps.as_array().ok_or("no list")? {
                let name = step["path"].as_str().unwrap_or_default().to_owned();
                object[&name[1..]] = step["value"].clone();
            }
            Ok(object)
        };
        let check = |patch: &[u8], expected: Result<Value, &str>| {
            let response = ResourceInterpreterResponse {
                patch: Some(STANDARD.encode(patch)),
                ..ResourceInterpreterResponse::default()
            };
            let actual = response.apply_patch(json!({"kind": "Thing", "a": 1}), apply);
            match expected {
                Ok(object) => assert_eq!(actual, Ok(object)),
                Err(reason) => assert!(
                    actual.as_ref().is_err_and(|f| f.contains(reason)),
                    "{actual:?}"
                ),
            }
        };
        check(b"", Ok(json!({"kind": "Thing", "a": 1})));
        check(b"[]", Ok(json!({"kind": "Thing", "a": 1})));
        check(
            br#"[{"op": "replace", "path": "/a", "value": 2}]"#,
            Ok(json!({"kind": "Thing", "a": 2})),
        );
        check(b"{}", Err("no list"));
        check(b"[", Err("response.patch: "));
        check(
            br#"[{"op": "replace", "path": "/kind", "value": ""}]"#,
            Err("has no kind"),
        );
        let bad = ResourceInterpreterResponse {
            patch: Some("?".into()),
            ..ResourceInterpreterResponse::default()
        };
        assert!(bad.apply_patch(json!({}), apply).is_err());
    }

    // proves: WEB-response
    #[test]
    fn quantities_are_canonical() {
        let body = response_body(json!({"successful": true, "replicas": 2,
            "replicaRequirements": {"resourceRequest": {"cpu": "1000m"}},
            "components": [{"name": "b", "replicas": 1, "replicaRequirements": {"resourceRequest": {"memory": 1024}}}, {"name": "a", "replicas": 2}]}));
        let response =
            || parse_response("u", InterpreterOperation::InterpretReplica, &body).unwrap();
        let expected = TemplateReplicas {
            count: 2,
            requirements: Some(json!({"resourceRequest": {"cpu": "1"}})),
        };
        assert_eq!(response().replicas(), Ok(expected));
        let components = json!(response().components().unwrap());
        let expected = json!([{"name": "b", "replicas": 1, "replicaRequirements": {"resourceRequest": {"memory": "1024"}}}, {"name": "a", "replicas": 2}]);
        assert_eq!(components, expected);
        let bad = response_body(
            json!({"successful": true, "replicas": 2, "replicaRequirements": {"resourceRequest": {"cpu": "x"}}}),
        );
        let bad = parse_response("u", InterpreterOperation::InterpretReplica, &bad).unwrap();
        assert!(bad.replicas().unwrap_err().contains("cpu"));
    }
}
