//! Restarts of the host, Flotilla and etcd in turn while clients write: no acknowledged write
//! is lost.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use client::{ListOptions, ResourcePath, WriteOptions};
use harness::ApiServerClient;
use harness::api_server_client::wait_until;
use harness::objects::{CONFIG_MAPS, POLICIES, config_map, policy};
use machinery::Gvr;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::aggregated::aggregated_control_plane::AggregatedControlPlane;
use crate::aggregated::real_clusters::{MEMBER_NAMES, RealMemberClusters};

const NS: &str = "restarts";
const WRITERS: usize = 4;
/// How many templates are written between two failures.
const WRITES_BETWEEN_FAILURES: usize = 12;
/// How long a write may take before it is retried: its connection may have been lost.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// The names of objects whose creation was acknowledged.
#[derive(Default)]
struct ObjectCreator {
    names: Mutex<BTreeSet<String>>,
    is_stopped: AtomicBool,
}

pub(crate) async fn run_scenario(
    control_plane: &mut AggregatedControlPlane,
    members: &RealMemberClusters,
) {
    control_plane.client.create_namespace(NS).await;
    let written = Arc::new(ObjectCreator::default());
    let writers: Vec<JoinHandle<()>> = (0..WRITERS)
        .map(|n| {
            let control = ApiServerClient::connect("writer", &control_plane.host.kubeconfig);
            tokio::spawn(run_writer(control, n, Arc::clone(&written)))
        })
        .collect();
    wait_for_more_writes(&written).await;
    control_plane.host.apiserver.kill();
    control_plane.host.apiserver.restart();
    control_plane.host.wait_ready();
    wait_for_more_writes(&written).await;
    control_plane.kill();
    control_plane.start_flotilla();
    wait_for_more_writes(&written).await;
    control_plane.etcd.nodes[0].daemon.kill();
    control_plane.etcd.nodes[0].daemon.restart();
    control_plane.etcd.wait_ready();
    wait_for_more_writes(&written).await;
    written.is_stopped.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
    check_nothing_lost(control_plane, members, &written).await;
}

async fn wait_for_more_writes(written: &ObjectCreator) {
    let goal = written.names.lock().len() + WRITES_BETWEEN_FAILURES;
    wait_until("writes go on", async || written.names.lock().len() >= goal).await;
}

/// Creates templates and their policies, one after the other, until it is stopped. The host
/// stores the templates and routes the policies to Flotilla.
async fn run_writer(control: ApiServerClient, writer: usize, written: Arc<ObjectCreator>) {
    for n in 0.. {
        if written.is_stopped.load(Ordering::Relaxed) {
            return;
        }
        let name = format!("w{writer}-{n}");
        let template = config_map(NS, &name, "1");
        let policy = policy(NS, &name, &template, &MEMBER_NAMES);
        create_with_retries(&control, &CONFIG_MAPS, template).await;
        create_with_retries(&control, &POLICIES, policy).await;
        written.names.lock().insert(name);
    }
}

async fn create_with_retries(control: &ApiServerClient, resource: &Gvr, object: Value) {
    loop {
        let at = ResourcePath::collection(resource, NS);
        let options = WriteOptions::default();
        let created = control.api.create(at, object.clone().into(), &options);
        match tokio::time::timeout(WRITE_TIMEOUT, created).await {
            Ok(Ok(_)) => return,
            Ok(Err(error)) if error.is_already_exists() => return,
            Ok(Err(_)) | Err(_) => tokio::time::sleep(RETRY_INTERVAL).await,
        }
    }
}

/// The control plane has each acknowledged object once, and each member each template.
async fn check_nothing_lost(
    control_plane: &AggregatedControlPlane,
    members: &RealMemberClusters,
    written: &ObjectCreator,
) {
    let expected = written.names.lock().clone();
    assert_eq!(
        writer_object_names(&control_plane.client, &CONFIG_MAPS).await,
        expected
    );
    assert_eq!(
        writer_object_names(&control_plane.client, &POLICIES).await,
        expected
    );
    for member in &members.all {
        wait_until("every template is in the member", async || {
            writer_object_names(&member.server, &CONFIG_MAPS).await == expected
        })
        .await;
    }
}

/// The names of objects that a writer created.
async fn writer_object_names(server: &ApiServerClient, resource: &Gvr) -> BTreeSet<String> {
    let options = ListOptions::default();
    let listed = server
        .api
        .list(ResourcePath::collection(resource, NS), &options);
    let listed = listed.await.unwrap();
    let names = listed.items.iter().map(|o| o.name().to_owned());
    names.filter(|n| n.starts_with('w')).collect()
}
