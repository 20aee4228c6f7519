//! The admission webhooks of the host: informers on its webhook configurations keep the
//! webhooks of the admission chain up to date.

use std::sync::Arc;

use admission::webhooks::{NamespaceLookup, WebhookDispatcher};
use client::{Api, InformerFactory, ListWatchSelector, TaskGroup};
use machinery::Gvr;

use crate::webhook_client::{UnknownServicePolicy, WebhookClientManager};

const ADMISSION_GROUP: &str = "admissionregistration.k8s.io";
static MUTATING: Gvr = Gvr::from_static(ADMISSION_GROUP, "v1", "mutatingwebhookconfigurations");
static VALIDATING: Gvr = Gvr::from_static(ADMISSION_GROUP, "v1", "validatingwebhookconfigurations");

/// The webhooks of a host, updated when its configurations change.
pub(super) fn watch_host_webhooks(
    host: &Arc<dyn Api>,
    informers: &InformerFactory,
    namespaces: Arc<dyn NamespaceLookup>,
    connections: &TaskGroup,
) -> Arc<WebhookDispatcher> {
    let caller = WebhookClientManager::new(host, UnknownServicePolicy::Reject, connections);
    let hooks = WebhookDispatcher::new(caller, namespaces, registry::apply_webhook_patch);
    for (resource, mutating) in [(&MUTATING, true), (&VALIDATING, false)] {
        let informer = informers.get(host, &ListWatchSelector::all(resource));
        let (copy, hooks) = (informer.clone(), Arc::clone(&hooks));
        informer.add_event_handler(move |_| {
            let all = copy.list();
            match mutating {
                true => hooks.set_mutating(&all),
                false => hooks.set_validating(&all),
            }
        });
    }
    hooks
}
