//! The object, the scripts and the runtimes that the measurements of Lua scripts share.

use std::sync::Arc;
use std::thread;

use anyhow::ensure;
use interpreter::{LuaLimits, ResourceInterpreter};
use machinery::{Gvk, Object};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

pub(super) static WIDGET_KIND: Gvk = Gvk::from_static("example.org", "v1", "Widget");
pub(super) static DEPLOYMENT_KIND: Gvk = Gvk::from_static("apps", "v1", "Deployment");

pub(super) const REPLICAS_SCRIPT: &str = "
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

/// A Widget of about 3 KiB.
pub(super) fn widget_object() -> Value {
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

pub(super) fn interpreter_with_scripts(
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

/// A runtime with a thread for each processor.
pub(super) fn new_runtime() -> anyhow::Result<Runtime> {
    let threads = thread::available_parallelism()?.get();
    let mut builder = Builder::new_multi_thread();
    Ok(builder.worker_threads(threads).enable_all().build()?)
}

pub(super) async fn call_replicas(
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
