//! Compares the objects in all members with the load, and computes a checksum that is the same in
//! every run.

use std::collections::BTreeSet;

use anyhow::Context;
use machinery::Object;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::load::objects::{LOAD_ROUND, NAMESPACE};
use crate::members::{ROUND_LABEL, SimulatedFleet};
use crate::sizes::FleetSize;

/// The objects of the load in all members.
pub(crate) struct FleetContents {
    /// Of all objects, without what differs from run to run.
    pub(crate) checksum: String,
    /// Objects that a member should have and has not.
    pub(crate) missing: usize,
    /// Objects that a member has and should not have.
    pub(crate) unexpected: usize,
}

impl FleetContents {
    pub(crate) fn read(size: &FleetSize, fleet: &SimulatedFleet) -> anyhow::Result<Self> {
        let mut expected = expected_objects(size);
        let mut digest = Sha256::new();
        let mut unexpected = 0;
        let mut malformed = None;
        fleet.for_each_object(|member, object| {
            if object.meta().label(ROUND_LABEL) != Some(LOAD_ROUND) {
                return;
            }
            match stable_content(object) {
                Ok((kind, content)) => {
                    let key = object_key(member, &kind, object.name());
                    if !expected.remove(&key) {
                        unexpected += 1;
                    }
                    digest.update(key.as_bytes());
                    digest.update(content.as_bytes());
                }
                Err(error) => malformed = Some(error),
            }
        });
        if let Some(error) = malformed {
            return Err(error);
        }
        let digest = digest.finalize();
        let digits = digest.iter().map(|byte| format!("{byte:02x}"));
        Ok(Self {
            checksum: digits.collect(),
            missing: expected.len(),
            unexpected,
        })
    }
}

fn object_key(member: &str, kind: &str, name: &str) -> String {
    format!("{member} {kind} {NAMESPACE}/{name}")
}

fn expected_objects(size: &FleetSize) -> BTreeSet<String> {
    let mut expected = BTreeSet::new();
    for template in 0..size.templates {
        let name = size.template_name(template);
        let clusters = (size.group_of(template)..size.clusters).step_by(size.groups);
        for member in clusters.map(|cluster| size.cluster_name(cluster)) {
            expected.insert(object_key(&member, "Deployment", &name));
            if size.has_own_policies {
                expected.insert(object_key(&member, "ConfigMap", &name));
            }
        }
    }
    expected
}

/// The kind of an object, and its fields without those that the server or the control plane
/// generates.
fn stable_content(object: &Object) -> anyhow::Result<(String, String)> {
    let mut value = object.value()?;
    let kind = value["kind"].as_str().context("no kind")?.to_owned();
    let fields = value.as_object_mut().context("no object")?;
    let metadata = fields.remove("metadata").unwrap_or_default();
    fields.remove("status");
    let labels = metadata["labels"].as_object().into_iter().flatten();
    let own_labels = labels.filter(|(key, _)| !key.contains("karmada.io/"));
    let own_labels: Value = own_labels.map(|(k, v)| (k.clone(), v.clone())).collect();
    Ok((kind, format!("{own_labels}{value}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn content_is_the_same_in_every_run() {
        let object = |id: &str, image: &str| {
            let metadata =
                json!({"name": "a", "uid": id, "labels": {"a": "b", "x.karmada.io/id": id}});
            let value =
                json!({"kind": "Deployment", "metadata": metadata, "spec": image, "status": id});
            stable_content(&Object::from_value(&value).unwrap()).unwrap()
        };
        assert_eq!(object("1", "x"), object("2", "x"));
        assert_ne!(object("1", "x"), object("1", "y"));
    }

    #[test]
    fn each_template_is_expected_in_the_clusters_of_its_group() {
        let size = FleetSize::find("smoke").unwrap();
        let expected = expected_objects(size);
        assert_eq!(expected.len(), size.member_objects());
        assert!(expected.contains("member-0003 ConfigMap default/load-000001"));
        assert!(!expected.contains("member-0002 ConfigMap default/load-000001"));
    }
}
