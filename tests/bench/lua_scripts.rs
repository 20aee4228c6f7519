//! Measures Lua scripts of customizations: the time of a call, and the effect of hostile
//! scripts on other calls.
//!
//! calls from as many tasks as keep every thread busy ──► interpreter ──► its threads
//!
//! Everything is measured in this process: on one of its processors, then on all.

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use client::{ShutdownToken, TaskGroup};
use flotilla_runtime::{ReconcileAction, Workqueue, run_workers};
use interpreter::{LuaLimits, ResourceInterpreter};
use jiff::Timestamp;
use karmada_api::binding::AggregatedStatusItem;
use machinery::{Gvk, Object};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;

use crate::measured_process::MIB;
use crate::measurement::{MeasurementLimit, MeasurementRecorder};

const CALLS: usize = 20_000;
/// Concurrent calls: as many as keep every thread busy.
const CONCURRENT_CALLS: usize = 16;
const GROWTH_CALLS: usize = 1_000_000;
const MEMBERS: usize = 100;
/// Objects that a looping script is called for, and objects without scripts in the same
/// queue.
const LOOPING_OBJECTS: usize = 1000;
const UNSCRIPTED_OBJECTS: usize = 600;
/// How long a hostile script may run.
const HOSTILE_SCRIPT_DEADLINE: Duration = Duration::from_millis(200);
static WIDGET_KIND: Gvk = Gvk::from_static("example.org", "v1", "Widget");
static DEPLOYMENT_KIND: Gvk = Gvk::from_static("apps", "v1", "Deployment");

const REPLICAS_SCRIPT: &str = "
local kube = require('kube')
function GetReplicas(obj)
  local replicas = obj.spec.replicas
  if replicas == nil then replicas = 1 end
  local requires = {resourceRequest = {}}
  for _, container in ipairs(obj.spec.template.spec.containers) do
    for name, amount in pairs(container.resources.requests) do
      requires.resourceRequest[name] = kube.resourceAdd(requires.resourceRequest[name], amount)
    end
  end
  return replicas, requires
end";

/// Like [`REPLICAS_SCRIPT`], for an operation whose argument is a parsed object.
const REVISION_SCRIPT: &str = "
local kube = require('kube')
function ReviseReplica(obj, replicas)
  local total = {}
  for _, container in ipairs(obj.spec.template.spec.containers) do
    for name, amount in pairs(container.resources.requests) do
      total[name] = kube.resourceAdd(total[name], amount)
    end
  end
  return {spec = {replicas = replicas, total = total}}
end";

const AGGREGATION_SCRIPT: &str = "
function AggregateStatus(obj, items)
  local ready, replicas = 0, 0
  for _, item in ipairs(items) do
    if item.status ~= nil then
      ready = ready + item.status.readyReplicas
      replicas = replicas + item.status.replicas
    end
  end
  obj.status = {readyReplicas = ready, replicas = replicas}
  return obj
end";

/// Each script tries to exhaust CPU, stack or memory.
const HOSTILE_SCRIPTS: [&str; 10] = [
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

/// A Widget of about 3 KiB.
fn widget_object() -> Value {
    let env: Vec<Value> = (0..18)
        .map(|n| json!({"name": format!("VARIABLE_{n}"), "value": format!("the value of variable {n}")}))
        .collect();
    let container = |n: usize| {
        json!({
            "name": format!("container-{n}"), "image": "registry.example.org/team/image:1.2.3", "env": env,
            "ports": [{"containerPort": 8080, "protocol": "TCP"}],
            "resources": {"requests": {"cpu": "250m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "128Mi"}},
        })
    };
    json!({
        "apiVersion": "example.org/v1", "kind": "Widget",
        "metadata": {"name": "w", "namespace": "n", "uid": "7b6a0a70-6a52-4c57-9f0a-0c7cf2f2f0a1", "labels": {"app": "w", "tier": "front"}},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "w"}}, "template": {"spec": {"containers": [container(0), container(1)]}}},
        "status": {"replicas": 3, "readyReplicas": 3},
    })
}

fn interpreter_with_scripts(
    kind: &Gvk,
    scripts: &[(&str, &str)],
    limits: LuaLimits,
) -> anyhow::Result<ResourceInterpreter> {
    let scripts = scripts.iter().map(|(field, script)| {
        let script = json!({"luaScript": script});
        ((*field).to_owned(), script)
    });
    let customization = Object::from_value(&json!({
        "metadata": {"name": "widgets"},
        "spec": {"target": {"apiVersion": kind.api_version(), "kind": &*kind.kind},
                 "customizations": Value::Object(scripts.collect())},
    }))?;
    Ok(ResourceInterpreter::from_customizations(
        &[customization],
        limits,
    ))
}

/// A field of `/proc/self/status`.
fn read_own_status(field: &str) -> anyhow::Result<String> {
    let text = fs::read_to_string("/proc/self/status")?;
    let value = text.lines().find_map(|line| line.strip_prefix(field));
    Ok(value
        .context("a line of /proc/self/status")?
        .trim()
        .to_owned())
}

fn resident_bytes() -> anyhow::Result<f64> {
    let text = read_own_status("VmRSS:")?;
    let kib = text.split_whitespace().next().context("a size")?;
    Ok(kib.parse::<f64>()? * 1024.0)
}

/// Pins the main thread, and the threads that it starts from now on, to these processors.
fn pin_to_processors(processors: &str) -> anyhow::Result<()> {
    let process = std::process::id().to_string();
    let done = Command::new("taskset")
        .args(["-pc", processors, &process])
        .output()
        .context("taskset")?;
    ensure!(done.status.success(), "taskset {processors} has failed");
    Ok(())
}

/// A runtime with a thread for each processor.
fn new_runtime() -> anyhow::Result<Runtime> {
    let threads = thread::available_parallelism()?.get();
    let mut builder = Builder::new_multi_thread();
    Ok(builder.worker_threads(threads).enable_all().build()?)
}

/// Makes one call of the interpreter.
type InterpreterCallFunction<T, F> = fn(Arc<ResourceInterpreter>, T) -> F;

/// The seconds that `calls` calls take.
fn time_calls<T, F>(
    runtime: &Runtime,
    interpreter: &Arc<ResourceInterpreter>,
    about: &T,
    calls: usize,
    ask: InterpreterCallFunction<T, F>,
) -> anyhow::Result<f64>
where
    T: Clone + Send + 'static,
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let start = Instant::now();
    let tasks: Vec<_> = (0..CONCURRENT_CALLS)
        .map(|_| {
            let (interpreter, about) = (Arc::clone(interpreter), about.clone());
            runtime.spawn(async move {
                for _ in 0..calls / CONCURRENT_CALLS {
                    ask(Arc::clone(&interpreter), about.clone()).await?;
                }
                Ok::<_, anyhow::Error>(())
            })
        })
        .collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.map_err(|e| anyhow!("a task panicked: {e}"))??;
        }
        Ok::<_, anyhow::Error>(())
    })?;
    Ok(start.elapsed().as_secs_f64())
}

/// The microseconds of a call in the fastest of five rounds, which excludes most of the
/// machine's other load.
fn fastest_call_micros<T, F>(
    runtime: &Runtime,
    interpreter: &Arc<ResourceInterpreter>,
    about: &T,
    ask: InterpreterCallFunction<T, F>,
) -> anyhow::Result<f64>
where
    T: Clone + Send + 'static,
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    const ROUNDS: usize = 5;
    let mut fastest = f64::INFINITY;
    for _ in 0..ROUNDS {
        fastest = fastest.min(time_calls(
            runtime,
            interpreter,
            about,
            CALLS / ROUNDS,
            ask,
        )?);
    }
    Ok(fastest * 1e6 / (CALLS / ROUNDS) as f64)
}

async fn call_replicas(
    interpreter: Arc<ResourceInterpreter>,
    object: Object,
) -> anyhow::Result<()> {
    let replicas = interpreter.replicas(&WIDGET_KIND, &object).await?;
    ensure!(
        replicas.is_some_and(|r| r.count == 3),
        "another number of replicas"
    );
    Ok(())
}

/// The microseconds of a call about an object in bytes, on the processors that the main
/// thread may use now.
fn measure_replica_calls(object: &Object) -> anyhow::Result<f64> {
    let runtime = new_runtime()?;
    let interpreter = interpreter_with_scripts(
        &WIDGET_KIND,
        &[("replicaResource", REPLICAS_SCRIPT)],
        LuaLimits::default(),
    )?;
    let interpreter = Arc::new(interpreter);
    time_calls(&runtime, &interpreter, object, CALLS / 10, call_replicas)?;
    fastest_call_micros(&runtime, &interpreter, object, call_replicas)
}

/// Revises a tree that is cloned for the call, like the object for a cluster.
async fn call_revise_replica(
    interpreter: Arc<ResourceInterpreter>,
    tree: Arc<Value>,
) -> anyhow::Result<()> {
    let revised = interpreter
        .revise_replica(&WIDGET_KIND, Value::clone(&tree), 7)
        .await?;
    ensure!(revised["spec"]["replicas"] == 7, "not revised");
    Ok(())
}

/// Does what [`call_revise_replica`] does without the script.
async fn copy_tree(_: Arc<ResourceInterpreter>, tree: Arc<Value>) -> anyhow::Result<()> {
    let copy = Value::clone(&tree);
    ensure!(copy["spec"]["replicas"] == 3, "another tree");
    Ok(())
}

/// The microseconds of a call about a parsed object, without the clone of the tree.
fn measure_parsed_calls(tree: &Arc<Value>) -> anyhow::Result<f64> {
    let runtime = new_runtime()?;
    let interpreter = interpreter_with_scripts(
        &WIDGET_KIND,
        &[("replicaRevision", REVISION_SCRIPT)],
        LuaLimits::default(),
    )?;
    let interpreter = Arc::new(interpreter);
    time_calls(
        &runtime,
        &interpreter,
        tree,
        CALLS / 10,
        call_revise_replica,
    )?;
    let with = fastest_call_micros(&runtime, &interpreter, tree, call_revise_replica)?;
    Ok(with - fastest_call_micros(&runtime, &interpreter, tree, copy_tree)?)
}

/// How many times faster all cores parse objects than one core, with independent threads:
/// the upper bound for scaling.
fn measure_core_scaling(object: &Object, cores: usize) -> anyhow::Result<f64> {
    let read = |threads: usize| {
        let start = Instant::now();
        let readers: Vec<_> = (0..threads)
            .map(|_| {
                let object = object.clone();
                thread::spawn(move || (0..CALLS).try_for_each(|_| object.value().map(drop)))
            })
            .collect();
        for reader in readers {
            let read = reader.join().map_err(|_| anyhow!("a reader panicked"))?;
            read?;
        }
        Ok::<_, anyhow::Error>(start.elapsed().as_secs_f64())
    };
    let (mut one, mut all) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..3 {
        (one, all) = (one.min(read(1)?), all.min(read(cores)?));
    }
    Ok(cores as f64 * one / all)
}

/// The memory (MiB) that a million calls leave behind.
fn measure_memory_growth() -> anyhow::Result<f64> {
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
fn measure_hostile_scripts(object: &Object) -> anyhow::Result<[Duration; 3]> {
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
fn measure_delay_beside_looping(object: &Object) -> anyhow::Result<Vec<f64>> {
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

/// The microseconds of aggregating the statuses of many members.
fn measure_aggregation(scripts: &[(&str, &str)]) -> anyhow::Result<f64> {
    const ROUNDS: u32 = 500;
    let runtime = new_runtime()?;
    let interpreter = match scripts {
        [] => ResourceInterpreter::default(),
        scripts => interpreter_with_scripts(&DEPLOYMENT_KIND, scripts, LuaLimits::default())?,
    };
    let mut template = widget_object();
    template["metadata"]["generation"] = 3.into();
    let template = Object::from_value(&template)?;
    let item = |n: usize| AggregatedStatusItem {
        cluster_name: format!("member-{n}"),
        status: Some(
            json!({"generation": 3, "resourceTemplateGeneration": 3, "observedGeneration": 3, "replicas": 2,
            "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2}),
        ),
        applied: true,
        health: "Healthy".into(),
        ..AggregatedStatusItem::default()
    };
    let items: Vec<AggregatedStatusItem> = (0..MEMBERS).map(item).collect();
    let scheduled = items.iter().map(|item| &*item.cluster_name).collect();
    runtime.block_on(async {
        let mut start = Instant::now();
        for round in 0..=ROUNDS {
            if round == 1 {
                start = Instant::now();
            }
            let now = Timestamp::UNIX_EPOCH;
            let aggregated = interpreter
                .aggregate_status(&DEPLOYMENT_KIND, &template, &items, &scheduled, now)
                .await?;
            let status = aggregated.context("no status")?;
            ensure!(
                status["readyReplicas"] == 2 * MEMBERS,
                "another sum: {status}"
            );
        }
        Ok(start.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS))
    })
}

pub(crate) fn run(report: &mut MeasurementRecorder) -> anyhow::Result<()> {
    let tree = Arc::new(widget_object());
    let object = Object::from_value(&tree)?;
    let allowed = read_own_status("Cpus_allowed_list:")?;
    let one = allowed.split([',', '-']).next().unwrap_or(&allowed);
    let cores = thread::available_parallelism()?.get();
    let size = format!("an object of {} bytes", object.bytes().len());

    // Alternating rounds, so that the machine's speed affects both alike.
    let (mut alone, mut together) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..3 {
        pin_to_processors(one)?;
        alone = alone.min(measure_replica_calls(&object)?);
        pin_to_processors(&allowed)?;
        together = together.min(measure_replica_calls(&object)?);
    }
    pin_to_processors(one)?;
    let of_tree = measure_parsed_calls(&tree)?;
    let summed = measure_aggregation(&[])?;
    let by_script = measure_aggregation(&[("statusAggregation", AGGREGATION_SCRIPT)])?;
    pin_to_processors(&allowed)?;
    let setup = format!("GetReplicas of {size}, from bytes, on one core");
    report.record(
        "scripts-call",
        alone,
        "us",
        MeasurementLimit::Below(30.0),
        &setup,
    );
    let setup = format!("ReviseReplica of {size}, from a tree, on one core");
    report.record(
        "scripts-call-parsed",
        of_tree,
        "us",
        MeasurementLimit::Below(15.0),
        &setup,
    );
    let setup = format!("a Deployment in {MEMBERS} members, native rule, on one core");
    report.record(
        "scripts-aggregate-native",
        summed,
        "us",
        MeasurementLimit::Below(200.0),
        &setup,
    );
    let setup = format!("a Deployment in {MEMBERS} members, script, on one core");
    report.record(
        "scripts-aggregate",
        by_script,
        "us",
        MeasurementLimit::None,
        &setup,
    );

    if cores > 1 {
        let possible = measure_core_scaling(&object, cores)?;
        let setup = format!(
            "GetReplicas of {size}, calls on {cores} cores to those on one; threads that share nothing reach {possible:.2}"
        );
        let limit = MeasurementLimit::AtLeast(0.85 * possible);
        report.record("scripts-scaling", alone / together, "times", limit, &setup);
        report.record(
            "scripts-calls",
            1e6 / together,
            "calls/s",
            MeasurementLimit::None,
            &setup,
        );
    }

    let [over, late, next] =
        measure_hostile_scripts(&object)?.map(|worst| worst.as_secs_f64() * 1e3);
    let setup = format!(
        "{} hostile scripts, each on all of {cores} threads, deadline {HOSTILE_SCRIPT_DEADLINE:?}",
        HOSTILE_SCRIPTS.len()
    );
    report.record(
        "scripts-hostile-over",
        over,
        "ms past the deadline",
        MeasurementLimit::Below(100.0),
        &setup,
    );
    report.record(
        "scripts-hostile-delay",
        late,
        "ms",
        MeasurementLimit::Below(10.0),
        &setup,
    );
    report.record(
        "scripts-hostile-next",
        next,
        "ms",
        MeasurementLimit::Below(100.0),
        &setup,
    );

    let mut beside = measure_delay_beside_looping(&object)?;
    let setup = format!(
        "{UNSCRIPTED_OBJECTS} objects without scripts, one every 5 ms, behind {LOOPING_OBJECTS} objects of one looping script with a deadline of 1 s in the same queue of 8 workers"
    );
    let worst = beside.iter().copied().fold(0.0, f64::max);
    let name = "scripts-looping-delay";
    report.record_percentiles(name, &mut beside, "ms", MeasurementLimit::None, &setup);
    let limit = MeasurementLimit::Below(50.0);
    report.record("scripts-looping-delay-worst", worst, "ms", limit, &setup);

    let setup = format!("{GROWTH_CALLS} calls after {}", GROWTH_CALLS / 10);
    report.record(
        "scripts-growth",
        measure_memory_growth()?,
        "MiB",
        MeasurementLimit::Below(8.0),
        &setup,
    );
    Ok(())
}
