//! Runs a reflector, a controller, server-side applies and an election by a Lease on kube-rs.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::controller::Action;
use kube::runtime::reflector::{self, Store};
use kube::runtime::{Controller, WatchStreamExt, watcher};
use kube::{Api, Client, Config, Resource, ResourceExt};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::clients::{ROOT_CA_CONFIG_MAP, RestartableServer, StandaloneServer};

const TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
const NAMESPACE: &str = "kube-rs";

/// A kind with a field that the test writes.
pub(crate) trait TestKind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + DeserializeOwned
    + Serialize
    + Send
    + Sync
    + 'static
{
    fn manifest(name: &str, value: u32) -> Value;
    fn value(&self) -> Option<u32>;

    fn new(name: &str, value: u32) -> Self {
        serde_json::from_value(Self::manifest(name, value)).unwrap()
    }
}

impl TestKind for ConfigMap {
    fn manifest(name: &str, value: u32) -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name}, "data": {"k": value.to_string()},
        })
    }

    fn value(&self) -> Option<u32> {
        self.data.as_ref()?.get("k")?.parse().ok()
    }
}

/// Karmada's kind, as a controller that does not know its fields declares it.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UntypedPropagationPolicy {
    api_version: String,
    kind: String,
    metadata: ObjectMeta,
    spec: Value,
}

impl Resource for UntypedPropagationPolicy {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "PropagationPolicy".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "policy.karmada.io".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1alpha1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "propagationpolicies".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl TestKind for UntypedPropagationPolicy {
    fn manifest(name: &str, value: u32) -> Value {
        json!({
            "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
            "metadata": {"name": name},
            "spec": {
                "resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "none"}],
                "placement": {"clusterAffinity": {"clusterNames": ["none"]}},
                "priority": value,
            },
        })
    }

    fn value(&self) -> Option<u32> {
        self.spec["priority"].as_u64()?.try_into().ok()
    }
}

/// Object name → the resource version at its last reconciliation.
type ReconciledVersions = Arc<Mutex<BTreeMap<String, String>>>;

async fn connect(kubeconfig: &Path) -> Client {
    let read = Kubeconfig::read_from(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(read, &options)
        .await
        .unwrap();
    Client::try_from(config).unwrap()
}

async fn wait_until(description: &str, mut done: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !done().await {
        assert!(Instant::now() < end, "not in time: {description}");
        sleep(POLL_INTERVAL).await;
    }
}

fn code(error: &kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        other => panic!("{other}"),
    }
}

fn start_reflector<K: TestKind>(objects: &Api<K>) -> Store<K> {
    let (store, writer) = reflector::store();
    let stream = watcher(
        objects.clone(),
        watcher::Config::default().streaming_lists(),
    );
    let reflected = stream.default_backoff().reflect(writer);
    tokio::spawn(reflected.for_each(|_| async {}));
    store
}

fn start_controller<K: TestKind>(objects: &Api<K>) -> ReconciledVersions {
    let reconciled = ReconciledVersions::default();
    let reconcile = |object: Arc<K>, reconciled: Arc<ReconciledVersions>| async move {
        let version = object.resource_version().unwrap();
        reconciled.lock().insert(object.name_any(), version);
        Ok::<_, Infallible>(Action::await_change())
    };
    let controller = Controller::new(objects.clone(), watcher::Config::default());
    let context = Arc::new(Arc::clone(&reconciled));
    let run = controller.run(reconcile, |_, _, _| Action::await_change(), context);
    tokio::spawn(run.for_each(|_| async {}));
    reconciled
}

fn name_and_version<K: TestKind>(object: &K) -> (String, String) {
    (object.name_any(), object.resource_version().unwrap())
}

async fn listed<K: TestKind>(objects: &Api<K>) -> BTreeMap<String, String> {
    let list = objects.list(&ListParams::default()).await.unwrap();
    list.items.iter().map(name_and_version).collect()
}

fn stored<K: TestKind>(store: &Store<K>) -> BTreeMap<String, String> {
    let state = store.state();
    state
        .iter()
        .map(|object| name_and_version(&**object))
        .collect()
}

/// The objects that exist were reconciled in their present version.
async fn wait_for_agreement<K: TestKind>(
    objects: &Api<K>,
    store: &Store<K>,
    versions: &ReconciledVersions,
) {
    wait_until(
        "a reflector and a controller that agree with a list",
        async || {
            let listed = listed(objects).await;
            let reconciled = versions.lock().clone();
            let all = listed
                .iter()
                .all(|(name, version)| reconciled.get(name) == Some(version));
            stored(store) == listed && all
        },
    )
    .await;
}

async fn apply_as_two_managers<K: TestKind>(objects: &Api<K>) {
    let apply_patch = |value: u32| Patch::Apply(K::manifest("applied", value));
    let (one, two) = (PatchParams::apply("one"), PatchParams::apply("two"));
    objects
        .patch("applied", &one, &apply_patch(1))
        .await
        .unwrap();
    let rejection = objects
        .patch("applied", &two, &apply_patch(2))
        .await
        .unwrap_err();
    assert_eq!(code(&rejection), 409, "{rejection}");
    let forced = objects
        .patch("applied", &two.force(), &apply_patch(2))
        .await;
    assert_eq!(forced.unwrap().value(), Some(2));
}

/// Two candidates as controllers without a library for it are: the holder is who wrote the
/// Lease, and the resource version decides between two writes.
async fn elect_by_lease(client: Client) {
    let leases: Api<Lease> = Api::namespaced(client, NAMESPACE);
    let create = PostParams::default();
    let lease = json!({
        "metadata": {"name": "leader"},
        "spec": {"holderIdentity": "first", "leaseDurationSeconds": 15},
    });
    let lease: Lease = serde_json::from_value(lease).unwrap();
    let first_lease = leases.create(&create, &lease).await.unwrap();
    let late = leases.create(&create, &lease).await.unwrap_err();
    assert_eq!(code(&late), 409, "{late}");
    let by = |lease: &Lease, holder: &str| {
        let mut lease = lease.clone();
        lease.spec.as_mut().unwrap().holder_identity = Some(holder.to_owned());
        lease
    };
    let released = leases
        .replace("leader", &create, &by(&first_lease, ""))
        .await;
    let second_lease = by(&released.unwrap(), "second");
    leases
        .replace("leader", &create, &second_lease)
        .await
        .unwrap();
    let renewed = leases
        .replace("leader", &create, &by(&first_lease, "first"))
        .await;
    assert_eq!(code(&renewed.unwrap_err()), 409);
    let holder = leases.get("leader").await.unwrap().spec.unwrap();
    assert_eq!(holder.holder_identity.as_deref(), Some("second"));
}

async fn write<K: TestKind>(objects: &Api<K>) {
    let create = PostParams::default();
    for name in ["a", "b", "c"] {
        objects.create(&create, &K::new(name, 1)).await.unwrap();
    }
    let twice = objects.create(&create, &K::new("a", 1)).await.unwrap_err();
    assert_eq!(code(&twice), 409);
    let merge = Patch::Merge(K::manifest("a", 2));
    let merged = objects.patch("a", &PatchParams::default(), &merge).await;
    assert_eq!(merged.unwrap().value(), Some(2));
    objects.delete("c", &DeleteParams::default()).await.unwrap();
}

/// Returns the names in the reflector's view at the end, without the ConfigMap of every namespace.
pub(crate) async fn run<K: TestKind>(server: &mut impl RestartableServer) -> Vec<String> {
    let client = connect(server.kubeconfig()).await;
    let namespace = json!({"metadata": {"name": NAMESPACE}});
    let namespace: Namespace = serde_json::from_value(namespace).unwrap();
    let create = PostParams::default();
    Api::all(client.clone())
        .create(&create, &namespace)
        .await
        .unwrap();
    let objects: Api<K> = Api::namespaced(client.clone(), NAMESPACE);
    let (store, versions) = (start_reflector(&objects), start_controller(&objects));
    write(&objects).await;
    apply_as_two_managers(&objects).await;
    elect_by_lease(client).await;
    wait_for_agreement(&objects, &store, &versions).await;

    server.restart();
    wait_until("a write after the restart", async || {
        match objects.create(&create, &K::new("after", 1)).await {
            Ok(_) => true,
            Err(kube::Error::Api(status)) => status.code == 409,
            Err(_) => false,
        }
    })
    .await;
    objects.delete("b", &DeleteParams::default()).await.unwrap();
    wait_until("a deleted object that is gone", async || {
        !listed(&objects).await.contains_key("b")
    })
    .await;
    wait_for_agreement(&objects, &store, &versions).await;
    let mut view = stored(&store);
    view.remove(ROOT_CA_CONFIG_MAP);
    view.into_keys().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kube_rs_works_over_a_restart() {
    let mut server = StandaloneServer::start();
    let names = run::<ConfigMap>(&mut server).await;
    assert_eq!(names, ["a", "after", "applied"]);
}
