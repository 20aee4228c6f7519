//! Two replicas on one etcd: a write through one is visible at once through the other,
//! whether etcd's progress notifications can be trusted or not (contract C6.3).

use client::{At, ListOptions};
use harness::objects::CONFIG_MAPS;
use harness::{Etcd, etcd};
use serde_json::json;

use crate::Replica;

#[tokio::test]
async fn what_one_replica_wrote_the_other_lists() {
    for version in [etcd::OLD, etcd::NEW] {
        let Some(etcd) = Etcd::start(version, 1) else {
            return;
        };
        let replicas = ["first", "second"].map(|name| Replica::start(name, &etcd.endpoints(), &[]));
        for turn in 0..40 {
            let (writes, reads) = (&replicas[turn % 2].server, &replicas[(turn + 1) % 2].server);
            let name = format!("turn-{turn}");
            let made = writes
                .create(json!({
                    "apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"name": name, "namespace": "default"},
                }))
                .await;
            let all = At::all(&CONFIG_MAPS, "default");
            let list = reads.api.list(all, &ListOptions::default()).await.unwrap();
            assert!(
                list.items.iter().any(|o| o.name() == name),
                "{version}: {turn}"
            );
            // The writer can list at the revision that the other replica returned.
            let from = ListOptions {
                resource_version: list.revision.to_string(),
                resource_version_match: client::Match::NotOlderThan,
                ..ListOptions::default()
            };
            let again = writes.api.list(all, &from).await.unwrap();
            assert!(again.revision >= list.revision);
            let got = reads.get(&CONFIG_MAPS, "default", &name).await.unwrap();
            let version = |o: &serde_json::Value| o["metadata"]["resourceVersion"].clone();
            assert_eq!(version(&got), version(&made));
        }
    }
}
