//! Deletes bootstrap tokens that have expired (Kubernetes' `tokencleaner.go`).

use std::sync::Arc;

use client::{Api, DeleteOptions, Error, Informer, ListWatchSelector, ResourcePath};
use flotilla_runtime::{ControllerContext, ReconcileAction, Workqueue, run_workers};
use jiff::Timestamp;
use machinery::bootstrap_token::{TOKEN_NAMESPACE, TOKEN_SECRET_TYPE, secret_expiration};
use machinery::time::{self, Clock};
use machinery::{Gvr, Object};

use crate::shutdown_waits::wait_for_cache_sync;

static SECRETS: Gvr = Gvr::from_static("", "v1", "secrets");

struct TokenCleaner {
    api: Arc<dyn Api>,
    secrets: Informer,
    clock: Arc<dyn Clock>,
}

/// The informer of bootstrap tokens.
pub(crate) fn token_informer(context: &ControllerContext) -> Informer {
    let tokens = ListWatchSelector::all(&SECRETS).namespace(TOKEN_NAMESPACE);
    context.select(&tokens.fields(format!("type={TOKEN_SECRET_TYPE}")))
}

pub(crate) fn start(context: &ControllerContext) {
    let cleaner = Arc::new(TokenCleaner {
        secrets: token_informer(context),
        api: Arc::clone(&context.control_plane),
        clock: Arc::clone(&context.clock),
    });
    let queue: Workqueue<String> = Workqueue::new();
    let wake = queue.clone();
    cleaner.secrets.add_event_handler(move |change| {
        if change.new.is_some() {
            wake.add_event(change.key(), change);
        }
    });
    let workers = context.tasks.clone();
    context.tasks.spawn(async move {
        if !wait_for_cache_sync(&workers, [&cleaner.secrets]).await {
            return;
        }
        run_workers(&workers, "token_cleaner", &queue, 1, move |key: String| {
            let cleaner = Arc::clone(&cleaner);
            async move { cleaner.reconcile(&key).await }
        });
    });
}

impl TokenCleaner {
    async fn reconcile(&self, key: &str) -> Result<ReconcileAction, Error> {
        let Some(secret) = self.secrets.get_by_key(key) else {
            return Ok(ReconcileAction::Done);
        };
        let Some(expiration) = secret_expiration(&secret.value()?) else {
            return Ok(ReconcileAction::Done);
        };
        let now = self.clock.now();
        // A token whose expiration cannot be read is deleted too.
        let expires = time::parse(&expiration).unwrap_or(Timestamp::MIN);
        if expires > now {
            let left = expires.duration_since(now).unsigned_abs();
            return Ok(ReconcileAction::RequeueAfter(left));
        }
        self.delete(&secret).await?;
        Ok(ReconcileAction::Done)
    }

    async fn delete(&self, secret: &Object) -> Result<(), Error> {
        // A token of the same name that was stored since is another one.
        let options = DeleteOptions {
            uid: Some(secret.uid().to_owned()),
            ..DeleteOptions::default()
        };
        let at = ResourcePath::of_object(&SECRETS, secret);
        match self.api.delete(at, &options).await {
            Err(e) if !e.is_not_found() && !e.is_conflict() => Err(e),
            _ => Ok(()),
        }
    }
}
