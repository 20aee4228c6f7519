//! Tests of the library `kube`, function by function, and of what every call has in common.

use super::*;

/// Checks the value of each expression.
async fn check_values(rows: &[(&str, Value)]) {
    let engine = engine();
    for (expression, expected) in rows {
        let body = format!("local kube = require('kube') return {{result = {expression}}}");
        let actual = reflect_status(&engine, &body)
            .await
            .unwrap_or_else(|e| panic!("{expression}: {e}"));
        let actual = actual.unwrap_or_default().get("result").cloned();
        assert_eq!(actual.unwrap_or_default(), *expected, "{expression}");
    }
}

/// Checks the error of each expression.
async fn check_errors(rows: &[(&str, &str)]) {
    let engine = engine();
    for (expression, reason) in rows {
        let body = format!("local kube = require('kube') return {{{expression}}}");
        let error = reflect_status(&engine, &body).await.unwrap_err();
        assert!(error.contains(reason), "{expression}: {error}");
        assert!(error.starts_with("script:2: "), "{expression}: {error}");
    }
}

// proves: LUA-kube, LUA-line
#[tokio::test]
async fn quantities_are_added() {
    check_values(&[
        ("kube.resourceAdd()", json!("0")),
        ("kube.resourceAdd(nil)", json!("0")),
        ("kube.resourceAdd(nil, nil)", json!("0")),
        ("kube.resourceAdd('1')", json!("1")),
        ("kube.resourceAdd('100m', nil, '1')", json!("1100m")),
        ("kube.resourceAdd('1Gi', '512Mi')", json!("1536Mi")),
        ("kube.resourceAdd('0.5', '500m')", json!("1")),
        ("kube.resourceAdd('1', '-1')", json!("0")),
        ("kube.resourceAdd('1k', '24')", json!("1024")),
    ])
    .await;
    check_errors(&[
        ("kube.resourceAdd('many')", "many"),
        ("kube.resourceAdd('1', '')", "resourceAdd"),
        (
            "kube.resourceAdd({})",
            "bad argument #1 (string expected, got table",
        ),
        (
            "kube.resourceAdd('1', true)",
            "bad argument #2 (string expected, got boolean",
        ),
    ])
    .await;
}

// proves: LUA-kube
#[tokio::test]
async fn quantities_become_numbers() {
    check_values(&[
        ("kube.getResourceQuantity('250m')", json!(0.25)),
        ("kube.getResourceQuantity('1Ki')", json!(1024)),
        ("kube.getResourceQuantity('0')", json!(0)),
        (
            "kube.getResourceQuantity('1.5Gi')",
            json!(1_610_612_736_i64),
        ),
        ("kube.getResourceQuantity('2e3')", json!(2000)),
    ])
    .await;
    check_errors(&[
        ("kube.getResourceQuantity('-1')", "negative"),
        ("kube.getResourceQuantity('x')", "\"x\""),
        ("kube.getResourceQuantity()", "only accepts one argument"),
        (
            "kube.getResourceQuantity('1', '2')",
            "only accepts one argument",
        ),
    ])
    .await;
}

// proves: LUA-kube
#[tokio::test]
async fn accurate_pod_requirements() {
    let c = |resources: &str| format!("{{name = 'c', resources = {resources}}}");
    let pods = [
        (
            format!("{{containers = {{{}}}}}", c("{requests = {cpu = '1'}}")),
            json!({"resourceRequest": {"cpu": "1"}}),
        ),
        (
            format!("{{containers = {{{}}}}}", c("{limits = {cpu = 2}}")),
            json!({"resourceRequest": {"cpu": "2"}}),
        ),
        (
            format!(
                "{{containers = {{{0}, {0}}}, initContainers = {{{1}}}, overhead = {{cpu = '1m'}}}}",
                c("{requests = {cpu = '100m'}}"),
                c("{requests = {cpu = '150m', memory = '1Gi'}}")
            ),
            json!({"resourceRequest": {"cpu": "201m", "memory": "1Gi"}}),
        ),
        (
            "{nodeSelector = {a = 'b'}, tolerations = {{key = 'k'}}}".into(),
            json!({"nodeClaim": {"nodeSelector": {"a": "b"}, "tolerations": [{"key": "k"}]}}),
        ),
        ("{containers = {}}".into(), Value::Null),
        ("{}".into(), Value::Null),
    ];
    for (pod, expected) in pods {
        let expression = format!("kube.accuratePodRequirements({{spec = {pod}}})");
        check_values(&[(&expression, expected)]).await;
    }
    check_values(&[("kube.accuratePodRequirements({})", Value::Null)]).await;
    check_errors(&[
        ("kube.accuratePodRequirements()", "only accepts one argument"),
        ("kube.accuratePodRequirements(nil)", "bad argument #1 (table expected, got nil"),
        ("kube.accuratePodRequirements('x')", "table expected"),
        ("kube.accuratePodRequirements({spec = {containers = {{resources = {requests = {cpu = 'x'}}}}}})", "\"x\""),
        ("kube.accuratePodRequirements({spec = 1})", "invalid type"),
    ])
    .await;
}

// proves: LUA-kube
#[tokio::test]
async fn get_pod_dependencies() {
    let reference = |kind: &str, namespace: &str, name: &str| json!({"apiVersion": "v1", "kind": kind, "namespace": namespace, "name": name});
    let of = |pod: &str, namespace: &str| {
        format!("kube.getPodDependencies({{spec = {pod}}}, {namespace})")
    };
    check_values(&[
        (&of("{serviceAccountName = 'robot'}", "'n'"), json!([reference("ServiceAccount", "n", "robot")])),
        (&of("{serviceAccountName = 'default'}", "'n'"), Value::Null),
        (&of("{serviceAccountName = 'robot'}", "nil"), json!([reference("ServiceAccount", "default", "robot")])),
        (&of("{volumes = {{secret = {secretName = 's'}}, {configMap = {name = 'm'}}, {persistentVolumeClaim = {claimName = 'p'}}}}", "'n'"),
         json!([reference("ConfigMap", "n", "m"), reference("Secret", "n", "s"), reference("PersistentVolumeClaim", "n", "p")])),
        (&of("{containers = {{env = {{valueFrom = {secretKeyRef = {name = 'k'}}}}, envFrom = {{configMapRef = {name = 'e'}}}}}}", "'n'"),
         json!([reference("ConfigMap", "n", "e"), reference("Secret", "n", "k")])),
        (&of("{}", "'n'"), Value::Null),
    ])
    .await;
    check_errors(&[
        ("kube.getPodDependencies({})", "only accepts two argument"),
        (
            "kube.getPodDependencies({}, 'n', 1)",
            "only accepts two argument",
        ),
        ("kube.getPodDependencies('x', 'n')", "table expected"),
        (
            "kube.getPodDependencies({}, {})",
            "bad argument #2 (string expected, got table",
        ),
    ])
    .await;
}

// proves: LUA-libraries
#[tokio::test]
async fn math_mod_is_the_remainder() {
    check_values(&[
        ("math.mod(7, 4)", json!(3)),
        ("math.mod(-7, 4)", json!(1)),
        ("math.mod(7, -4)", json!(-1)),
        ("math.mod(5.5, 2)", json!(1.5)),
        ("math.fmod(-7, 4)", json!(-3)),
        ("-7 % 4", json!(1)),
    ])
    .await;
}

/// Whichever thread runs the script, and whatever it ran before.
// proves: LUA-nothing-stays
#[tokio::test]
async fn equal_calls_have_equal_results() {
    let script = "function ReflectStatus(obj)
        local all = {}
        for key, value in pairs(obj.status) do all[#all + 1] = key .. '=' .. tostring(value) end
        return {all = all, random = math.random(1, 1000000), text = tostring(math.pi)}
    end";
    let fields = (0..100).map(|n| (format!("key-{}", n * 7919 % 101), json!(n)));
    let tree = json!({"status": fields.collect::<serde_json::Map<_, _>>()});
    let mut answers = Vec::new();
    for _ in 0..3 {
        let engine = LuaEngine::default();
        for between in [
            "return {}",
            "local t = {} for i = 1, 1000 do t['x' .. i] = i end return t",
            "error()",
        ] {
            drop(reflect_status(&engine, between).await);
            let args = vec![LuaArg::from_value(&tree)];
            answers.push(
                call_script(&engine, InterpreterOperation::InterpretStatus, script, args)
                    .await
                    .unwrap(),
            );
        }
    }
    assert!(
        answers.iter().all(|answer| *answer == answers[0]),
        "{answers:?}"
    );
    assert_eq!(
        answers[0][0].as_ref().unwrap()["all"]
            .as_array()
            .unwrap()
            .len(),
        100
    );
}
