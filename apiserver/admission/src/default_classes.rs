//! Fills in the classes that an object does not name: the priority of pods, the StorageClass
//! of claims, the IngressClass of ingresses
//! (`plugin/pkg/admission/{priority,storage/storageclass,network/defaultingressclass}`).
//! Pure.

use std::cmp::Reverse;
use std::sync::Arc;

use machinery::object::MalformedObject;
use machinery::{Gvr, Object};
use serde::Deserialize;
use serde_json::{Map, Value};

pub(crate) const PRIORITY_CLASSES: Gvr =
    Gvr::from_static("scheduling.k8s.io", "v1", "priorityclasses");
pub(crate) const STORAGE_CLASSES: Gvr = Gvr::from_static("storage.k8s.io", "v1", "storageclasses");
pub(crate) const INGRESS_CLASSES: Gvr =
    Gvr::from_static("networking.k8s.io", "v1", "ingressclasses");
const DEFAULT_STORAGE_CLASS_ANNOTATIONS: [&str; 2] = [
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
];
const DEFAULT_INGRESS_CLASS_ANNOTATIONS: [&str; 1] =
    ["ingressclass.kubernetes.io/is-default-class"];
const STORAGE_CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
const INGRESS_CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";
/// The priority of pods if no class is the default.
const DEFAULT_PREEMPTION_POLICY: &str = "PreemptLowerPriority";

/// The fields of a PriorityClass that pods get.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PriorityClassFields {
    value: i64,
    global_default: bool,
    preemption_policy: Option<String>,
}

/// The spec of an object, if it is one.
fn spec_mut(object: &mut Value) -> Option<&mut Map<String, Value>> {
    object.get_mut("spec")?.as_object_mut()
}

/// Sets the priority and the preemption policy of a new pod. The error says why it is
/// forbidden.
pub(crate) fn set_priority(classes: &[Object], pod: &mut Value) -> Result<(), String> {
    let Some(spec) = spec_mut(pod) else {
        return Ok(());
    };
    let name = spec.get("priorityClassName").and_then(Value::as_str);
    let name = name.unwrap_or_default().to_owned();
    let (value, policy) = if name.is_empty() {
        match default_priority_class(classes).map_err(|e| e.to_string())? {
            Some((default, fields)) => {
                spec.insert("priorityClassName".into(), default.into());
                (fields.value, fields.preemption_policy.clone())
            }
            None => (0, Some(DEFAULT_PREEMPTION_POLICY.to_owned())),
        }
    } else {
        let class = classes.iter().find(|class| class.name() == name);
        let class = class.ok_or_else(|| format!("no PriorityClass with name {name} was found"))?;
        let fields = class.decode::<PriorityClassFields>();
        let fields = fields.map_err(|e| e.to_string())?;
        (fields.value, fields.preemption_policy.clone())
    };
    if let Some(pod_value) = spec.get("priority").and_then(Value::as_i64)
        && pod_value != value
    {
        return Err(format!(
            "the integer value of priority ({pod_value}) must not be provided in pod spec; priority admission controller computed {value} from the given PriorityClass name"
        ));
    }
    spec.insert("priority".into(), value.into());
    let Some(policy) = policy else {
        return Ok(());
    };
    if let Some(pod_value) = spec.get("preemptionPolicy").and_then(Value::as_str)
        && pod_value != policy
    {
        return Err(format!(
            "the string value of PreemptionPolicy ({pod_value}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
        ));
    }
    spec.insert("preemptionPolicy".into(), policy.into());
    Ok(())
}

/// Keeps the priority of a pod that an update omits; it cannot change.
pub(crate) fn keep_priority(old: &Value, pod: &mut Value) {
    let Some(spec) = spec_mut(pod) else {
        return;
    };
    for field in ["priority", "preemptionPolicy"] {
        let is_absent = spec.get(field).is_none_or(Value::is_null);
        if is_absent && let Some(value) = old["spec"].get(field) {
            spec.insert(field.into(), value.clone());
        }
    }
}

/// The global default; of several, the one with the lowest value.
fn default_priority_class(
    classes: &[Object],
) -> Result<Option<(&str, Arc<PriorityClassFields>)>, MalformedObject> {
    let mut default_class: Option<(&str, Arc<PriorityClassFields>)> = None;
    for class in classes {
        let fields = class.decode::<PriorityClassFields>()?;
        let is_lower = default_class
            .as_ref()
            .is_none_or(|(_, f)| fields.value < f.value);
        if fields.global_default && is_lower {
            default_class = Some((class.name(), fields));
        }
    }
    Ok(default_class)
}

/// Whether a new claim gets the default StorageClass.
pub(crate) fn needs_storage_class(claim: &Value) -> bool {
    claim["spec"]["storageClassName"].is_null()
        && claim["metadata"]["annotations"][STORAGE_CLASS_ANNOTATION].is_null()
}

/// Whether a new Ingress gets the default IngressClass.
pub(crate) fn needs_ingress_class(ingress: &Value) -> bool {
    ingress["spec"]["ingressClassName"].is_null()
        && ingress["metadata"]["annotations"][INGRESS_CLASS_ANNOTATION].is_null()
}

/// Sets the default StorageClass of a claim that needs one.
pub(crate) fn set_storage_class(classes: &[Object], claim: &mut Value) {
    let class = default_class(classes, &DEFAULT_STORAGE_CLASS_ANNOTATIONS);
    set_class(class, "storageClassName", claim);
}

/// Sets the default IngressClass of an Ingress that needs one.
pub(crate) fn set_ingress_class(classes: &[Object], ingress: &mut Value) {
    let class = default_class(classes, &DEFAULT_INGRESS_CLASS_ANNOTATIONS);
    set_class(class, "ingressClassName", ingress);
}

fn set_class(class: Option<&str>, field: &str, object: &mut Value) {
    if let (Some(class), Some(spec)) = (class, spec_mut(object)) {
        spec.insert(field.into(), class.into());
    }
}

/// The class that is annotated as the default; of several the newest, then the first by name.
fn default_class<'a>(classes: &'a [Object], marks: &[&str]) -> Option<&'a str> {
    let is_default = |class: &&Object| {
        let annotations = class.annotations();
        let mut values = marks.iter().filter_map(|mark| annotations.get(*mark));
        values.any(|value| value == "true")
    };
    let defaults = classes.iter().filter(is_default);
    let newest = defaults.min_by_key(|class| (Reverse(class.creation_timestamp()), class.name()));
    newest.map(Object::name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn class(name: &str, extra_fields: Value) -> Object {
        let mut class = json!({"metadata": {"name": name}});
        let fields = class.as_object_mut().unwrap();
        for (field, value) in extra_fields.as_object().unwrap() {
            match field.as_str() {
                "metadata" => fields["metadata"]
                    .as_object_mut()
                    .unwrap()
                    .extend(value.as_object().unwrap().clone()),
                _ => drop(fields.insert(field.clone(), value.clone())),
            }
        }
        Object::from_value(&class).unwrap()
    }

    #[test]
    fn pods_get_the_priority_of_their_class() {
        let classes = [
            class("high", json!({"value": 100, "preemptionPolicy": "Never"})),
            class("low", json!({"value": 5, "globalDefault": true})),
            class("middle", json!({"value": 7, "globalDefault": true})),
        ];
        let no_classes: [Object; 0] = [];
        for (classes, spec, expected) in [
            (
                &classes[..],
                json!({"priorityClassName": "high"}),
                json!({"priorityClassName": "high", "priority": 100, "preemptionPolicy": "Never"}),
            ),
            (
                &classes[..],
                json!({}),
                json!({"priorityClassName": "low", "priority": 5}),
            ),
            (
                &no_classes[..],
                json!({"priority": 0}),
                json!({"priority": 0, "preemptionPolicy": "PreemptLowerPriority"}),
            ),
            (
                &classes[..],
                json!({"priorityClassName": "none"}),
                json!("no PriorityClass with name none was found"),
            ),
            (
                &classes[..],
                json!({"priorityClassName": "high", "priority": 3}),
                json!(
                    "the integer value of priority (3) must not be provided in pod spec; priority admission controller computed 100 from the given PriorityClass name"
                ),
            ),
            (
                &no_classes[..],
                json!({"preemptionPolicy": "Never"}),
                json!(
                    "the string value of PreemptionPolicy (Never) must not be provided in pod spec; priority admission controller computed PreemptLowerPriority from the given PriorityClass name"
                ),
            ),
        ] {
            let mut pod = json!({"spec": spec});
            let outcome = match set_priority(classes, &mut pod) {
                Ok(()) => pod["spec"].take(),
                Err(message) => message.into(),
            };
            assert_eq!(outcome, expected, "{spec}");
        }
    }

    #[test]
    fn an_update_keeps_the_priority() {
        let old = json!({"spec": {"priority": 5, "preemptionPolicy": "Never"}});
        let mut new = json!({"spec": {"priority": 6}});
        keep_priority(&old, &mut new);
        assert_eq!(
            new["spec"],
            json!({"priority": 6, "preemptionPolicy": "Never"})
        );
    }

    #[test]
    fn the_newest_default_class_is_set() {
        let default = |name: &str, time: &str, value: &str| {
            let annotations = json!({"storageclass.kubernetes.io/is-default-class": value});
            class(
                name,
                json!({"metadata": {"creationTimestamp": time, "annotations": annotations}}),
            )
        };
        let classes = [
            default("old", "2026-01-01T00:00:00Z", "true"),
            default("newest-b", "2026-01-02T00:00:00Z", "true"),
            default("newest-a", "2026-01-02T00:00:00Z", "true"),
            default("no", "2026-01-03T00:00:00Z", "false"),
        ];
        let mut claim = json!({"spec": {}});
        assert!(needs_storage_class(&claim));
        set_storage_class(&classes, &mut claim);
        assert_eq!(claim["spec"]["storageClassName"], "newest-a");
        assert!(!needs_storage_class(&claim));
        assert!(!needs_storage_class(
            &json!({"spec": {"storageClassName": ""}})
        ));
        let annotated =
            json!({"metadata": {"annotations": {"kubernetes.io/ingress.class": "x"}}, "spec": {}});
        assert!(!needs_ingress_class(&annotated));
    }
}
