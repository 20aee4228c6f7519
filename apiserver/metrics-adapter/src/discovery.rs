//! The metrics of all members in discovery, kept for a short while: a kube-apiserver in front asks for
//! each version several times a minute.

use std::collections::BTreeSet;
use std::time::Duration;

use flotilla_http::{DynamicResponse, MemberRead, MemberReply};
use machinery::{Status, UserInfo};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::member_metrics::{MemberMetricsReader, MissingMembers};

/// How long an answer is used again.
const CACHE_TTL: Duration = Duration::from_secs(60);

/// The `APIResource`s of a group.
pub(super) struct MemberApiResources {
    reader: MemberMetricsReader,
    group: &'static str,
    /// The preferred version first; a member is asked for the first that it serves.
    versions: &'static [&'static str],
    /// The kind of the values.
    kind: &'static str,
    cached: Mutex<Option<CachedApiResources>>,
}

struct CachedApiResources {
    read_at: Instant,
    resources: Value,
    warnings: Vec<String>,
}

#[derive(Deserialize)]
struct ApiResourceList {
    #[serde(default)]
    resources: Vec<ApiResource>,
}

#[derive(Deserialize)]
struct ApiResource {
    name: String,
    #[serde(default)]
    namespaced: bool,
}

impl MemberApiResources {
    pub(super) fn new(
        reader: &MemberMetricsReader,
        group: &'static str,
        versions: &'static [&'static str],
        kind: &'static str,
    ) -> Self {
        Self {
            reader: reader.clone(),
            group,
            versions,
            kind,
            cached: Mutex::default(),
        }
    }

    /// The resources of all members, each once; none while the addon is disabled. Requests that come
    /// together wait for one answer.
    pub(super) async fn get(&self, user: &UserInfo) -> Result<DynamicResponse, Status> {
        let mut cached = self.cached.lock().await;
        if self.reader.is_disabled() {
            *cached = None;
            return Ok(DynamicResponse {
                value: json!([]),
                warnings: Vec::new(),
            });
        }
        let current = match cached.take() {
            Some(current) if current.read_at.elapsed() < CACHE_TTL => current,
            _ => self.read(user).await?,
        };
        let current = cached.insert(current);
        Ok(DynamicResponse {
            value: current.resources.clone(),
            warnings: current.warnings.clone(),
        })
    }

    async fn read(&self, user: &UserInfo) -> Result<CachedApiResources, Status> {
        let segments = self.versions.iter();
        let segments = segments.map(|version| ["apis", self.group, version]);
        let segments: Vec<[&str; 3]> = segments.collect();
        let reads = segments.iter().map(|segments| MemberRead {
            segments,
            query: &[],
        });
        let reads: Vec<MemberRead<'_>> = reads.collect();
        let mut names: BTreeSet<(String, bool)> = BTreeSet::new();
        let mut missing = MissingMembers::default();
        for MemberReply { cluster, outcome } in self.reader.discover(user, &reads).await? {
            let list: Option<ApiResourceList> = missing.check_reply(&cluster, outcome, |body| {
                machinery::json::from_slice(body).map_err(|error| error.to_string())
            });
            let resources = list.into_iter().flat_map(|list| list.resources);
            names.extend(resources.map(|resource| (resource.name, resource.namespaced)));
        }
        let resource = |(name, namespaced): (String, bool)| {
            json!({"name": name, "singularName": "", "namespaced": namespaced,
                "kind": self.kind, "verbs": ["get"]})
        };
        Ok(CachedApiResources {
            read_at: Instant::now(),
            resources: names.into_iter().map(resource).collect(),
            warnings: missing.into_warnings(),
        })
    }
}
