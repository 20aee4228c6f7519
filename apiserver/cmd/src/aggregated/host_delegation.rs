//! The tasks that an aggregated server leaves to its host: authentication, authorization, namespaces,
//! policies and the configurations of webhooks.

use std::sync::Arc;

use admission::webhooks::WebhookDispatcher;
use auth::delegated::{DelegatedAuthOptions, DelegatingAuthenticator, DelegatingAuthorizer};
use client::{Api, InformerFactory, TaskGroup};
use flotilla_http::{ApiServer, ApiServerOptions, HealthCheck, HealthProbe};
use machinery::time::Clock;
use registry::Registry;

use super::host_namespaces::HostNamespaceLookup;
use super::host_policies::HostPolicies;
use crate::admission_webhooks::{ConfigurationSource, watch_webhook_configurations};
use crate::expression_access;
use crate::running_server::check_synced;
use crate::storage_engine::OpenedStorageEngine;
use crate::webhook_client::{ServiceRouting, WebhookClientManager};

pub(super) struct HostDelegation {
    /// Informers of the host's objects.
    pub(super) informers: InformerFactory,
    pub(super) authenticator: Arc<DelegatingAuthenticator>,
    pub(super) authorizer: Arc<DelegatingAuthorizer>,
    pub(super) namespaces: Arc<HostNamespaceLookup>,
    pub(super) webhooks: Arc<WebhookDispatcher>,
    pub(super) policies: Arc<HostPolicies>,
}

impl HostDelegation {
    /// Starts to follow the host in `tasks`; connections to webhooks are made in
    /// `connection_tasks`.
    pub(super) fn start(
        host: &Arc<dyn Api>,
        clock: &Arc<dyn Clock>,
        options: &DelegatedAuthOptions,
        connection_tasks: &TaskGroup,
        tasks: &TaskGroup,
    ) -> Self {
        let informers = InformerFactory::new(tasks);
        let authenticator =
            DelegatingAuthenticator::new(Arc::clone(host), Arc::clone(clock), options);
        tasks.spawn(authenticator.run(Arc::clone(host), tasks.shutdown().clone()));
        let authorizer = DelegatingAuthorizer::new(Arc::clone(host), options);
        let namespaces = HostNamespaceLookup::new(host, &informers);
        let expressions = expression_access::expression_authorizer(Arc::clone(&authorizer));
        let policies = HostPolicies::start(
            host,
            Arc::clone(&namespaces) as _,
            Arc::clone(&expressions),
            &informers,
            tasks,
        );
        let webhooks = watch_webhook_configurations(
            ConfigurationSource::Host,
            host,
            &informers,
            Arc::clone(&namespaces) as _,
            WebhookClientManager::new(host, ServiceRouting::ClusterIp, connection_tasks),
            expressions,
        );
        Self {
            informers,
            authenticator,
            authorizer,
            namespaces,
            webhooks,
            policies,
        }
    }

    /// A probe that fails until the store, the trust in the host and the informers are ready.
    pub(super) fn readiness_probe(&self, engine: &OpenedStorageEngine) -> HealthProbe {
        let store = engine.probe();
        let (authenticator, informers) = (Arc::clone(&self.authenticator), self.informers.clone());
        let policies = Arc::clone(&self.policies);
        Arc::new(move || {
            store()?;
            authenticator.ready()?;
            policies.ready()?;
            check_synced(&informers)
        })
    }

    pub(super) fn health_checks(&self) -> [HealthCheck; 2] {
        let (authenticator, informers) = (Arc::clone(&self.authenticator), self.informers.clone());
        let policies = Arc::clone(&self.policies);
        [
            HealthCheck::readiness("host-trust", move || authenticator.ready()),
            HealthCheck::readiness("host-sync", move || {
                policies.ready()?;
                check_synced(&informers)
            }),
        ]
    }

    /// A server of the registry, with the host's authentication and authorization.
    pub(super) fn http_server(
        &self,
        registry: Arc<Registry>,
        options: ApiServerOptions,
    ) -> ApiServer {
        let (authenticator, authorizer) = (&self.authenticator, &self.authorizer);
        ApiServer::new(
            registry,
            Arc::clone(authenticator),
            Arc::clone(authorizer),
            options,
        )
    }
}
