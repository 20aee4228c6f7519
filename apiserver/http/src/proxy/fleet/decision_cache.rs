//! Remembers for a short time what users may do in members.

use std::time::Duration;

use ahash::AHashMap;
use machinery::UserInfo;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

/// A right that ends in a member ends here so much later.
const ALLOWED_TTL: Duration = Duration::from_secs(10);
const OTHER_TTL: Duration = Duration::from_secs(2);
/// The most decisions; each takes less than 200 bytes.
const MAX_DECISIONS: usize = 50_000;

/// The decision of one member about one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MemberDecision {
    Allowed,
    Denied,
    /// The member could not be asked.
    Unknown(String),
}

/// The request that a decision is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct AccessAttributes<'a> {
    pub(super) verb: &'a str,
    pub(super) group: &'a str,
    pub(super) version: &'a str,
    pub(super) resource: &'a str,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
}

/// The hash of everything that a decision depends on.
pub(super) type DecisionKey = [u8; 32];

pub(super) fn decision_key(
    cluster: &str,
    user: &UserInfo,
    attributes: &AccessAttributes<'_>,
) -> DecisionKey {
    let mut hash = Sha256::new();
    let mut add = |text: &str| {
        // With its length, so that no two lists of texts are the same.
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    };
    let AccessAttributes {
        verb,
        group,
        version,
        resource,
        namespace,
        name,
    } = *attributes;
    for text in [
        cluster,
        verb,
        group,
        version,
        resource,
        namespace,
        name,
        &*user.name,
        &*user.uid,
    ] {
        add(text);
    }
    add(&user.groups.len().to_string());
    for group in &user.groups {
        add(group);
    }
    for (key, values) in &user.extra {
        add(key);
        add(&values.len().to_string());
        for value in values {
            add(value);
        }
    }
    hash.finalize().into()
}

/// Decisions, and until when they hold.
#[derive(Default)]
pub(super) struct DecisionCache {
    entries: Mutex<AHashMap<DecisionKey, (Instant, MemberDecision)>>,
}

impl DecisionCache {
    pub(super) fn get(&self, key: &DecisionKey) -> Option<MemberDecision> {
        let entries = self.entries.lock();
        let (until, decision) = entries.get(key)?;
        (Instant::now() < *until).then(|| decision.clone())
    }

    pub(super) fn insert(&self, key: DecisionKey, decision: MemberDecision) {
        let now = Instant::now();
        let ttl = match decision {
            MemberDecision::Allowed => ALLOWED_TTL,
            MemberDecision::Denied | MemberDecision::Unknown(_) => OTHER_TTL,
        };
        let mut entries = self.entries.lock();
        if entries.len() >= MAX_DECISIONS {
            entries.retain(|_, (until, _)| now < *until);
        }
        if entries.len() >= MAX_DECISIONS {
            entries.clear();
        }
        entries.insert(key, (now + ttl, decision));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(cluster: &str, user: &str, groups: &[&str], namespace: &str) -> DecisionKey {
        let user = UserInfo {
            name: user.to_owned(),
            groups: groups.iter().map(|g| (*g).to_owned()).collect(),
            ..UserInfo::default()
        };
        let attributes = AccessAttributes {
            verb: "list",
            group: "",
            version: "v1",
            resource: "pods",
            namespace,
            name: "",
        };
        decision_key(cluster, &user, &attributes)
    }

    // proves: FLV-decisions
    #[tokio::test(start_paused = true)]
    async fn decisions_are_of_one_user_and_request_and_end_soon() {
        let cache = DecisionCache::default();
        let ann = key("m1", "ann", &["a", "b"], "ns");
        cache.insert(ann, MemberDecision::Allowed);
        assert_eq!(cache.get(&ann), Some(MemberDecision::Allowed));
        for other in [
            key("m2", "ann", &["a", "b"], "ns"),
            key("m1", "bob", &["a", "b"], "ns"),
            key("m1", "ann", &["ab"], "ns"),
            key("m1", "ann", &["a"], "ns"),
            key("m1", "ann", &["a", "b"], ""),
        ] {
            assert_eq!(cache.get(&other), None);
        }
        let denied = key("m1", "eve", &[], "");
        cache.insert(denied, MemberDecision::Denied);
        tokio::time::advance(OTHER_TTL).await;
        assert_eq!(cache.get(&denied), None);
        assert!(cache.get(&ann).is_some());
        tokio::time::advance(ALLOWED_TTL).await;
        assert_eq!(cache.get(&ann), None);
    }

    // proves: FLV-bounds
    #[tokio::test(start_paused = true)]
    async fn the_number_of_decisions_is_bounded() {
        let cache = DecisionCache::default();
        for number in 0..=MAX_DECISIONS {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&number.to_le_bytes());
            cache.insert(key, MemberDecision::Allowed);
        }
        assert!(cache.entries.lock().len() <= MAX_DECISIONS);
    }
}
