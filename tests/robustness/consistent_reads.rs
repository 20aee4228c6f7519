//! Two replicas on one etcd: a write through one is visible at once through the other,
//! whether etcd's progress notifications can be trusted or not (contract C6.3).

use client::{ListOptions, ResourcePath};
use harness::objects::CONFIG_MAPS;
use harness::{EtcdCluster, etcd};
use serde_json::json;

use crate::robustness::ReplicaProcess;

#[tokio::test]
async fn each_replica_lists_the_writes_of_the_other() {
    for version in [etcd::VERSION_3_4, etcd::VERSION_3_5] {
        let Some(etcd) = EtcdCluster::start(version, 1) else {
            return;
        };
        let replicas =
            ["first", "second"].map(|name| ReplicaProcess::start(name, &etcd.endpoints(), &[]));
        for turn in 0..40 {
            let (writes, reads) = (&replicas[turn % 2].server, &replicas[(turn + 1) % 2].server);
            let name = format!("turn-{turn}");
            let created = writes
                .create(json!({
                    "apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"name": name, "namespace": "default"},
                }))
                .await;
            let all = ResourcePath::collection(&CONFIG_MAPS, "default");
            let list = reads.api.list(all, &ListOptions::default()).await.unwrap();
            assert!(
                list.items.iter().any(|o| o.name() == name),
                "{version}: {turn}"
            );
            // The writer can list at the revision that the other replica returned.
            let from = ListOptions {
                resource_version: list.revision.to_string(),
                resource_version_match: client::ResourceVersionMatch::NotOlderThan,
                ..ListOptions::default()
            };
            let again = writes.api.list(all, &from).await.unwrap();
            assert!(again.revision >= list.revision);
            let actual = reads.get(&CONFIG_MAPS, "default", &name).await.unwrap();
            let version = |o: &serde_json::Value| o["metadata"]["resourceVersion"].clone();
            assert_eq!(version(&actual), version(&created));
        }
    }
}
