//! Starts all controllers of this crate.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use client::{Error, Informer, InformerFactory, TaskGroup, controller_client};
use flotilla_runtime::{ControllerContext, ReconcileAction, RestMapper, Workqueue, run_workers};
use machinery::{Gvr, UserInfo};
use tokio::sync::watch;

use crate::certificate_signing_requests::CertificateSigner;
use crate::cluster_info::ClusterInfoOptions;
use crate::custom_resource_definitions::{DEFINITIONS, DefinitionOptions, ServedBuiltInGroups};
use crate::definition_index::DefinitionIndex;
use crate::deletable_resources::deletable_resources;
use crate::garbage_collector::GarbageCollector;
use crate::service_account_tokens::{ServiceAccountTokenOptions, TokenIssuer};
use crate::shutdown_waits::wait_for_cache_sync;
use crate::validating_policy_status::PolicyTypeChecker;
use crate::{
    certificate_signing_requests, cluster_info, cluster_role_aggregation,
    custom_resource_definitions, disruption, extension_authentication, namespace_deletion,
    resource_quotas, service_account_tokens, service_accounts, token_cleaner, ttl_after_finished,
    validating_policy_status,
};

const REDISCOVERY_DELAY: Duration = Duration::from_millis(200);

/// What the controllers work with beside their context.
#[derive(Clone)]
pub struct KubeControllersOptions {
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

/// Starts all controllers of this crate; they end with the tasks of the context.
pub async fn start(
    context: &ControllerContext,
    options: KubeControllersOptions,
) -> Result<(), Error> {
    let rest_mapper = Arc::new(RestMapper::new(Arc::clone(&context.control_plane)));
    let built_in = ServedBuiltInGroups {
        serves: options.serves_group,
    };
    let definitions = context.informer(&DEFINITIONS);
    let collector = GarbageCollector::new(
        &context_of_account(context, "generic-garbage-collector"),
        Arc::clone(&rest_mapper),
    );
    if !wait_for_cache_sync(&context.tasks, [&definitions]).await {
        return Ok(());
    }
    rest_mapper.refresh().await?;
    let index = DefinitionIndex::new(&definitions);
    let custom = custom_resource_filter(&definitions, built_in);
    collector
        .sync_monitors(&context.informers, &custom, &context.tasks)
        .await;
    collector.run(&context.tasks);
    let discovery = DiscoveryWorker {
        rest_mapper: Arc::clone(&rest_mapper),
        collector,
        definitions: Arc::clone(&index),
        informers: context.informers.clone(),
        custom,
        tasks: context.tasks.clone(),
    };
    discovery.run(&definitions);
    let definitions = DefinitionOptions { built_in, index };
    custom_resource_definitions::start(context, definitions);
    start_controllers_of_resources(context, &rest_mapper);
    start_controllers_of_accounts(context, options);
    Ok(())
}

/// The context of a controller that acts as an account of kube-controller-manager.
fn context_of_account(context: &ControllerContext, account: &str) -> ControllerContext {
    ControllerContext {
        control_plane: controller_client(
            &context.control_plane,
            &UserInfo::kube_controller(account),
        ),
        ..context.clone()
    }
}

/// Starts the controllers that count, finish and delete resources.
fn start_controllers_of_resources(context: &ControllerContext, rest_mapper: &Arc<RestMapper>) {
    let of = |account| context_of_account(context, account);
    resource_quotas::start(&of("resourcequota-controller"), Arc::clone(rest_mapper));
    disruption::start(&of("disruption-controller"), Arc::clone(rest_mapper));
    namespace_deletion::start(&of("namespace-controller"), Arc::clone(rest_mapper));
    ttl_after_finished::start(&of("ttl-after-finished-controller"));
}

/// Starts the controllers of accounts, their tokens, certificates and rights.
fn start_controllers_of_accounts(context: &ControllerContext, options: KubeControllersOptions) {
    let of = |account| context_of_account(context, account);
    certificate_signing_requests::start(&of("certificate-controller"), options.sign_certificate);
    cluster_role_aggregation::start(&of("clusterrole-aggregation-controller"));
    extension_authentication::start(context, options.client_ca);
    validating_policy_status::start(
        &of("validatingadmissionpolicy-status-controller"),
        options.type_check,
    );
    if let Some(server_url) = options.cluster_info_url {
        token_cleaner::start(&of("token-cleaner"));
        let cluster_info = ClusterInfoOptions {
            server_url,
            root_ca: options.root_ca.clone(),
        };
        cluster_info::start(&of("bootstrap-signer"), cluster_info);
    }
    service_accounts::start(&of("service-account-controller"), options.root_ca.clone());
    let tokens = ServiceAccountTokenOptions {
        root_ca: options.root_ca,
        issue_token: options.issue_token,
    };
    service_account_tokens::start(&of("tokens-controller"), tokens);
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
