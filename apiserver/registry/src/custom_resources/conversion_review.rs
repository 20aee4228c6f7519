//! Encodes the ConversionReviews that are sent to a conversion webhook and checks what it
//! returns (`apiextensions-apiserver/pkg/apiserver/conversion/webhook_converter.go`).
//!
//! The texts of the errors are Kubernetes'. Does no I/O.

use machinery::field_error::aggregate;
use machinery::names::split_api_version;
use machinery::{FieldError, Gvk};
use serde::Deserialize;
use serde_json::Value;

const API_GROUP: &str = "apiextensions.k8s.io";

/// A version of ConversionReview that this server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConversionReviewVersion {
    V1,
    V1Beta1,
}

impl ConversionReviewVersion {
    /// The first known one of `conversionReviewVersions`.
    pub(super) fn first_supported<'a>(names: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        names.into_iter().find_map(|name| match name {
            "v1" => Some(Self::V1),
            "v1beta1" => Some(Self::V1Beta1),
            _ => None,
        })
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1Beta1 => "v1beta1",
        }
    }
}

/// Encodes a review of encoded objects.
pub(super) fn encode_review(
    version: ConversionReviewVersion,
    uid: &str,
    desired_api_version: &str,
    objects: &[Vec<u8>],
) -> Vec<u8> {
    let head = format!(
        r#"{{"kind":"ConversionReview","apiVersion":"{API_GROUP}/{}","request":{{"uid":"{uid}","desiredAPIVersion":{},"objects":["#,
        version.as_str(),
        Value::from(desired_api_version),
    );
    let size: usize = objects.iter().map(|object| object.len() + 1).sum();
    let mut body = Vec::with_capacity(head.len() + size + 3);
    body.extend_from_slice(head.as_bytes());
    for (i, object) in objects.iter().enumerate() {
        if i > 0 {
            body.push(b',');
        }
        body.extend_from_slice(object);
    }
    body.extend_from_slice(b"]}}");
    body
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ReviewResponseBody {
    api_version: String,
    kind: String,
    response: Option<ConversionResponse>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ConversionResponse {
    uid: String,
    converted_objects: Vec<Value>,
    result: ConversionResult,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ConversionResult {
    status: String,
    message: String,
}

/// Decodes the response to the review with this uid. The error follows
/// `conversion webhook for KIND failed: `.
pub(super) fn decode_response(
    version: ConversionReviewVersion,
    uid: &str,
    body: &[u8],
) -> Result<Vec<Value>, String> {
    let review: ReviewResponseBody =
        machinery::json::from_slice(body).map_err(|e| e.to_string())?;
    if version == ConversionReviewVersion::V1 {
        let (group, version) = split_api_version(&review.api_version);
        if (group, version, review.kind.as_str()) != (API_GROUP, "v1", "ConversionReview") {
            return Err(format!(
                "expected webhook response of {API_GROUP}/v1, Kind=ConversionReview, got {}, Kind={}",
                review.api_version, review.kind
            ));
        }
    }
    let response = review.response.ok_or("no response provided")?;
    if version == ConversionReviewVersion::V1 && response.uid != uid {
        let response_uid = response.uid;
        return Err(format!(
            "expected response.uid={uid:?}, got {response_uid:?}"
        ));
    }
    if response.result.status != "Success" {
        return Err(match response.result.message {
            text if !text.is_empty() => text,
            _ => format!(
                "response.result.status was '{}', not 'Success'",
                response.result.status
            ),
        });
    }
    Ok(response.converted_objects)
}

/// Checks one converted object and gives it the metadata of the original, except labels
/// and annotations. The error follows `conversion webhook for KIND `.
pub(super) fn adopt_converted(
    index: usize,
    original: &mut Value,
    mut converted: Value,
    desired_api_version: &str,
) -> Result<Value, String> {
    let text = |object: &Value, field: &str| object[field].as_str().unwrap_or("").to_owned();
    let api_version = text(&converted, "apiVersion");
    if api_version != desired_api_version {
        return Err(format!(
            "returned invalid object at index {index}: invalid groupVersion (expected {desired_api_version}, received {api_version})"
        ));
    }
    let (expected, kind) = (text(original, "kind"), text(&converted, "kind"));
    if expected != kind {
        return Err(format!(
            "returned invalid object at index {index}: invalid kind (expected {expected}, received {kind})"
        ));
    }
    for (field, name) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let [before, after] =
            [&*original, &converted].map(|object| text(&object["metadata"], field));
        if before != after {
            return Err(format!(
                "returned invalid object: must have the same {name}: {before} != {after}"
            ));
        }
    }
    restore_metadata(original, &mut converted)
        .map_err(|message| format!("returned invalid metadata: {message}"))?;
    Ok(converted)
}

/// Moves the metadata of the original into the converted object, which keeps its labels
/// and annotations.
fn restore_metadata(original: &mut Value, converted: &mut Value) -> Result<(), String> {
    let Some(converted_metadata) = converted.get_mut("metadata") else {
        return Err("missing metadata in converted object".into());
    };
    let Value::Object(response) = converted_metadata else {
        let name = go_type_name(converted_metadata);
        return Err(format!(
            "invalid metadata of type {name} in converted object"
        ));
    };
    let mut restored = original["metadata"].take();
    let Some(metadata) = restored.as_object_mut() else {
        let name = go_type_name(&restored);
        return Err(format!("invalid metadata of type {name} in input object"));
    };
    for field in ["labels", "annotations"] {
        match response.remove(field) {
            None | Some(Value::Null) => {
                metadata.remove(field);
            }
            Some(Value::Object(strings)) => {
                let strings = Value::Object(strings);
                check_strings(field, metadata.get(field), &strings)?;
                metadata.insert(field.to_owned(), strings);
            }
            Some(other) => {
                let name = go_type_name(&other);
                return Err(format!(
                    "invalid metadata.{field} of type {name} in converted object"
                ));
            }
        }
    }
    *converted_metadata = restored;
    Ok(())
}

/// Checks labels or annotations that the webhook changed; what was stored is not checked
/// again.
fn check_strings(field: &str, before: Option<&Value>, after: &Value) -> Result<(), String> {
    for (key, value) in after.as_object().into_iter().flatten() {
        if !value.is_string() {
            let name = go_type_name(value);
            return Err(format!(
                "metadata.{field}[{key}] must be a string, but is {name} in converted object"
            ));
        }
    }
    if before == Some(after) {
        return Ok(());
    }
    let mut errors: Vec<FieldError> = Vec::new();
    match field {
        "labels" => admission::metadata::validate_labels("metadata.labels", after, &mut errors),
        _ => admission::metadata::validate_annotations("metadata.annotation", after, &mut errors),
    }
    match errors.is_empty() {
        true => Ok(()),
        false => Err(aggregate(&errors)),
    }
}

/// The type that Go's `%T` prints for a decoded JSON value.
fn go_type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// A kind as Kubernetes' errors print it.
pub(super) fn display_kind(api_version: &str, kind: &str) -> String {
    let gvk = Gvk::from_api_version(api_version, kind);
    format!("{}, Kind={}", gvk.api_version(), gvk.kind)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_supported_review_version_is_used() {
        use ConversionReviewVersion::{V1, V1Beta1};
        for (names, expected) in [
            (vec!["v1"], Some(V1)),
            (vec!["v2", "v1beta1", "v1"], Some(V1Beta1)),
            (vec!["v2"], None),
            (vec![], None),
        ] {
            assert_eq!(
                ConversionReviewVersion::first_supported(names.clone()),
                expected,
                "{names:?}"
            );
        }
    }

    #[test]
    fn a_review_contains_all_objects() {
        let objects = [b"{\"a\":1}".to_vec(), b"{\"b\":2}".to_vec()];
        let body = encode_review(ConversionReviewVersion::V1, "u", "g.io/v2", &objects);
        let review: Value = machinery::json::from_slice(&body).unwrap();
        let expected = json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1",
            "request": {"uid": "u", "desiredAPIVersion": "g.io/v2", "objects": [{"a": 1}, {"b": 2}]}});
        assert_eq!(review, expected);
        let empty_review = encode_review(ConversionReviewVersion::V1Beta1, "u", "g.io/v2", &[]);
        let review: Value = machinery::json::from_slice(&empty_review).unwrap();
        assert_eq!(review["request"]["objects"], json!([]));
        assert_eq!(review["apiVersion"], "apiextensions.k8s.io/v1beta1");
    }

    #[test]
    fn responses_are_checked() {
        let ok = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
            "response": {"uid": "u", "result": {"status": "Success"}, "convertedObjects": [{"a": 1}]}});
        let response_with = |path: &str, value: Value| {
            let mut changed = ok.clone();
            *changed.pointer_mut(path).unwrap() = value;
            changed
        };
        let check = |version, body: &Value, expected: Result<usize, &str>| {
            let outcome = decode_response(version, "u", body.to_string().as_bytes());
            let outcome = outcome.map(|objects| objects.len());
            assert_eq!(
                outcome.as_ref().map_err(String::as_str),
                expected.as_ref().map_err(|e| *e),
                "{body}"
            );
        };
        check(ConversionReviewVersion::V1, &ok, Ok(1));
        check(
            ConversionReviewVersion::V1,
            &response_with("/kind", json!("Other")),
            Err(
                "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got apiextensions.k8s.io/v1, Kind=Other",
            ),
        );
        check(
            ConversionReviewVersion::V1,
            &response_with("/response/uid", json!("x")),
            Err(r#"expected response.uid="u", got "x""#),
        );
        check(
            ConversionReviewVersion::V1Beta1,
            &response_with("/response/uid", json!("x")),
            Ok(1),
        );
        check(
            ConversionReviewVersion::V1,
            &response_with(
                "/response/result",
                json!({"status": "Failure", "message": "not today"}),
            ),
            Err("not today"),
        );
        check(
            ConversionReviewVersion::V1,
            &response_with("/response/result", json!({})),
            Err("response.result.status was '', not 'Success'"),
        );
        check(
            ConversionReviewVersion::V1,
            &response_with("/response", Value::Null),
            Err("no response provided"),
        );
    }

    fn object(version: &str, metadata: Value) -> Value {
        json!({"apiVersion": format!("g.io/{version}"), "kind": "Thing", "metadata": metadata})
    }

    fn check_adopted(metadata: Value, returned: Value, expected: Result<Value, &str>) {
        let mut original = object("v1", metadata);
        let adopted = adopt_converted(0, &mut original, returned.clone(), "g.io/v2");
        let adopted = adopted.map(|object| object["metadata"].clone());
        assert_eq!(
            adopted.as_ref().map_err(String::as_str),
            expected.as_ref().map_err(|e| *e),
            "{returned}"
        );
    }

    #[test]
    fn only_labels_and_annotations_of_metadata_may_change() {
        let metadata = json!({"name": "a", "namespace": "n", "uid": "1", "labels": {"x": "!"}, "generation": 3});
        let returned = |metadata: Value| {
            let mut all = json!({"name": "a", "namespace": "n", "uid": "1"});
            all.as_object_mut()
                .unwrap()
                .extend(metadata.as_object().unwrap().clone());
            object("v2", all)
        };
        let with_labels = |labels: Value| {
            let mut with_labels = metadata.clone();
            with_labels["labels"] = labels;
            with_labels
        };
        let check = |returned: Value, expected| check_adopted(metadata.clone(), returned, expected);
        check(
            returned(json!({"labels": {"y": "z"}, "generation": 9, "finalizers": ["f/f"]})),
            Ok(with_labels(json!({"y": "z"}))),
        );
        // A stored label is not validated again.
        check(
            returned(json!({"labels": {"x": "!"}})),
            Ok(with_labels(json!({"x": "!"}))),
        );
        let mut without = metadata.clone();
        without.as_object_mut().unwrap().remove("labels");
        check(returned(json!({"labels": null})), Ok(without));
        for (change, message) in [
            (
                json!({"name": "b"}),
                "returned invalid object: must have the same name: a != b",
            ),
            (
                json!({"namespace": ""}),
                "returned invalid object: must have the same namespace: n != ",
            ),
            (
                json!({"uid": "2"}),
                "returned invalid object: must have the same UID: 1 != 2",
            ),
            (
                json!({"labels": 1}),
                "returned invalid metadata: invalid metadata.labels of type int64 in converted object",
            ),
            (
                json!({"annotations": {"a": 1.5}}),
                "returned invalid metadata: metadata.annotations[a] must be a string, but is float64 in converted object",
            ),
        ] {
            check(returned(change), Err(message));
        }
        let mut other = returned(json!({}));
        other["apiVersion"] = json!("g.io/v3");
        check(
            other,
            Err(
                "returned invalid object at index 0: invalid groupVersion (expected g.io/v2, received g.io/v3)",
            ),
        );
        let mut other = returned(json!({}));
        other["kind"] = json!("Other");
        check(
            other,
            Err(
                "returned invalid object at index 0: invalid kind (expected Thing, received Other)",
            ),
        );
    }

    #[test]
    fn changed_labels_are_validated() {
        let mut original = object("v1", json!({"name": "a"}));
        let returned = object("v2", json!({"name": "a", "labels": {"x": "!"}}));
        let message = adopt_converted(0, &mut original, returned, "g.io/v2").unwrap_err();
        assert!(
            message.starts_with("returned invalid metadata: metadata.labels: Invalid value: \"!\""),
            "{message}"
        );
    }
}
