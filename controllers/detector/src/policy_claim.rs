//! Reads, makes and removes the claim of a policy on a template or a binding: a label with the
//! policy's permanent id and annotations with its name. Source: Karmada's `pkg/detector/claim.go`.

use karmada_api::well_known_keys::{
    CLUSTER_POLICY_ID, CLUSTER_POLICY_NAME, POLICY_ID, POLICY_NAME, POLICY_NAMESPACE,
};
use machinery::Object;
use serde_json::{Map, Value, json};

/// The policy that a claim names; the namespace of a cluster policy is empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PolicyClaim {
    pub namespace: String,
    pub name: String,
    pub id: String,
}

impl PolicyClaim {
    /// The claim that a policy makes; `None` until the policy has its permanent id.
    pub fn by_policy(policy: &Object) -> Option<Self> {
        let label = if policy.namespace().is_empty() {
            CLUSTER_POLICY_ID
        } else {
            POLICY_ID
        };
        Some(Self {
            namespace: policy.namespace().to_owned(),
            name: policy.name().to_owned(),
            id: policy
                .meta()
                .label(label)
                .filter(|v| !v.is_empty())?
                .to_owned(),
        })
    }

    /// The claim on an object; a PropagationPolicy takes precedence over a cluster policy.
    pub fn on_object(object: &Object) -> Option<Self> {
        let annotations = object.annotations();
        let annotation = |key: &str| annotations.get(key).map(String::as_str);
        let full = |v: Option<&str>| v.filter(|v| !v.is_empty()).map(str::to_owned);
        let local = || {
            Some(Self {
                namespace: full(annotation(POLICY_NAMESPACE))?,
                name: full(annotation(POLICY_NAME))?,
                id: full(object.meta().label(POLICY_ID))?,
            })
        };
        let cluster = || {
            Some(Self {
                namespace: String::new(),
                name: full(annotation(CLUSTER_POLICY_NAME))?,
                id: full(object.meta().label(CLUSTER_POLICY_ID))?,
            })
        };
        local().or_else(cluster)
    }

    pub fn is_cluster_scoped(&self) -> bool {
        self.namespace.is_empty()
    }

    pub(crate) fn labels(&self) -> Map<String, Value> {
        let key = if self.is_cluster_scoped() {
            CLUSTER_POLICY_ID
        } else {
            POLICY_ID
        };
        Map::from_iter([(key.to_owned(), json!(self.id))])
    }

    pub(crate) fn annotations(&self) -> Map<String, Value> {
        if self.is_cluster_scoped() {
            return Map::from_iter([(CLUSTER_POLICY_NAME.to_owned(), json!(self.name))]);
        }
        Map::from_iter([
            (POLICY_NAMESPACE.to_owned(), json!(self.namespace)),
            (POLICY_NAME.to_owned(), json!(self.name)),
        ])
    }

    /// The metadata patch that makes the claim; `None` if the object carries it already. The claim
    /// of a PropagationPolicy removes the claim of a cluster policy.
    pub(crate) fn claim_patch(&self, object: &Object) -> Option<Value> {
        let head = object.meta();
        let key = if self.is_cluster_scoped() {
            CLUSTER_POLICY_ID
        } else {
            POLICY_ID
        };
        let foreign = !self.is_cluster_scoped()
            && (head.label(CLUSTER_POLICY_ID).is_some()
                || object.annotations().contains_key(CLUSTER_POLICY_NAME));
        if head.label(key) == Some(&self.id) && !foreign {
            return None;
        }
        let (mut labels, mut annotations) = (self.labels(), self.annotations());
        if foreign {
            labels.insert(CLUSTER_POLICY_ID.into(), Value::Null);
            annotations.insert(CLUSTER_POLICY_NAME.into(), Value::Null);
        }
        Some(guarded_metadata_patch(object, labels, annotations))
    }

    /// The metadata patch that removes the claim; `None` if the object does not carry it.
    pub(crate) fn release_patch(&self, object: &Object) -> Option<Value> {
        let empty = |map: Map<String, Value>| map.into_iter().map(|(k, _)| (k, Value::Null));
        let carried = self
            .labels()
            .iter()
            .all(|(key, id)| object.meta().label(key) == id.as_str());
        carried.then(|| {
            guarded_metadata_patch(
                object,
                empty(self.labels()).collect(),
                empty(self.annotations()).collect(),
            )
        })
    }
}

fn guarded_metadata_patch(
    object: &Object,
    labels: Map<String, Value>,
    annotations: Map<String, Value>,
) -> Value {
    json!({"metadata": {
        "resourceVersion": object.revision().to_string(),
        "labels": labels, "annotations": annotations,
    }})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(labels: Value, annotations: Value) -> Object {
        let value = json!({"metadata": {"name": "a", "namespace": "n", "resourceVersion": "7",
            "labels": labels, "annotations": annotations}});
        Object::from_value(&value).unwrap()
    }

    fn claim(namespace: &str) -> PolicyClaim {
        PolicyClaim {
            namespace: namespace.into(),
            name: "p".into(),
            id: "1".into(),
        }
    }

    /// An object that the PropagationPolicy with this id has claimed.
    fn claimed_by_policy(id: &str) -> Object {
        object(
            json!({ POLICY_ID: id }),
            json!({POLICY_NAMESPACE: "n", POLICY_NAME: "p"}),
        )
    }

    /// An object that the cluster policy with this id has claimed.
    fn claimed_by_cluster_policy(id: &str) -> Object {
        object(
            json!({ CLUSTER_POLICY_ID: id }),
            json!({CLUSTER_POLICY_NAME: "c"}),
        )
    }

    // proves: DET-claim
    #[test]
    fn a_claim_needs_its_label_and_annotations() {
        let local = json!({POLICY_NAMESPACE: "n", POLICY_NAME: "p"});
        let cluster = json!({CLUSTER_POLICY_NAME: "p"});
        let check = |labels: Value, annotations: &Value, expected: Option<PolicyClaim>| {
            assert_eq!(
                PolicyClaim::on_object(&object(labels, annotations.clone())),
                expected
            );
        };
        check(json!({POLICY_ID: "1"}), &local, Some(claim("n")));
        check(json!({}), &local, None);
        check(json!({POLICY_ID: "1"}), &json!({POLICY_NAME: "p"}), None);
        check(json!({CLUSTER_POLICY_ID: "1"}), &cluster, Some(claim("")));
        check(json!({POLICY_ID: "1"}), &cluster, None);
    }

    // proves: DET-claim-once
    #[test]
    fn a_claim_is_made_once() {
        let fresh = object(json!({}), json!({}));
        let patch = claim("n").claim_patch(&fresh).unwrap();
        assert_eq!(
            patch,
            json!({"metadata": {"resourceVersion": "7", "labels": {POLICY_ID: "1"},
                "annotations": {POLICY_NAMESPACE: "n", POLICY_NAME: "p"}}})
        );
        assert_eq!(claim("n").claim_patch(&claimed_by_policy("1")), None);
        assert_eq!(claim("").claim_patch(&claimed_by_cluster_policy("1")), None);
    }

    // proves: DET-claim-replaces, DET-claim-cpp
    #[test]
    fn a_namespaced_claim_removes_the_cluster_policys_claim() {
        let patch = claim("n")
            .claim_patch(&claimed_by_cluster_policy("2"))
            .unwrap();
        assert_eq!(
            patch["metadata"]["labels"],
            json!({POLICY_ID: "1", CLUSTER_POLICY_ID: null})
        );
        assert_eq!(
            patch["metadata"]["annotations"],
            json!({POLICY_NAMESPACE: "n", POLICY_NAME: "p", CLUSTER_POLICY_NAME: null})
        );
        let both = object(
            json!({POLICY_ID: "1", CLUSTER_POLICY_ID: "2"}),
            json!({POLICY_NAMESPACE: "n", POLICY_NAME: "p"}),
        );
        let patch = claim("n").claim_patch(&both).unwrap();
        assert_eq!(patch["metadata"]["labels"][CLUSTER_POLICY_ID], Value::Null);

        let patch = claim("").claim_patch(&claimed_by_policy("1")).unwrap();
        assert_eq!(
            patch["metadata"]["labels"],
            json!({CLUSTER_POLICY_ID: "1"}),
            "that of the namespace stays"
        );
    }

    // proves: DET-release-owner
    #[test]
    fn a_claim_is_released_by_its_owner_only() {
        assert_eq!(
            claim("").release_patch(&claimed_by_cluster_policy("2")),
            None,
            "another one's"
        );
        assert_eq!(claim("n").release_patch(&claimed_by_policy("2")), None);
        let patch = claim("n").release_patch(&claimed_by_policy("1")).unwrap();
        assert_eq!(patch["metadata"]["labels"], json!({POLICY_ID: null}));
        assert_eq!(
            patch["metadata"]["annotations"],
            json!({POLICY_NAMESPACE: null, POLICY_NAME: null})
        );
        let patch = claim("")
            .release_patch(&claimed_by_cluster_policy("1"))
            .unwrap();
        assert_eq!(
            patch["metadata"]["annotations"],
            json!({CLUSTER_POLICY_NAME: null})
        );
    }
}
