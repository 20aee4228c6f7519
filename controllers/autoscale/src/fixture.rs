//! The fixtures that the tests of all controllers share: a context without members, and members that are fake APIs.

use std::sync::Arc;
use std::time::Duration;

use client::{Api, Informer, InformerFactory, ListWatchSelector, TaskGroup};
use client_fake::FakeApi;
use flotilla_runtime::{ControllerContext, EventRecorder};
use jiff::SignedDuration;
use machinery::Gvr;
use machinery::time::{FakeClock, SystemClock};
use members::{MemberAccess, MemberConnectionCallback, MemberObjectCallback};
use serde_json::Value;

use crate::{AutoscalerOptions, EnabledAutoscalers, FederatedHpaSettings};

pub(crate) struct FakeMembers {
    pub(crate) apis: Vec<(&'static str, Arc<FakeApi>)>,
    /// Tests start the informers of what is watched in the members.
    pub(crate) informers: InformerFactory,
}

impl MemberAccess for FakeMembers {
    fn api(&self, cluster: &str) -> Result<Arc<dyn Api>, String> {
        let entry = self.apis.iter().find(|(name, _)| *name == cluster);
        let (_, api) = entry.ok_or("unknown cluster")?;
        Ok(Arc::clone(api) as Arc<dyn Api>)
    }

    fn managed_informer(&self, _: &str, _: &Gvr) -> Result<Informer, String> {
        Err("autoscalers start no informers of members".into())
    }

    fn find_managed_informer(&self, cluster: &str, resource: &Gvr) -> Option<Informer> {
        let api = self.api(cluster).ok()?;
        self.informers.find(&api, &ListWatchSelector::all(resource))
    }

    fn stop_managed_informer(&self, _: &str, _: &Gvr) {}

    fn on_managed_object(&self, _: MemberObjectCallback) {}

    fn on_connection_change(&self, _: MemberConnectionCallback) {}
}

/// A context without events.
pub(crate) fn context(control_plane: &Arc<dyn Api>, tasks: &TaskGroup) -> ControllerContext {
    ControllerContext {
        control_plane: Arc::clone(control_plane),
        informers: InformerFactory::new(tasks),
        clock: Arc::new(SystemClock),
        recorder: EventRecorder::disabled(),
        tasks: tasks.clone(),
    }
}

/// The controllers that run by default, without members.
pub(crate) fn options(context: &ControllerContext) -> AutoscalerOptions {
    AutoscalerOptions {
        members: Arc::new(FakeMembers {
            apis: Vec::new(),
            informers: context.informers.clone(),
        }),
        enabled: EnabledAutoscalers::default(),
        federated_hpa: FederatedHpaSettings::default(),
    }
}

/// Waits until a condition holds; if it never does, panics with `state`.
pub(crate) async fn wait_until(what: &str, state: impl Fn() -> Value, done: impl Fn() -> bool) {
    for _ in 0..2000 {
        if done() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("not reached: {what}: {}", state());
}

/// Lets time pass, for a clock and for timers that are paused.
pub(crate) async fn pass(clock: &FakeClock, time: Duration) {
    clock.advance(SignedDuration::try_from(time).unwrap());
    tokio::time::sleep(time).await;
}
