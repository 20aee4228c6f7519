//! The tree of a template over the fleet view, drawn as tools of trees do it: they list every kind that
//! is discovered, and follow the uids of owners (`kubectl tree`).

use std::cell::RefCell;
use std::collections::BTreeMap;

use futures_util::future::join_all;
use harness::http_client::{HttpTestClient, HttpTestRequest};
use http::Method;
use serde_json::Value;

use crate::flow::fleet::{FleetFixture, wait_for_namespace, wait_until};
use crate::flow::objects::{DEPLOYMENTS, deployment, policy};
use crate::flow::search::{ORIGIN, administrator};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const DEPLOYMENTS_PATH: &str = "/fleet/apis/apps/v1/namespaces";

/// A resource of the discovery.
#[derive(Clone)]
pub(crate) struct DiscoveredResource {
    /// Of all its objects.
    pub(crate) path: String,
    pub(crate) group: String,
    pub(crate) kind: String,
    pub(crate) is_of_kubernetes: bool,
    verbs: Vec<String>,
}

impl DiscoveredResource {
    pub(crate) fn allows(&self, verb: &str) -> bool {
        self.verbs.iter().any(|allowed| allowed == verb)
    }
}

/// The objects of a fleet by the uid of an owner.
#[derive(Default)]
struct OwnedObjects(BTreeMap<String, Vec<Value>>);

impl OwnedObjects {
    fn add(&mut self, object: &Value) {
        let owners = object["metadata"]["ownerReferences"].as_array();
        for owner in owners.into_iter().flatten() {
            let uid = owner["uid"].as_str().unwrap().to_owned();
            self.0.entry(uid).or_default().push(object.clone());
        }
    }

    /// Appends a line for an object and, indented, for what it owns.
    fn draw(&self, object: &Value, indent: &str, lines: &mut Vec<String>) {
        let metadata = &object["metadata"];
        let cluster = metadata["annotations"][ORIGIN].as_str().unwrap_or("-");
        let kind = object["kind"].as_str().unwrap();
        lines.push(format!("{indent}{kind} {cluster}"));
        let owned = self.0.get(metadata["uid"].as_str().unwrap());
        for object in owned.into_iter().flatten() {
            self.draw(object, &format!("{indent}  "), lines);
        }
    }
}

/// The resources below a path in the preferred versions of their groups.
pub(crate) async fn discover(client: &HttpTestClient, base: &str) -> Vec<DiscoveredResource> {
    let mut resources = Vec::new();
    for root in [format!("{base}/api"), format!("{base}/apis")] {
        let accept = format!("{AGGREGATED},application/json");
        let request = HttpTestRequest::new(Method::GET, &root).header("accept", &accept);
        let document = client.call(request).await.json();
        if document["kind"] != "APIGroupDiscoveryList" {
            discover_each(client, &root, &document, &mut resources).await;
            continue;
        }
        for group in document["items"].as_array().unwrap() {
            let name = group["metadata"]["name"].as_str().unwrap();
            let version = &group["versions"][0];
            let version_name = version["version"].as_str().unwrap();
            let prefix = match name {
                "" => format!("{root}/{version_name}"),
                name => format!("{root}/{name}/{version_name}"),
            };
            for resource in version["resources"].as_array().unwrap() {
                let verbs = resource["verbs"].as_array().unwrap().iter();
                resources.push(DiscoveredResource {
                    path: format!("{prefix}/{}", resource["resource"].as_str().unwrap()),
                    group: name.to_owned(),
                    kind: resource["responseKind"]["kind"]
                        .as_str()
                        .unwrap()
                        .to_owned(),
                    is_of_kubernetes: !name.contains('.') || name.ends_with(".k8s.io"),
                    verbs: verbs
                        .map(|verb| verb.as_str().unwrap().to_owned())
                        .collect(),
                });
            }
        }
    }
    resources
}

/// The same of an API server without aggregated documents: one document of each group.
async fn discover_each(
    client: &HttpTestClient,
    root: &str,
    document: &Value,
    resources: &mut Vec<DiscoveredResource>,
) {
    let groups = document["groups"].as_array().into_iter().flatten();
    let groups = groups.map(|group| {
        let version = group["preferredVersion"]["groupVersion"].as_str().unwrap();
        (group["name"].as_str().unwrap(), version)
    });
    let core = document["versions"].as_array().into_iter().flatten();
    let core = core.map(|version| ("", version.as_str().unwrap()));
    for (group, version) in groups.chain(core) {
        let prefix = format!("{root}/{version}");
        let document = client.get(&prefix).await.json();
        let described = document["resources"].as_array().unwrap().iter();
        let name = |resource: &Value| resource["name"].as_str().unwrap().to_owned();
        for resource in described.filter(|resource| !name(resource).contains('/')) {
            let verbs = resource["verbs"].as_array().unwrap().iter();
            resources.push(DiscoveredResource {
                path: format!("{prefix}/{}", name(resource)),
                group: group.to_owned(),
                kind: resource["kind"].as_str().unwrap().to_owned(),
                is_of_kubernetes: !group.contains('.') || group.ends_with(".k8s.io"),
                verbs: verbs
                    .map(|verb| verb.as_str().unwrap().to_owned())
                    .collect(),
            });
        }
    }
}

/// The objects of a list in pages; their kind is that of the list.
pub(crate) async fn list(
    client: &HttpTestClient,
    path: &str,
) -> Result<(Vec<Value>, String), String> {
    let mut objects = Vec::new();
    let mut token = String::new();
    loop {
        let page = client.get(&format!("{path}?limit=250{token}")).await;
        let document = page.json();
        if page.code != 200 {
            return Err(format!("{path}: {document}"));
        }
        // Others are those of an old version of a kind.
        let mut warnings = page.headers.get_all("warning").iter();
        if let Some(warning) = warnings.find(|w| w.to_str().unwrap().contains("cluster(")) {
            return Err(format!("{path}: {warning:?}"));
        }
        objects.extend(document["items"].as_array().unwrap().iter().cloned());
        let metadata = &document["metadata"];
        match metadata["continue"].as_str() {
            Some(next) if !next.is_empty() => token = format!("&continue={next}"),
            _ => {
                let version = metadata["resourceVersion"].as_str().unwrap_or_default();
                return Ok((objects, version.to_owned()));
            }
        }
    }
}

/// Lists what can be listed of all members; a kind of somebody else may come and go meanwhile.
async fn list_all(client: &HttpTestClient, resource: &DiscoveredResource) -> Vec<Value> {
    let path = &resource.path;
    let listed = RefCell::default();
    wait_until(&format!("a list of all members: {path}"), async || {
        let (objects, version) = match list(client, path).await {
            Ok(result) => result,
            Err(_) => return !resource.is_of_kubernetes,
        };
        listed.replace(objects);
        if !resource.allows("watch") {
            return true;
        }
        let watch = format!("{path}?watch=1&resourceVersion={version}");
        let response = client.send(HttpTestRequest::new(Method::GET, &watch)).await;
        response.status() == 200 || !resource.is_of_kubernetes
    })
    .await;
    listed.into_inner()
}

// proves: FLV-tree
#[tokio::test]
async fn a_template_owns_a_tree_that_ends_in_the_pods_of_each_member() {
    let ns = "fleet-tree";
    let fleet = FleetFixture::shared(ns).await;
    wait_for_namespace(&fleet, ns).await;
    let client = administrator(&fleet);
    let control = &fleet.control;
    let template = deployment(ns, "web", 1);
    let clusters = ["member1", "member2"];
    control
        .create(policy(ns, "web", &template, &clusters))
        .await;
    control.create(template).await;
    let pods = format!("/fleet/api/v1/namespaces/{ns}/pods");
    wait_until("the pods", async || {
        let list = client.get(&pods).await.json();
        list["items"].as_array().is_some_and(|pods| pods.len() == 2)
    })
    .await;

    let resources = discover(&client, "/fleet").await;
    let listable = resources.iter().filter(|resource| resource.allows("list"));
    let lists = join_all(listable.map(|resource| list_all(&client, resource))).await;
    assert!(lists.len() > 30, "{}", lists.len());
    let mut owned = OwnedObjects::default();
    for object in lists.iter().flatten() {
        owned.add(object);
    }
    let draw = |root: &Value| {
        let mut lines = Vec::new();
        owned.draw(root, "", &mut lines);
        lines
    };
    let of_member = |member: &str| {
        ["Deployment", "  ReplicaSet", "    Pod"].map(|kind| format!("{kind} {member}"))
    };
    // The fleet view has copies; their owner is in the control plane.
    let template = control.get(&DEPLOYMENTS, ns, "web").await.unwrap();
    let copies = clusters.iter().flat_map(|member| of_member(member));
    let mut expected = vec!["Deployment -".to_owned()];
    expected.extend(copies.map(|line| format!("  {line}")));
    assert_eq!(draw(&template), expected);
    // With one name for several copies, a tool is asked for the cluster of the one to begin with.
    for member in clusters {
        let path = format!("{DEPLOYMENTS_PATH}/{ns}/deployments/web@{member}");
        let copy = client.get(&path).await.json();
        assert_eq!(draw(&copy), of_member(member));
    }
}
