//! Starts the controllers of a server, as Karmada's controller manager and scheduler do.
//!
//! They are started again in each term of leadership, so nothing here outlives the tasks
//! of its [`ControllerContext`].

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

/// The clients and tasks of the controllers.
pub(crate) struct Base {
    pub(crate) api: Arc<dyn Api>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) informers: Informers,
    pub(crate) tasks: Tasks,
    /// The scheduler's last decisions, for the subresource `decision`.
    pub(crate) decisions: Decisions,
    /// Connects to members.
    pub(crate) connector: Arc<dyn Connector>,
}

impl Base {
    /// The context of a process without leader election, whose controllers run as long as
    /// the process.
    pub(crate) fn alone(server: &Plane) -> Self {
        Self {
            api: Arc::clone(&server.api),
            clock: Arc::clone(&server.clock),
            informers: server.informers.clone(),
            tasks: server.controllers.clone(),
            decisions: server.decisions.clone(),
            connector: Arc::new(RemoteConnector::default()),
        }
    }
}

/// The token signer and root CA of service accounts, and which groups are served.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) signer: Arc<Signer>,
    pub(crate) serves: fn(&str) -> bool,
    pub(crate) root_ca: watch::Receiver<String>,
}

/// Starts the controllers of kube-controller-manager that every server needs: garbage
/// collection, namespaces, service accounts and tokens.
pub(crate) async fn housekeeping(context: &Base, identity: &Identity) -> anyhow::Result<()> {
    let signer = Arc::clone(&identity.signer);
    let options = flotilla_kube::Options {
        clock: Arc::clone(&context.clock),
        serves: identity.serves,
        root_ca: identity.root_ca.clone(),
        issue: Arc::new(move |namespace, account, uid, secret| {
            signer
                .issue_for_secret(namespace, account, uid, secret)
                .map_err(|e| e.to_string())
        }),
    };
    flotilla_kube::start(
        Arc::clone(&context.api),
        options,
        &context.informers,
        &context.tasks,
    )
    .await?;
    Ok(())
}

/// The options of the multi-cluster controllers. The default is for a standalone server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) clusters: ClusterOptions,
    pub(crate) templates: Templates,
    pub(crate) scheduling: Scheduling,
    pub(crate) controllers: Controllers,
    pub(crate) scripts: Limits,
    /// The feature gates.
    pub(crate) gates: FeatureGates,
    /// Whether ClusterTaintPolicies may use the effect NoExecute.
    pub(crate) allow_no_execute: bool,
}

impl Settings {
    /// The default options with other feature gates.
    pub(crate) fn with(gates: FeatureGates) -> Self {
        Self {
            scheduling: Scheduling::with(gates),
            gates,
            ..Self::default()
        }
    }
}

/// Starts the multi-cluster controllers and the scheduler.
pub(crate) async fn federation(context: &Base, settings: &Settings) -> anyhow::Result<()> {
    let tasks = &context.tasks;
    let host = settings.templates.workloads(context);
    let recorder = |component| {
        Recorder::new(
            Arc::clone(&context.api),
            component,
            Arc::clone(&context.clock),
            tasks,
        )
    };
    let connector = Arc::clone(&context.connector);
    let Scheduling {
        name,
        rules,
        estimators,
    } = &settings.scheduling;
    let detail = Detail {
        nodes: estimators.is_some(),
        quotas: estimators.as_ref().is_some_and(|e| e.quotas),
    };
    let host_api = Arc::clone(&context.api);
    let members = Members::telling(detail, host_api, &context.informers, connector, tasks);
    // Without this, Works would report a member as unreachable whose Secret the informer
    // does not have yet.
    members.wait_synced().await;
    let informer = context.informers.get(&context.api, &Select::all(&CLUSTERS));
    let all = Clusters::under(informer, *rules);
    let manager = recorder(CONTROLLER_MANAGER);
    let outside = Outside {
        caller: Calls::new(&context.api, Absent::ByName, tasks),
        apply: registry::apply_patch,
    };
    let interpreter =
        Interpreter::follow(&context.informers, &context.api, settings.scripts, outside);
    clusters::start(clusters::Deps {
        control: Arc::clone(&context.api),
        members: members.clone(),
        recorder: manager.clone(),
        interpreter: interpreter.clone(),
        clock: Arc::clone(&context.clock),
        informers: context.informers.clone(),
        tasks: tasks.clone(),
        options: ClusterOptions {
            gates: settings.gates,
            ..settings.clusters.clone()
        },
    });
    Scheduler::start(
        Arc::clone(&context.api),
        Arc::clone(&context.clock),
        recorder(name),
        all.clone(),
        scheduler::Options {
            name: name.clone(),
            gates: settings.gates,
            decisions: context.decisions.clone(),
            estimators: estimators.clone().map(|options| {
                Estimator::start(&context.api, &context.informers, &members, options, tasks)
            }),
        },
        &context.informers,
        tasks,
    );
    flotilla_status::start(flotilla_status::Deps {
        control: Arc::clone(&context.api),
        members: Arc::new(members.clone()),
        clusters: all.clone(),
        recorder: manager.clone(),
        interpreter: interpreter.clone(),
        clock: Arc::clone(&context.clock),
        informers: context.informers.clone(),
        host: host.clone(),
        tasks: tasks.clone(),
    });
    let deps = propagation::Deps {
        control: Arc::clone(&context.api),
        members: Arc::new(members),
        clusters: all,
        recorder: manager,
        interpreter,
        clock: Arc::clone(&context.clock),
        informers: context.informers.clone(),
        host,
        options: propagation::Options {
            scheduler_name: name.clone(),
            gates: settings.gates,
            quota_resync: settings.controllers.quota_resync,
            decisions: context.decisions.clone(),
            ..settings.templates.options.clone()
        },
    };
    Box::pin(propagation::start(deps, tasks))
        .await
        .map_err(anyhow::Error::msg)?;
    let deps = autoscale::Deps {
        control: Arc::clone(&context.api),
        informers: context.informers.clone(),
        options: settings.controllers.autoscale,
    };
    autoscale::start(&deps, tasks).await;
    Ok(())
}
