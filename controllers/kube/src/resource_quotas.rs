//! Keeps the status of ResourceQuotas: sets the enforced limits and recalculates the usage
//! when a quota, or an object that it counts, changes
//! (`pkg/controller/resourcequota`). Admission charges new objects in between.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use client::{Api, Error, Informer, InformerFactory, ListOptions, ListWatchSelector, ResourcePath};
use flotilla_runtime::{
    ControllerContext, ReconcileAction, RestMapper, StatusWriter, Workqueue, run_workers,
};
use machinery::{Gvr, Object, Quantity};
use parking_lot::Mutex;
use quota::ResourceList;
use quota::resource_quota::{self, ResourceQuota, ResourceQuotaStatus};
use serde_json::{Value, json};

use crate::shutdown_waits::wait_for_cache_sync;

static QUOTAS: Gvr = Gvr::from_static("", "v1", "resourcequotas");
/// How often usage is recalculated without a change, as it is too high when a process ended
/// between a charge and its write.
const RESYNC_INTERVAL: Duration = Duration::from_secs(5 * 60);
/// How often a quota is reconciled that counts a resource which is not served.
const UNSERVED_RECHECK_INTERVAL: Duration = Duration::from_secs(10);
const WORKERS: usize = 2;

struct ResourceQuotaController {
    api: Arc<dyn Api>,
    rest_mapper: Arc<RestMapper>,
    informers: InformerFactory,
    quotas: Informer,
    queue: Workqueue<String>,
    /// The resources with an event handler.
    watched: Mutex<HashSet<Gvr>>,
}

pub(crate) fn start(context: &ControllerContext, rest_mapper: Arc<RestMapper>) {
    let queue: Workqueue<String> = Workqueue::new();
    let controller = Arc::new(ResourceQuotaController {
        quotas: context.informer(&QUOTAS),
        api: Arc::clone(&context.control_plane),
        rest_mapper,
        informers: context.informers.clone(),
        queue: queue.clone(),
        watched: Mutex::default(),
    });
    let wake = queue.clone();
    controller.quotas.add_event_handler(move |change| {
        if change.new.is_some() && !is_usage_only(change.old, change.new) {
            wake.add_event(change.key(), change);
        }
    });
    let workers = context.tasks.clone();
    context.tasks.spawn(async move {
        if !wait_for_cache_sync(&workers, [&controller.quotas]).await {
            return;
        }
        run_workers(
            &workers,
            "resourcequotas",
            &queue,
            WORKERS,
            move |key: String| {
                let controller = Arc::clone(&controller);
                async move { controller.reconcile(&key).await }
            },
        );
    });
}

/// Whether an update changes nothing but the usage, as a charge does.
fn is_usage_only(old: Option<&Object>, new: Option<&Object>) -> bool {
    let (Some(old), Some(new)) = (old, new) else {
        return false;
    };
    let parts = |object: &Object| {
        let value = object.value().ok()?;
        Some((value["spec"].clone(), value["status"]["hard"].clone()))
    };
    parts(old) == parts(new)
}

impl ResourceQuotaController {
    async fn reconcile(self: &Arc<Self>, key: &str) -> Result<ReconcileAction, Error> {
        let Some(cached) = self.quotas.get_by_key(key) else {
            return Ok(ReconcileAction::Done);
        };
        // Read before the objects are listed: a charge in between makes the write conflict.
        let quota = match self
            .api
            .get(ResourcePath::of_object(&QUOTAS, &cached))
            .await
        {
            Err(e) if e.is_not_found() => return Ok(ReconcileAction::Done),
            other => other?,
        };
        let fields = quota.decode::<ResourceQuota>()?;
        let mut used = ResourceList::new();
        for name in fields.spec.hard.keys() {
            used.insert(name.clone(), Quantity::ZERO);
        }
        let mut next = ReconcileAction::RequeueAfter(RESYNC_INTERVAL);
        for (group, plural) in fields.spec.counted_resources() {
            match self.served_resource(&group, &plural) {
                Some(resource) => {
                    self.watch(&resource);
                    self.add_usage(&fields, &resource, quota.namespace(), &mut used)
                        .await?;
                }
                None => next = ReconcileAction::RequeueAfter(UNSERVED_RECHECK_INTERVAL),
            }
        }
        let status = ResourceQuotaStatus {
            hard: fields.spec.hard.clone(),
            used,
        };
        let changed =
            (status != fields.status).then(|| json!({"hard": status.hard, "used": status.used}));
        let writer = StatusWriter::new(&*self.api, "resource-quota");
        let written = writer.update(&QUOTAS, &quota, changed).await;
        ReconcileAction::after_write(written, next)
    }

    fn served_resource(&self, group: &str, plural: &str) -> Option<Gvr> {
        let served = self.rest_mapper.preferred(|r| {
            let is_counted = r.resource.group == group && r.resource.resource == plural;
            is_counted && r.allows("list") && r.allows("watch")
        });
        Some(served.first()?.mapping.gvr.clone())
    }

    /// Adds what the objects of a resource use of what the quota limits.
    async fn add_usage(
        &self,
        quota: &ResourceQuota,
        resource: &Gvr,
        namespace: &str,
        used: &mut ResourceList,
    ) -> Result<(), Error> {
        let at = ResourcePath::collection(resource, namespace);
        let listed = self.api.list(at, &ListOptions::default()).await?;
        // The objects of most resources use one each, whatever they are.
        let is_uniform = !resource_quota::usage_may_change(resource);
        if is_uniform {
            if quota.spec.covers(resource, &Value::Null) {
                let count = i64::try_from(listed.items.len()).unwrap_or(i64::MAX);
                for name in resource_quota::usage(resource, &Value::Null).into_keys() {
                    if let Some(sum) = used.get_mut(&name) {
                        *sum = Quantity::from_units(count);
                    }
                }
            }
            return Ok(());
        }
        for object in &listed.items {
            let object = object.value()?;
            if !quota.spec.covers(resource, &object) {
                continue;
            }
            for (name, amount) in resource_quota::usage(resource, &object) {
                if let Some(sum) = used.get_mut(&name) {
                    *sum += amount;
                }
            }
        }
        Ok(())
    }

    /// Reconciles the quotas of a namespace when the usage of its objects changes.
    fn watch(self: &Arc<Self>, resource: &Gvr) {
        if !self.watched.lock().insert(resource.clone()) {
            return;
        }
        let informer = self
            .informers
            .get(&self.api, &ListWatchSelector::all(resource));
        let (quotas, queue, resource) = (self.quotas.clone(), self.queue.clone(), resource.clone());
        informer.add_event_handler(move |change| {
            if change.in_initial_list {
                return;
            }
            let affected = quotas.list_namespace(change.object().namespace());
            if affected.is_empty() || !changes_usage(&resource, change.old, change.new) {
                return;
            }
            for quota in affected {
                queue.add(quota.meta().key());
            }
        });
    }
}

fn changes_usage(resource: &Gvr, old: Option<&Object>, new: Option<&Object>) -> bool {
    let (Some(old), Some(new)) = (old, new) else {
        return true;
    };
    if !resource_quota::usage_may_change(resource) {
        return false;
    }
    match (old.value(), new.value()) {
        (Ok(old), Ok(new)) => resource_quota::changes_usage(resource, &old, &new),
        _ => true,
    }
}
