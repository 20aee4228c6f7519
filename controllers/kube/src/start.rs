//! Puts the controllers together.

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

/// What the controllers hand out.
#[derive(Clone)]
pub struct Options {
    pub clock: Arc<dyn Clock>,
    /// Which API groups of the catalog the server serves, as the registry is told.
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

/// Adds `keys` to a queue whenever the root certificates change.
pub(crate) fn requeue_on_change(
    mut root_ca: watch::Receiver<String>,
    queue: &Queue<String>,
    keys: impl Fn() -> Vec<String> + Send + 'static,
    tasks: &Tasks,
) {
    let (queue, stop) = (queue.clone(), tasks.shutdown().clone());
    tasks.spawn(async move {
        // An error means that the server, which renews them, is gone.
        while let Some(Ok(())) = stop.unless(root_ca.changed()).await {
            root_ca.borrow_and_update();
            for key in keys() {
                queue.add_low(key);
            }
        }
    });
}

/// Waits until all are listed; false when `tasks` end first, which may be never else.
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

/// Whether a definition stands behind a resource; they are named after each other. A
/// built-in resource stays when a definition of its name goes.
fn custom(definitions: &Informer, built_in: BuiltIn) -> impl Fn(&Gvr) -> bool + Clone + use<> {
    let definitions = definitions.clone();
    move |gvr| definitions.get("", &gvr.qualified()).is_some() && !built_in.has(gvr)
}

/// A definition that is served or gone changes what there is to collect.
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
            // The server takes up a definition, and its end, a moment after it is written.
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
