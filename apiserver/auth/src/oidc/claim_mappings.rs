//! Maps the claims of a token to a user, by claim names or by CEL expressions, and decides which
//! tokens and users are accepted (KEP-3331; `apiserver/pkg/authentication/cel` of Kubernetes).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, LazyLock};

use kubernetes_cel::{Environment, OutputType, Program};
use machinery::UserInfo;
use serde::Deserialize;
use serde_json::{Value, json};

static CLAIMS: LazyLock<Environment> = LazyLock::new(|| Environment::new().with_any("claims"));
static USER: LazyLock<Environment> = LazyLock::new(|| {
    let list = json!({"type": "array", "items": {"type": "string"}});
    let schema = json!({"type": "object", "properties": {
        "username": {"type": "string"}, "uid": {"type": "string"}, "groups": list,
        "extra": {"type": "object", "additionalProperties": list}}});
    Environment::new().with_unescaped_schema("user", &schema)
});

const EMAIL_UNVERIFIED: &str = "claims.email_verified must be used in claimMappings.username.expression or claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is used in claimMappings.username.expression";
const NO_TEXTS: &str = "expression must return a string or a list of strings";

/// A compiled expression with its text.
#[derive(Clone)]
pub struct CelExpression {
    text: String,
    program: Arc<Program>,
}

impl fmt::Debug for CelExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

impl PartialEq for CelExpression {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for CelExpression {}

impl CelExpression {
    /// The error begins with the field.
    fn compile(
        text: &str,
        field: &str,
        environment: &Environment,
        output: OutputType,
    ) -> Result<Self, String> {
        let invalid = |message: &str| format!("{field}: Invalid value: {text:?}: {message}");
        let program = Program::compile(text, environment)
            .map_err(|message| invalid(&format!("compilation failed: {message}")))?;
        if !program.has_output(output) {
            return Err(invalid("must evaluate to bool"));
        }
        Ok(Self {
            text: text.to_owned(),
            program: Arc::new(program),
        })
    }

    fn of_claims(text: &str, field: &str) -> Result<Self, String> {
        Self::compile(text, field, &CLAIMS, OutputType::Any)
    }

    fn evaluate(&self, environment: &Environment, value: &Value) -> Result<Value, String> {
        let evaluated = self.program.evaluate_json(environment, &[Some(value)]);
        evaluated
            .result
            .map_err(|message| format!("expression '{}' resulted in error: {message}", self.text))
    }

    pub(super) fn text_of(&self, claims: &Value) -> Result<String, String> {
        match self.evaluate(&CLAIMS, claims)? {
            Value::String(text) => Ok(text),
            _ => Err("the claim expression must return a string".into()),
        }
    }

    /// The texts of a text or of a list; empty ones are left out.
    pub(super) fn texts_of(&self, claims: &Value) -> Result<Vec<String>, String> {
        let values = match self.evaluate(&CLAIMS, claims)? {
            Value::Null => return Ok(Vec::new()),
            text @ Value::String(_) => vec![text],
            Value::Array(values) => values,
            _ => return Err(NO_TEXTS.into()),
        };
        let mut texts = Vec::new();
        for value in values {
            match value {
                Value::String(text) if text.is_empty() => {}
                Value::String(text) => texts.push(text),
                _ => return Err(NO_TEXTS.into()),
            }
        }
        Ok(texts)
    }

    fn selects_claim(&self, claim: &str) -> bool {
        self.program.selects(&CLAIMS, "claims", claim)
    }
}

/// A claim, and what is put before its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimMapping {
    pub claim: String,
    pub prefix: String,
}

/// Where a part of the user comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimSource {
    Claim(ClaimMapping),
    Expression(CelExpression),
}

/// An expression that must be true, and why a token is refused otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ValidationRule {
    expression: CelExpression,
    message: String,
}

impl ValidationRule {
    fn check(&self, environment: &Environment, value: &Value) -> Result<(), String> {
        match self.expression.evaluate(environment, value)? {
            Value::Bool(true) => Ok(()),
            _ if self.message.is_empty() => Err(format!(
                "validation expression '{}' failed",
                self.expression.text
            )),
            _ => Err(format!(
                "validation expression '{}' failed: {}",
                self.expression.text, self.message
            )),
        }
    }
}

/// The rules for the tokens of one issuer, as expressions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenRules {
    /// Keys of the user's extra, and their values.
    pub(super) extra: Vec<(String, CelExpression)>,
    claim_rules: Vec<ValidationRule>,
    user_rules: Vec<ValidationRule>,
}

impl TokenRules {
    pub(super) fn check_claims(&self, claims: &Value) -> Result<(), String> {
        let mut rules = self.claim_rules.iter();
        rules.try_for_each(|rule| rule.check(&CLAIMS, claims))
    }

    pub(super) fn check_user(&self, user: &UserInfo) -> Result<(), String> {
        if self.user_rules.is_empty() {
            return Ok(());
        }
        let user = json!({"username": user.name, "uid": user.uid, "groups": user.groups,
            "extra": user.extra});
        let mut rules = self.user_rules.iter();
        rules.try_for_each(|rule| rule.check(&USER, &user))
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ClaimMappingsEntry {
    username: ClaimMappingEntry,
    groups: Option<ClaimMappingEntry>,
    uid: Option<ClaimMappingEntry>,
    #[serde(default)]
    extra: Vec<ExtraMappingEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ClaimMappingEntry {
    claim: Option<String>,
    prefix: Option<String>,
    expression: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ExtraMappingEntry {
    #[serde(default)]
    key: String,
    #[serde(default)]
    value_expression: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct ClaimValidationRuleEntry {
    claim: String,
    required_value: String,
    expression: String,
    message: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct UserValidationRuleEntry {
    expression: String,
    message: String,
}

/// The mappings and rules of one issuer, validated.
pub(super) struct ValidatedMappings {
    pub(super) username: ClaimSource,
    pub(super) groups: Option<ClaimSource>,
    pub(super) uid: Option<ClaimSource>,
    pub(super) required_claims: BTreeMap<String, String>,
    pub(super) rules: TokenRules,
}

/// Validates the entries of one issuer. An error begins with the field.
pub(super) fn validate(
    mappings: ClaimMappingsEntry,
    claim_rules: Vec<ClaimValidationRuleEntry>,
    user_rules: Vec<UserValidationRuleEntry>,
) -> Result<ValidatedMappings, String> {
    let (required_claims, claim_rules) = validate_claim_rules(claim_rules)?;
    let optional = |entry: Option<ClaimMappingEntry>, field: &str, prefixed| match entry {
        Some(entry) => entry.source(field, prefixed),
        None => Ok(None),
    };
    let field = "claimMappings.username";
    let username = mappings.username.source(field, true)?;
    let username = username
        .ok_or_else(|| format!("{field}: Required value: claim or expression is required"))?;
    let rules = TokenRules {
        extra: validate_extra(mappings.extra)?,
        claim_rules,
        user_rules: validate_user_rules(user_rules)?,
    };
    check_email(&username, &rules)?;
    Ok(ValidatedMappings {
        username,
        groups: optional(mappings.groups, "claimMappings.groups", true)?,
        uid: optional(mappings.uid, "claimMappings.uid", false)?,
        required_claims,
        rules,
    })
}

/// An address names a user only if the issuer says that it is verified.
fn check_email(username: &ClaimSource, rules: &TokenRules) -> Result<(), String> {
    let ClaimSource::Expression(expression) = username else {
        return Ok(());
    };
    let claim_rules = rules.claim_rules.iter().map(|rule| &rule.expression);
    let extra = rules.extra.iter().map(|(_, expression)| expression);
    let mut all = claim_rules.chain(extra).chain([expression]);
    if expression.selects_claim("email") && !all.any(|e| e.selects_claim("email_verified")) {
        return Err(format!(
            "claimMappings.username.expression: Invalid value: {:?}: {EMAIL_UNVERIFIED}",
            expression.text
        ));
    }
    Ok(())
}

impl ClaimMappingEntry {
    fn source(self, field: &str, prefixed: bool) -> Result<Option<ClaimSource>, String> {
        let claim = self.claim.filter(|claim| !claim.is_empty());
        let expression = self.expression.filter(|text| !text.is_empty());
        match (claim, expression) {
            (Some(_), Some(_)) => Err(format!(
                "{field}: Invalid value: \"\": claim and expression can't both be set"
            )),
            (None, None) if self.prefix.is_some() => Err(format!("{field}.claim: Required value")),
            (None, None) => Ok(None),
            (None, Some(_)) if self.prefix.is_some() => Err(format!(
                "{field}.prefix: Invalid value: {:?}: may not be specified when expression is set",
                self.prefix.unwrap_or_default()
            )),
            (None, Some(text)) => {
                let expression = CelExpression::of_claims(&text, &format!("{field}.expression"))?;
                Ok(Some(ClaimSource::Expression(expression)))
            }
            (Some(_), None) if prefixed && self.prefix.is_none() => Err(format!(
                "{field}.prefix: Required value: prefix is required when claim is set. It can be set to an empty string to disable prefixing"
            )),
            (Some(_), None) if !prefixed && self.prefix.is_some() => {
                Err(format!("{field}.prefix: not supported for this claim"))
            }
            (Some(claim), None) => Ok(Some(ClaimSource::Claim(ClaimMapping {
                claim,
                prefix: self.prefix.unwrap_or_default(),
            }))),
        }
    }
}

fn validate_extra(entries: Vec<ExtraMappingEntry>) -> Result<Vec<(String, CelExpression)>, String> {
    let mut extra: Vec<(String, CelExpression)> = Vec::new();
    for (i, entry) in entries.into_iter().enumerate() {
        let field = format!("claimMappings.extra[{i}]");
        let key = entry.key;
        let invalid = |message: &str| format!("{field}.key: Invalid value: {key:?}: {message}");
        if key.is_empty() {
            return Err(format!("{field}.key: Required value"));
        }
        let domain = match key.split_once('/') {
            Some((domain, path)) if !domain.is_empty() && !path.is_empty() => domain,
            _ => {
                return Err(invalid(
                    "must be a domain-prefixed path (such as \"acme.io/foo\")",
                ));
            }
        };
        if key != key.to_lowercase() {
            return Err(invalid("must be lowercase"));
        }
        if machinery::names::validate_dns1123_subdomain(domain).is_err() {
            return Err(invalid(
                "must be a domain-prefixed path (such as \"acme.io/foo\")",
            ));
        }
        let reserved = |zone: &str| domain == zone || domain.ends_with(&format!(".{zone}"));
        if reserved("k8s.io") || reserved("kubernetes.io") {
            return Err(invalid(
                "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use",
            ));
        }
        if extra.iter().any(|(existing, _)| *existing == key) {
            return Err(format!("{field}.key: Duplicate value: {key:?}"));
        }
        let field = format!("{field}.valueExpression");
        if entry.value_expression.is_empty() {
            return Err(format!("{field}: Required value"));
        }
        let expression = CelExpression::of_claims(&entry.value_expression, &field)?;
        extra.push((key, expression));
    }
    Ok(extra)
}

fn validate_claim_rules(
    entries: Vec<ClaimValidationRuleEntry>,
) -> Result<(BTreeMap<String, String>, Vec<ValidationRule>), String> {
    let (mut required, mut rules) = (BTreeMap::new(), Vec::new());
    let mut distinct = BTreeSet::new();
    for (i, entry) in entries.into_iter().enumerate() {
        let field = format!("claimValidationRules[{i}]");
        match (entry.claim.is_empty(), entry.expression.is_empty()) {
            (false, false) => {
                return Err(format!(
                    "{field}: Invalid value: {:?}: claim and expression can't both be set",
                    entry.claim
                ));
            }
            (true, true) => {
                return Err(format!(
                    "{field}: Required value: claim or expression is required"
                ));
            }
            (false, true) => {
                if !entry.message.is_empty() {
                    return Err(format!(
                        "{field}.message: Invalid value: {:?}: may not be specified when claim is set",
                        entry.message
                    ));
                }
                let claim = entry.claim;
                if required.contains_key(&claim) {
                    return Err(format!("{field}.claim: Duplicate value: {claim:?}"));
                }
                required.insert(claim, entry.required_value);
            }
            (true, false) => {
                if !entry.required_value.is_empty() {
                    return Err(format!(
                        "{field}.requiredValue: Invalid value: {:?}: may not be specified when expression is set",
                        entry.required_value
                    ));
                }
                rules.push(rule(
                    entry.expression,
                    entry.message,
                    &field,
                    &CLAIMS,
                    &mut distinct,
                )?);
            }
        }
    }
    Ok((required, rules))
}

fn validate_user_rules(
    entries: Vec<UserValidationRuleEntry>,
) -> Result<Vec<ValidationRule>, String> {
    let mut distinct = BTreeSet::new();
    let mut rules = Vec::new();
    for (i, entry) in entries.into_iter().enumerate() {
        let field = format!("userValidationRules[{i}]");
        if entry.expression.is_empty() {
            return Err(format!("{field}.expression: Required value"));
        }
        rules.push(rule(
            entry.expression,
            entry.message,
            &field,
            &USER,
            &mut distinct,
        )?);
    }
    Ok(rules)
}

fn rule(
    text: String,
    message: String,
    field: &str,
    environment: &Environment,
    distinct: &mut BTreeSet<String>,
) -> Result<ValidationRule, String> {
    let field = format!("{field}.expression");
    let expression = CelExpression::compile(&text, &field, environment, OutputType::Bool)?;
    if !distinct.insert(text.clone()) {
        return Err(format!("{field}: Duplicate value: {text:?}"));
    }
    Ok(ValidationRule {
        expression,
        message,
    })
}
