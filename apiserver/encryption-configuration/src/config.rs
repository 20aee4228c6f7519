//! Parses and validates an EncryptionConfiguration
//! (`k8s.io/apiserver/pkg/apis/apiserver/validation/validation_encryption.go`). Every
//! error has the path of its field; no error repeats a secret.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use machinery::FieldError;
use serde_json::{Map, Value, json};
use storage::encryption::PrefixTransformer;

const API_VERSION: &str = "apiserver.config.k8s.io/v1";
const KIND: &str = "EncryptionConfiguration";
const SUPPORTED_PROVIDERS: [&str; 3] = ["aesgcm", "secretbox", "identity"];
/// Providers of kube-apiserver that Flotilla does not support.
const UNSUPPORTED_PROVIDERS: [&str; 2] = ["aescbc", "kms"];
/// Data that a kube-apiserver stores but does not serve as resources.
const NON_RESOURCES: [&str; 3] = [
    "apiserveripinfo",
    "serviceipallocations",
    "servicenodeportallocations",
];

/// An element of `resources` in the configuration (ResourceConfiguration).
#[derive(Debug)]
pub(super) struct ResourceConfiguration {
    pub(super) resources: Vec<GroupResourcePattern>,
    /// The keys of its providers in order; never empty.
    pub(super) keys: Vec<EncryptionProviderKey>,
}

/// A group resource of the configuration; `*` stands for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GroupResourcePattern {
    pub(super) group: String,
    pub(super) resource: String,
    /// The path of its field.
    pub(super) field: String,
}

impl GroupResourcePattern {
    fn parse(text: &str, field: String) -> Self {
        let (resource, group) = text.split_once('.').unwrap_or((text, ""));
        Self {
            group: group.to_owned(),
            resource: resource.to_owned(),
            field,
        }
    }

    pub(super) fn matches(&self, resource: &str, group: &str) -> bool {
        self.resource == resource && self.group == group
    }

    pub(super) fn text(&self) -> String {
        match (&*self.resource, &*self.group) {
            (resource, "") if resource != "*" => resource.to_owned(),
            (resource, group) => format!("{resource}.{group}"),
        }
    }
}

/// One key of a provider, or the provider `identity`.
#[derive(Clone)]
pub(super) enum EncryptionProviderKey {
    AesGcm { name: String, secret: Vec<u8> },
    Secretbox { name: String, secret: Vec<u8> },
    Identity,
}

impl std::fmt::Debug for EncryptionProviderKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::AesGcm { name, .. } | Self::Secretbox { name, .. } => name,
            Self::Identity => "identity",
        })
    }
}

pub(super) fn join_errors(errors: &[FieldError]) -> String {
    let all: Vec<String> = errors.iter().map(FieldError::to_string).collect();
    all.join("; ")
}

/// Parses the document. Returns all errors that it finds.
pub(super) fn parse(document: &Value) -> Result<Vec<ResourceConfiguration>, Vec<FieldError>> {
    let mut reader = EncryptionConfigurationParser::default();
    let entries = reader.document(document);
    if reader.errors.is_empty() {
        return Ok(entries);
    }
    Err(reader.errors)
}

#[derive(Default)]
struct EncryptionConfigurationParser {
    errors: Vec<FieldError>,
}

impl EncryptionConfigurationParser {
    fn fail(&mut self, error: FieldError) {
        self.errors.push(error);
    }

    /// The value as an object; an unknown field is an error.
    fn object<'v>(
        &mut self,
        path: &str,
        value: &'v Value,
        field_names: &[&str],
    ) -> &'v Map<String, Value> {
        static EMPTY: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
        let Some(object) = value.as_object() else {
            let path = if path.is_empty() { "<root>" } else { path };
            self.fail(FieldError::invalid_rendered(
                path,
                json_type(value),
                "must be an object",
            ));
            return &EMPTY;
        };
        for name in object
            .keys()
            .filter(|name| !field_names.contains(&&***name))
        {
            self.fail(FieldError::forbidden(
                child_path(path, name),
                "unknown field",
            ));
        }
        object
    }

    fn array<'v>(&mut self, path: &str, value: Option<&'v Value>) -> &'v [Value] {
        match value {
            None | Some(Value::Null) => {}
            Some(Value::Array(all)) if all.is_empty() => {}
            Some(Value::Array(all)) => return all,
            Some(other) => {
                self.fail(FieldError::invalid_rendered(
                    path,
                    json_type(other),
                    "must be a list",
                ));
                return &[];
            }
        }
        self.fail(FieldError::required(
            path,
            &format!("at least one {path} is required"),
        ));
        &[]
    }

    fn document(&mut self, document: &Value) -> Vec<ResourceConfiguration> {
        let root = self.object("", document, &["apiVersion", "kind", "resources"]);
        for (field, expected) in [("apiVersion", API_VERSION), ("kind", KIND)] {
            match root.get(field) {
                Some(Value::String(text)) if text == expected => {}
                None => self.fail(FieldError::required(field, &format!("must be {expected}"))),
                Some(other) => {
                    self.fail(FieldError::not_supported(field, other, &[expected]));
                }
            }
        }
        let all = self.array("resources", root.get("resources"));
        let entries = (0..).zip(all);
        entries
            .map(|(i, value)| self.entry(&format!("resources[{i}]"), value))
            .collect()
    }

    fn entry(&mut self, path: &str, value: &Value) -> ResourceConfiguration {
        let entry = self.object(path, value, &["resources", "providers"]);
        let (at, providers_at) = (child_path(path, "resources"), child_path(path, "providers"));
        let mut resources = Vec::new();
        for (j, value) in (0..).zip(self.array(&at, entry.get("resources"))) {
            let field = format!("{at}[{j}]");
            match value.as_str() {
                Some(text) => resources.extend(self.resource(text, field)),
                None => self.fail(FieldError::invalid(field, value, "must be a string")),
            }
        }
        self.check_overlap(&at, &resources);
        let mut keys = Vec::new();
        for (j, value) in (0..).zip(self.array(&providers_at, entry.get("providers"))) {
            keys.extend(self.provider(&format!("{providers_at}[{j}]"), value));
        }
        ResourceConfiguration { resources, keys }
    }

    fn resource(&mut self, text: &str, field: String) -> Option<GroupResourcePattern> {
        let parsed = GroupResourcePattern::parse(text, field);
        let wrong = if text.to_lowercase() != text {
            "resource name should not contain capital letters"
        } else if text == "*" {
            "use '*.' to encrypt all the resources from core API group or *.* to encrypt all \
             resources"
        } else if NON_RESOURCES.contains(&text) {
            "resources which do not have REST API/s cannot be encrypted"
        } else if parsed.group == "events.k8s.io" {
            "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use \
             'events' instead in the config file"
        } else if parsed.group == "extensions" {
            "'extensions' group has been removed and cannot be used for encryption"
        } else if parsed.group == "*" && parsed.resource != "*" {
            "encrypting the same resource across groups is not supported"
        } else {
            return Some(parsed);
        };
        self.fail(FieldError::invalid(parsed.field, &json!(text), wrong));
        None
    }

    fn check_overlap(&mut self, path: &str, all: &[GroupResourcePattern]) {
        let same =
            |a: &GroupResourcePattern, b: &GroupResourcePattern| a.matches(&b.resource, &b.group);
        let pairs = || {
            let others = |i| all[i + 1..].iter();
            all.iter()
                .enumerate()
                .flat_map(move |(i, a)| others(i).map(move |b| (a, b)))
        };
        let texts = json!(
            all.iter()
                .map(GroupResourcePattern::text)
                .collect::<Vec<_>>()
        );
        if pairs().any(|(a, b)| same(a, b)) {
            let reason = "the same resource cannot be specified multiple times";
            self.fail(FieldError::invalid(path, &texts, reason));
        }
        let masks = |a: &GroupResourcePattern, b: &GroupResourcePattern| {
            !same(a, b) && (a.matches("*", "*") || a.matches("*", &b.group))
        };
        if pairs().any(|(a, b)| masks(a, b) || masks(b, a)) {
            let reason = "using overlapping resources such as 'secrets' and '*.' in the same resource \
                       list is not allowed as they will be masked";
            self.fail(FieldError::invalid(path, &texts, reason));
        }
    }

    fn provider(&mut self, path: &str, value: &Value) -> Vec<EncryptionProviderKey> {
        let names = [&SUPPORTED_PROVIDERS[..], &UNSUPPORTED_PROVIDERS].concat();
        let provider = self.object(path, value, &names);
        let mut listed = names.iter().filter_map(|name| {
            let value = provider.get(*name)?;
            Some((*name, value))
        });
        let (first, second) = (listed.next(), listed.next());
        let Some((name, value)) = first else {
            let reason = "provider does not contain any of the expected providers: aesgcm, secretbox, \
                       identity";
            self.fail(FieldError::required(path, reason));
            return Vec::new();
        };
        if second.is_some() {
            let reason = "more than one provider specified in a single element, should split into \
                       different list elements";
            self.fail(FieldError::forbidden(path, reason));
            return Vec::new();
        }
        let path = child_path(path, name);
        match name {
            "aesgcm" => self.keys(
                &path,
                value,
                PrefixTransformer::AES_GCM_KEY_BYTES,
                |name, secret| EncryptionProviderKey::AesGcm { name, secret },
            ),
            "secretbox" => self.keys(
                &path,
                value,
                PrefixTransformer::SECRETBOX_KEY_BYTES,
                |name, secret| EncryptionProviderKey::Secretbox { name, secret },
            ),
            "identity" => {
                if !value.is_null() {
                    self.object(&path, value, &[]);
                }
                vec![EncryptionProviderKey::Identity]
            }
            other => {
                self.fail(FieldError::not_supported(
                    path,
                    &json!(other),
                    &SUPPORTED_PROVIDERS,
                ));
                Vec::new()
            }
        }
    }

    fn keys(
        &mut self,
        path: &str,
        value: &Value,
        lengths: &[usize],
        make: impl Fn(String, Vec<u8>) -> EncryptionProviderKey,
    ) -> Vec<EncryptionProviderKey> {
        let provider = self.object(path, value, &["keys"]);
        let path = child_path(path, "keys");
        let mut keys = Vec::new();
        for (k, value) in (0..).zip(self.array(&path, provider.get("keys"))) {
            keys.extend(self.key(&format!("{path}[{k}]"), value, lengths, &make));
        }
        keys
    }

    fn key(
        &mut self,
        path: &str,
        value: &Value,
        lengths: &[usize],
        make: impl Fn(String, Vec<u8>) -> EncryptionProviderKey,
    ) -> Option<EncryptionProviderKey> {
        let key = self.object(path, value, &["name", "secret"]);
        let text = |field: &str| {
            key.get(field)
                .and_then(Value::as_str)
                .filter(|t| !t.is_empty())
        };
        let name = text("name");
        if name.is_none() {
            let reason = "name is a mandatory field for a key";
            self.fail(FieldError::required(child_path(path, "name"), reason));
        }
        let at = child_path(path, "secret");
        let Some(secret) = text("secret") else {
            let reason = "secret is a mandatory field for a key";
            self.fail(FieldError::required(at, reason));
            return None;
        };
        let redacted = json!("REDACTED");
        let Ok(secret) = BASE64_STANDARD.decode(secret) else {
            self.fail(FieldError::invalid(
                at,
                &redacted,
                "secrets must be base64 encoded",
            ));
            return None;
        };
        if !lengths.contains(&secret.len()) {
            let lengths: Vec<String> = lengths.iter().map(usize::to_string).collect();
            let reason = format!(
                "secret is not of the expected length, got {}, expected one of [{}]",
                secret.len(),
                lengths.join(" ")
            );
            self.fail(FieldError::invalid(at, &redacted, reason));
            return None;
        }
        Some(make(name?.to_owned(), secret))
    }
}

fn child_path(path: &str, field: &str) -> String {
    if path.is_empty() {
        field.to_owned()
    } else {
        format!("{path}.{field}")
    }
}

/// The JSON type of a value, for errors that must not show the value.
fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
