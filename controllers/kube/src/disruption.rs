//! Keeps the status of PodDisruptionBudgets: how many of the selected pods are healthy, and
//! how many disruptions that allows (`pkg/controller/disruption`). Evictions take from the
//! allowed disruptions in between.
//!
//! Pods are followed from the first budget on.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use client::{Api, Error, Informer, InformerFactory, ListWatchSelector, ResourcePath};
use flotilla_runtime::{
    ControllerContext, ReconcileAction, RestMapper, StatusWriter, Workqueue, run_workers,
};
use jiff::{SignedDuration, Timestamp};
use karmada_api::well_known_keys::{CLUSTER_POLICY_ID, MANAGED, POLICY_ID};
use machinery::object::OwnerReference;
use machinery::time::{self, Clock, rfc3339_seconds};
use machinery::{Gvk, Gvr, Object};
use quota::disruption_budget::{
    PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus, PodReadiness,
};
use serde_json::{Value, json};

use crate::shutdown_waits::wait_for_cache_sync;

static BUDGETS: Gvr = Gvr::from_static("policy", "v1", "poddisruptionbudgets");
static PODS: Gvr = Gvr::from_static("", "v1", "pods");
/// A pod whose eviction was allowed counts as healthy again if it still exists after this time.
const DISRUPTED_POD_TIMEOUT: SignedDuration = SignedDuration::from_secs(2 * 60);
const WORKERS: usize = 1;

struct DisruptionController {
    api: Arc<dyn Api>,
    rest_mapper: Arc<RestMapper>,
    informers: InformerFactory,
    clock: Arc<dyn Clock>,
    budgets: Informer,
    queue: Workqueue<String>,
    /// Whether the pods have an event handler.
    follows_pods: AtomicBool,
}

pub(crate) fn start(context: &ControllerContext, rest_mapper: Arc<RestMapper>) {
    let queue: Workqueue<String> = Workqueue::new();
    let controller = Arc::new(DisruptionController {
        budgets: context.informer(&BUDGETS),
        api: Arc::clone(&context.control_plane),
        rest_mapper,
        informers: context.informers.clone(),
        clock: Arc::clone(&context.clock),
        queue: queue.clone(),
        follows_pods: AtomicBool::new(false),
    });
    let wake = queue.clone();
    controller.budgets.add_event_handler(move |change| {
        if change.new.is_some() {
            wake.add_event(change.key(), change);
        }
    });
    let workers = context.tasks.clone();
    context.tasks.spawn(async move {
        if !wait_for_cache_sync(&workers, [&controller.budgets]).await {
            return;
        }
        run_workers(
            &workers,
            "disruption",
            &queue,
            WORKERS,
            move |key: String| {
                let controller = Arc::clone(&controller);
                async move { controller.reconcile(&key).await }
            },
        );
    });
}

/// How many pods a budget expects, and how many of them must be healthy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct ExpectedPods {
    expected: i64,
    desired_healthy: i64,
}

/// Whether a budget is propagated: its status is then summed up from its members, where its pods
/// run. The copy in a member has the labels of the template and one of its own.
fn is_template(budget: &Object) -> bool {
    let labels = budget.meta();
    let is_claimed = [POLICY_ID, CLUSTER_POLICY_ID]
        .iter()
        .any(|key| labels.label(key).is_some());
    is_claimed && labels.label(MANAGED).is_none()
}

impl DisruptionController {
    async fn reconcile(self: &Arc<Self>, key: &str) -> Result<ReconcileAction, Error> {
        let Some(object) = self.budgets.get_by_key(key) else {
            return Ok(ReconcileAction::Done);
        };
        if is_template(&object) {
            return Ok(ReconcileAction::Done);
        }
        let pods = self.follow_pods().await;
        let budget = object.decode::<PodDisruptionBudget>()?;
        let selector = budget.spec.selector();
        let pods = pods.list_namespace(object.namespace());
        let selected = pods
            .iter()
            .filter(|pod| selector.matches(|key| pod.meta().label(key)));
        let pods: Vec<&Object> = selected.collect();
        let now = self.clock.now();
        let mut status = budget.status.clone();
        let mut next = ReconcileAction::Done;
        match self.expected_pods(&budget.spec, &pods).await {
            Err(reason) => status.set_sync_failed(&reason, &rfc3339_seconds(now)),
            Ok(expected) => {
                let recheck = set_counts(&mut status, expected, &pods, now)?;
                if let Some(delay) = recheck {
                    next = ReconcileAction::RequeueAfter(delay);
                }
                status.observed_generation = object.meta().generation;
                status.update_condition(&rfc3339_seconds(now));
            }
        }
        let changed = (status != budget.status).then(|| json!(status));
        let writer = StatusWriter::new(&*self.api, "disruption");
        let written = writer.update(&BUDGETS, &object, changed).await;
        ReconcileAction::after_write(written, next)
    }

    /// The informer of pods, with an event handler that reconciles their budgets.
    async fn follow_pods(&self) -> Informer {
        let selector = ListWatchSelector::all(&PODS);
        let pods = self.informers.get(&self.api, &selector);
        if !self.follows_pods.swap(true, Ordering::AcqRel) {
            let (budgets, queue) = (self.budgets.clone(), self.queue.clone());
            pods.add_event_handler(move |change| {
                if change.in_initial_list {
                    return;
                }
                let pod = change.object();
                for budget in budgets.list_namespace(pod.namespace()) {
                    let Ok(fields) = budget.decode::<PodDisruptionBudget>() else {
                        continue;
                    };
                    let states = [change.old, change.new].into_iter().flatten();
                    if states.into_iter().any(|pod| fields.spec.selects(pod)) {
                        queue.add(budget.meta().key());
                    }
                }
            });
        }
        pods.wait_for_cache_sync().await;
        pods
    }

    /// The counts that a budget is measured by. The error says why there are none.
    async fn expected_pods(
        &self,
        spec: &PodDisruptionBudgetSpec,
        pods: &[&Object],
    ) -> Result<ExpectedPods, String> {
        if let Some(limit) = &spec.max_unavailable {
            let expected = self.expected_scale(pods).await?;
            let unavailable = scaled_value(limit, expected)?;
            return Ok(ExpectedPods {
                expected,
                desired_healthy: (expected - unavailable).max(0),
            });
        }
        let Some(limit) = &spec.min_available else {
            return Ok(ExpectedPods::default());
        };
        let expected = match limit.is_string() {
            true => self.expected_scale(pods).await?,
            false => i64::try_from(pods.len()).unwrap_or(i64::MAX),
        };
        Ok(ExpectedPods {
            expected,
            desired_healthy: scaled_value(limit, expected)?,
        })
    }

    /// The sum of the replicas of all controllers of the pods. Pods without a controller do
    /// not count.
    async fn expected_scale(&self, pods: &[&Object]) -> Result<i64, String> {
        let mut scales: HashMap<String, i64> = HashMap::new();
        let mut counted_owners = HashSet::new();
        for pod in pods {
            let Some(owner) = pod.meta().controller() else {
                continue;
            };
            if !counted_owners.insert(owner.uid.clone()) {
                continue;
            }
            let scale = self.controller_scale(pod.namespace(), owner).await?;
            let (uid, replicas) =
                scale.ok_or_else(|| format!("found no controllers for pod {:?}", pod.name()))?;
            scales.insert(uid, replicas);
        }
        Ok(scales.values().sum())
    }

    /// The uid and the replicas of a pod's controller, for a ReplicaSet those of its
    /// Deployment; `None` if it does not exist.
    async fn controller_scale(
        &self,
        namespace: &str,
        owner: &OwnerReference,
    ) -> Result<Option<(String, i64)>, String> {
        if is_of_kind(owner, "ReplicaSet") {
            let kind = Gvk::from_static("apps", "v1", "ReplicaSet");
            let Some(set) = self.owner_object(namespace, owner, &kind, "").await? else {
                return Ok(None);
            };
            if let Some(parent) = set.meta().controller()
                && &*parent.kind == "Deployment"
            {
                return self.scale_of(namespace, parent).await;
            }
        }
        self.scale_of(namespace, owner).await
    }

    /// The uid and the replicas in the Scale of an owner.
    async fn scale_of(
        &self,
        namespace: &str,
        owner: &OwnerReference,
    ) -> Result<Option<(String, i64)>, String> {
        let kind = Gvk::from_api_version(&owner.api_version, &owner.kind);
        let scale = self.owner_object(namespace, owner, &kind, "scale").await?;
        let Some(scale) = scale else {
            return Ok(None);
        };
        let fields = scale.value().map_err(|e| e.to_string())?;
        let replicas = fields["spec"]["replicas"].as_i64().unwrap_or(0);
        Ok(Some((scale.uid().to_owned(), replicas)))
    }

    /// An owner, or a subresource of it; `None` if it does not exist or is another object.
    async fn owner_object(
        &self,
        namespace: &str,
        owner: &OwnerReference,
        kind: &Gvk,
        subresource: &str,
    ) -> Result<Option<Object>, String> {
        let resource = self.rest_mapper.resource_for(kind).await;
        let resource = resource.map_err(|e| e.to_string())?;
        let at = ResourcePath::object(&resource, namespace, &owner.name);
        let is_owner = |object: &Object| object.uid() == &*owner.uid;
        if let Ok(object) = self.api.get_cached(at.subresource(subresource)).await
            && is_owner(&object)
        {
            return Ok(Some(object));
        }
        // An owner is older than its pods, and nothing leads here again when the cache has it at last.
        match self.api.get(at.subresource(subresource)).await {
            Ok(object) => Ok(Some(object).filter(is_owner)),
            Err(e) if e.is_not_found() && subresource.is_empty() => Ok(None),
            Err(e) if e.is_not_found() => match self.api.get(at).await {
                Err(e) if e.is_not_found() => Ok(None),
                Err(e) => Err(e.to_string()),
                Ok(_) => Err(format!(
                    "{} does not implement the scale subresource",
                    resource.group_resource()
                )),
            },
            Err(e) => Err(e.to_string()),
        }
    }
}

fn is_of_kind(owner: &OwnerReference, kind: &str) -> bool {
    &*owner.kind == kind && owner.api_version.starts_with("apps/")
}

/// A number, or a percentage of `total` rounded up (`GetScaledValueFromIntOrPercent`).
fn scaled_value(limit: &Value, total: i64) -> Result<i64, String> {
    if let Some(number) = limit.as_i64() {
        return Ok(number);
    }
    let text = limit.as_str().unwrap_or_default();
    let percent = text.strip_suffix('%').and_then(|n| n.parse::<i64>().ok());
    let Some(percent) = percent else {
        return Err(format!(
            "invalid value for IntOrString: invalid value {text:?}: strconv.Atoi: parsing {text:?}: invalid syntax"
        ));
    };
    let hundredths = percent.saturating_mul(total);
    Ok(hundredths.div_euclid(100) + i64::from(hundredths.rem_euclid(100) > 0))
}

/// Sets the counts of a status. Returns when to look again at pods whose eviction was allowed.
fn set_counts(
    status: &mut PodDisruptionBudgetStatus,
    expected: ExpectedPods,
    pods: &[&Object],
    now: Timestamp,
) -> Result<Option<Duration>, Error> {
    let mut recheck: Option<SignedDuration> = None;
    let mut disrupted = BTreeMap::new();
    let mut healthy = 0;
    for pod in pods {
        if pod.meta().deleting {
            continue;
        }
        let allowed = status.disrupted_pods.get(pod.name());
        let allowed = allowed.and_then(|at| Some((at, time::parse(at).ok()?)));
        if let Some((text, at)) = allowed {
            let remaining = DISRUPTED_POD_TIMEOUT - now.duration_since(at);
            if remaining > SignedDuration::ZERO {
                disrupted.insert(pod.name().to_owned(), text.clone());
                recheck = Some(recheck.map_or(remaining, |earlier| earlier.min(remaining)));
                continue;
            }
        }
        healthy += i64::from(pod.decode::<PodReadiness>()?.is_ready());
    }
    let allowed = match expected.expected {
        0 => 0,
        _ => (healthy - expected.desired_healthy).max(0),
    };
    status.current_healthy = healthy;
    status.desired_healthy = expected.desired_healthy;
    status.expected_pods = expected.expected;
    status.disruptions_allowed = allowed;
    status.disrupted_pods = disrupted;
    Ok(recheck.and_then(|delay| Duration::try_from(delay).ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_rounded_up() {
        for (limit, total, expected) in [
            (json!(3), 10, Ok(3)),
            (json!("50%"), 10, Ok(5)),
            (json!("50%"), 9, Ok(5)),
            (json!("0%"), 9, Ok(0)),
            (json!("1%"), 1, Ok(1)),
            (json!("100%"), 7, Ok(7)),
        ] {
            assert_eq!(scaled_value(&limit, total), expected, "{limit}");
        }
        assert!(scaled_value(&json!("half"), 1).is_err());
    }

    #[test]
    fn an_allowed_eviction_counts_until_it_times_out() {
        let pod = |name: &str, ready: &str, meta: Value| {
            let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
                "status": {"conditions": [{"type": "Ready", "status": ready}]}});
            if let Some(more) = meta.as_object() {
                pod["metadata"]
                    .as_object_mut()
                    .unwrap()
                    .extend(more.clone());
            }
            Object::from_value(&pod).unwrap()
        };
        let pods = [
            pod("a", "True", json!({})),
            pod("b", "True", json!({})),
            pod("c", "False", json!({})),
            pod(
                "d",
                "True",
                json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}),
            ),
        ];
        let pods: Vec<&Object> = pods.iter().collect();
        let expected = ExpectedPods {
            expected: 4,
            desired_healthy: 1,
        };
        let counts_at = |now: &str| {
            let mut status = PodDisruptionBudgetStatus::default();
            for name in ["a", "gone"] {
                let at = "2026-01-01T00:00:00Z".to_owned();
                status.disrupted_pods.insert(name.to_owned(), at);
            }
            let recheck = set_counts(&mut status, expected, &pods, now.parse().unwrap());
            let names: Vec<String> = status.disrupted_pods.into_keys().collect();
            let counts = (status.current_healthy, status.disruptions_allowed);
            (counts, names, recheck.unwrap().map(|delay| delay.as_secs()))
        };
        assert_eq!(
            counts_at("2026-01-01T00:00:30Z"),
            ((1, 0), vec!["a".to_owned()], Some(90))
        );
        assert_eq!(counts_at("2026-01-01T00:03:00Z"), ((2, 1), vec![], None));
    }
}
