//! While it is not known what exists, nothing is said not to exist: a garbage
//! collector that hears 404 of an owner deletes what depends on it.

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
async fn nothing_is_missing_while_the_store_is_away() {
    let own = tokio::task::spawn_blocking(|| Etcd::start(etcd::NEW, 1));
    let (Some(mut behind), Some(mut own)) = (Behind::prepare().await, own.await.unwrap()) else {
        return;
    };
    behind.run_with(&["--etcd-servers", &own.endpoints()]);
    behind.until_available().await;
    let caller = behind.caller().await;
    let proxy = behind.host.front_proxy(FRONT_PROXY);
    let codes = || -> Vec<u16> {
        let asked = OWNERS.map(|path| caller.get(path, Some(&proxy), ADMIN).code);
        asked.to_vec()
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
