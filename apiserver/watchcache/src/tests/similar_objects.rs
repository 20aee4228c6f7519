//! A cache whose objects share bytes answers, byte by byte, as one whose objects do not.

use machinery::Object;
use proptest::prelude::*;

use super::*;
use crate::{CacherListRequest, ListRevision};

const KEYS: [&str; 6] = ["a/x", "b/x", "c/x", "d/x", "e/x", "a/other"];

#[derive(Clone, Debug)]
enum StoreChange {
    Put { key: usize, content: u8, note: u8 },
    Delete(usize),
    Compact,
    Break,
}

fn change() -> impl Strategy<Value = StoreChange> {
    prop_oneof![
        8 => (0..KEYS.len(), 0..3_u8, 0..4_u8)
            .prop_map(|(key, content, note)| StoreChange::Put { key, content, note }),
        3 => (0..KEYS.len()).prop_map(StoreChange::Delete),
        1 => Just(StoreChange::Compact),
        1 => Just(StoreChange::Break),
    ]
}

/// An object of 2 KiB: most of it is the same for one content.
fn large_thing(suffix: &str, content: u8, note: u8) -> String {
    let fields: Vec<String> = (0..80)
        .map(|n| format!(r#""field-{n}":"value {}""#, n * 7919 + usize::from(content)))
        .collect();
    let managed = match note {
        0 => String::new(),
        _ => format!(r#","managedFields":[{{"manager":"m{note}"}}]"#),
    };
    thing_json(suffix, &note.to_string()).replacen(
        "}}}",
        &format!(
            r#"}},"annotations":{{"note":"{note}"}}{managed}}},"spec":{{{}}}}}"#,
            fields.join(",")
        ),
        1,
    )
}

fn caches(store: &Arc<FakeStorageEngine>, similar_prefixes: Vec<String>) -> Arc<WatchCaches> {
    let config = WatchCacheConfig {
        similar_prefixes,
        ..WatchCacheConfig::default()
    };
    WatchCaches::new(Arc::new(FakeStoreAdapter(Arc::clone(store))), config)
}

async fn list(cache: &Cacher, revision: ListRevision) -> Result<Vec<Object>, crate::Error> {
    let request = CacherListRequest {
        filter: SelectionPredicate::default(),
        revision,
        limit: 0,
    };
    cache.list(request).await.map(|reply| reply.items)
}

/// Everything that a reader sees of an object.
fn content(object: &Object) -> (String, usize, Option<String>, Vec<String>, u64) {
    (
        String::from_utf8(object.served_bytes().into()).unwrap(),
        object.served_len(),
        object.annotation("note"),
        object
            .meta()
            .labels
            .iter()
            .map(|l| l.1.to_string())
            .collect(),
        object.revision(),
    )
}

async fn drain_frames(watcher: &mut CacheWatcher) -> Vec<String> {
    let mut frames = Vec::new();
    while let Ok(Some(item)) = tokio::time::timeout(Duration::from_secs(2), watcher.next()).await {
        frames.push(match item {
            Ok(CacheWatcherItem::Event(event)) => String::from_utf8(event.frame().into()).unwrap(),
            Ok(CacheWatcherItem::Bookmark { .. }) => continue,
            Err(error) => error.to_string(),
        });
    }
    frames
}

async fn play(changes: Vec<StoreChange>) {
    let store = Arc::new(FakeStorageEngine::default());
    let both = [vec![], vec![PREFIX.to_owned()]].map(|similar| caches(&store, similar));
    let cachers = [both[0].cacher(PREFIX), both[1].cacher(PREFIX)];
    store.write_other_resource();
    let mut watchers = Vec::new();
    for cacher in &cachers {
        let request = CacherWatchRequest {
            filter: SelectionPredicate::default(),
            start: WatchStart::After(store.revision()),
            bookmarks: false,
            deadline: None,
        };
        watchers.push(cacher.watch(request).await.unwrap());
    }
    for change in changes {
        match change {
            StoreChange::Put { key, content, note } => {
                let value = large_thing(KEYS[key], content, note);
                store.write(&[(KEYS[key], Some(value))]);
            }
            StoreChange::Delete(key) => {
                let revision = store.revision();
                let key = format!("{PREFIX}{}", KEYS[key]);
                if store.inner.lock().state(revision).contains_key(&*key) {
                    store.delete(key.trim_start_matches(PREFIX));
                }
            }
            StoreChange::Compact => store.compact_to(store.revision()),
            StoreChange::Break => store.break_watches(),
        }
        let [plain, shared] = [&cachers[0], &cachers[1]];
        let expected = list(plain, ListRevision::Newest).await.unwrap();
        let listed = list(shared, ListRevision::Newest).await.unwrap();
        let contents = |objects: &[Object]| objects.iter().map(content).collect::<Vec<_>>();
        assert_eq!(contents(&listed), contents(&expected));
        let past = ListRevision::Exact(store.revision().div_ceil(2));
        let expected = list(plain, past.clone()).await;
        let listed = list(shared, past).await;
        assert_eq!(
            listed.map(|objects| contents(&objects)).ok(),
            expected.map(|objects| contents(&objects)).ok()
        );
        // A break may or may not discard events that no watcher has read.
        let frames = drain_frames(&mut watchers[0]).await;
        assert_eq!(drain_frames(&mut watchers[1]).await, frames);
    }
    drop(watchers);
    for caches in both {
        caches.shutdown().await;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    // proves: WRK-cached-once
    #[test]
    fn objects_that_share_bytes_are_read_as_they_were_written(
        changes in prop::collection::vec(change(), 1..40),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(play(changes));
    }
}

// proves: WRK-cached-once
#[tokio::test(start_paused = true)]
async fn one_manifest_in_many_namespaces_takes_the_memory_of_a_few() {
    let store = Arc::new(FakeStorageEngine::default());
    let suffixes: Vec<String> = (0..100).map(|n| format!("ns-{n}/x")).collect();
    for suffix in &suffixes {
        store.write(&[(suffix, Some(large_thing(suffix, 0, 0)))]);
    }
    let caches = caches(&store, vec![PREFIX.to_owned()]);
    let cacher = caches.cacher(PREFIX);
    let memory = |objects: &[Object]| objects.iter().map(Object::memory_bytes).sum::<usize>();
    // The same holds for objects that are listed, and for those that are watched.
    for note in [0, 1] {
        for suffix in &suffixes {
            store.write(&[(suffix, Some(large_thing(suffix, 0, note)))]);
        }
        let objects = list(&cacher, ListRevision::Newest).await.unwrap();
        let lengths = objects.iter().map(Object::encoded_len).sum::<usize>();
        assert_eq!(objects.len(), suffixes.len());
        assert!(lengths > 10 * memory(&objects), "{}", memory(&objects));
    }
    caches.shutdown().await;
}
