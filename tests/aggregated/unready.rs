//! While the store is unavailable, reads of objects fail with 503, never with 404: a garbage
//! collector that receives 404 for an owner deletes the owner's dependents.

use std::time::{Duration, Instant};

use harness::cluster::FRONT_PROXY;
use harness::{Etcd, etcd};

use crate::auth::ADMIN;
use crate::behind::Behind;

const OWNERS: [&str; 3] = [
    "/apis/policy.karmada.io/v1alpha1/namespaces/default/propagationpolicies/none",
    "/apis/work.karmada.io/v1alpha2/namespaces/default/resourcebindings/none",
    "/apis/work.karmada.io/v1alpha2/clusterresourcebindings/none",
];
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn an_unavailable_store_is_503_not_404() {
    let Some(mut control_plane) = Behind::prepare().await else {
        return;
    };
    let Some(mut own) = tokio::task::block_in_place(|| Etcd::start(etcd::NEW, 1)) else {
        return;
    };
    control_plane.run_with(&["--etcd-servers", &own.endpoints()]);
    control_plane.until_available().await;
    let caller = control_plane.caller().await;
    let proxy = control_plane.host.front_proxy(FRONT_PROXY);
    let codes = || -> Vec<u16> {
        let responses = OWNERS.map(|path| caller.get(path, Some(&proxy), ADMIN).code);
        responses.to_vec()
    };
    tokio::task::block_in_place(|| {
        assert_eq!(codes(), [404; OWNERS.len()]);
        own.nodes[0].daemon.kill();
        assert_eq!(codes(), [503; OWNERS.len()]);
        own.nodes[0].daemon.again();
        own.wait();
        let end = Instant::now() + PATIENCE;
        while codes() != [404; OWNERS.len()] {
            assert!(Instant::now() < end, "{:?}", codes());
        }
    });
}
