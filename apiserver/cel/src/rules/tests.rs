//! Rules of schemas: what is refused when they are written, and what they say of objects.

use machinery::FieldError;
use machinery::go_pattern::PatternBudget;
use serde_json::{Value as Json, json};

use super::{RuleValidator, SchemaRules, validate_schema_rules};

fn refusals(schema: &Json) -> Vec<String> {
    let mut errors = Vec::new();
    let rules = SchemaRules {
        path: "s",
        schema,
        stored: false,
        patterns: &PatternBudget::default(),
    };
    validate_schema_rules(rules, &mut errors);
    errors.iter().map(text).collect()
}

fn text(error: &FieldError) -> String {
    format!("{}: {}", error.field, error.message)
}

/// A schema with one field and a rule about it.
fn with_rule(field: &Json, rule: &Json) -> Json {
    let mut field = field.clone();
    field["x-kubernetes-validations"] = json!([rule]);
    json!({"type": "object", "properties": {"f": field}})
}

#[test]
fn wrong_rules_are_refused() {
    let number = json!({"type": "integer"});
    let path = "s.properties[f].x-kubernetes-validations[0]";
    for (rule, refusal) in [
        (json!({"rule": "self > 0"}), None),
        (
            json!({"rule": " "}),
            Some("rule: Required value: rule is not specified"),
        ),
        (
            json!({"rule": "self > 0", "message": " "}),
            Some("message: Invalid value: \" \": must be non-empty if specified"),
        ),
        (
            json!({"rule": "self > 0", "message": "a\nb"}),
            Some("message: Invalid value: \"a\\nb\": must not contain line breaks"),
        ),
        (
            json!({"rule": "self > 0 &&\nself < 9"}),
            Some("message: Required value: message must be specified if rule contains line breaks"),
        ),
        (
            json!({"rule": "self > 0", "reason": "Odd"}),
            Some(
                "reason: Unsupported value: \"Odd\": supported values: \"FieldValueDuplicate\", \"FieldValueForbidden\", \"FieldValueInvalid\", \"FieldValueRequired\"",
            ),
        ),
        (
            json!({"rule": "self > 0", "fieldPath": ".x"}),
            Some("fieldPath: Invalid value: \".x\": must be a valid path"),
        ),
        (
            json!({"rule": "self + 1"}),
            Some(
                "rule: Invalid value: {\"Rule\":\"self + 1\",\"Message\":\"\",\"MessageExpression\":\"\",\"Reason\":null,\"FieldPath\":\"\",\"OptionalOldSelf\":null}: cel expression must evaluate to a bool",
            ),
        ),
        (
            json!({"rule": "self.x"}),
            Some(
                "rule: Invalid value: {\"Rule\":\"self.x\",\"Message\":\"\",\"MessageExpression\":\"\",\"Reason\":null,\"FieldPath\":\"\",\"OptionalOldSelf\":null}: compilation failed: ERROR: <input>:1:5: type 'int' does not support field selection\n | self.x\n | ....^",
            ),
        ),
        (
            json!({"rule": "self > 0", "messageExpression": "1"}),
            Some(
                "messageExpression: Invalid value: {\"Rule\":\"self > 0\",\"Message\":\"\",\"MessageExpression\":\"1\",\"Reason\":null,\"FieldPath\":\"\",\"OptionalOldSelf\":null}: messageExpression must evaluate to a string",
            ),
        ),
        (
            json!({"rule": "self > 0", "optionalOldSelf": true}),
            Some(
                "optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule",
            ),
        ),
        (
            json!({"rule": "self > oldSelf.orValue(0)", "optionalOldSelf": true}),
            None,
        ),
        (json!({"rule": "self >= oldSelf"}), None),
    ] {
        let expected: Vec<String> = refusal.iter().map(|r| format!("{path}.{r}")).collect();
        assert_eq!(refusals(&with_rule(&number, &rule)), expected, "{rule}");
    }
}

/// The factors are those that kube-apiserver prints for these schemas.
#[test]
fn expensive_rules_are_refused() {
    let hint = "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)";
    let rule_at = "s.properties[f].x-kubernetes-validations[0].rule";
    let text = json!({"type": "string"});
    let bounded = json!({"type": "string", "maxLength": 64});
    let list = |max: Option<u64>, items: &Json| match max {
        None => json!({"type": "array", "items": items}),
        Some(max) => json!({"type": "array", "maxItems": max, "items": items}),
    };
    for (field, rule, accepted) in [
        (text.clone(), "self.startsWith('a')", true),
        (text.clone(), "self.contains('abc')", true),
        (text.clone(), "self.matches('^[a-z]+$')", true),
        (list(None, &text), "self.all(x, x == 'a')", true),
        (list(None, &text), "self.all(x, x.contains('a'))", false),
        (
            list(Some(10), &bounded),
            "self.all(x, self.all(y, x == y))",
            true,
        ),
        (
            list(None, &bounded),
            "self.all(x, self.all(y, x == y))",
            false,
        ),
        (
            list(Some(1000), &bounded),
            "self.all(x, self.exists_one(y, x == y))",
            false,
        ),
        (
            list(Some(16), &bounded),
            "self.all(x, self.exists_one(y, x == y))",
            true,
        ),
    ] {
        let errors = refusals(&with_rule(&field, &json!({"rule": rule})));
        let budget =
            format!("{rule_at}: Forbidden: estimated rule cost exceeds budget by factor of");
        assert_eq!(errors.is_empty(), accepted, "{field} {rule}: {errors:?}");
        assert!(
            accepted || errors[0].starts_with(&budget) && errors[0].ends_with(hint),
            "{errors:?}"
        );
    }
    // Many rules that are each cheap enough are too many together.
    let rules: Vec<Json> = (0..20)
        .map(|_| json!({"rule": "self.contains('abcdefghijabcdefghijabcdefghij')"}))
        .collect();
    let field =
        json!({"type": "string", "maxLength": 5_000_000, "x-kubernetes-validations": rules});
    let errors = refusals(&json!({"type": "object", "properties": {"f": field}}));
    let total = "s: Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by factor of";
    assert!(errors.iter().any(|e| e.starts_with(total)), "{errors:?}");
    assert_eq!(
        errors
            .iter()
            .filter(|e| e.contains("contributed to"))
            .count(),
        4
    );
}

#[test]
fn transition_rules_need_matching_old_values() {
    let item = json!({"type": "object", "properties": {"k": {"type": "string"}},
        "x-kubernetes-validations": [{"rule": "self.k == oldSelf.k"}]});
    let atomic = json!({"type": "object", "properties": {"l": {"type": "array", "maxItems": 5, "items": item}}});
    assert_eq!(
        refusals(&atomic),
        [
            "s.properties[l].items.x-kubernetes-validations[0].rule: Invalid value: \"self.k == oldSelf.k\": oldSelf cannot be used on the uncorrelatable portion of the schema within s.properties[l]"
        ],
    );
    let mut keyed = atomic;
    keyed["properties"]["l"]["x-kubernetes-list-type"] = json!("map");
    keyed["properties"]["l"]["x-kubernetes-list-map-keys"] = json!(["k"]);
    assert_eq!(refusals(&keyed), [""; 0]);
}

fn schema() -> Json {
    json!({"type": "object", "x-kubernetes-validations": [
        {"rule": "self.metadata.name != 'forbidden'", "message": "name is forbidden"},
    ], "properties": {
        "spec": {"type": "object", "x-kubernetes-validations": [
            {"rule": "self.min <= self.max", "messageExpression": "'min %d is above max %d'.format([self.min, self.max])", "fieldPath": ".min"},
            {"rule": "!has(self.mode) || self.mode != 'none'", "reason": "FieldValueForbidden", "message": "mode none"},
        ], "properties": {
            "min": {"type": "integer"}, "max": {"type": "integer"}, "mode": {"type": "string"},
            "fixed": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "fixed is immutable"}]},
            "first": {"type": "integer", "x-kubernetes-validations": [
                {"rule": "oldSelf.hasValue() || self == 1", "optionalOldSelf": true, "message": "must begin at 1"}]},
            "tags": {"type": "array", "items": {"type": "string", "x-kubernetes-validations": [{"rule": "self.size() < 4"}]}},
            "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "properties": {"name": {"type": "string"}, "port": {"type": "integer"}},
                    "x-kubernetes-validations": [{"rule": "self.port >= oldSelf.port", "message": "ports grow"}]}},
            "labels": {"type": "object", "additionalProperties": {"type": "string", "x-kubernetes-validations": [{"rule": "self != 'x'", "message": "not x"}]}},
            "either": {"type": "string", "allOf": [{"x-kubernetes-validations": [{"rule": "self.startsWith('a')", "message": "begins with a"}]}]},
        }},
    }})
}

fn object(spec: Json) -> Json {
    json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "n"}, "spec": spec})
}

#[test]
fn rules_are_evaluated_for_objects() {
    let validator = RuleValidator::compile(&schema()).unwrap();
    let check = |new: &Json, old: Option<&Json>, errors: &[&str]| {
        let outcome = validator.validate(new, old);
        let actual: Vec<String> = outcome.errors.iter().map(text).collect();
        assert_eq!(actual, errors, "{new}");
    };
    let spec = json!({"min": 1, "max": 2});
    check(&object(spec.clone()), None, &[]);
    check(
        &object(json!({"min": 3, "max": 2})),
        None,
        &["spec.min: Invalid value: min 3 is above max 2"],
    );
    check(
        &object(json!({"min": 1, "max": 2, "mode": "none"})),
        None,
        &["spec: Forbidden: mode none"],
    );
    check(
        &object(json!({"max": 2})),
        None,
        &[
            "spec: Invalid value: \"object\": no such key: min evaluating rule: self.min <= self.max",
        ],
    );
    check(
        &object(json!({"min": 1, "max": 2, "tags": ["abc", "abcd"]})),
        None,
        &["spec.tags[1]: Invalid value: \"abcd\": failed rule: self.size() < 4"],
    );
    check(
        &object(json!({"min": 1, "max": 2, "labels": {"a": "x"}})),
        None,
        &["spec.labels[a]: Invalid value: \"x\": not x"],
    );
    check(
        &object(json!({"min": 1, "max": 2, "either": "b"})),
        None,
        &["spec.either: Invalid value: \"b\": begins with a"],
    );
    check(
        &object(json!({"min": 1, "max": 2, "first": 2})),
        None,
        &["spec.first: Invalid value: 2: must begin at 1"],
    );
    let mut with_forbidden_name = object(spec);
    with_forbidden_name["metadata"]["name"] = json!("forbidden");
    check(
        &with_forbidden_name,
        None,
        &["<nil>: Invalid value: name is forbidden"],
    );
    let old =
        object(json!({"min": 1, "max": 2, "fixed": "a", "ports": [{"name": "x", "port": 5}]}));
    let new = object(
        json!({"min": 1, "max": 2, "fixed": "b", "ports": [{"name": "y", "port": 1}, {"name": "x", "port": 4}]}),
    );
    check(
        &new,
        Some(&old),
        &[
            "spec.fixed: Invalid value: \"b\": fixed is immutable",
            "spec.ports[1]: Invalid value: ports grow",
        ],
    );
    check(&new, None, &[]);
}

#[test]
fn unchanged_values_are_tolerated() {
    let validator = RuleValidator::compile(&schema()).unwrap();
    let old = object(json!({"min": 1, "max": 2, "labels": {"a": "x", "b": "y"}}));
    let mut new = old.clone();
    new["spec"]["max"] = json!(3);
    let outcome = validator.validate(&new, Some(&old));
    assert_eq!(outcome.errors, []);
    assert_eq!(
        outcome.warnings,
        ["spec.labels[a]: Invalid value: \"x\": not x"]
    );
    new["spec"]["labels"]["b"] = json!("x");
    let outcome = validator.validate(&new, Some(&old));
    let fields: Vec<&str> = outcome.errors.iter().map(|e| &*e.field).collect();
    assert_eq!(fields, ["spec.labels[b]"]);
}

#[test]
fn the_budget_of_an_object_ends_its_rules() {
    let rule = json!({"rule": "self.all(x, self.exists(y, y == x))"});
    let list =
        json!({"type": "array", "items": {"type": "integer"}, "x-kubernetes-validations": [rule]});
    let fields: Vec<String> = (0..20).map(|i| format!("f{i:02}")).collect();
    let properties: serde_json::Map<String, Json> =
        fields.iter().map(|f| (f.clone(), list.clone())).collect();
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}});
    let validator = RuleValidator::compile(&schema).unwrap();
    let items: Vec<u32> = (0..480).collect();
    let spec: serde_json::Map<String, Json> =
        fields.iter().map(|f| (f.clone(), json!(items))).collect();
    let outcome = validator.validate(&object(Json::Object(spec)), None);
    let last = outcome.errors.last().map(text).unwrap_or_default();
    assert!(last.ends_with("validation failed due to running out of cost budget, no further validation rules will be run"), "{last}");
    assert_eq!(outcome.errors.len(), 1);
}
