//! The CustomResourceDefinition of a kind of the catalog, for clusters that shall serve the kind.

use serde_json::{Map, Value, json};

use crate::catalog::catalog;
use crate::model::{KindInfo, PrinterColumn};
use crate::publish::{PublishedResource, inline_schema};

/// The extensions of schemas that definitions have.
const EXTENSIONS: [&str; 5] = [
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "x-kubernetes-int-or-string",
    "x-kubernetes-preserve-unknown-fields",
];

/// The definition by which another API server serves a kind as this one does; `None` for a kind
/// without a schema.
pub fn definition_of_kind(kind: &KindInfo) -> Option<Value> {
    let schema = catalog().schema(kind);
    let schema = &schema;
    let mut schema = inline_schema(PublishedResource { kind, schema })?;
    remove_foreign_extensions(&mut schema);
    schema["properties"]["metadata"] = json!({"type": "object"});
    let mut version = json!({"name": kind.gvk.version, "served": true, "storage": true,
        "schema": {"openAPIV3Schema": schema}});
    if kind.status {
        version["subresources"] = json!({"status": {}});
    }
    if !kind.columns.is_empty() {
        version["additionalPrinterColumns"] = printer_columns(kind);
    }
    let mut names = json!({"plural": kind.gvr.resource, "singular": kind.singular,
        "kind": kind.gvk.kind, "listKind": kind.list_kind});
    for (field, list) in [
        ("shortNames", &kind.short_names),
        ("categories", &kind.categories),
    ] {
        if !list.is_empty() {
            names[field] = json!(list);
        }
    }
    let scope = if kind.namespaced {
        "Namespaced"
    } else {
        "Cluster"
    };
    Some(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{}.{}", kind.gvr.resource, kind.gvr.group)},
        "spec": {"group": kind.gvk.group, "names": names, "scope": scope, "versions": [version]},
    }))
}

/// The columns whose path is the path of a field.
fn printer_columns(kind: &KindInfo) -> Value {
    let column = |column: &PrinterColumn| {
        let names = column.path.field_names()?;
        let path: String = names.iter().map(|name| format!(".{name}")).collect();
        let mut json = json!({"name": column.name, "type": column.ty, "jsonPath": path});
        for (field, text) in [
            ("format", &column.format),
            ("description", &column.description),
        ] {
            if !text.is_empty() {
                json[field] = text.as_str().into();
            }
        }
        if column.priority != 0 {
            json["priority"] = column.priority.into();
        }
        Some(json)
    };
    kind.columns.iter().filter_map(column).collect()
}

fn remove_foreign_extensions(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else {
        return;
    };
    fields.retain(|key, _| !key.starts_with("x-") || EXTENSIONS.contains(&&**key));
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = fields.get_mut(key) {
            remove_foreign_extensions(inner);
        }
    }
    let properties = fields.get_mut("properties").and_then(Value::as_object_mut);
    for property in properties.into_iter().flat_map(Map::values_mut) {
        remove_foreign_extensions(property);
    }
}

#[cfg(test)]
mod tests {
    use machinery::Gvk;

    use super::*;
    use crate::Schema;

    #[test]
    fn the_definition_serves_the_kind_as_the_catalog_does() {
        for (kind, short_name) in [("ServiceExport", "svcex"), ("ServiceImport", "svcim")] {
            let gvk = Gvk::from_static("multicluster.x-k8s.io", "v1alpha1", kind);
            let info = catalog().kind(&gvk).unwrap();
            let definition = definition_of_kind(info).unwrap();
            let plural = &*info.gvr.resource;
            let name = &definition["metadata"]["name"];
            assert_eq!(*name, format!("{plural}.multicluster.x-k8s.io"));
            let names = &definition["spec"]["names"];
            assert_eq!(names["listKind"], format!("{kind}List"));
            assert_eq!(names["shortNames"], json!([short_name]));
            let version = &definition["spec"]["versions"][0];
            assert_eq!(version["subresources"], json!({"status": {}}));
            let columns = version["additionalPrinterColumns"].as_array().unwrap();
            let age = columns.last().unwrap();
            assert_eq!(age["jsonPath"], ".metadata.creationTimestamp");
            let schema = &version["schema"]["openAPIV3Schema"];
            assert!(!schema.to_string().contains("$ref"), "{schema}");
            Schema::from_crd(schema).unwrap();
        }
    }

    /// Each object is pruned and validated alike by the definition and by the catalog.
    #[test]
    fn the_definition_has_the_fields_of_the_catalog() {
        let gvk = Gvk::from_static("multicluster.x-k8s.io", "v1alpha1", "ServiceImport");
        let info = catalog().kind(&gvk).unwrap();
        let definition = definition_of_kind(info).unwrap();
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let schema = Schema::from_crd(schema).unwrap();
        let import = json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceImport",
            "metadata": {"name": "a"},
            "spec": {"type": "ClusterSetIP", "ips": ["10.0.0.1"], "sessionAffinity": "None",
                "ports": [{"name": "p", "port": 80, "protocol": "TCP", "appProtocol": "http"}]},
            "status": {"clusters": [{"cluster": "m1"}]}});
        let mut pruned = import.clone();
        schema.prune(&mut pruned);
        assert_eq!(pruned, import);
        assert!(schema.validate(&import).is_empty());
        let mut invalid = import;
        invalid["spec"]["type"] = "Other".into();
        assert_eq!(schema.validate(&invalid).len(), 1);
    }
}
