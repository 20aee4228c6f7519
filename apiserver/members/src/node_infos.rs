//! The nodes of one member as a list.

use crate::nodes::{NodeInfo, ResourceNameId};
use crate::resource_totals::ResourceTotals;

/// All nodes of a member.
#[derive(Clone, Copy)]
pub struct NodeInfos<'a>(pub(crate) &'a ResourceTotals);

impl<'a> NodeInfos<'a> {
    /// `None`: no node and no pod names this resource.
    pub fn resource_id(&self, name: &str) -> Option<ResourceNameId> {
        self.0.find_resource(name).map(ResourceNameId)
    }

    /// The nodes, unordered.
    pub fn iter(&self) -> impl Iterator<Item = NodeInfo<'a>> {
        self.0.nodes()
    }
}
