//! Deployments and a ConfigMap that are created, changed and deleted while networks fail.
//!
//! A Deployment's generation counts the writes of its spec, so a write that is repeated after
//! it had arrived shows in the member.

use std::time::Duration;

use serde_json::{Value, json};

use crate::flow::fleet::ApiServerClient;
use crate::flow::objects::{CONFIG_MAPS, DEPLOYMENTS, config_map, deployment, policy};

/// On a busy machine few connections that live for a second get as far as an event.
const ROLLOUT_TIMEOUT: Duration = Duration::from_secs(300);
const POLL_INTERVAL: Duration = Duration::from_millis(100);
const DELETED: &str = "gone";

/// The objects that are rolled out from a control plane to members.
pub(crate) struct Rollout<'a> {
    pub(crate) control: &'a ApiServerClient,
    pub(crate) members: Vec<&'a ApiServerClient>,
    pub(crate) namespace: &'static str,
    /// The number of Deployments of one prefix.
    pub(crate) count: usize,
}

impl Rollout<'_> {
    fn names(&self, prefix: &str) -> impl Iterator<Item = String> {
        let prefix = prefix.to_owned();
        (0..self.count).map(move |n| format!("{prefix}-{n}"))
    }

    /// Creates the namespace with a policy for all Deployments and ConfigMaps in it, and the
    /// ConfigMap that [`Self::delete`] deletes.
    pub(crate) async fn create_policy(&self) {
        let (control, namespace) = (self.control, self.namespace);
        control.create_namespace(namespace).await;
        let clusters: Vec<&str> = self.members.iter().map(|m| m.name.as_str()).collect();
        let mut all = policy(namespace, "all", &deployment(namespace, "", 1), &clusters);
        all["spec"]["resourceSelectors"] = json!([{"apiVersion": "apps/v1", "kind": "Deployment"}, {"apiVersion": "v1", "kind": "ConfigMap"}]);
        control.create(all).await;
        control.create(config_map(namespace, DELETED, "x")).await;
        for member in &self.members {
            member
                .wait_until_exists(&CONFIG_MAPS, namespace, DELETED)
                .await;
        }
    }

    /// Creates the Deployments of a prefix, each with one replica.
    pub(crate) async fn create(&self, prefix: &str) {
        for name in self.names(prefix) {
            let object = deployment(self.namespace, &name, 1);
            self.control.create(object).await;
        }
    }

    /// Creates them one after another, each when the members have the one before.
    pub(crate) async fn create_in_turn(&self, prefix: &str) {
        for name in self.names(prefix) {
            let object = deployment(self.namespace, &name, 1);
            self.control.create(object).await;
            for member in &self.members {
                member
                    .wait_until_exists(&DEPLOYMENTS, self.namespace, &name)
                    .await;
            }
        }
    }

    pub(crate) async fn scale(&self, prefix: &str, replicas: i64) {
        for name in self.names(prefix) {
            let scaled = json!({"spec": {"replicas": replicas}});
            self.control
                .merge_patch(&DEPLOYMENTS, self.namespace, &name, scaled)
                .await;
        }
    }

    pub(crate) async fn delete(&self) {
        self.control
            .delete(&CONFIG_MAPS, self.namespace, DELETED)
            .await;
    }

    pub(crate) async fn wait_until_deleted(&self) {
        for member in &self.members {
            member
                .wait_until_deleted(&CONFIG_MAPS, self.namespace, DELETED)
                .await;
        }
    }

    /// Waits until the control plane counts this many ready replicas of each Deployment in
    /// each member.
    pub(crate) async fn wait_until_ready(&self, prefix: &str, replicas: i64) {
        let expected = replicas * i64::try_from(self.members.len()).unwrap();
        let is_ready = |d: &&Value| {
            let name = d["metadata"]["name"].as_str().unwrap_or_default();
            name.starts_with(prefix) && d["status"]["readyReplicas"] == expected
        };
        let all = async {
            loop {
                let listed = self.control.list(&DEPLOYMENTS, self.namespace).await;
                if listed.iter().filter(is_ready).count() == self.count {
                    return;
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        let waited = tokio::time::timeout(ROLLOUT_TIMEOUT, all).await;
        assert!(
            waited.is_ok(),
            "not all of {prefix} have {expected} ready replicas"
        );
    }

    /// Each member has the Deployments of these prefixes, written so often, and no other.
    pub(crate) async fn assert_written(&self, prefixes: &[(&str, i64)]) {
        let written = prefixes.iter().flat_map(|(prefix, times)| {
            let names = self.names(prefix);
            names.map(|name| (name, *times))
        });
        let mut expected: Vec<(String, i64)> = written.collect();
        expected.sort();
        for member in &self.members {
            let mut actual: Vec<(String, i64)> = Vec::new();
            for object in member.list(&DEPLOYMENTS, self.namespace).await {
                let name = object["metadata"]["name"].as_str().unwrap().to_owned();
                actual.push((name, object["metadata"]["generation"].as_i64().unwrap()));
            }
            actual.sort();
            assert_eq!(actual, expected, "{}", member.name);
        }
    }
}
