//! Admission policies, on a server of their own: they are cluster-scoped.

use std::time::{Duration, Instant};

use harness::raw_http::RawHttpResponse;
use serde_json::{Value, json};

use crate::api::test_server::ApiTestServer;

const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/ruled/configmaps";
/// How long a changed policy may take to act.
const TIMEOUT: Duration = Duration::from_secs(90);

struct PolicyTest {
    server: ApiTestServer,
}

impl PolicyTest {
    fn start() -> Self {
        let server = ApiTestServer::start();
        server.create_namespace("ruled");
        Self { server }
    }

    fn create(&self, resource: &str, body: &Value) -> RawHttpResponse {
        self.server.post(&format!("{ADMISSION}/{resource}"), body)
    }

    /// Creates a policy for ConfigMaps and its binding, both called `name`.
    fn put_in_force(&self, name: &str, spec: Value, binding: Value) {
        let policy = policy(name, spec);
        let created = self.create("validatingadmissionpolicies", &policy);
        assert_eq!(created.code, 201, "{}", created.text());
        let mut spec = json!({"policyName": name, "validationActions": ["Deny"]});
        merge(&mut spec, binding);
        let body = json!({"metadata": {"name": name}, "spec": spec});
        let created = self.create("validatingadmissionpolicybindings", &body);
        assert_eq!(created.code, 201, "{}", created.text());
    }

    /// Creates a ConfigMap in a dry run until the response fits.
    fn create_until(
        &self,
        map: &Value,
        matches: impl Fn(&RawHttpResponse) -> bool,
    ) -> RawHttpResponse {
        let path = format!("{MAPS}?dryRun=All");
        let start = Instant::now();
        loop {
            let reply = self.server.post(&path, map);
            if matches(&reply) {
                return reply;
            }
            assert!(start.elapsed() < TIMEOUT, "{} {}", reply.code, reply.text());
            harness::sleep_blocking(Duration::from_millis(20));
        }
    }

    fn denial_of(&self, map: &Value) -> Value {
        self.create_until(map, |reply| reply.code != 201).json()
    }
}

fn merge(into: &mut Value, changes: Value) {
    if let Value::Object(changes) = changes {
        for (key, value) in changes {
            into[key] = value;
        }
    }
}

fn policy(name: &str, changes: Value) -> Value {
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
        "resources": ["configmaps"]});
    let mut spec = json!({"matchConstraints": {"resourceRules": [rule],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ruled"}}}});
    merge(&mut spec, changes);
    json!({"metadata": {"name": name}, "spec": spec})
}

fn map(name: &str, data: Value) -> Value {
    json!({"metadata": {"name": name}, "data": data})
}

#[test]
fn a_policy_denies_what_violates_it() {
    let test = PolicyTest::start();
    test.put_in_force(
        "no-x",
        json!({
            "variables": [
                {"name": "data", "expression": "has(object.data) ? object.data : {}"},
                {"name": "bad", "expression": "'x' in variables.data"}],
            "validations": [
                {"expression": "!variables.bad", "messageExpression": "'x is ' + variables.data.x", "reason": "Forbidden"},
                {"expression": "!('y' in variables.data)", "message": "no y"}],
            "matchConditions": [{"name": "not-exempt", "expression": "object.metadata.name != 'exempt'"}]
        }),
        json!({}),
    );
    let denial = test.denial_of(&map("a", json!({"x": "1"})));
    let message = "configmaps \"a\" is forbidden: ValidatingAdmissionPolicy 'no-x' with binding 'no-x' denied request: x is 1";
    assert_eq!(denial["message"], message);
    assert_eq!(
        (&denial["code"], &denial["reason"]),
        (&json!(403), &json!("Forbidden"))
    );
    let cause = "ValidatingAdmissionPolicy 'no-x' with binding 'no-x' denied request: x is 1";
    assert_eq!(denial["details"]["causes"], json!([{"message": cause}]));
    let denial = test.denial_of(&map("a", json!({"y": "1"})));
    assert_eq!(
        (&denial["code"], &denial["reason"]),
        (&json!(422), &json!("Invalid"))
    );
    for allowed in [map("a", json!({})), map("exempt", json!({"x": "1"}))] {
        let reply = test.server.post(MAPS, &allowed);
        assert_eq!(reply.code, 201, "{}", reply.text());
    }
    let elsewhere = "/api/v1/namespaces/default/configmaps";
    let reply = test.server.post(elsewhere, &map("a", json!({"x": "1"})));
    assert_eq!(reply.code, 201, "{}", reply.text());
}

#[test]
fn violations_are_warnings_where_the_binding_says_so() {
    let test = PolicyTest::start();
    let validations = json!({"validations": [{"expression": "object.metadata.name == 'b'"}]});
    let actions = json!({"validationActions": ["Warn", "Audit"]});
    test.put_in_force("named-b", validations, actions);
    let reply = test.create_until(&map("a", json!({})), |reply| {
        !reply.header("warning").is_empty()
    });
    assert_eq!(reply.code, 201, "{}", reply.text());
    let warning = "Validation failed for ValidatingAdmissionPolicy 'named-b' with binding 'named-b': failed expression: object.metadata.name == 'b'";
    assert_eq!(reply.header("warning"), format!("299 - {warning:?}"));
    let metrics = test.server.get("/metrics").text();
    let name = "apiserver_validating_admission_policy_check";
    for action in ["warn", "audit"] {
        let labels = format!(
            "{{enforcement_action=\"{action}\",error_type=\"invalid_error\",policy=\"named-b\",policy_binding=\"named-b\"}}"
        );
        for series in ["total", "duration_seconds_count"] {
            let series = format!("{name}_{series}{labels} ");
            assert!(metrics.contains(&series), "no {series}");
        }
    }
}

#[test]
fn parameters_come_from_the_binding() {
    let test = PolicyTest::start();
    let limit = map("limit", json!({"max": "2"}));
    let created = test
        .server
        .post("/api/v1/namespaces/default/configmaps", &limit);
    assert_eq!(created.code, 201, "{}", created.text());
    let spec = || {
        json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "validations": [{"expression": "object.data.size() <= int(params.data.max)",
                         "messageExpression": "'at most ' + params.data.max"}]})
    };
    let reference = json!({"paramRef": {"name": "limit", "namespace": "default", "parameterNotFoundAction": "Deny"}});
    test.put_in_force("limited", spec(), reference);
    let big = map("a", json!({"a": "", "b": "", "c": ""}));
    // The server reads parameters from a cache, too, which has a new one soon.
    test.create_until(&big, |reply| {
        reply.code != 201 && reply.text().contains("denied request: at most 2")
    });
    let reply = test.server.post(MAPS, &map("a", json!({"a": ""})));
    assert_eq!(reply.code, 201, "{}", reply.text());
    let missing = json!({"paramRef": {"name": "missing", "namespace": "default", "parameterNotFoundAction": "Deny"}});
    test.put_in_force("missing", spec(), missing);
    let denial = test.denial_of(&map("b", json!({"a": ""})));
    let message = denial["message"].as_str().unwrap();
    let detail = "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction";
    assert!(message.ends_with(detail), "{message}");
}

#[test]
fn expressions_ask_the_authorizer() {
    let test = PolicyTest::start();
    let may_delete = "authorizer.group('').resource('secrets').namespace('ruled').check('delete')";
    test.put_in_force(
        "deleters",
        json!({"validations": [
            {"expression": format!("{may_delete}.allowed()"), "message": "delete"},
            {"expression": "!authorizer.serviceAccount('ruled', 'bot').path('/metrics').check('get').allowed()", "message": "path"},
            {"expression": "authorizer.requestResource.check('create').allowed() && object.metadata.name == 'b'", "message": "resource"},
        ]}),
        json!({}),
    );
    let denial = test.denial_of(&map("a", json!({})));
    let message = denial["message"].as_str().unwrap();
    assert!(message.ends_with("denied request: resource"), "{message}");
    let reply = test.server.post(MAPS, &map("b", json!({})));
    assert_eq!(reply.code, 201, "{}", reply.text());
}

#[test]
fn policies_are_validated() {
    let test = PolicyTest::start();
    let table = [
        (
            json!({}),
            "spec.validations: Required value: validations or auditAnnotations must contain at least one item",
        ),
        (
            json!({"validations": [{"expression": "object.x"}]}),
            "spec.validations[0].expression: Invalid value: \"object.x\": must evaluate to bool but got dyn",
        ),
        (
            json!({"validations": [{"expression": "request.__namespace__ == 'x'"}]}),
            "undefined field '__namespace__'",
        ),
        (
            json!({"validations": [{"expression": "params.x == 1"}]}),
            "undeclared reference to 'params'",
        ),
        (
            json!({"validations": [{"expression": "variables.x == 1"}]}),
            "undeclared reference to 'variables'",
        ),
        (
            json!({"validations": [{"expression": "true", "reason": "Maybe"}]}),
            "spec.validations[0].reason: Unsupported value: \"Maybe\": supported values: \"Forbidden\", \"Invalid\", \"RequestEntityTooLarge\"",
        ),
        (
            json!({"validations": [{"expression": "variables.y"}], "variables": [{"name": "x", "expression": "1"}]}),
            "undefined field 'y'",
        ),
        (
            json!({"validations": [{"expression": "true"}], "variables": [{"name": "in", "expression": "1"}]}),
            "spec.variables[0].name: Invalid value: \"in\": name is not a valid CEL identifier",
        ),
        (
            json!({"validations": [{"expression": "true"}], "matchConditions": [{"name": "a", "expression": "1"}]}),
            "spec.matchConditions[0].expression: Invalid value: \"1\": must evaluate to bool but got int",
        ),
    ];
    for (changes, expected) in table {
        let created = test.create("validatingadmissionpolicies", &policy("p", changes));
        let status = created.json();
        assert_eq!(created.code, 422, "{status}");
        let message = status["message"].as_str().unwrap();
        assert!(message.contains(expected), "{message}");
    }
    let valid = policy("p", json!({"validations": [{"expression": "true"}]}));
    let created = test.create("validatingadmissionpolicies", &valid).json();
    assert_eq!(created["metadata"]["generation"], 1);
    assert_eq!(created["spec"]["failurePolicy"], "Fail");
    assert_eq!(
        created["spec"]["matchConstraints"]["matchPolicy"],
        "Equivalent"
    );
    let binding = json!({"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny", "Warn"]}});
    let rejection = test
        .create("validatingadmissionpolicybindings", &binding)
        .json();
    assert_eq!(rejection["code"], 422, "{rejection}");
}

impl PolicyTest {
    /// The status of a policy once it observed a generation.
    fn status(&self, name: &str, generation: u64) -> Value {
        let path = format!("{ADMISSION}/validatingadmissionpolicies/{name}");
        let start = Instant::now();
        loop {
            let policy = self.server.get(&path).json();
            if policy["status"]["observedGeneration"] == generation {
                return policy["status"].clone();
            }
            assert!(start.elapsed() < TIMEOUT, "{policy}");
            harness::sleep_blocking(Duration::from_millis(20));
        }
    }
}

#[test]
fn the_status_of_a_policy_warns_of_types_that_do_not_fit() {
    let test = PolicyTest::start();
    let spec = json!({"validations": [
        {"expression": "object.data.size() > 0"},
        {"expression": "object.spec.x == 1", "messageExpression": "'a' + object.metadata.nothing"}]});
    let created = test.create("validatingadmissionpolicies", &policy("typed", spec));
    assert_eq!(created.code, 201, "{}", created.text());
    let status = test.status("typed", 1);
    let warnings = &status["typeChecking"]["expressionWarnings"];
    assert_eq!(warnings[0]["fieldRef"], "spec.validations[1].expression");
    assert_eq!(
        warnings[0]["warning"],
        "/v1, Kind=ConfigMap: compilation failed: ERROR: <input>:1:7: undefined field 'spec'\n | object.spec.x == 1\n | ......^\n"
    );
    assert_eq!(
        warnings[1]["fieldRef"],
        "spec.validations[1].messageExpression"
    );
    let expressions = json!([{"expression": "has(object.data)"}]);
    let patch = json!({"spec": {"validations": expressions}}).to_string();
    let path = format!("{ADMISSION}/validatingadmissionpolicies/typed");
    let request = test.server.request("PATCH", &path);
    let patched = request.body("application/merge-patch+json", patch).send();
    assert_eq!(patched.code, 200, "{}", patched.text());
    let status = test.status("typed", 2);
    assert_eq!(status["typeChecking"], json!({}));

    // Kinds of Karmada, and the types of parameters.
    let rule = json!({"apiGroups": ["policy.karmada.io"], "apiVersions": ["v1alpha1"],
        "operations": ["*"], "resources": ["propagationpolicies"]});
    let spec = json!({"matchConstraints": {"resourceRules": [rule]},
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "validations": [{"expression": "object.spec.placement.clusterAffinity.clusterNames.size() < 3"},
            {"expression": "params.data.x == object.spec.placement.nowhere"}]});
    let created = test.create("validatingadmissionpolicies", &policy("karmada", spec));
    assert_eq!(created.code, 201, "{}", created.text());
    let warnings = test.status("karmada", 1)["typeChecking"]["expressionWarnings"].clone();
    assert_eq!(warnings.as_array().map(Vec::len), Some(1), "{warnings}");
    let warning = warnings[0]["warning"].as_str().unwrap();
    let begin = "policy.karmada.io/v1alpha1, Kind=PropagationPolicy: compilation failed: ";
    assert!(warning.starts_with(begin), "{warning}");
    assert!(warning.contains("undefined field 'nowhere'"), "{warning}");
}

impl PolicyTest {
    /// Creates a MutatingAdmissionPolicy for ConfigMaps and its binding.
    fn mutate_with(&self, name: &str, reinvocation: &str, mutation: Value) {
        let spec = json!({"reinvocationPolicy": reinvocation, "mutations": [mutation]});
        let created = self.create("mutatingadmissionpolicies", &policy(name, spec));
        assert_eq!(created.code, 201, "{}", created.text());
        let body = json!({"metadata": {"name": name}, "spec": {"policyName": name}});
        let created = self.create("mutatingadmissionpolicybindings", &body);
        assert_eq!(created.code, 201, "{}", created.text());
    }
}

fn apply_configuration(expression: &str) -> Value {
    json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}})
}

fn json_patch(expression: &str) -> Value {
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
}

#[test]
fn policies_change_objects() {
    let test = PolicyTest::start();
    let label = "Object{metadata: Object.metadata{labels: {'by': request.userInfo.username}}}";
    test.mutate_with("label", "Never", apply_configuration(label));
    let count = "[JSONPatch{op: 'add', path: '/data', value: {'keys': string(has(object.data) ? object.data.size() : 0)}}]";
    test.mutate_with("count", "Never", json_patch(count));
    let created = test.create_until(&map("a", json!({"x": "1", "y": "2"})), |reply| {
        let created = reply.json();
        created["metadata"]["labels"].is_object() && created["data"]["keys"].is_string()
    });
    assert_eq!(created.code, 201, "{}", created.text());
    let created = created.json();
    assert_eq!(created["data"], json!({"keys": "2"}));
    assert_eq!(
        created["metadata"]["labels"],
        json!({"by": "kubernetes-admin"})
    );
}

#[test]
fn policies_run_again_after_others_changed_the_object() {
    let test = PolicyTest::start();
    let mirror = "Object{metadata: Object.metadata{annotations: {'seen': has(object.metadata.labels) ? object.metadata.labels.set : 'nothing'}}}";
    test.mutate_with("a-mirror", "IfNeeded", apply_configuration(mirror));
    test.mutate_with(
        "b-once",
        "Never",
        apply_configuration(&mirror.replace("seen", "once")),
    );
    let label = "Object{metadata: Object.metadata{labels: {'set': 'late'}}}";
    test.mutate_with("c-label", "Never", apply_configuration(label));
    let created = test.create_until(&map("a", json!({})), |reply| {
        let metadata = &reply.json()["metadata"];
        metadata["labels"]["set"] == "late" && !metadata["annotations"]["once"].is_null()
    });
    let annotations = &created.json()["metadata"]["annotations"];
    assert_eq!(annotations, &json!({"seen": "late", "once": "nothing"}));
}

#[test]
fn a_mutation_that_fails_denies_the_request() {
    let test = PolicyTest::start();
    let wrong = "Object{metadata: Object.metadata{labels: Object.wrong{x: 'y'}}}";
    test.mutate_with("wrong", "Never", apply_configuration(wrong));
    let denial = test.denial_of(&map("a", json!({})));
    let message = denial["message"].as_str().unwrap();
    let begin = "policy 'wrong' with binding 'wrong' denied request: type mismatch: unexpected type name \"Object.wrong\"";
    assert!(message.starts_with(begin), "{message}");
    assert_eq!(
        (&denial["code"], &denial["reason"]),
        (&json!(403), &json!("Invalid"))
    );
    let table = [
        (
            json!({"mutations": [apply_configuration("{'a': 'b'}")], "reinvocationPolicy": "Never"}),
            "spec.mutations[0].applyConfiguration.expression: Invalid value: \"{'a': 'b'}\": must evaluate to Object but got map(string, string)",
        ),
        (
            json!({"mutations": [json_patch("[JSONPatch{op: 1}]")], "reinvocationPolicy": "Never"}),
            "expected type of field 'op' is 'string' but provided type is 'int'",
        ),
        (
            json!({"mutations": [json_patch("[JSONPatch{op: 'add'}]")]}),
            "spec.reinvocationPolicy: Required value",
        ),
    ];
    for (spec, expected) in table {
        let rejection = test
            .create("mutatingadmissionpolicies", &policy("p", spec))
            .json();
        assert_eq!(rejection["code"], 422, "{rejection}");
        let message = rejection["message"].as_str().unwrap();
        assert!(message.contains(expected), "{message}");
    }
}
