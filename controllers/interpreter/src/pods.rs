//! Where the kinds that run pods say what these are like.

use machinery::{Gvk, Object};
use serde_json::Value;

use crate::native::Error;

/// The place of the pod's spec, in whichever version of its group a kind is served.
pub(crate) fn place(kind: &Gvk) -> Option<&'static str> {
    Some(match (&*kind.group, &*kind.kind) {
        ("", "Pod") => "/spec",
        ("apps", "Deployment" | "ReplicaSet" | "DaemonSet" | "StatefulSet") | ("batch", "Job") => {
            "/spec/template/spec"
        }
        ("batch", "CronJob") => "/spec/jobTemplate/spec/template/spec",
        _ => return None,
    })
}

/// A template's tree, to look for `what` in it.
pub(crate) fn tree(template: &Object, what: &'static str) -> Result<Value, Error> {
    template
        .value()
        .map_err(|source| Error::Malformed { what, source })
}

/// The PriorityClass that the pods of a template ask for.
pub(crate) fn priority_class(kind: &Gvk, template: &Object) -> Result<Option<String>, Error> {
    let Some(pod) = place(kind) else {
        return Ok(None);
    };
    let tree = tree(template, "priority class")?;
    let name = tree
        .pointer(pod)
        .and_then(|pod| pod.get("priorityClassName"));
    let name = name.and_then(Value::as_str).filter(|name| !name.is_empty());
    Ok(name.map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::tests::object;
    use serde_json::json;

    #[test]
    fn the_class_is_that_of_the_pods() {
        let pod = json!({"priorityClassName": "high"});
        let template = json!({"template": {"spec": pod}});
        for (kind, spec, class) in [
            (Gvk::constant("", "v1", "Pod"), pod.clone(), Some("high")),
            (
                Gvk::constant("apps", "v1", "Deployment"),
                template.clone(),
                Some("high"),
            ),
            (Gvk::constant("apps", "v1", "Deployment"), json!({}), None),
            (
                Gvk::constant("batch", "v1", "CronJob"),
                json!({"jobTemplate": {"spec": template}}),
                Some("high"),
            ),
            (Gvk::constant("", "v1", "ConfigMap"), pod, None),
        ] {
            let template = object(json!({"metadata": {"name": "x"}, "spec": spec}));
            let found = priority_class(&kind, &template).unwrap();
            assert_eq!(found.as_deref(), class, "{kind}");
        }
    }
}
