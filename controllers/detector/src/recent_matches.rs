//! Keeps which templates were matched last, and at which revision, for policies that are seen late.

use std::collections::{BTreeSet, HashMap, VecDeque};

use controller_context::TemplateKey;

/// A watch is late by milliseconds, in which no more templates are matched.
const MAX_RECENT_MATCHES: usize = 4_096;

/// `namespace/name` of a policy, or the name of a cluster policy.
pub(crate) type LatePolicyKeys = BTreeSet<String>;

/// The templates matched last, and the late policies of each of them.
#[derive(Debug, Default)]
pub(crate) struct RecentMatches {
    /// Templates with the revision that was matched, oldest match first.
    matches: VecDeque<(TemplateKey, u64)>,
    late_policies: HashMap<TemplateKey, LatePolicyKeys>,
}

impl RecentMatches {
    pub(crate) fn record(&mut self, key: TemplateKey, revision: u64) {
        if self.matches.len() == MAX_RECENT_MATCHES
            && let Some((oldest, _)) = self.matches.pop_front()
        {
            self.late_policies.remove(&oldest);
        }
        self.matches.push_back((key, revision));
    }

    /// The templates whose matched revision is newer than `revision`.
    pub(crate) fn newer_than(&self, revision: u64) -> Vec<TemplateKey> {
        let newer = self.matches.iter().filter(|(_, at)| *at > revision);
        newer.map(|(key, _)| key.clone()).collect()
    }

    pub(crate) fn take_late_policies(&mut self, key: &TemplateKey) -> LatePolicyKeys {
        self.late_policies.remove(key).unwrap_or_default()
    }

    pub(crate) fn add_late_policies(&mut self, key: &TemplateKey, policies: LatePolicyKeys) {
        if !policies.is_empty() {
            let late = self.late_policies.entry(key.clone()).or_default();
            late.extend(policies);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery::Gvr;

    #[test]
    fn recent_matches_are_bounded() {
        static THINGS: Gvr = Gvr::from_static("example.io", "v1", "things");
        let key = |n: u64| TemplateKey {
            gvr: THINGS.clone(),
            name: n.to_string(),
        };
        let mut recent = RecentMatches::default();
        let late = LatePolicyKeys::from(["p".to_owned()]);
        for revision in 0..MAX_RECENT_MATCHES as u64 + 10 {
            recent.record(key(revision), revision);
            recent.add_late_policies(&key(revision), late.clone());
        }
        assert_eq!(recent.matches.len(), MAX_RECENT_MATCHES);
        assert_eq!(recent.late_policies.len(), MAX_RECENT_MATCHES);
        let newest = MAX_RECENT_MATCHES as u64 + 9;
        assert_eq!(recent.newer_than(newest - 1), [key(newest)]);
        assert_eq!(recent.take_late_policies(&key(newest)), late);
        assert!(recent.take_late_policies(&key(newest)).is_empty());
    }
}
