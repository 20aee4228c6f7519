//! The registry of a standalone server, and what it needs of the running process.

use std::sync::Arc;

use admission::{AdmissionChain, AdmissionChainOptions, DynamicAdmission};
use admission_configuration::{
    ConfigurationSource, expression_authorizer, resource_authorizer, signer_authorizer,
    watch_policies, watch_webhook_configurations,
};
use anyhow::Context;
use auth::RoleEscalationCheck;
use client::{Api, InformerFactory, TaskGroup};
use flotilla_metrics::MetricsRegistry;
use karmada_api::{FLOTILLA_GROUPS, is_kubefed_group};
use machinery::UserInfo;
use machinery::time::Clock;
use metrics_adapter::MetricsAdapter;
use metrics_adapter::metrics_api::METRICS_GROUPS;
use registry::{LoopbackApi, Registry, RegistryOptions};
use watchcache::WatchCaches;
use webhook_client::{ServiceRouting, WebhookClientManager};

use super::options::StandaloneServerOptions;
use super::request_access::RequestAccess;
use crate::storage_engine::OpenedStorageEngine;
use crate::watch_cache_config::watch_cache_config;
use crate::{running_server, script_flags};

pub(super) struct StandaloneResources {
    pub(super) watch_caches: Arc<WatchCaches>,
    pub(super) registry: Arc<Registry>,
    pub(super) loopback: Arc<LoopbackApi>,
    /// The loopback, with the rights of the internal superuser.
    pub(super) api: Arc<dyn Api>,
    pub(super) metrics_adapter: MetricsAdapter,
    pub(super) serves_group: fn(&str) -> bool,
}

impl StandaloneResources {
    /// Builds the registry, and writes the initial objects.
    pub(super) async fn open(
        options: &mut StandaloneServerOptions<'_>,
        engine: &OpenedStorageEngine,
        access: &RequestAccess,
        metrics: &MetricsRegistry,
        clock: &Arc<dyn Clock>,
    ) -> anyhow::Result<Self> {
        let chain = admission_chain(options, access, clock);
        let watch_caches = WatchCaches::new(engine.store(), watch_cache_config());
        let metrics_adapter = MetricsAdapter::default();
        let mut computed_resources = std::mem::take(&mut options.computed_resources);
        if options.federation {
            computed_resources.extend(metrics_adapter.computed_resources());
        }
        let serves_group: fn(&str) -> bool = match options.federation {
            true => |_| true,
            false => |group| {
                !group.ends_with(".karmada.io")
                    && !is_kubefed_group(group)
                    && !FLOTILLA_GROUPS.contains(&group)
            },
        };
        let registry_options = RegistryOptions {
            clock: Arc::clone(clock),
            create_handlers: flotilla_http::creators(&access.authenticator, &access.authorizer),
            computed_resources,
            dynamic_groups: match options.federation || options.annotated_metrics {
                true => METRICS_GROUPS,
                false => &[],
            },
            raw_path_handler: Arc::new(running_server::non_resource_path),
            serves_group,
            metrics: metrics.clone(),
            shared_store: options.storage_backend.is_shared(),
            store_health: engine.probe(),
            insecure_agent_registration: options.insecure_agent_registration,
            role_escalation: Some(RoleEscalationCheck::new(
                Arc::clone(&access.rbac),
                Arc::new(access.authorizer.clone()),
            )),
            ..RegistryOptions::new(Arc::clone(&chain))
        };
        let registry = Registry::new(engine.store(), Arc::clone(&watch_caches), registry_options);
        registry
            .bootstrap()
            .await
            .context("cannot write the initial objects")?;
        let loopback = LoopbackApi::new(Arc::clone(&registry), UserInfo::internal());
        let api: Arc<dyn Api> = Arc::clone(&loopback) as _;
        chain.set_api(Arc::clone(&api));
        Ok(Self {
            watch_caches,
            registry,
            loopback,
            api,
            metrics_adapter,
            serves_group,
        })
    }

    /// Follows the stored definitions, and the webhooks and policies of admission. Resolves when all
    /// of these are known: no request may pass by one that is not. The informers keep them up to
    /// date until they are dropped.
    pub(super) async fn start_admission(
        &self,
        access: &RequestAccess,
        tasks: &TaskGroup,
    ) -> InformerFactory {
        let (api, registry) = (&self.api, &self.registry);
        let webhook_client = WebhookClientManager::new(api, ServiceRouting::Endpoints, tasks);
        registry.set_conversion_webhook_client(Arc::clone(&webhook_client) as _);
        let (definitions, shutdown) = (Arc::clone(registry), tasks.shutdown().clone());
        tasks.spawn(async move {
            let stopped = async move { shutdown.wait().await };
            definitions.run(stopped).await;
        });
        let informers = InformerFactory::new(tasks);
        let expressions = expression_authorizer(access.authorizer.clone());
        let webhooks = watch_webhook_configurations(
            ConfigurationSource::Own,
            api,
            &informers,
            Arc::clone(&self.loopback) as _,
            webhook_client,
            Arc::clone(&expressions),
        );
        let policies = watch_policies(&self.loopback, &informers, expressions);
        registry.set_dynamic_admission(DynamicAdmission::new(webhooks, policies));
        informers.wait_for_cache_sync().await;
        informers
    }
}

fn admission_chain(
    options: &StandaloneServerOptions<'_>,
    access: &RequestAccess,
    clock: &Arc<dyn Clock>,
) -> Arc<AdmissionChain> {
    let authorizer = &access.authorizer;
    Arc::new(AdmissionChain::new(AdmissionChainOptions {
        clock: Arc::clone(clock),
        allow_no_execute_taints: options.allow_no_execute,
        customization_script_validator: Some(script_flags::script_validator(options.scripts)),
        feature_gates: options.gates,
        deletion_protection: options.federation,
        resource_authorizer: Some(resource_authorizer(authorizer.clone())),
        signer_authorizer: Some(signer_authorizer(authorizer.clone())),
        insecure_agent_registration: options.insecure_agent_registration,
    }))
}
