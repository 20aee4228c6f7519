//! A stalled etcd: service account tokens stay valid, and a failed read of the store is a
//! server error, never a 401.

use std::time::Duration;

use harness::server::until;
use harness::wire::{Ask, Identity, Reply};
use harness::{Etcd, etcd};
use serde_json::{Value, json};

use crate::Replica;

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// The path of a list that the watch cache answers.
const CACHED: &str = "/api/v1/namespaces/default/configmaps?resourceVersion=0";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
/// Longer than a validated token was cached.
const PAUSE: Duration = Duration::from_millis(1500);

/// A raw HTTP client of a replica.
struct Caller {
    address: String,
    admin: Identity,
    stranger: Identity,
}

impl Caller {
    fn of(replica: &Replica) -> Self {
        let read = |name| std::fs::read_to_string(replica.data.join("pki").join(name)).unwrap();
        let ca = read("ca.crt");
        Self {
            address: replica.address.clone(),
            admin: Identity::new(&ca, Some((&read("admin.crt"), &read("admin.key")))),
            stranger: Identity::new(&ca, None),
        }
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let reply = Ask::new(&self.address, &self.admin, "POST", path).json(body);
        let reply = reply.reply();
        assert_eq!(reply.code, 201, "{path}: {}", reply.text());
        reply.json()
    }

    fn get(&self, path: &str, token: &str) -> Reply {
        let bearer = format!("Bearer {token}");
        let ask = Ask::new(&self.address, &self.stranger, "GET", path);
        ask.header("Authorization", &bearer).reply()
    }

    fn authenticated(&self, token: &str) -> bool {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "spec": {"token": token}});
        self.post(REVIEWS, &review)["status"]["authenticated"] == true
    }

    /// Creates a service account with the role `cluster-admin`, and returns a token of it.
    fn account(&self, name: &str) -> String {
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": name}});
        self.post(ACCOUNTS, &account);
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                        "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}]});
        self.post(BINDINGS, &binding);
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {}});
        let granted = self.post(&format!("{ACCOUNTS}/{name}/token"), &request);
        granted["status"]["token"].as_str().unwrap().to_owned()
    }
}

/// Checks for a 500, 503 or 504 with a `Retry-After`.
fn assert_store_error(reply: &Reply, what: &str) {
    let context = format!("{what}: {} {}", reply.code, reply.text());
    assert!(matches!(reply.code, 500 | 503 | 504), "{context}");
    assert!(
        !reply.header("retry-after").is_empty(),
        "no time: {context}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_etcd_refuses_no_token() {
    let Some(etcd) = Etcd::start(etcd::NEW, 1) else {
        return;
    };
    let replica = Replica::start("stalled", &etcd.endpoints(), &[]);
    let caller = Caller::of(&replica);
    let [used, unused, deleted] = ["used", "unused", "deleted"].map(|name| caller.account(name));
    until("the tokens have their rights", async || {
        [&used, &deleted]
            .iter()
            .all(|t| caller.get(CACHED, t).code == 200)
    })
    .await;
    let account = format!("{ACCOUNTS}/deleted");
    let gone = Ask::new(&caller.address, &caller.admin, "DELETE", &account).reply();
    assert_eq!(gone.code, 200);
    until("the token of no account is refused", async || {
        caller.get(CACHED, &deleted).code == 401
    })
    .await;

    etcd.nodes[0].daemon.suspend();
    tokio::time::sleep(PAUSE).await;
    for (name, token) in [("used", &used), ("unused", &unused), ("used", &used)] {
        let reply = caller.get(CACHED, token);
        assert_eq!(reply.code, 200, "{name}: {}", reply.text());
        assert!(caller.authenticated(token), "{name}");
    }
    let newest = caller.get(MAPS, &used);
    assert_store_error(&newest, "a list of the newest state");
    // Only etcd knows whether an account that the cache lacks is deleted.
    let unknown = caller.get(CACHED, &deleted);
    assert_store_error(&unknown, "the token of no account");
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
        "spec": {"token": deleted}});
    let reply = Ask::new(&caller.address, &caller.admin, "POST", REVIEWS).json(&review);
    assert_store_error(&reply.reply(), "a review of the token of no account");
    // An invalid token is rejected without a read of the store.
    assert_eq!(caller.get(CACHED, "nonsense").code, 401);

    etcd.nodes[0].daemon.resume();
    until("etcd answers again", async || {
        caller.get(MAPS, &used).code == 200 && caller.get(MAPS, &deleted).code == 401
    })
    .await;
}
