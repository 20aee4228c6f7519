//! The fleet tree as clients see it that keep all objects of a cluster by group, kind, namespace and name,
//! as Argo CD's gitops-engine does: it lists every kind that can be listed and watched, follows it from the
//! version of the list, and finds the children of an object by the uids of owners. What it manages bears its
//! tracking annotation and has no owner.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Buf, BytesMut};
use futures_util::future::join_all;
use harness::http_client::{HttpTestClient, HttpTestRequest, full_body};
use http::Method;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::flow::fleet::{FleetFixture, wait_for_namespace, wait_until};
use crate::flow::fleet_tree::{DiscoveredResource, discover, list};
use crate::flow::objects::{deployment, policy};
use crate::flow::search::administrator;

const TRACKING: &str = "argocd.argoproj.io/tracking-id";

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ResourceKey {
    group: String,
    kind: String,
    namespace: String,
    name: String,
}

/// The objects of one server, and how often each kind was listed.
#[derive(Default)]
struct CachedObjects {
    objects: BTreeMap<ResourceKey, Value>,
    lists: BTreeMap<String, usize>,
}

/// Keeps the objects of a server in sync until it is dropped.
struct ClusterCache {
    cached: Arc<Mutex<CachedObjects>>,
    _watches: JoinSet<()>,
}

impl ClusterCache {
    /// Returns once all kinds are listed.
    async fn start(client: HttpTestClient, base: &str) -> Self {
        let client = Arc::new(client);
        let resources = discover(&client, base).await.into_iter();
        let resources = resources.filter(|r| r.allows("list") && r.allows("watch"));
        // Real API servers watch them, simulated members do not, and would be named as missing.
        let resources = resources.filter(|r| r.group != "apiregistration.k8s.io");
        let cached = Arc::<Mutex<CachedObjects>>::default();
        let synced = resources.map(|resource| {
            let kept = KeptResource {
                client: Arc::clone(&client),
                resource,
                cached: Arc::clone(&cached),
            };
            async move {
                let version = kept.sync().await;
                (kept, version)
            }
        });
        let mut watches = JoinSet::new();
        for (kept, version) in join_all(synced).await {
            if let Some(version) = version {
                watches.spawn(kept.follow(version));
            }
        }
        assert!(watches.len() > 30, "{}", watches.len());
        Self {
            cached,
            _watches: watches,
        }
    }

    /// How often a kind was listed.
    fn lists(&self, kind: &str) -> usize {
        self.cached.lock().lists.get(kind).copied().unwrap_or(0)
    }

    /// A line for each managed object of a namespace and, indented, for those that it owns.
    fn tree(&self, namespace: &str) -> Vec<String> {
        let cached = self.cached.lock();
        let objects = cached.objects.iter();
        let objects: Vec<_> = objects
            .filter(|(key, _)| key.namespace == namespace)
            .collect();
        let mut lines = Vec::new();
        for (key, object) in &objects {
            let metadata = &object["metadata"];
            let has_owner = metadata["ownerReferences"]
                .as_array()
                .is_some_and(|o| !o.is_empty());
            if metadata["annotations"][TRACKING].is_string() && !has_owner {
                draw(&objects, (key, object), "", &mut lines);
            }
        }
        lines
    }
}

/// Appends the lines of an object. Names that controllers make are without their hash.
fn draw(
    all: &[(&ResourceKey, &Value)],
    (key, object): (&ResourceKey, &Value),
    indent: &str,
    lines: &mut Vec<String>,
) {
    let (name, cluster) = match key.name.split_once('@') {
        Some((name, cluster)) => (name, format!("@{cluster}")),
        None => (&*key.name, String::new()),
    };
    let name = match &*key.kind {
        "ReplicaSet" | "Pod" => "web-*",
        _ => name,
    };
    lines.push(format!("{indent}{} {name}{cluster}", key.kind));
    let uid = &object["metadata"]["uid"];
    for child in all {
        let owners = child.1["metadata"]["ownerReferences"].as_array();
        let mut owners = owners.into_iter().flatten();
        let is_child = owners.any(|owner| {
            let is_named = owner["kind"] == *key.kind && owner["name"] == *key.name;
            owner["uid"] == *uid && is_named
        });
        if is_child {
            draw(all, *child, &format!("{indent}  "), lines);
        }
    }
}

/// One kind that is kept in sync.
struct KeptResource {
    client: Arc<HttpTestClient>,
    resource: DiscoveredResource,
    cached: Arc<Mutex<CachedObjects>>,
}

impl KeptResource {
    fn key(&self, object: &Value) -> ResourceKey {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or("").to_owned();
        ResourceKey {
            group: self.resource.group.clone(),
            kind: self.resource.kind.clone(),
            namespace: text("namespace"),
            name: text("name"),
        }
    }

    /// Lists all objects once they can be listed; returns the version, or nothing for a kind of another
    /// test that came and went.
    async fn sync(&self) -> Option<String> {
        let version = Mutex::default();
        wait_until(&self.resource.path, async || match self.list().await {
            Ok(listed) => {
                *version.lock() = Some(listed);
                true
            }
            Err(_) => !self.resource.is_of_kubernetes,
        })
        .await;
        version.into_inner()
    }

    /// Lists all objects, and returns the version.
    async fn list(&self) -> Result<String, String> {
        let (objects, version) = list(&self.client, &self.resource.path).await?;
        let mut cached = self.cached.lock();
        *cached.lists.entry(self.resource.kind.clone()).or_default() += 1;
        let (group, kind) = (&self.resource.group, &self.resource.kind);
        cached
            .objects
            .retain(|key, _| (&key.group, &key.kind) != (group, kind));
        for object in objects {
            let key = self.key(&object);
            let former = cached.objects.insert(key.clone(), object);
            // Nothing may overwrite another object.
            assert!(
                former.is_none(),
                "{} {}/{}",
                key.kind,
                key.namespace,
                key.name
            );
        }
        Ok(version)
    }

    /// Watches from a version, and lists again only if that is too old.
    async fn follow(self, mut version: String) {
        loop {
            let path = format!(
                "{}?watch=1&allowWatchBookmarks=true&resourceVersion={version}",
                self.resource.path
            );
            let response = self.client.send(HttpTestRequest::new(Method::GET, &path));
            let response = response.await;
            let is_expired = match response.status().as_u16() {
                200 => self.apply_events(response.into_body(), &mut version).await,
                _ => true,
            };
            if !is_expired {
                continue;
            }
            match self.list().await {
                Ok(listed) => version = listed,
                Err(_) => return,
            }
        }
    }

    /// Applies the events of a watch until it ends. Returns whether its version is too old.
    async fn apply_events(&self, mut body: Incoming, version: &mut String) -> bool {
        let mut buffer = BytesMut::new();
        while let Some(Ok(frame)) = body.frame().await {
            buffer.extend_from_slice(frame.data_ref().unwrap());
            while let Some(end) = buffer.iter().position(|b| *b == b'\n') {
                let line = buffer.split_to(end);
                buffer.advance(1);
                let event: Value = machinery::json::from_slice(&line).unwrap();
                if event["type"] == "ERROR" {
                    return true;
                }
                let object = &event["object"];
                let text = object["metadata"]["resourceVersion"].as_str().unwrap();
                text.clone_into(version);
                let mut cached = self.cached.lock();
                match event["type"].as_str().unwrap() {
                    "BOOKMARK" => None,
                    "DELETED" => cached.objects.remove(&self.key(object)),
                    _ => cached.objects.insert(self.key(object), object.clone()),
                };
            }
        }
        false
    }
}

/// The tree of a Deployment `web` with copies in clusters, each of which has so many pods.
fn expected_tree(clusters: &[&str], pods: usize) -> Vec<String> {
    let mut lines = vec!["Deployment web".to_owned()];
    for cluster in clusters {
        lines.push(format!("  Deployment web@{cluster}"));
        lines.push(format!("    ReplicaSet web-*@{cluster}"));
        let pod = format!("      Pod web-*@{cluster}");
        lines.extend(std::iter::repeat_n(pod, pods));
    }
    lines.push("  ResourceBinding web-deployment".to_owned());
    lines.push("PropagationPolicy web".to_owned());
    lines
}

/// A Deployment `web` and its policy as Argo CD applies them: by names, with its annotation.
async fn apply_tracked_objects(client: &HttpTestClient, base: &str, ns: &str, clusters: &[&str]) {
    let mut template = deployment(ns, "web", 1);
    let mut policy = policy(ns, "web", &template, clusters);
    for (object, group, resource) in [
        (
            &mut policy,
            "policy.karmada.io/v1alpha1",
            "propagationpolicies",
        ),
        (&mut template, "apps/v1", "deployments"),
    ] {
        object["metadata"]["annotations"] = json!({TRACKING: format!("app:{group}:{ns}/web")});
        let path = format!("{base}/apis/{group}/namespaces/{ns}/{resource}");
        let created = client.post(&path, object).await;
        assert_eq!(created.code, 201, "{}", created.json());
    }
}

/// Applies, scales and deletes a template below the path of the tree, and expects its tree each time.
/// The namespace may be on its way to the members.
pub(crate) async fn follow_a_template(connect: impl Fn() -> HttpTestClient, base: &str, ns: &str) {
    let client = connect();
    let clusters = ["member1", "member2"];
    apply_tracked_objects(&client, base, ns, &clusters).await;
    let pods = format!("{base}/api/v1/namespaces/{ns}/pods");
    wait_until("the pods", async || {
        let list = client.get(&pods).await.json();
        list["items"].as_array().is_some_and(|pods| pods.len() == 2)
    })
    .await;
    let cache = ClusterCache::start(connect(), base).await;
    assert_eq!(cache.tree(ns), expected_tree(&clusters, 1));

    let template = format!("{base}/apis/apps/v1/namespaces/{ns}/deployments/web");
    let replicas = json!({"spec": {"replicas": 2}});
    let scale = HttpTestRequest::new(Method::PATCH, &template)
        .header("content-type", "application/merge-patch+json")
        .body(full_body(replicas.to_string()));
    assert_eq!(client.call(scale).await.code, 200);
    // With the first change the template has a history.
    let mut scaled = expected_tree(&clusters, 2);
    let history = "  TemplateHistory web-deployment";
    scaled.insert(scaled.len() - 2, history.to_owned());
    wait_until("the pods that were added", async || {
        cache.tree(ns) == scaled
    })
    .await;

    let delete = HttpTestRequest::new(Method::DELETE, &template).json(&json!({}));
    assert_eq!(client.call(delete).await.code, 200);
    let kinds = ["Deployment", "ReplicaSet", "Pod", "ResourceBinding"];
    wait_until("the end of the tree", async || {
        let cached = cache.cached.lock();
        let mut keys = cached.objects.keys();
        !keys.any(|key| key.namespace == ns && kinds.contains(&&*key.kind))
    })
    .await;
    assert_eq!(cache.tree(ns), ["PropagationPolicy web"]);
    // All of that came by the watches.
    for kind in kinds {
        assert_eq!(cache.lists(kind), 1, "{kind}");
    }
}

// proves: FLT-tree, FLT-watch
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_keeps_objects_by_their_names_has_the_tree_of_a_template() {
    let ns = "fleet-tree-watches";
    let fleet = FleetFixture::shared(ns).await;
    wait_for_namespace(&fleet, ns).await;
    follow_a_template(|| administrator(&fleet), "/fleet-tree", ns).await;
}
