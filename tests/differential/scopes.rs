//! Every path of every resource that both serve, in and outside of a namespace: a kube-apiserver
//! decides for each method whether it has a route. It is of release 1.20, the newest that the tests
//! can build; the scopes of resources have not changed since.

use std::collections::BTreeMap;

use harness::cluster::KubernetesClusterOptions;
use harness::daemon::TestDir;
use harness::{EtcdCluster, HttpTestClient, KubernetesCluster, ServerProcess, etcd};
use serde_json::Value;

use crate::differential::request::PreparedRequest;
use crate::differential::servers::{ServerConnection, ServerReply};

const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];
/// A namespace that does not exist, and the name of an object that does not exist.
const NAME: &str = "absent";

/// The differences for other reasons: a method and a resource, which are not compared.
const NOT_COMPARED: [(&str, &str); 5] = [
    // Release 1.20 has no such route, newer ones have.
    ("DELETE", "services"),
    // They are computed, and cannot be written.
    ("POST", "apiservices"),
    ("PUT", "apiservices"),
    ("PATCH", "apiservices"),
    ("DELETE", "apiservices"),
];

/// A kube-apiserver and Flotilla, which serves alone.
struct RouteServers {
    reference: ServerConnection,
    flotilla: ServerConnection,
    // Dropped in this order.
    _cluster: KubernetesCluster,
    _etcd: EtcdCluster,
    _process: ServerProcess,
    _dir: TestDir,
}

impl RouteServers {
    async fn start() -> Option<Self> {
        let started = tokio::task::block_in_place(|| {
            let etcd = EtcdCluster::start(etcd::VERSION_3_5, 1)?;
            let options = KubernetesClusterOptions {
                name: "scopes",
                controllers: "",
                flags: &[],
            };
            Some((KubernetesCluster::start(&options, &etcd)?, etcd))
        });
        let (cluster, etcd) = started?;
        let dir = TestDir::new();
        let data = dir.path().join("flotilla");
        let directory = data.display().to_string();
        let arguments = ["serve", "--listen", "127.0.0.1:0", "--data-dir", &directory];
        let binary = env!("CARGO_BIN_EXE_flotilla");
        let (process, address) = ServerProcess::start(binary, &arguments, &dir.path().join("log"));
        let admin = cluster.client_certificate("admin", &["system:masters"]);
        let identity = (admin.certificate_pem.as_bytes(), admin.key_pem.as_bytes());
        let server = cluster.server.trim_start_matches("https://");
        let ca = cluster.ca_pem().as_bytes();
        let reference = HttpTestClient::new(server, "127.0.0.1", ca, Some(identity));
        let read = |name: &str| std::fs::read(data.join("pki").join(name)).unwrap();
        let identity = (&*read("admin.crt"), &*read("admin.key"));
        let ca = read("ca.crt");
        let flotilla = HttpTestClient::new(&address, "127.0.0.1", &ca, Some(identity));
        Some(Self {
            reference: ServerConnection::open("Kubernetes", &reference).await,
            flotilla: ServerConnection::open("Flotilla", &flotilla).await,
            _cluster: cluster,
            _etcd: etcd,
            _process: process,
            _dir: dir,
        })
    }

    /// The classes of both replies.
    async fn classes(&self, method: &'static str, path: &str) -> [RouteClass; 2] {
        let headers = match method {
            "PATCH" => vec![("content-type", "application/merge-patch+json".to_owned())],
            _ => vec![("content-type", "application/json".to_owned())],
        };
        let request = || PreparedRequest {
            method,
            path: path.to_owned(),
            headers: headers.clone(),
            body: "{}".to_owned(),
        };
        [
            RouteClass::of(&self.reference.send(request()).await),
            RouteClass::of(&self.flotilla.send(request()).await),
        ]
    }
}

/// Whether a request has a route.
#[derive(Debug, PartialEq, Eq)]
enum RouteClass {
    /// No path.
    Absent,
    /// The path has other methods.
    MethodNotAllowed,
    /// Something was asked for an answer, whatever it is.
    Routed,
}

impl RouteClass {
    fn of(reply: &ServerReply) -> Self {
        let text = reply.text();
        let is_absent = text.contains("the server could not find the requested resource")
            || text.starts_with("404 page not found");
        match reply.code {
            404 if is_absent => Self::Absent,
            405 => Self::MethodNotAllowed,
            _ => Self::Routed,
        }
    }
}

/// The resources of a server, with their subresources, by the path of their version.
async fn discover(server: &ServerConnection) -> BTreeMap<(String, String), Vec<String>> {
    let get = async |path: &str| -> Value {
        let reply = server.send(PreparedRequest::get(path)).await;
        assert_eq!(reply.code, 200, "{} {path}: {}", server.name, reply.text());
        reply.json().unwrap()
    };
    let mut versions = vec!["/api/v1".to_owned()];
    for group in get("/apis").await["groups"].as_array().unwrap() {
        let of_group = group["versions"].as_array().unwrap().iter();
        versions.extend(of_group.map(|v| format!("/apis/{}", v["groupVersion"].as_str().unwrap())));
    }
    let mut resources: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for version in versions {
        for resource in get(&version).await["resources"].as_array().unwrap() {
            let name = resource["name"].as_str().unwrap();
            let (resource, subresource) = name.split_once('/').unwrap_or((name, ""));
            let entry = resources
                .entry((version.clone(), resource.to_owned()))
                .or_default();
            if !subresource.is_empty() {
                entry.push(subresource.to_owned());
            }
        }
    }
    resources
}

/// The paths of a resource in both scopes. Nothing is stored or deleted by requests for them.
fn paths(version: &str, resource: &str, subresources: &[String]) -> Vec<String> {
    let mut paths = Vec::new();
    for parent in [version.to_owned(), format!("{version}/namespaces/{NAME}")] {
        let collection = format!("{parent}/{resource}");
        paths.push(format!("{collection}?dryRun=All"));
        paths.push(format!(
            "{collection}?dryRun=All&fieldSelector=metadata.name%3D{NAME}"
        ));
        paths.push(format!("{collection}/{NAME}?dryRun=All"));
        paths.push(format!("{collection}/other?dryRun=All"));
        let subresources = subresources.iter().map(String::as_str).chain(["none"]);
        paths.extend(subresources.map(|s| format!("{collection}/{NAME}/{s}?dryRun=All")));
    }
    paths
}

#[harness::slow]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_path_has_a_route_where_a_kube_apiserver_has_one() {
    let Some(servers) = RouteServers::start().await else {
        return;
    };
    let reference = discover(&servers.reference).await;
    let own = discover(&servers.flotilla).await;
    let (mut compared, mut differences) = (0, Vec::new());
    for (key, subresources) in &reference {
        let Some(served) = own.get(key) else {
            continue;
        };
        let both: Vec<String> = subresources
            .iter()
            .filter(|s| served.contains(s))
            .cloned()
            .collect();
        for path in paths(&key.0, &key.1, &both) {
            let is_compared = |method: &&str| !NOT_COMPARED.contains(&(method, &key.1));
            for method in METHODS.into_iter().filter(is_compared) {
                let [expected, actual] = servers.classes(method, &path).await;
                compared += 1;
                if expected != actual {
                    differences.push(format!("{method} {path}: {expected:?}, but {actual:?}"));
                }
            }
        }
    }
    assert!(compared > 2000, "{compared}");
    assert!(
        differences.is_empty(),
        "{compared}:\n{}",
        differences.join("\n")
    );
}
