//! The client of the load: 16 connections, whose requests are sent again while the server is down.

use std::sync::Arc;
use std::time::{Duration, Instant};

use client::remote::RestConfig;
use client::{
    Api, Error, ListOptions, Patch, RemoteApi, ResourcePath, ShutdownToken, TaskGroup, WriteOptions,
};
use futures_util::future::try_join_all;
use serde_json::{Value, json};

use super::objects::{CLUSTERS, DEPLOYMENTS, LoadObject, NAMESPACE};
use crate::members::ROUND_LABEL;

const CONNECTIONS: usize = 16;
/// How long a server that is started again may take.
const RESEND_TIMEOUT: Duration = Duration::from_secs(120);
const RESEND_DELAY: Duration = Duration::from_millis(100);

/// Connections of one user.
pub(crate) struct LoadClient {
    connections: Vec<Arc<dyn Api>>,
    tasks: TaskGroup,
}

impl LoadClient {
    pub(crate) fn connect(config: &RestConfig) -> anyhow::Result<Self> {
        let tasks = TaskGroup::new(ShutdownToken::new());
        let mut connections: Vec<Arc<dyn Api>> = Vec::new();
        for _ in 0..CONNECTIONS {
            connections.push(Arc::new(RemoteApi::new(config.clone(), &tasks)?));
        }
        Ok(Self { connections, tasks })
    }

    /// The owner of tasks that use the connections.
    pub(crate) fn tasks(&self) -> &TaskGroup {
        &self.tasks
    }

    pub(crate) fn api(&self) -> &Arc<dyn Api> {
        &self.connections[0]
    }

    /// Creates the objects of each of `count` numbers, on all connections.
    pub(crate) async fn create_all(
        &self,
        count: usize,
        objects: impl Fn(usize) -> Vec<LoadObject>,
    ) -> anyhow::Result<()> {
        let objects = &objects;
        let creators = self.connections.iter().enumerate().map(|(first, api)| {
            let numbers = (first..count).step_by(CONNECTIONS);
            async move {
                for number in numbers {
                    for object in objects(number) {
                        create(&**api, &object).await?;
                    }
                }
                anyhow::Ok(())
            }
        });
        try_join_all(creators).await?;
        Ok(())
    }

    /// Creates objects one after the other.
    pub(crate) async fn create(&self, objects: &[LoadObject]) -> anyhow::Result<()> {
        for object in objects {
            create(&**self.api(), object).await?;
        }
        Ok(())
    }

    /// Moves a template to another round.
    pub(crate) async fn change_round(&self, template: &str, round: &str) -> anyhow::Result<()> {
        let patch = json!({"metadata": {"labels": {ROUND_LABEL: round}}});
        patch_template(&**self.api(), template, patch).await
    }

    /// Gives a template another revision: another round, and other pods.
    pub(crate) async fn change_revision(&self, template: &str, round: &str) -> anyhow::Result<()> {
        change_revision(&**self.api(), template, round).await
    }

    /// Gives templates another revision, on all connections.
    pub(crate) async fn change_revisions(
        &self,
        templates: &[String],
        round: &str,
    ) -> anyhow::Result<()> {
        let writers = self.connections.iter().enumerate().map(|(first, api)| {
            let names = templates.iter().skip(first).step_by(CONNECTIONS);
            async move {
                for name in names {
                    change_revision(&**api, name, round).await?;
                }
                anyhow::Ok(())
            }
        });
        try_join_all(writers).await?;
        Ok(())
    }

    /// The number of Clusters that are Ready and whose kinds are known.
    pub(crate) async fn count_ready_clusters(&self) -> anyhow::Result<usize> {
        let options = ListOptions::default();
        let at = ResourcePath::collection(&CLUSTERS, "");
        let list = retry(async || self.api().list(at, &options).await).await;
        let mut ready = 0;
        for cluster in list.map_err(|(error, _)| error)?.items {
            ready += usize::from(is_ready_cluster(&cluster.value()?));
        }
        Ok(ready)
    }
}

fn is_ready_cluster(cluster: &Value) -> bool {
    let conditions = cluster["status"]["conditions"].as_array();
    let is_ready =
        |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
    conditions.into_iter().flatten().any(is_ready) && cluster["status"]["apiEnablements"].is_array()
}

fn write_options() -> WriteOptions {
    WriteOptions {
        field_manager: "fleet-benchmark".to_owned(),
        ..WriteOptions::default()
    }
}

async fn change_revision(api: &dyn Api, template: &str, round: &str) -> anyhow::Result<()> {
    let pods = json!({"metadata": {"annotations": {ROUND_LABEL: round}}});
    let patch = json!({
        "metadata": {"labels": {ROUND_LABEL: round}},
        "spec": {"template": pods},
    });
    patch_template(api, template, patch).await
}

async fn patch_template(api: &dyn Api, template: &str, patch: Value) -> anyhow::Result<()> {
    let at = ResourcePath::object(&DEPLOYMENTS, NAMESPACE, template);
    let patched = retry(async || {
        let patch = Patch::Merge(patch.clone());
        api.patch(at, patch, &write_options()).await
    });
    patched.await.map_err(|(error, _)| error)?;
    Ok(())
}

/// Creates an object. One that exists after the answer to the first request was lost is ours.
async fn create(api: &dyn Api, object: &LoadObject) -> anyhow::Result<()> {
    let at = ResourcePath::collection(object.resource, object.namespace);
    let created = retry(async || {
        let body = object.object.clone().into();
        api.create(at, body, &write_options()).await
    });
    match created.await {
        Err((error, is_resent)) if !(is_resent && error.is_already_exists()) => Err(error.into()),
        _ => Ok(()),
    }
}

/// Sends a request until the server answers it; an error says whether it was sent more than once.
async fn retry<T>(send: impl AsyncFn() -> client::Result<T>) -> Result<T, (Error, bool)> {
    let deadline = Instant::now() + RESEND_TIMEOUT;
    let mut is_resent = false;
    loop {
        match send().await {
            Ok(reply) => return Ok(reply),
            Err(error) if error.status().is_some() || Instant::now() > deadline => {
                return Err((error, is_resent));
            }
            Err(_) => is_resent = true,
        }
        tokio::time::sleep(RESEND_DELAY).await;
    }
}
