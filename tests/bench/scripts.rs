//! How fast scripts of customizations answer.
//!
//! calls from as many tasks as there are cores ──► interpreter ──► its threads

use std::sync::Arc;
use std::time::Instant;

use anyhow::{anyhow, ensure};
use interpreter::{Interpreter, Limits};
use machinery::{Gvk, Object};
use serde_json::{Value, json};

use crate::figure::{Limit, Report};

const CALLS: usize = 40_000;
/// Calls that are under way at once: as many as keep every thread busy.
const TASKS: usize = 16;
static KIND: Gvk = Gvk::constant("example.org", "v1", "Widget");

const SCRIPT: &str = "
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

/// About 3 KiB.
fn workload() -> Value {
    let env: Vec<Value> = (0..12)
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

pub(crate) fn run(report: &mut Report) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let customization = Object::from_value(&json!({
        "metadata": {"name": "widgets"},
        "spec": {"target": {"apiVersion": "example.org/v1", "kind": "Widget"},
                 "customizations": {"replicaResource": {"luaScript": SCRIPT}}},
    }))?;
    let object = Object::from_value(&workload())?;
    let interpreter = Arc::new(Interpreter::under(&[customization], Limits::default()));
    let calls = |count: usize| {
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| {
                let (interpreter, object) = (Arc::clone(&interpreter), object.clone());
                runtime.spawn(async move {
                    for _ in 0..count / TASKS {
                        let found = interpreter.replicas(&KIND, &object).await?;
                        ensure!(
                            found.is_some_and(|r| r.count == 3),
                            "another number of replicas"
                        );
                    }
                    Ok(())
                })
            })
            .collect();
        runtime.block_on(async {
            for task in tasks {
                task.await.map_err(|e| anyhow!("a task broke: {e}"))??;
            }
            Ok::<_, anyhow::Error>(())
        })
    };
    calls(CALLS / 10)?;
    let began = Instant::now();
    calls(CALLS)?;
    let elapsed = began.elapsed().as_secs_f64();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let each = elapsed * 1e6 / CALLS as f64;
    let setup = format!(
        "GetReplicas of an object of {} bytes, {cores} cores",
        object.bytes().len()
    );
    report.tell(
        "scripts-call",
        each * cores as f64,
        "us of one core",
        Limit::Below(30.0),
        &setup,
    );
    report.tell("scripts-calls", 1e6 / each, "calls/s", Limit::None, &setup);
    Ok(())
}
