//! Starts all controllers of this crate.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use client::{
    Api, Error, Informer, InformerFactory, ListWatchSelector, TaskGroup, controller_client,
};
use flotilla_runtime::{ReconcileAction, RestMapper, Workqueue, run_workers};
use machinery::time::Clock;
use machinery::{Gvr, UserInfo};
use tokio::sync::watch;

use crate::certificate_signing_requests::CertificateSigner;
use crate::custom_resource_definitions::{DEFINITIONS, ServedBuiltInGroups};
use crate::definition_index::DefinitionIndex;
use crate::deletable_resources::deletable_resources;
use crate::garbage_collector::GarbageCollector;
use crate::service_account_tokens::TokenIssuer;
use crate::shutdown_waits::wait_for_cache_sync;
use crate::validating_policy_status::PolicyTypeChecker;
use crate::{
    certificate_signing_requests, cluster_info, cluster_role_aggregation,
    custom_resource_definitions, disruption, extension_authentication, namespace_deletion,
    resource_quotas, service_account_tokens, service_accounts, token_cleaner, ttl_after_finished,
    validating_policy_status,
};

const REDISCOVERY_DELAY: Duration = Duration::from_millis(200);

/// Options of the controllers.
#[derive(Clone)]
pub struct KubeControllersOptions {
    pub clock: Arc<dyn Clock>,
    /// Which API groups of the catalog the server serves, as configured in the registry.
    pub serves_group: fn(&str) -> bool,
    /// PEM of the authorities that sign the serving certificate; it may change.
    pub root_ca: watch::Receiver<String>,
    /// PEM of the authorities of client certificates; it may change.
    pub client_ca: watch::Receiver<String>,
    pub issue_token: TokenIssuer,
    pub sign_certificate: CertificateSigner,
    pub type_check: PolicyTypeChecker,
    /// The URL in `kube-public/cluster-info`; without it bootstrap tokens have no effect.
    pub cluster_info_url: Option<String>,
}

/// Starts all controllers of this crate; they end with `tasks`.
pub async fn start(
    api: Arc<dyn Api>,
    options: KubeControllersOptions,
    informers: &InformerFactory,
    tasks: &TaskGroup,
) -> Result<(), Error> {
    let rest_mapper = Arc::new(RestMapper::new(Arc::clone(&api)));
    let clock = &options.clock;
    let built_in = ServedBuiltInGroups {
        serves: options.serves_group,
    };
    let client = |account| controller_client(&api, &UserInfo::kube_controller(account));
    let (server, mapper) = (
        client("generic-garbage-collector"),
        Arc::clone(&rest_mapper),
    );
    let collector = GarbageCollector::new(server, mapper, Arc::clone(clock), tasks);
    let served = informers.get(&api, &ListWatchSelector::all(&DEFINITIONS));
    if !wait_for_cache_sync(tasks, [&served]).await {
        return Ok(());
    }
    rest_mapper.refresh().await?;
    let definitions = DefinitionIndex::new(&served);
    let custom = custom_resource_filter(&served, built_in);
    collector.sync_monitors(informers, &custom, tasks).await;
    collector.run(tasks);
    let discovery = DiscoveryWorker {
        rest_mapper: Arc::clone(&rest_mapper),
        collector,
        definitions: Arc::clone(&definitions),
        informers: informers.clone(),
        custom,
        tasks: tasks.clone(),
    };
    discovery.run(&served);
    let quotas = client("resourcequota-controller");
    resource_quotas::start(quotas, Arc::clone(&rest_mapper), informers, tasks);
    disruption::start(
        client("disruption-controller"),
        Arc::clone(&rest_mapper),
        Arc::clone(clock),
        informers,
        tasks,
    );
    namespace_deletion::start(
        client("namespace-controller"),
        rest_mapper,
        Arc::clone(clock),
        informers,
        tasks,
    );
    custom_resource_definitions::start(
        Arc::clone(&api),
        Arc::clone(clock),
        built_in,
        &definitions,
        informers,
        tasks,
    );
    certificate_signing_requests::start(
        client("certificate-controller"),
        options.sign_certificate,
        Arc::clone(clock),
        informers,
        tasks,
    );
    let ttl = client("ttl-after-finished-controller");
    ttl_after_finished::start(ttl, Arc::clone(clock), informers, tasks);
    let aggregation = client("clusterrole-aggregation-controller");
    cluster_role_aggregation::start(aggregation, informers, tasks);
    extension_authentication::start(Arc::clone(&api), options.client_ca, informers, tasks);
    let policy_status = client("validatingadmissionpolicy-status-controller");
    validating_policy_status::start(policy_status, options.type_check, informers, tasks);
    if let Some(url) = options.cluster_info_url {
        let cleaner = client("token-cleaner");
        token_cleaner::start(cleaner, Arc::clone(clock), informers, tasks);
        let root_ca = options.root_ca.clone();
        let clock = Arc::clone(clock);
        let signer = client("bootstrap-signer");
        cluster_info::start(signer, url, root_ca, clock, informers, tasks);
    }
    let accounts = client("service-account-controller");
    service_accounts::start(accounts, options.root_ca.clone(), informers, tasks);
    let tokens = client("tokens-controller");
    service_account_tokens::start(
        tokens,
        options.root_ca,
        options.issue_token,
        informers,
        tasks,
    );
    Ok(())
}

/// Returns whether a resource belongs to a definition, by its name. A built-in resource
/// stays when a definition of the same name is deleted.
fn custom_resource_filter(
    definitions: &Informer,
    built_in: ServedBuiltInGroups,
) -> impl Fn(&Gvr) -> bool + Clone + use<> {
    let definitions = definitions.clone();
    move |gvr| definitions.get("", &gvr.group_resource()).is_some() && !built_in.contains(gvr)
}

/// Rediscovers the resources and monitors whenever a definition changes.
struct DiscoveryWorker<F> {
    rest_mapper: Arc<RestMapper>,
    collector: Arc<GarbageCollector>,
    definitions: Arc<DefinitionIndex>,
    informers: InformerFactory,
    /// Whether a resource belongs to a definition.
    custom: F,
    tasks: TaskGroup,
}

impl<F: Fn(&Gvr) -> bool + Send + Sync + 'static> DiscoveryWorker<F> {
    fn run(self, served: &Informer) {
        let queue: Workqueue<()> = Workqueue::new();
        let wake = queue.clone();
        served.add_event_handler(move |_| wake.add(()));
        let worker = Arc::new(self);
        let tasks = worker.tasks.clone();
        run_workers(&tasks, "discovery", &queue, 1, move |()| {
            let worker = Arc::clone(&worker);
            async move { worker.reconcile().await }
        });
    }

    async fn reconcile(&self) -> Result<ReconcileAction, Error> {
        self.rest_mapper.refresh().await?;
        self.collector
            .sync_monitors(&self.informers, &self.custom, &self.tasks)
            .await;
        // The server applies a definition, or its deletion, a moment after the write.
        let resources = deletable_resources(&self.rest_mapper);
        let served: HashSet<(&str, &str)> = resources
            .iter()
            .map(|r| (&*r.mapping.gvr.group, &*r.mapping.gvr.resource))
            .collect();
        let is_served = |group: &str, plural: &str| served.contains(&(group, plural));
        let complete = self.definitions.all_established(is_served)
            && !self.collector.has_stale_monitor(&self.custom);
        Ok(if complete {
            ReconcileAction::Done
        } else {
            ReconcileAction::RequeueAfter(REDISCOVERY_DELAY)
        })
    }
}
