//! Keeps the admission policies of a server up to date with those that it stores, or that its
//! host has.

use std::sync::Arc;

use admission::ExpressionAuthorizer;
use admission::policies::{PolicyDispatcher, PolicyParamReader};
use client::{Api, InformerFactory, ListWatchSelector};
use machinery::{Gvr, Object};
use registry::LoopbackApi;

use crate::webhooks::{ConfigurationSource, retain_foreign};

pub const ADMISSION_GROUP: &str = "admissionregistration.k8s.io";

/// Replaces the policies or bindings of one kind.
type SetFunction = fn(&PolicyDispatcher, &[Object]);

static SOURCES: [(Gvr, SetFunction); 4] = [
    (
        Gvr::from_static(ADMISSION_GROUP, "v1", "validatingadmissionpolicies"),
        PolicyDispatcher::set_validating,
    ),
    (
        Gvr::from_static(ADMISSION_GROUP, "v1", "validatingadmissionpolicybindings"),
        PolicyDispatcher::set_validating_bindings,
    ),
    (
        Gvr::from_static(ADMISSION_GROUP, "v1", "mutatingadmissionpolicies"),
        PolicyDispatcher::set_mutating,
    ),
    (
        Gvr::from_static(ADMISSION_GROUP, "v1", "mutatingadmissionpolicybindings"),
        PolicyDispatcher::set_mutating_bindings,
    ),
];

/// The policies that the server stores, updated when they change.
pub fn watch_policies(
    loopback: &Arc<LoopbackApi>,
    informers: &InformerFactory,
    authorizer: Arc<dyn ExpressionAuthorizer>,
) -> Arc<PolicyDispatcher> {
    let api: Arc<dyn Api> = Arc::clone(loopback) as _;
    let params = PolicyParamReader::new(Arc::clone(&api), Arc::clone(loopback) as _);
    let policies = PolicyDispatcher::new(
        Arc::clone(loopback) as _,
        params,
        authorizer,
        registry::apply_policy_patch,
    );
    let own = ConfigurationSource::Own;
    watch_served_policies(own, &api, informers, &policies, |_| true);
    policies
}

/// Keeps `policies` up to date with those kinds of policies and bindings that the server of `api`
/// serves.
pub fn watch_served_policies(
    source: ConfigurationSource,
    api: &Arc<dyn Api>,
    informers: &InformerFactory,
    policies: &Arc<PolicyDispatcher>,
    serves: impl Fn(&Gvr) -> bool,
) {
    for (resource, set) in SOURCES.iter().filter(|(resource, _)| serves(resource)) {
        let informer = informers.get(api, &ListWatchSelector::all(resource));
        let (copy, policies) = (informer.clone(), Arc::clone(policies));
        informer.add_event_handler(move |_| {
            let mut all = copy.list();
            retain_foreign(source, &mut all);
            set(&policies, &all);
        });
    }
}
