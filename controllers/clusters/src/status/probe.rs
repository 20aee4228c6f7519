//! The requests to a member: health, version and discovery, each with a timeout.

use std::future::Future;
use std::time::Duration;

use client::{Api, Error, Result};
use serde::Deserialize;

use super::cluster_status::MemberApiInfo;
use crate::condition::ConditionUpdate;

const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(30);

/// Probes whether the member is reachable and healthy. Unlike in Karmada, a server that
/// responds with an error is not ready, but reachable.
pub(super) async fn probe_health(api: &dyn Api) -> ConditionUpdate {
    let answer = match with_timeout(PROBE_TIMEOUT, api.get_raw("/readyz")).await {
        Err(Error::Status(s)) if s.code == 404 => {
            with_timeout(PROBE_TIMEOUT, api.get_raw("/healthz")).await
        }
        other => other,
    };
    match answer {
        Ok(_) => ConditionUpdate::new(
            "True",
            "ClusterReady",
            "cluster is healthy and ready to accept workloads",
        ),
        Err(Error::Status(_) | Error::Protocol(_)) => ConditionUpdate::new(
            "False",
            "ClusterNotReady",
            "cluster is reachable but health endpoint responded without ok",
        ),
        Err(Error::Transport { .. }) => {
            ConditionUpdate::new("False", "ClusterNotReachable", "cluster is not reachable")
        }
    }
}

/// The version and the APIs; what cannot be read is empty.
pub(super) async fn collect_api_info(api: &dyn Api) -> MemberApiInfo {
    let (version, discovered) = tokio::join!(
        with_timeout(PROBE_TIMEOUT, api.get_raw("/version")),
        with_timeout(DISCOVERY_TIMEOUT, api.discover())
    );
    let version = version.ok().and_then(|body| {
        let version: MemberVersionInfo = machinery::json::from_slice(&body).ok()?;
        Some(version.git_version)
    });
    MemberApiInfo::new(version, discovered.ok().as_ref())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MemberVersionInfo {
    git_version: String,
}

async fn with_timeout<T>(limit: Duration, call: impl Future<Output = Result<T>>) -> Result<T> {
    let late = |_| Error::Transport {
        host: "member".into(),
        message: format!("no answer within {} s", limit.as_secs()),
    };
    tokio::time::timeout(limit, call)
        .await
        .map_err(late)
        .flatten()
}
