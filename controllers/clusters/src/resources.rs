//! The resources that more than one controller of this crate reads or writes.

use machinery::Gvr;

pub(crate) static CLUSTERS: Gvr = Gvr::constant("cluster.karmada.io", "v1alpha1", "clusters");
pub(crate) static WORKS: Gvr = Gvr::constant("work.karmada.io", "v1alpha1", "works");
pub(crate) static BINDINGS: Gvr = Gvr::constant("work.karmada.io", "v1alpha2", "resourcebindings");
pub(crate) static CLUSTER_BINDINGS: Gvr =
    Gvr::constant("work.karmada.io", "v1alpha2", "clusterresourcebindings");
pub(crate) static NAMESPACES: Gvr = Gvr::constant("", "v1", "namespaces");
