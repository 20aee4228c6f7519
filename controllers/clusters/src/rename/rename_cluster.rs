//! Gives a cluster in push mode another name.
//!
//! The new Cluster has the same endpoint, and credentials of its own in the member. The old one is
//! set to pull mode without an agent, so that the control plane neither applies nor deletes its
//! Works any more: what they carry stays in the member. Then the bindings move, the Works of the new
//! name adopt the objects, and the old Cluster goes with its Works.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::{
    Api, DeleteOptions, ListOptions, Patch, ResourcePath, WriteOptions, ignore_not_found,
};
use jiff::Timestamp;
use karmada_api::resources::{CLUSTERS, WORKS};
use karmada_api::well_known_keys::{
    BINDING_NAME, CLUSTER_BINDING_NAME, TAINT_NOT_READY, TAINT_UNREACHABLE, TAINT_UNSCHEDULABLE,
};
use karmada_api::{Cluster, Work, names};
use machinery::time::rfc3339_seconds;
use machinery::{Gvr, Object};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::rename_error::{RenameError, host_error, member_error};
use super::{moved_bindings, named_clusters};
use crate::join::{
    JoinSpec, ProgressCallback, ReportedSecrets, check_cluster_name, control_plane_id, objects,
    obtain_member_credentials, set_secret_owners, write_credentials,
};

/// The annotation of the old Cluster with the new name, and of the new Cluster with the old name.
const RENAMED_TO: &str = "flotilla.io/renamed-to";
const RENAMED_FROM: &str = "flotilla.io/renamed-from";
const RENAMED_REASON: &str = "ClusterRenamed";
const CORDON_EFFECT: &str = "NoSchedule";
const POLL_INTERVAL: Duration = Duration::from_millis(300);

/// The cluster to rename.
#[derive(Clone, Debug)]
pub struct RenameSpec {
    pub old: String,
    pub new: String,
    /// The namespace of service accounts and secrets, on both sides.
    pub namespace: String,
    /// Changes policies that name the cluster; otherwise they are refused.
    pub rewrite_policies: bool,
    /// How long each step may take that others do.
    pub timeout: Duration,
    /// Only checks and counts.
    pub dry_run: bool,
}

/// The changes of a rename, done or planned.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct RenameReport {
    pub bindings: usize,
    /// Policies and other objects that named the cluster.
    pub rewritten: Vec<String>,
}

/// A running rename.
struct Rename<'a> {
    control: &'a dyn Api,
    old_member: &'a dyn Api,
    new_member: &'a dyn Api,
    spec: &'a RenameSpec,
    progress: ProgressCallback<'a>,
}

/// Renames a cluster in push mode. An interrupted rename is repeated. The member is reached under
/// its old name and under its new one.
pub async fn rename_cluster(
    control: &dyn Api,
    [old_member, new_member]: [&dyn Api; 2],
    spec: &RenameSpec,
    progress: ProgressCallback<'_>,
) -> Result<RenameReport, RenameError> {
    check_cluster_name(&spec.new)?;
    let rename = Rename {
        control,
        old_member,
        new_member,
        spec,
        progress,
    };
    let old = rename.read_cluster(&spec.old).await?;
    let new = rename.read_cluster(&spec.new).await?;
    let is_own = |object: &Object| object.annotation(RENAMED_FROM).as_deref() == Some(&*spec.old);
    if new.as_ref().is_some_and(|new| !is_own(new)) {
        return Err(match old {
            None => RenameError::NotFound(spec.old.clone()),
            Some(_) => RenameError::NameTaken(spec.new.clone()),
        });
    }
    let mut report = RenameReport::default();
    match (old, new) {
        (None, None) => return Err(RenameError::NotFound(spec.old.clone())),
        (None, Some(_)) => progress("finishing an interrupted rename"),
        (Some(old), new) => {
            rename.check(&old)?;
            report = rename.check_references().await?;
            if spec.dry_run {
                return Ok(report);
            }
            Box::pin(rename.move_to_new(&old, new)).await?;
        }
    }
    if !spec.dry_run {
        Box::pin(rename.finish()).await?;
    }
    Ok(report)
}

impl Rename<'_> {
    async fn read_cluster(&self, name: &str) -> Result<Option<Object>, RenameError> {
        let at = ResourcePath::object(&CLUSTERS, "", name);
        ignore_not_found(self.control.get(at).await).map_err(host_error("read the cluster"))
    }

    fn check(&self, old: &Object) -> Result<(), RenameError> {
        let renamed_to = old.annotation(RENAMED_TO);
        if let Some(new) = renamed_to.as_ref().filter(|new| **new != self.spec.new) {
            return Err(RenameError::RenamedElsewhere {
                name: self.spec.old.clone(),
                new: new.clone(),
            });
        }
        let cluster = old.decode::<Cluster>()?;
        if cluster.spec.sync_mode == "Pull" && renamed_to.is_none() {
            return Err(RenameError::PullMode(self.spec.old.clone()));
        }
        Ok(())
    }

    /// The objects that name the cluster. Policies are refused unless they may be changed.
    async fn check_references(&self) -> Result<RenameReport, RenameError> {
        let RenameSpec { old, new, .. } = self.spec;
        let naming = named_clusters::list_naming(self.control, old, new).await?;
        let report = RenameReport {
            bindings: moved_bindings::count_scheduled(self.control, old).await?,
            rewritten: naming
                .iter()
                .map(named_clusters::NamingObject::text)
                .collect(),
        };
        if report.rewritten.is_empty() || self.spec.rewrite_policies {
            return Ok(report);
        }
        Err(RenameError::NamedByPolicies {
            name: old.clone(),
            objects: report.rewritten,
        })
    }

    async fn move_to_new(&self, old: &Object, new: Option<Object>) -> Result<(), RenameError> {
        let RenameSpec {
            old: old_name,
            new: new_name,
            ..
        } = self.spec;
        moved_bindings::suspend_scheduling(self.control, old_name).await?;
        if new.is_none() {
            (self.progress)("creating credentials for the new name");
            self.create_credentials(old).await?;
            // The controllers see both writes in their order: once they act on the new Cluster, they
            // have left the Works of the old one alone.
            self.release_works(old).await?;
            self.create_new_cluster(old).await?;
        }
        self.own_secrets().await?;
        self.wait_until(&format!("cluster {new_name:?} was not Ready"), async || {
            Ok(self
                .read_cluster(new_name)
                .await?
                .is_some_and(|new| is_ready(&new)))
        })
        .await?;
        (self.progress)("moving bindings and policies to the new name");
        // Once more, for what was scheduled before the old name was not Ready.
        moved_bindings::suspend_scheduling(self.control, old_name).await?;
        for naming in named_clusters::list_naming(self.control, old_name, new_name).await? {
            naming.write(self.control).await?;
        }
        for resource in moved_bindings::RESOURCES {
            self.move_bindings(resource).await?;
        }
        self.copy_own_works().await?;
        (self.progress)("waiting until the Works of the new name have adopted the objects");
        self.wait_until("the Works of the new name were not applied", async || {
            self.are_works_applied().await
        })
        .await?;
        self.uncordon(old).await?;
        moved_bindings::resume_scheduling(self.control, old_name).await?;
        (self.progress)("deleting the old name");
        let at = ResourcePath::object(&CLUSTERS, "", old_name);
        let deleted = self.control.delete(at, &DeleteOptions::default()).await;
        ignore_not_found(deleted).map_err(host_error("delete the old cluster"))?;
        self.wait_until(
            &format!("cluster {old_name:?} was not deleted"),
            async || Ok(self.read_cluster(old_name).await?.is_none()),
        )
        .await
    }

    /// Moves the bindings of a resource once their placement has the new name.
    async fn move_bindings(&self, resource: &'static Gvr) -> Result<(), RenameError> {
        let RenameSpec { old, new, .. } = self.spec;
        let what = "the bindings did not take over the changed policies";
        self.wait_until(what, async || {
            let placed = moved_bindings::count_placed(self.control, resource, old, new).await?;
            Ok(placed == 0)
        })
        .await?;
        moved_bindings::move_bindings(self.control, resource, old, new).await?;
        Ok(())
    }

    /// Service accounts and tokens as of a join under the new name.
    async fn create_credentials(&self, old: &Object) -> Result<(), RenameError> {
        let spec = self.join_spec(old).await?;
        let manager = control_plane_id(self.control).await;
        let credentials = obtain_member_credentials(
            self.old_member,
            &spec,
            manager.as_deref(),
            ReportedSecrets::ALL,
            self.progress,
        )
        .await?;
        let namespace = &self.spec.namespace;
        write_credentials(self.control, &self.spec.new, namespace, &credentials).await?;
        Ok(())
    }

    /// The new name with the certificate authority of the old one.
    async fn join_spec(&self, old: &Object) -> Result<JoinSpec, RenameError> {
        let cluster = old.decode::<Cluster>()?;
        let mut spec = JoinSpec {
            name: self.spec.new.clone(),
            endpoint: cluster.spec.api_endpoint.clone(),
            insecure_skip_tls_verification: cluster.spec.insecure_skip_tls_verification,
            namespace: self.spec.namespace.clone(),
            ..JoinSpec::default()
        };
        let Some(reference) = &cluster.spec.secret_ref else {
            return Ok(spec);
        };
        let (namespace, name) = (&reference.namespace, &reference.name);
        let at = ResourcePath::object(&objects::SECRETS, namespace, name);
        let secret = self.control.get(at).await;
        let secret = secret.map_err(host_error(format!("read the secret {name:?}")))?;
        if let Some(bundle) = secret.value()?["data"]["caBundle"].as_str() {
            let pem = STANDARD.decode(bundle).ok();
            let pem = pem.and_then(|pem| String::from_utf8(pem).ok());
            spec.ca_bundle = Some(pem.ok_or_else(|| RenameError::BrokenSecret {
                namespace: namespace.clone(),
                name: name.clone(),
            })?);
        }
        Ok(spec)
    }

    /// Sets the old Cluster to pull mode, in which the control plane leaves its Works alone. It is
    /// not Ready from then on, since no agent reports.
    async fn release_works(&self, old: &Object) -> Result<(), RenameError> {
        let at = ResourcePath::of_object(&CLUSTERS, old);
        let patch = json!({
            "metadata": {"annotations": {RENAMED_TO: self.spec.new}},
            "spec": {"syncMode": "Pull"},
        });
        let options = WriteOptions::default();
        let patched = self.control.patch(at, Patch::Merge(patch), &options).await;
        let patched = patched.map_err(host_error("release the Works of the old name"))?;
        let mut conditions = patched.value()?["status"]["conditions"].take();
        let others = conditions.as_array_mut().into_iter().flatten();
        let mut conditions: Vec<Value> = others
            .filter(|c| c["type"] != "Ready")
            .map(|c| c.take())
            .collect();
        conditions.push(json!({
            "type": "Ready",
            "status": "False",
            "reason": RENAMED_REASON,
            "message": format!("the cluster is being renamed to {}", self.spec.new),
            "lastTransitionTime": rfc3339_seconds(Timestamp::now()),
        }));
        let patch = Patch::Merge(json!({"status": {"conditions": conditions}}));
        let patched = self
            .control
            .patch(at.subresource("status"), patch, &options)
            .await;
        patched
            .map(drop)
            .map_err(host_error("release the Works of the old name"))
    }

    /// The new Cluster, cordoned until the bindings have moved.
    async fn create_new_cluster(&self, old: &Object) -> Result<(), RenameError> {
        let (new, namespace) = (&self.spec.new, &self.spec.namespace);
        let reference = |name: String| json!({"namespace": namespace, "name": name});
        let mut body = old.value()?;
        let mut annotations = body["metadata"]["annotations"].take();
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.remove(RENAMED_TO);
        }
        annotations[RENAMED_FROM] = json!(self.spec.old);
        body["metadata"] = json!({
            "name": new,
            "labels": body["metadata"]["labels"],
            "annotations": annotations,
        });
        let spec = &mut body["spec"];
        spec["syncMode"] = json!("Push");
        spec["secretRef"] = reference(new.clone());
        spec["impersonatorSecretRef"] = reference(names::impersonation_secret_name(new));
        let mut taints = other_taints(&spec["taints"]);
        taints.push(json!({"key": TAINT_UNSCHEDULABLE, "effect": CORDON_EFFECT}));
        spec["taints"] = json!(taints);
        if let Some(fields) = body.as_object_mut() {
            fields.remove("status");
        }
        let at = ResourcePath::collection(&CLUSTERS, "");
        let options = WriteOptions::default();
        let created = self.control.create(at, body.into(), &options).await;
        created
            .map(drop)
            .map_err(host_error("create the cluster of the new name"))
    }

    async fn own_secrets(&self) -> Result<(), RenameError> {
        let Some(new) = self.read_cluster(&self.spec.new).await? else {
            return Err(RenameError::NotFound(self.spec.new.clone()));
        };
        let secrets = [
            self.spec.new.clone(),
            names::impersonation_secret_name(&self.spec.new),
        ];
        set_secret_owners(self.control, &self.spec.namespace, &secrets, &new).await?;
        Ok(())
    }

    async fn list_works(&self, cluster: &str) -> Result<Vec<Object>, RenameError> {
        let space = names::execution_space_name(cluster);
        let all = ResourcePath::collection(&WORKS, &space);
        let works = self.control.list(all, &ListOptions::default()).await;
        Ok(works.map_err(host_error("list the Works"))?.items)
    }

    /// Creates the Works again that no controller makes: those of users.
    async fn copy_own_works(&self) -> Result<(), RenameError> {
        let space = names::execution_space_name(&self.spec.new);
        for work in self.list_works(&self.spec.old).await? {
            if !is_work_of_user(&work) {
                continue;
            }
            let mut body = work.value()?;
            body["metadata"] = json!({
                "namespace": space,
                "name": work.name(),
                "labels": body["metadata"]["labels"],
                "annotations": body["metadata"]["annotations"],
            });
            if let Some(fields) = body.as_object_mut() {
                fields.remove("status");
            }
            let at = ResourcePath::collection(&WORKS, &space);
            let options = WriteOptions::default();
            match self.control.create(at, body.into(), &options).await {
                Err(error) if !error.is_already_exists() => {
                    return Err(host_error(format!("create the Work {}", work.name()))(
                        error,
                    ));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether each Work of a binding, or of a user, is applied under the new name.
    async fn are_works_applied(&self) -> Result<bool, RenameError> {
        let new_works = self.list_works(&self.spec.new).await?;
        let applied: BTreeSet<&str> = new_works
            .iter()
            .filter(|work| is_applied(work))
            .map(Object::name)
            .collect();
        let old_works = self.list_works(&self.spec.old).await?;
        let mut moved = old_works
            .iter()
            .filter(|work| is_work_of_user(work) || is_work_of_binding(&work.annotations()));
        Ok(moved.all(|work| applied.contains(work.name())))
    }

    /// Removes the taint that kept the scheduler away from the new name, unless the old one was
    /// cordoned.
    async fn uncordon(&self, old: &Object) -> Result<(), RenameError> {
        let is_cordon = |taint: &Value| taint["key"] == TAINT_UNSCHEDULABLE;
        let old_taints = old.value()?["spec"]["taints"].take();
        if old_taints
            .as_array()
            .is_some_and(|taints| taints.iter().any(is_cordon))
        {
            return Ok(());
        }
        let Some(new) = self.read_cluster(&self.spec.new).await? else {
            return Err(RenameError::NotFound(self.spec.new.clone()));
        };
        let taints = new.value()?["spec"]["taints"].take();
        let taints = taints.as_array().into_iter().flatten();
        let others: Vec<&Value> = taints.filter(|taint| !is_cordon(taint)).collect();
        let taints = match others.as_slice() {
            [] => Value::Null,
            others => json!(others),
        };
        let patch = json!({
            "metadata": {"resourceVersion": new.revision().to_string()},
            "spec": {"taints": taints},
        });
        let at = ResourcePath::of_object(&CLUSTERS, &new);
        let options = WriteOptions::default();
        let patched = self.control.patch(at, Patch::Merge(patch), &options).await;
        patched
            .map(drop)
            .map_err(host_error("uncordon the new name"))
    }

    /// Removes the account of the old name from the member, and the mark of the rename.
    async fn finish(&self) -> Result<(), RenameError> {
        let role = objects::cluster_role_name(&self.spec.old);
        let account = objects::service_account_name(&self.spec.old);
        let accounts: [(&Gvr, &str, &str); 3] = [
            (&objects::CLUSTER_ROLE_BINDINGS, "", &role),
            (&objects::CLUSTER_ROLES, "", &role),
            (&objects::SERVICE_ACCOUNTS, &self.spec.namespace, &account),
        ];
        for (resource, namespace, name) in accounts {
            let at = ResourcePath::object(resource, namespace, name);
            let deleted = self.new_member.delete(at, &DeleteOptions::default()).await;
            let deleted = ignore_not_found(deleted);
            deleted.map_err(member_error(format!("delete {name}")))?;
        }
        let at = ResourcePath::object(&CLUSTERS, "", &self.spec.new);
        let patch = json!({"metadata": {"annotations": {RENAMED_FROM: null}}});
        let options = WriteOptions::default();
        let patched = self.control.patch(at, Patch::Merge(patch), &options).await;
        patched
            .map(drop)
            .map_err(host_error("complete the new cluster"))
    }

    async fn wait_until(
        &self,
        what: &str,
        holds: impl AsyncFn() -> Result<bool, RenameError>,
    ) -> Result<(), RenameError> {
        let deadline = Instant::now() + self.spec.timeout;
        while !holds().await? {
            if Instant::now() >= deadline {
                return Err(RenameError::Timeout {
                    what: what.to_owned(),
                    limit: self.spec.timeout,
                });
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }
}

/// The taints but those of the condition Ready, and that of a cordon.
fn other_taints(taints: &Value) -> Vec<Value> {
    let taints = taints.as_array().into_iter().flatten();
    let is_own = |taint: &Value| {
        let key = taint["key"].as_str().unwrap_or_default();
        key == TAINT_UNSCHEDULABLE || [TAINT_NOT_READY, TAINT_UNREACHABLE].contains(&key)
    };
    taints.filter(|taint| !is_own(taint)).cloned().collect()
}

fn is_ready(cluster: &Object) -> bool {
    cluster.decode::<Cluster>().is_ok_and(|c| c.is_ready())
}

fn is_applied(work: &Object) -> bool {
    let view = work.decode::<Work>();
    view.is_ok_and(|work| {
        work.condition("Applied")
            .is_some_and(|c| c.status == "True")
    })
}

fn is_work_of_binding(annotations: &BTreeMap<String, String>) -> bool {
    annotations.contains_key(BINDING_NAME) || annotations.contains_key(CLUSTER_BINDING_NAME)
}

/// Whether no controller has made the Work: it bears none of their labels and annotations.
fn is_work_of_user(work: &Object) -> bool {
    let annotations = work.annotations();
    let labels = work.meta().labels.iter().map(|(key, _)| &**key);
    let mut keys = annotations.keys().map(String::as_str).chain(labels);
    !keys.any(|key| key.contains("karmada.io/"))
}
