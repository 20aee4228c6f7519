//! The subresource `decision` of bindings: the scheduler's explanation of a placement.
//!
//! On the leader it is the scheduler's last decision. Elsewhere the same function decides
//! again from the binding, the clusters and the other bindings of its affinity groups. The
//! document is not stored.

use std::sync::Arc;

use async_trait::async_trait;
use client::{Api, At, Error, ListOptions};
use flotilla_http::{Tell, Tellers};
use machinery::{Gvr, Object, Status};
use openapi::karmada::Binding;
use openapi::karmada::resources::{BINDINGS, CLUSTER_BINDINGS, CLUSTERS};
use scheduler::core::{Rules, Snapshot, World};
use scheduler::{Decisions, Explanation};
use serde::Serialize;
use serde_json::Value;

pub(crate) const DECISION: &str = "decision";

/// Serves the decisions of one kind of binding.
struct Told {
    api: Arc<dyn Api>,
    resource: &'static Gvr,
    decisions: Decisions,
    rules: Rules,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    kind: &'static str,
    api_version: String,
    metadata: Head<'a>,
    /// Whether the decision was computed for this request, and is not the one that was
    /// applied.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    recomputed: bool,
    #[serde(flatten)]
    explanation: &'a Explanation,
}

#[derive(Serialize)]
struct Head<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    uid: &'a str,
}

/// The subresource getters for both kinds of binding; `rules` are the scheduler's.
pub(crate) fn tellers(api: &Arc<dyn Api>, decisions: &Decisions, rules: Rules) -> Tellers {
    let of = |resource: &'static Gvr| {
        let key = (
            resource.group.to_string(),
            resource.resource.to_string(),
            DECISION.to_owned(),
        );
        let getter = Told {
            api: Arc::clone(api),
            resource,
            decisions: decisions.clone(),
            rules,
        };
        (key, Arc::new(getter) as _)
    };
    Tellers::from([of(&BINDINGS), of(&CLUSTER_BINDINGS)])
}

#[async_trait]
impl Tell for Told {
    async fn tell(&self, namespace: &str, name: &str) -> Result<Value, Status> {
        let object = self.api.get(At::one(self.resource, namespace, name)).await;
        let object = object.map_err(status)?;
        let held = self.decisions.get(&object.head().key());
        let recomputed = held.is_none();
        let explanation = match held {
            Some(held) => held,
            None => Arc::new(self.recompute(&object).await?),
        };
        let document = Document {
            kind: "Decision",
            api_version: self.resource.api_version(),
            metadata: Head {
                name: object.name(),
                namespace: object.namespace(),
                uid: object.uid(),
            },
            recomputed,
            explanation: &explanation,
        };
        serde_json::to_value(document).map_err(Status::internal)
    }
}

impl Told {
    async fn recompute(&self, object: &Object) -> Result<Explanation, Status> {
        let binding = object.view::<Binding>().map_err(Status::internal)?;
        let all = At::all(&CLUSTERS, "");
        let clusters = self.api.list(all, &ListOptions::default()).await;
        let snapshot = Snapshot::new(clusters.map_err(status)?.items).under(self.rules);
        let grouped = binding.spec.workload_affinity_groups.is_some();
        let others = if self.rules.looks_at_peers() && grouped {
            let collection = At::all(self.resource, object.namespace());
            let list = self.api.list(collection, &ListOptions::default()).await;
            list.map_err(status)?.items
        } else {
            Vec::new()
        };
        let peers = scheduler::peers(object, &binding, &others);
        let world = World {
            peers: &peers,
            ..World::of(&snapshot)
        };
        let explained = scheduler::explain(&binding, object.head().generation, &world);
        explained.ok_or_else(|| {
            let mut status = Status::not_found(self.resource, object.name());
            status.message = format!(
                "there is no scheduling decision for {} {:?}: it has no placement of its own and follows the bindings of its spec.requiredBy",
                self.resource.resource,
                object.name()
            );
            status
        })
    }
}

fn status(error: Error) -> Status {
    match error {
        Error::Status(status) => *status,
        other => Status::internal(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::fake::FakeApi;
    use openapi::karmada::{FeatureGates, Gate};
    use scheduler::core::Plugins;
    use serde_json::json;

    fn binding(name: &str, spec: Value) -> Value {
        json!({"metadata": {"name": name, "namespace": "n", "uid": "u", "generation": 2}, "spec": spec})
    }

    fn told(fake: &Arc<FakeApi>, rules: Rules) -> Arc<dyn Tell> {
        let api: Arc<dyn Api> = Arc::clone(fake) as _;
        let key = ("work.karmada.io", "resourcebindings", DECISION);
        let key = (key.0.to_owned(), key.1.to_owned(), key.2.to_owned());
        Arc::clone(&tellers(&api, &Decisions::default(), rules)[&key])
    }

    #[tokio::test]
    async fn a_decision_that_is_not_in_memory_is_recomputed() {
        let fake = FakeApi::new();
        let kinds =
            json!([{"groupVersion": "v1", "resources": [{"name": "secrets", "kind": "Secret"}]}]);
        for name in ["m1", "m2"] {
            fake.seed(
                &CLUSTERS,
                json!({"metadata": {"name": name}, "spec": {}, "status": {"apiEnablements": kinds}}),
            );
        }
        let resource = json!({"apiVersion": "v1", "kind": "Secret", "namespace": "n", "name": "s"});
        let together = json!({"affinityGroup": "app=x"});
        let spec = |more: Value| {
            let mut spec = json!({"resource": resource, "placement": {}});
            spec.as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            spec
        };
        let grouped = spec(json!({"workloadAffinityGroups": together}));
        let neighbor =
            spec(json!({"workloadAffinityGroups": together, "clusters": [{"name": "m2"}]}));
        fake.seed(&BINDINGS, binding("s", grouped));
        fake.seed(&BINDINGS, binding("near", neighbor));
        let gates = FeatureGates::default().with(Gate::WorkloadAffinity, true);
        let grouping = Rules::new(gates, Plugins::default(), false);
        for (rules, chosen) in [(Rules::default(), 2), (grouping, 1)] {
            let document = told(&fake, rules).tell("n", "s").await.unwrap();
            assert_eq!(document["recomputed"], true);
            assert_eq!(
                document["metadata"],
                json!({"name": "s", "namespace": "n", "uid": "u"})
            );
            assert_eq!(
                (&document["generation"], &document["chosenClusters"]),
                (&json!(2), &json!(chosen))
            );
        }
        assert!(fake.writes().is_empty());
    }

    #[tokio::test]
    async fn a_dependent_binding_has_no_decision() {
        let fake = FakeApi::new();
        fake.seed(
            &BINDINGS,
            binding("dependent", json!({"requiredBy": [{"name": "x"}]})),
        );
        let getter = told(&fake, Rules::default());
        for (name, part) in [
            ("dependent", "has no placement of its own"),
            ("none", "not found"),
        ] {
            let refused = getter.tell("n", name).await.unwrap_err();
            assert_eq!((refused.code, &*refused.reason), (404, "NotFound"));
            assert!(refused.message.contains(part), "{}", refused.message);
        }
    }
}
