//! Expectations: the races with the event handlers, and a model of a server whose watch and
//! whose responses arrive late.

use proptest::prelude::*;
use serde_json::json;

use super::*;

const MIN_WRITE_INTERVAL: Duration = Duration::from_millis(20);

fn at(revision: u64) -> Object {
    let metadata = json!({"name": "x", "resourceVersion": revision.to_string()});
    Object::from_value(&json!({"metadata": metadata})).unwrap()
}

fn check(written: &Expectations<u8>, copy: u64, turn: &str) {
    let readiness = match written.check(&1, || (copy > 0).then(|| at(copy))) {
        ReconcileReadiness::Ready(object) => format!("now {}", object.revision()),
        ReconcileReadiness::Gone => "gone".to_owned(),
        ReconcileReadiness::After(rest) => format!("in {rest:?}"),
        ReconcileReadiness::Awaited => "awaited".to_owned(),
    };
    assert_eq!(readiness, turn);
}

/// The object is deleted between the write and its response. The handler is called before
/// the write is recorded, or at the same time.
#[tokio::test]
async fn a_write_to_a_deleted_object_is_not_recorded() {
    let written = Expectations::<u8>::default();
    written.forget(&1);
    written.expect(&1, &at(5), || None);
    assert!(written.entries.lock(&1).is_empty());
    std::thread::scope(|scope| {
        written.expect(&1, &at(5), || {
            scope.spawn(|| written.forget(&1));
            std::thread::park_timeout(Duration::from_millis(20));
            Some(at(4))
        });
    });
    assert!(written.entries.lock(&1).is_empty());
}

#[tokio::test(start_paused = true)]
async fn decisions_wait_for_their_pace_and_for_the_copy() {
    let written = Expectations::with_min_write_interval(MIN_WRITE_INTERVAL);
    check(&written, 3, "now 3");
    written.expect(&1, &at(5), || Some(at(3)));
    assert!(written.is_own_write(&1, &at(5)) && written.is_ahead_of(&1, &at(4)));
    check(&written, 5, "in 20ms");
    let rest = |key, interval| written.rest_of_interval(&key, Duration::from_millis(interval));
    assert_eq!((rest(1, 70).as_millis(), rest(2, 70).as_millis()), (70, 0));
    tokio::time::advance(MIN_WRITE_INTERVAL).await;
    check(&written, 5, "now 5");
    assert_eq!((rest(1, 70).as_millis(), rest(1, 10).as_millis()), (50, 0));
    assert!(!written.satisfy(&1, &at(5)));
    check(&written, 4, "awaited");
    assert!(!written.satisfy(&1, &at(4)));
    assert!(written.satisfy(&1, &at(6)));
    assert!(!written.satisfy(&1, &at(7)));
    check(&written, 0, "gone");
    written.forget(&1);
    check(&written, 4, "now 4");
}

/// One step of what surrounds a controller with one object. A step that is impossible
/// now does nothing.
#[derive(Clone, Copy, Debug)]
enum ExpectationsFixtureStep {
    /// The worker reconciles the key, assumes a value and sends a write; the server applies
    /// it at once.
    Write,
    /// The worker assumes a value, and the server rejects the write.
    Reject,
    /// The worker receives the response to its write.
    Respond,
    /// Another client writes the object.
    ForeignWrite,
    /// The object is deleted, or created again.
    Delete,
    Create,
    /// The informer takes over the next event, and calls its handler.
    Deliver,
    /// The worker reconciles the key.
    Reconcile,
}

fn steps() -> impl Strategy<Value = Vec<ExpectationsFixtureStep>> {
    let step = prop_oneof![
        3 => Just(ExpectationsFixtureStep::Write),
        1 => Just(ExpectationsFixtureStep::Reject),
        4 => Just(ExpectationsFixtureStep::Respond),
        1 => Just(ExpectationsFixtureStep::ForeignWrite),
        1 => Just(ExpectationsFixtureStep::Delete),
        1 => Just(ExpectationsFixtureStep::Create),
        5 => Just(ExpectationsFixtureStep::Deliver),
        3 => Just(ExpectationsFixtureStep::Reconcile),
    ];
    proptest::collection::vec(step, 1..60)
}

/// A server, a watch with events in flight, an informer and one worker.
#[derive(Default)]
struct ExpectationsFixture {
    expectations: Expectations<u8, u64>,
    revision: u64,
    exists: bool,
    /// Events that the informer has not received: the revision, or `None` for a deletion.
    events: std::collections::VecDeque<Option<u64>>,
    /// The informer's copy.
    copy: Option<u64>,
    /// The write whose response has not arrived: its revision.
    in_flight: Option<u64>,
    /// The last own write that was answered while the informer had the object.
    last_write: Option<u64>,
    /// A reconciliation found the copy too old, and no event has enqueued the key since.
    waiting: bool,
}

impl ExpectationsFixture {
    fn change(&mut self, exists: bool) {
        self.revision += 1;
        self.exists = exists;
        self.events.push_back(exists.then_some(self.revision));
    }

    fn copy(&self) -> Option<Object> {
        self.copy.map(at)
    }

    fn apply(&mut self, step: ExpectationsFixtureStep) {
        match step {
            ExpectationsFixtureStep::Write
                if self.exists && self.in_flight.is_none() && self.reconcile() =>
            {
                self.change(true);
                self.expectations.assume(&1, self.revision);
                self.in_flight = Some(self.revision);
            }
            ExpectationsFixtureStep::Reject if self.in_flight.is_none() => {
                let before = self.expectations.assumed(&1, self.copy.unwrap_or(0));
                let previous = self.expectations.assume(&1, u64::MAX);
                assert_eq!(self.expectations.assumed(&1, self.revision), Some(u64::MAX));
                self.expectations.restore(&1, previous);
                let after = self.expectations.assumed(&1, self.copy.unwrap_or(0));
                assert_eq!(before, after);
            }
            ExpectationsFixtureStep::Respond => self.respond(),
            ExpectationsFixtureStep::ForeignWrite if self.exists => self.change(true),
            ExpectationsFixtureStep::Delete if self.exists => self.change(false),
            ExpectationsFixtureStep::Create if !self.exists => self.change(true),
            ExpectationsFixtureStep::Deliver => self.deliver(),
            ExpectationsFixtureStep::Reconcile if self.in_flight.is_none() => {
                self.reconcile();
            }
            _ => {}
        }
    }

    fn respond(&mut self) {
        let Some(revision) = self.in_flight.take() else {
            return;
        };
        self.expectations
            .expect(&1, &at(revision), || self.copy.map(at));
        self.last_write = self.copy.map(|_| revision);
    }

    fn deliver(&mut self) {
        let Some(event) = self.events.pop_front() else {
            return;
        };
        self.copy = event;
        match event {
            Some(revision) => {
                if self.expectations.satisfy(&1, &at(revision)) {
                    assert!(self.waiting, "nobody waits");
                    self.waiting = false;
                }
            }
            None => {
                self.expectations.forget(&1);
                self.last_write = None;
                self.waiting = false;
            }
        }
    }

    /// Returns whether the key is ready.
    fn reconcile(&mut self) -> bool {
        let last = self.last_write;
        match self.expectations.check(&1, || self.copy()) {
            ReconcileReadiness::Ready(object) => {
                assert!(last.is_none_or(|last| last <= object.revision()));
                return true;
            }
            ReconcileReadiness::Gone => assert_eq!(self.copy, None),
            ReconcileReadiness::After(rest) => panic!("no pace is set: {rest:?}"),
            ReconcileReadiness::Awaited => {
                assert!(last > self.copy, "{last:?} is shown by {:?}", self.copy);
                self.waiting = true;
            }
        }
        false
    }

    /// The assumption of a decision: the value that is sent, else that of the last write unless the
    /// copy shows it.
    fn verify_assumed(&self) {
        let Some(copy) = self.copy else { return };
        let assumed = self.expectations.assumed(&1, copy);
        match self.in_flight {
            // Only the deletion of an object that the informer had forgets a write in flight.
            Some(sent) => assert!(assumed.is_none_or(|value| value == sent)),
            None => {
                let hidden = self.last_write.filter(|written| *written > copy);
                assert!(assumed.is_none() || assumed == hidden);
            }
        }
        assert_eq!(
            self.last_write.is_some_and(|written| written == copy) && self.in_flight.is_none(),
            self.expectations.is_own_write(&1, &at(copy)) && self.in_flight.is_none(),
        );
    }
}

proptest! {
    #[test]
    fn no_older_copy_is_reconciled_and_nobody_waits_forever(steps in steps()) {
        let mut model = ExpectationsFixture::default();
        model.change(true);
        model.deliver();
        for step in steps {
            model.apply(step);
            model.verify_assumed();
        }
        model.respond();
        while !model.events.is_empty() {
            model.deliver();
        }
        assert!(!model.waiting, "a reconciliation waits, and all events are delivered");
        assert_eq!(model.reconcile(), model.exists, "the copy is the newest");
        assert_eq!(model.expectations.assumed(&1, model.copy.unwrap_or(0)), None);
        if model.exists {
            model.change(false);
            model.deliver();
        }
        assert!(model.expectations.entries.lock(&1).is_empty(), "all is forgotten");
    }
}
