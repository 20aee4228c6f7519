//! Continue tokens of lists over several members: the member in which the list continues, its
//! own token, and the resourceVersion of the first page (Karmada: `pkg/search/proxy/store/util.go`).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use machinery::Status;
use serde::{Deserialize, Serialize};

/// The longest token that is decoded.
const MAX_TOKEN_BYTES: usize = 512 << 10;

/// Where a paged list continues.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct MultiClusterContinue {
    #[serde(rename = "rv", skip_serializing_if = "String::is_empty")]
    pub(crate) resource_version: String,
    pub(crate) cluster: String,
    /// Empty: at the beginning of the member.
    #[serde(rename = "continue", skip_serializing_if = "String::is_empty")]
    pub(crate) member_token: String,
}

impl MultiClusterContinue {
    pub(crate) fn encode(&self) -> String {
        // A struct of strings always encodes.
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).unwrap_or_default())
    }

    /// Decodes what a client sends; 400 if it is none of ours.
    pub(crate) fn decode(text: &str) -> Result<Self, Status> {
        let token = (text.len() <= MAX_TOKEN_BYTES).then(|| URL_SAFE_NO_PAD.decode(text).ok());
        let token = token.flatten();
        let token: Option<Self> = token.and_then(|json| machinery::json::from_slice(&json).ok());
        token
            .filter(|token| !token.cluster.is_empty())
            .ok_or_else(|| Status::bad_request("invalid continue token: it names no cluster"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves: SRC-continue
    #[test]
    fn tokens_name_the_cluster_and_its_token() {
        for (version, member_token, json) in [
            ("v", "t", r#"{"rv":"v","cluster":"m1","continue":"t"}"#),
            ("", "", r#"{"cluster":"m1"}"#),
        ] {
            let token = MultiClusterContinue {
                resource_version: version.to_owned(),
                cluster: "m1".to_owned(),
                member_token: member_token.to_owned(),
            };
            let text = token.encode();
            assert_eq!(text, URL_SAFE_NO_PAD.encode(json));
            assert_eq!(MultiClusterContinue::decode(&text).unwrap(), token);
        }
    }

    #[test]
    fn other_tokens_are_refused() {
        let long = "A".repeat(MAX_TOKEN_BYTES + 1);
        for text in ["x", &*URL_SAFE_NO_PAD.encode("{}"), &*long] {
            let status = MultiClusterContinue::decode(text).unwrap_err();
            assert_eq!(status.code, 400);
        }
    }
}
