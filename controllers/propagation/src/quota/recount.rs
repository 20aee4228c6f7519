//! Recounts how much of its quotas the bindings of a namespace use.
//!
//! The controller runs periodically and when a binding is deleted, and updates `status.overall` and
//! `status.overallUsed`. In between admission adds what bindings use; the recount removes what was
//! added for writes that failed.

use std::sync::Arc;
use std::time::Duration;

use client::{Api, At, Error, ListOptions};
use machinery::Object;
use openapi::karmada::quota::{Amounts, FederatedResourceQuota, QuotaStatus, add, limited, usage};
use openapi::karmada::resources::{BINDINGS, QUOTAS};
use openapi::karmada::{Binding, BindingSpec};
use flotilla_runtime::{Action, Informer, Queue, Recorder, Select, Tasks, run_workers};

use super::{WORKERS, about, write_status};
use crate::run::Deps;

const PAGE: u64 = 500;

pub(super) struct Recount {
    api: Arc<dyn Api>,
    recorder: Recorder,
    quotas: Informer,
    period: Duration,
    queue: Queue<String>,
}

impl Recount {
    pub(super) fn start(deps: &Deps, quotas: &Informer, tasks: &Tasks) {
        let it = Arc::new(Self {
            api: Arc::clone(&deps.control),
            recorder: deps
                .recorder
                .named("federated-resource-quota-enforcement-controller"),
            quotas: quotas.clone(),
            period: deps.options.quota_resync,
            queue: Queue::new(),
        });
        let bindings = deps.informers.get(&deps.control, &Select::all(&BINDINGS));
        it.listen(&bindings);
        let queue = it.queue.clone();
        run_workers(
            tasks,
            "quota-recount",
            &queue,
            WORKERS,
            move |key: String| {
                let it = Arc::clone(&it);
                async move { it.reconcile(&key).await }
            },
        );
    }

    fn listen(self: &Arc<Self>, bindings: &Informer) {
        let queue = self.queue.clone();
        self.quotas.on_change(move |change| {
            let overall = |o: &Object| {
                let quota = o.view::<FederatedResourceQuota>().ok()?;
                Some(quota.spec.overall.clone())
            };
            let same = |old: &Object, new: &Object| overall(old) == overall(new);
            if let Some(new) = change.new
                && !change.old.is_some_and(|old| same(old, new))
            {
                queue.add_lane(change.key(), change.initial);
            }
        });
        let it = Arc::downgrade(self);
        bindings.on_change(move |change| {
            if let (Some(it), Some(deleted), None) = (it.upgrade(), change.old, change.new) {
                for quota in it.quotas.list_namespace(deleted.namespace()) {
                    it.queue.add(quota.head().key());
                }
            }
        });
    }

    async fn reconcile(&self, key: &str) -> Result<Action, Error> {
        let Some(known) = self.quotas.get_key(key).filter(|q| !q.head().deleting) else {
            return Ok(Action::Done);
        };
        match self.recount(&known).await {
            Ok(written) => {
                if written {
                    let text = format!("Collect status of FederatedResourceQuota({key}) succeed.");
                    self.recorder
                        .normal(&about(&known), "CollectOverallStatusSucceed", text);
                }
                Ok(match self.period {
                    Duration::ZERO => Action::Done,
                    period => Action::After(period),
                })
            }
            // Admission updated the quota first; the next recount includes its change.
            Err(e) if e.is_conflict() => Ok(Action::AFTER_CONFLICT),
            Err(e) if e.is_not_found() => Ok(Action::Done),
            Err(e) => {
                self.recorder
                    .warning(&about(&known), "CollectOverallStatusFailed", e.to_string());
                Err(e)
            }
        }
    }

    /// Returns whether the status was written. Reads the quota before the bindings, so that an
    /// update by admission in the meantime makes the write fail with a conflict.
    async fn recount(&self, known: &Object) -> Result<bool, Error> {
        let quota = self.api.get(At::of(&QUOTAS, known)).await?;
        let seen = quota.view::<FederatedResourceQuota>()?;
        let mut options = ListOptions {
            limit: PAGE,
            ..ListOptions::default()
        };
        let mut sum = Amounts::new();
        loop {
            let at = At::all(&BINDINGS, quota.namespace());
            let page = self.api.list(at, &options).await?;
            for binding in &page.items {
                count(&mut sum, &binding.view::<Binding>()?.spec);
            }
            if page.continue_token.is_empty() {
                break;
            }
            options.continue_token = page.continue_token;
        }
        let status = QuotaStatus {
            overall: seen.spec.overall.clone(),
            overall_used: limited(&sum, &seen.spec.overall),
            ..seen.status.clone()
        };
        if status == seen.status {
            return Ok(false);
        }
        write_status(&*self.api, &quota, &status).await?;
        Ok(true)
    }
}

fn count(sum: &mut Amounts, binding: &BindingSpec) {
    for (name, amount) in usage(binding) {
        add(sum, name, amount);
    }
}
