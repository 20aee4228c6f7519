//! Where each native kind has its pod template, and what is read from it.

use machinery::{Gvk, Object};
use serde_json::Value;

use crate::native::Error;

/// The JSON pointer of the pod spec; `None` for kinds without pods. The version is ignored.
pub(crate) fn pod_spec_pointer(kind: &Gvk) -> Option<&'static str> {
    Some(match (&*kind.group, &*kind.kind) {
        ("", "Pod") => "/spec",
        ("apps", "Deployment" | "ReplicaSet" | "DaemonSet" | "StatefulSet") | ("batch", "Job") => {
            "/spec/template/spec"
        }
        ("batch", "CronJob") => "/spec/jobTemplate/spec/template/spec",
        _ => return None,
    })
}

/// The JSON of an object; the error names `what` was to be interpreted.
pub(crate) fn object_json(template: &Object, what: &'static str) -> Result<Value, Error> {
    template
        .value()
        .map_err(|source| Error::Malformed { what, source })
}

/// The name of the PriorityClass in the pod template.
pub(crate) fn priority_class(kind: &Gvk, template: &Object) -> Result<Option<String>, Error> {
    let Some(pod) = pod_spec_pointer(kind) else {
        return Ok(None);
    };
    let tree = object_json(template, "priority class")?;
    let name = tree
        .pointer(pod)
        .and_then(|pod| pod.get("priorityClassName"));
    let name = name.and_then(Value::as_str).filter(|name| !name.is_empty());
    Ok(name.map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::fixtures::object;
    use serde_json::json;

    #[test]
    fn priority_class_comes_from_the_pod_template() {
        let pod = json!({"priorityClassName": "high"});
        let template = json!({"template": {"spec": pod}});
        for (kind, spec, class) in [
            (Gvk::from_static("", "v1", "Pod"), pod.clone(), Some("high")),
            (
                Gvk::from_static("apps", "v1", "Deployment"),
                template.clone(),
                Some("high"),
            ),
            (
                Gvk::from_static("apps", "v1", "Deployment"),
                json!({}),
                None,
            ),
            (
                Gvk::from_static("batch", "v1", "CronJob"),
                json!({"jobTemplate": {"spec": template}}),
                Some("high"),
            ),
            (Gvk::from_static("", "v1", "ConfigMap"), pod, None),
        ] {
            let template = object(json!({"metadata": {"name": "x"}, "spec": spec}));
            let actual = priority_class(&kind, &template).unwrap();
            assert_eq!(actual.as_deref(), class, "{kind}");
        }
    }
}
