//! Tests of workers with a queue, and of what they log and measure.

use super::*;
use client::ShutdownToken;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

fn metric_value(series: &str) -> f64 {
    let text = String::from_utf8(flotilla_metrics::encode_text(&[
        flotilla_metrics::process_registry(),
    ]))
    .unwrap();
    let value = text.lines().find_map(|l| l.strip_prefix(series));
    value.map_or(0.0, |v| v.trim().parse().unwrap())
}

#[tokio::test(start_paused = true)]
async fn the_age_of_the_oldest_waiting_key_is_a_metric_until_the_queue_ends() {
    let tasks = TaskGroup::new(ShutdownToken::new());
    let queue: Workqueue<u32> = Workqueue::new();
    run_workers(&tasks, "aging", &queue, 1, |key: u32| async move {
        tokio::time::sleep(Duration::from_secs(if key == 0 { 100 } else { 1 })).await;
        Ok::<_, String>(ReconcileAction::Done)
    });
    let age = "flotilla_workqueue_oldest_item_age_seconds{name=\"aging\"}";
    assert_eq!(metric_value(age), 0.0);
    queue.add(0);
    tokio::time::sleep(Duration::from_secs(30)).await;
    // A key that is processed does not wait.
    assert_eq!(metric_value(age), 0.0);
    queue.add(1);
    tokio::time::sleep(Duration::from_secs(60)).await;
    queue.add(2);
    let oldest = metric_value(age);
    assert!((60.0..60.1).contains(&oldest), "{oldest}");
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(metric_value(age), 0.0);
    queue.close();
    let text = flotilla_metrics::encode_text(&[flotilla_metrics::process_registry()]);
    assert!(!String::from_utf8(text).unwrap().contains(age));
    tasks.stop().await;
}

#[tokio::test(start_paused = true)]
async fn workers_wait_for_the_caches_and_do_not_outlive_the_shutdown() {
    for is_synced in [true, false] {
        let tasks = TaskGroup::new(ShutdownToken::new());
        let (queue, count) = (Workqueue::new(), Arc::new(AtomicUsize::new(0)));
        let (sync, synced) = tokio::sync::oneshot::channel::<()>();
        let counted = Arc::clone(&count);
        let waits = async move { synced.await.unwrap() };
        run_workers_after(&tasks, waits, "waiting", &queue, 1, move |_: u32| {
            counted.fetch_add(1, Ordering::Relaxed);
            async { Ok::<_, String>(ReconcileAction::Done) }
        });
        queue.add(1);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(count.load(Ordering::Relaxed), 0);
        let mut sync = Some(sync);
        if is_synced {
            sync.take().unwrap().send(()).unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(count.load(Ordering::Relaxed), usize::from(is_synced));
        tasks.stop().await;
        assert_eq!(count.load(Ordering::Relaxed), usize::from(is_synced));
    }
}

#[tokio::test(start_paused = true)]
async fn lag_counts_from_the_change_to_the_answer_and_resyncs_have_none() {
    let tasks = TaskGroup::new(ShutdownToken::new());
    let queue = Workqueue::new();
    let (attempts, waited) = (queue.clone(), Arc::new(AtomicBool::new(false)));
    let name = ControllerName::with_stage("lagging", "tested");
    run_workers(&tasks, name, &queue, 4, move |key: u32| {
        let (attempt, waited) = (attempts.num_requeues(&key), Arc::clone(&waited));
        async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            match (key, attempt) {
                (1, 0..3) => Err("not yet".to_owned()),
                (2, _) if !waited.swap(true, Ordering::Relaxed) => {
                    Ok(ReconcileAction::RequeueAfter(Duration::from_secs(20)))
                }
                _ => Ok(ReconcileAction::Done),
            }
        }
    });
    for key in 0..3 {
        queue.add(key);
    }
    queue.add_low(3);
    tokio::time::sleep(Duration::from_secs(100)).await;
    let lags = "flotilla_propagation_lag_seconds";
    assert_eq!(
        metric_value(&format!("{lags}_count{{stage=\"tested\"}}")),
        3.0
    );
    // At once, after three failures and pauses of 35 ms, and after 20 s.
    let sum = metric_value(&format!("{lags}_sum{{stage=\"tested\"}}"));
    assert!((27.035..27.1).contains(&sum), "{sum}");
    let reconciled = "controller_runtime_reconcile_total{controller=\"lagging\",result=";
    for (series, value) in [
        (format!("{reconciled}\"success\"}}"), 4.0),
        (format!("{reconciled}\"error\"}}"), 3.0),
        (format!("{reconciled}\"requeue_after\"}}"), 1.0),
        ("workqueue_adds_total{name=\"lagging\"}".into(), 8.0),
        ("workqueue_retries_total{name=\"lagging\"}".into(), 3.0),
        ("workqueue_depth{name=\"lagging\"}".into(), 0.0),
    ] {
        assert_eq!(metric_value(&series), value, "{series}");
    }
    tasks.stop().await;
}

#[tokio::test(start_paused = true)]
async fn errors_and_panics_come_back_and_shutdown_waits_for_the_running() {
    let tasks = TaskGroup::new(ShutdownToken::new());
    let queue = Workqueue::new();
    let calls: Arc<Mutex<Vec<(u32, u32)>>> = Arc::default();
    let (log, again) = (Arc::clone(&calls), queue.clone());
    run_workers(&tasks, "test", &queue, 2, move |key: u32| {
        let (log, queue) = (Arc::clone(&log), again.clone());
        async move {
            let attempt = queue.num_requeues(&key);
            log.lock().push((key, attempt));
            match (key, attempt) {
                (1, 0) => Err("no".to_owned()),
                (1, 1) => panic!("on purpose"),
                (2, _) => {
                    tokio::time::sleep(Duration::from_secs(3600)).await;
                    log.lock().push((2, 99));
                    Ok(ReconcileAction::Done)
                }
                (3, _) => Ok(ReconcileAction::RequeueAfter(Duration::from_secs(10))),
                _ => Ok(ReconcileAction::Done),
            }
        }
    });
    queue.add(1);
    queue.add(3);
    tokio::time::sleep(Duration::from_secs(25)).await;
    assert_eq!(
        *calls.lock(),
        [(1, 0), (3, 0), (1, 1), (1, 2), (3, 0), (3, 0)]
    );
    assert_eq!(queue.num_requeues(&1), 0);
    queue.add(2);
    tokio::time::sleep(Duration::from_secs(1)).await;
    tasks.stop().await;
    assert_eq!(calls.lock().last(), Some(&(2, 99)));
    queue.add(4);
    assert!(queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_is_asked_again_soon() {
    let tasks = TaskGroup::new(ShutdownToken::new());
    let queue = Workqueue::new();
    let attempts: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let log = Arc::clone(&attempts);
    run_workers(&tasks, "unanswered", &queue, 1, move |_: u32| {
        let mut attempts = log.lock();
        attempts.push(Instant::now());
        let outcome = match attempts.len() {
            0..30 => Err(client::Error::Transport {
                host: "control-plane".to_owned(),
                message: "connection reset".to_owned(),
            }),
            30 => Err(machinery::Status::internal("the first answer").into()),
            _ => Ok(ReconcileAction::Done),
        };
        async { outcome }
    });
    queue.add(1);
    tokio::time::sleep(Duration::from_secs(1000)).await;
    let attempts = attempts.lock().clone();
    let delay = |n: usize| (attempts[n] - attempts[n - 1]).as_millis();
    assert_eq!([delay(1), delay(2), delay(10)], [5, 10, 2560]);
    let later: Vec<u128> = (12..30).map(delay).collect();
    assert!(
        later.iter().all(|delay| (5_000..=10_000).contains(delay)),
        "{later:?}"
    );
    assert!(later.iter().any(|delay| *delay != later[0]), "{later:?}");
    // An answer is retried as after eleven failures, however often there was none before.
    assert_eq!((delay(30), attempts.len()), (10_240, 31));
    tasks.stop().await;
}

/// Collects what all tests of this process log.
#[derive(Clone, Default)]
struct CapturedLog(Arc<Mutex<Vec<u8>>>);

impl CapturedLog {
    fn start() -> Self {
        let log = Self::default();
        let writer = log.clone();
        tracing_subscriber::fmt()
            .with_max_level(tracing::Level::INFO)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .init();
        log
    }

    /// The log lines about one key of a controller.
    fn lines(&self, controller: &str, key: &str) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().clone()).unwrap();
        let part = format!("controller={controller:?} key={key:?}");
        let lines = text.lines().filter(|line| line.contains(&part));
        lines.map(str::to_owned).collect()
    }
}

impl std::io::Write for CapturedLog {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_failing_key_is_logged_once_per_state_change_and_not_per_retry() {
    let logged = CapturedLog::start();
    let tasks = TaskGroup::new(ShutdownToken::new());
    let queue = Workqueue::new();
    let (attempts, done) = (queue.clone(), Arc::new(Mutex::new(Vec::new())));
    let log = Arc::clone(&done);
    run_workers(&tasks, "logging", &queue, 2, move |key: &'static str| {
        let (attempt, log) = (attempts.num_requeues(&key), Arc::clone(&log));
        async move {
            match (key, attempt) {
                ("conflict", 0..2) => Err("conflict".to_owned()),
                ("panic", 0..10) => panic!("on purpose"),
                ("one" | "two", 0..10) => Err(format!("refused at revision {attempt}")),
                ("one" | "two", 10..20) => Err("timed out".to_owned()),
                _ => {
                    log.lock().push(key);
                    Ok(ReconcileAction::Done)
                }
            }
        }
    });
    let keys = ["conflict", "panic", "one", "two"];
    keys.iter().for_each(|key| queue.add(key));
    while done.lock().len() < keys.len() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    for key in ["one", "two"] {
        let lines = logged.lines("logging", key);
        assert_eq!(lines.len(), 3, "{lines:#?}");
        assert!(lines[0].contains("WARN") && lines[0].contains("refused at"));
        assert!(lines[1].contains("WARN") && lines[1].contains("timed out"));
        assert!(lines[2].contains("INFO") && lines[2].contains("succeeds again"));
    }
    let conflicts = logged.lines("logging", "conflict");
    assert!(conflicts.is_empty(), "{conflicts:#?}");
    let panics = logged.lines("logging", "panic");
    assert!(
        panics[0].contains("ERROR") && panics.len() == 2,
        "{panics:#?}"
    );
    queue.add("one");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let lines = logged.lines("logging", "one");
    assert_eq!(lines.len(), 4, "it fails anew: {lines:#?}");
    tasks.stop().await;
}

/// Two workers, five keys that block for an hour, and one that does not.
#[tokio::test(start_paused = true)]
async fn a_blocking_section_does_not_delay_other_keys() {
    let tasks = TaskGroup::new(ShutdownToken::new());
    let queue = Workqueue::new();
    let keys: Arc<Mutex<Vec<u32>>> = Arc::default();
    let log = Arc::clone(&keys);
    run_workers(&tasks, "outside", &queue, 2, move |key: u32| {
        let log = Arc::clone(&log);
        async move {
            let hour = || tokio::time::sleep(Duration::from_secs(3600));
            match key {
                // Two concurrent sections count as one blocked worker; a dropped section no longer blocks.
                0..5 => {
                    let both = async {
                        tokio::join!(
                            crate::blocking_section(hour()),
                            crate::blocking_section(hour())
                        )
                    };
                    tokio::time::timeout(Duration::from_secs(1800), both)
                        .await
                        .ok();
                }
                5..9 => tokio::time::sleep(Duration::from_secs(1)).await,
                _ => {}
            }
            log.lock().push(key);
            Ok::<_, String>(ReconcileAction::Done)
        }
    });
    for key in 0..10 {
        queue.add(key);
    }
    let began = Instant::now();
    let until = async |count: usize| {
        while keys.lock().len() < count {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let so_far = keys.lock().clone();
            assert!(began.elapsed() < Duration::from_secs(3600), "{so_far:?}");
        }
        let mut keys = std::mem::take(&mut *keys.lock());
        keys.sort_unstable();
        (keys, began.elapsed().as_secs())
    };
    // Two at a time, as configured.
    assert_eq!(until(5).await, (vec![5, 6, 7, 8, 9], 2));
    assert_eq!(until(5).await, (vec![0, 1, 2, 3, 4], 1800));
    // The substitutes have ended: no more than two at a time again.
    for key in 5..9 {
        queue.add(key);
    }
    assert_eq!(until(4).await, (vec![5, 6, 7, 8], 1802));
    tasks.stop().await;
}

#[tokio::test]
async fn workers_that_await_nothing_let_other_tasks_run() {
    const MOST_RETRIES: usize = 10_000;
    let tasks = TaskGroup::new(ShutdownToken::new());
    let (queue, retries) = (Workqueue::new(), Arc::new(AtomicUsize::new(0)));
    let (retried, counted) = (queue.clone(), Arc::clone(&retries));
    run_workers(&tasks, "retrying", &queue, 1, move |key: u32| {
        if counted.fetch_add(1, Ordering::Relaxed) < MOST_RETRIES {
            retried.add(key);
        }
        async { Ok::<_, String>(ReconcileAction::Done) }
    });
    queue.add(1);
    let other = tokio::spawn(async move { retries.load(Ordering::Relaxed) });
    let retries = other.await.unwrap();
    assert!(retries < MOST_RETRIES, "{retries}");
    tasks.stop().await;
}
