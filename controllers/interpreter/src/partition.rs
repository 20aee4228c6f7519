//! Divides the replicas of a manifest between the revision of the manifest and the one before: the
//! rule of the kinds with a partition, which is built in.

use karmada_api::partition::{partition_path, replicas_of_batch};
use machinery::Gvk;
use serde_json::Value;

use crate::error::Error;

const PERCENT_OF_ALL: u64 = 100;

/// Lets a percentage of the replicas of a manifest have its revision, rounded up. A partition of
/// the manifest that lets fewer of them stays. A manifest without a partition stays as it is.
pub(crate) fn set_partition(kind: &Gvk, manifest: &mut Value, percent: u64) -> Result<(), Error> {
    let Some(path) = partition_path(&kind.group, &kind.kind) else {
        return Ok(());
    };
    let spec = &manifest["spec"];
    let replicas = match &spec["replicas"] {
        // The default of these kinds.
        Value::Null => 1,
        replicas => replicas
            .as_u64()
            .ok_or_else(|| field_error("replicas", "a whole number"))?,
    };
    if spec["updateStrategy"]["type"] == "OnDelete" {
        // Pods that only a deletion updates are updated by nobody, in whatever batch.
        if percent >= PERCENT_OF_ALL {
            return Ok(());
        }
        return Err(field_error("updateStrategy.type", "RollingUpdate"));
    }
    let own = path.iter().fold(spec, |tree, field| &tree[*field]);
    let own = own_partition(own, replicas)
        .ok_or_else(|| field_error(&path.join("."), "a number or a percentage"))?;
    let kept = replicas - replicas_of_batch(replicas, percent);
    let mut slot = &mut manifest["spec"];
    for field in path {
        if !slot.is_object() && !slot.is_null() {
            return Err(field_error(&path.join("."), "an object around it"));
        }
        slot = &mut slot[*field];
    }
    *slot = own.max(kept).into();
    Ok(())
}

/// The replicas that the manifest itself lets keep the revision before.
fn own_partition(value: &Value, replicas: u64) -> Option<u64> {
    match value {
        Value::Null => Some(0),
        Value::String(text) => {
            let percent = text.strip_suffix('%')?.parse().ok()?;
            Some(replicas_of_batch(replicas, percent))
        }
        number => number.as_u64(),
    }
}

fn field_error(field: &str, expected: &'static str) -> Error {
    Error::Field {
        path: format!("spec.{field}"),
        expected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    // proves: ROL-batch-partition
    #[test]
    fn the_partition_keeps_all_but_the_batch() {
        let set = Gvk::from_static("apps", "v1", "StatefulSet");
        let clone_set = Gvk::from_static("apps.kruise.io", "v1alpha1", "CloneSet");
        let rolling = |replicas: Value, partition: u64| json!({"spec": {"replicas": replicas, "updateStrategy": {"rollingUpdate": {"partition": partition}}}});
        let cloned = |partition: Value| json!({"spec": {"replicas": 10, "updateStrategy": {"partition": partition}}});
        let spec = |spec: Value| json!({"spec": spec});
        let ten = || spec(json!({"replicas": 10}));
        for (kind, manifest, percent, expected) in [
            (&set, ten(), 10, rolling(json!(10), 9)),
            (&set, ten(), 11, rolling(json!(10), 8)),
            (&set, ten(), 100, rolling(json!(10), 0)),
            (&set, rolling(json!(10), 7), 50, rolling(json!(10), 7)),
            (&set, rolling(json!(10), 7), 100, rolling(json!(10), 7)),
            (&set, rolling(json!(10), 3), 50, rolling(json!(10), 5)),
            (&set, rolling(json!(0), 0), 50, rolling(json!(0), 0)),
            (&clone_set, ten(), 25, cloned(json!(7))),
            (&clone_set, cloned(json!("80%")), 50, cloned(json!(8))),
        ] {
            let mut divided = manifest.clone();
            set_partition(kind, &mut divided, percent).unwrap();
            assert_eq!(divided, expected, "{manifest} {percent}");
        }
        let web = Gvk::from_static("apps", "v1", "Deployment");
        let mut unchanged = ten();
        set_partition(&web, &mut unchanged, 10).unwrap();
        assert_eq!(unchanged, ten());
    }

    // proves: ROL-batch-partition
    #[test]
    fn a_manifest_that_cannot_be_divided_is_refused() {
        let set = Gvk::from_static("apps", "v1", "StatefulSet");
        let on_delete = json!({"spec": {"replicas": 2, "updateStrategy": {"type": "OnDelete"}}});
        for (manifest, percent, expected) in [
            (json!({"spec": {"replicas": "2"}}), 50, "spec.replicas: "),
            (json!({"spec": {"replicas": -2}}), 50, "spec.replicas: "),
            (
                json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": "half"}}}}),
                50,
                "spec.updateStrategy.rollingUpdate.partition: ",
            ),
            (
                json!({"spec": {"updateStrategy": "fast"}}),
                50,
                "spec.updateStrategy.rollingUpdate.partition: ",
            ),
            (on_delete.clone(), 50, "spec.updateStrategy.type: "),
        ] {
            let mut divided = manifest.clone();
            let error = set_partition(&set, &mut divided, percent).unwrap_err();
            assert!(error.to_string().starts_with(expected), "{error}");
        }
        let mut undivided = on_delete.clone();
        set_partition(&set, &mut undivided, 100).unwrap();
        assert_eq!(undivided, on_delete);
    }
}
