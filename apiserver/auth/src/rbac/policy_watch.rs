//! Keeps the RBAC policy current: lists, then watches each of the four resources.

use std::sync::Arc;
use std::time::Duration;

use client::{Api, ListOptions, ResourcePath, WatchEvent, WatchOptions};
use futures_util::StreamExt;
use machinery::Gvr;

use super::RbacAuthorizer;
use super::policy::RbacKind;

const GROUP: &str = "rbac.authorization.k8s.io";
const MIN_BACKOFF: Duration = Duration::from_millis(20);
const MAX_BACKOFF: Duration = Duration::from_secs(10);

pub(super) async fn run(authorizer: Arc<RbacAuthorizer>, api: Arc<dyn Api>) {
    let one = |kind, resource| {
        watch_kind(
            &authorizer,
            api.as_ref(),
            kind,
            Gvr::from_static(GROUP, "v1", resource),
        )
    };
    tokio::join!(
        one(RbacKind::ClusterRole, "clusterroles"),
        one(RbacKind::Role, "roles"),
        one(RbacKind::ClusterRoleBinding, "clusterrolebindings"),
        one(RbacKind::RoleBinding, "rolebindings"),
    );
}

async fn watch_kind(authorizer: &RbacAuthorizer, api: &dyn Api, kind: RbacKind, gvr: Gvr) {
    let mut pause = MIN_BACKOFF;
    loop {
        match list_and_watch(authorizer, api, kind, &gvr).await {
            Ok(()) => pause = MIN_BACKOFF,
            Err(e) => {
                tracing::debug!(resource = %gvr.group_resource(), error = %e, "cannot follow");
                pause = (pause * 2).min(MAX_BACKOFF);
            }
        }
        tokio::time::sleep(pause).await;
    }
}

/// Lists once and watches from there, until an error requires a new list.
async fn list_and_watch(
    authorizer: &RbacAuthorizer,
    api: &dyn Api,
    kind: RbacKind,
    gvr: &Gvr,
) -> client::Result<()> {
    let at = ResourcePath::collection(gvr, "");
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
        tokio::time::sleep(MIN_BACKOFF).await;
    }
}
