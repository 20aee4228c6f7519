//! The configuration of JWT authenticators: the flags `--oidc-*`, or a file of kind
//! AuthenticationConfiguration. What needs CEL is refused with its field path.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

const VERSIONS: [&str; 2] = [
    "apiserver.config.k8s.io/v1",
    "apiserver.config.k8s.io/v1beta1",
];
const KIND: &str = "AuthenticationConfiguration";
const MAX_ISSUERS: usize = 64;
/// Algorithms of signatures that an issuer may use; none of them is symmetric.
pub(super) const ALGORITHMS: [&str; 8] = [
    "RS256", "RS384", "RS512", "ES256", "ES384", "PS256", "PS384", "PS512",
];

/// An issuer whose tokens are accepted, and how their claims become a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtIssuerConfig {
    pub issuer: String,
    /// Where the discovery document is; below the issuer by default.
    pub discovery_url: String,
    /// CA bundle in PEM; `None`: the system's roots.
    pub ca_pem: Option<String>,
    pub audiences: Vec<String>,
    pub username: ClaimMapping,
    pub groups: Option<ClaimMapping>,
    pub uid_claim: Option<String>,
    pub required_claims: BTreeMap<String, String>,
    pub algorithms: Vec<String>,
}

/// A claim, and what is put before its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimMapping {
    pub claim: String,
    pub prefix: String,
}

/// The values of the flags `--oidc-*`.
#[derive(Clone, Debug, Default)]
pub struct OidcFlagValues {
    pub issuer_url: String,
    pub client_id: String,
    pub ca_pem: Option<String>,
    pub username_claim: String,
    pub username_prefix: Option<String>,
    pub groups_claim: Option<String>,
    pub groups_prefix: String,
    pub required_claims: Vec<String>,
    pub signing_algs: Vec<String>,
}

impl OidcFlagValues {
    pub fn issuer(self) -> Result<JwtIssuerConfig, String> {
        let discovery_url = discovery_url(&self.issuer_url, None)
            .map_err(|why| format!("--oidc-issuer-url: {why}"))?;
        if self.client_id.is_empty() {
            return Err("--oidc-client-id is required with --oidc-issuer-url".into());
        }
        let prefix = match self.username_prefix.as_deref() {
            Some("-") => String::new(),
            Some(prefix) if !prefix.is_empty() => prefix.to_owned(),
            // An address is unique whoever the issuer is.
            _ if self.username_claim == "email" => String::new(),
            _ => format!("{}#", self.issuer_url),
        };
        let mut required_claims = BTreeMap::new();
        for claim in &self.required_claims {
            let (name, value) = claim
                .split_once('=')
                .ok_or("--oidc-required-claim must be of the form KEY=VALUE")?;
            required_claims.insert(name.to_owned(), value.to_owned());
        }
        for algorithm in &self.signing_algs {
            if !ALGORITHMS.contains(&algorithm.as_str()) {
                return Err(format!(
                    "--oidc-signing-algs: {algorithm:?} is none of {}",
                    ALGORITHMS.join(", ")
                ));
            }
        }
        Ok(JwtIssuerConfig {
            issuer: self.issuer_url,
            discovery_url,
            ca_pem: self.ca_pem,
            audiences: vec![self.client_id],
            username: ClaimMapping {
                claim: self.username_claim,
                prefix,
            },
            groups: self.groups_claim.map(|claim| ClaimMapping {
                claim,
                prefix: self.groups_prefix,
            }),
            uid_claim: None,
            required_claims,
            algorithms: self.signing_algs,
        })
    }
}

/// A file of kind AuthenticationConfiguration.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AuthenticationConfiguration {
    api_version: String,
    kind: String,
    #[serde(default)]
    jwt: Vec<JwtAuthenticatorEntry>,
    anonymous: Option<AnonymousAuthEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AnonymousAuthEntry {
    enabled: bool,
    #[serde(default)]
    conditions: Vec<BTreeMap<String, String>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct JwtAuthenticatorEntry {
    issuer: IssuerEntry,
    #[serde(default)]
    claim_validation_rules: Vec<ClaimValidationRuleEntry>,
    claim_mappings: ClaimMappingsEntry,
    #[serde(default)]
    user_validation_rules: Vec<BTreeMap<String, String>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct IssuerEntry {
    url: String,
    #[serde(rename = "discoveryURL")]
    discovery_url: Option<String>,
    certificate_authority: Option<String>,
    #[serde(default)]
    audiences: Vec<String>,
    audience_match_policy: Option<String>,
    egress_selector_type: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ClaimValidationRuleEntry {
    claim: Option<String>,
    required_value: Option<String>,
    expression: Option<String>,
    message: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ClaimMappingsEntry {
    username: ClaimMappingEntry,
    groups: Option<ClaimMappingEntry>,
    uid: Option<ClaimMappingEntry>,
    #[serde(default)]
    extra: Vec<BTreeMap<String, String>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ClaimMappingEntry {
    claim: Option<String>,
    prefix: Option<String>,
    expression: Option<String>,
}

const NO_CEL: &str = "CEL expressions are not evaluated by this server";

impl AuthenticationConfiguration {
    /// Whether requests without credentials are anonymous, if the file says so.
    pub fn anonymous(&self) -> Result<Option<bool>, String> {
        let Some(anonymous) = &self.anonymous else {
            return Ok(None);
        };
        if !anonymous.conditions.is_empty() {
            return Err("anonymous.conditions: not supported by this server".into());
        }
        Ok(Some(anonymous.enabled))
    }

    /// The issuers, validated. An error names the field.
    pub fn issuers(self, own_issuer: &str) -> Result<Vec<JwtIssuerConfig>, String> {
        if !VERSIONS.contains(&self.api_version.as_str()) || self.kind != KIND {
            return Err(format!(
                "must be of kind {KIND} and version {}",
                VERSIONS[0]
            ));
        }
        if self.jwt.len() > MAX_ISSUERS {
            return Err(format!(
                "jwt: Too many: must have at most {MAX_ISSUERS} items"
            ));
        }
        let mut seen = BTreeSet::from([own_issuer.to_owned()]);
        let mut issuers = Vec::new();
        for (i, entry) in self.jwt.into_iter().enumerate() {
            let config = entry.config().map_err(|why| format!("jwt[{i}].{why}"))?;
            if !seen.insert(config.issuer.clone()) {
                let why = "is the issuer of service account tokens, or is repeated";
                return Err(format!("jwt[{i}].issuer.url: {:?} {why}", config.issuer));
            }
            issuers.push(config);
        }
        Ok(issuers)
    }
}

impl JwtAuthenticatorEntry {
    fn config(self) -> Result<JwtIssuerConfig, String> {
        let issuer = self.issuer;
        let discovery_url = discovery_url(&issuer.url, issuer.discovery_url.as_deref())
            .map_err(|why| format!("issuer.{why}"))?;
        if issuer.egress_selector_type.is_some() {
            return Err("issuer.egressSelectorType: not supported by this server".into());
        }
        match (
            issuer.audiences.len(),
            issuer.audience_match_policy.as_deref(),
        ) {
            (0, _) => return Err("issuer.audiences: Required value".into()),
            (1, None | Some("" | "MatchAny")) | (_, Some("MatchAny")) => {}
            _ => {
                return Err(
                    "issuer.audienceMatchPolicy: must be MatchAny for multiple audiences".into(),
                );
            }
        }
        if !self.user_validation_rules.is_empty() {
            return Err(format!("userValidationRules: {NO_CEL}"));
        }
        if !self.claim_mappings.extra.is_empty() {
            return Err(format!("claimMappings.extra: {NO_CEL}"));
        }
        let mut required_claims = BTreeMap::new();
        for (i, rule) in self.claim_validation_rules.into_iter().enumerate() {
            let field = format!("claimValidationRules[{i}]");
            if rule.expression.is_some() || rule.message.is_some() {
                return Err(format!("{field}.expression: {NO_CEL}"));
            }
            let claim = rule.claim.filter(|claim| !claim.is_empty());
            let claim = claim.ok_or_else(|| format!("{field}.claim: Required value"))?;
            let value = rule.required_value.unwrap_or_default();
            if required_claims.insert(claim, value).is_some() {
                return Err(format!("{field}.claim: Duplicate value"));
            }
        }
        let mappings = self.claim_mappings;
        let username = mappings.username.mapping("claimMappings.username", true)?;
        let username = username.ok_or("claimMappings.username.claim: Required value")?;
        let groups = match mappings.groups {
            Some(groups) => groups.mapping("claimMappings.groups", true)?,
            None => None,
        };
        let uid = match mappings.uid {
            Some(uid) => uid.mapping("claimMappings.uid", false)?,
            None => None,
        };
        Ok(JwtIssuerConfig {
            issuer: issuer.url,
            discovery_url,
            ca_pem: issuer.certificate_authority.filter(|pem| !pem.is_empty()),
            audiences: issuer.audiences,
            username,
            groups,
            uid_claim: uid.map(|uid| uid.claim),
            required_claims,
            algorithms: ALGORITHMS.map(str::to_owned).to_vec(),
        })
    }
}

impl ClaimMappingEntry {
    fn mapping(self, field: &str, prefixed: bool) -> Result<Option<ClaimMapping>, String> {
        if self.expression.is_some() {
            return Err(format!("{field}.expression: {NO_CEL}"));
        }
        let Some(claim) = self.claim.filter(|claim| !claim.is_empty()) else {
            return match self.prefix {
                Some(_) => Err(format!("{field}.claim: Required value")),
                None => Ok(None),
            };
        };
        if prefixed && self.prefix.is_none() {
            return Err(format!(
                "{field}.prefix: Required value: prefix is required when claim is set. It can be set to an empty string to disable prefixing"
            ));
        }
        if !prefixed && self.prefix.is_some() {
            return Err(format!("{field}.prefix: not supported for this claim"));
        }
        Ok(Some(ClaimMapping {
            claim,
            prefix: self.prefix.unwrap_or_default(),
        }))
    }
}

/// The address of the discovery document of an issuer. The error begins with the field.
fn discovery_url(issuer: &str, other: Option<&str>) -> Result<String, String> {
    check_https_url(issuer).map_err(|why| format!("url: {why}"))?;
    match other.filter(|other| !other.is_empty()) {
        None => {
            let base = issuer.strip_suffix('/').unwrap_or(issuer);
            Ok(format!("{base}/.well-known/openid-configuration"))
        }
        Some(other) if other.trim_end_matches('/') == issuer.trim_end_matches('/') => {
            Err("discoveryURL: must be different from url".into())
        }
        Some(other) => {
            check_https_url(other).map_err(|why| format!("discoveryURL: {why}"))?;
            Ok(other.to_owned())
        }
    }
}

fn check_https_url(url: &str) -> Result<(), String> {
    let rest = url
        .strip_prefix("https://")
        .ok_or("URL scheme must be https")?;
    let host = rest.split('/').next().unwrap_or_default();
    if host.is_empty() {
        return Err("URL must have a host".into());
    }
    for (character, what) in [
        ('@', "a username or password"),
        ('?', "a query"),
        ('#', "a fragment"),
    ] {
        if rest.contains(character) {
            return Err(format!("URL must not contain {what}"));
        }
    }
    match url.chars().any(|c| c.is_whitespace() || c.is_control()) {
        true => Err("URL must not contain blanks".into()),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn file(change: impl FnOnce(&mut Value)) -> Result<Vec<JwtIssuerConfig>, String> {
        let mut file = json!({
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "AuthenticationConfiguration",
            "jwt": [{
                "issuer": {"url": "https://a.example.com/x", "audiences": ["k"]},
                "claimMappings": {"username": {"claim": "sub", "prefix": "o:"}},
            }],
        });
        change(&mut file);
        let config: AuthenticationConfiguration =
            serde_json::from_value(file).map_err(|e| e.to_string())?;
        config.issuers("https://own.example.com")
    }

    #[test]
    fn a_minimal_file_is_read() {
        let issuers = file(|_| {}).unwrap();
        let url = "https://a.example.com/x/.well-known/openid-configuration";
        assert_eq!(issuers[0].discovery_url, url);
        assert_eq!(issuers[0].username.prefix, "o:");
        assert_eq!(issuers[0].groups, None);
    }

    #[test]
    fn what_is_not_supported_is_refused_with_its_field() {
        let table: [(&str, Value, &str); 17] = [
            ("/apiVersion", json!("v2"), "must be of kind"),
            (
                "/jwt/0/issuer/url",
                json!("http://a"),
                "jwt[0].issuer.url: URL scheme",
            ),
            (
                "/jwt/0/issuer/url",
                json!("https://a?b"),
                "jwt[0].issuer.url",
            ),
            (
                "/jwt/0/issuer/url",
                json!("https://u@a"),
                "jwt[0].issuer.url",
            ),
            (
                "/jwt/0/issuer/url",
                json!("https:///x"),
                "jwt[0].issuer.url",
            ),
            (
                "/jwt/0/issuer/url",
                json!("https://own.example.com"),
                "service account tokens",
            ),
            (
                "/jwt/0/issuer/audiences",
                json!([]),
                "jwt[0].issuer.audiences",
            ),
            ("/jwt/0/issuer/audiences", json!(["a", "b"]), "MatchAny"),
            (
                "/jwt/0/issuer/egressSelectorType",
                json!("cluster"),
                "egressSelectorType",
            ),
            ("/jwt/0/issuer/unknown", json!(1), "unknown field"),
            (
                "/jwt/0/claimMappings/username",
                json!({"claim": "sub"}),
                "username.prefix",
            ),
            ("/jwt/0/claimMappings/username", json!({}), "username.claim"),
            (
                "/jwt/0/claimMappings/username",
                json!({"expression": "claims.sub"}),
                "username.expression: CEL",
            ),
            (
                "/jwt/0/claimMappings/extra",
                json!([{"key": "a"}]),
                "extra: CEL",
            ),
            (
                "/jwt/0/claimMappings/groups",
                json!({"claim": "g"}),
                "groups.prefix",
            ),
            (
                "/jwt/0/userValidationRules",
                json!([{"expression": "x"}]),
                "Rules: CEL",
            ),
            (
                "/jwt/0/claimValidationRules",
                json!([{"expression": "x"}]),
                "claimValidationRules[0].expression: CEL",
            ),
        ];
        for (path, value, why) in table {
            let error = file(|file| {
                let (parent, field) = path.rsplit_once('/').unwrap();
                let parent = match parent {
                    "" => file,
                    parent => file.pointer_mut(parent).unwrap(),
                };
                parent[field] = value.clone();
            })
            .unwrap_err();
            assert!(error.contains(why), "{path} {value}: {error}");
        }
        let repeated = file(|file| {
            let entry = file["jwt"][0].clone();
            file["jwt"].as_array_mut().unwrap().push(entry);
        });
        assert!(repeated.unwrap_err().starts_with("jwt[1].issuer.url"));
    }

    #[test]
    fn flags_have_the_defaults_of_kube_apiserver() {
        let flags = |change: fn(&mut OidcFlagValues)| {
            let mut flags = OidcFlagValues {
                issuer_url: "https://a.example.com".into(),
                client_id: "k".into(),
                username_claim: "sub".into(),
                signing_algs: vec!["RS256".into()],
                ..OidcFlagValues::default()
            };
            change(&mut flags);
            flags.issuer()
        };
        let prefix = |change| flags(change).unwrap().username.prefix;
        assert_eq!(prefix(|_| {}), "https://a.example.com#");
        assert_eq!(prefix(|f| f.username_prefix = Some("-".into())), "");
        assert_eq!(prefix(|f| f.username_prefix = Some("p:".into())), "p:");
        assert_eq!(prefix(|f| f.username_claim = "email".into()), "");
        let bad: [fn(&mut OidcFlagValues); 4] = [
            |f| f.issuer_url = "http://a".into(),
            |f| f.client_id.clear(),
            |f| f.required_claims = vec!["x".into()],
            |f| f.signing_algs = vec!["HS256".into()],
        ];
        for change in bad {
            assert!(flags(change).is_err());
        }
    }
}
