//! Tests of the import of objects from another server.

use super::*;
use crate::ImportOptions;

static POLICIES: Gvr = Gvr::from_static("policy.karmada.io", "v1alpha1", "propagationpolicies");

fn policy() -> Value {
    json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "p", "namespace": "absent", "uid": "6f9619ff-8b86-d011-b42d-00c04fc964ff",
            "creationTimestamp": "2020-01-02T03:04:05Z", "generation": 7, "resourceVersion": "99",
            "deletionTimestamp": "2020-01-02T03:05:05Z", "deletionGracePeriodSeconds": 0,
            "finalizers": ["karmada.io/x"], "labels": {"a": "b"},
            "managedFields": [{"manager": "m", "operation": "Update", "fieldsType": "FieldsV1",
                "apiVersion": "policy.karmada.io/v1alpha1", "time": "2020-01-02T03:04:05Z",
                "fieldsV1": {"f:spec": {}}}]},
        "spec": {"resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}]}})
}

impl RegistryFixture {
    async fn import(&self, object: Value, options: ImportOptions) -> Result<bool, Status> {
        let resource = self.registry.table().find(&POLICIES).unwrap();
        self.registry
            .import_object(&resource, object, options)
            .await
    }
}

// proves: TKO-identity, TKO-resumed
#[tokio::test]
async fn an_import_keeps_the_object_and_is_idempotent() {
    let fixture = fixture().await;
    let path = ResourcePath::object(&POLICIES, "absent", "p");
    let dry_run = ImportOptions {
        dry_run: true,
        ..ImportOptions::default()
    };
    assert!(fixture.import(policy(), dry_run).await.unwrap());
    assert!(fixture.get(path).await.is_err());
    for is_written in [true, false] {
        let imported = fixture.import(policy(), ImportOptions::default()).await;
        assert_eq!(imported.unwrap(), is_written);
    }
    let options = GetOptions::default();
    let get = fixture.registry.get(&fixture.ctx, path, &options);
    let mut stored = get.await.unwrap().served_value().unwrap();
    let mut expected = policy();
    for object in [&mut stored, &mut expected] {
        let meta = object["metadata"].as_object_mut().unwrap();
        meta.remove("resourceVersion");
    }
    assert_eq!(stored, expected);
    let resource = fixture.registry.table().find(&POLICIES).unwrap();
    for _ in 0..2 {
        let removed = fixture.registry.remove_imported(&resource, "absent", "p");
        removed.await.unwrap();
    }
    assert!(fixture.get(path).await.is_err());
}

// proves: TKO-refused
#[tokio::test]
async fn an_import_refuses_what_is_not_an_object_of_the_kind() {
    let fixture = fixture().await;
    for (pointer, value, expected) in [
        ("/metadata/uid", json!(""), "metadata.uid"),
        (
            "/metadata/creationTimestamp",
            Value::Null,
            "metadata.creationTimestamp",
        ),
        ("/metadata/namespace", json!(""), "metadata.namespace"),
        ("/metadata/labels", json!(1), "labels"),
        ("/kind", json!("Work"), "kind"),
        ("/spec", json!({"unknown": 1}), "spec.unknown"),
        (
            "/spec",
            json!({"resourceSelectors": 1}),
            "resourceSelectors",
        ),
        ("/spec", json!({}), "spec.resourceSelectors"),
    ] {
        let mut object = policy();
        *object.pointer_mut(pointer).unwrap() = value;
        let result = fixture.import(object, ImportOptions::default()).await;
        let message = result.unwrap_err().message;
        assert!(message.contains(expected), "{pointer}: {message}");
    }
    let mut object = policy();
    object["spec"]["unknown"] = json!(1);
    let options = ImportOptions {
        drops_unknown_fields: true,
        ..ImportOptions::default()
    };
    assert!(fixture.import(object, options).await.unwrap());
}
