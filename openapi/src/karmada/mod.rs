//! Karmada's vocabulary: keys of labels and annotations, generated names, and
//! typed views of its kinds. A view holds only the fields somebody reads.
//!
//! Enters: names, JSON of objects. Leaves: names, views, verdicts of affinities.
//! Pure. Sources: Karmada's `pkg/apis/*/…/well_known_constants.go`,
//! `pkg/util/names`, `pkg/util/selector.go`.

pub mod affinity;
pub mod binding;
pub mod cluster;
pub mod labels;
pub mod names;
pub mod placement;
pub mod policy;
pub mod work;

pub use affinity::{ClusterAffinity, ClusterFacts, Matcher};
pub use binding::{Binding, BindingSpec, BindingStatus, TargetCluster};
pub use cluster::Cluster;
pub use placement::Placement;
pub use policy::{OverridePolicy, PropagationPolicy, ResourceSelector};
pub use work::Work;
