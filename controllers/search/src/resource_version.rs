//! The resourceVersion of objects and lists of several members: the map from their names to
//! their own resourceVersions, in JSON and base64url without padding
//! (Karmada: `pkg/search/proxy/store/util.go`). `0` stands for any state.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use machinery::Status;

/// The longest text that is decoded; a cluster takes less than 100 bytes.
const MAX_ENCODED_BYTES: usize = 256 << 10;

/// Where a reader of several members is in each of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum MultiClusterResourceVersion {
    /// No resourceVersion.
    #[default]
    Unset,
    /// Any state of every member (`0`).
    Any,
    ByCluster(BTreeMap<String, u64>),
}

impl MultiClusterResourceVersion {
    /// The resourceVersion of one member.
    pub(crate) fn of_cluster(cluster: &str, revision: u64) -> Self {
        Self::ByCluster(BTreeMap::from([(cluster.to_owned(), revision)]))
    }

    /// Parses what a client sends; 400 if it is none of ours.
    pub(crate) fn parse(text: &str) -> Result<Self, Status> {
        match text {
            "" => Ok(Self::Unset),
            "0" => Ok(Self::Any),
            _ => Self::decode(text).ok_or_else(|| {
                Status::bad_request(format!(
                    "Invalid value: {text:?}: it is no resourceVersion of several clusters"
                ))
            }),
        }
    }

    fn decode(text: &str) -> Option<Self> {
        if text.len() > MAX_ENCODED_BYTES {
            return None;
        }
        let json = URL_SAFE_NO_PAD.decode(text).ok()?;
        let by_cluster: BTreeMap<String, String> = machinery::json::from_slice(&json).ok()?;
        let revision = |text: String| match text.as_str() {
            "" => Some(0),
            text => text.parse::<u64>().ok(),
        };
        let by_cluster = by_cluster.into_iter();
        let parsed: Option<BTreeMap<String, u64>> = by_cluster
            .map(|(cluster, text)| Some((cluster, revision(text)?)))
            .collect();
        parsed.map(Self::ByCluster)
    }

    pub(crate) fn encode(&self) -> String {
        match self {
            Self::Any => "0".to_owned(),
            Self::ByCluster(revisions) if !revisions.is_empty() => {
                let texts: BTreeMap<&str, String> = revisions
                    .iter()
                    .map(|(cluster, revision)| (cluster.as_str(), revision.to_string()))
                    .collect();
                // A map of strings always encodes.
                URL_SAFE_NO_PAD.encode(serde_json::to_vec(&texts).unwrap_or_default())
            }
            Self::Unset | Self::ByCluster(_) => String::new(),
        }
    }

    /// The revision in a member; `None` if it is not known, and 0 for any.
    pub(crate) fn revision(&self, cluster: &str) -> Option<u64> {
        match self {
            Self::Unset => None,
            Self::Any => Some(0),
            Self::ByCluster(revisions) => revisions.get(cluster).copied(),
        }
    }

    /// The members whose revisions are known.
    pub(crate) fn clusters(&self) -> impl Iterator<Item = &str> {
        let revisions = match self {
            Self::ByCluster(revisions) => Some(revisions),
            Self::Unset | Self::Any => None,
        };
        revisions
            .into_iter()
            .flat_map(|revisions| revisions.keys().map(String::as_str))
    }

    pub(crate) fn set(&mut self, cluster: &str, revision: u64) {
        match self {
            Self::ByCluster(revisions) => {
                revisions.insert(cluster.to_owned(), revision);
            }
            Self::Unset | Self::Any => *self = Self::of_cluster(cluster, revision),
        }
    }
}

/// Where a watch of several members is. Each of its events carries all of that, and changes one
/// member: a member is encoded when it changes.
#[derive(Default)]
pub(crate) struct WatchPosition {
    /// The encoded entries of the map.
    entries: BTreeMap<Arc<str>, String>,
}

impl WatchPosition {
    /// Moves on in a member; returns its entry before.
    pub(crate) fn advance(&mut self, cluster: &Arc<str>, revision: u64) -> Option<String> {
        // A string always encodes.
        let name = serde_json::to_string(&**cluster).unwrap_or_default();
        let entry = format!("{name}:\"{revision}\"");
        self.entries.insert(Arc::clone(cluster), entry)
    }

    /// Goes back to an entry.
    pub(crate) fn restore(&mut self, cluster: &Arc<str>, entry: Option<String>) {
        match entry {
            Some(entry) => self.entries.insert(Arc::clone(cluster), entry),
            None => self.entries.remove(cluster),
        };
    }

    /// The text of [`MultiClusterResourceVersion::encode`].
    pub(crate) fn encode(&self) -> String {
        if self.entries.is_empty() {
            return String::new();
        }
        let lengths = self.entries.values().map(String::len);
        let mut json = String::with_capacity(lengths.sum::<usize>() + self.entries.len() + 2);
        let mut separator = '{';
        for entry in self.entries.values() {
            json.push(separator);
            json.push_str(entry);
            separator = ',';
        }
        json.push('}');
        URL_SAFE_NO_PAD.encode(json)
    }
}

/// The resourceVersion that an object has in its member, from the text that a client got.
/// Empty if the text is about other members; `None` if it stands for no members.
pub(crate) fn member_resource_version(cluster: &str, text: &str) -> Option<String> {
    let version = MultiClusterResourceVersion::decode(text)?;
    let revision = version.revision(cluster).filter(|revision| *revision > 0);
    Some(revision.map(|r| r.to_string()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(json: &str) -> String {
        URL_SAFE_NO_PAD.encode(json)
    }

    // proves: SRC-resource-version
    #[test]
    fn versions_are_maps_of_clusters() {
        let mut version = MultiClusterResourceVersion::default();
        assert_eq!(version.encode(), "");
        version.set("m2", 7);
        version.set("m1", 12);
        let text = version.encode();
        assert_eq!(text, encoded(r#"{"m1":"12","m2":"7"}"#));
        assert_eq!(MultiClusterResourceVersion::parse(&text).unwrap(), version);
        assert_eq!(version.clusters().collect::<Vec<_>>(), ["m1", "m2"]);
        for (text, m1) in [
            ("", None),
            ("0", Some(0)),
            (&*encoded("{}"), None),
            (&*encoded(r#"{"m1":""}"#), Some(0)),
            (&*encoded(r#"{"m1":"0"}"#), Some(0)),
            (&*encoded(r#"{"m1":"3","x":"4"}"#), Some(3)),
        ] {
            let parsed = MultiClusterResourceVersion::parse(text).unwrap();
            assert_eq!(parsed.revision("m1"), m1, "{text}");
        }
        let any = MultiClusterResourceVersion::parse("0").unwrap();
        assert_eq!(any.encode(), "0");
    }

    // proves: SRC-watch
    #[test]
    fn the_position_of_a_watch_is_encoded_as_a_version() {
        let mut position = WatchPosition::default();
        let mut version = MultiClusterResourceVersion::default();
        assert_eq!(position.encode(), version.encode());
        for (cluster, revision) in [("m2", 7), ("m1", 12), ("a \"quoted\" name", 1), ("m2", 8)] {
            position.advance(&cluster.into(), revision);
            version.set(cluster, revision);
            assert_eq!(position.encode(), version.encode());
        }
        for (cluster, has_entry) in [("m1", true), ("m3", false)] {
            let cluster = cluster.into();
            let entry = position.advance(&cluster, 100);
            assert_eq!(entry.is_some(), has_entry);
            assert_ne!(position.encode(), version.encode());
            position.restore(&cluster, entry);
            assert_eq!(position.encode(), version.encode());
        }
    }

    #[test]
    fn other_versions_are_refused() {
        let long = "A".repeat(MAX_ENCODED_BYTES + 1);
        for text in [
            "123",
            "%%",
            &*encoded("[]"),
            &*encoded(r#"{"m1":5}"#),
            &*encoded(r#"{"m1":"x"}"#),
            &*encoded(r#"{"m1":"-1"}"#),
            &*long,
        ] {
            let status = MultiClusterResourceVersion::parse(text).unwrap_err();
            assert_eq!(status.code, 400, "{text}");
        }
    }

    #[test]
    fn objects_get_the_version_of_their_cluster_back() {
        let text = encoded(r#"{"m1":"12"}"#);
        assert_eq!(member_resource_version("m1", &text).unwrap(), "12");
        assert_eq!(member_resource_version("m2", &text).unwrap(), "");
        assert_eq!(member_resource_version("m1", &encoded("{}")).unwrap(), "");
        // A text that stands for no members stays as it is.
        for text in ["", "0", "12"] {
            assert_eq!(member_resource_version("m1", text), None, "{text}");
        }
    }
}
