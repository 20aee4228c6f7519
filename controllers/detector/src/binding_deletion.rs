//! Deletes the binding of a deleted template at once.
//!
//! The garbage collector would do the same, but later, and not at all once the template's kind is
//! gone too. A binding whose owner reference was removed (orphan deletion) stays.

use client::{DeleteOptions, ResourcePath, ignore_not_found};
use controller_context::{Error, TemplateKey};
use karmada_api::{ResourceBinding, names};
use machinery::Object;
use serde_json::json;

use crate::controller::ResourceDetector;
use crate::deleted_template::DeletedTemplate;

impl ResourceDetector {
    pub(crate) async fn delete_binding_of_deleted_template(
        &self,
        template: &DeletedTemplate,
        key: &TemplateKey,
    ) -> Result<(), Error> {
        let DeletedTemplate { kind, uid, orphans } = template;
        let (namespace, name) = key.name.split_once('/').unwrap_or(("", &key.name));
        let name = names::binding_name(kind, name);
        let (resource, informer) = self.binding_resource(namespace);
        let owned = |o: &Object| o.meta().controller().is_some_and(|c| *c.uid == **uid);
        if !informer.get(namespace, &name).is_some_and(|b| owned(&b)) {
            return Ok(());
        }
        let at = ResourcePath::object(resource, namespace, &name);
        // The cached binding may predate the removal of its owner reference.
        let binding = ignore_not_found(self.api.get(at).await)?;
        let Some(mut binding) = binding.filter(|b| owned(b) && !b.meta().deleting) else {
            return Ok(());
        };
        // The template may have been deleted right after it was annotated.
        if *orphans && !preserves(&binding)? {
            let version = binding.revision().to_string();
            let patch = json!({"metadata": {"resourceVersion": version},
                "spec": {"preserveResourcesOnDeletion": true}});
            binding = self.patch(at, patch).await?;
        }
        let options = DeleteOptions {
            uid: Some(binding.uid().to_owned()),
            resource_version: Some(binding.revision().to_string()),
            ..DeleteOptions::default()
        };
        ignore_not_found(self.api.delete(at, &options).await)?;
        Ok(())
    }
}

fn preserves(binding: &Object) -> Result<bool, Error> {
    let view = binding.decode::<ResourceBinding>()?;
    Ok(view.spec.preserve_resources_on_deletion == Some(true))
}
