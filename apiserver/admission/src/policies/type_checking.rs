//! Checks the types of a ValidatingAdmissionPolicy's expressions against the kinds that its
//! rules name (`k8s.io/apiserver/pkg/admission/plugin/policy/validating/typechecking.go`). The
//! results are warnings in its status and change nothing in what it decides.

use std::collections::BTreeSet;

use kubernetes_cel::{
    AdmissionExpressions, AdmissionSchemas, DeclaredAdmissionVariables, OutputType,
};
use machinery::{Gvk, Gvr};
use serde_json::{Value, json};

use crate::unstructured::{get, has, index_path, items, text, texts};

/// The most kinds of a rule that are checked.
const MAX_CHECKED_KINDS: usize = 10;

/// The kinds that a server serves.
pub trait KindSchemas: Send + Sync {
    /// The kind of a resource.
    fn kind_of(&self, resource: &Gvr) -> Option<Gvk>;

    /// The structural schema of a kind.
    fn schema_of(&self, kind: &Gvk) -> Option<Value>;
}

/// The warnings for `status.typeChecking` of a policy.
pub fn type_check(policy: &Value, schemas: &dyn KindSchemas) -> Vec<Value> {
    let spec = get(policy, "/spec");
    let param_kind = get(spec, "/paramKind");
    let declared = DeclaredAdmissionVariables {
        params: has(spec, "/paramKind"),
        authorizer: true,
        patch_types: false,
    };
    let params = Gvk::from_api_version(text(param_kind, "/apiVersion"), text(param_kind, "/kind"));
    let params = declared.params.then(|| schemas.schema_of(&params));
    let params = params.flatten();
    let mut environments = Vec::new();
    for kind in checked_kinds(spec, schemas) {
        let Some(object) = schemas.schema_of(&kind) else {
            continue;
        };
        let mut expressions = AdmissionExpressions::typed(AdmissionSchemas {
            object: Some(&object),
            params: params.as_ref(),
        });
        for variable in items(spec, "/variables") {
            let (name, expression) = (text(variable, "/name"), text(variable, "/expression"));
            expressions.add_variable(name, expression, declared);
        }
        environments.push((kind, expressions));
    }
    let mut warnings = Vec::new();
    for (index, validation) in items(spec, "/validations").iter().enumerate() {
        for field in ["expression", "messageExpression"] {
            let expression = text(validation, &format!("/{field}"));
            if expression.is_empty() {
                continue;
            }
            let problems = environments.iter().filter_map(|(kind, expressions)| {
                let compiled = expressions.compile(expression, OutputType::Any, declared);
                let (group_version, message) = (group_version(kind), compiled.error()?);
                Some(format!("{group_version}, Kind={}: {message}\n", kind.kind))
            });
            let problems: Vec<String> = problems.collect();
            if !problems.is_empty() {
                let path = index_path("spec.validations", index);
                warnings.push(
                    json!({"fieldRef": format!("{path}.{field}"), "warning": problems.join("\n")}),
                );
            }
        }
    }
    warnings
}

/// As Go prints it: with a slash, also for the core group.
fn group_version(kind: &Gvk) -> String {
    format!("{}/{}", kind.group, kind.version)
}

/// The kinds that the rules name without wildcards, in order.
fn checked_kinds(spec: &Value, schemas: &dyn KindSchemas) -> BTreeSet<Gvk> {
    let mut kinds = BTreeSet::new();
    for rule in items(spec, "/matchConstraints/resourceRules") {
        let names = |field: &str| -> BTreeSet<&str> { texts(rule, field).collect() };
        let (groups, versions) = (names("/apiGroups"), names("/apiVersions"));
        if groups
            .iter()
            .chain(&versions)
            .any(|name| name.contains('*'))
        {
            continue;
        }
        let mut resources = names("/resources");
        resources.retain(|resource| !resource.contains(['*', '/']));
        let mut count = 0;
        for group in &groups {
            for version in &versions {
                for resource in &resources {
                    let kind = schemas.kind_of(&Gvr::new(*group, *version, *resource));
                    count += usize::from(kind.is_some());
                    kinds.extend(kind);
                    if count == MAX_CHECKED_KINDS {
                        return kinds;
                    }
                }
            }
        }
    }
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Serves `things` of two versions, of which one has the field `b`.
    struct ThingSchemas;

    impl KindSchemas for ThingSchemas {
        fn kind_of(&self, resource: &Gvr) -> Option<Gvk> {
            let served = &*resource.resource == "things" && resource.version.starts_with('v');
            served.then(|| Gvk::new(&*resource.group, &*resource.version, "Thing"))
        }

        fn schema_of(&self, kind: &Gvk) -> Option<Value> {
            let mut fields = json!({"a": {"type": "string"}});
            if &*kind.version == "v2" {
                fields["b"] = json!({"type": "integer"});
            }
            let spec = json!({"type": "object", "properties": fields});
            Some(json!({"type": "object", "properties": {"spec": spec}}))
        }
    }

    fn policy(rule: Value, validations: Value) -> Value {
        json!({"spec": {"matchConstraints": {"resourceRules": [rule]},
            "variables": [{"name": "b", "expression": "object.spec.b"}],
            "paramKind": {"apiVersion": "g.io/v1", "kind": "Thing"},
            "validations": validations}})
    }

    #[test]
    fn expressions_are_checked_for_every_kind_of_the_rules() {
        let rule = json!({"apiGroups": ["g.io"], "apiVersions": ["v2", "v1"], "resources": ["things", "things/status"]});
        let validations = json!([
            {"expression": "object.spec.a == 'x'", "messageExpression": "'a'"},
            {"expression": "oldObject.spec.b > 1", "messageExpression": "object.spec.missing"},
            {"expression": "params.spec.b == 1 || variables.b == 'dynamic'"},
            {"expression": "authorizer.path('/x').check('get').allowed()"}]);
        let warnings = type_check(&policy(rule, validations), &ThingSchemas);
        let refs: Vec<&Value> = warnings.iter().map(|w| &w["fieldRef"]).collect();
        assert_eq!(
            refs,
            [
                "spec.validations[1].expression",
                "spec.validations[1].messageExpression",
                "spec.validations[2].expression"
            ]
        );
        let warning = |index: usize| warnings[index]["warning"].as_str().unwrap();
        assert_eq!(
            warning(0),
            "g.io/v1, Kind=Thing: compilation failed: ERROR: <input>:1:15: undefined field 'b'\n | oldObject.spec.b > 1\n | ..............^\n"
        );
        let text = warning(1);
        assert!(
            text.starts_with("g.io/v1, Kind=Thing: compilation failed: "),
            "{text}"
        );
        assert!(
            text.contains("\n\ng.io/v2, Kind=Thing: compilation failed: "),
            "{text}"
        );
        assert!(warning(2).contains("undefined field 'b'"), "{}", warning(2));
    }

    #[test]
    fn wildcards_and_unknown_resources_are_not_checked() {
        for rule in [
            json!({"apiGroups": ["*"], "apiVersions": ["v1"], "resources": ["things"]}),
            json!({"apiGroups": ["g.io"], "apiVersions": ["*"], "resources": ["things"]}),
            json!({"apiGroups": ["g.io"], "apiVersions": ["v1"], "resources": ["*", "others"]}),
        ] {
            let validations = json!([{"expression": "object.spec.missing"}]);
            let warnings = type_check(&policy(rule.clone(), validations), &ThingSchemas);
            assert!(warnings.is_empty(), "{rule}");
        }
    }
}
