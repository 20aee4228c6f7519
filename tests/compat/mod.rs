//! Compatibility with clients of Karmada and Kubernetes: the cluster proxy byte by byte, and the
//! requests of karmadactl.
//!
//! Member clusters are servers of the test, so that the test checks the requests they receive
//! and chooses their responses, or simulated clusters where these suffice.

/// A running control plane or simulated cluster.
mod test_server;

/// The cluster proxy: requests, streams, impersonation and errors.
mod proxy;

/// The cluster proxy: members that are reached through a proxy.
mod proxy_connect;

/// The cluster proxy: uid and extras of users.
mod proxy_identity;

/// The cluster proxy: upgraded connections.
mod upgrade;

/// Logs and exec in simulated clusters.
mod containers;

/// The requests of karmadactl.
pub(crate) mod karmadactl;

/// How requests of karmadactl are sent and checked.
pub(crate) mod karmadactl_requests;

/// The requests of `karmadactl top`.
pub(crate) mod karmadactl_top;

/// The metrics of all members in the control plane.
mod metrics_adapter;

/// The custom and external metrics of all members in the control plane.
mod custom_metrics_adapter;

/// The requests of karmadactl that look into a member, and of a removal by force.
mod karmadactl_debug;

#[tokio::test(flavor = "multi_thread")]
async fn karmadactl_looks_into_a_member() {
    let start = tokio::task::spawn_blocking(containers::ContainersFixture::start);
    let fixture = start.await.unwrap();
    karmadactl_debug::replay(&fixture.control.admin, "m1").await;
}

/// The requests of karmadactl for members in pull mode, and of Karmada's agent.
mod karmadactl_pull;

// proves: PUL-karmada-agent
#[tokio::test(flavor = "multi_thread")]
async fn karmadas_agent_works_with_the_rights_that_karmadactl_gives_it() {
    let start = tokio::task::spawn_blocking(test_server::CompatTestServer::start);
    let server = start.await.unwrap();
    karmadactl_pull::replay(&server).await;
}

// proves: TOP-requests
#[tokio::test(flavor = "multi_thread")]
async fn karmadactl_requests_work_in_standalone_mode() {
    let servers = tokio::task::spawn_blocking(|| {
        (
            test_server::CompatTestServer::start(),
            test_server::CompatTestServer::start_member(),
        )
    });
    let (control, member) = servers.await.unwrap();
    karmadactl::replay(&control.admin, &member.admin, "legacy1").await;
    let start = || test_server::CompatTestServer::start_member_with(&["--resource-metrics=false"]);
    let without_metrics = tokio::task::spawn_blocking(start).await.unwrap();
    for (server, name, has_metrics) in [
        (&member, "measured", true),
        (&without_metrics, "unmeasured", false),
    ] {
        karmadactl::join(&control.admin, &server.admin, name).await;
        let served = karmadactl_top::replay(&control.admin, name).await;
        assert_eq!(served, has_metrics, "{name}");
    }
}
