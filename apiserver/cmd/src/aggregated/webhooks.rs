//! The admission webhooks of the host: informers on its webhook configurations keep the
//! webhooks of the admission chain up to date.

use std::sync::Arc;

use admission::webhooks::{Namespaces, Webhooks};
use client::{Api, Informers, Select, Tasks};
use machinery::Gvr;

use crate::webhooks::{Absent, Calls};

const GROUP: &str = "admissionregistration.k8s.io";
static MUTATING: Gvr = Gvr::constant(GROUP, "v1", "mutatingwebhookconfigurations");
static VALIDATING: Gvr = Gvr::constant(GROUP, "v1", "validatingwebhookconfigurations");

/// The webhooks of a host, updated when its configurations change.
pub(super) fn follow(
    host: &Arc<dyn Api>,
    informers: &Informers,
    namespaces: Arc<dyn Namespaces>,
    connections: &Tasks,
) -> Arc<Webhooks> {
    let caller = Calls::new(host, Absent::Refused, connections);
    let hooks = Webhooks::new(caller, namespaces, registry::apply_patch);
    for (resource, mutating) in [(&MUTATING, true), (&VALIDATING, false)] {
        let informer = informers.get(host, &Select::all(resource));
        let (copy, hooks) = (informer.clone(), Arc::clone(&hooks));
        informer.on_change(move |_| {
            let all = copy.list();
            match mutating {
                true => hooks.set_mutating(&all),
                false => hooks.set_validating(&all),
            }
        });
    }
    hooks
}
