//! Metrics of the caches of members: how many there are, in which state, and how many objects and bytes
//! they have. They are counted at each scrape.

use std::collections::BTreeMap;
use std::sync::{Arc, Once, Weak};

use flotilla_metrics::{CallbackMetricDesc, CallbackMetricType, CallbackMetricWriter};
use parking_lot::Mutex;

use crate::resource_caches::SelectedResourceCaches;

const CACHES: &str = "flotilla_search_caches";
const OBJECTS: &str = "flotilla_search_cached_objects";
const BYTES: &str = "flotilla_search_cached_bytes";
/// `ready` answers, `filling` is listed for the first time or again, `unreachable` has no connection.
const STATES: [&str; 3] = ["ready", "filling", "unreachable"];

static MEASURED: Mutex<Vec<Weak<SelectedResourceCaches>>> = Mutex::new(Vec::new());

/// Adds caches to the metrics of the process until they are dropped.
pub(crate) fn register(caches: &Arc<SelectedResourceCaches>) {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        let gauge = |name, help, labels| {
            CallbackMetricDesc::new(name, help, CallbackMetricType::Gauge, labels)
        };
        let descriptions = [
            gauge(
                CACHES,
                "Caches of selected resources of a cluster, by state.",
                &["member_cluster", "state"],
            ),
            gauge(
                OBJECTS,
                "Objects of a cluster in the caches of selected resources.",
                &["member_cluster"],
            ),
            gauge(
                BYTES,
                "Bytes of the objects of a cluster in the caches of selected resources.",
                &["member_cluster"],
            ),
        ];
        flotilla_metrics::process_registry().register_callback(&descriptions, collect);
    });
    let mut measured = MEASURED.lock();
    measured.retain(|caches| caches.strong_count() > 0);
    measured.push(Arc::downgrade(caches));
}

/// The caches of a cluster by state, and their objects and bytes.
#[derive(Default)]
struct ClusterCaches {
    by_state: [usize; STATES.len()],
    objects: usize,
    bytes: usize,
}

fn collect(writer: &mut CallbackMetricWriter<'_>) {
    let mut clusters: BTreeMap<String, ClusterCaches> = BTreeMap::new();
    let measured: Vec<_> = MEASURED.lock().iter().filter_map(Weak::upgrade).collect();
    for resource in measured.iter().flat_map(|caches| caches.all()) {
        for (cluster, member) in &resource.members {
            let of_cluster = clusters.entry(cluster.clone()).or_default();
            let objects = member.cacher.len();
            of_cluster.by_state[usize::from(objects.is_none())] += 1;
            of_cluster.objects += objects.unwrap_or(0);
            of_cluster.bytes += member.cacher.size().bytes;
        }
        for cluster in resource.unreachable.keys() {
            clusters.entry(cluster.clone()).or_default().by_state[2] += 1;
        }
    }
    for (cluster, caches) in clusters {
        for (state, count) in STATES.iter().zip(caches.by_state) {
            writer.set(CACHES, &[&cluster, state], count as f64);
        }
        writer.set(OBJECTS, &[&cluster], caches.objects as f64);
        writer.set(BYTES, &[&cluster], caches.bytes as f64);
    }
}
