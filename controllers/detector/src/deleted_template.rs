//! Deletes the binding of a deleted template at once.
//!
//! The garbage collector would do the same, but later, and not at all once the template's kind is
//! gone too. A binding whose owner reference was removed (orphan deletion) stays.

use client::{DeleteOptions, ResourcePath, ignore_not_found};
use controller_context::{Error, TemplateKey};
use karmada_api::names;

use crate::controller::ResourceDetector;

impl ResourceDetector {
    /// `kind` and `key` name the deleted template, which had this uid.
    pub(crate) async fn delete_binding_of_deleted_template(
        &self,
        kind: &str,
        key: &TemplateKey,
        uid: &str,
    ) -> Result<(), Error> {
        let (namespace, name) = key.name.split_once('/').unwrap_or(("", &key.name));
        let name = names::binding_name(kind, name);
        let (resource, informer) = self.binding_resource(namespace);
        let owned = |o: &machinery::Object| o.meta().controller().is_some_and(|c| *c.uid == *uid);
        if !informer.get(namespace, &name).is_some_and(|b| owned(&b)) {
            return Ok(());
        }
        let at = ResourcePath::object(resource, namespace, &name);
        // The cached binding may predate the removal of its owner reference.
        let binding = ignore_not_found(self.api.get(at).await)?;
        let Some(binding) = binding.filter(|b| owned(b) && !b.meta().deleting) else {
            return Ok(());
        };
        let options = DeleteOptions {
            uid: Some(binding.uid().to_owned()),
            resource_version: Some(binding.revision().to_string()),
            ..DeleteOptions::default()
        };
        ignore_not_found(self.api.delete(at, &options).await)?;
        Ok(())
    }
}
