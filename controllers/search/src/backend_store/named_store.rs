//! A backend store that ResourceRegistries name: it runs while its addresses and its Secret can be
//! used, and starts again with another Secret.

use std::sync::Arc;

use client::remote::NetworkSendFence;
use client::{Api, Informer, InformerFactory, ListWatchSelector, TaskGroup};
use machinery::{Gvr, Object};
use tokio::sync::Notify;

use super::config::BackendStoreKey;
use super::health::Failure;
use super::indexed_resource::IndexedSelection;
use super::limits::BackendStoreLimits;
use super::registry_status::BackendStoreReport;
use super::store::OpenSearchBackendStore;

static SECRETS: Gvr = Gvr::from_static("", "v1", "secrets");

/// The version of a Secret; `None`: there is none.
type SecretVersion = Option<(String, u64)>;

enum StoreState {
    /// The Secret is not read yet.
    Unknown,
    Failed(Failure),
    Running(OpenSearchBackendStore),
}

/// A store and how it came about.
pub(crate) struct NamedStore {
    key: BackendStoreKey,
    limits: BackendStoreLimits,
    fence: Option<NetworkSendFence>,
    /// The informer of its Secret, and its factory, with which it would end.
    secrets: Option<Informer>,
    _informers: InformerFactory,
    /// The Secret with which the state came about.
    secret: SecretVersion,
    state: StoreState,
    changed: Arc<Notify>,
    tasks: TaskGroup,
}

impl NamedStore {
    /// `changed` is notified when the Secret or the health of the store changes.
    pub(crate) fn new(
        key: BackendStoreKey,
        limits: BackendStoreLimits,
        fence: Option<NetworkSendFence>,
        control_plane: &Arc<dyn Api>,
        changed: Arc<Notify>,
        tasks: &TaskGroup,
    ) -> Self {
        let tasks = tasks.child();
        let informers = InformerFactory::new(&tasks);
        let secrets = key.secret.as_ref().map(|(namespace, name)| {
            let select = ListWatchSelector::all(&SECRETS).namespace(namespace);
            let select = select.fields(format!("metadata.name={name}"));
            let informer = informers.get(control_plane, &select);
            let notify = Arc::clone(&changed);
            informer.add_event_handler(move |_| notify.notify_one());
            // There is no event for a Secret that does not exist.
            let (synced, notify) = (informer.clone(), Arc::clone(&changed));
            let shutdown = tasks.shutdown().clone();
            tasks.spawn(async move {
                let synced = shutdown.run_until_triggered(synced.wait_for_cache_sync());
                if synced.await.is_some() {
                    notify.notify_one();
                }
            });
            informer
        });
        Self {
            key,
            limits,
            fence,
            secrets,
            _informers: informers,
            secret: None,
            state: StoreState::Unknown,
            changed,
            tasks,
        }
    }

    /// Starts the store if it can, and again if its Secret has changed, with these sources.
    pub(crate) async fn update(&mut self, selected: Vec<IndexedSelection>) {
        if self.secrets.as_ref().is_some_and(|s| !s.has_synced()) {
            return;
        }
        let secret = self.current_secret();
        let version = secret.as_ref().map(|s| (s.uid().to_owned(), s.revision()));
        let is_unknown = matches!(self.state, StoreState::Unknown);
        if is_unknown || version != self.secret {
            self.secret = version;
            let former = std::mem::replace(&mut self.state, StoreState::Unknown);
            if let StoreState::Running(former) = former {
                former.stop().await;
            }
            self.state = match self.start(secret.as_ref()) {
                Ok(store) => StoreState::Running(store),
                Err(failure) => StoreState::Failed(failure),
            };
        }
        if let StoreState::Running(store) = &mut self.state {
            store.update(selected).await;
        }
    }

    fn current_secret(&self) -> Option<Object> {
        let (namespace, name) = self.key.secret.as_ref()?;
        self.secrets.as_ref()?.get(namespace, name)
    }

    fn start(&self, secret: Option<&Object>) -> Result<OpenSearchBackendStore, Failure> {
        if let Some((namespace, name)) = self.key.secret.as_ref().filter(|_| secret.is_none()) {
            return Err(Failure {
                reason: "SecretNotFound",
                message: format!("Secret {namespace}/{name} does not exist"),
            });
        }
        let invalid = |message: String| Failure {
            reason: "InvalidConfiguration",
            message,
        };
        let nodes = self
            .key
            .nodes(secret, self.fence.as_ref())
            .map_err(invalid)?;
        let started = OpenSearchBackendStore::start(
            self.key.name(),
            nodes,
            self.limits.clone(),
            Arc::clone(&self.changed),
            &self.tasks,
        );
        started.map_err(|error| invalid(error.0))
    }

    /// The report of its registries; `None` while nothing is known.
    pub(crate) fn report(&self) -> Option<BackendStoreReport> {
        match &self.state {
            StoreState::Unknown => None,
            StoreState::Failed(failure) => Some(BackendStoreReport::NotReady(failure.clone())),
            StoreState::Running(store) => BackendStoreReport::of(&store.health()),
        }
    }

    /// Ends all tasks.
    pub(crate) async fn stop(self) {
        self.tasks.stop().await;
    }
}
