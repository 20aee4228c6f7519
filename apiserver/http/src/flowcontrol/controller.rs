//! Follows the FlowSchemas and PriorityLevelConfigurations, and adjusts the limits of the
//! levels to their demand (`apf_controller.go`).

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ahash::RandomState;
use arc_swap::ArcSwap;
use client::{Api, ListWatchSelector, ReflectorSink, ShutdownToken, run_reflector};
use flotilla_metrics::MetricsRegistry;
use http::HeaderValue;
use machinery::{Gvr, Object, UserInfo};
use parking_lot::Mutex;
use registry::Registry;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::borrowing::{current_limits, nominal_limits};
use super::dangling::{DueCondition, due_condition, write_conditions};
use super::flow_control_metrics::{FlowControlMetrics, FlowMetrics};
use super::flow_schema::{FlowSchema, PriorityLevelConfiguration};
use super::priority_level::{Acquisition, ConcurrencyPermit, PriorityLevel};
use super::queue_set::RejectReason;
use super::work_estimate::estimate_seats;
use crate::requestinfo::{QueryParams, RequestInfo, RequestedResource};

const GROUP: &str = "flowcontrol.apiserver.k8s.io";
const ADJUSTMENT_PERIOD: Duration = Duration::from_secs(10);
/// The part of a level's seats that one list occupies at most.
const MAX_SEATS_PERCENT: usize = 15;

/// Divides the seats of the server among requests.
pub struct FlowController {
    server_limit: usize,
    max_wait: Duration,
    epoch: Instant,
    hasher: RandomState,
    metrics: FlowControlMetrics,
    /// In the order of their precedence; the last matches every request.
    flows: ArcSwap<Vec<Arc<Flow>>>,
    objects: Mutex<FlowControlObjects>,
    /// Notified after each change of the objects.
    changed: Notify,
}

/// The objects that are stored now.
#[derive(Default)]
struct FlowControlObjects {
    schemas: HashMap<String, Arc<FlowSchema>>,
    configurations: HashMap<String, PriorityLevelConfiguration>,
    levels: HashMap<String, Arc<PriorityLevel>>,
    /// Whether the stored schemas and configurations are known.
    has_schemas: bool,
    has_configurations: bool,
}

/// A FlowSchema with its level.
pub(crate) struct Flow {
    schema: Arc<FlowSchema>,
    level: Arc<PriorityLevel>,
    metrics: FlowMetrics,
    pub(crate) schema_uid: HeaderValue,
    pub(crate) level_uid: HeaderValue,
}

/// The flow of a request, once it is known.
#[derive(Clone, Default)]
pub(crate) struct SharedFlow(Arc<OnceLock<Arc<Flow>>>);

impl SharedFlow {
    pub(crate) fn set(&self, flow: &Arc<Flow>) {
        self.0.get_or_init(|| Arc::clone(flow));
    }

    pub(crate) fn get(&self) -> Option<&Arc<Flow>> {
        self.0.get()
    }
}

/// The attributes of a request that flow control uses.
pub(crate) struct FlowRequest<'a> {
    pub(crate) user: &'a UserInfo,
    pub(crate) info: &'a RequestInfo,
    pub(crate) query: &'a QueryParams,
}

impl FlowController {
    /// `server_limit` is the number of seats. A request waits at most a quarter of
    /// `request_timeout`.
    pub fn new(
        server_limit: usize,
        request_timeout: Duration,
        metrics: &MetricsRegistry,
    ) -> Arc<Self> {
        let controller = Self {
            server_limit,
            max_wait: request_timeout / 4,
            epoch: Instant::now(),
            hasher: RandomState::new(),
            metrics: FlowControlMetrics::new(metrics),
            flows: ArcSwap::default(),
            objects: Mutex::default(),
            changed: Notify::new(),
        };
        controller.digest(&mut controller.objects.lock());
        Arc::new(controller)
    }

    /// Follows the stored objects and the demand; never completes.
    pub async fn run(self: Arc<Self>, api: Arc<dyn Api>) {
        let mut schemas = FlowControlSink::new(&self, |objects, listed: Vec<FlowSchema>| {
            objects.has_schemas = true;
            let named_objects = listed.into_iter();
            objects.schemas = named_objects
                .map(|s| (s.metadata.name.clone(), Arc::new(s)))
                .collect();
        });
        let mut levels =
            FlowControlSink::new(&self, |objects, listed: Vec<PriorityLevelConfiguration>| {
                objects.has_configurations = true;
                let named_objects = listed.into_iter();
                objects.configurations = named_objects
                    .map(|l| (l.metadata.name.clone(), l))
                    .collect();
            });
        let select = |resource| ListWatchSelector::all(&Gvr::from_static(GROUP, "v1", resource));
        let (schema_selector, level_selector) =
            (select("flowschemas"), select("prioritylevelconfigurations"));
        let stop = ShutdownToken::new();
        let adjust = async {
            loop {
                tokio::time::sleep(ADJUSTMENT_PERIOD).await;
                self.adjust_limits(&self.objects.lock());
            }
        };
        tokio::join!(
            run_reflector(api.as_ref(), &schema_selector, &mut schemas, &stop),
            run_reflector(api.as_ref(), &level_selector, &mut levels, &stop),
            adjust,
            write_conditions(api.as_ref(), &self.changed, || self.due_conditions()),
        );
    }

    /// The conditions that the status of a stored FlowSchema lacks.
    fn due_conditions(&self) -> Vec<DueCondition> {
        let objects = self.objects.lock();
        if !objects.has_schemas || !objects.has_configurations {
            return Vec::new();
        }
        let schemas = objects.schemas.values();
        let conditions = schemas.filter_map(|schema| {
            let level = &schema.spec.priority_level_configuration.name;
            due_condition(schema, objects.configurations.contains_key(level))
        });
        conditions.collect()
    }

    /// The flow of a request.
    pub(crate) fn classify(&self, request: &FlowRequest<'_>) -> Option<Arc<Flow>> {
        let flows = self.flows.load();
        let matches = |flow: &&Arc<Flow>| flow.schema.matches(request.user, request.info);
        flows.iter().find(matches).or_else(|| flows.last()).cloned()
    }

    /// Takes the seats of a request, or a place in a queue of its flow. `Ok(Err(_))` is
    /// the future of a request that waits.
    pub(crate) fn acquire(
        &self,
        flow: &Arc<Flow>,
        request: &FlowRequest<'_>,
        registry: &Registry,
    ) -> Result<
        Result<
            ConcurrencyPermit,
            impl Future<Output = Result<ConcurrencyPermit, RejectReason>> + Send + use<>,
        >,
        RejectReason,
    > {
        let object_count = |requested: &RequestedResource| -> Option<usize> {
            let table = registry.table();
            let RequestedResource {
                group,
                version,
                resource,
                ..
            } = requested;
            table.find_by_name(group, version, resource)?.object_count()
        };
        let max_seats = flow.level.nominal_limit() * MAX_SEATS_PERCENT / 100;
        let seats = estimate_seats(request.info, request.query, max_seats, &object_count);
        flow.metrics.seats.observe(seats as f64);
        let name = &flow.schema.metadata.name;
        let distinguisher = flow.schema.distinguisher(request.user, request.info);
        let hash = self.hasher.hash_one((name, distinguisher));
        match flow.level.acquire(hash, seats) {
            Err(reason) => {
                flow.record_rejection(reason, Duration::ZERO);
                Err(reason)
            }
            Ok(Acquisition::Executing(permit)) => {
                flow.record_dispatch(Duration::ZERO);
                Ok(Ok(permit))
            }
            Ok(Acquisition::Waiting(ticket)) => {
                let (flow, max_wait) = (Arc::clone(flow), self.max_wait);
                Ok(Err(async move {
                    let start = Instant::now();
                    let waiting_guard = FlowGaugeGuard::new(&flow.metrics.waiting);
                    let result = ticket.wait(max_wait).await;
                    drop(waiting_guard);
                    match &result {
                        Ok(_) => flow.record_dispatch(start.elapsed()),
                        Err(reason) => flow.record_rejection(*reason, start.elapsed()),
                    }
                    result
                }))
            }
        }
    }

    /// Applies changed objects: levels whose queues stay the same keep their requests.
    fn digest(&self, objects: &mut FlowControlObjects) {
        let mut configurations = objects.configurations.clone();
        let mut schemas: Vec<Arc<FlowSchema>> = objects.schemas.values().cloned().collect();
        add_mandatory_objects(&mut configurations, &mut schemas);
        schemas.sort_by(FlowSchema::precedence);
        let before = std::mem::take(&mut objects.levels);
        for (name, config) in &configurations {
            let existing = before.get(name).filter(|level| level.fits(config));
            let level = existing.cloned().unwrap_or_else(|| {
                PriorityLevel::new(config, self.metrics.of_level(name), self.epoch)
            });
            objects.levels.insert(name.clone(), level);
        }
        let shares: Vec<_> = configurations.values().map(|c| c.shares()).collect();
        let limits = nominal_limits(self.server_limit, &shares);
        for (name, limits) in configurations.keys().zip(limits) {
            if let Some(level) = objects.levels.get(name) {
                level.set_limits(limits);
            }
        }
        self.adjust_limits(objects);
        // A schema that refers to no level matches nothing.
        let flows = schemas.iter().filter_map(|schema| {
            let level = &schema.spec.priority_level_configuration.name;
            let level = Arc::clone(objects.levels.get(level)?);
            Some(Arc::new(Flow::new(schema, level, &self.metrics)))
        });
        self.flows.store(Arc::new(flows.collect()));
    }

    fn adjust_limits(&self, objects: &FlowControlObjects) {
        let now = Instant::now();
        let levels: Vec<&Arc<PriorityLevel>> = objects.levels.values().collect();
        let demands: Vec<_> = levels.iter().map(|level| level.take_demand(now)).collect();
        for (level, limit) in levels.iter().zip(current_limits(&demands)) {
            level.set_current_limit(now, limit);
        }
    }
}

/// Adds the schemas and levels without which no request could be classified, where they
/// are not stored.
fn add_mandatory_objects(
    configurations: &mut HashMap<String, PriorityLevelConfiguration>,
    schemas: &mut Vec<Arc<FlowSchema>>,
) {
    let rules = |group: &str| {
        json!([{
            "subjects": [{"kind": "Group", "group": {"name": group}}],
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"],
                               "clusterScope": true, "namespaces": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        }])
    };
    let exempt = json!({"type": "Exempt"});
    let catch_all = json!({"type": "Limited", "limited":
        {"nominalConcurrencyShares": 5, "limitResponse": {"type": "Reject"}}});
    for (name, group, precedence, level) in [
        ("exempt", "system:masters", 1, exempt),
        ("catch-all", "*", 10_000, catch_all),
    ] {
        let metadata = json!({"name": name});
        if !configurations.contains_key(name)
            && let Ok(level) = serde_json::from_value(json!({"metadata": metadata, "spec": level}))
        {
            configurations.insert(name.into(), level);
        }
        let schema = json!({"metadata": metadata, "spec": {
            "matchingPrecedence": precedence, "priorityLevelConfiguration": {"name": name},
            "distinguisherMethod": {"type": "ByUser"}, "rules": rules(group)}});
        if schemas.iter().all(|schema| schema.metadata.name != name)
            && let Ok(schema) = serde_json::from_value(schema)
        {
            schemas.push(Arc::new(schema));
        }
    }
}

impl Flow {
    fn new(
        schema: &Arc<FlowSchema>,
        level: Arc<PriorityLevel>,
        metrics: &FlowControlMetrics,
    ) -> Self {
        let header =
            |uid: &str| HeaderValue::from_str(uid).unwrap_or_else(|_| HeaderValue::from_static(""));
        Self {
            metrics: metrics.of_flow(&level.metadata.name, &schema.metadata.name),
            schema_uid: header(&schema.metadata.uid),
            level_uid: header(&level.metadata.uid),
            schema: Arc::clone(schema),
            level,
        }
    }

    /// Counts a request as executing until the guard is dropped.
    pub(crate) fn start_executing(&self) -> FlowGaugeGuard {
        FlowGaugeGuard::new(&self.metrics.executing)
    }

    fn record_dispatch(&self, wait: Duration) {
        self.metrics.dispatched.inc();
        self.metrics.wait_duration[0].observe(wait.as_secs_f64());
    }

    fn record_rejection(&self, reason: RejectReason, wait: Duration) {
        self.metrics.rejected(reason).inc();
        self.metrics.wait_duration[1].observe(wait.as_secs_f64());
    }
}

/// Adds one to a gauge until it is dropped.
pub(crate) struct FlowGaugeGuard(flotilla_metrics::Gauge);

impl FlowGaugeGuard {
    fn new(gauge: &flotilla_metrics::Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for FlowGaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Gathers the objects of one kind and applies them after each change; there are few.
struct FlowControlSink<'a, T, F> {
    controller: &'a FlowController,
    store: F,
    stored: HashMap<String, Object>,
    decoded: std::marker::PhantomData<T>,
}

impl<'a, T, F> FlowControlSink<'a, T, F>
where
    T: DeserializeOwned,
    F: Fn(&mut FlowControlObjects, Vec<T>),
{
    fn new(controller: &'a FlowController, store: F) -> Self {
        Self {
            controller,
            store,
            stored: HashMap::new(),
            decoded: std::marker::PhantomData,
        }
    }

    fn apply(&self) {
        let decode = |object: &Object| match machinery::json::from_slice(&object.bytes()) {
            Ok(decoded) => Some(decoded),
            Err(e) => {
                tracing::warn!(name = object.name(), error = %e, "ignoring an object of flow control");
                None
            }
        };
        let decoded = self.stored.values().filter_map(decode).collect();
        let mut objects = self.controller.objects.lock();
        (self.store)(&mut objects, decoded);
        self.controller.digest(&mut objects);
        self.controller.changed.notify_one();
    }
}

impl<T, F> ReflectorSink for FlowControlSink<'_, T, F>
where
    T: DeserializeOwned + Send,
    F: Fn(&mut FlowControlObjects, Vec<T>) + Send,
{
    fn begin_list(&mut self) {
        self.stored.clear();
    }

    fn list_item(&mut self, object: Object) {
        self.stored.insert(object.name().to_owned(), object);
    }

    fn end_list(&mut self) {
        self.apply();
    }

    fn upsert(&mut self, object: Object) {
        self.list_item(object);
        self.apply();
    }

    fn delete(&mut self, object: Object) {
        self.stored.remove(object.name());
        self.apply();
    }

    fn report_health(&mut self, error: Option<&client::Error>) {
        if let Some(error) = error {
            tracing::debug!(%error, "cannot follow the objects of flow control");
        }
    }
}
