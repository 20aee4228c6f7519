//! Finds the member clusters of a command and reaches them through the cluster proxy of the
//! control plane, with the user's own credentials.

use anyhow::{Context, ensure};
use client::Api;
use client::remote::RestConfig;
use openapi::karmada::resources::CLUSTERS;

use crate::object_lists::list_all;

/// The names of all registered clusters, sorted.
pub(crate) async fn list_cluster_names(api: &dyn Api) -> anyhow::Result<Vec<String>> {
    let clusters = list_all(api, &CLUSTERS, "").await?;
    let mut names: Vec<String> = clusters.iter().map(|c| c.name().to_owned()).collect();
    names.sort();
    Ok(names)
}

/// Refuses names that no registered cluster has.
pub(crate) async fn verify_clusters_exist(api: &dyn Api, names: &[String]) -> anyhow::Result<()> {
    let registered = list_cluster_names(api).await?;
    let unknown: Vec<&str> = names
        .iter()
        .map(String::as_str)
        .filter(|name| !registered.iter().any(|r| r == name))
        .collect();
    ensure!(
        unknown.is_empty(),
        "clusters don't exist: {}; `flotilla get clusters` lists them",
        unknown.join(",")
    );
    Ok(())
}

/// The URL of a registered member behind the cluster proxy.
pub(crate) fn proxy_url(control: &RestConfig, cluster: &str) -> String {
    let base = control.server.to_string();
    let base = base.trim_end_matches('/');
    format!("{base}/apis/cluster.karmada.io/v1alpha1/clusters/{cluster}/proxy")
}

/// The configuration for a registered member: the control plane's, with the server
/// replaced.
pub(crate) fn member_config(control: &RestConfig, cluster: &str) -> anyhow::Result<RestConfig> {
    let server = proxy_url(control, cluster).parse();
    Ok(RestConfig {
        server: server.with_context(|| format!("the name of the cluster {cluster:?}"))?,
        ..control.clone()
    })
}
