//! The objects of an informer by key, with indexes (client-go's `Indexer`). Each object
//! carries the number of the list that named it last, which tells what a new list no
//! longer contains. Synchronous.

use std::collections::BTreeSet;
use std::sync::Arc;

use ahash::AHashMap;
use machinery::Object;

type IndexFunc = Box<dyn Fn(&Object) -> Vec<String> + Send + Sync>;

struct ObjectWithListEpoch {
    object: Object,
    /// The number of the last list that contained the object.
    epoch: u64,
}

struct InformerIndex {
    index_func: IndexFunc,
    /// Index key → object keys.
    objects_by_key: AHashMap<Box<str>, BTreeSet<Arc<str>>>,
}

impl InformerIndex {
    fn insert_object(&mut self, key: &Arc<str>, object: &Object) {
        for at in (self.index_func)(object) {
            self.insert_key(at, key);
        }
    }

    fn remove_object(&mut self, key: &str, object: &Object) {
        for at in (self.index_func)(object) {
            self.remove_key(&at, key);
        }
    }

    /// Most updates leave the index keys unchanged.
    fn replace_object(&mut self, key: &Arc<str>, old: &Object, new: &Object) {
        let (before, after) = ((self.index_func)(old), (self.index_func)(new));
        if before == after {
            return;
        }
        for at in before {
            self.remove_key(&at, key);
        }
        for at in after {
            self.insert_key(at, key);
        }
    }

    fn insert_key(&mut self, at: String, key: &Arc<str>) {
        let keys = self.objects_by_key.entry(at.into()).or_default();
        keys.insert(Arc::clone(key));
    }

    fn remove_key(&mut self, at: &str, key: &str) {
        let Some(keys) = self.objects_by_key.get_mut(at) else {
            return;
        };
        keys.remove(key);
        if keys.is_empty() {
            self.objects_by_key.remove(at);
        }
    }
}

#[derive(Default)]
pub(super) struct Indexer {
    objects: AHashMap<Arc<str>, ObjectWithListEpoch>,
    indexes: Vec<(&'static str, InformerIndex)>,
    epoch: u64,
}

impl Indexer {
    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    pub(super) fn get(&self, key: &str) -> Option<Object> {
        self.objects.get(key).map(|e| e.object.clone())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Object> {
        self.objects.values().map(|e| &e.object)
    }

    pub(super) fn by_index(&self, name: &str, key: &str) -> Vec<Object> {
        let index = self.indexes.iter().find(|(n, _)| *n == name);
        let keys = index.and_then(|(_, i)| i.objects_by_key.get(key));
        let keys = keys.into_iter().flatten();
        keys.filter_map(|k| self.get(k)).collect()
    }

    pub(super) fn index_keys(&self, name: &str, filter: impl Fn(&str) -> bool) -> Vec<String> {
        let index = self.indexes.iter().find(|(n, _)| *n == name);
        let keys = index.into_iter().flat_map(|(_, i)| i.objects_by_key.keys());
        let matching = keys.filter(|key| filter(key));
        matching.map(|key| key.to_string()).collect()
    }

    pub(super) fn add_index(&mut self, name: &'static str, keys: IndexFunc) {
        let mut index = InformerIndex {
            index_func: keys,
            objects_by_key: AHashMap::new(),
        };
        for (key, entry) in &self.objects {
            index.insert_object(key, &entry.object);
        }
        self.indexes.retain(|(n, _)| *n != name);
        self.indexes.push((name, index));
    }

    /// Stores an object and returns the one it replaces.
    pub(super) fn upsert(&mut self, object: Object) -> Option<Object> {
        let key = object.meta().key();
        let epoch = self.epoch;
        if let Some((key, entry)) = self.objects.remove_entry(&*key) {
            for (_, index) in &mut self.indexes {
                index.replace_object(&key, &entry.object, &object);
            }
            self.objects
                .insert(key, ObjectWithListEpoch { object, epoch });
            return Some(entry.object);
        }
        let key: Arc<str> = key.into();
        for (_, index) in &mut self.indexes {
            index.insert_object(&key, &object);
        }
        self.objects
            .insert(key, ObjectWithListEpoch { object, epoch });
        None
    }

    pub(super) fn remove(&mut self, key: &str) -> Option<Object> {
        let old = self.objects.remove(key)?.object;
        for (_, index) in &mut self.indexes {
            index.remove_object(key, &old);
        }
        Some(old)
    }

    /// A list begins.
    pub(super) fn begin_list(&mut self) {
        self.epoch += 1;
    }

    /// The list is complete: removes and returns the objects it did not contain.
    pub(super) fn remove_unlisted(&mut self) -> Vec<Object> {
        let stale: Vec<Arc<str>> = self
            .objects
            .iter()
            .filter(|(_, e)| e.epoch != self.epoch)
            .map(|(k, _)| Arc::clone(k))
            .collect();
        stale.iter().filter_map(|k| self.remove(k)).collect()
    }
}
