//! Karmada's controllers, which must have stopped: their leases, and their Deployments in the
//! cluster in which they run.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use client::remote::RemoteApi;
use client::remote::kubeconfig::KubeconfigLoadingRules;
use client::{Api, ListOptions, Patch, ResourcePath, TaskGroup};
use jiff::{SignedDuration, Timestamp};
use machinery::{Gvr, time};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::karmada_flags::KarmadaProgram;
use super::rights;
use super::session::{TakeoverSession, print_step, write_options};
use super::summary::ComponentState;

static LEASES: Gvr = Gvr::from_static("coordination.k8s.io", "v1", "leases");
static DEPLOYMENTS: Gvr = Gvr::from_static("apps", "v1", "deployments");
/// The controllers that write Karmada's objects, by their leases.
const CONTROLLERS: [&str; 3] = [
    "karmada-controller-manager",
    "karmada-scheduler",
    "karmada-descheduler",
];
/// How far the clocks of Karmada's controllers may be from ours.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_secs(30);

/// A Deployment that the command scales, and its replicas before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ScaledDeployment {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) replicas: i64,
}

/// Karmada's controllers.
pub(super) struct KarmadaComponents<'a> {
    session: &'a TakeoverSession,
    /// The namespace of their leases.
    lease_namespace: String,
    /// The Deployments to scale down, as namespace and name.
    deployments: Vec<(String, String)>,
    /// The cluster of their Deployments.
    cluster: Option<Arc<dyn Api>>,
}

impl<'a> KarmadaComponents<'a> {
    pub(super) fn new(
        session: &'a TakeoverSession,
        lease_namespace: &str,
        scale_down: &[String],
        kubeconfig: Option<&Path>,
        tasks: &TaskGroup,
    ) -> anyhow::Result<Self> {
        let mut deployments = Vec::new();
        for text in scale_down {
            match text.split_once('/') {
                Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => {
                    deployments.push((namespace.to_owned(), name.to_owned()));
                }
                _ => bail!("--scale-down must be NAMESPACE/NAME: {text:?}"),
            }
        }
        let cluster = match kubeconfig {
            Some(file) => {
                let config = KubeconfigLoadingRules::from_file(file).load();
                let config = config.context("--karmada-host-kubeconfig")?;
                Some(Arc::new(RemoteApi::new(config, tasks)?) as Arc<dyn Api>)
            }
            None => None,
        };
        Ok(Self {
            session,
            lease_namespace: lease_namespace.to_owned(),
            deployments,
            cluster,
        })
    }

    /// Who holds the leases.
    pub(super) async fn states(&self) -> anyhow::Result<Vec<ComponentState>> {
        let all = ResourcePath::collection(&LEASES, &self.lease_namespace);
        let listed = self.session.host.list(all, &ListOptions::default()).await;
        let mut states = Vec::new();
        for lease in listed.context("leases of Karmada's controllers")?.items {
            if CONTROLLERS.contains(&lease.name()) {
                states.push(ComponentState {
                    name: lease.name().to_owned(),
                    holder: holder(&lease.value()?, Timestamp::now()),
                });
            }
        }
        Ok(states)
    }

    /// The rights that our user lacks to scale the Deployments.
    pub(super) async fn missing_rights(&self) -> Vec<String> {
        match &self.cluster {
            Some(cluster) => rights::missing_for_scaling(&**cluster, &self.deployments).await,
            None => Vec::new(),
        }
    }

    /// What Karmada's components run with that Flotilla is to be started with, as their Deployments
    /// say; nothing without the kubeconfig of their cluster.
    pub(super) async fn flags(&self) -> anyhow::Result<Vec<String>> {
        let Some(cluster) = &self.cluster else {
            return Ok(Vec::new());
        };
        let all = ResourcePath::collection(&DEPLOYMENTS, &self.lease_namespace);
        let listed = cluster.list(all, &ListOptions::default()).await;
        let mut lines = Vec::new();
        for deployment in listed.context("Deployments of Karmada")?.items {
            let deployment = deployment.value()?;
            for program in KarmadaProgram::of_deployment(&deployment) {
                lines.extend(program.differences());
            }
        }
        Ok(lines)
    }

    /// The Deployments to scale down, with their replicas.
    pub(super) async fn deployments(&self) -> anyhow::Result<Vec<ScaledDeployment>> {
        let mut scaled = Vec::new();
        for (namespace, name) in &self.deployments {
            let at = ResourcePath::object(&DEPLOYMENTS, namespace, name);
            let cluster = self.cluster()?;
            let deployment = cluster.get(at).await;
            let deployment =
                deployment.with_context(|| format!("Deployment {namespace}/{name}"))?;
            scaled.push(ScaledDeployment {
                namespace: namespace.clone(),
                name: name.clone(),
                replicas: deployment.value()?["spec"]["replicas"]
                    .as_i64()
                    .unwrap_or(1),
            });
        }
        Ok(scaled)
    }

    fn cluster(&self) -> anyhow::Result<&Arc<dyn Api>> {
        self.cluster
            .as_ref()
            .context("--karmada-host-kubeconfig is required to scale Karmada's Deployments")
    }

    /// Scales the Deployments of a backup to zero, and waits until no controller holds a lease.
    pub(super) async fn stop(&self, deployments: &[ScaledDeployment]) -> anyhow::Result<()> {
        for deployment in deployments {
            self.scale(deployment, 0).await?;
        }
        let waiting = "Karmada's controllers to release their leases (scale their Deployments to \
                       0, or name them with --scale-down)";
        self.session
            .wait_for(waiting, async || {
                let states = self.states().await?;
                Ok(states.iter().all(|s| s.holder.is_empty()).then_some(()))
            })
            .await
    }

    /// Gives the Deployments of a backup their replicas. Returns what is left to do by hand.
    pub(super) async fn start(
        &self,
        deployments: &[ScaledDeployment],
    ) -> anyhow::Result<Vec<String>> {
        let mut notes = Vec::new();
        if deployments.is_empty() {
            notes.push("start Karmada's controllers again".to_owned());
        }
        for deployment in deployments {
            if self.cluster.is_some() {
                self.scale(deployment, deployment.replicas).await?;
                continue;
            }
            let ScaledDeployment {
                namespace,
                name,
                replicas,
            } = deployment;
            notes.push(format!(
                "scale Deployment {namespace}/{name} to {replicas} again, or run the command \
                 with --karmada-host-kubeconfig"
            ));
        }
        Ok(notes)
    }

    async fn scale(&self, deployment: &ScaledDeployment, replicas: i64) -> anyhow::Result<()> {
        let ScaledDeployment {
            namespace, name, ..
        } = deployment;
        print_step(format!(
            "scaling Deployment {namespace}/{name} to {replicas}"
        ));
        let at = ResourcePath::object(&DEPLOYMENTS, namespace, name);
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        let patched = self.cluster()?.patch(at, patch, write_options()).await;
        patched.with_context(|| format!("Deployment {namespace}/{name}"))?;
        Ok(())
    }
}

/// The holder of a lease that has not expired; empty if there is none.
fn holder(lease: &Value, now: Timestamp) -> String {
    let spec = &lease["spec"];
    let holder = spec["holderIdentity"].as_str().unwrap_or_default();
    let seconds = spec["leaseDurationSeconds"].as_i64().unwrap_or_default();
    let renewed = spec["renewTime"].as_str().and_then(|t| time::parse(t).ok());
    let is_expired = renewed.is_none_or(|renewed| {
        now.duration_since(renewed) > SignedDuration::from_secs(seconds) + CLOCK_SKEW
    });
    match is_expired {
        true => String::new(),
        false => holder.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves: TKO-leases
    #[test]
    fn a_lease_is_held_until_it_is_released_or_expires() {
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
        for (holder_identity, renewed, expected) in [
            ("a", "2026-01-01T00:00:59.000000Z", "a"),
            ("", "2026-01-01T00:00:59.000000Z", ""),
            ("a", "2026-01-01T00:00:10.000000Z", ""),
            ("a", "never", ""),
        ] {
            let lease = json!({"spec": {"holderIdentity": holder_identity,
                "renewTime": renewed, "leaseDurationSeconds": 15}});
            assert_eq!(holder(&lease, now), expected, "{holder_identity} {renewed}");
        }
    }
}
