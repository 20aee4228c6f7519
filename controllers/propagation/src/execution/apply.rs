//! Applies the manifests of a Work to its member cluster.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::{Api, At, EncodedBody, WriteOptions};
use machinery::Object;
use openapi::karmada::labels::CONFLICT_RESOLUTION;
use flotilla_runtime::{Action, Informer, ObjectRef};
use serde_json::Value;
use tokio::time::Instant;

use super::compare::{Equality, changed, desired};
use super::conditions::{APPLIED, DISPATCHING_TEXT, SUSPENDED_TEXT, applied, dispatching, is_news};
use super::lanes::{InOrder, Target};
use super::manifest::{EncodedWork, Manifest};
use super::shell::Execution;
use crate::error::Error;
use crate::figures::FIGURES;
use crate::kinds::Served;
use crate::manifest_memory::encoded_tree_bytes;

/// Timeout of the first list of a member's objects.
const FIRST_LIST: Duration = Duration::from_secs(5);
/// Failures because of a missing namespace that are retried without an event: the namespace's own
/// Work may be in progress.
const NAMESPACE_PATIENCE: u32 = 8;
/// Attempts to write an object that others keep changing, and the delay before the object is read
/// again (`retry.DefaultRetry` of client-go, as in Karmada).
const CONFLICT_TRIES: u32 = 5;
const CONFLICT_PAUSE: Duration = Duration::from_millis(10);
/// A comparison has a tree of the manifest and one of the observed object, and a pruned copy
/// of each.
const COPIES: usize = 2;

/// A manifest and the resource that it is applied to.
pub(super) struct Place<'a> {
    pub(super) served: Arc<Served>,
    pub(super) manifest: &'a Manifest,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
}

impl<'a> Place<'a> {
    pub(super) fn new(served: Arc<Served>, manifest: &'a Manifest) -> Self {
        Self {
            served,
            manifest,
            namespace: &manifest.namespace,
            name: &manifest.name,
        }
    }
}

/// What becomes of an object that a member has.
pub(super) enum Decision {
    Nothing,
    Write(EncodedBody),
    /// Somebody else's object: not ours to change.
    Foreign,
}

/// The result of applying the manifests of a Work.
#[derive(Default)]
struct Made {
    targets: Vec<Target>,
    wrote: bool,
    failure: Option<Undone>,
}

/// The condition's message about manifests that are not applied, and the reasons alone.
struct Undone {
    text: String,
    whys: String,
}

/// A manifest that is being applied.
struct OneManifest<'a> {
    cluster: &'a str,
    api: &'a dyn Api,
    place: &'a Place<'a>,
    equality: Equality,
    /// How often its Work has failed before.
    attempt: u32,
}

impl OneManifest<'_> {
    fn count_create(&self, success: bool) {
        let again = self.equality == Equality::Contained;
        FIGURES.created(success, self.place.served.names(), self.cluster, again);
    }

    fn count_update(&self, success: bool, wrote: bool) {
        FIGURES.updated(success, self.place.served.names(), self.cluster, wrote);
    }
}

/// The result of one write of a manifest.
enum Tried {
    Written(Object),
    /// The object was up to date before.
    Unchanged(Object),
    /// The member rejected the write, because the object has changed or no longer exists.
    Outdated(Option<Object>, client::Error),
}

/// Why a manifest is not applied.
pub(super) enum Trouble {
    /// Retried without an event: what is missing may be about to be created.
    Patience(String),
    Failed(String),
}

impl Trouble {
    fn of(e: &client::Error) -> Self {
        match e {
            // The message of a timed-out call is our own text.
            client::Error::Protocol(text) => Self::Failed(text.clone()),
            e => Self::Failed(e.to_string()),
        }
    }
}

impl Execution {
    pub(super) async fn apply(
        &self,
        cluster: &str,
        object: &Object,
        work: &EncodedWork,
        attempt: u32,
    ) -> Result<Action, Error> {
        let suspended = work.suspend_dispatching;
        let dispatch = dispatching(suspended);
        if is_news(&work.conditions, &dispatch) {
            let text = if suspended {
                SUSPENDED_TEXT
            } else {
                DISPATCHING_TEXT
            };
            self.recorder
                .normal(&Self::about(object), "WorkDispatching", text);
        }
        if suspended {
            self.say(object, work, &[dispatch]).await?;
            return Ok(Action::Done);
        }
        let current = work.condition(APPLIED);
        let generation = object.head().generation;
        let was_applied =
            current.is_some_and(|c| c.status == "True" && c.observed_generation == generation);
        let ready = self
            .clusters
            .get(cluster)
            .is_some_and(|c| c.cluster.is_ready());
        if !ready {
            // The Applied condition stays as it is: the Work waits for the cluster.
            self.say(object, work, &[dispatch]).await?;
            return Ok(Action::Done);
        }
        let equality = if was_applied || self.in_order(object).is_some() {
            Equality::Contained
        } else {
            Equality::Exact
        };
        let began = Instant::now();
        let made = self
            .make_all(cluster, &work.manifests, equality, attempt)
            .await;
        let fine = made.as_ref().is_ok_and(|made| made.failure.is_none());
        FIGURES.executed.observe(began.elapsed(), fine);
        let made = made?;
        let key = object.head().key();
        if let Some(Undone { text, whys }) = made.failure {
            let told = format!("Failed to sync work({key}) to cluster({cluster}), err: {whys}");
            let about = Self::about(object);
            self.recorder.warning(&about, "SyncFailed", told);
            self.not_in_order(object);
            let said = [dispatch, applied(Err(text.clone()))];
            self.say(object, work, &said).await?;
            return Err(Error::Blocked(text));
        }
        if made.wrote {
            let text = format!("Sync work({key}) to cluster({cluster}) successful.");
            let about = Self::about(object);
            self.recorder.normal(&about, "SyncSucceed", text);
        }
        self.say(object, work, &[dispatch, applied(Ok(()))]).await?;
        let in_order = InOrder {
            uid: object.uid().to_owned(),
            generation,
            targets: made.targets,
        };
        self.set_in_order(object, in_order);
        Ok(Action::Done)
    }

    /// Applies every manifest, even after failures. Returns an error only for failures that are
    /// retried without an event.
    async fn make_all(
        &self,
        cluster: &str,
        manifests: &[Bytes],
        equality: Equality,
        attempt: u32,
    ) -> Result<Made, Error> {
        let (mut made, mut failed) = (Made::default(), Vec::new());
        let mut awaited = None;
        for manifest in manifests {
            let manifest = &Manifest::new(manifest.clone());
            match self.make(cluster, manifest, equality, attempt).await {
                Ok((target, wrote)) => {
                    made.targets.push(target);
                    made.wrote |= wrote;
                    if wrote {
                        self.tell_template(cluster, manifest, None);
                    }
                }
                Err(Trouble::Patience(why)) => awaited = Some(why),
                Err(Trouble::Failed(why)) => {
                    self.tell_template(cluster, manifest, Some(&why));
                    failed.push(why);
                }
            }
        }
        if let Some(why) = awaited {
            if failed.is_empty() {
                return Err(Error::Blocked(why));
            }
            failed.push(why);
        }
        if !failed.is_empty() {
            let (done, total) = (made.targets.len(), manifests.len());
            let mut told = HashSet::new();
            failed.retain(|why| told.insert(why.clone()));
            let whys = match failed.as_slice() {
                [one] => one.clone(),
                many => format!("[{}]", many.join(", ")),
            };
            made.failure = Some(Undone {
                text: format!("Failed to apply all manifests ({done}/{total}): {whys}"),
                whys,
            });
        }
        Ok(made)
    }

    /// Brings one object about; tells the version that is right, and whether it had
    /// to be written.
    async fn make(
        &self,
        cluster: &str,
        manifest: &Manifest,
        equality: Equality,
        attempt: u32,
    ) -> Result<(Target, bool), Trouble> {
        let place = self.place(manifest).map_err(Trouble::Failed)?;
        let (resource, namespace) = (&place.served.gvr, place.namespace);
        self.idle.note(&place.served);
        let informer = self
            .members
            .managed(cluster, resource)
            .map_err(Trouble::Failed)?;
        listed(&informer).await.map_err(Trouble::Failed)?;
        let api = self.members.api(cluster).map_err(Trouble::Failed)?;
        let target = |revision| Target {
            resource: resource.clone(),
            namespace: namespace.to_owned(),
            name: place.name.to_owned(),
            revision,
        };
        let observed = informer.get(namespace, place.name);
        let manifest = OneManifest {
            cluster,
            api: &*api,
            place: &place,
            equality,
            attempt,
        };
        let (object, wrote) = self.create_or_update(&manifest, observed).await?;
        Ok((target(object.revision()), wrote))
    }

    /// Writes an object until the member has what it should have, or refuses. The object as
    /// the member has it, and whether it was written.
    async fn create_or_update(
        &self,
        of: &OneManifest<'_>,
        mut observed: Option<Object>,
    ) -> Result<(Object, bool), Trouble> {
        let mut lost = 0;
        loop {
            let known = observed.take();
            let was_known = known.is_some();
            let tried = match known {
                Some(known) => self.change(of, known).await?,
                None => self.create(of).await?,
            };
            let (now, refused) = match tried {
                Tried::Written(written) => return Ok((written, true)),
                Tried::Unchanged(object) => return Ok((object, false)),
                Tried::Outdated(now, refused) => (now, refused),
            };
            // An object that a create has revealed is no lost race.
            if was_known || now.is_none() {
                lost += 1;
                if lost == CONFLICT_TRIES {
                    if was_known {
                        of.count_update(false, false);
                    } else {
                        of.count_create(false);
                    }
                    return Err(Trouble::of(&refused));
                }
                tokio::time::sleep(CONFLICT_PAUSE).await;
            }
            observed = now;
        }
    }

    /// Creates an object that the member does not have, as far as its watch tells. The
    /// member may refuse the create before it compares names (ports, admission webhooks,
    /// quotas), so every refusal is followed by a question for the object.
    async fn create(&self, of: &OneManifest<'_>) -> Result<Tried, Trouble> {
        let (resource, namespace) = (&of.place.served.gvr, of.place.namespace);
        let options = WriteOptions::default();
        let at = At::all(resource, namespace);
        let created = of
            .api
            .create_encoded(at, of.place.manifest.body(), &options);
        let refused = match self.limited(created).await {
            Ok(created) => {
                of.count_create(true);
                return Ok(Tried::Written(created));
            }
            Err(e) => e,
        };
        if refused.is_already_exists() {
            return self.read_again(of, refused).await;
        }
        if may_exist(&refused) {
            let at = At::one(resource, namespace, of.place.name);
            let found = self.limited(of.api.get(at)).await.ok();
            // The admission of quotas refuses creates that race with a conflict.
            if found.is_some() || refused.is_conflict() {
                return Ok(Tried::Outdated(found, refused));
            }
        }
        of.count_create(false);
        if refused.is_not_found() && !namespace.is_empty() && of.attempt < NAMESPACE_PATIENCE {
            return Err(Trouble::Patience(refused.to_string()));
        }
        Err(Trouble::of(&refused))
    }

    /// Changes an object that the member has.
    async fn change(&self, of: &OneManifest<'_>, observed: Object) -> Result<Tried, Trouble> {
        let outcome = self.changed(of, observed).await;
        match &outcome {
            Ok(Tried::Outdated(..)) => {}
            Ok(Tried::Written(_)) => of.count_update(true, true),
            Ok(Tried::Unchanged(_)) => of.count_update(true, false),
            Err(_) => of.count_update(false, false),
        }
        outcome
    }

    async fn changed(&self, of: &OneManifest<'_>, observed: Object) -> Result<Tried, Trouble> {
        let (place, cluster) = (of.place, of.cluster);
        let kind = &place.served.gvk;
        let decided = self.decide(place, |_| (), &observed, of.equality).await;
        let body = match decided.map_err(Trouble::Failed)? {
            Decision::Nothing => return Ok(Tried::Unchanged(observed)),
            Decision::Foreign => {
                return Err(Trouble::Failed(format!(
                    "resource(kind={}, {}/{}) already exists in the cluster {cluster} and the {CONFLICT_RESOLUTION} strategy value is empty, Karmada will not manage this resource",
                    kind.kind, place.namespace, place.name
                )));
            }
            Decision::Write(body) => body,
        };
        // The informer may have a newer one by the time the member answers.
        drop(observed);
        let at = At::one(&place.served.gvr, place.namespace, place.name);
        let options = WriteOptions::default();
        match self
            .limited(of.api.update_encoded(at, body, &options))
            .await
        {
            Ok(written) => Ok(Tried::Written(written)),
            Err(refused) if refused.is_not_found() => Ok(Tried::Outdated(None, refused)),
            Err(refused) if refused.is_conflict() => self.read_again(of, refused).await,
            Err(e) => Err(Trouble::of(&e)),
        }
    }

    /// Reads an object whose write the member refused because it is another by now.
    async fn read_again(
        &self,
        of: &OneManifest<'_>,
        refused: client::Error,
    ) -> Result<Tried, Trouble> {
        let at = At::one(&of.place.served.gvr, of.place.namespace, of.place.name);
        let observed = match self.limited(of.api.get(at)).await {
            Ok(found) => Some(found),
            Err(e) if e.is_not_found() => None,
            Err(e) => return Err(Trouble::of(&e)),
        };
        Ok(Tried::Outdated(observed, refused))
    }

    /// Compares a manifest, as `change` leaves it, with the object that a member has. The
    /// trees that this takes, and the memory reserved for them, are given back before the
    /// member is written to, so that one that hangs keeps nobody waiting. A webhook that is
    /// asked what to retain holds them until its time limit.
    pub(super) async fn decide(
        &self,
        place: &Place<'_>,
        change: fn(&mut Value),
        observed: &Object,
        equality: Equality,
    ) -> Result<Decision, String> {
        let manifest = place.manifest;
        let bytes = encoded_tree_bytes(manifest.bytes()) + encoded_tree_bytes(observed.bytes());
        let _memory = self.memory.reserve(bytes, COPIES).await;
        let observed = observed.value().map_err(|e| e.to_string())?;
        let mut tree = manifest.tree().map_err(|e| e.to_string())?;
        change(&mut tree);
        let Some(desired) = desired(tree, &observed) else {
            return Ok(Decision::Foreign);
        };
        let kind = &place.served.gvk;
        let retained = self.interpreter.retain(kind, desired, &observed).await;
        let retained = retained.map_err(|e| e.to_string())?;
        let Some(object) = changed(retained, &observed, equality) else {
            return Ok(Decision::Nothing);
        };
        let body = manifest.encode(&object).map_err(|e| e.to_string())?;
        Ok(Decision::Write(body))
    }

    /// Where a manifest goes.
    pub(super) fn place<'a>(&self, manifest: &'a Manifest) -> Result<Place<'a>, String> {
        let kind = manifest.gvk();
        match self.kinds.of(&kind) {
            Some(served) => Ok(Place::new(served, manifest)),
            None => Err(format!(
                "no matches for kind {:?} in version {:?}",
                kind.kind,
                kind.api_version()
            )),
        }
    }

    /// Calls a member with a timeout.
    pub(super) async fn limited<T>(
        &self,
        call: impl Future<Output = client::Result<T>>,
    ) -> client::Result<T> {
        match tokio::time::timeout(self.call_timeout, call).await {
            Ok(outcome) => outcome,
            Err(_) => {
                let seconds = self.call_timeout.as_secs();
                let text = format!("the cluster did not answer within {seconds} s");
                Err(client::Error::Protocol(text))
            }
        }
    }

    fn tell_template(&self, cluster: &str, manifest: &Manifest, failure: Option<&str>) {
        let about = ObjectRef {
            api_version: manifest.api_version.clone(),
            kind: manifest.kind.clone(),
            namespace: manifest.namespace.clone(),
            name: manifest.name.clone(),
            uid: manifest.template_uid(),
            resource_version: String::new(),
        };
        let name = format!("{}/{}", about.namespace, about.name);
        match failure {
            None => {
                let text = format!("Successfully applied resource({name}) to cluster {cluster}");
                self.recorder.normal(&about, "SyncSucceed", text);
            }
            Some(why) => {
                // Unlike above, without a slash for cluster-scoped objects.
                let name = name.trim_start_matches('/');
                let text = format!(
                    "Failed to create or update resource({name}) in member cluster({cluster}): {why}"
                );
                self.recorder.warning(&about, "SyncFailed", text);
            }
        }
    }
}

/// Whether the object may exist although its create was rejected. Every rejection may come before
/// the API server compares the name, except those for a missing namespace, credentials or load.
fn may_exist(refused: &client::Error) -> bool {
    let status = refused.status();
    status.is_some_and(|status| !matches!(status.code, 401 | 404 | 429))
}

/// Waits until the informer of a member's objects has synced: before that its cache is incomplete.
/// Does not wait for a list that fails.
async fn listed(informer: &Informer) -> Result<(), String> {
    if informer.is_synced() {
        return Ok(());
    }
    if informer.last_error().is_none() {
        let first = tokio::time::timeout(FIRST_LIST, informer.wait_synced());
        if first.await.is_ok() {
            return Ok(());
        }
    }
    let why = informer.last_error();
    let why = why.unwrap_or_else(|| "no answer yet".to_owned());
    Err(format!("cannot list {}: {why}", informer.resource()))
}
