//! Propagates namespaces to every cluster, because namespaced objects need them there.
//!
//! Creates a Work per namespace and cluster, owned by the namespace, with the cluster override
//! policies applied. Source: Karmada's `pkg/controllers/namespace`.

use std::sync::Arc;

use machinery::{Gvk, Gvr, Object};
use openapi::karmada::labels::{APPLIED_CLUSTER_OVERRIDES, SKIP_AUTO_PROPAGATION};
use openapi::karmada::names;
use flotilla_runtime::{Action, Informer, ObjectRef, Queue, Recorder, Select, Tasks, run_workers};
use scheduler::core::Member;
use serde_json::{Map, Value, json};

use crate::error::Error;
use crate::kinds::Scope;
use crate::meta::same_but_status;
use crate::overrides::{Candidates, Failed, Overrides, Record, selects};
use crate::run::Deps;
use crate::works::{Draft, Works};

static NAMESPACES: Gvr = Gvr::constant("", "v1", "namespaces");
static NAMESPACE: Gvk = Gvk::constant("", "v1", "Namespace");
const WORKERS: usize = 2;

pub(crate) struct Namespaces {
    recorder: Recorder,
    clusters: scheduler::Clusters,
    overrides: Overrides,
    works: Works,
    scope: Scope,
    namespaces: Informer,
    queue: Queue<String>,
}

impl Namespaces {
    pub(crate) async fn start(
        deps: &Deps,
        works: &Works,
        overrides: &Overrides,
        scope: &Scope,
        tasks: &Tasks,
    ) {
        let it = Arc::new(Self {
            recorder: deps.recorder.named("override-manager"),
            clusters: deps.clusters.clone(),
            overrides: overrides.clone(),
            works: works.clone(),
            scope: scope.clone(),
            namespaces: deps.informers.get(&deps.control, &Select::all(&NAMESPACES)),
            queue: Queue::new(),
        });
        it.namespaces.wait_synced().await;
        it.listen();
        let queue = it.queue.clone();
        run_workers(tasks, "namespaces", &queue, WORKERS, move |name| {
            let it = Arc::clone(&it);
            async move { it.reconcile(&name).await }
        });
    }

    fn listen(self: &Arc<Self>) {
        let queue = self.queue.clone();
        self.namespaces.on_change(move |change| {
            let same = |old: &Object, new: &Object| same_but_status(old, new);
            if let Some(new) = change.new
                && !change.old.is_some_and(|old| same(old, new))
            {
                queue.add_lane(new.name().to_owned(), change.initial);
            }
        });
        let it = Arc::downgrade(self);
        self.clusters.informer().on_change(move |change| {
            if let Some(it) = it.upgrade()
                && change.old.is_none()
                && !change.initial
            {
                it.some(|_| true);
            }
        });
        let it = Arc::downgrade(self);
        self.overrides.on_cluster_change(move |change| {
            let Some(it) = it.upgrade() else { return };
            let seen = |o: &Object| o.head().generation;
            let same = matches!((change.old, change.new), (Some(a), Some(b)) if seen(a) == seen(b));
            if !change.initial && !same {
                let versions = [change.old, change.new];
                it.some(|namespace| {
                    let mut all = versions.iter().flatten();
                    all.any(|p| selects(p, &NAMESPACE, namespace.head()))
                });
            }
        });
        // Recreates the Work of a namespace if somebody deletes it.
        let it = Arc::downgrade(self);
        self.works.informer.on_change(move |change| {
            if let (Some(it), Some(old), None) = (it.upgrade(), change.old, change.new)
                && let Some(owner) = old.head().controller().filter(|o| &*o.kind == "Namespace")
            {
                it.queue.add_low(owner.name.to_string());
            }
        });
    }

    fn some(&self, which: impl Fn(&Object) -> bool) {
        for namespace in self.namespaces.list_where(|n| which(n)) {
            self.queue.add_low(namespace.name().to_owned());
        }
    }

    async fn reconcile(&self, name: &str) -> Result<Action, Error> {
        if name == "default" || !self.scope.takes(name) {
            return Ok(Action::Done);
        }
        let Some(namespace) = self.namespaces.get("", name) else {
            return Ok(Action::Done);
        };
        let skip = namespace.head().label(SKIP_AUTO_PROPAGATION);
        if namespace.head().deleting || skip.is_some_and(|v| v.eq_ignore_ascii_case("true")) {
            return Ok(Action::Done);
        }
        let mut tree = namespace.value()?;
        tree["apiVersion"] = "v1".into();
        tree["kind"] = "Namespace".into();
        let overrides = self.overrides.candidates("");
        let about = ObjectRef::new("v1", "Namespace", &namespace);
        let mut failed = Vec::new();
        let snapshot = self.clusters.snapshot();
        for member in snapshot.members().iter().filter(|m| !m.is_terminating()) {
            let cluster = member.name();
            let outcome = match self.draft(&namespace, tree.clone(), member, &overrides) {
                Ok((record, draft)) => {
                    let put = self.works.put(draft, namespace.uid()).await;
                    put.map(|written| {
                        if written {
                            record.tell(&self.recorder, &about, cluster);
                        }
                    })
                }
                Err(why) => {
                    why.tell(&self.recorder, &about);
                    Err(Error::blocked(why))
                }
            };
            if let Err(e) = outcome {
                failed.push(Error::Blocked(format!(
                    "sync namespace({name}) to cluster({cluster}) failed due to: {e}"
                )));
            }
        }
        Error::of(failed).map(|()| Action::Done)
    }

    fn draft(
        &self,
        namespace: &Object,
        mut copy: Value,
        member: &Member,
        overrides: &Candidates,
    ) -> Result<(Record, Draft), Failed> {
        let record = overrides.apply(&mut copy, &NAMESPACE, &member.facts())?;
        let mut annotations = Map::new();
        if let Some(text) = record.of_cluster() {
            annotations.insert(APPLIED_CLUSTER_OVERRIDES.into(), text.into());
        }
        let owner = json!({"apiVersion": "v1", "kind": "Namespace", "name": namespace.name(),
            "uid": namespace.uid(), "controller": true, "blockOwnerDeletion": true});
        let draft = Draft {
            namespace: names::execution_space(member.name()),
            name: names::work("Namespace", namespace.name(), ""),
            labels: Map::new(),
            annotations,
            owners: vec![owner],
            manifest: copy,
            suspend_dispatching: None,
            preserve_on_deletion: None,
        };
        Ok((record, draft))
    }
}
