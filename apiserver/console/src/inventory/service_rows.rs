//! The rows of MultiClusterServices, ServiceExports and ServiceImports: which clusters serve, and which
//! ask.

use karmada_api::resources::MULTI_CLUSTER_SERVICES;
use machinery::{Gvr, Object};
use serde_json::Value;

use super::resource_row::{ListedResource, ResourceRow, RowCell, abbreviated};

static SERVICE_EXPORTS: Gvr =
    Gvr::from_static("multicluster.x-k8s.io", "v1alpha1", "serviceexports");
static SERVICE_IMPORTS: Gvr =
    Gvr::from_static("multicluster.x-k8s.io", "v1alpha1", "serviceimports");

const MULTI_CLUSTER_SERVICE: &str = "MultiClusterService";
const SERVICE_EXPORT: &str = "ServiceExport";
const SERVICE_IMPORT: &str = "ServiceImport";

pub(crate) static SHARED_SERVICES: [ListedResource; 3] = [
    ListedResource {
        resource: &MULTI_CLUSTER_SERVICES,
        kind: MULTI_CLUSTER_SERVICE,
        pages: None,
        project: |object, _| multi_cluster_row(object),
    },
    ListedResource {
        resource: &SERVICE_EXPORTS,
        kind: SERVICE_EXPORT,
        pages: None,
        project: |object, _| {
            let cells = [
                "exported",
                "the clusters of its policy",
                "any that imports it",
            ];
            Some(text_row(object, SERVICE_EXPORT, cells))
        },
    },
    ListedResource {
        resource: &SERVICE_IMPORTS,
        kind: SERVICE_IMPORT,
        pages: None,
        project: |object, _| {
            let cells = [
                "imported",
                "any that exports it",
                "the clusters of its policy",
            ];
            Some(text_row(object, SERVICE_IMPORT, cells))
        },
    },
];

fn text_row(object: &Object, kind: &str, cells: [&str; 3]) -> ResourceRow {
    let cells = cells.map(|text| RowCell::Lines(vec![text.to_owned()]));
    ResourceRow::new(object, kind, cells.into())
}

fn multi_cluster_row(object: &Object) -> Option<ResourceRow> {
    let value = object.value().ok()?;
    let spec = &value["spec"];
    let cells = vec![
        abbreviated(texts(&spec["types"], |exposure| exposure.as_str())),
        clusters(&spec["providerClusters"]),
        clusters(&spec["consumerClusters"]),
    ];
    Some(ResourceRow::new(object, MULTI_CLUSTER_SERVICE, cells))
}

fn texts(list: &Value, text: impl Fn(&Value) -> Option<&str>) -> Vec<String> {
    let elements = list.as_array().into_iter().flatten();
    elements
        .filter_map(|e| text(e).map(str::to_owned))
        .collect()
}

fn clusters(list: &Value) -> RowCell {
    match texts(list, |cluster| cluster["name"].as_str()) {
        names if names.is_empty() => RowCell::Lines(vec!["all clusters".to_owned()]),
        names => abbreviated(names),
    }
}
