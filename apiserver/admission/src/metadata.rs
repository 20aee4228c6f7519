//! Validates `metadata` of every object. Does no I/O. Rules and texts of
//! `apimachinery/pkg/api/validation/objectmeta.go`.

use machinery::bounded_text::{MAX_LISTED, MAX_QUOTED_BYTES, rendered_json, truncated};
use machinery::names::{
    split_api_version, validate_dns1035_label, validate_dns1123_label, validate_dns1123_subdomain,
    validate_label_value, validate_path_segment_name, validate_qualified_name,
};
use machinery::{FieldError, Gvk};
use serde_json::{Map, Value};

use crate::unstructured::{
    entries, flag, get, has, index_path, items, object_mut, report_invalid, text, texts,
    validate_immutable_field,
};

/// Bound on the bytes of all annotations of an object together.
const MAX_ANNOTATIONS_BYTES: usize = 256 << 10;

/// The number of owners that an error lists; further owners are omitted.
const MAX_SHOWN_OWNERS: usize = 8;

/// Groups in which finalizers must have a domain or be one of the standard ones.
const BUILTIN_GROUPS: &[&str] = &[
    "",
    "apps",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
];
const STANDARD_FINALIZERS: &[&str] = &["kubernetes", "orphan", "foregroundDeletion"];

/// The naming rule of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    Subdomain,
    Label,
    /// A DNS-1035 label.
    Label1035,
    /// Anything that fits into one path segment.
    PathSegment,
}

impl NameRule {
    /// The rule of a kind; the default is `Subdomain`.
    pub fn for_kind(gvk: &Gvk) -> Self {
        match (&*gvk.group, &*gvk.kind) {
            ("", "Namespace") => Self::Label,
            ("", "Service") => Self::Label1035,
            ("rbac.authorization.k8s.io", _)
            | ("certificates.k8s.io", "CertificateSigningRequest")
            | ("policy", "PodDisruptionBudget") => Self::PathSegment,
            _ => Self::Subdomain,
        }
    }

    /// Checks a name; the error is Kubernetes' text.
    pub fn check(self, name: &str) -> Result<(), String> {
        match self {
            Self::Subdomain => validate_dns1123_subdomain(name),
            Self::Label => validate_dns1123_label(name),
            Self::Label1035 => validate_dns1035_label(name),
            Self::PathSegment => validate_path_segment_name(name),
        }
    }
}

/// Validates a create or update: name, namespace, labels, annotations, owners and
/// finalizers.
pub fn validate(gvk: &Gvk, namespaced: bool, object: &Value) -> Vec<FieldError> {
    let meta = get(object, "/metadata");
    let mut errors = Vec::new();
    validate_name(NameRule::for_kind(gvk), meta, &mut errors);
    validate_namespace(namespaced, text(meta, "/namespace"), &mut errors);
    validate_labels("metadata.labels", get(meta, "/labels"), &mut errors);
    validate_annotations(
        "metadata.annotations",
        get(meta, "/annotations"),
        &mut errors,
    );
    let field = "metadata.ownerReferences";
    validate_owner_references(field, items(meta, "/ownerReferences"), &mut errors);
    validate_finalizers(gvk, "metadata.finalizers", meta, &mut errors);
    errors
}

/// Validates type and metadata of an object in a field at `path` of a custom resource
/// (`apiextensions-apiserver/pkg/apiserver/schema/objectmeta/validation.go`).
pub fn validate_embedded(path: &str, object: &Map<String, Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    validate_embedded_type(path, object, &mut errors);
    let Some(meta) = object.get("metadata").filter(|meta| meta.is_object()) else {
        return errors;
    };
    let field_path = |name: &str| format!("{path}.metadata.{name}");
    for name in ["name", "generateName"] {
        let value = text(meta, &format!("/{name}"));
        if !value.is_empty() {
            let result = validate_path_segment_name(value);
            report_invalid(field_path(name), value, result, &mut errors);
        }
    }
    let namespace = text(meta, "/namespace");
    if !namespace.is_empty() {
        let result = validate_dns1123_label(namespace);
        report_invalid(field_path("namespace"), namespace, result, &mut errors);
    }
    validate_labels(&field_path("labels"), get(meta, "/labels"), &mut errors);
    validate_annotations(
        &field_path("annotations"),
        get(meta, "/annotations"),
        &mut errors,
    );
    let owners = items(meta, "/ownerReferences");
    validate_owner_references(&field_path("ownerReferences"), owners, &mut errors);
    let custom = Gvk::from_static("embedded", "", "");
    validate_finalizers(&custom, &field_path("finalizers"), meta, &mut errors);
    errors
}

fn validate_embedded_type(path: &str, object: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    for name in ["apiVersion", "kind"] {
        // The schema requires both, and their type is checked before.
        let Some(value) = object.get(name).and_then(Value::as_str) else {
            continue;
        };
        let detail = match name {
            _ if value.is_empty() => Some("must not be empty".to_owned()),
            "apiVersion" => (value.matches('/').count() > 1)
                .then(|| format!("unexpected GroupVersion string: {value}")),
            _ => validate_dns1035_label(&value.to_lowercase())
                .err()
                .map(|detail| format!("may have mixed case, but should otherwise match: {detail}")),
        };
        if let Some(detail) = detail {
            errors.push(FieldError::invalid(
                format!("{path}.{name}"),
                &value.into(),
                detail,
            ));
        }
    }
}

fn validate_name(rule: NameRule, meta: &Value, errors: &mut Vec<FieldError>) {
    let (name, prefix) = (text(meta, "/name"), text(meta, "/generateName"));
    if !prefix.is_empty() {
        // A prefix may end with a hyphen, a name may not.
        let masked = match prefix.strip_suffix('-') {
            Some(head) => format!("{head}a"),
            None => prefix.to_owned(),
        };
        report_invalid("metadata.generateName", prefix, rule.check(&masked), errors);
    }
    if name.is_empty() {
        if prefix.is_empty() {
            errors.push(FieldError::required(
                "metadata.name",
                "name or generateName is required",
            ));
        }
    } else {
        report_invalid("metadata.name", name, rule.check(name), errors);
    }
}

fn validate_namespace(namespaced: bool, namespace: &str, errors: &mut Vec<FieldError>) {
    match (namespaced, namespace) {
        (true, "") => errors.push(FieldError::required("metadata.namespace", "")),
        (true, name) => report_invalid(
            "metadata.namespace",
            name,
            validate_dns1123_label(name),
            errors,
        ),
        (false, "") => {}
        (false, _) => errors.push(FieldError::forbidden(
            "metadata.namespace",
            "not allowed on this type",
        )),
    }
}

/// Validates a map of labels at `field`.
pub fn validate_labels(field: &str, labels: &Value, errors: &mut Vec<FieldError>) {
    for (key, value) in entries(labels, "") {
        if errors.len() > MAX_LISTED {
            return;
        }
        report_invalid(field, key, validate_qualified_name(key), errors);
        let value = value.as_str().unwrap_or("");
        report_invalid(field, value, validate_label_value(value), errors);
    }
}

/// Validates an annotation that switches something on, so that a typing error does not leave it off.
pub(crate) fn validate_switch(object: &Value, key: &str, errors: &mut Vec<FieldError>) {
    let value = &get(object, "/metadata/annotations")[key];
    if !value.is_null() && value != "true" && value != "false" {
        let field = format!("metadata.annotations[{key}]");
        errors.push(FieldError::invalid(field, value, "must be true or false"));
    }
}

/// Validates a map of annotations at `field`.
pub fn validate_annotations(field: &str, annotations: &Value, errors: &mut Vec<FieldError>) {
    let mut bytes = 0;
    for (key, value) in entries(annotations, "") {
        if errors.len() > MAX_LISTED {
            return;
        }
        report_invalid(
            field,
            key,
            validate_qualified_name(&key.to_ascii_lowercase()),
            errors,
        );
        bytes += key.len() + value.as_str().map_or(0, str::len);
    }
    if bytes > MAX_ANNOTATIONS_BYTES {
        errors.push(FieldError::too_long(field, MAX_ANNOTATIONS_BYTES));
    }
}

/// Kubernetes names the field of all owners, not the index of one.
fn validate_owner_references(field: &str, owners: &[Value], errors: &mut Vec<FieldError>) {
    let mut controller: Option<String> = None;
    for owner in owners {
        if errors.len() > MAX_LISTED {
            return;
        }
        let api_version = text(owner, "/apiVersion");
        let (group, version) = split_api_version(api_version);
        if version.is_empty() {
            errors.push(FieldError::invalid(
                format!("{field}.apiVersion"),
                &api_version.into(),
                "version must not be empty",
            ));
        }
        for part in ["kind", "name", "uid"] {
            if text(owner, &format!("/{part}")).is_empty() {
                errors.push(FieldError::invalid(
                    format!("{field}.{part}"),
                    &"".into(),
                    "must not be empty",
                ));
            }
        }
        if group.is_empty() && version == "v1" && text(owner, "/kind") == "Event" {
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            let rendered = render_owner(owner);
            errors.push(FieldError::invalid_rendered(field, &rendered, detail));
        }
        if flag(owner, "/controller") {
            let part = |field| truncated(text(owner, field), MAX_QUOTED_BYTES);
            let name = format!("{}/{}", part("/kind"), part("/name"));
            if let Some(first) = &controller {
                let detail = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {name}"
                );
                let rendered: Vec<String> = owners
                    .iter()
                    .take(MAX_SHOWN_OWNERS)
                    .map(render_owner)
                    .collect();
                let rendered = format!("[{}]", rendered.join(","));
                errors.push(FieldError::invalid_rendered(field, &rendered, detail));
            }
            controller.get_or_insert(name);
        }
    }
}

/// An owner with its fields in the order of Go's type.
fn render_owner(owner: &Value) -> String {
    let required = ["apiVersion", "kind", "name", "uid"].map(|name| (name, true));
    let optional = ["controller", "blockOwnerDeletion"].map(|name| (name, false));
    let fields = required.into_iter().chain(optional);
    let parts: Vec<String> = fields
        .filter_map(
            |(name, is_required)| match get(owner, &format!("/{name}")) {
                Value::Null => is_required.then(|| format!("{name:?}:\"\"")),
                value => Some(format!("{name:?}:{}", rendered_json(value))),
            },
        )
        .collect();
    format!("{{{}}}", parts.join(","))
}

fn validate_finalizers(gvk: &Gvk, field: &str, meta: &Value, errors: &mut Vec<FieldError>) {
    // Custom resources may use unqualified names (unlike
    // `core/validation.ValidateObjectMeta`).
    let qualified = BUILTIN_GROUPS.contains(&&*gvk.group);
    for (i, name) in texts(meta, "/finalizers").enumerate() {
        if errors.len() > MAX_LISTED {
            return;
        }
        report_invalid(field, name, validate_qualified_name(name), errors);
        if qualified && !name.contains('/') && !STANDARD_FINALIZERS.contains(&name) {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(
                index_path(field, i),
                &name.into(),
                detail,
            ));
        }
    }
    let set = |name: &str| texts(meta, "/finalizers").any(|f| f == name);
    if set("orphan") && set("foregroundDeletion") {
        errors.push(FieldError::invalid(
            field,
            get(meta, "/finalizers"),
            "finalizer orphan and finalizer foregroundDeletion cannot be both set",
        ));
    }
}

/// In an update, copies fields that the client left out or may not remove from the
/// stored object.
pub fn inherit_metadata(new: &mut Value, old: &Value) {
    let old = get(old, "/metadata");
    let Some(meta) = object_mut(new, &["metadata"]) else {
        return;
    };
    meta.remove("selfLink");
    for field in ["uid", "creationTimestamp"] {
        let empty = meta
            .get(field)
            .is_none_or(|v| v.is_null() || v.as_str() == Some(""));
        if let Some(value) = old.get(field).filter(|_| empty) {
            meta.insert(field.into(), value.clone());
        }
    }
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        if let Some(value) = old.get(field) {
            meta.insert(field.into(), value.clone());
        }
    }
}

/// Validates an update: immutable fields, and no new finalizers during deletion.
pub fn validate_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let fields = [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ];
    for field in fields {
        validate_immutable_field(new, old, &format!("metadata.{field}"), &mut errors);
    }
    if has(old, "/metadata/deletionTimestamp") {
        let added: Vec<String> = texts(new, "/metadata/finalizers")
            .filter(|f| !texts(old, "/metadata/finalizers").any(|o| o == *f))
            .map(|f| format!("{f:?}"))
            .collect();
        if !added.is_empty() {
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            );
            errors.push(FieldError::forbidden("metadata.finalizers", &detail));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const POD: Gvk = Gvk::from_static("", "v1", "Pod");

    fn fields(errors: &[FieldError]) -> Vec<&str> {
        errors.iter().map(|e| e.field.as_str()).collect()
    }

    fn check_create(gvk: &Gvk, namespaced: bool, meta: Value, expect: &[&str]) {
        let errors = validate(gvk, namespaced, &json!({ "metadata": meta }));
        assert_eq!(fields(&errors), expect, "{meta}");
    }

    #[test]
    fn names_follow_the_rule_of_their_kind() {
        let role = Gvk::from_static("rbac.authorization.k8s.io", "v1", "ClusterRole");
        let namespace = Gvk::from_static("", "v1", "Namespace");
        let service = Gvk::from_static("", "v1", "Service");
        check_create(&POD, true, json!({"name": "a.b", "namespace": "n"}), &[]);
        check_create(
            &POD,
            true,
            json!({"generateName": "a-", "namespace": "n"}),
            &[],
        );
        check_create(
            &POD,
            true,
            json!({"name": "A", "namespace": "n"}),
            &["metadata.name"],
        );
        check_create(&POD, true, json!({"name": "a"}), &["metadata.namespace"]);
        check_create(
            &POD,
            true,
            json!({"name": "a", "namespace": "N"}),
            &["metadata.namespace"],
        );
        check_create(&POD, true, json!({"namespace": "n"}), &["metadata.name"]);
        check_create(&role, false, json!({"name": "system:x"}), &[]);
        check_create(&role, false, json!({"name": "a/b"}), &["metadata.name"]);
        check_create(
            &role,
            false,
            json!({"name": "a", "namespace": "n"}),
            &["metadata.namespace"],
        );
        check_create(
            &namespace,
            false,
            json!({"name": "a.b"}),
            &["metadata.name"],
        );
        check_create(
            &service,
            true,
            json!({"name": "1a", "namespace": "n"}),
            &["metadata.name"],
        );
    }

    #[test]
    fn labels_owners_and_finalizers_are_validated() {
        let object_with = |extra: Value| {
            let mut meta = json!({"name": "a", "namespace": "n"});
            for (k, v) in extra.as_object().unwrap() {
                meta[k] = v.clone();
            }
            meta
        };
        let owner = |name: &str, controller: bool| json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": "u", "controller": controller});
        let owners = "metadata.ownerReferences";
        let table = [
            (json!({"labels": {"a/b": "c"}}), vec![]),
            (json!({"labels": {"a b": "c"}}), vec!["metadata.labels"]),
            (json!({"labels": {"a": "c d"}}), vec!["metadata.labels"]),
            (json!({"annotations": {"A/b": "c d"}}), vec![]),
            (
                json!({"annotations": {"a b": ""}}),
                vec!["metadata.annotations"],
            ),
            (
                json!({"annotations": {"a": "x".repeat(MAX_ANNOTATIONS_BYTES)}}),
                vec!["metadata.annotations"],
            ),
            (
                json!({"ownerReferences": [owner("x", true), owner("y", false)]}),
                vec![],
            ),
            (
                json!({"ownerReferences": [owner("x", true), owner("y", true)]}),
                vec![owners],
            ),
            (
                json!({"ownerReferences": [{"apiVersion": "v1", "kind": "Event", "name": "e", "uid": "u"}]}),
                vec![owners],
            ),
            (
                json!({"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "e"}]}),
                vec!["metadata.ownerReferences.uid"],
            ),
            (json!({"finalizers": ["a/b", "orphan"]}), vec![]),
            (
                json!({"finalizers": ["orphan", "foregroundDeletion"]}),
                vec!["metadata.finalizers"],
            ),
            (
                json!({"finalizers": ["a b"]}),
                vec!["metadata.finalizers", "metadata.finalizers[0]"],
            ),
            (
                json!({"finalizers": ["kubernetes", "x.io/y", "plain"]}),
                vec!["metadata.finalizers[2]"],
            ),
        ];
        for (extra, expect) in table {
            check_create(&POD, true, object_with(extra), &expect);
        }
    }

    #[test]
    fn immutable_metadata_is_inherited_and_validated() {
        let old = json!({"metadata": {"name": "a", "uid": "u", "creationTimestamp": "t",
            "deletionTimestamp": "d", "finalizers": ["x"]}});
        let check_update = |meta: Value, expect: &[&str]| {
            let mut new = json!({ "metadata": meta });
            inherit_metadata(&mut new, &old);
            assert_eq!(fields(&validate_update(&new, &old)), expect, "{meta}");
        };
        check_update(json!({"name": "a", "selfLink": "s"}), &[]);
        check_update(json!({"name": "b"}), &["metadata.name"]);
        check_update(json!({"name": "a", "uid": "v"}), &["metadata.uid"]);
        check_update(json!({"name": "a", "deletionTimestamp": "e"}), &[]);
        check_update(json!({"name": "a", "finalizers": []}), &[]);
        check_update(
            json!({"name": "a", "finalizers": ["y", "x"]}),
            &["metadata.finalizers"],
        );
    }
}
