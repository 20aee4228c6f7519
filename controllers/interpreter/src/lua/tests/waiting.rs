//! Tests that a call that waits for a script delays no other key of the queue.

use std::sync::atomic::{AtomicUsize, Ordering};

use client::{ShutdownToken, TaskGroup};
use flotilla_runtime::{ReconcileAction, Workqueue, run_workers};
use machinery::Object;

use super::*;
use crate::ResourceInterpreter;

const SCRIPTED: usize = 100;
const OTHERS: usize = 100;
/// No scripted call ends while the other keys are processed.
const DEADLINE: Duration = Duration::from_secs(15);

static DEPLOYMENT: Gvk = Gvk::from_static("apps", "v1", "Deployment");

fn interpreter_with_endless_script() -> ResourceInterpreter {
    let customization = object(json!({"metadata": {"name": "looping"}, "spec": {
        "target": {"apiVersion": "example.io/v1", "kind": "Thing"},
        "customizations": {"healthInterpretation": {
            "luaScript": "function InterpretHealth(obj) while true do end end"}}}}));
    let limits = LuaLimits {
        deadline: DEADLINE,
        ..LuaLimits::default()
    };
    ResourceInterpreter::from_customizations(&[customization], limits)
}

fn deployment() -> Object {
    object(json!({"metadata": {"name": "web"}, "spec": {"replicas": 1},
        "status": {"availableReplicas": 1}}))
}

#[tokio::test]
async fn unscripted_objects_go_on_while_scripts_run() {
    let (interpreter, about) = (interpreter_with_endless_script(), deployment());
    let (tasks, queue) = (TaskGroup::new(ShutdownToken::new()), Workqueue::new());
    let counts: Arc<[AtomicUsize; 2]> = Arc::default();
    let counted = Arc::clone(&counts);
    run_workers(&tasks, "scripted", &queue, 2, move |key: usize| {
        let (interpreter, about, counts) =
            (interpreter.clone(), about.clone(), Arc::clone(&counted));
        async move {
            let (kind, count) = match key < SCRIPTED {
                true => (thing(), &counts[0]),
                false => (DEPLOYMENT.clone(), &counts[1]),
            };
            let answer = interpreter.interpret_health(&kind, &about).await;
            count.fetch_add(1, Ordering::Relaxed);
            answer
                .map(|_| ReconcileAction::Done)
                .map_err(|error| error.to_string())
        }
    });
    (0..SCRIPTED + OTHERS).for_each(|key| queue.add(key));
    let ended = |which: usize| counts[which].load(Ordering::Relaxed);
    while ended(1) < OTHERS {
        assert_eq!(ended(0), 0, "{} others had to wait", OTHERS - ended(1));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // The scripts run until their deadline; the test does not wait for them.
}

/// Calls that wait for a thread fail as soon as the breaker opens, instead of each running until a
/// deadline of its own.
#[tokio::test]
async fn calls_of_a_script_that_does_not_end_do_not_wait_for_each_other() {
    const CALLS: usize = 200;
    let engine = impatient_engine();
    let script = "function ReflectStatus() while true do end end";
    let script = Arc::new(LuaScript::new(script));
    let call = || engine.call(&script, InterpreterOperation::InterpretStatus, vec![]);
    let all = futures_util::future::join_all((0..CALLS).map(|_| call())).await;
    let rejection =
        |answer: &Result<_, LuaCallError>| matches!(answer, Err(LuaCallError::Refused(_)));
    let called = all.iter().filter(|answer| !rejection(answer)).count();
    assert!(called < CALLS / 10, "{called} calls ran until the deadline");
    // A changed script has a circuit breaker of its own.
    let changed = Arc::new(LuaScript::new("function ReflectStatus() return {} end"));
    let answer = engine.call(&changed, InterpreterOperation::InterpretStatus, vec![]);
    assert!(!rejection(&answer.await));
}
