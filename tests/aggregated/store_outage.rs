//! While the store is unavailable, reads of objects fail with 503, never with 404: a garbage
//! collector that receives 404 for an owner deletes the owner's dependents.

use std::time::{Duration, Instant};

use harness::EtcdCluster;
use harness::cluster::FRONT_PROXY_NAME;

use crate::aggregated::aggregated_control_plane::AggregatedControlPlane;
use crate::aggregated::auth::ADMIN_HEADERS;

const OWNER_PATHS: [&str; 3] = [
    "/apis/policy.karmada.io/v1alpha1/namespaces/default/propagationpolicies/none",
    "/apis/work.karmada.io/v1alpha2/namespaces/default/resourcebindings/none",
    "/apis/work.karmada.io/v1alpha2/clusterresourcebindings/none",
];
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(60);

/// `own` is Flotilla's etcd.
pub(crate) async fn run_scenario(control_plane: &AggregatedControlPlane, own: &mut EtcdCluster) {
    let caller = control_plane.direct_client().await;
    let proxy = control_plane.host.front_proxy_certificate(FRONT_PROXY_NAME);
    let codes = || -> Vec<u16> {
        let responses = OWNER_PATHS.map(|path| caller.get(path, Some(&proxy), ADMIN_HEADERS).code);
        responses.to_vec()
    };
    tokio::task::block_in_place(|| {
        assert_eq!(codes(), [404; OWNER_PATHS.len()]);
        own.nodes[0].daemon.kill();
        assert_eq!(codes(), [503; OWNER_PATHS.len()]);
        own.nodes[0].daemon.restart();
        own.wait_ready();
        let end = Instant::now() + RECOVERY_TIMEOUT;
        while codes() != [404; OWNER_PATHS.len()] {
            assert!(Instant::now() < end, "{:?}", codes());
        }
    });
}
