//! The rows of FederatedResourceQuotas: what is used, and how much each cluster may use.

use karmada_api::FederatedResourceQuota;
use karmada_api::quota::QuotaResourceList;
use karmada_api::resources::QUOTAS;
use machinery::Object;

use super::cluster_row::ResourceShare;
use super::resource_row::{ListedResource, ResourceRow, RowCell, abbreviated};

const KIND: &str = "FederatedResourceQuota";

pub(crate) static QUOTA_LIST: [ListedResource; 1] = [ListedResource {
    resource: &QUOTAS,
    kind: KIND,
    pages: None,
    project: |object, _| quota_row(object),
}];

fn quota_row(object: &Object) -> Option<ResourceRow> {
    let quota = object.decode::<FederatedResourceQuota>().ok()?;
    let used = &quota.status.overall_used;
    let shares = quota.spec.overall.iter().map(|(resource, hard)| {
        let share = ResourceShare {
            allocatable: *hard,
            allocated: used.get(resource).copied().unwrap_or_default(),
        };
        (resource.clone(), share)
    });
    let assignments = quota.spec.static_assignments.iter();
    let assignments = assignments.map(|assignment| {
        let hard = assignment.hard.as_ref();
        let hard = hard.map(resource_text).unwrap_or_default();
        format!("{}: {hard}", assignment.cluster_name)
    });
    let cells = vec![
        RowCell::Shares(shares.collect()),
        abbreviated(assignments.collect()),
    ];
    Some(ResourceRow::new(object, KIND, cells))
}

fn resource_text(resources: &QuotaResourceList) -> String {
    let texts = resources.iter();
    let texts: Vec<String> = texts
        .map(|(name, amount)| format!("{name} {amount}"))
        .collect();
    texts.join(", ")
}
