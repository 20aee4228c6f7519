//! Native rules of ServiceAccount and Secret: the tokens that members create are retained.

use std::collections::HashSet;

use serde_json::Value;

use crate::native::{Error, NativeRules, retain_field};

pub(crate) struct NativeServiceAccountRules;
pub(crate) struct NativeSecretRules;

const SERVICE_ACCOUNT_TOKEN_TYPE: &str = "kubernetes.io/service-account-token";

impl NativeRules for NativeServiceAccountRules {
    /// The secrets of the template, followed by those that the member added.
    fn retain(&self, desired: &mut Value, observed: &Value) -> Result<(), Error> {
        for field in ["secrets", "imagePullSecrets"] {
            let mut merged: Vec<Value> = Vec::new();
            let mut names = HashSet::new();
            for list in [&desired[field], &observed[field]] {
                for secret in list.as_array().into_iter().flatten() {
                    let name = secret["name"].as_str().unwrap_or_default();
                    if names.insert(name.to_owned()) {
                        merged.push(secret.clone());
                    }
                }
            }
            let merged = (!merged.is_empty()).then(|| Value::from(merged));
            retain_field(desired, field, merged.as_ref());
        }
        Ok(())
    }
}

impl NativeRules for NativeSecretRules {
    /// The data of a service account token belongs to the member.
    fn retain(&self, desired: &mut Value, observed: &Value) -> Result<(), Error> {
        if desired["type"] == SERVICE_ACCOUNT_TOKEN_TYPE
            && let Some(data) = observed.get("data").filter(|d| d.is_object())
        {
            retain_field(desired, "data", Some(data));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check_retain(rules: &dyn NativeRules, mut desired: Value, observed: Value, expected: Value) {
        rules.retain(&mut desired, &observed).unwrap();
        assert_eq!(desired, expected, "{observed}");
    }

    // proves: NAT-account
    #[test]
    fn secrets_are_merged_by_name() {
        check_retain(
            &NativeServiceAccountRules,
            json!({"secrets": [{"name": "a"}, {"name": "b"}]}),
            json!({"secrets": [{"name": "x-token"}, {"name": "a", "namespace": "n"}], "imagePullSecrets": [{"name": "p"}]}),
            json!({"secrets": [{"name": "a"}, {"name": "b"}, {"name": "x-token"}], "imagePullSecrets": [{"name": "p"}]}),
        );
        check_retain(
            &NativeServiceAccountRules,
            json!({"secrets": []}),
            json!({}),
            json!({}),
        );
    }

    // proves: NAT-token
    #[test]
    fn token_data_is_retained_and_other_data_is_not() {
        let token = |data: Value| json!({"type": SERVICE_ACCOUNT_TOKEN_TYPE, "data": data});
        let member_data = json!({"token": "x"});
        check_retain(
            &NativeSecretRules,
            token(Value::Null),
            token(member_data.clone()),
            token(member_data.clone()),
        );
        check_retain(
            &NativeSecretRules,
            token(Value::Null),
            json!({}),
            token(Value::Null),
        );
        let opaque = json!({"type": "Opaque", "data": {"k": "v"}});
        check_retain(
            &NativeSecretRules,
            opaque.clone(),
            json!({"data": member_data}),
            opaque,
        );
    }
}
