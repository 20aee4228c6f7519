//! The requests to a member: health, version and discovery, each with a timeout.

use std::future::Future;
use std::time::Duration;

use client::{Api, Error, Result};
use serde::Deserialize;

use super::collect::Facts;
use crate::condition::Verdict;

const PROBE: Duration = Duration::from_secs(10);
const DISCOVERY: Duration = Duration::from_secs(30);

/// Probes whether the member is reachable and healthy. Unlike in Karmada, a server that
/// responds with an error is not ready, but reachable.
pub(super) async fn health(api: &dyn Api) -> Verdict {
    let answer = match within(PROBE, api.raw("/readyz")).await {
        Err(Error::Status(s)) if s.code == 404 => within(PROBE, api.raw("/healthz")).await,
        other => other,
    };
    match answer {
        Ok(_) => Verdict::new(
            "True",
            "ClusterReady",
            "cluster is healthy and ready to accept workloads",
        ),
        Err(Error::Status(_) | Error::Protocol(_)) => Verdict::new(
            "False",
            "ClusterNotReady",
            "cluster is reachable but health endpoint responded without ok",
        ),
        Err(Error::Transport { .. }) => {
            Verdict::new("False", "ClusterNotReachable", "cluster is not reachable")
        }
    }
}

/// The version and the APIs; what cannot be read is empty.
pub(super) async fn facts(api: &dyn Api) -> Facts {
    let (version, found) = tokio::join!(
        within(PROBE, api.raw("/version")),
        within(DISCOVERY, api.resources())
    );
    let version = version.ok().and_then(|body| {
        let version: Version = serde_json::from_slice(&body).ok()?;
        Some(version.git_version)
    });
    Facts::new(version, found.ok().as_ref())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    git_version: String,
}

async fn within<T>(limit: Duration, call: impl Future<Output = Result<T>>) -> Result<T> {
    let late = |_| Error::Transport {
        host: "member".into(),
        message: format!("no answer within {} s", limit.as_secs()),
    };
    tokio::time::timeout(limit, call)
        .await
        .map_err(late)
        .flatten()
}
