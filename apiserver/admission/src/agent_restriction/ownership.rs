//! Bounds the finalizers and owners that an agent gives its objects: with them an object outlives its
//! deletion, keeps its Cluster with it, or holds up the deletion of another object. Does no I/O.

use karmada_api::well_known_keys::{
    ENDPOINT_SLICE_DISPATCH_FINALIZER, ENDPOINT_SLICE_FINALIZER, WORK_FINALIZER,
};
use serde_json::Value;

use super::agent_write::{AgentWrite, shown};
use super::work::is_report;
use crate::attributes::AdmissionOperation;
use crate::unstructured::{items, text, texts};

/// The control plane removes these from a Work that reports an EndpointSlice.
const REPORT_FINALIZERS: [&str; 2] = [ENDPOINT_SLICE_FINALIZER, ENDPOINT_SLICE_DISPATCH_FINALIZER];

/// Fails unless the agent of `cluster` may write the finalizers and owners. Returns the UID that its
/// Cluster must have, if the write makes it an owner.
pub(super) fn check_ownership(
    cluster: &str,
    write: &AgentWrite<'_>,
) -> Result<Option<String>, String> {
    let is_object_write = matches!(
        write.operation,
        AdmissionOperation::Create | AdmissionOperation::Update
    );
    // Other writes keep the metadata.
    if !is_object_write || !write.subresource.is_empty() {
        return Ok(None);
    }
    check_finalizers(write)?;
    check_owners(cluster, write)
}

fn check_finalizers(write: &AgentWrite<'_>) -> Result<(), String> {
    let path = "/metadata/finalizers";
    let has = |object: &Value, name: &str| texts(object, path).any(|finalizer| finalizer == name);
    let is_report = write.kind == "Work" && (write.old.is_null() || is_report(write.old));
    // The control plane removes each of these, should the agent not do so.
    let may_change = |name: &str| {
        is_report && REPORT_FINALIZERS.contains(&name)
            || write.kind == "Work" && name == WORK_FINALIZER
    };
    let refuse = |name: &str, verb: &str| {
        let name = shown(name);
        Err(format!(
            "metadata.finalizers: {name:?} may not be {verb} by an agent"
        ))
    };
    for name in texts(write.new, path) {
        if !has(write.old, name) && !may_change(name) {
            return refuse(name, "added");
        }
    }
    for name in texts(write.old, path) {
        if !has(write.new, name) && !may_change(name) {
            return refuse(name, "removed");
        }
    }
    Ok(())
}

/// The leases and Secrets of an agent go with its Cluster; the owners of others stay as they are.
fn check_owners(cluster: &str, write: &AgentWrite<'_>) -> Result<Option<String>, String> {
    let path = "/metadata/ownerReferences";
    let (new, old) = (items(write.new, path), items(write.old, path));
    let may_be_owned = matches!(write.kind, "Lease" | "Secret");
    let is_own_cluster = |reference: &Value| {
        text(reference, "/apiVersion").starts_with("cluster.karmada.io/")
            && text(reference, "/kind") == "Cluster"
            && text(reference, "/name") == cluster
    };
    let added: Vec<&Value> = new.iter().filter(|owner| !old.contains(owner)).collect();
    let removed = old.iter().filter(|owner| !new.contains(owner));
    let mut changed = removed.chain(added.iter().copied());
    if added.len() > 1 || !changed.all(|owner| may_be_owned && is_own_cluster(owner)) {
        return Err(
            "metadata.ownerReferences: an agent adds and removes its Cluster only, as the owner of its Lease and Secrets".into(),
        );
    }
    Ok(added.first().map(|owner| text(owner, "/uid").to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::AdmissionOperation::{Create, Update};
    use serde_json::json;

    fn check(
        (operation, subresource): (AdmissionOperation, &str),
        kind: &str,
        new: &Value,
        old: &Value,
    ) -> Result<Option<String>, String> {
        let write = AgentWrite {
            group: "",
            kind,
            subresource,
            operation,
            namespace: "n",
            name: "a",
            new,
            old,
        };
        check_ownership("a", &write)
    }

    fn work(kind: &str, finalizers: &[&str]) -> Value {
        json!({"metadata": {"finalizers": finalizers}, "spec": {"workload": {"manifests": [
            {"apiVersion": "discovery.k8s.io/v1", "kind": kind}]}}})
    }

    // proves: AGT-finalizers
    #[test]
    fn an_agent_changes_the_finalizers_of_reports_and_of_the_execution() {
        let slice = "karmada.io/endpointslice-controller";
        let [report, dispatched] = ["EndpointSlice", "Deployment"];
        for (kind, new, old, is_allowed) in [
            (report, &[slice][..], None, true),
            (report, &[WORK_FINALIZER], None, true),
            (report, &["a.b/c"], None, false),
            (report, &[slice], Some(&[][..]), true),
            (report, &[slice, "a.b/c"], Some(&[slice]), false),
            (report, &[], Some(&[slice]), true),
            (report, &[slice], Some(&[slice, "a.b/c"]), false),
            (dispatched, &[], Some(&[WORK_FINALIZER]), true),
            (
                dispatched,
                &["a.b/c"],
                Some(&["a.b/c", WORK_FINALIZER]),
                true,
            ),
            (dispatched, &[WORK_FINALIZER], Some(&[]), true),
            (dispatched, &[slice], Some(&[]), false),
            (dispatched, &[], Some(&["a.b/c"]), false),
        ] {
            let old_work = old.map_or(Value::Null, |old| work(kind, old));
            let operation = if old.is_some() { Update } else { Create };
            let new_work = work(kind, new);
            let checked = check((operation, ""), "Work", &new_work, &old_work);
            assert_eq!(checked.is_ok(), is_allowed, "{new:?} {old:?}: {checked:?}");
            let status = check((Update, "status"), "Work", &new_work, &old_work);
            assert_eq!(status, Ok(None));
        }
        for kind in ["Cluster", "Lease", "Secret", "Event"] {
            let finalized = json!({"metadata": {"finalizers": [WORK_FINALIZER]}});
            let null = Value::Null;
            assert!(
                check((Create, ""), kind, &finalized, &null).is_err(),
                "{kind}"
            );
        }
    }

    // proves: AGT-finalizers
    #[test]
    fn an_agent_makes_its_cluster_the_owner_of_its_leases_and_secrets() {
        let owned = |api_version: &str, kind: &str, name: &str| {
            json!({"metadata": {"ownerReferences": [
                {"apiVersion": api_version, "kind": kind, "name": name, "uid": "u"}]}})
        };
        let own = owned("cluster.karmada.io/v1alpha1", "Cluster", "a");
        for (kind, owner, is_allowed) in [
            ("Secret", &own, true),
            ("Lease", &own, true),
            ("Work", &own, false),
            ("Event", &own, false),
            ("Cluster", &own, false),
            (
                "Secret",
                &owned("cluster.karmada.io/v1alpha1", "Cluster", "b"),
                false,
            ),
            ("Secret", &owned("v1", "Namespace", "a"), false),
        ] {
            let added = check((Create, ""), kind, owner, &Value::Null);
            let expected = is_allowed.then(|| Some("u".to_owned()));
            assert_eq!(added.ok(), expected, "{kind} {owner}");
            assert_eq!(check((Update, ""), kind, owner, owner), Ok(None));
            let removed = check((Update, ""), kind, &json!({}), owner);
            assert_eq!(removed.ok(), is_allowed.then_some(None), "{kind} {owner}");
        }
    }
}
