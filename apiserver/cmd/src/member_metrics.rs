//! Serves `metrics.k8s.io` in a control plane: the metrics of nodes and pods of all member
//! clusters, each with an annotation that names its cluster (Karmada's `pkg/metricsadapter`).
//!
//! A member that does not answer, or has no metrics, is missing in a list, and a warning of the
//! response says so. An object is only returned if no other member has one of its name.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use flotilla_http::{MemberRead, MemberReader, MemberReply};
use machinery::{Gvr, Object, Status};
use members::ClusterProxyBackends;
use openapi::karmada::well_known_keys::QUERY_FROM_CLUSTER;
use registry::{
    ComputedListRequest, ComputedObjects, ComputedResourceProvider, ComputedResourceProviders,
    RegistryReader,
};
use serde::Deserialize;
use serde_json::Value;

/// How long a member may take to answer.
const MEMBER_DEADLINE: Duration = Duration::from_secs(5);
/// How many missing members a response names: clients bound the number of headers.
const MAX_NAMED_MEMBERS: usize = 10;
const GROUP: &str = "metrics.k8s.io";
const VERSION: &str = "v1beta1";

/// One of the kinds of metrics.
struct MetricsKind {
    kind: &'static str,
    resource: &'static str,
    /// What is measured.
    measured: Gvr,
    /// The kind of the measured object as Karmada's error names it.
    noun: &'static str,
}

const KINDS: [MetricsKind; 2] = [
    MetricsKind {
        kind: "PodMetrics",
        resource: "pods",
        measured: Gvr::from_static("", "v1", "pods"),
        noun: "pod",
    },
    MetricsKind {
        kind: "NodeMetrics",
        resource: "nodes",
        measured: Gvr::from_static("", "v1", "nodes"),
        noun: "node",
    },
];

/// The providers of a control plane, which answer once they have backends.
#[derive(Default)]
pub(crate) struct MemberMetrics {
    reader: Arc<OnceLock<MemberReader>>,
}

impl MemberMetrics {
    pub(crate) fn providers(&self) -> ComputedResourceProviders {
        let provider = |kind: MetricsKind| {
            let resource = Gvr::new(GROUP, VERSION, kind.resource);
            let provider = MemberMetricsProvider {
                reader: Arc::clone(&self.reader),
                kind,
            };
            (
                resource,
                Arc::new(provider) as Arc<dyn ComputedResourceProvider>,
            )
        };
        HashMap::from(KINDS.map(provider))
    }

    /// Sets how members are reached. Later calls have no effect.
    pub(crate) fn set_backends(&self, backends: ClusterProxyBackends) {
        // Later ones would lead to the same members.
        let _ = self
            .reader
            .set(MemberReader::new(backends, MEMBER_DEADLINE));
    }
}

struct MemberMetricsProvider {
    reader: Arc<OnceLock<MemberReader>>,
    kind: MetricsKind,
}

#[derive(Deserialize)]
struct ItemList {
    items: Option<Vec<Value>>,
}

#[async_trait]
impl ComputedResourceProvider for MemberMetricsProvider {
    async fn list(
        &self,
        _: &dyn RegistryReader,
        request: &ComputedListRequest<'_>,
    ) -> Result<ComputedObjects, Status> {
        let reader = self.reader.get();
        let reader = reader.ok_or_else(|| Status::unavailable("the server is starting"))?;
        let mut segments = vec!["apis", GROUP, VERSION];
        if !request.namespace.is_empty() {
            segments.extend(["namespaces", request.namespace]);
        }
        segments.push(self.kind.resource);
        if !request.name.is_empty() {
            segments.push(request.name);
        }
        let read = MemberRead {
            segments: &segments,
            query: &[("labelSelector", request.label_selector)],
        };
        let user = &request.context.user;
        let replies = reader.read_from_all(user, &read).await?;
        self.merge(replies, request.name)
    }
}

impl MemberMetricsProvider {
    /// Merges the objects of all members; `name` is empty for a list.
    fn merge(&self, replies: Vec<MemberReply>, name: &str) -> Result<ComputedObjects, Status> {
        let asked = replies.len();
        let mut found: Vec<(Object, String)> = Vec::new();
        let mut warnings = Vec::new();
        for MemberReply { cluster, outcome } in replies {
            match outcome {
                Ok(body) => match self.objects(&body, &cluster, name) {
                    Ok(objects) => {
                        found.extend(objects.into_iter().map(|o| (o, cluster.clone())));
                    }
                    Err(why) => warnings.push(format!("cluster({cluster}): {why}")),
                },
                Err(status) if !name.is_empty() && is_absent(&status) => {}
                Err(status) => {
                    let why = match status.code {
                        404 => "metrics API not available",
                        _ => &status.message,
                    };
                    warnings.push(format!("cluster({cluster}): {why}"));
                }
            }
        }
        let missing = warnings.len();
        if missing > MAX_NAMED_MEMBERS {
            warnings.truncate(MAX_NAMED_MEMBERS);
            let more = missing - MAX_NAMED_MEMBERS;
            warnings.push(format!("{more} more clusters have given no metrics"));
        }
        if !name.is_empty() {
            self.check_single(&found, &warnings, name)?;
        } else if asked > 0 && missing == asked {
            return Err(Status::unavailable(warnings.join("; ")));
        }
        found.sort_by(|(a, a_cluster), (b, b_cluster)| {
            let key = |object: &Object| (object.namespace().to_owned(), object.name().to_owned());
            (key(a), a_cluster).cmp(&(key(b), b_cluster))
        });
        Ok(ComputedObjects {
            objects: found.into_iter().map(|(object, _)| object).collect(),
            warnings,
        })
    }

    /// An object must be in one member; its absence is known only if all have answered.
    fn check_single(
        &self,
        found: &[(Object, String)],
        warnings: &[String],
        name: &str,
    ) -> Result<(), Status> {
        let MetricsKind { measured, noun, .. } = &self.kind;
        match (found.len(), warnings) {
            (0, []) => Err(Status::not_found(measured, name)),
            (0, _) => Err(Status::unavailable(warnings.join("; "))),
            (1, _) => Ok(()),
            _ => {
                let why = format!("the {noun}({name}) found in more than one clusters");
                Err(Status::conflict(measured, name, why))
            }
        }
    }

    /// The objects of an answer, with the annotation that names the cluster.
    fn objects(&self, body: &[u8], cluster: &str, name: &str) -> Result<Vec<Object>, String> {
        let values = match name {
            "" => {
                let list: ItemList = serde_json::from_slice(body).map_err(|e| e.to_string())?;
                list.items.unwrap_or_default()
            }
            _ => vec![serde_json::from_slice(body).map_err(|e| e.to_string())?],
        };
        let object = |mut value: Value| {
            if !value["metadata"].is_object() {
                return Err("an object without metadata".to_owned());
            }
            value["apiVersion"] = format!("{GROUP}/{VERSION}").into();
            value["kind"] = self.kind.kind.into();
            if !value["metadata"]["annotations"].is_object() {
                value["metadata"]["annotations"] = Value::Object(Default::default());
            }
            value["metadata"]["annotations"][QUERY_FROM_CLUSTER] = cluster.into();
            Object::from_value(&value).map_err(|e| e.to_string())
        };
        values.into_iter().map(object).collect()
    }
}

/// Whether a member has said that it has no such object, and not that it has no metrics.
fn is_absent(status: &Status) -> bool {
    let named = status.details.as_ref();
    status.code == 404 && named.is_some_and(|details| !details.name.is_empty())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::json;

    use super::*;

    fn provider() -> MemberMetricsProvider {
        let [kind, _] = KINDS;
        MemberMetricsProvider {
            reader: Arc::default(),
            kind,
        }
    }

    fn reply(cluster: &str, outcome: Result<Value, Status>) -> MemberReply {
        MemberReply {
            cluster: cluster.to_owned(),
            outcome: outcome.map(|value| Bytes::from(value.to_string())),
        }
    }

    fn pod(name: &str) -> Value {
        json!({"metadata": {"name": name, "namespace": "default"}, "containers": []})
    }

    fn no_metrics() -> Status {
        Status::failure(404, "NotFound", "404 page not found")
    }

    #[test]
    fn lists_are_merged_and_what_is_missing_is_said() {
        let list =
            |names: &[&str]| Ok(json!({"items": names.iter().map(|n| pod(n)).collect::<Vec<_>>()}));
        let merged = provider().merge(
            vec![
                reply("m1", list(&["b", "a"])),
                reply("m2", Err(no_metrics())),
                reply("m3", list(&["a"])),
                reply("m4", Err(Status::unavailable("no answer within 5 s"))),
                reply("m5", Ok(json!({"items": null}))),
                reply("m6", Ok(json!({"items": [{}]}))),
            ],
            "",
        );
        let merged = merged.unwrap();
        let names = merged.objects.iter().map(|object| {
            let value = object.value().unwrap();
            assert_eq!(value["kind"], "PodMetrics");
            let cluster = &value["metadata"]["annotations"][QUERY_FROM_CLUSTER];
            format!("{} {}", object.name(), cluster.as_str().unwrap())
        });
        assert_eq!(names.collect::<Vec<_>>(), ["a m1", "a m3", "b m1"]);
        assert_eq!(
            merged.warnings,
            [
                "cluster(m2): metrics API not available",
                "cluster(m4): no answer within 5 s",
                "cluster(m6): an object without metadata",
            ]
        );
        let mut many: Vec<MemberReply> = (0..200)
            .map(|n| reply(&format!("m{n}"), Err(no_metrics())))
            .collect();
        many.push(reply("has", list(&["a"])));
        let warnings = provider().merge(many, "").unwrap().warnings;
        assert_eq!(warnings.len(), MAX_NAMED_MEMBERS + 1);
        assert_eq!(warnings[10], "190 more clusters have given no metrics");
        assert!(provider().merge(vec![], "").unwrap().objects.is_empty());
        let all_failed = provider().merge(vec![reply("m2", Err(no_metrics()))], "");
        let status = all_failed.err().unwrap();
        assert_eq!(
            (status.code, &*status.message),
            (503, "cluster(m2): metrics API not available")
        );
    }

    #[test]
    fn an_object_must_be_in_one_member() {
        let absent = || {
            let gvr = Gvr::from_static("", "v1", "pods");
            reply("m2", Err(Status::not_found(&gvr, "a")))
        };
        let has = |cluster: &str| reply(cluster, Ok(pod("a")));
        let get = |replies| {
            provider()
                .merge(replies, "a")
                .map(|found| found.objects.len())
        };
        assert_eq!(get(vec![has("m1"), absent()]).unwrap(), 1);
        let failed = || reply("m3", Err(no_metrics()));
        assert_eq!(get(vec![has("m1"), failed()]).unwrap(), 1);
        for (replies, code, message) in [
            (vec![absent()], 404, "pods \"a\" not found"),
            (
                vec![absent(), failed()],
                503,
                "cluster(m3): metrics API not available",
            ),
            (
                vec![has("m1"), has("m2")],
                409,
                "Operation cannot be fulfilled on pods \"a\": the pod(a) found in more than one clusters",
            ),
        ] {
            let status = get(replies).unwrap_err();
            assert_eq!((status.code, &*status.message), (code, message));
        }
    }
}
