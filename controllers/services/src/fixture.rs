//! A control plane and members for the tests, all of them fake APIs.

use std::sync::Arc;
use std::time::Duration;

use client::{Api, Informer, InformerFactory, TaskGroup};
use client_fake::FakeApi;
use flotilla_runtime::{ControllerContext, EventRecorder};
use machinery::Gvr;
use machinery::time::SystemClock;
use members::{MemberAccess, MemberConnectionCallback, MemberObjectCallback};
use parking_lot::Mutex;

use crate::{EnabledServiceControllers, ServiceControllersOptions};

/// Members that can be connected and disconnected.
#[derive(Default)]
pub(crate) struct FakeMemberConnections {
    connected: Mutex<Vec<(String, Arc<dyn Api>)>>,
    callbacks: Mutex<Vec<MemberConnectionCallback>>,
}

impl FakeMemberConnections {
    pub(crate) fn connect(&self, cluster: &str, api: &Arc<FakeApi>) {
        self.connected.lock().retain(|(name, _)| name != cluster);
        let api = Arc::clone(api) as Arc<dyn Api>;
        self.connected.lock().push((cluster.to_owned(), api));
        for callback in &*self.callbacks.lock() {
            callback(cluster, true);
        }
    }

    pub(crate) fn disconnect(&self, cluster: &str) {
        self.connected.lock().retain(|(name, _)| name != cluster);
        for callback in &*self.callbacks.lock() {
            callback(cluster, false);
        }
    }
}

impl MemberAccess for FakeMemberConnections {
    fn api(&self, cluster: &str) -> Result<Arc<dyn Api>, String> {
        let connected = self.connected.lock();
        let entry = connected.iter().find(|(name, _)| name == cluster);
        Ok(Arc::clone(&entry.ok_or("not connected")?.1))
    }

    fn managed_informer(&self, _: &str, _: &Gvr) -> Result<Informer, String> {
        Err("these controllers have their own informers".into())
    }

    fn find_managed_informer(&self, _: &str, _: &Gvr) -> Option<Informer> {
        None
    }

    fn stop_managed_informer(&self, _: &str, _: &Gvr) {}

    fn on_managed_object(&self, _: MemberObjectCallback) {}

    fn on_connection_change(&self, callback: MemberConnectionCallback) {
        self.callbacks.lock().push(callback);
    }
}

/// A context without events.
pub(crate) fn context(control_plane: &Arc<FakeApi>, tasks: &TaskGroup) -> ControllerContext {
    ControllerContext {
        control_plane: Arc::clone(control_plane) as Arc<dyn Api>,
        informers: InformerFactory::new(tasks),
        clock: Arc::new(SystemClock),
        recorder: EventRecorder::disabled(),
        tasks: tasks.clone(),
    }
}

/// All controllers.
pub(crate) fn options(members: &Arc<FakeMemberConnections>) -> ServiceControllersOptions {
    ServiceControllersOptions {
        members: Arc::clone(members) as Arc<dyn MemberAccess>,
        enabled: EnabledServiceControllers::default(),
    }
}

/// Waits for something that the controllers do.
pub(crate) async fn wait_until(what: &str, done: impl Fn() -> bool) {
    let wait = async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let reached = tokio::time::timeout(Duration::from_secs(10), wait).await;
    assert!(reached.is_ok(), "not reached: {what}");
}
