//! Finds the member clusters of a command and reaches them through the cluster proxy of the
//! control plane, with the user's own credentials.

use std::fmt;
use std::future::Future;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use client::remote::{RemoteApi, RestConfig};
use client::{Api, TaskGroup};
use karmada_api::resources::CLUSTERS;

use crate::kubeconfig_flags::load_cluster_config;
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

/// The configuration for a registered member: that of its kubeconfig, whose context has the name of
/// the cluster by default, or else through the cluster proxy.
pub(crate) fn load_member_config(
    control: &RestConfig,
    cluster: &str,
    kubeconfig: Option<&Path>,
    context: Option<&str>,
) -> anyhow::Result<RestConfig> {
    match kubeconfig {
        None => member_config(control, cluster),
        Some(_) => load_cluster_config(kubeconfig, Some(context.unwrap_or(cluster).to_owned())),
    }
}

/// A registered member and the client for it.
pub(crate) struct MemberServer {
    pub(crate) name: String,
    pub(crate) api: RemoteApi,
}

/// The members with these names, or all registered ones by name.
pub(crate) async fn connect_members(
    control: &dyn Api,
    config: &RestConfig,
    names: &[String],
    tasks: &TaskGroup,
) -> anyhow::Result<Vec<MemberServer>> {
    let names = match names {
        [] => list_cluster_names(control).await?,
        names => {
            verify_clusters_exist(control, names).await?;
            names.to_vec()
        }
    };
    let connect = |name: String| -> anyhow::Result<MemberServer> {
        let api = RemoteApi::new(member_config(config, &name)?, tasks)?;
        Ok(MemberServer { name, api })
    };
    names.into_iter().map(connect).collect()
}

/// Why a member has not done what it was asked.
#[derive(Debug)]
pub(crate) enum MemberFailure {
    /// It has not answered.
    Unreachable(String),
    /// It has answered with an error.
    Refused(String),
}

impl MemberFailure {
    fn from_error(error: &anyhow::Error) -> Self {
        let is_unreachable = error
            .downcast_ref::<client::Error>()
            .is_some_and(is_unreachable);
        match is_unreachable {
            true => Self::Unreachable(format!("{error:#}")),
            false => Self::Refused(format!("{error:#}")),
        }
    }

    /// The failure as one line of warning.
    pub(crate) fn warning(&self, cluster: &str) -> String {
        match self {
            Self::Unreachable(reason) => format!(
                "Warning: cluster({cluster}) is inaccessible, please check authorization or network: {reason}"
            ),
            Self::Refused(reason) => format!("Warning: cluster({cluster}): {reason}"),
        }
    }
}

impl fmt::Display for MemberFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(reason) | Self::Refused(reason) => f.write_str(reason),
        }
    }
}

/// Whether there was no answer, or the answer of a proxy that has got none.
pub(crate) fn is_unreachable(error: &client::Error) -> bool {
    match error {
        client::Error::Status(status) => matches!(status.code, 502..=504),
        client::Error::Transport { .. } => true,
        client::Error::Protocol(_) => false,
    }
}

/// Asks a member, which may take until the deadline to answer.
pub(crate) async fn ask_with_deadline<T>(
    deadline: Duration,
    request: impl Future<Output = anyhow::Result<T>>,
) -> Result<T, MemberFailure> {
    match tokio::time::timeout(deadline, request).await {
        Ok(answer) => answer.map_err(|error| MemberFailure::from_error(&error)),
        Err(_) => Err(MemberFailure::Unreachable(format!(
            "no answer within {} s",
            deadline.as_secs_f64()
        ))),
    }
}
