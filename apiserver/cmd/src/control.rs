//! The controllers of a plane.

use std::sync::Arc;

use clusters::Options as ClusterOptions;
use machinery::Gvr;
use members::{Members, RemoteConnector};
use runtime::{HostWorkloads, Recorder, Select};
use scheduler::{Clusters, Scheduler};

use crate::plane::Plane;
use crate::standalone::Standalone;

pub(crate) static CLUSTERS: Gvr = Gvr::constant("cluster.karmada.io", "v1alpha1", "clusters");

const CONTROLLER_MANAGER: &str = "karmada-controller-manager";

/// What every plane needs: garbage collection, namespaces, accounts and tokens.
pub(crate) async fn housekeeping(plane: &Standalone) -> anyhow::Result<()> {
    let signer = Arc::clone(&plane.signer);
    let options = kube::Options {
        clock: Arc::clone(&plane.clock),
        root_ca: plane.root_ca.clone(),
        issue: Arc::new(move |namespace, account, uid, secret| {
            signer
                .issue_for_secret(namespace, account, uid, secret)
                .map_err(|e| e.to_string())
        }),
    };
    kube::start(
        Arc::clone(&plane.api),
        options,
        &plane.informers,
        &plane.controllers,
    )
    .await?;
    Ok(())
}

/// What makes a plane a control plane of many clusters.
pub(crate) async fn federation(plane: &Plane) -> anyhow::Result<()> {
    let tasks = &plane.controllers;
    let recorder = |component| {
        Recorder::new(
            Arc::clone(&plane.api),
            component,
            Arc::clone(&plane.clock),
            tasks,
        )
    };
    let connector = Arc::new(RemoteConnector);
    let members = Members::start(Arc::clone(&plane.api), &plane.informers, connector, tasks);
    // Works must not be told that a member cannot be reached, only because its
    // secret has not been looked at yet.
    members.wait_synced().await;
    let all = Clusters::new(plane.informers.get(&plane.api, &Select::all(&CLUSTERS)));
    let manager = recorder(CONTROLLER_MANAGER);
    clusters::start(clusters::Deps {
        control: Arc::clone(&plane.api),
        members: members.clone(),
        recorder: manager.clone(),
        clock: Arc::clone(&plane.clock),
        informers: plane.informers.clone(),
        tasks: tasks.clone(),
        options: ClusterOptions::default(),
    });
    Scheduler::start(
        Arc::clone(&plane.api),
        Arc::clone(&plane.clock),
        recorder("default-scheduler"),
        all.clone(),
        scheduler::Options::default(),
        &plane.informers,
        tasks,
    );
    status::start(status::Deps {
        control: Arc::clone(&plane.api),
        members: Arc::new(members.clone()),
        clusters: all.clone(),
        recorder: manager.clone(),
        clock: Arc::clone(&plane.clock),
        informers: plane.informers.clone(),
        host: HostWorkloads::default(),
        tasks: tasks.clone(),
    });
    let deps = propagation::Deps {
        control: Arc::clone(&plane.api),
        members: Arc::new(members),
        clusters: all,
        recorder: manager,
        clock: Arc::clone(&plane.clock),
        informers: plane.informers.clone(),
        host: HostWorkloads::default(),
        options: propagation::Options::default(),
    };
    Box::pin(propagation::start(deps, tasks))
        .await
        .map_err(anyhow::Error::msg)
}
