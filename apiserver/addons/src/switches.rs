//! Follows the ConfigMap of the addons in this replica.

use std::sync::Arc;
use std::time::Duration;

use client::{Api, InformerFactory, ListWatchSelector, TaskGroup};
use karmada_api::addons::{ADDONS_CONFIG_MAP, Addon, AddonConfiguration, AddonStatus, CONFIG_MAPS};
use machinery::Status;
use tokio::sync::watch;

/// How long the start waits for the ConfigMap. Later changes act whenever they come.
const KNOWN_TIMEOUT: Duration = Duration::from_secs(20);

/// The ConfigMap: what an operator has configured, and what the server has reported.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConfiguredAddons {
    pub configuration: AddonConfiguration,
    /// Whether the ConfigMap exists.
    pub exists: bool,
    /// The report that stands there.
    pub reported: Option<Vec<AddonStatus>>,
}

/// The states of the addons as they are configured now. Clones are the same.
#[derive(Clone)]
pub struct AddonSwitches {
    /// The namespace of the ConfigMap.
    pub(crate) namespace: Arc<str>,
    /// `None` until it was read.
    configured: watch::Receiver<Option<Arc<ConfiguredAddons>>>,
    /// Whether the search is known to be enabled.
    search: watch::Receiver<bool>,
}

impl AddonSwitches {
    /// Follows the ConfigMap in a namespace until the tasks stop.
    pub fn watch(api: &Arc<dyn Api>, namespace: &str, tasks: &TaskGroup) -> Self {
        let (configured, configured_receiver) = watch::channel(None);
        let (search, search_receiver) = watch::channel(false);
        let informers = InformerFactory::new(tasks);
        let select = ListWatchSelector::all(&CONFIG_MAPS)
            .namespace(namespace)
            .fields(format!("metadata.name={ADDONS_CONFIG_MAP}"));
        let informer = informers.get(api, &select);
        let set = move |now: ConfiguredAddons| {
            let search_now = now.configuration.state(Addon::Search) != Some(false);
            configured.send_if_modified(|before: &mut Option<Arc<ConfiguredAddons>>| {
                let is_new = before.as_deref() != Some(&now);
                if is_new {
                    *before = Some(Arc::new(now));
                }
                is_new
            });
            search.send_if_modified(|before| std::mem::replace(before, search_now) != search_now);
        };
        let set = Arc::new(set);
        let changed = Arc::clone(&set);
        informer.add_event_handler(move |change| {
            changed(match change.new {
                Some(map) => ConfiguredAddons {
                    configuration: AddonConfiguration::from_config_map(map),
                    exists: true,
                    reported: AddonStatus::from_config_map(map),
                },
                None => ConfiguredAddons::default(),
            });
        });
        let shutdown = tasks.shutdown().clone();
        tasks.spawn(async move {
            let listed = informer.wait_for_cache_sync();
            let listed = shutdown.run_until_triggered(listed).await;
            if listed.is_some() && informer.is_empty() {
                set(ConfiguredAddons::default());
            }
            shutdown.wait().await;
            // Its informer runs as long.
            drop(informers);
        });
        Self {
            namespace: namespace.into(),
            configured: configured_receiver,
            search: search_receiver,
        }
    }

    /// The switches of a server without addons.
    pub fn none() -> Self {
        Self {
            namespace: Arc::default(),
            configured: watch::channel(Some(Arc::default())).1,
            search: watch::channel(false).1,
        }
    }

    /// Waits until the ConfigMap was read, up to a timeout.
    pub async fn wait_known(&self) {
        let mut configured = self.configured.clone();
        let configuration = configured.wait_for(Option::is_some);
        if tokio::time::timeout(KNOWN_TIMEOUT, configuration)
            .await
            .is_err()
        {
            tracing::warn!("starting before the ConfigMap of the addons is read");
        }
    }

    /// The ConfigMap now; as if it were absent until it was read.
    pub fn current(&self) -> Arc<ConfiguredAddons> {
        self.configured.borrow().clone().unwrap_or_default()
    }

    /// The configured state of an addon; `None` if the flags decide.
    pub fn state(&self, addon: Addon) -> Option<bool> {
        let configured = self.configured.borrow();
        configured.as_ref()?.configuration.state(addon)
    }

    /// Changes with the ConfigMap.
    pub fn subscribe(&self) -> watch::Receiver<Option<Arc<ConfiguredAddons>>> {
        self.configured.clone()
    }

    /// Changes with the state of the search.
    pub fn search_enabled(&self) -> watch::Receiver<bool> {
        self.search.clone()
    }

    /// 503 if the addon is disabled: what it would answer is not known.
    pub fn check_enabled(&self, addon: Addon) -> Result<(), Status> {
        if self.state(addon) != Some(false) {
            return Ok(());
        }
        let text =
            format!("the addon {addon} is disabled; \"flotilla addons enable {addon}\" enables it");
        Err(Status::unavailable(text))
    }
}
