//! Tests of informers against the fake API server.

use std::sync::Arc;
use std::time::Duration;

use client::{Api, Informer, InformerFactory, ListWatchSelector, ShutdownToken, TaskGroup};
use machinery::{Gvr, Object, Status};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::FakeApi;

static MAPS: Gvr = Gvr::from_static("", "v1", "configmaps");

fn map(name: &str, team: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"n": name},
           "metadata": {"name": name, "namespace": "ns", "labels": {"team": team}}})
}

struct InformerFixture {
    fake: Arc<FakeApi>,
    api: Arc<dyn Api>,
    tasks: TaskGroup,
    informers: InformerFactory,
    received_events: Arc<Mutex<Vec<String>>>,
}

impl InformerFixture {
    fn new() -> Self {
        let fake = FakeApi::new();
        let tasks = TaskGroup::new(ShutdownToken::new());
        Self {
            api: fake.clone(),
            fake,
            informers: InformerFactory::new(&tasks),
            tasks,
            received_events: Arc::default(),
        }
    }

    fn start(&self, labels: &str) -> Informer {
        let informer = self
            .informers
            .get(&self.api, &ListWatchSelector::all(&MAPS).labels(labels));
        let received = Arc::clone(&self.received_events);
        informer.add_event_handler(move |c| {
            let sign = match (c.old, c.new, c.in_initial_list) {
                (None, Some(_), true) => "=",
                (None, Some(_), false) => "+",
                (Some(_), Some(_), _) => "~",
                _ => "-",
            };
            received.lock().push(format!("{sign}{}", c.key()));
        });
        informer
    }

    async fn expect(&self, expected: &[&str]) {
        let equal = async {
            while *self.received_events.lock() != expected {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let in_time = tokio::time::timeout(Duration::from_secs(120), equal).await;
        assert!(
            in_time.is_ok(),
            "{:?} is not {expected:?}",
            self.received_events.lock()
        );
        self.received_events.lock().clear();
    }
}

#[tokio::test(start_paused = true)]
async fn the_copy_follows_the_server() {
    let s = InformerFixture::new();
    s.fake.seed(&MAPS, map("a", "red"));
    s.fake.seed(&MAPS, map("other", "blue"));
    let informer = s.start("team=red");
    informer.add_index("team", |o| {
        o.meta()
            .label("team")
            .map(str::to_owned)
            .into_iter()
            .collect()
    });
    informer.wait_for_cache_sync().await;
    s.expect(&["=ns/a"]).await;
    s.fake.seed(&MAPS, map("b", "red"));
    s.fake.seed(&MAPS, map("a", "red"));
    s.expect(&["+ns/b", "~ns/a"]).await;
    assert_eq!(informer.by_index("team", "red").len(), 2);
    s.fake.seed(&MAPS, map("a", "blue"));
    s.fake.remove(&MAPS, "ns", "b");
    s.expect(&["-ns/a", "-ns/b"]).await;
    assert!(informer.is_empty() && informer.by_index("team", "red").is_empty());
    s.tasks.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_broken_watch_resumes_and_an_expired_one_lists_again() {
    let s = InformerFixture::new();
    for name in ["a", "b"] {
        s.fake.seed(&MAPS, map(name, ""));
    }
    let informer = s.start("");
    informer.wait_for_cache_sync().await;
    s.received_events.lock().clear();
    s.fake.end_watches();
    s.fake.seed(&MAPS, map("c", ""));
    s.expect(&["+ns/c"]).await;

    let down = Arc::new(Mutex::new(true));
    let refuse = Arc::clone(&down);
    s.fake
        .on_call(move |_| refuse.lock().then(|| Status::unavailable("down").into()));
    s.fake.end_watches();
    s.fake.remove(&MAPS, "ns", "a");
    s.fake.seed(&MAPS, map("b", "new"));
    s.fake.seed(&MAPS, map("d", ""));
    s.fake.compact();
    while informer.last_error().is_none() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    *down.lock() = false;
    s.expect(&["~ns/b", "+ns/d", "-ns/a"]).await;
    assert_eq!(informer.last_error(), None);
    s.tasks.stop().await;
}

#[tokio::test(start_paused = true)]
async fn equal_selections_share_and_stop_ends_them() {
    let s = InformerFixture::new();
    for n in 0..1200 {
        s.fake.seed(&MAPS, map(&format!("m{n:04}"), ""));
    }
    let first = s.informers.get_with_transform(&s.api, &ListWatchSelector::all(&MAPS), |o| {
        let slim = json!({"metadata": {"name": o.name(), "namespace": o.namespace(), "resourceVersion": o.revision().to_string()}});
        Object::from_value(&slim).unwrap()
    });
    let second = s.informers.get(&s.api, &ListWatchSelector::all(&MAPS));
    assert_eq!(s.informers.unsynced().len(), 1);
    s.informers.wait_for_cache_sync().await;
    assert_eq!((first.len(), second.len()), (1200, 1200));
    // The second sees what the first transformed: they share one copy.
    let shared = second.get("ns", "m0003").unwrap().value().unwrap();
    assert!(shared.get("data").is_none());
    s.informers.stop_server(&s.api).await;
    s.fake.seed(&MAPS, map("late", ""));
    assert_eq!(second.len(), 1200);
}

#[tokio::test(start_paused = true)]
async fn one_informer_is_stopped_and_started_again() {
    let s = InformerFixture::new();
    s.fake.seed(&MAPS, map("a", ""));
    let (all, select) = (
        s.start(""),
        ListWatchSelector::all(&MAPS).labels("team=red"),
    );
    let some = s.informers.get(&s.api, &select);
    s.informers.wait_for_cache_sync().await;
    s.informers
        .stop_informer(&s.api, &ListWatchSelector::all(&MAPS))
        .await;
    assert!(
        s.informers
            .find(&s.api, &ListWatchSelector::all(&MAPS))
            .is_none()
    );
    assert!(s.informers.find(&s.api, &select).is_some());
    s.fake.seed(&MAPS, map("b", "red"));
    while some.is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(all.len(), 1, "a stopped informer keeps its last state");
    let again = s.informers.get(&s.api, &ListWatchSelector::all(&MAPS));
    again.wait_for_cache_sync().await;
    assert_eq!(again.len(), 2);
    s.tasks.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_child_shares_informers_and_its_handlers_end_with_it() {
    let s = InformerFixture::new();
    s.fake.seed(&MAPS, map("a", "red"));
    let shared = s.start("");
    let part = s.tasks.child();
    let child = s.informers.child(&part);
    let (all, red) = (
        ListWatchSelector::all(&MAPS),
        ListWatchSelector::all(&MAPS).labels("team=red"),
    );
    let in_child = Arc::<Mutex<Vec<String>>>::default();
    for informer in [child.get(&s.api, &all), child.get(&s.api, &red)] {
        let keys = Arc::clone(&in_child);
        informer.add_event_handler(move |change| keys.lock().push(change.key()));
        informer.wait_for_cache_sync().await;
    }
    assert!(s.informers.find(&s.api, &red).is_none());
    s.expect(&["=ns/a"]).await;
    assert_eq!(*in_child.lock(), ["ns/a", "ns/a"]);

    part.stop().await;
    s.fake.seed(&MAPS, map("b", "red"));
    s.expect(&["+ns/b"]).await;
    assert_eq!(in_child.lock().len(), 2);
    // Nothing holds the handlers any more.
    assert_eq!(Arc::strong_count(&in_child), 1);
    assert!(shared.has_synced());
    s.tasks.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_informers_of_a_child_run_until_its_tasks_stop() {
    let s = InformerFixture::new();
    let part = s.tasks.child();
    let in_child = Arc::<Mutex<Vec<String>>>::default();
    {
        let child = s.informers.child(&part);
        let informer = child.get(&s.api, &ListWatchSelector::all(&MAPS));
        let keys = Arc::clone(&in_child);
        informer.add_event_handler(move |change| keys.lock().push(change.key()));
        informer.wait_for_cache_sync().await;
    }
    s.fake.seed(&MAPS, map("a", "red"));
    let followed = async {
        while in_child.lock().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(120), followed).await;
    assert!(in_time.is_ok());

    part.stop().await;
    assert_eq!(Arc::strong_count(&in_child), 1);
    s.tasks.stop().await;
}
