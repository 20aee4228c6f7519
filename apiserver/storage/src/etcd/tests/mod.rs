//! Tests of values that are stored as deltas, on a real etcd.

mod bases;
mod deltas;
mod model;

use std::time::Duration;

use futures_util::{StreamExt, stream};
use harness::EtcdCluster;
use harness::etcd::VERSION_3_5;

use super::{EtcdDeltaOptions, EtcdOptions, EtcdStore};
use crate::delta::DeltaOptions;
use crate::format::DELTAS;
use crate::{SingleKeyTxn, SingleKeyTxnOp, Store, StoreResult, TxnResponse};

const PREFIX: &str = "/registry/work.karmada.io/works/";
const BASES: &str = "/registry/flotilla/bases/";
const APPLIED: &str = r#""conditions":[{"type":"Applied","status":"True","reason":"AppliedSuccessful","message":"Manifest has been successfully applied"}]"#;
const CONCURRENT_WRITES: usize = 16;

/// A store without compaction and without rounds of the collection, which writes whole values.
fn plain_options(etcd: &EtcdCluster) -> EtcdOptions {
    EtcdOptions {
        servers: etcd.endpoints().split(',').map(str::to_owned).collect(),
        history_retention: None,
        ..EtcdOptions::default()
    }
}

/// The same with deltas.
fn delta_options(etcd: &EtcdCluster) -> EtcdOptions {
    EtcdOptions {
        deltas: EtcdDeltaOptions {
            keys: DeltaOptions {
                prefixes: vec![PREFIX.into()],
                minimum_bytes: 64,
            },
            write_delay: Duration::ZERO,
            ..EtcdDeltaOptions::default()
        },
        ..plain_options(etcd)
    }
}

async fn open_with_deltas(options: EtcdOptions) -> EtcdStore {
    let store = EtcdStore::open(options).await.unwrap();
    store.raise_format(DELTAS).await.unwrap();
    store
}

fn start_etcd() -> Option<EtcdCluster> {
    EtcdCluster::start(VERSION_3_5, 1)
}

fn key(cluster: usize, template: usize) -> String {
    format!("{PREFIX}karmada-es-member-{cluster:03}/web-{template}")
}

/// A Work of about 4 KiB, of which some 200 bytes are its own.
fn work(cluster: usize, template: usize, status: &str) -> String {
    let environment: Vec<String> = (0..50)
        .map(|i| {
            format!(
                r#"{{"name":"VARIABLE_{i}","value":"{}"}}"#,
                (i + 1) * (template + 1) * 7919
            )
        })
        .collect();
    format!(
        r#"{{"kind":"Work","metadata":{{"name":"web-{template}","namespace":"karmada-es-member-{cluster:03}","uid":"{:08x}-6a0e-4bb2-a4a2-{:012x}","creationTimestamp":"2026-01-01T00:{:02}:{:02}Z"}},"spec":{{"workload":{{"manifests":[{{"kind":"Deployment","metadata":{{"annotations":{{"work.karmada.io/namespace":"karmada-es-member-{cluster:03}"}}}},"spec":{{"replicas":3,"text":"{}","env":[{}]}}}}]}}}},"status":{{{status}}}}}"#,
        cluster * 2_654_435_761 % 0xffff_ffff,
        template * 7_046_029_254 + cluster,
        cluster % 60,
        template % 60,
        "configuration ".repeat(100),
        environment.join(","),
    )
}

async fn commit(
    store: &dyn Store,
    key: &str,
    expected: u64,
    value: Option<String>,
) -> StoreResult<Option<u64>> {
    let op = match value {
        Some(value) => SingleKeyTxnOp::Put {
            value: value.into(),
            ttl: None,
        },
        None => SingleKeyTxnOp::Delete,
    };
    let key = key.into();
    match store.commit(SingleKeyTxn { key, expected, op }).await? {
        TxnResponse::Committed { revision } => Ok(Some(revision)),
        TxnResponse::Conflict { .. } => Ok(None),
    }
}

async fn put(store: &dyn Store, key: &str, expected: u64, value: String) -> u64 {
    let committed = commit(store, key, expected, Some(value)).await;
    committed.unwrap().unwrap()
}

/// Writes the Work of each key; `revisions` are those of the keys before, and after.
async fn write_works(store: &dyn Store, works: &mut [(String, u64, String)]) {
    let writes = works.iter_mut().map(|(key, revision, value)| async move {
        *revision = put(store, key, *revision, value.clone()).await;
    });
    let writes: Vec<_> = writes.collect();
    stream::iter(writes)
        .buffer_unordered(CONCURRENT_WRITES)
        .collect::<()>()
        .await;
}

/// Polls until etcd has as many bases.
async fn wait_for_bases(etcd: &EtcdCluster, count: usize) {
    let poll = async {
        while etcd.list_prefix(BASES).len() != count {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let timeout = tokio::time::timeout(Duration::from_secs(60), poll);
    timeout.await.unwrap();
}
