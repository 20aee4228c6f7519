//! Puts the controllers together.

use std::sync::Arc;
use std::time::Duration;

use client::{Api, Error};
use machinery::time::Clock;
use machinery::{Gvr, Object};
use runtime::{Action, Informer, Informers, Queue, Select, Tasks, run_workers};

use crate::collector::Collector;
use crate::definitions::DEFINITIONS;
use crate::resources::Resources;
use crate::tokens::Issue;
use crate::{accounts, definitions, namespaces, tokens};

const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// What the controllers hand out.
#[derive(Clone)]
pub struct Options {
    pub clock: Arc<dyn Clock>,
    /// PEM of the authority that signed the serving certificate.
    pub root_ca: String,
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
    let (server, known) = (Arc::clone(&api), Arc::clone(&resources));
    let collector = Collector::new(server, known, Arc::clone(clock), tasks);
    let served = informers.get(&api, &Select::all(&DEFINITIONS));
    if !synced(tasks, [&served]).await {
        return Ok(());
    }
    resources.refresh(&*api).await?;
    collector.follow(informers, custom(&served), tasks).await;
    collector.run(tasks);
    rediscover(&api, &resources, &collector, informers, tasks);
    namespaces::start(
        Arc::clone(&api),
        resources,
        Arc::clone(clock),
        informers,
        tasks,
    );
    definitions::start(Arc::clone(&api), Arc::clone(clock), informers, tasks);
    accounts::start(Arc::clone(&api), options.root_ca.clone(), informers, tasks);
    tokens::start(api, options.root_ca, options.issue, informers, tasks);
    Ok(())
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

/// Whether a definition stands behind a resource; they are named after each other.
fn custom(definitions: &Informer) -> impl Fn(&Gvr) -> bool {
    |gvr| definitions.get("", &gvr.qualified()).is_some()
}

/// A definition that is served or gone changes what there is to collect.
fn rediscover(
    api: &Arc<dyn Api>,
    resources: &Arc<Resources>,
    collector: &Arc<Collector>,
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
        let definitions = definitions.clone();
        async move {
            resources.refresh(&*api).await?;
            collector
                .follow(&informers, custom(&definitions), &own)
                .await;
            // The server takes up a definition, and its end, a moment after it is written.
            let all = resources.all();
            let served = |d: &Object| {
                definitions::served(d).is_none_or(|(group, plural)| {
                    all.iter()
                        .any(|r| r.resource.group == group && r.resource.resource == plural)
                })
            };
            let complete =
                definitions.list().iter().all(served) && !collector.outlives(custom(&definitions));
            Ok::<_, Error>(if complete {
                Action::Done
            } else {
                Action::After(LOOK_AGAIN)
            })
        }
    });
}
