//! Rows about the objects of a resource, of which the objects themselves are not kept.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use client::{Error, ReflectorSink};
use machinery::Object;
use parking_lot::RwLock;
use tokio::sync::watch;

use super::list_scope::ListScope;

/// Namespace and name; no namespace in cluster scope.
pub(crate) type ObjectKey = (String, String);

/// Makes a row; `None` for an object that cannot be read.
pub(super) type ProjectFunc<T> = fn(&Object, &mut NamePool) -> Option<T>;

/// Shares the texts that many rows have: kinds and names of clusters.
#[derive(Default)]
pub(super) struct NamePool(HashSet<Arc<str>>);

impl NamePool {
    pub(super) fn get(&mut self, name: &str) -> Arc<str> {
        if let Some(pooled) = self.0.get(name) {
            return Arc::clone(pooled);
        }
        let pooled: Arc<str> = name.into();
        self.0.insert(Arc::clone(&pooled));
        pooled
    }
}

struct ProjectionState<T> {
    rows: BTreeMap<ObjectKey, Arc<T>>,
    is_listed: bool,
    error: Option<String>,
}

impl<T> Default for ProjectionState<T> {
    fn default() -> Self {
        Self {
            rows: BTreeMap::new(),
            is_listed: false,
            error: None,
        }
    }
}

pub(super) struct Projection<T> {
    state: RwLock<ProjectionState<T>>,
    scope: Arc<ListScope>,
}

impl<T> Projection<T> {
    pub(super) fn new(scope: Arc<ListScope>) -> Self {
        Self {
            state: RwLock::default(),
            scope,
        }
    }

    pub(super) fn read<R>(&self, read: impl FnOnce(&BTreeMap<ObjectKey, Arc<T>>) -> R) -> R {
        read(&self.state.read().rows)
    }

    /// Whether the rows were listed, or why they cannot be is there to be shown.
    pub(super) fn is_answered(&self) -> bool {
        let state = self.state.read();
        state.is_listed || state.error.is_some()
    }

    /// Why rows are missing or may be old.
    pub(super) fn remark(&self, resource: &str) -> Option<String> {
        let state = self.state.read();
        match (&state.error, state.is_listed) {
            (Some(error), true) => Some(format!("{resource} may be out of date: {error}")),
            (Some(error), false) => Some(format!("{resource} cannot be listed: {error}")),
            (None, true) => self.scope.remark(resource),
            (None, false) => Some(format!("{resource} are still being read")),
        }
    }
}

/// Writes the rows, as a reflector calls it.
pub(super) struct ProjectionSink<T> {
    projection: Arc<Projection<T>>,
    changes: watch::Sender<u64>,
    project: ProjectFunc<T>,
    names: NamePool,
    /// The rows of the list that is being read, which replace all others at its end.
    listed: BTreeMap<ObjectKey, Arc<T>>,
}

impl<T> ProjectionSink<T> {
    pub(super) fn new(
        projection: Arc<Projection<T>>,
        changes: watch::Sender<u64>,
        project: ProjectFunc<T>,
    ) -> Self {
        Self {
            projection,
            changes,
            project,
            names: NamePool::default(),
            listed: BTreeMap::new(),
        }
    }

    fn notify(&self) {
        self.changes.send_modify(|count| *count += 1);
    }
}

fn key_of(object: &Object) -> ObjectKey {
    (object.namespace().to_owned(), object.name().to_owned())
}

impl<T: Send + Sync> ReflectorSink for ProjectionSink<T> {
    fn begin_list(&mut self) {
        self.listed.clear();
    }

    fn list_item(&mut self, object: Object) {
        if let Some(row) = (self.project)(&object, &mut self.names) {
            self.listed.insert(key_of(&object), Arc::new(row));
        }
    }

    fn end_list(&mut self) {
        let mut state = self.projection.state.write();
        state.rows = std::mem::take(&mut self.listed);
        state.is_listed = true;
        drop(state);
        self.notify();
    }

    fn upsert(&mut self, object: Object) {
        let row = (self.project)(&object, &mut self.names);
        let mut state = self.projection.state.write();
        match row {
            Some(row) => state.rows.insert(key_of(&object), Arc::new(row)),
            None => state.rows.remove(&key_of(&object)),
        };
        drop(state);
        self.notify();
    }

    fn delete(&mut self, object: Object) {
        self.projection.state.write().rows.remove(&key_of(&object));
        self.notify();
    }

    fn report_health(&mut self, error: Option<&Error>) {
        let is_unserved = error.is_some_and(Error::is_not_found);
        let is_forbidden = error.is_some_and(Error::is_forbidden);
        let error = error.filter(|_| !is_unserved).map(ToString::to_string);
        let mut state = self.projection.state.write();
        let has_changed = state.error != error || (is_unserved && !state.is_listed);
        if is_unserved {
            // There are no objects of a resource that the server does not serve.
            state.rows.clear();
            state.is_listed = true;
        }
        if is_forbidden {
            // The user may no longer see them.
            state.rows.clear();
            state.is_listed = false;
        }
        state.error = error;
        drop(state);
        if has_changed {
            self.notify();
        }
    }
}
