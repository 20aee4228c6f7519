//! The health monitor: sets Ready to Unknown on Clusters in pull mode whose agent stops
//! renewing its lease and status. It costs nothing if no cluster is in pull mode.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use client::{Api, At, Result, WriteOptions};
use jiff::Timestamp;
use machinery::time::{self, Clock, rfc3339_seconds};
use machinery::{Gvr, Object};
use openapi::karmada::Cluster;
use openapi::karmada::resources::CLUSTERS;
use parking_lot::Mutex;
use flotilla_runtime::{Action, Informer, Informers, Queue, Select, run_workers};
use serde::Deserialize;

use super::health::{Grace, Health, Seen};
use crate::condition::{self, Verdict};
use crate::start::Deps;

pub(super) static LEASES: Gvr = Gvr::constant("coordination.k8s.io", "v1", "leases");
/// The namespace of the agents' leases.
pub(super) const LEASE_NAMESPACE: &str = "karmada-cluster";
const RETRY_CONFLICT: Duration = Duration::from_millis(20);
/// Retry while the leases are not listed yet.
const RETRY_UNSYNCED: Duration = Duration::from_millis(200);

pub(super) struct Monitor {
    api: Arc<dyn Api>,
    clock: Arc<dyn Clock>,
    informers: Informers,
    clusters: Informer,
    health: Mutex<HashMap<String, Health>>,
    grace: Grace,
    period: Duration,
}

#[derive(Deserialize)]
struct LeaseView {
    #[serde(default)]
    spec: LeaseSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LeaseSpec {
    renew_time: Option<String>,
}

impl Monitor {
    pub(super) fn start(deps: &Deps) {
        let it = Arc::new(Self {
            api: Arc::clone(&deps.control),
            clock: Arc::clone(&deps.clock),
            informers: deps.informers.clone(),
            clusters: deps.informers.get(&deps.control, &Select::all(&CLUSTERS)),
            health: Mutex::default(),
            grace: Grace {
                usual: deps.options.grace,
                startup: deps.options.startup_grace,
            },
            period: deps.options.monitor_period,
        });
        let queue: Queue<String> = Queue::new();
        let wake = queue.clone();
        it.clusters.on_change(move |change| {
            let pulls = |c: &Object| {
                c.view::<Cluster>()
                    .is_ok_and(|c| c.spec.sync_mode == "Pull")
            };
            if [change.old, change.new].into_iter().flatten().any(pulls) {
                wake.add_low(change.key());
            }
        });
        run_workers(
            &deps.tasks,
            "cluster-monitor",
            &queue,
            1,
            move |name: String| {
                let it = Arc::clone(&it);
                async move { it.look(&name).await }
            },
        );
    }

    async fn look(&self, name: &str) -> Result<Action> {
        let found = self.clusters.get("", name);
        let Some(object) = found else {
            self.health.lock().remove(name);
            return Ok(Action::Done);
        };
        let cluster = object.view::<Cluster>()?;
        if cluster.spec.sync_mode != "Pull" {
            self.health.lock().remove(name);
            return Ok(Action::Done);
        }
        let select = Select::all(&LEASES).namespace(LEASE_NAMESPACE);
        let leases = self.informers.get(&self.api, &select);
        if !leases.is_synced() {
            return Ok(Action::After(RETRY_UNSYNCED));
        }
        let ready = cluster.condition("Ready");
        let seen = Seen {
            ready: ready.map(|c| (c.status.as_str(), c.last_transition_time.as_str())),
            created: match ready {
                Some(_) => Timestamp::UNIX_EPOCH,
                None => created(&object)?,
            },
            renewed: leases.get(LEASE_NAMESPACE, name).and_then(|l| renewed(&l)),
        };
        let now = self.clock.now();
        let verdict = {
            let mut health = self.health.lock();
            let health = health
                .entry(name.to_owned())
                .or_insert_with(|| Health::new(&seen, now));
            health.observe(&seen, now, self.grace)
        };
        let Some(verdict) = verdict else {
            return Ok(Action::After(self.period));
        };
        match self.write(&object, &verdict, now).await {
            Err(e) if e.is_conflict() => Ok(Action::After(RETRY_CONFLICT)),
            Err(e) if e.is_not_found() => Ok(Action::Done),
            Err(e) => Err(e),
            Ok(()) => Ok(Action::After(self.period)),
        }
    }

    async fn write(&self, object: &Object, verdict: &Verdict, now: Timestamp) -> Result<()> {
        let mut value = object.value()?;
        let conditions = &mut value["status"]["conditions"];
        condition::set(conditions, "Ready", verdict, &rfc3339_seconds(now));
        let at = At::of(&CLUSTERS, object).sub("status");
        self.api
            .update(at, value, &WriteOptions::default())
            .await
            .map(drop)
    }
}

fn created(object: &Object) -> Result<Timestamp> {
    let value = object.value()?;
    let text = value["metadata"]["creationTimestamp"].as_str();
    Ok(text
        .and_then(|t| time::parse(t).ok())
        .unwrap_or(Timestamp::UNIX_EPOCH))
}

fn renewed(lease: &Object) -> Option<Timestamp> {
    let view = lease.view::<LeaseView>().ok()?;
    time::parse(view.spec.renew_time.as_deref()?).ok()
}
