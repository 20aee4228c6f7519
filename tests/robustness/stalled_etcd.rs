//! A stalled etcd: service account tokens stay valid, and a failed read of the store is a
//! server error, never a 401.

use std::time::Duration;

use harness::api_server_client::wait_until;
use harness::raw_http::{RawHttpRequest, RawHttpResponse, TestTlsClientConfig};
use harness::{EtcdCluster, etcd};
use serde_json::{Value, json};

use crate::robustness::ReplicaProcess;

const SERVICE_ACCOUNTS_PATH: &str = "/api/v1/namespaces/default/serviceaccounts";
const CONFIG_MAPS_PATH: &str = "/api/v1/namespaces/default/configmaps";
/// The path of a list that the watch cache answers.
const CACHED_LIST_PATH: &str = "/api/v1/namespaces/default/configmaps?resourceVersion=0";
const TOKEN_REVIEWS_PATH: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const CLUSTER_ROLE_BINDINGS_PATH: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
/// Longer than a validated token was cached.
const TOKEN_CACHE_PAUSE: Duration = Duration::from_millis(1500);

/// A raw HTTP client of a replica.
struct ReplicaHttpClient {
    address: String,
    admin: TestTlsClientConfig,
    anonymous: TestTlsClientConfig,
}

impl ReplicaHttpClient {
    fn for_replica(replica: &ReplicaProcess) -> Self {
        let read = |name| std::fs::read_to_string(replica.data.join("pki").join(name)).unwrap();
        let ca = read("ca.crt");
        Self {
            address: replica.address.clone(),
            admin: TestTlsClientConfig::new(&ca, Some((&read("admin.crt"), &read("admin.key")))),
            anonymous: TestTlsClientConfig::new(&ca, None),
        }
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let reply = RawHttpRequest::new(&self.address, &self.admin, "POST", path).json(body);
        let reply = reply.send();
        assert_eq!(reply.code, 201, "{path}: {}", reply.text());
        reply.json()
    }

    fn get(&self, path: &str, token: &str) -> RawHttpResponse {
        let bearer = format!("Bearer {token}");
        let ask = RawHttpRequest::new(&self.address, &self.anonymous, "GET", path);
        ask.header("Authorization", &bearer).send()
    }

    fn is_authenticated(&self, token: &str) -> bool {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "spec": {"token": token}});
        self.post(TOKEN_REVIEWS_PATH, &review)["status"]["authenticated"] == true
    }

    /// Creates a service account with the role `cluster-admin`, and returns a token of it.
    fn create_account(&self, name: &str) -> String {
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": name}});
        self.post(SERVICE_ACCOUNTS_PATH, &account);
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                        "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}]});
        self.post(CLUSTER_ROLE_BINDINGS_PATH, &binding);
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {}});
        let granted = self.post(&format!("{SERVICE_ACCOUNTS_PATH}/{name}/token"), &request);
        granted["status"]["token"].as_str().unwrap().to_owned()
    }
}

/// Checks for a 500, 503 or 504 with a `Retry-After`.
fn assert_store_error(reply: &RawHttpResponse, description: &str) {
    let context = format!("{description}: {} {}", reply.code, reply.text());
    assert!(matches!(reply.code, 500 | 503 | 504), "{context}");
    assert!(
        !reply.header("retry-after").is_empty(),
        "no time: {context}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_etcd_rejects_no_token() {
    let Some(etcd) = EtcdCluster::start(etcd::VERSION_3_5, 1) else {
        return;
    };
    let replica = ReplicaProcess::start("stalled", &etcd.endpoints(), &[]);
    let caller = ReplicaHttpClient::for_replica(&replica);
    let [used, unused, deleted] =
        ["used", "unused", "deleted"].map(|name| caller.create_account(name));
    wait_until("the tokens have their rights", async || {
        [&used, &deleted]
            .iter()
            .all(|t| caller.get(CACHED_LIST_PATH, t).code == 200)
    })
    .await;
    let account = format!("{SERVICE_ACCOUNTS_PATH}/deleted");
    let gone = RawHttpRequest::new(&caller.address, &caller.admin, "DELETE", &account).send();
    assert_eq!(gone.code, 200);
    wait_until("the token of no account is refused", async || {
        caller.get(CACHED_LIST_PATH, &deleted).code == 401
    })
    .await;
    // On a loaded machine the cache may still lack an account that the store has.
    wait_until("the cache has the account", async || {
        let path = format!("{SERVICE_ACCOUNTS_PATH}/unused?resourceVersion=0");
        caller.get(&path, &used).code == 200
    })
    .await;

    etcd.nodes[0].daemon.suspend();
    tokio::time::sleep(TOKEN_CACHE_PAUSE).await;
    for (name, token) in [("used", &used), ("unused", &unused), ("used", &used)] {
        let reply = caller.get(CACHED_LIST_PATH, token);
        assert_eq!(reply.code, 200, "{name}: {}", reply.text());
        assert!(caller.is_authenticated(token), "{name}");
    }
    let newest = caller.get(CONFIG_MAPS_PATH, &used);
    assert_store_error(&newest, "a list of the newest state");
    // Only etcd knows whether an account that the cache lacks is deleted.
    let unknown = caller.get(CACHED_LIST_PATH, &deleted);
    assert_store_error(&unknown, "the token of no account");
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
        "spec": {"token": deleted}});
    let reply = RawHttpRequest::new(&caller.address, &caller.admin, "POST", TOKEN_REVIEWS_PATH)
        .json(&review);
    assert_store_error(&reply.send(), "a review of the token of no account");
    // An invalid token is rejected without a read of the store.
    assert_eq!(caller.get(CACHED_LIST_PATH, "nonsense").code, 401);

    etcd.nodes[0].daemon.resume();
    wait_until("etcd answers again", async || {
        caller.get(CONFIG_MAPS_PATH, &used).code == 200
            && caller.get(CONFIG_MAPS_PATH, &deleted).code == 401
    })
    .await;
}
