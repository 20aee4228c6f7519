//! The Secrets of Clusters that were joined since the takeover. Their owner gets a new uid when it
//! is given back; until they name that, the host's garbage collector must not see an owner, or it
//! would delete the credentials of members.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;
use client::{Api, ListOptions, Patch, ResourcePath, ignore_not_found};
use machinery::Gvr;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::session::write_options;
use super::snapshot::Snapshot;

static SECRETS: Gvr = Gvr::from_static("", "v1", "secrets");
/// The namespace of the credentials of members.
pub(super) const NAMESPACE: &str = "karmada-cluster";

/// A Secret and its owners under Flotilla.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OwnedSecret {
    name: String,
    owner_references: Value,
}

fn uids(snapshot: &Snapshot) -> BTreeSet<&str> {
    let objects = snapshot.resources.iter().flat_map(|r| r.objects.values());
    objects
        .filter_map(|object| object["metadata"]["uid"].as_str())
        .collect()
}

/// The Secrets whose owners were created since the takeover.
pub(super) async fn list(
    host: &dyn Api,
    frozen: &Snapshot,
    returned: &Snapshot,
) -> anyhow::Result<Vec<OwnedSecret>> {
    let (frozen, returned) = (uids(frozen), uids(returned));
    let is_new = |uid: &str| returned.contains(uid) && !frozen.contains(uid);
    let all = ResourcePath::collection(&SECRETS, NAMESPACE);
    let listed = host.list(all, &ListOptions::default()).await;
    let mut secrets = Vec::new();
    for secret in listed.context("Secrets of Clusters")?.items {
        if secret.owner_references().iter().any(|o| is_new(&o.uid)) {
            secrets.push(OwnedSecret {
                name: secret.name().to_owned(),
                owner_references: secret.value()?["metadata"]["ownerReferences"].clone(),
            });
        }
    }
    Ok(secrets)
}

/// Takes the owners away.
pub(super) async fn detach(host: &dyn Api, secrets: &[OwnedSecret]) -> anyhow::Result<()> {
    for secret in secrets {
        set_owners(host, secret, Value::Null).await?;
    }
    Ok(())
}

/// Sets the owners with the uids that they have now.
pub(super) async fn attach(
    host: &dyn Api,
    secrets: &[OwnedSecret],
    uids: &BTreeMap<String, String>,
) -> anyhow::Result<()> {
    for secret in secrets {
        let mut owners = secret.owner_references.clone();
        for owner in owners.as_array_mut().into_iter().flatten() {
            if let Some(uid) = owner["uid"].as_str().and_then(|uid| uids.get(uid)) {
                owner["uid"] = uid.clone().into();
            }
        }
        set_owners(host, secret, owners).await?;
    }
    Ok(())
}

async fn set_owners(host: &dyn Api, secret: &OwnedSecret, owners: Value) -> anyhow::Result<()> {
    let at = ResourcePath::object(&SECRETS, NAMESPACE, &secret.name);
    let patch = Patch::Merge(json!({"metadata": {"ownerReferences": owners}}));
    let patched = host.patch(at, patch, write_options()).await;
    ignore_not_found(patched).with_context(|| format!("Secret {NAMESPACE}/{}", secret.name))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use client_fake::FakeApi;

    use super::super::snapshot::test_snapshot;
    use super::*;

    // proves: TKO-secrets
    #[tokio::test]
    async fn secrets_follow_the_uids_of_new_clusters() {
        let fake = FakeApi::new();
        for (name, uid) in [("old", "1"), ("new", "2")] {
            let owners = json!([{"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
                "name": name, "uid": uid}]);
            let meta = json!({"name": name, "namespace": NAMESPACE, "ownerReferences": owners});
            fake.seed(&SECRETS, json!({"metadata": meta}));
        }
        let cluster = |uid: &str| json!({"metadata": {"name": uid, "uid": uid}});
        let frozen = test_snapshot("cluster.karmada.io", &[cluster("1")]);
        let returned = test_snapshot("cluster.karmada.io", &[cluster("1"), cluster("2")]);
        let secrets = list(&*fake, &frozen, &returned).await.unwrap();
        let owner = |name: &str| {
            let secret = fake.get_object(&SECRETS, NAMESPACE, name).unwrap();
            secret["metadata"]["ownerReferences"][0]["uid"].clone()
        };
        detach(&*fake, &secrets).await.unwrap();
        assert_eq!((owner("old"), owner("new")), ("1".into(), Value::Null));
        let uids = BTreeMap::from([("2".to_owned(), "two".to_owned())]);
        attach(&*fake, &secrets, &uids).await.unwrap();
        assert_eq!((owner("old"), owner("new")), ("1".into(), "two".into()));
    }
}
