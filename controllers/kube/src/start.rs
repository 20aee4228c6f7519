//! Starts all controllers of this crate.

use std::sync::Arc;
use std::time::Duration;

use client::{Api, Error};
use machinery::time::Clock;
use machinery::{Gvr, Object};
use flotilla_runtime::{Action, Informer, Informers, Queue, Select, Tasks, run_workers};
use tokio::sync::watch;

use crate::collector::Collector;
use crate::definitions::{BuiltIn, DEFINITIONS};
use crate::resources::Resources;
use crate::tokens::Issue;
use crate::{accounts, definitions, namespaces, tokens};

const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Options of the controllers.
#[derive(Clone)]
pub struct Options {
    pub clock: Arc<dyn Clock>,
    /// Which API groups of the catalog the server serves, as configured in the registry.
    pub serves: fn(&str) -> bool,
    /// PEM of the authorities that sign the serving certificate; it may change.
    pub root_ca: watch::Receiver<String>,
    pub issue: Issue,
}

/// Starts all controllers of this crate; they end with `tasks`.
pub async fn start(
    api: Arc<dyn Api>,
    options: Options,
    informers: &Informers,
    tasks: &Tasks,
) -> Result<(), Error> {
    let resources = Arc::new(Resources::default());
    let clock = &options.clock;
    let built_in = BuiltIn {
        serves: options.serves,
    };
    let (server, known) = (Arc::clone(&api), Arc::clone(&resources));
    let collector = Collector::new(server, known, Arc::clone(clock), tasks);
    let served = informers.get(&api, &Select::all(&DEFINITIONS));
    if !synced(tasks, [&served]).await {
        return Ok(());
    }
    resources.refresh(&*api).await?;
    let custom = custom(&served, built_in);
    collector.follow(informers, &custom, tasks).await;
    collector.run(tasks);
    rediscover(&api, &resources, &collector, custom, informers, tasks);
    namespaces::start(
        Arc::clone(&api),
        resources,
        Arc::clone(clock),
        informers,
        tasks,
    );
    definitions::start(
        Arc::clone(&api),
        Arc::clone(clock),
        built_in,
        informers,
        tasks,
    );
    accounts::start(Arc::clone(&api), options.root_ca.clone(), informers, tasks);
    tokens::start(api, options.root_ca, options.issue, informers, tasks);
    Ok(())
}

/// Enqueues `keys` whenever the root certificates change.
pub(crate) fn requeue_on_change(
    mut root_ca: watch::Receiver<String>,
    queue: &Queue<String>,
    keys: impl Fn() -> Vec<String> + Send + 'static,
    tasks: &Tasks,
) {
    let (queue, stop) = (queue.clone(), tasks.shutdown().clone());
    tasks.spawn(async move {
        // An error means that the server, which renews the certificates, has stopped.
        while let Some(Ok(())) = stop.unless(root_ca.changed()).await {
            root_ca.borrow_and_update();
            for key in keys() {
                queue.add_low(key);
            }
        }
    });
}

/// Waits until all informers are synced; false if `tasks` end first.
pub(crate) async fn synced<'a>(
    tasks: &Tasks,
    informers: impl IntoIterator<Item = &'a Informer>,
) -> bool {
    for informer in informers {
        let listed = tasks.shutdown().unless(informer.wait_synced()).await;
        if listed.is_none() {
            return false;
        }
    }
    true
}

/// Returns whether a resource belongs to a definition, by its name. A built-in resource
/// stays when a definition of the same name is deleted.
fn custom(definitions: &Informer, built_in: BuiltIn) -> impl Fn(&Gvr) -> bool + Clone + use<> {
    let definitions = definitions.clone();
    move |gvr| definitions.get("", &gvr.qualified()).is_some() && !built_in.has(gvr)
}

/// Rediscovers the resources and monitors whenever a definition changes.
fn rediscover(
    api: &Arc<dyn Api>,
    resources: &Arc<Resources>,
    collector: &Arc<Collector>,
    custom: impl Fn(&Gvr) -> bool + Clone + Send + Sync + 'static,
    informers: &Informers,
    tasks: &Tasks,
) {
    let queue: Queue<()> = Queue::new();
    let wake = queue.clone();
    let definitions = informers.get(api, &Select::all(&DEFINITIONS));
    definitions.on_change(move |_| wake.add(()));
    let (api, resources) = (Arc::clone(api), Arc::clone(resources));
    let (collector, informers) = (Arc::clone(collector), informers.clone());
    let own = tasks.clone();
    run_workers(tasks, "discovery", &queue, 1, move |()| {
        let own = own.clone();
        let (api, resources) = (Arc::clone(&api), Arc::clone(&resources));
        let (collector, informers) = (Arc::clone(&collector), informers.clone());
        let (definitions, custom) = (definitions.clone(), custom.clone());
        async move {
            resources.refresh(&*api).await?;
            collector.follow(&informers, &custom, &own).await;
            // The server applies a definition, or its deletion, a moment after the write.
            let all = resources.all();
            let served = |d: &Object| {
                definitions::served(d).is_none_or(|(group, plural)| {
                    all.iter()
                        .any(|r| r.resource.group == group && r.resource.resource == plural)
                })
            };
            let complete = definitions.list().iter().all(served) && !collector.outlives(&custom);
            Ok::<_, Error>(if complete {
                Action::Done
            } else {
                Action::After(LOOK_AGAIN)
            })
        }
    });
}
