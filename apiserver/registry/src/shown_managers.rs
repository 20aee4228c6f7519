//! Shows the managers of an object to its admission webhooks, and takes over what they change
//! (`endpoints/handlers/fieldmanager/admission.go`). Trees are without managers elsewhere.

use machinery::{Object, Status};
use managed_fields::ManagedFields;
use parking_lot::Mutex;
use serde_json::Value;

use crate::object_meta;

/// The managers of an object during its admission.
#[derive(Default)]
pub(crate) struct ShownManagers<'a> {
    new: Mutex<NewManagers>,
    /// The object before the write.
    old: Option<&'a Object>,
}

/// The managers of the new object.
#[derive(Default)]
pub(crate) struct NewManagers {
    /// The text of the managers.
    pub(crate) text: Option<String>,
    /// Whether a webhook changed them.
    pub(crate) is_changed: bool,
}

impl<'a> ShownManagers<'a> {
    pub(crate) fn new(text: Option<String>, old: Option<&'a Object>) -> Self {
        let is_changed = false;
        Self {
            new: Mutex::new(NewManagers { text, is_changed }),
            old,
        }
    }

    /// The managers of the new object after admission.
    pub(crate) fn into_new(self) -> NewManagers {
        self.new.into_inner()
    }

    /// Inserts the managers of the new object; returns them as they are shown.
    pub(crate) fn insert_new(&self, new: &mut Value) -> Result<Value, Status> {
        let text = self.new.lock().text.clone();
        insert(new, text.as_deref())
    }

    /// The object before the write, with its managers.
    pub(crate) fn with_old(&self, old: Option<&Value>) -> Result<Option<Value>, Status> {
        let Some(mut with_managers) = old.filter(|old| old.is_object()).cloned() else {
            return Ok(None);
        };
        let text = self.old.and_then(Object::managed_fields_json);
        insert(&mut with_managers, text)?;
        Ok(Some(with_managers))
    }

    /// Takes the managers out of the new object. What a webhook made of them stands if it is
    /// well-formed; otherwise the client gets a warning.
    pub(crate) fn take_new(
        &self,
        new: &mut Value,
        with_managers: &Value,
        warnings: &mut Vec<String>,
    ) -> Result<(), Status> {
        let after = object_meta::metadata_mut(new)?
            .remove("managedFields")
            .unwrap_or_default();
        if after == *with_managers {
            return Ok(());
        }
        match ManagedFields::decode(Some(&after)) {
            Ok(managed) => {
                *self.new.lock() = NewManagers {
                    text: managed.encode_json(),
                    is_changed: true,
                };
            }
            Err(e) => warnings.push(format!(
                ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating admission controller; please fix your requests: {e}"
            )),
        }
        Ok(())
    }
}

/// Inserts managers, and returns them; null if there are none.
fn insert(object: &mut Value, text: Option<&str>) -> Result<Value, Status> {
    let Some(text) = text else {
        return Ok(Value::Null);
    };
    let managers: Value = machinery::json::from_str(text).map_err(Status::internal)?;
    object_meta::metadata_mut(object)?.insert("managedFields".into(), managers.clone());
    Ok(managers)
}
