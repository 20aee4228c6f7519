//! A host, Flotilla and members that are real clusters, from the first start to
//! restarts of everything.

use crate::behind::Behind;
use crate::world::{Members, join};
use crate::{adopted, collection, kubectl, propagation, restarts};

#[tokio::test(flavor = "multi_thread")]
async fn everything_behind_a_kube_apiserver() {
    let (Some(mut behind), Some(members)) = tokio::join!(Behind::start_on_etcd(), Members::start())
    else {
        return;
    };
    behind.until_available().await;
    for member in &members.all {
        join(&behind.control, &behind.host.kubeconfig, member).await;
    }
    kubectl::story(&behind).await;
    propagation::story(&behind.control, &members, "behind").await;
    adopted::story(&behind.control, &members, "adopted-behind").await;
    collection::story(&mut behind, &members).await;
    behind.stop();
    behind.run();
    behind.until_available().await;
    restarts::story(&mut behind, &members).await;
}
