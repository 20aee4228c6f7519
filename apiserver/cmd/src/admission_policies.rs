//! Keeps the admission policies of a server up to date with those that it stores.

use std::sync::Arc;

use admission::ExpressionAuthorizer;
use admission::policies::{PolicyDispatcher, PolicyParamReader};
use client::{Api, InformerFactory, ListWatchSelector};
use machinery::{Gvr, Object};
use registry::LoopbackApi;

const ADMISSION_GROUP: &str = "admissionregistration.k8s.io";

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
pub(crate) fn watch_policies(
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
    for (resource, set) in &SOURCES {
        let informer = informers.get(&api, &ListWatchSelector::all(resource));
        let (copy, policies) = (informer.clone(), Arc::clone(&policies));
        informer.add_event_handler(move |_| set(&policies, &copy.list()));
    }
    policies
}
