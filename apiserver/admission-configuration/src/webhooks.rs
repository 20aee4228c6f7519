//! Keeps the admission webhooks of a server up to date with the webhook configurations that
//! it stores, or that its host has.

use std::sync::Arc;

use admission::ExpressionAuthorizer;
use admission::webhooks::{NamespaceLookup, WebhookDispatcher};
use client::webhook::WebhookClient;
use client::{Api, InformerFactory, ListWatchSelector};
use machinery::{Gvr, Object};

const ADMISSION_GROUP: &str = "admissionregistration.k8s.io";
static MUTATING: Gvr = Gvr::from_static(ADMISSION_GROUP, "v1", "mutatingwebhookconfigurations");
static VALIDATING: Gvr = Gvr::from_static(ADMISSION_GROUP, "v1", "validatingwebhookconfigurations");
const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";

/// The server that has the configurations of admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigurationSource {
    /// This server.
    Own,
    /// The host. Flotilla's own configurations there are skipped, because their rules run
    /// in process.
    Host,
}

/// The webhooks whose configurations `api` has, updated when they change. They are called
/// through `webhook_client`.
pub fn watch_webhook_configurations(
    source: ConfigurationSource,
    api: &Arc<dyn Api>,
    informers: &InformerFactory,
    namespaces: Arc<dyn NamespaceLookup>,
    webhook_client: Arc<dyn WebhookClient>,
    authorizer: Arc<dyn ExpressionAuthorizer>,
) -> Arc<WebhookDispatcher> {
    let hooks = WebhookDispatcher::new(
        webhook_client,
        namespaces,
        registry::apply_webhook_patch,
        authorizer,
    );
    for (resource, mutating) in [(&MUTATING, true), (&VALIDATING, false)] {
        let informer = informers.get(api, &ListWatchSelector::all(resource));
        let (copy, hooks) = (informer.clone(), Arc::clone(&hooks));
        informer.add_event_handler(move |_| {
            let mut all = copy.list();
            retain_foreign(source, &mut all);
            match mutating {
                true => hooks.set_mutating(&all),
                false => hooks.set_validating(&all),
            }
        });
    }
    hooks
}

/// Removes Flotilla's own configurations in the host.
pub(crate) fn retain_foreign(source: ConfigurationSource, all: &mut Vec<Object>) {
    if source == ConfigurationSource::Host {
        all.retain(|configuration| !is_managed_by_flotilla(configuration));
    }
}

fn is_managed_by_flotilla(configuration: &Object) -> bool {
    configuration.meta().label(MANAGED_BY_LABEL) == Some("flotilla")
}
