//! Tests of the scope of paths over all resources of the table, verbs and subresources.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::Method;
use proptest::prelude::*;
use registry::{
    ComputedListRequest, ComputedObjects, ComputedResourceProvider, DynamicApiGroup, Registry,
    RegistryOptions, RegistryReader, ResourceInfo,
};

use super::*;
use crate::requestinfo::{QueryParams, parse_request};

const METHODS: [Method; 7] = [
    Method::GET,
    Method::HEAD,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
    Method::OPTIONS,
];
/// Subresources of connectors, which the table does not have.
const CONNECTED: [&str; 9] = [
    "api",
    "apis",
    "attach",
    "exec",
    "log",
    "none",
    "portforward",
    "proxy",
    "scale",
];
const DYNAMIC_GROUPS: &[DynamicApiGroup] = &[
    DynamicApiGroup {
        name: "custom.metrics.k8s.io",
        versions: &["v1beta2"],
        scope: DynamicResourceScope::DescribedResource,
    },
    DynamicApiGroup {
        name: "external.metrics.k8s.io",
        versions: &["v1beta1"],
        scope: DynamicResourceScope::Namespace,
    },
];

struct NoObjects;

#[async_trait::async_trait]
impl ComputedResourceProvider for NoObjects {
    async fn list(
        &self,
        _: &dyn RegistryReader,
        _: &ComputedListRequest<'_>,
    ) -> Result<ComputedObjects, Status> {
        Ok(ComputedObjects::default())
    }
}

/// The resources of a server that serves all kinds of the catalog.
async fn table() -> Arc<ResourceTable> {
    let store = storage::EmbeddedStore::in_memory(storage::EmbeddedStoreOptions::default());
    let store: Arc<dyn storage::Store> = Arc::new(store.unwrap());
    let caches =
        watchcache::WatchCaches::new(Arc::clone(&store), watchcache::WatchCacheConfig::default());
    let admission = admission::AdmissionChain::new(admission::AdmissionChainOptions::default());
    let mut options = RegistryOptions::new(Arc::new(admission));
    options.dynamic_groups = DYNAMIC_GROUPS;
    let computed = openapi::catalog()
        .kinds()
        .iter()
        .filter(|kind| kind.computed);
    options.computed_resources = computed
        .map(|kind| (kind.gvr.clone(), Arc::new(NoObjects) as _))
        .collect();
    Registry::new(store, caches, options).table()
}

/// The code of the refusal of a request, 200 if its scope is right.
fn code(table: &ResourceTable, method: &Method, path: &str) -> u16 {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let info = parse_request(method, path, &QueryParams::parse(Some(query))).unwrap();
    let resource = info.resource.unwrap();
    let checked = check_request_scope(table, &resource, info.verb);
    checked.map_or_else(|status| status.code, |()| 200)
}

fn version_path(info: &ResourceInfo) -> String {
    let gvr = &info.kind.gvr;
    match &*gvr.group {
        "" => format!("/api/{}", gvr.version),
        group => format!("/apis/{group}/{}", gvr.version),
    }
}

/// The answer of Kubernetes: the routes that it installs for a kind of this scope.
fn expected_code(kind: &KindInfo, has_go_type: bool, shape: &PathShape, method: &Method) -> u16 {
    let is_listed = kind.verbs.iter().any(|verb| verb == "list");
    match (kind.namespaced, shape.in_namespace, shape.has_name) {
        (true, true, _) | (false, false, _) => 200,
        (true, false, false) if !is_listed => 404,
        (true, false, false) if matches!(*method, Method::GET | Method::HEAD) => 200,
        (true, false, false) if has_go_type => 405,
        _ => 404,
    }
}

struct PathShape {
    path: String,
    in_namespace: bool,
    has_name: bool,
}

/// The paths below a version that name a resource. The name of the object is that of the
/// namespace, or another.
fn shapes(resource: &str, subresources: &BTreeSet<&str>) -> Vec<PathShape> {
    let mut shapes = Vec::new();
    for (parent, in_namespace) in [("", false), ("/namespaces/a", true)] {
        let mut add = |tail: &str, named| {
            shapes.push(PathShape {
                path: format!("{parent}/{resource}{tail}"),
                in_namespace,
                has_name: named,
            });
        };
        add("", false);
        add("?fieldSelector=metadata.name%3Da", false);
        for name in ["a", "b"] {
            add(&format!("/{name}"), true);
            for subresource in subresources {
                // `namespaces/a/x` is the resource `x` of a namespace.
                if resource != "namespaces" || matches!(*subresource, "status" | "finalize") {
                    add(&format!("/{name}/{subresource}"), true);
                    add(
                        &format!("/{name}/{subresource}/api/v1/namespaces/a/x"),
                        true,
                    );
                }
            }
        }
    }
    shapes
}

#[tokio::test]
async fn every_path_of_every_resource_has_its_scope_or_is_refused() {
    let table = table().await;
    let all_subresources = table.resources().iter().flat_map(|info| &info.subresources);
    let subresources: BTreeSet<&str> = all_subresources
        .map(|sub| sub.name)
        .chain(CONNECTED)
        .collect();
    let mut refusals = 0;
    for info in table.resources() {
        let version = version_path(info);
        for shape in shapes(&info.kind.gvr.resource, &subresources) {
            for method in &METHODS {
                let expected = expected_code(&info.kind, info.has_go_type(), &shape, method);
                refusals += usize::from(expected != 200);
                let path = format!("{version}{}", shape.path);
                assert_eq!(code(&table, method, &path), expected, "{method} {path}");
                if *method == Method::GET {
                    let path = format!("{version}/watch{}", shape.path);
                    assert_eq!(code(&table, method, &path), expected, "{method} {path}");
                }
            }
        }
    }
    assert!(refusals > 10_000, "{refusals}");
}

#[tokio::test]
async fn custom_resources_have_the_answers_of_their_handler() {
    for namespaced in [true, false] {
        let kind = KindInfo {
            namespaced,
            verbs: vec!["list".to_owned()],
            ..KindInfo::default()
        };
        // A resource of this name is no Namespace: RequestInfo puts it into one.
        for resource in ["widgets", "namespaces"] {
            for shape in shapes(resource, &BTreeSet::from(["status"])) {
                for method in &METHODS {
                    let path = format!("/apis/example.com/v1{}", shape.path);
                    let (path, query) = path.split_once('?').unwrap_or((&path, ""));
                    let query = QueryParams::parse(Some(query));
                    let info = parse_request(method, path, &query).unwrap();
                    let requested = info.resource.unwrap();
                    let shape = PathShape {
                        in_namespace: !requested.namespace.is_empty(),
                        path: path.to_owned(),
                        has_name: requested.has_name,
                    };
                    let checked = check_kind_scope(&kind, false, &requested, info.verb);
                    let code = checked.as_ref().map_or_else(|status| status.code, |()| 200);
                    let expected = expected_code(&kind, false, &shape, method);
                    assert_eq!(code, expected, "{method} {path}");
                    let is_text = checked.err().is_none_or(|status| status.is_plain_text());
                    assert!(is_text, "{method} {path}");
                }
            }
        }
    }
}

#[tokio::test]
async fn metrics_have_the_scope_of_what_they_describe() {
    let table = table().await;
    let custom = "/apis/custom.metrics.k8s.io/v1beta2";
    let external = "/apis/external.metrics.k8s.io/v1beta1";
    for (path, expected) in [
        ("/namespaces/a/pods/p/requests", 200),
        ("/namespaces/a/metrics/requests", 200),
        ("/namespaces/a/widgets.example.com/p/requests", 200),
        ("/namespaces/a/nodes/n/requests", 404),
        ("/namespaces/a/nodes/*/requests", 404),
        ("/namespaces/a/namespaces/a/requests", 404),
        ("/namespaces/a/namespaces/*/requests", 404),
        (
            "/namespaces/a/clusterroles.rbac.authorization.k8s.io/a/requests",
            404,
        ),
        ("/nodes/n/requests", 200),
        ("/pods/*/requests", 200),
    ] {
        let path = format!("{custom}{path}");
        assert_eq!(code(&table, &Method::GET, &path), expected, "{path}");
    }
    for (path, expected) in [
        ("/namespaces/a/queue", 200),
        ("/namespaces/a/nodes", 200),
        ("/queue", 404),
        ("/namespaces/a", 404),
    ] {
        let path = format!("{external}{path}");
        assert_eq!(code(&table, &Method::GET, &path), expected, "{path}");
    }
}

proptest! {
    #[test]
    fn what_is_outside_of_namespaces_is_never_authorized_by_one(
        segments in prop::collection::vec(
            prop::sample::select(vec![
                "namespaces", "a", "status", "finalize", "watch", "pods", "nodes", "clusters",
                "clusterroles", "roles", "proxy", "search", "cache", "%61", "p%6Fds",
            ]),
            0..7,
        ),
        version in prop::sample::select(vec![
            "/api/v1", "/apis/rbac.authorization.k8s.io/v1", "/apis/cluster.karmada.io/v1alpha1",
            "/apis/search.karmada.io/v1alpha1", "/apis/metrics.k8s.io/v1beta1",
        ]),
        selector in prop::sample::select(vec!["", "?fieldSelector=metadata.name%3Da", "?watch=1"]),
        method in prop::sample::select(METHODS.to_vec()),
    ) {
        static TABLE: std::sync::OnceLock<Arc<ResourceTable>> = std::sync::OnceLock::new();
        let table = TABLE.get_or_init(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(table())
        });
        let path = format!("{version}/{}", segments.join("/"));
        let query = QueryParams::parse(selector.strip_prefix('?'));
        let Ok(info) = parse_request(&method, &path, &query) else {
            return Ok(());
        };
        let Some(requested) = info.resource else {
            return Ok(());
        };
        let served = table.find_by_name(&requested.group, &requested.version, &requested.resource);
        let Some(served) = served else {
            return Ok(());
        };
        if check_request_scope(table, &requested, info.verb).is_err() {
            return Ok(());
        }
        let RequestedResource { namespace, name, resource, group, has_name: named, .. } = &requested;
        if served.kind.namespaced {
            let lists = matches!(info.verb, "list" | "watch") && !named;
            prop_assert!(!namespace.is_empty() || lists, "{method} {path}");
        } else {
            let is_namespace = resource == "namespaces" && group.is_empty() && namespace == name;
            prop_assert!(namespace.is_empty() || is_namespace, "{method} {path}");
        }
    }
}
