//! Measures how long a call of a script takes, and how calls scale with the processors.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use anyhow::{Context, anyhow, ensure};
use interpreter::{LuaLimits, ResourceInterpreter};
use jiff::Timestamp;
use karmada_api::binding::AggregatedStatusItem;
use machinery::Object;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::fixtures::{
    DEPLOYMENT_KIND, REPLICAS_SCRIPT, WIDGET_KIND, call_replicas, interpreter_with_scripts,
    new_runtime, widget_object,
};

const CALLS: usize = 20_000;
/// Concurrent calls: as many as keep every thread busy.
const CONCURRENT_CALLS: usize = 16;
pub(super) const MEMBERS: usize = 100;

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

pub(super) const AGGREGATION_SCRIPT: &str = "
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

/// Makes one call of the interpreter.
type InterpreterCallFunction<T, F> = fn(Arc<ResourceInterpreter>, T) -> F;

/// The seconds that `calls` calls take.
pub(super) fn time_calls<T, F>(
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

/// The microseconds of a call about an object in bytes, on the processors that the main
/// thread may use now.
pub(super) fn measure_replica_calls(object: &Object) -> anyhow::Result<f64> {
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
pub(super) fn measure_parsed_calls(tree: &Arc<Value>) -> anyhow::Result<f64> {
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
pub(super) fn measure_core_scaling(object: &Object, cores: usize) -> anyhow::Result<f64> {
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

/// The microseconds of aggregating the statuses of many members.
pub(super) fn measure_aggregation(scripts: &[(&str, &str)]) -> anyhow::Result<f64> {
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
