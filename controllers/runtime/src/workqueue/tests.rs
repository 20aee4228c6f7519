//! Tests of order, delays and processing of keys.

use super::key_states::{IDLE_CAPACITY_KEYS, LANES_FROM_HIGH, MAX_LANE_STREAK};
use super::*;
use machinery::Object;
use proptest::prelude::*;
use serde_json::json;
use std::collections::HashSet;

async fn drain(queue: &Workqueue<u32>) -> Vec<u32> {
    let mut keys = Vec::new();
    while !queue.is_empty() {
        let key = queue.get().await.unwrap();
        queue.done(&key);
        keys.push(key);
    }
    keys
}

#[tokio::test]
async fn changes_overtake_resyncs_but_do_not_starve_them() {
    let queue = Workqueue::new();
    for key in 0..4 {
        queue.add_low(key);
    }
    queue.add(9);
    queue.add(2);
    queue.add(9);
    assert_eq!(drain(&queue).await, [9, 2, 0, 1, 3]);
    queue.add_low(1000);
    for key in 0..40 {
        queue.add(key);
    }
    let order = drain(&queue).await;
    assert_eq!(
        order.iter().position(|k| *k == 1000),
        Some(MAX_LANE_STREAK as usize)
    );
}

// proves: DET-lanes
#[test]
fn an_event_has_the_lane_of_its_kind() {
    let object = Object::from_value(&json!({"metadata": {"name": "a"}})).unwrap();
    let present = Some(&object);
    for (old, new, in_initial_list, lane) in [
        (None, present, true, PriorityQueueLane::Low),
        (None, present, false, PriorityQueueLane::Medium),
        (present, present, false, PriorityQueueLane::High),
        (present, None, false, PriorityQueueLane::High),
    ] {
        let change = InformerEvent {
            old,
            new,
            in_initial_list,
        };
        assert_eq!(PriorityQueueLane::of(&change), lane, "{change:?}");
    }
}

// proves: DET-lanes
#[tokio::test]
async fn changes_overtake_new_objects_but_do_not_starve_them_nor_both_a_resync() {
    let queue = Workqueue::new();
    queue.add_low(2000);
    for key in 1000..1020 {
        queue.add_to_lane(key, PriorityQueueLane::Medium);
    }
    queue.add(1003);
    for key in 0..40 {
        queue.add(key);
    }
    let mut expected = vec![1003];
    expected.extend(0..15);
    expected.push(1000);
    expected.extend(15..31);
    expected.push(1001);
    expected.extend(31..40);
    expected.push(1002);
    expected.extend(1004..1017);
    expected.push(2000);
    expected.extend(1017..1020);
    assert_eq!(drain(&queue).await, expected);
}

// proves: SCH-queue-order
#[tokio::test]
async fn a_key_added_during_processing_is_ready_again() {
    let queue = Workqueue::new();
    queue.add(1);
    assert_eq!(queue.get().await, Some(1));
    queue.add_low(1);
    queue.add(1);
    assert!(queue.is_empty() && !queue.is_idle());
    queue.done(&1);
    assert_eq!(queue.get().await, Some(1));
    queue.done(&1);
    assert!(queue.is_idle());
}

#[tokio::test(start_paused = true)]
async fn delays_count_from_the_earliest_and_backoff_doubles() {
    let queue = Workqueue::new();
    let start = Instant::now();
    queue.add_after(1, Duration::from_secs(60));
    queue.add_after(1, Duration::from_secs(5));
    queue.add_after(1, Duration::from_secs(30));
    assert_eq!(queue.get().await, Some(1));
    assert_eq!(start.elapsed().as_secs(), 5);
    queue.done(&1);
    let idle = tokio::time::timeout(Duration::from_secs(100), queue.get()).await;
    assert!(idle.is_err(), "superseded delays fire no more");

    let delays: Vec<u64> = (0..4)
        .map(|_| queue.add_rate_limited(7).as_millis() as u64)
        .collect();
    assert_eq!((delays, queue.num_requeues(&7)), (vec![5, 10, 20, 40], 4));
    for _ in 0..40 {
        queue.add_rate_limited(7);
    }
    assert_eq!(queue.add_rate_limited(7), MAX_DELAY);
    queue.forget(&7);
    assert_eq!(queue.add_rate_limited(7), BASE_DELAY);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_learns_of_earlier_delays_and_of_the_end() {
    let queue = Workqueue::new();
    queue.add_after(1, Duration::from_secs(60));
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { queue.get().await }
    });
    tokio::task::yield_now().await;
    queue.add_after(2, Duration::from_secs(1));
    assert_eq!(waiting.await.unwrap(), Some(2));
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { queue.get().await }
    });
    tokio::task::yield_now().await;
    queue.close();
    assert_eq!(waiting.await.unwrap(), None);
}

proptest! {
    #[test]
    fn every_added_key_is_handed_out_and_never_twice_at_once(steps in prop::collection::vec((0_u8..5, 0_u32..8), 0..200)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let queue = Workqueue::new();
            let (mut owed, mut processing) = (HashSet::new(), HashSet::new());
            for (step, key) in steps {
                match step {
                    0 => { queue.add(key); owed.insert(key); }
                    1 => { queue.add_low(key); owed.insert(key); }
                    2 => { queue.add_to_lane(key, PriorityQueueLane::Medium); owed.insert(key); }
                    3 if !queue.is_empty() => {
                        let key = queue.get().await.unwrap();
                        assert!(owed.remove(&key) && processing.insert(key));
                    }
                    _ => if processing.remove(&key) { queue.done(&key); },
                }
            }
            for key in processing.drain() { queue.done(&key); }
            assert_eq!(drain(&queue).await.into_iter().collect::<HashSet<_>>(), owed);
            assert!(queue.is_idle());
        });
    }
}

// proves: SCH-queue-order, SCH-queue-priority
#[tokio::test]
async fn priorities_go_before_lanes_and_age() {
    let queue = Workqueue::new();
    queue.add(1);
    queue.add_without_backoff(2, PriorityQueueLane::High, 5);
    queue.add_without_backoff(3, PriorityQueueLane::Low, 7);
    queue.add_without_backoff(4, PriorityQueueLane::High, 7);
    queue.add_without_backoff(1, PriorityQueueLane::Low, 6);
    queue.add_without_backoff(5, PriorityQueueLane::High, -1);
    assert_eq!(queue.len(), 5);
    assert_eq!(drain(&queue).await, [4, 3, 1, 2, 5]);
    // A lower priority does not go first because it is in the low lane.
    queue.add_without_backoff(1000, PriorityQueueLane::Low, -1);
    for key in 0..40 {
        queue.add(key);
    }
    assert_eq!(drain(&queue).await.last(), Some(&1000));
}

#[tokio::test(start_paused = true)]
async fn a_priority_outlives_a_failure_and_a_new_change_ends_it() {
    let queue = Workqueue::with_backoff(Duration::from_secs(1), Duration::from_secs(10));
    queue.add_without_backoff(1, PriorityQueueLane::High, 9);
    assert_eq!(queue.get().await, Some(1));
    queue.add_rate_limited(1);
    queue.done(&1);
    queue.add(2);
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!((queue.get().await, queue.num_requeues(&1)), (Some(1), 1));
    queue.add_after(1, Duration::from_secs(300));
    queue.done(&1);
    assert_eq!(queue.pending_counts(), [1, 1, 0]);
    queue.add_without_backoff(1, PriorityQueueLane::High, 0);
    assert_eq!(
        (queue.pending_counts(), queue.num_requeues(&1)),
        ([2, 0, 0], 0)
    );
    assert_eq!(drain(&queue).await, [2, 1]);
}

#[tokio::test]
async fn the_memory_of_a_burst_is_freed() {
    let queue = Workqueue::new();
    for key in 0..10_000 {
        queue.add_to_lane(key, LANES_FROM_HIGH[key as usize % 3]);
        // The key has two entries in its lane.
        queue.add(key);
    }
    assert_eq!(drain(&queue).await.len(), 10_000);
    {
        let state = queue.0.state.lock();
        let capacities = [
            state.keys.capacity(),
            state.lanes[0].heap.capacity(),
            state.lanes[1].heap.capacity(),
            state.lanes[2].heap.capacity(),
        ];
        assert!(
            capacities
                .iter()
                .all(|capacity| *capacity <= 2 * IDLE_CAPACITY_KEYS),
            "{capacities:?}"
        );
    }
    queue.add(1);
    assert_eq!(drain(&queue).await, [1], "as before");
}
