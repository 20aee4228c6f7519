//! The subresource `decision` of bindings: the scheduler's explanation of a placement.
//!
//! On the leader it is the scheduler's last decision. Elsewhere the same function decides
//! again from the binding, the clusters and the other bindings of its affinity groups. The
//! document is not stored.

use std::sync::Arc;

use async_trait::async_trait;
use client::{Api, Error, ListOptions, ResourcePath};
use flotilla_http::{SubresourceGetter, SubresourceGetters};
use karmada_api::ResourceBinding;
use karmada_api::resources::{BINDINGS, CLUSTER_BINDINGS, CLUSTERS, DECISION_SUBRESOURCE};
use machinery::{Gvr, Object, Status};
use scheduler::core::{ClusterSnapshot, SchedulingContext, SchedulingSettings};
use scheduler::{DecisionExplanation, DecisionExplanationCache};
use serde::Serialize;
use serde_json::Value;

/// Serves the decisions of one kind of binding.
struct SchedulingDecisionGetter {
    api: Arc<dyn Api>,
    resource: &'static Gvr,
    decisions: DecisionExplanationCache,
    scheduling_settings: SchedulingSettings,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SchedulingDecisionDocument<'a> {
    kind: &'static str,
    api_version: String,
    metadata: SchedulingDecisionMetadata<'a>,
    /// Whether the decision was computed for this request, and is not the one that was
    /// applied.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    recomputed: bool,
    #[serde(flatten)]
    explanation: &'a DecisionExplanation,
}

#[derive(Serialize)]
struct SchedulingDecisionMetadata<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    uid: &'a str,
}

/// The subresource getters for both kinds of binding; `rules` are the scheduler's.
pub fn decision_getters(
    api: &Arc<dyn Api>,
    decisions: &DecisionExplanationCache,
    rules: SchedulingSettings,
) -> SubresourceGetters {
    let of = |resource: &'static Gvr| {
        let key = (
            resource.group.to_string(),
            resource.resource.to_string(),
            DECISION_SUBRESOURCE.to_owned(),
        );
        let getter = SchedulingDecisionGetter {
            api: Arc::clone(api),
            resource,
            decisions: decisions.clone(),
            scheduling_settings: rules,
        };
        (key, Arc::new(getter) as _)
    };
    SubresourceGetters::from([of(&BINDINGS), of(&CLUSTER_BINDINGS)])
}

#[async_trait]
impl SubresourceGetter for SchedulingDecisionGetter {
    async fn get_subresource(&self, namespace: &str, name: &str) -> Result<Value, Status> {
        let object = self
            .api
            .get(ResourcePath::object(self.resource, namespace, name))
            .await;
        let object = object.map_err(to_status)?;
        let cached = self.decisions.get(&object.meta().key());
        let recomputed = cached.is_none();
        let explanation = match cached {
            Some(cached) => cached,
            None => Arc::new(self.recompute(&object).await?),
        };
        let document = SchedulingDecisionDocument {
            kind: "Decision",
            api_version: self.resource.api_version(),
            metadata: SchedulingDecisionMetadata {
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

impl SchedulingDecisionGetter {
    async fn recompute(&self, object: &Object) -> Result<DecisionExplanation, Status> {
        let binding = object
            .decode::<ResourceBinding>()
            .map_err(Status::internal)?;
        let all = ResourcePath::collection(&CLUSTERS, "");
        let clusters = self.api.list(all, &ListOptions::default()).await;
        let snapshot = ClusterSnapshot::new(clusters.map_err(to_status)?.items)
            .with_settings(self.scheduling_settings);
        let grouped = binding.spec.workload_affinity_groups.is_some();
        let others = if self.scheduling_settings.uses_workload_affinity() && grouped {
            let collection = ResourcePath::collection(self.resource, object.namespace());
            let list = self.api.list(collection, &ListOptions::default()).await;
            list.map_err(to_status)?.items
        } else {
            Vec::new()
        };
        let peers = scheduler::affinity_peers(object, &binding, &others);
        let context = SchedulingContext {
            peers: &peers,
            ..SchedulingContext::from_snapshot(&snapshot)
        };
        let explained = scheduler::explain(&binding, object.meta().generation, &context);
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

fn to_status(error: Error) -> Status {
    match error {
        Error::Status(status) => *status,
        other => Status::internal(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use client_fake::FakeApi;
    use karmada_api::{FeatureGates, KarmadaFeature};
    use scheduler::core::SchedulerPluginSet;
    use serde_json::json;

    fn binding(name: &str, spec: Value) -> Value {
        json!({"metadata": {"name": name, "namespace": "n", "uid": "u", "generation": 2}, "spec": spec})
    }

    fn decision_getter(
        fake: &Arc<FakeApi>,
        rules: SchedulingSettings,
    ) -> Arc<dyn SubresourceGetter> {
        let api: Arc<dyn Api> = Arc::clone(fake) as _;
        let key = ("work.karmada.io", "resourcebindings", DECISION_SUBRESOURCE);
        let key = (key.0.to_owned(), key.1.to_owned(), key.2.to_owned());
        Arc::clone(&decision_getters(&api, &DecisionExplanationCache::default(), rules)[&key])
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
        let gates = FeatureGates::default().with_feature(KarmadaFeature::WorkloadAffinity, true);
        let grouping = SchedulingSettings::new(gates, SchedulerPluginSet::default(), false);
        for (rules, chosen) in [(SchedulingSettings::default(), 2), (grouping, 1)] {
            let document = decision_getter(&fake, rules)
                .get_subresource("n", "s")
                .await
                .unwrap();
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
        let getter = decision_getter(&fake, SchedulingSettings::default());
        for (name, part) in [
            ("dependent", "has no placement of its own"),
            ("none", "not found"),
        ] {
            let status = getter.get_subresource("n", name).await.unwrap_err();
            assert_eq!((status.code, &*status.reason), (404, "NotFound"));
            assert!(status.message.contains(part), "{}", status.message);
        }
    }
}
