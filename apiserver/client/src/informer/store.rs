//! The objects of an informer by key, with indexes (client-go's `Indexer`). Each object
//! carries the number of the list that named it last, which tells what a new list no
//! longer contains. Synchronous.

use std::collections::BTreeSet;
use std::sync::Arc;

use ahash::AHashMap;
use machinery::Object;

type Keys = Box<dyn Fn(&Object) -> Vec<String> + Send + Sync>;

struct Entry {
    object: Object,
    /// The number of the last list that contained the object.
    epoch: u64,
}

struct Index {
    keys: Keys,
    /// Index key → object keys.
    found: AHashMap<Box<str>, Found>,
}

/// A sorted set of object keys. Most sets are small, and a tree with one key takes ten
/// times the memory of a vector.
enum Found {
    Few(Vec<Arc<str>>),
    Many(BTreeSet<Arc<str>>),
}

impl Found {
    /// Above this size a tree is faster.
    const FEW: usize = 16;

    fn of(key: &Arc<str>) -> Self {
        // `vec!` allocates exactly one slot.
        Self::Few(vec![Arc::clone(key)])
    }

    fn insert(&mut self, key: &Arc<str>) {
        match self {
            Self::Few(few) => match few.binary_search(key) {
                Ok(_) => {}
                Err(_) if few.len() == Self::FEW => {
                    let mut many: BTreeSet<Arc<str>> = few.drain(..).collect();
                    many.insert(Arc::clone(key));
                    *self = Self::Many(many);
                }
                Err(at) => {
                    few.reserve_exact(1);
                    few.insert(at, Arc::clone(key));
                }
            },
            Self::Many(many) => {
                many.insert(Arc::clone(key));
            }
        }
    }

    /// Removes a key; returns whether the set is now empty.
    fn remove(&mut self, key: &str) -> bool {
        match self {
            Self::Few(few) => {
                if let Ok(at) = few.binary_search_by(|known| (**known).cmp(key)) {
                    few.remove(at);
                }
                few.is_empty()
            }
            Self::Many(many) => {
                many.remove(key);
                many.is_empty()
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Arc<str>> {
        let (few, many) = match self {
            Self::Few(few) => (Some(few), None),
            Self::Many(many) => (None, Some(many)),
        };
        few.into_iter().flatten().chain(many.into_iter().flatten())
    }
}

impl Index {
    fn put(&mut self, key: &Arc<str>, object: &Object) {
        for at in (self.keys)(object) {
            self.enter(at, key);
        }
    }

    fn remove(&mut self, key: &str, object: &Object) {
        for at in (self.keys)(object) {
            self.leave(&at, key);
        }
    }

    /// Most updates leave the index keys unchanged.
    fn replace(&mut self, key: &Arc<str>, old: &Object, new: &Object) {
        let (before, after) = ((self.keys)(old), (self.keys)(new));
        if before == after {
            return;
        }
        for at in before {
            self.leave(&at, key);
        }
        for at in after {
            self.enter(at, key);
        }
    }

    fn enter(&mut self, at: String, key: &Arc<str>) {
        match self.found.get_mut(&*at) {
            Some(found) => found.insert(key),
            None => {
                self.found.insert(at.into(), Found::of(key));
            }
        }
    }

    fn leave(&mut self, at: &str, key: &str) {
        if let Some(found) = self.found.get_mut(at)
            && found.remove(key)
        {
            self.found.remove(at);
        }
    }
}

#[derive(Default)]
pub(super) struct Store {
    objects: AHashMap<Arc<str>, Entry>,
    indexes: Vec<(&'static str, Index)>,
    epoch: u64,
}

impl Store {
    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    pub(super) fn get(&self, key: &str) -> Option<Object> {
        self.objects.get(key).map(|e| e.object.clone())
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Object> {
        self.objects.values().map(|e| &e.object)
    }

    pub(super) fn by_index(&self, name: &str, key: &str) -> Vec<Object> {
        let index = self.indexes.iter().find(|(n, _)| *n == name);
        let found = index.and_then(|(_, i)| i.found.get(key));
        let keys = found.into_iter().flat_map(Found::iter);
        keys.filter_map(|k| self.get(k)).collect()
    }

    pub(super) fn index_keys(&self, name: &str, wanted: impl Fn(&str) -> bool) -> Vec<String> {
        let index = self.indexes.iter().find(|(n, _)| *n == name);
        let keys = index.into_iter().flat_map(|(_, i)| i.found.keys());
        let wanted = keys.filter(|key| wanted(key));
        wanted.map(|key| key.to_string()).collect()
    }

    pub(super) fn add_index(&mut self, name: &'static str, keys: Keys) {
        let mut index = Index {
            keys,
            found: AHashMap::new(),
        };
        for (key, entry) in &self.objects {
            index.put(key, &entry.object);
        }
        self.indexes.retain(|(n, _)| *n != name);
        self.indexes.push((name, index));
    }

    /// Stores an object and returns the one it replaces.
    pub(super) fn put(&mut self, object: Object) -> Option<Object> {
        let key = object.head().key();
        let epoch = self.epoch;
        if let Some((key, entry)) = self.objects.remove_entry(&*key) {
            for (_, index) in &mut self.indexes {
                index.replace(&key, &entry.object, &object);
            }
            self.objects.insert(key, Entry { object, epoch });
            return Some(entry.object);
        }
        let key: Arc<str> = key.into();
        for (_, index) in &mut self.indexes {
            index.put(&key, &object);
        }
        self.objects.insert(key, Entry { object, epoch });
        None
    }

    pub(super) fn remove(&mut self, key: &str) -> Option<Object> {
        let old = self.objects.remove(key)?.object;
        for (_, index) in &mut self.indexes {
            index.remove(key, &old);
        }
        Some(old)
    }

    /// A list begins.
    pub(super) fn begin(&mut self) {
        self.epoch += 1;
    }

    /// The list is complete: removes and returns the objects it did not contain.
    pub(super) fn sweep(&mut self) -> Vec<Object> {
        let stale: Vec<Arc<str>> = self
            .objects
            .iter()
            .filter(|(_, e)| e.epoch != self.epoch)
            .map(|(k, _)| Arc::clone(k))
            .collect();
        stale.iter().filter_map(|k| self.remove(k)).collect()
    }
}
