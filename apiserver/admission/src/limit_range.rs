//! Applies LimitRanges: sets the default requests and limits of a new pod's containers, and
//! checks pods and PersistentVolumeClaims (`plugin/pkg/admission/limitranger`).
//! Does no I/O.

use machinery::Quantity;
use quota::{ResourceList, resource_quota};
use serde_json::Value;

use crate::unstructured::{entries, get, items, items_mut, object_mut, text};

const ANNOTATION: &str = "kubernetes.io/limit-ranger";
/// The lists of containers and what the annotation calls their elements.
const CONTAINER_LISTS: [(&str, &str); 2] = [
    ("initContainers", "init container"),
    ("containers", "container"),
];

/// Sets the defaults of all ranges and notes them in an annotation.
pub(crate) fn set_pod_defaults(ranges: &[Value], pod: &mut Value) {
    let mut notes = Vec::new();
    for limit in limits_of_type(ranges, "Container") {
        for (list, container_kind) in CONTAINER_LISTS {
            for container in items_mut(pod, &format!("/spec/{list}")) {
                let name = text(container, "/name").to_owned();
                for (defaults, side, noun) in [
                    ("/defaultRequest", "requests", "request"),
                    ("/default", "limits", "limit"),
                ] {
                    let set = set_missing(container, side, get(limit, defaults));
                    if !set.is_empty() {
                        notes.push(format!(
                            "{} {noun} for {container_kind} {name}",
                            set.join(", ")
                        ));
                    }
                }
            }
        }
    }
    if !notes.is_empty()
        && let Some(annotations) = object_mut(pod, &["metadata", "annotations"])
    {
        let note = format!("LimitRanger plugin set: {}", notes.join("; "));
        annotations.insert(ANNOTATION.into(), note.into());
    }
}

/// Sets the resources that are not specified; returns their names.
fn set_missing(container: &mut Value, side: &str, defaults: &Value) -> Vec<String> {
    let missing: Vec<(String, Value)> = entries(defaults, "")
        .filter(|(name, _)| container["resources"][side].get(*name).is_none())
        .map(|(name, amount)| (name.to_owned(), amount.clone()))
        .collect();
    if missing.is_empty() {
        return Vec::new();
    }
    let names = missing.iter().map(|(name, _)| name.clone()).collect();
    if let Some(resources) = object_mut(container, &["resources", side]) {
        resources.extend(missing);
    }
    names
}

fn limits_of_type<'a>(ranges: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    let limits = ranges.iter().flat_map(|range| items(range, "/spec/limits"));
    limits.filter(move |limit| text(limit, "/type") == kind)
}

/// The violations of a pod.
pub(crate) fn validate_pod(ranges: &[Value], pod: &Value) -> Vec<String> {
    let mut errors = Vec::new();
    for limit in limits_of_type(ranges, "Container") {
        for list in ["containers", "initContainers"] {
            for container in items(pod, &format!("/spec/{list}")) {
                let usage = DeclaredResources {
                    kind: "Container",
                    requests: resource_list(&container["resources"]["requests"]),
                    limits: resource_list(&container["resources"]["limits"]),
                };
                usage.validate(limit, &mut errors);
            }
        }
    }
    for limit in limits_of_type(ranges, "Pod") {
        let (requests, limits) = resource_quota::pod_totals(pod);
        let usage = DeclaredResources {
            kind: "Pod",
            requests,
            limits,
        };
        usage.validate(limit, &mut errors);
    }
    errors
}

/// The violations of a PersistentVolumeClaim. It has requests only.
pub(crate) fn validate_claim(ranges: &[Value], claim: &Value) -> Vec<String> {
    const KIND: &str = "PersistentVolumeClaim";
    let mut errors = Vec::new();
    let usage = DeclaredResources {
        kind: KIND,
        requests: resource_list(&claim["spec"]["resources"]["requests"]),
        limits: ResourceList::new(),
    };
    for limit in limits_of_type(ranges, KIND) {
        for (name, least) in resource_list(get(limit, "/min")) {
            errors.extend(usage.below_minimum(&name, least));
        }
        for (name, maximum) in resource_list(get(limit, "/max")) {
            let bound = format!("maximum {name} usage per {KIND} is {maximum}");
            match usage.requests.get(&name) {
                None => errors.push(format!("{bound}.  No request is specified")),
                Some(request) if *request > maximum => {
                    errors.push(format!("{bound}, but request is {request}"));
                }
                Some(_) => {}
            }
        }
    }
    errors
}

fn resource_list(value: &Value) -> ResourceList {
    entries(value, "")
        .filter_map(|(name, amount)| Some((name.to_owned(), Quantity::from_value(amount).ok()?)))
        .collect()
}

/// The requests and limits of a container or a pod.
struct DeclaredResources {
    kind: &'static str,
    requests: ResourceList,
    limits: ResourceList,
}

impl DeclaredResources {
    fn validate(&self, limit: &Value, errors: &mut Vec<String>) {
        for (name, least) in resource_list(get(limit, "/min")) {
            errors.extend(self.below_minimum(&name, least));
        }
        for (name, maximum) in resource_list(get(limit, "/max")) {
            errors.extend(self.above_maximum(&name, maximum));
        }
        for (name, ratio) in resource_list(get(limit, "/maxLimitRequestRatio")) {
            errors.extend(self.above_ratio(&name, ratio));
        }
    }

    fn below_minimum(&self, name: &str, minimum: Quantity) -> Option<String> {
        let bound = format!("minimum {name} usage per {} is {minimum}", self.kind);
        match (self.requests.get(name), self.limits.get(name)) {
            (None, _) => Some(format!("{bound}.  No request is specified")),
            (Some(request), _) if *request < minimum => {
                Some(format!("{bound}, but request is {request}"))
            }
            (_, Some(limit)) if *limit < minimum => Some(format!("{bound}, but limit is {limit}")),
            _ => None,
        }
    }

    fn above_maximum(&self, name: &str, maximum: Quantity) -> Option<String> {
        let bound = format!("maximum {name} usage per {} is {maximum}", self.kind);
        match (self.limits.get(name), self.requests.get(name)) {
            (None, _) => Some(format!("{bound}.  No limit is specified")),
            (Some(limit), _) if *limit > maximum => Some(format!("{bound}, but limit is {limit}")),
            (_, Some(request)) if *request > maximum => {
                Some(format!("{bound}, but request is {request}"))
            }
            _ => None,
        }
    }

    fn above_ratio(&self, name: &str, max_ratio: Quantity) -> Option<String> {
        let bound = format!(
            "{name} max limit to request ratio per {} is {max_ratio}",
            self.kind
        );
        let set = |amounts: &ResourceList| amounts.get(name).copied().filter(|q| !q.is_zero());
        let Some(request) = set(&self.requests) else {
            return Some(format!(
                "{bound}, but no request is specified or request is 0"
            ));
        };
        let Some(limit) = set(&self.limits) else {
            return Some(format!("{bound}, but no limit is specified or limit is 0"));
        };
        let ratio = limit.milli_value() as f64 / request.milli_value() as f64;
        (ratio * 1000.0 > max_ratio.milli_value() as f64)
            .then(|| format!("{bound}, but provided ratio is {ratio:.6}"))
    }
}

/// The errors as Kubernetes joins them.
pub(crate) fn join(errors: &[String]) -> String {
    match errors {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn range(limit: Value) -> Vec<Value> {
        vec![json!({"spec": {"limits": [limit]}})]
    }

    fn pod(requests: Value, limits: Value) -> Value {
        json!({"spec": {"containers": [
            {"name": "c", "resources": {"requests": requests, "limits": limits}}]}})
    }

    #[test]
    fn defaults_are_set_and_noted() {
        let ranges = range(json!({"type": "Container",
            "defaultRequest": {"cpu": "100m", "memory": "1Gi"}, "default": {"cpu": "1"}}));
        let mut pod = pod(json!({"memory": "2Gi"}), json!({}));
        set_pod_defaults(&ranges, &mut pod);
        assert_eq!(
            pod["spec"]["containers"][0]["resources"],
            json!({"requests": {"cpu": "100m", "memory": "2Gi"}, "limits": {"cpu": "1"}})
        );
        let note = "LimitRanger plugin set: cpu request for container c; cpu limit for container c";
        assert_eq!(pod["metadata"]["annotations"][ANNOTATION], note);
        let before = pod.clone();
        set_pod_defaults(&ranges, &mut pod);
        assert_eq!(pod, before);
    }

    #[test]
    fn pods_are_checked() {
        for (limit, requests, limits, expected) in [
            (
                json!({"min": {"cpu": "1"}}),
                json!({"cpu": "1"}),
                json!({}),
                "",
            ),
            (
                json!({"min": {"cpu": "1"}}),
                json!({}),
                json!({}),
                "minimum cpu usage per TYPE is 1.  No request is specified",
            ),
            (
                json!({"min": {"cpu": "1"}}),
                json!({"cpu": "500m"}),
                json!({}),
                "minimum cpu usage per TYPE is 1, but request is 500m",
            ),
            (
                json!({"max": {"cpu": "1"}}),
                json!({}),
                json!({}),
                "maximum cpu usage per TYPE is 1.  No limit is specified",
            ),
            (
                json!({"max": {"cpu": "1", "memory": "1Gi"}}),
                json!({}),
                json!({"cpu": "2", "memory": "2Gi"}),
                "[maximum cpu usage per TYPE is 1, but limit is 2, maximum memory usage per TYPE is 1Gi, but limit is 2Gi]",
            ),
            (
                json!({"maxLimitRequestRatio": {"cpu": "2"}}),
                json!({"cpu": "1"}),
                json!({"cpu": "2"}),
                "",
            ),
            (
                json!({"maxLimitRequestRatio": {"cpu": "2"}}),
                json!({"cpu": "1"}),
                json!({"cpu": "3"}),
                "cpu max limit to request ratio per TYPE is 2, but provided ratio is 3.000000",
            ),
            (
                json!({"maxLimitRequestRatio": {"cpu": "2"}}),
                json!({"cpu": "1"}),
                json!({}),
                "cpu max limit to request ratio per TYPE is 2, but no limit is specified or limit is 0",
            ),
        ] {
            for kind in ["Container", "Pod"] {
                let mut limit = limit.clone();
                limit["type"] = kind.into();
                let mut requests = requests.clone();
                // As the defaulting of pods does.
                for (name, amount) in limits.as_object().unwrap() {
                    if requests.get(name).is_none() {
                        requests[name] = amount.clone();
                    }
                }
                let errors = validate_pod(&range(limit.clone()), &pod(requests, limits.clone()));
                let text = if errors.is_empty() {
                    String::new()
                } else {
                    join(&errors)
                };
                assert_eq!(text, expected.replace("TYPE", kind), "{limit}");
            }
        }
    }

    #[test]
    fn claims_are_checked_by_their_requests() {
        let ranges = range(json!({"type": "PersistentVolumeClaim",
            "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}}));
        let claim =
            |storage: &str| json!({"spec": {"resources": {"requests": {"storage": storage}}}});
        assert_eq!(validate_claim(&ranges, &claim("2Gi")), [""; 0]);
        assert_eq!(
            validate_claim(&ranges, &claim("3Gi")),
            ["maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi"]
        );
        assert_eq!(
            validate_claim(&ranges, &claim("512Mi")),
            ["minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 512Mi"]
        );
    }
}
