//! Fixtures for the tests of this crate.

use client::ApiResource;
use client_fake::FakeApi;
use machinery::Gvr;

use super::host_objects::ApiServiceTarget;

/// The Service by which the host reaches the tested server.
pub(super) fn service() -> ApiServiceTarget {
    ApiServiceTarget {
        namespace: "flotilla-system".into(),
        name: "flotilla".into(),
        port: 443,
    }
}

/// Makes a host serve a cluster-scoped resource.
pub(super) fn serve(host: &FakeApi, resource: &Gvr) {
    host.add_resource(ApiResource {
        resource: resource.clone(),
        kind: "X".into(),
        namespaced: false,
        verbs: vec![],
        subresources: vec![],
        categories: vec![],
        short_names: vec![],
    });
}
