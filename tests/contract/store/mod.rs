//! The contract of `storage::Store`, tested on every engine.
//!
//! The cases follow Kubernetes' own suite (staging/src/k8s.io/apiserver/pkg/storage/testing). A
//! new engine needs a constructor in [`store_under_test::StoreUnderTest`] and its name in the list
//! at the end of this file.

mod model;
mod operations;
mod reads;
mod store_under_test;
mod watches;
mod writes;

macro_rules! case {
    ([$(#[$lane:meta])*] $engine:ident $area:ident $case:ident) => {
        $(#[$lane])*
        #[tokio::test]
        async fn $case() {
            let Some(engine) = crate::contract::store::store_under_test::StoreUnderTest::$engine().await else {
                return;
            };
            let store = engine.store.clone();
            crate::contract::store::$area::$case(&store).await;
            engine.close().await;
        }
    };
}

macro_rules! cases {
    ($lane:tt $engine:ident: $($area:ident::$case:ident,)+) => {
        mod $engine {
            $(case! { $lane $engine $area $case })+
        }
    };
}

macro_rules! contract {
    ($($(#[$lane:meta])* $engine:ident)+) => {
        $(cases! { [$(#[$lane])*] $engine:
            writes::create_returns_the_next_revision,
            writes::create_of_an_existing_key_conflicts,
            writes::update_requires_the_current_revision,
            writes::delete_requires_the_current_revision,
            writes::delete_of_an_absent_key_conflicts,
            writes::recreated_key_has_new_revisions,
            writes::too_large_request_is_rejected,
            writes::conflicts_do_not_move_the_revision,
            writes::concurrent_creates_have_one_winner,
            writes::concurrent_updates_lose_nothing,
            writes::key_expires_after_its_time_to_live,
            writes::update_removes_the_time_to_live,
            reads::get_returns_the_newest,
            reads::prefix_does_not_match_longer_names,
            reads::pages_are_of_one_revision,
            reads::range_at_an_older_revision,
            reads::range_at_a_future_revision_is_rejected,
            reads::compaction_keeps_its_own_revision,
            reads::compaction_removes_deleted_keys,
            reads::compaction_twice_is_harmless,
            watches::watch_from_a_revision,
            watches::watch_delivers_previous_values,
            watches::watch_is_limited_to_its_prefix,
            watches::watch_of_an_idle_prefix_progresses,
            watches::revision_of_an_idle_prefix_is_reached,
            watches::watch_after_compaction_is_rejected,
            watches::watch_from_a_future_revision_is_rejected,
            watches::running_watch_survives_compaction,
            watches::slow_watch_reads_history,
            watches::compaction_overtakes_a_slow_watch,
            watches::cancelled_wait_loses_no_event,
            model::random_histories,
            model::compaction_races_with_watch_starts,
        })+
    };
}

contract! { memory disk disk_without_sync #[harness::slow] etcd_34 etcd_35 etcd_deltas }
