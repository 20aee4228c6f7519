//! The configuration of JWT authenticators: the flags `--oidc-*`, or a file of kind
//! AuthenticationConfiguration. What cannot be served is refused with its field path.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::claim_mappings::{
    ClaimMapping, ClaimMappingsEntry, ClaimSource, ClaimValidationRuleEntry, TokenRules,
    UserValidationRuleEntry, validate,
};

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
    /// The URL of the discovery document; below the issuer by default.
    pub discovery_url: String,
    /// CA bundle in PEM; `None`: the system's roots.
    pub ca_pem: Option<String>,
    pub audiences: Vec<String>,
    pub username: ClaimSource,
    pub groups: Option<ClaimSource>,
    pub uid: Option<ClaimSource>,
    pub required_claims: BTreeMap<String, String>,
    pub rules: TokenRules,
    pub algorithms: Vec<String>,
}

/// Which requests without credentials are anonymous.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnonymousRequests {
    pub enabled: bool,
    /// The paths of the requests; empty means all.
    pub paths: Vec<String>,
}

impl AnonymousRequests {
    /// All of them or none.
    pub fn all(enabled: bool) -> Self {
        Self {
            enabled,
            paths: Vec::new(),
        }
    }

    /// Whether a request to this path may be anonymous.
    pub(crate) fn allows(&self, path: &str) -> bool {
        self.enabled && (self.paths.is_empty() || self.paths.iter().any(|p| p == path))
    }
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
            .map_err(|message| format!("--oidc-issuer-url: {message}"))?;
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
            username: ClaimSource::Claim(ClaimMapping {
                claim: self.username_claim,
                prefix,
            }),
            groups: self.groups_claim.map(|claim| {
                ClaimSource::Claim(ClaimMapping {
                    claim,
                    prefix: self.groups_prefix,
                })
            }),
            uid: None,
            required_claims,
            rules: TokenRules::default(),
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
    conditions: Vec<AnonymousAuthCondition>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AnonymousAuthCondition {
    path: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct JwtAuthenticatorEntry {
    issuer: IssuerEntry,
    #[serde(default)]
    claim_validation_rules: Vec<ClaimValidationRuleEntry>,
    claim_mappings: ClaimMappingsEntry,
    #[serde(default)]
    user_validation_rules: Vec<UserValidationRuleEntry>,
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

impl AuthenticationConfiguration {
    /// Whether requests without credentials are anonymous, if the file says so.
    pub fn anonymous(&self) -> Result<Option<AnonymousRequests>, String> {
        let Some(anonymous) = &self.anonymous else {
            return Ok(None);
        };
        if !anonymous.enabled && !anonymous.conditions.is_empty() {
            let message = "enabled should be set to true when conditions are defined";
            return Err(format!("anonymous.conditions: Invalid value: {message}"));
        }
        let paths = anonymous.conditions.iter().map(|c| c.path.clone());
        Ok(Some(AnonymousRequests {
            enabled: anonymous.enabled,
            paths: paths.collect(),
        }))
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
        let mut distinct = BTreeSet::from([own_issuer.to_owned()]);
        let mut issuers = Vec::new();
        for (i, entry) in self.jwt.into_iter().enumerate() {
            let config = entry
                .config()
                .map_err(|message| format!("jwt[{i}].{message}"))?;
            if !distinct.insert(config.issuer.clone()) {
                let message = "is the issuer of service account tokens, or is repeated";
                return Err(format!(
                    "jwt[{i}].issuer.url: {:?} {message}",
                    config.issuer
                ));
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
            .map_err(|message| format!("issuer.{message}"))?;
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
        let distinct: BTreeSet<&String> = issuer.audiences.iter().collect();
        if distinct.len() < issuer.audiences.len() {
            return Err("issuer.audiences: Duplicate value".into());
        }
        let validated = validate(
            self.claim_mappings,
            self.claim_validation_rules,
            self.user_validation_rules,
        )?;
        Ok(JwtIssuerConfig {
            issuer: issuer.url,
            discovery_url,
            ca_pem: issuer.certificate_authority.filter(|pem| !pem.is_empty()),
            audiences: issuer.audiences,
            username: validated.username,
            groups: validated.groups,
            uid: validated.uid,
            required_claims: validated.required_claims,
            rules: validated.rules,
            algorithms: ALGORITHMS.map(str::to_owned).to_vec(),
        })
    }
}

/// The address of the discovery document of an issuer. The error begins with the field.
fn discovery_url(issuer: &str, other: Option<&str>) -> Result<String, String> {
    check_https_url(issuer).map_err(|message| format!("url: {message}"))?;
    match other.filter(|other| !other.is_empty()) {
        None => {
            let base = issuer.strip_suffix('/').unwrap_or(issuer);
            Ok(format!("{base}/.well-known/openid-configuration"))
        }
        Some(other) if other.trim_end_matches('/') == issuer.trim_end_matches('/') => {
            Err("discoveryURL: must be different from url".into())
        }
        Some(other) => {
            check_https_url(other).map_err(|message| format!("discoveryURL: {message}"))?;
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
    for (character, part) in [
        ('@', "a username or password"),
        ('?', "a query"),
        ('#', "a fragment"),
    ] {
        if rest.contains(character) {
            return Err(format!("URL must not contain {part}"));
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

    fn prefix(issuer: &JwtIssuerConfig) -> &str {
        match &issuer.username {
            ClaimSource::Claim(mapping) => &mapping.prefix,
            ClaimSource::Expression(_) => "an expression",
        }
    }

    #[test]
    fn a_minimal_file_is_read() {
        let issuers = file(|_| {}).unwrap();
        let url = "https://a.example.com/x/.well-known/openid-configuration";
        assert_eq!(issuers[0].discovery_url, url);
        assert_eq!(prefix(&issuers[0]), "o:");
        assert_eq!(issuers[0].groups, None);
    }

    #[test]
    fn what_is_not_supported_is_refused_with_its_field() {
        let table: [(&str, Value, &str); 24] = [
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
            (
                "/jwt/0/claimMappings/username",
                json!({}),
                "username: Required",
            ),
            (
                "/jwt/0/claimMappings/username",
                json!({"expression": "claims."}),
                "username.expression: Invalid value: \"claims.\": compilation failed",
            ),
            (
                "/jwt/0/claimMappings/username",
                json!({"expression": "claims.sub", "prefix": ""}),
                "username.prefix: Invalid",
            ),
            (
                "/jwt/0/claimMappings/username",
                json!({"expression": "claims.email"}),
                "claims.email_verified must be used",
            ),
            (
                "/jwt/0/claimMappings/uid",
                json!({"expression": "claims.sub", "claim": "sub"}),
                "uid: Invalid",
            ),
            (
                "/jwt/0/claimMappings/extra",
                json!([{"key": "a", "valueExpression": "''"}]),
                "extra[0].key: Invalid",
            ),
            (
                "/jwt/0/claimMappings/extra",
                json!([{"key": "a.k8s.io/b", "valueExpression": "''"}]),
                "reserved for Kubernetes",
            ),
            (
                "/jwt/0/claimMappings/extra",
                json!([{"key": "example.org/b"}]),
                "extra[0].valueExpression: Required",
            ),
            (
                "/jwt/0/claimMappings/groups",
                json!({"claim": "g"}),
                "groups.prefix",
            ),
            (
                "/jwt/0/userValidationRules",
                json!([{"expression": "user.name == ''"}]),
                "userValidationRules[0].expression: Invalid",
            ),
            (
                "/jwt/0/userValidationRules",
                json!([{"expression": "user.username"}]),
                "must evaluate to bool",
            ),
            (
                "/jwt/0/claimValidationRules",
                json!([{"expression": "claims.x"}]),
                "claimValidationRules[0].expression: Invalid",
            ),
            (
                "/jwt/0/claimValidationRules",
                json!([{"expression": "true", "claim": "a"}]),
                "claim and expression can't both be set",
            ),
        ];
        for (path, value, message) in table {
            let error = file(|file| {
                let (parent, field) = path.rsplit_once('/').unwrap();
                let parent = match parent {
                    "" => file,
                    parent => file.pointer_mut(parent).unwrap(),
                };
                parent[field] = value.clone();
            })
            .unwrap_err();
            assert!(error.contains(message), "{path} {value}: {error}");
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
        let prefix = |change| prefix(&flags(change).unwrap()).to_owned();
        assert_eq!(prefix(|_| {}), "https://a.example.com#");
        assert_eq!(prefix(|f| f.username_prefix = Some("-".into())), "");
        assert_eq!(prefix(|f| f.username_prefix = Some("p:".into())), "p:");
        assert_eq!(prefix(|f| f.username_claim = "email".into()), "");
        let invalid_changes: [fn(&mut OidcFlagValues); 4] = [
            |f| f.issuer_url = "http://a".into(),
            |f| f.client_id.clear(),
            |f| f.required_claims = vec!["x".into()],
            |f| f.signing_algs = vec!["HS256".into()],
        ];
        for change in invalid_changes {
            assert!(flags(change).is_err());
        }
    }
}
