//! Adds and removes finalizers by a patch that fails with a conflict if the object has
//! changed since it was read.

use client::{Api, Error, Patch, ResourcePath, WriteOptions, ignore_not_found};
use machinery::{Gvr, Object};
use serde_json::json;

/// Adds a finalizer; returns the object with it.
pub async fn add_finalizer(
    api: &dyn Api,
    resource: &Gvr,
    object: &Object,
    finalizer: &str,
) -> Result<Object, Error> {
    let mut all = object.finalizers();
    if all.iter().any(|f| f == finalizer) {
        return Ok(object.clone());
    }
    all.push(finalizer.to_owned());
    patch_finalizers(api, resource, object, &all).await
}

/// Removes finalizers. An object that has none of them, or no longer exists, is no error.
pub async fn remove_finalizers(
    api: &dyn Api,
    resource: &Gvr,
    object: &Object,
    finalizers: &[&str],
) -> Result<(), Error> {
    let mut all = object.finalizers();
    let before = all.len();
    all.retain(|f| !finalizers.contains(&f.as_str()));
    if all.len() == before {
        return Ok(());
    }
    ignore_not_found(patch_finalizers(api, resource, object, &all).await).map(drop)
}

async fn patch_finalizers(
    api: &dyn Api,
    resource: &Gvr,
    object: &Object,
    all: &[String],
) -> Result<Object, Error> {
    let patch = json!({"metadata": {
        "resourceVersion": object.revision().to_string(), "finalizers": all}});
    let at = ResourcePath::of_object(resource, object);
    let options = WriteOptions::default();
    match api.patch(at, Patch::Merge(patch), &options).await {
        // The roles that karmadactl creates for agents allow updates only.
        Err(Error::Status(status)) if status.code == 403 => {
            let mut value = object.value()?;
            value["metadata"]["finalizers"] = json!(all);
            api.update(at, value.into(), &options).await
        }
        patched => patched,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use client_fake::FakeApi;

    static MAPS: Gvr = Gvr::from_static("", "v1", "configmaps");

    #[tokio::test]
    async fn without_the_right_to_patch_the_object_is_updated() {
        let fake = FakeApi::new();
        let metadata = json!({"name": "a", "namespace": "n", "finalizers": ["x.io/a", "x.io/b"]});
        let first = fake.seed(&MAPS, json!({"metadata": metadata, "data": {"k": "v"}}));
        fake.on_call(|call| {
            let denial = || machinery::Status::failure(403, "Forbidden", "no").into();
            (call.verb == "patch").then(denial)
        });
        remove_finalizers(&*fake, &MAPS, &first, &["x.io/a"])
            .await
            .unwrap();
        let left = fake.get_object(&MAPS, "n", "a").unwrap();
        assert_eq!(left["metadata"]["finalizers"], json!(["x.io/b"]));
        assert_eq!(left["data"]["k"], "v");
        let stale = remove_finalizers(&*fake, &MAPS, &first, &["x.io/b"]).await;
        assert!(stale.unwrap_err().is_conflict());
    }

    #[tokio::test]
    async fn only_the_named_finalizers_change() {
        let fake = FakeApi::new();
        let metadata = json!({"name": "a", "namespace": "n", "finalizers": ["x.io/a"]});
        let first = fake.seed(&MAPS, json!({"metadata": metadata}));
        let finalizers = || {
            let object = fake.get_object(&MAPS, "n", "a").unwrap();
            object["metadata"]["finalizers"].clone()
        };
        let second = add_finalizer(&*fake, &MAPS, &first, "x.io/b")
            .await
            .unwrap();
        assert_eq!(finalizers(), json!(["x.io/a", "x.io/b"]));
        let same = add_finalizer(&*fake, &MAPS, &second, "x.io/b")
            .await
            .unwrap();
        assert_eq!(same.revision(), second.revision());

        let stale = remove_finalizers(&*fake, &MAPS, &first, &["x.io/a"]).await;
        assert!(stale.unwrap_err().is_conflict());
        let removed = remove_finalizers(&*fake, &MAPS, &second, &["x.io/a", "x.io/c"]).await;
        assert!(removed.is_ok());
        assert_eq!(finalizers(), json!(["x.io/b"]));
        let absent = remove_finalizers(&*fake, &MAPS, &second, &["x.io/c"]).await;
        assert!(absent.is_ok(), "no patch is sent");
        fake.remove(&MAPS, "n", "a");
        let gone = remove_finalizers(&*fake, &MAPS, &second, &["x.io/b"]).await;
        assert!(gone.is_ok());
    }
}
