//! Keeps the RBAC policy current: lists, then watches each of the four resources.

use std::sync::Arc;
use std::time::Duration;

use client::{Api, At, ListOptions, WatchEvent, WatchOptions};
use futures_util::StreamExt;
use machinery::Gvr;

use super::Authorizer;
use super::policy::Kind;

const GROUP: &str = "rbac.authorization.k8s.io";
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(10);

pub(super) async fn run(authorizer: Arc<Authorizer>, api: Arc<dyn Api>) {
    let one = |kind, resource| {
        follow(
            &authorizer,
            api.as_ref(),
            kind,
            Gvr::constant(GROUP, "v1", resource),
        )
    };
    tokio::join!(
        one(Kind::ClusterRole, "clusterroles"),
        one(Kind::Role, "roles"),
        one(Kind::ClusterRoleBinding, "clusterrolebindings"),
        one(Kind::RoleBinding, "rolebindings"),
    );
}

async fn follow(authorizer: &Authorizer, api: &dyn Api, kind: Kind, gvr: Gvr) {
    let mut pause = PAUSE_MIN;
    loop {
        match round(authorizer, api, kind, &gvr).await {
            Ok(()) => pause = PAUSE_MIN,
            Err(e) => {
                tracing::debug!(resource = %gvr.qualified(), error = %e, "cannot follow");
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
        tokio::time::sleep(pause).await;
    }
}

/// Lists once and watches from there, until an error requires a new list.
async fn round(
    authorizer: &Authorizer,
    api: &dyn Api,
    kind: Kind,
    gvr: &Gvr,
) -> client::Result<()> {
    let at = At::all(gvr, "");
    let list = api.list(at, &ListOptions::default()).await?;
    authorizer.policy.write().replace(kind, &list.items);
    authorizer
        .synced
        .send_modify(|bits| *bits |= 1 << kind as u8);
    let mut revision = list.revision;
    loop {
        let options = WatchOptions {
            resource_version: revision.to_string(),
            bookmarks: true,
            ..WatchOptions::default()
        };
        let mut events = api.watch(at, &options).await?;
        while let Some(event) = events.next().await {
            revision = match event? {
                WatchEvent::Added(o) | WatchEvent::Modified(o) => {
                    authorizer.policy.write().apply(kind, &o);
                    o.revision()
                }
                WatchEvent::Deleted(o) => {
                    let mut policy = authorizer.policy.write();
                    policy.delete(kind, o.namespace(), o.name());
                    o.revision()
                }
                WatchEvent::Bookmark { revision, .. } => revision,
            };
        }
        // Avoids a tight loop with a server that ends watches at once.
        tokio::time::sleep(PAUSE_MIN).await;
    }
}
