//! The controllers of a plane: what they run on, and which there are.
//!
//! They are started anew with each time of leading, so nothing here outlives the
//! tasks of its [`Base`].

use std::sync::Arc;

use auth::token::Signer;
use client::Api;
use clusters::Options as ClusterOptions;
use estimator::Estimator;
use interpreter::{Interpreter, Limits, Outside};
use machinery::time::Clock;
use members::{Connector, Detail, Members, RemoteConnector};
use openapi::karmada::FeatureGates;
use openapi::karmada::resources::CLUSTERS;
use flotilla_runtime::{Informers, Recorder, Select, Tasks};
use scheduler::{Clusters, Decisions, Scheduler};
use tokio::sync::watch;

use crate::controllers::Controllers;
use crate::plane::Plane;
use crate::scheduling::Scheduling;
use crate::templates::Templates;
use crate::webhooks::{Absent, Calls};

const CONTROLLER_MANAGER: &str = "karmada-controller-manager";

/// What controllers run on.
pub(crate) struct Base {
    pub(crate) api: Arc<dyn Api>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) informers: Informers,
    pub(crate) tasks: Tasks,
    /// Where the scheduler leaves why it decided as it did.
    pub(crate) decisions: Decisions,
    /// How members are reached.
    pub(crate) connector: Arc<dyn Connector>,
}

impl Base {
    /// That of a process that is alone: its controllers live as long as it does.
    pub(crate) fn alone(plane: &Plane) -> Self {
        Self {
            api: Arc::clone(&plane.api),
            clock: Arc::clone(&plane.clock),
            informers: plane.informers.clone(),
            tasks: plane.controllers.clone(),
            decisions: plane.decisions.clone(),
            connector: Arc::new(RemoteConnector::default()),
        }
    }
}

/// Whose tokens and whose certificates the accounts get, and which groups are served.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) signer: Arc<Signer>,
    pub(crate) serves: fn(&str) -> bool,
    pub(crate) root_ca: watch::Receiver<String>,
}

/// What every plane needs: garbage collection, namespaces, accounts and tokens.
pub(crate) async fn housekeeping(on: &Base, identity: &Identity) -> anyhow::Result<()> {
    let signer = Arc::clone(&identity.signer);
    let options = flotilla_kube::Options {
        clock: Arc::clone(&on.clock),
        serves: identity.serves,
        root_ca: identity.root_ca.clone(),
        issue: Arc::new(move |namespace, account, uid, secret| {
            signer
                .issue_for_secret(namespace, account, uid, secret)
                .map_err(|e| e.to_string())
        }),
    };
    flotilla_kube::start(Arc::clone(&on.api), options, &on.informers, &on.tasks).await?;
    Ok(())
}

/// What a control plane of many clusters is told to do; the default is one alone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) clusters: ClusterOptions,
    pub(crate) templates: Templates,
    pub(crate) scheduling: Scheduling,
    pub(crate) controllers: Controllers,
    pub(crate) scripts: Limits,
    /// Which optional behaviour is on.
    pub(crate) gates: FeatureGates,
    /// Whether taint policies may evict.
    pub(crate) allow_no_execute: bool,
}

impl Settings {
    /// Those of a plane alone, but for some gates.
    pub(crate) fn with(gates: FeatureGates) -> Self {
        Self {
            scheduling: Scheduling::with(gates),
            gates,
            ..Self::default()
        }
    }
}

/// What makes a plane a control plane of many clusters.
pub(crate) async fn federation(on: &Base, settings: &Settings) -> anyhow::Result<()> {
    let tasks = &on.tasks;
    let host = settings.templates.workloads(on);
    let recorder =
        |component| Recorder::new(Arc::clone(&on.api), component, Arc::clone(&on.clock), tasks);
    let connector = Arc::clone(&on.connector);
    let Scheduling {
        name,
        rules,
        estimators,
    } = &settings.scheduling;
    let detail = Detail {
        nodes: estimators.is_some(),
        quotas: estimators.as_ref().is_some_and(|e| e.quotas),
    };
    let host_api = Arc::clone(&on.api);
    let members = Members::telling(detail, host_api, &on.informers, connector, tasks);
    // Works must not be told that a member cannot be reached, only because its
    // secret has not been looked at yet.
    members.wait_synced().await;
    let informer = on.informers.get(&on.api, &Select::all(&CLUSTERS));
    let all = Clusters::under(informer, *rules);
    let manager = recorder(CONTROLLER_MANAGER);
    let outside = Outside {
        caller: Calls::new(&on.api, Absent::ByName, tasks),
        apply: registry::apply_patch,
    };
    let interpreter = Interpreter::follow(&on.informers, &on.api, settings.scripts, outside);
    clusters::start(clusters::Deps {
        control: Arc::clone(&on.api),
        members: members.clone(),
        recorder: manager.clone(),
        interpreter: interpreter.clone(),
        clock: Arc::clone(&on.clock),
        informers: on.informers.clone(),
        tasks: tasks.clone(),
        options: ClusterOptions {
            gates: settings.gates,
            ..settings.clusters.clone()
        },
    });
    Scheduler::start(
        Arc::clone(&on.api),
        Arc::clone(&on.clock),
        recorder(name),
        all.clone(),
        scheduler::Options {
            name: name.clone(),
            gates: settings.gates,
            decisions: on.decisions.clone(),
            estimators: estimators
                .clone()
                .map(|options| Estimator::start(&on.api, &on.informers, &members, options, tasks)),
        },
        &on.informers,
        tasks,
    );
    flotilla_status::start(flotilla_status::Deps {
        control: Arc::clone(&on.api),
        members: Arc::new(members.clone()),
        clusters: all.clone(),
        recorder: manager.clone(),
        interpreter: interpreter.clone(),
        clock: Arc::clone(&on.clock),
        informers: on.informers.clone(),
        host: host.clone(),
        tasks: tasks.clone(),
    });
    let deps = propagation::Deps {
        control: Arc::clone(&on.api),
        members: Arc::new(members),
        clusters: all,
        recorder: manager,
        interpreter,
        clock: Arc::clone(&on.clock),
        informers: on.informers.clone(),
        host,
        options: propagation::Options {
            scheduler_name: name.clone(),
            gates: settings.gates,
            quota_resync: settings.controllers.quota_resync,
            decisions: on.decisions.clone(),
            ..settings.templates.options.clone()
        },
    };
    Box::pin(propagation::start(deps, tasks))
        .await
        .map_err(anyhow::Error::msg)?;
    let deps = autoscale::Deps {
        control: Arc::clone(&on.api),
        informers: on.informers.clone(),
        options: settings.controllers.autoscale,
    };
    autoscale::start(&deps, tasks).await;
    Ok(())
}
