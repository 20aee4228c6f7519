//! Restarts of the host, Flotilla and etcd in turn while clients write: no acknowledged write
//! is lost.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use client::{At, ListOptions, WriteOptions};
use harness::Server;
use harness::objects::{CONFIG_MAPS, POLICIES, config_map, policy};
use harness::server::until;
use machinery::Gvr;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::behind::Behind;
use crate::world::{Members, NAMES};

const NS: &str = "restarts";
const WRITERS: usize = 4;
/// How many templates are written between two failures.
const ROUND: usize = 12;
/// How long a write may take before it is retried: its connection may have been lost.
const GIVE_UP: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

/// The names of objects whose creation was acknowledged.
#[derive(Default)]
struct Written {
    names: Mutex<BTreeSet<String>>,
    enough: AtomicBool,
}

pub(crate) async fn story(control_plane: &mut Behind, members: &Members) {
    control_plane.control.namespace(NS).await;
    let written = Arc::new(Written::default());
    let writers: Vec<JoinHandle<()>> = (0..WRITERS)
        .map(|n| {
            let control = Server::connect("writer", &control_plane.host.kubeconfig);
            tokio::spawn(write(control, n, Arc::clone(&written)))
        })
        .collect();
    more(&written).await;
    control_plane.host.apiserver.kill();
    control_plane.host.apiserver.again();
    control_plane.host.wait();
    more(&written).await;
    control_plane.kill();
    control_plane.run();
    more(&written).await;
    control_plane.etcd.nodes[0].daemon.kill();
    control_plane.etcd.nodes[0].daemon.again();
    control_plane.etcd.wait();
    more(&written).await;
    written.enough.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
    nothing_lost(control_plane, members, &written).await;
}

async fn more(written: &Written) {
    let goal = written.names.lock().len() + ROUND;
    until("writes go on", async || written.names.lock().len() >= goal).await;
}

/// Creates templates and their policies, one after the other, until it is stopped. The host
/// stores the templates and routes the policies to Flotilla.
async fn write(control: Server, writer: usize, written: Arc<Written>) {
    for n in 0.. {
        if written.enough.load(Ordering::Relaxed) {
            return;
        }
        let name = format!("w{writer}-{n}");
        let template = config_map(NS, &name, "1");
        let policy = policy(NS, &name, &template, &NAMES);
        acknowledged(&control, &CONFIG_MAPS, template).await;
        acknowledged(&control, &POLICIES, policy).await;
        written.names.lock().insert(name);
    }
}

async fn acknowledged(control: &Server, resource: &Gvr, object: Value) {
    loop {
        let at = At::all(resource, NS);
        let options = WriteOptions::default();
        let created = control.api.create(at, object.clone(), &options);
        match tokio::time::timeout(GIVE_UP, created).await {
            Ok(Ok(_)) => return,
            Ok(Err(error)) if error.is_already_exists() => return,
            Ok(Err(_)) | Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// The control plane has each acknowledged object once, and each member each template.
async fn nothing_lost(control_plane: &Behind, members: &Members, written: &Written) {
    let expected = written.names.lock().clone();
    assert_eq!(names(&control_plane.control, &CONFIG_MAPS).await, expected);
    assert_eq!(names(&control_plane.control, &POLICIES).await, expected);
    for member in &members.all {
        until("every template is in the member", async || {
            names(&member.server, &CONFIG_MAPS).await == expected
        })
        .await;
    }
}

/// The names of objects that a writer created.
async fn names(server: &Server, resource: &Gvr) -> BTreeSet<String> {
    let options = ListOptions::default();
    let listed = server.api.list(At::all(resource, NS), &options);
    let listed = listed.await.unwrap();
    let names = listed.items.iter().map(|o| o.name().to_owned());
    names.filter(|n| n.starts_with('w')).collect()
}
