//! Compares what an object of RBAC grants before and after the override policies of a namespace.
//!
//! Whoever writes a role or a binding must have the rights that it grants. Nothing proves that of
//! the author of an OverridePolicy, whose overriders would grant in the members what the control
//! plane refuses. Cluster override policies are those of an administrator.

use machinery::Gvk;
use serde_json::Value;

const GROUP: &str = "rbac.authorization.k8s.io";
/// The fields that grant rights, as JSON pointers.
const GRANTING_FIELDS: [&str; 4] = ["/rules", "/aggregationRule", "/roleRef", "/subjects"];

/// The rights that an object grants; none if it is of another group.
pub(crate) struct GrantedRights {
    values: Option<[Value; GRANTING_FIELDS.len()]>,
}

impl GrantedRights {
    pub(crate) fn of(manifest: &Value, kind: &Gvk) -> Self {
        let value_at = |path: &str| manifest.pointer(path).cloned().unwrap_or_default();
        Self {
            values: (&*kind.group == GROUP).then(|| GRANTING_FIELDS.map(value_at)),
        }
    }

    /// The first field that grants something else in the manifest, as a JSON pointer.
    pub(crate) fn changed_field(&self, manifest: &Value) -> Option<&'static str> {
        let mut fields = GRANTING_FIELDS.iter().zip(self.values.as_ref()?);
        let changed = |(path, before): &(&&str, &Value)| {
            manifest.pointer(path).unwrap_or(&Value::Null) != *before
        };
        fields.find(changed).map(|(path, _)| *path)
    }
}
