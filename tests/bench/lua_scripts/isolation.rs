//! Measures what hostile scripts, and very many calls, do to the process and to other calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use client::{ShutdownToken, TaskGroup};
use flotilla_runtime::{ReconcileAction, Workqueue, run_workers};
use interpreter::LuaLimits;
use machinery::Object;
use serde_json::json;
use tokio::sync::mpsc;

use super::calls::time_calls;
use super::fixtures::{
    DEPLOYMENT_KIND, REPLICAS_SCRIPT, WIDGET_KIND, call_replicas, interpreter_with_scripts,
    new_runtime,
};
use super::own_status::resident_bytes;
use crate::measured_process::MIB;

pub(super) const GROWTH_CALLS: usize = 1_000_000;
/// Objects that a looping script is called for, and objects without scripts in the same
/// queue.
pub(super) const LOOPING_OBJECTS: usize = 1000;
pub(super) const UNSCRIPTED_OBJECTS: usize = 600;
/// How long a hostile script may run.
pub(super) const HOSTILE_SCRIPT_DEADLINE: Duration = Duration::from_millis(200);

/// Each script tries to exhaust CPU, stack or memory.
pub(super) const HOSTILE_SCRIPTS: [&str; 10] = [
    "while true do end",
    "while true do pcall(function() while true do end end) end",
    "local function f() return pcall(f) or f() end while true do f() end",
    "local s = 'x' while true do s = s .. s end",
    "local s = 'x' while true do s = s:gsub('.', '%0%0') end",
    "local function f(n) return 1 + f(n + 1) end while true do pcall(f, 1) end",
    "local t = {} while true do t[#t + 1] = {t} end",
    "local t = {} while true do pcall(function() t[#t + 1] = ('x'):rep(100000) .. #t end) end",
    "return ('a'):rep(30000):find(('.-'):rep(20) .. 'b')",
    "table.sort({3, 2, 1}, function() while true do end end)",
];

/// The memory (MiB) that a million calls leave behind.
pub(super) fn measure_memory_growth() -> anyhow::Result<f64> {
    let runtime = new_runtime()?;
    let script = "function GetReplicas(obj) return obj.spec.replicas, {resourceRequest = {cpu = obj.spec.cpu}} end";
    let interpreter = interpreter_with_scripts(
        &WIDGET_KIND,
        &[("replicaResource", script)],
        LuaLimits::default(),
    )?;
    let interpreter = Arc::new(interpreter);
    let small = Object::from_value(
        &json!({"metadata": {"name": "w"}, "spec": {"replicas": 3, "cpu": "1"}}),
    )?;
    time_calls(
        &runtime,
        &interpreter,
        &small,
        GROWTH_CALLS / 10,
        call_replicas,
    )?;
    let before = resident_bytes()?;
    time_calls(&runtime, &interpreter, &small, GROWTH_CALLS, call_replicas)?;
    Ok((resident_bytes()? - before) / MIB)
}

/// Measures the greatest delay of a task that sleeps for a millisecond at a time.
async fn measure_task_delay(stop: Arc<AtomicBool>) -> Duration {
    let pause = Duration::from_millis(1);
    let mut latest = Duration::ZERO;
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        tokio::time::sleep(pause).await;
        latest = latest.max(start.elapsed().saturating_sub(pause));
    }
    latest
}

/// The worst time from the deadline of a script to its end, the worst delay of other tasks
/// meanwhile, and the worst time of the next call on each thread.
pub(super) fn measure_hostile_scripts(object: &Object) -> anyhow::Result<[Duration; 3]> {
    let runtime = new_runtime()?;
    let limits = LuaLimits {
        deadline: HOSTILE_SCRIPT_DEADLINE,
        ..LuaLimits::default()
    };
    let threads = thread::available_parallelism()?.get();
    let mut worst = [Duration::ZERO; 3];
    for body in HOSTILE_SCRIPTS {
        let health = format!("function InterpretHealth(obj) {body} end");
        let scripts = [
            ("replicaResource", REPLICAS_SCRIPT),
            ("healthInterpretation", &*health),
        ];
        let interpreter = Arc::new(interpreter_with_scripts(&WIDGET_KIND, &scripts, limits)?);
        let all = |healthy: bool| {
            let tasks: Vec<_> = (0..threads)
                .map(|_| {
                    let (interpreter, object) = (Arc::clone(&interpreter), object.clone());
                    runtime.spawn(async move {
                        if healthy {
                            return call_replicas(interpreter, object).await;
                        }
                        let healthy = interpreter.interpret_health(&WIDGET_KIND, &object).await;
                        ensure!(healthy.is_err(), "a hostile script has succeeded");
                        Ok(())
                    })
                })
                .collect();
            let start = Instant::now();
            runtime.block_on(async {
                for task in tasks {
                    task.await.map_err(|e| anyhow!("a task panicked: {e}"))??;
                }
                Ok::<_, anyhow::Error>(start.elapsed())
            })
        };
        all(true)?;
        let stop = Arc::new(AtomicBool::new(false));
        let other = runtime.spawn(measure_task_delay(Arc::clone(&stop)));
        let elapsed = all(false).with_context(|| body.to_owned())?;
        stop.store(true, Ordering::Relaxed);
        let late = runtime.block_on(other)?;
        let next = all(true).with_context(|| format!("after {body}"))?;
        let times = [elapsed.saturating_sub(HOSTILE_SCRIPT_DEADLINE), late, next];
        worst = std::array::from_fn(|at| worst[at].max(times[at]));
    }
    Ok(worst)
}

/// The milliseconds that objects without scripts wait for their reconciliation, while a
/// script that does not end is called for many other objects of the same queue.
pub(super) fn measure_delay_beside_looping(object: &Object) -> anyhow::Result<Vec<f64>> {
    const WORKERS: usize = 8;
    const PAUSE: Duration = Duration::from_millis(5);
    let script = "function InterpretHealth(obj) while true do end end";
    let interpreter = interpreter_with_scripts(
        &WIDGET_KIND,
        &[("healthInterpretation", script)],
        LuaLimits::default(),
    )?;
    let object = object.clone();
    new_runtime()?.block_on(async {
        let (tasks, queue) = (TaskGroup::new(ShutdownToken::new()), Workqueue::new());
        let (sender, mut delays) = mpsc::unbounded_channel();
        let reconcile = move |(scripted, _, since): (bool, usize, Instant)| {
            let (interpreter, object, sender) =
                (interpreter.clone(), object.clone(), sender.clone());
            async move {
                let kind = if scripted {
                    &WIDGET_KIND
                } else {
                    &DEPLOYMENT_KIND
                };
                let answer = interpreter.interpret_health(kind, &object).await;
                if !scripted {
                    sender.send(since.elapsed()).ok();
                }
                answer
                    .map(|_| ReconcileAction::Done)
                    .map_err(|error| error.to_string())
            }
        };
        run_workers(&tasks, "looping", &queue, WORKERS, reconcile);
        (0..LOOPING_OBJECTS).for_each(|n| queue.add((true, n, Instant::now())));
        let mut all = Vec::with_capacity(UNSCRIPTED_OBJECTS);
        for n in 0..UNSCRIPTED_OBJECTS {
            queue.add((false, n, Instant::now()));
            tokio::time::sleep(PAUSE).await;
        }
        while all.len() < UNSCRIPTED_OBJECTS {
            let delay = delays.recv().await.context("the workers have ended")?;
            all.push(delay.as_secs_f64() * 1e3);
        }
        tasks.stop().await;
        Ok(all)
    })
}
