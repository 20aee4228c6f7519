//! Creates the objects that every control plane needs: namespaces, the roles and bindings of
//! the bootstrap policy (contract F2.5, F3.8), the priority classes of system pods, and the
//! configuration of priority and fairness.

mod flow_control;
mod policy_file;
mod rbac_reconciliation;

use client::{DeleteOptions, ResourcePath};
use futures_util::future::try_join_all;
use machinery::{Gvr, Status};
use serde_json::{Value, json};

use crate::registry::{NAMESPACES, Registry};
use crate::request::{GetOptions, ObjectBody, RegistryWriteOptions, RequestContext};
use policy_file::BootstrapObject;
use rbac_reconciliation::Reconciliation;

const BOOTSTRAP_NAMESPACES: [&str; 6] = [
    "default",
    "kube-system",
    "kube-public",
    "kube-node-lease",
    "karmada-system",
    "karmada-cluster",
];

const PRIORITY_CLASSES: Gvr = Gvr::from_static("scheduling.k8s.io", "v1", "priorityclasses");
/// The priority classes of system pods, with their value and use.
const SYSTEM_PRIORITY_CLASSES: [(&str, i64, &str); 2] = [
    (
        "system-cluster-critical",
        2_000_000_000,
        "For system pods that must run in the cluster, on whichever node.",
    ),
    (
        "system-node-critical",
        2_000_001_000,
        "For system pods that must run on the node where they are.",
    ),
];

const RBAC_POLICY: &str = include_str!("rbac_policy.txt");
const CONTROLLER_RBAC_POLICY: &str = include_str!("controller_rbac_policy.txt");
const KARMADA_RBAC_POLICY: &str = include_str!("karmada_rbac_policy.txt");
const INSECURE_AGENT_REGISTRATION_RBAC_POLICY: &str =
    include_str!("insecure_agent_registration_rbac_policy.txt");
/// Each attempt but the last conflicts with another process.
const MAX_ATTEMPTS: usize = 5;

fn namespace(name: &str) -> BootstrapObject {
    let mut value = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    // The label that joining a cluster sets.
    if name == "karmada-cluster" {
        value["metadata"]["labels"] = json!({"karmada.io/system": "true"});
    }
    BootstrapObject {
        gvr: NAMESPACES,
        value,
    }
}

fn system_priority_class((name, value, description): (&str, i64, &str)) -> BootstrapObject {
    BootstrapObject {
        gvr: PRIORITY_CLASSES,
        value: json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": name}, "value": value, "description": description}),
    }
}

impl Registry {
    /// Creates the objects that do not exist, and completes those that do.
    /// Idempotent, and safe in several processes.
    pub async fn bootstrap(&self) -> Result<(), Status> {
        let namespaces = BOOTSTRAP_NAMESPACES.map(namespace);
        try_join_all(namespaces.iter().map(|n| self.bootstrap_object(n))).await?;
        let mut policy = policy_file::parse(RBAC_POLICY).map_err(Status::internal)?;
        policy.extend(policy_file::parse(CONTROLLER_RBAC_POLICY).map_err(Status::internal)?);
        if (self.options.serves_group)("cluster.karmada.io") {
            policy.extend(policy_file::parse(KARMADA_RBAC_POLICY).map_err(Status::internal)?);
            if self.options.insecure_agent_registration {
                let insecure_roles = policy_file::parse(INSECURE_AGENT_REGISTRATION_RBAC_POLICY);
                for role in insecure_roles.map_err(Status::internal)? {
                    let key =
                        |o: &BootstrapObject| (o.gvr.clone(), o.value["metadata"]["name"].clone());
                    policy.retain(|narrow| key(narrow) != key(&role));
                    policy.push(role);
                }
            }
        }
        if (self.options.serves_group)(flow_control::GROUP) {
            policy.extend(flow_control::objects());
        }
        if (self.options.serves_group)(&PRIORITY_CLASSES.group) {
            policy.extend(SYSTEM_PRIORITY_CLASSES.map(system_priority_class));
        }
        // Together, so that they share the store's commits.
        try_join_all(policy.iter().map(|object| self.bootstrap_object(object))).await?;
        Ok(())
    }

    async fn bootstrap_object(&self, object: &BootstrapObject) -> Result<(), Status> {
        let mut result = self.try_bootstrap_object(object).await;
        for _ in 1..MAX_ATTEMPTS {
            match &result {
                Err(status) if ["AlreadyExists", "Conflict"].contains(&&*status.reason) => {
                    result = self.try_bootstrap_object(object).await;
                }
                _ => break,
            }
        }
        result
    }

    async fn try_bootstrap_object(&self, object: &BootstrapObject) -> Result<(), Status> {
        let ctx = RequestContext::internal();
        let options = RegistryWriteOptions::default();
        let path = object.path();
        let stored = match self.get(&ctx, path, &GetOptions::default()).await {
            Ok(stored) => stored,
            Err(status) if status.code == 404 => return self.create_bootstrap(object).await,
            Err(status) => return Err(status),
        };
        if object.gvr == NAMESPACES || object.gvr == PRIORITY_CLASSES {
            return Ok(());
        }
        let value = stored.value().map_err(Status::internal)?;
        let reconciliation = if *object.gvr.group == *flow_control::GROUP {
            flow_control::reconcile(value, &object.value)
        } else {
            rbac_reconciliation::reconcile(value, &object.value)?
        };
        match reconciliation {
            Reconciliation::Keep => Ok(()),
            Reconciliation::Update(value) => {
                let body = ObjectBody::from(value);
                self.update(&ctx, path, body, &options).await.map(drop)
            }
            Reconciliation::Recreate => {
                let options = DeleteOptions {
                    uid: Some(stored.uid().to_owned()),
                    ..DeleteOptions::default()
                };
                self.delete(&ctx, path, &options).await?;
                self.create_bootstrap(object).await
            }
        }
    }

    async fn create_bootstrap(&self, object: &BootstrapObject) -> Result<(), Status> {
        let path = ResourcePath {
            name: "",
            ..object.path()
        };
        let body: Value = object.value.clone();
        self.create(
            &RequestContext::internal(),
            path,
            ObjectBody::from(body),
            &RegistryWriteOptions::default(),
        )
        .await
        .map(drop)
    }
}
