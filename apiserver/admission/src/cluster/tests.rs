//! Tests of the Cluster rules.

use serde_json::json;

use machinery::names::validate_qualified_name;

use super::*;

const MAX: &str = "9223372036854775807";

fn cluster(change: Value) -> Value {
    let mut spec = json!({"syncMode": "Push"});
    for (k, v) in change.as_object().unwrap() {
        spec[k] = v.clone();
    }
    json!({"metadata": {"name": "m1"}, "spec": spec})
}

/// The spec after mutation at the Unix epoch.
fn mutated_spec(operation: AdmissionOperation, change: Value) -> Value {
    let mut new = cluster(change);
    mutate(operation, true, &mut new, Timestamp::UNIX_EPOCH);
    let mutated_once = new.clone();
    mutate(AdmissionOperation::Update, true, &mut new, Timestamp::MAX);
    assert_eq!(new, mutated_once, "stored twice");
    assert_eq!(validate(&new, None), []);
    new["spec"].take()
}

fn validation_errors(cluster: &Value) -> Vec<String> {
    validate(cluster, None)
        .iter()
        .map(ToString::to_string)
        .collect()
}

fn check(change: Value, expected: &[&str]) {
    assert_eq!(
        validation_errors(&cluster(change.clone())),
        expected,
        "{change}"
    );
}

fn grade(grade: i64, ranges: &[(&str, &str, &str)]) -> Value {
    let range =
        |(name, min, max): &(&str, &str, &str)| json!({"name": name, "min": min, "max": max});
    json!({"grade": grade, "ranges": ranges.iter().map(range).collect::<Value>()})
}

#[test]
fn default_models_have_nine_grades() {
    let new = mutated_spec(AdmissionOperation::Create, json!({}));
    let bounds = [
        ("0", "1", "0", "4Gi"),
        ("1", "2", "4Gi", "16Gi"),
        ("2", "4", "16Gi", "32Gi"),
        ("4", "8", "32Gi", "64Gi"),
        ("8", "16", "64Gi", "128Gi"),
        ("16", "32", "128Gi", "256Gi"),
        ("32", "64", "256Gi", "512Gi"),
        ("64", "128", "512Gi", "1Ti"),
        ("128", MAX, "1Ti", MAX),
    ];
    let all = (0..).zip(bounds);
    let all = all.map(|(n, (c, d, m, w))| grade(n, &[("cpu", c, d), ("memory", m, w)]));
    assert_eq!(new["resourceModels"], all.collect::<Value>());
}

#[test]
fn models_are_defaulted_on_create_behind_their_gate() {
    let emptied = mutated_spec(AdmissionOperation::Update, json!({}));
    assert_eq!(emptied, json!({"syncMode": "Push"}));
    for operation in [AdmissionOperation::Create, AdmissionOperation::Update] {
        for input in [
            json!({}),
            json!({"resourceModels": [grade(3, &[("cpu", "1", "2")])]}),
        ] {
            let mut new = cluster(input);
            let before = new.clone();
            mutate(operation, false, &mut new, Timestamp::UNIX_EPOCH);
            assert_eq!(new, before);
        }
    }
}

#[test]
fn models_are_sorted_and_bounded() {
    let input =
        json!({"resourceModels": [grade(2, &[("cpu", "4", "8")]), grade(1, &[("cpu", "1", "4")])]});
    for operation in [AdmissionOperation::Create, AdmissionOperation::Update] {
        assert_eq!(
            mutated_spec(operation, input.clone())["resourceModels"],
            json!([
                grade(1, &[("cpu", "0", "4")]),
                grade(2, &[("cpu", "4", MAX)])
            ])
        );
    }
}

#[test]
fn no_execute_taints_get_a_time() {
    let taint = |effect: &str, at: Option<&str>| {
        let mut taint = json!({"key": "a", "effect": effect});
        if let Some(at) = at {
            taint["timeAdded"] = at.into();
        }
        taint
    };
    let time_added = Some("2026-01-01T00:00:00Z");
    for (input, expected) in [
        (
            taint("NoExecute", None),
            taint("NoExecute", Some("1970-01-01T00:00:00Z")),
        ),
        (
            taint("NoExecute", time_added),
            taint("NoExecute", time_added),
        ),
        (taint("NoSchedule", None), taint("NoSchedule", None)),
    ] {
        let new = mutated_spec(AdmissionOperation::Update, json!({"taints": [input]}));
        assert_eq!(new["taints"], json!([expected]));
    }
}

#[test]
fn zone_moves_to_zones() {
    assert_eq!(
        mutated_spec(AdmissionOperation::Update, json!({"zone": "z"})),
        json!({"syncMode": "Push", "zones": ["z"]})
    );
    assert_eq!(
        mutated_spec(AdmissionOperation::Update, json!({"zones": ["y"]})),
        json!({"syncMode": "Push", "zones": ["y"]})
    );
    let zone_and_zones = json!({"zone": "z", "zones": ["y"]});
    let mut new = cluster(zone_and_zones.clone());
    mutate(
        AdmissionOperation::Update,
        true,
        &mut new,
        Timestamp::UNIX_EPOCH,
    );
    assert_eq!(new, cluster(zone_and_zones));
    assert_eq!(
        validation_errors(&new),
        [
            r#"spec.spec: Invalid value: {"syncMode":"Push","zone":"z","zones":["y"]}: Zone and Zones cannot co-exist"#
        ]
    );
}

#[test]
fn cluster_names_are_validated() {
    let longest_name = "a".repeat(48);
    let long = "a".repeat(49);
    let shape = |name: &str| validate_dns1123_label(name).unwrap_err();
    for (name, detail) in [
        (longest_name.as_str(), None),
        (&long, Some("must be no more than 48 characters".to_owned())),
        ("", Some("must be not empty".into())),
        ("M", Some(shape("M"))),
        ("a.b", Some(shape("a.b"))),
    ] {
        let mut named_cluster = cluster(json!({}));
        named_cluster["metadata"]["name"] = name.into();
        let expected =
            detail.map(|detail| format!("metadata.name: Invalid value: {name:?}: {detail}"));
        assert_eq!(
            validation_errors(&named_cluster),
            expected.into_iter().collect::<Vec<_>>()
        );
    }
}

#[test]
fn sync_mode_is_push_or_pull() {
    let supported = r#"supported values: "Pull", "Push""#;
    check(json!({"syncMode": "Pull"}), &[]);
    check(
        json!({"syncMode": "Other"}),
        &[&format!(
            r#"spec.syncMode: Unsupported value: "Other": {supported}"#
        )],
    );
    check(
        json!({"syncMode": ""}),
        &[
            "spec.syncMode: Required value",
            &format!(r#"spec.syncMode: Unsupported value: "": {supported}"#),
        ],
    );
}

#[test]
fn api_endpoint_is_validated() {
    let with_endpoint = |endpoint: &str| json!({ "apiEndpoint": endpoint });
    let host = "spec.apiEndpoint: Invalid value: \"\": host must be provided; desired format: hostname, hostname:port, IP or IP:port";
    check(with_endpoint("https://a:6443"), &[]);
    check(with_endpoint(""), &[]);
    check(with_endpoint("a:6443"), &[host]);
    check(with_endpoint("https:///x"), &[host]);
    check(
        with_endpoint("https://u@a/?q=1#f"),
        &[
            r#"spec.apiEndpoint: Invalid value: "u": user information is not permitted in the URL"#,
            r#"spec.apiEndpoint: Invalid value: "f": fragments are not permitted in the URL"#,
            r#"spec.apiEndpoint: Invalid value: "q=1": query parameters are not permitted in the URL"#,
        ],
    );
}

#[test]
fn secret_references_need_namespace_and_name() {
    for reference in ["secretRef", "impersonatorSecretRef"] {
        let of = |secret: Value| json!({ reference: secret });
        check(of(json!({"namespace": "n", "name": "s"})), &[]);
        check(of(Value::Null), &[]);
        check(
            of(json!({"name": "s"})),
            &[&format!("spec.{reference}.namespace: Required value")],
        );
        check(
            of(json!({"namespace": "n"})),
            &[&format!("spec.{reference}.name: Required value")],
        );
    }
}

#[test]
fn proxy_url_schemes_are_validated() {
    for scheme in ["http", "https", "socks5"] {
        check(json!({"proxyURL": format!("{scheme}://p:1")}), &[]);
    }
    check(
        json!({"proxyURL": "ftp://p"}),
        &[
            r#"spec.proxyURL: Invalid value: "ftp://p": unsupported scheme "ftp", must be http, https, or socks5"#,
        ],
    );
    check(
        json!({"proxyURL": "ftp://u:secret@p/x"}),
        &[
            r#"spec.proxyURL: Invalid value: "ftp://xxxxx@p": unsupported scheme "ftp", must be http, https, or socks5"#,
        ],
    );
    check(
        json!({"proxyURL": "u:secret@p"}),
        &[
            r#"spec.proxyURL: Invalid value: "xxxxx": unsupported scheme "", must be http, https, or socks5"#,
        ],
    );
}

#[test]
fn location_fields_are_label_values() {
    let detail = validate_label_value("a b").unwrap_err();
    check(
        json!({"provider": "p", "region": "r", "zones": ["a", ""]}),
        &[],
    );
    for (change, path) in [
        (json!({"provider": "a b"}), "provider"),
        (json!({"region": "a b"}), "region"),
        (json!({"zone": "a b"}), "Zone"),
        (json!({"zones": ["a", "a b"]}), "Zones"),
    ] {
        check(
            change,
            &[&format!(r#"spec.{path}: Invalid value: "a b": {detail}"#)],
        );
    }
}

#[test]
fn taints_are_validated() {
    let taint = |key: &str, value: &str, effect: &str| json!({"key": key, "value": value, "effect": effect});
    let of = |taints: &[Value]| json!({ "taints": taints });
    check(
        of(&[taint("a", "b", "NoSchedule"), taint("a", "b", "NoExecute")]),
        &[],
    );
    let key = validate_qualified_name("a b").unwrap_err();
    check(
        of(&[taint("a b", "b", "NoExecute")]),
        &[&format!(
            r#"spec.taints[0].key: Invalid value: "a b": {key}"#
        )],
    );
    let value = validate_label_value("b c").unwrap_err();
    check(
        of(&[taint("a", "b c", "NoExecute")]),
        &[&format!(
            r#"spec.taints[0].value: Invalid value: "b c": {value}"#
        )],
    );
    check(
        of(&[taint("a", "", "PreferNoSchedule")]),
        &[
            r#"spec.taints[0].effect: Unsupported value: "PreferNoSchedule": supported values: "NoSchedule", "NoExecute""#,
        ],
    );
    check(
        of(&[taint("a", "", "")]),
        &["spec.taints[0].effect: Required value"],
    );
    check(
        of(&[taint("a", "b", "NoExecute"), taint("a", "c", "NoExecute")]),
        &[
            r#"spec.taints[1]: Duplicate value: {"key":"a","value":"c","effect":"NoExecute"}: taints must be unique by key and effect pair"#,
        ],
    );
}

#[test]
fn models_must_be_contiguous() {
    let table = [
        (
            vec![
                grade(0, &[("cpu", "0", "1")]),
                grade(1, &[("cpu", "1", MAX)]),
            ],
            None,
        ),
        (
            vec![
                grade(0, &[("cpu", "0", "1")]),
                grade(0, &[("cpu", "1", MAX)]),
            ],
            Some("The grade of each models should not be the same"),
        ),
        (
            vec![grade(0, &[("cpu", "0", "1")]), grade(1, &[])],
            Some("The number of resource types should be the same"),
        ),
        (
            vec![
                grade(0, &[("cpu", "0", "1")]),
                grade(1, &[("memory", "1", MAX)]),
            ],
            Some("The resource types of each models should be the same"),
        ),
        (
            vec![
                grade(0, &[("cpu", "0", "1")]),
                grade(1, &[("cpu", "2", MAX)]),
            ],
            Some("Model intervals for resources must be contiguous and non-overlapping"),
        ),
        (
            vec![grade(0, &[("cpu", "1", MAX)])],
            Some("The min value of each resource in the first model should be 0"),
        ),
        (
            vec![grade(0, &[("cpu", "0", "5")])],
            Some("The max value of each resource in the last model should be MaxInt64"),
        ),
        (
            vec![grade(0, &[("cpu", "0", "0")])],
            Some("The max value of each resource must be greater than the min value"),
        ),
    ];
    for (models, detail) in table {
        let errors = validation_errors(&cluster(json!({"resourceModels": models})));
        let messages: Vec<&str> = errors
            .iter()
            .filter_map(|s| s.rsplit(": ").next())
            .collect();
        assert_eq!(
            messages,
            detail.into_iter().collect::<Vec<_>>(),
            "{models:?}"
        );
    }
    check(
        json!({"resourceModels": [grade(0, &[("cpu", "0", "5")])]}),
        &[
            r#"spec.resourceModels: Invalid value: [{"Grade":0,"Ranges":[{"Name":"cpu","Min":"0","Max":"5"}]}]: The max value of each resource in the last model should be MaxInt64"#,
        ],
    );
    let unreadable = validation_errors(&cluster(
        json!({"resourceModels": [grade(0, &[("cpu", "x", MAX)])]}),
    ));
    assert!(
        unreadable[0].starts_with(r#"spec.resourceModels[0].ranges[0].min: Invalid value: "x": "#),
        "{unreadable:?}"
    );
}

#[test]
fn endpoint_is_https_unless_verification_is_off() {
    let detail = "must be an https URL; spec.insecureSkipTLSVerification permits http";
    let rejections = |scheme: &str| {
        vec![format!(
            r#"spec.apiEndpoint: Invalid value: "{scheme}": {detail}"#
        )]
    };
    let with_endpoint = |endpoint: &str, insecure: bool| {
        cluster(json!({"apiEndpoint": endpoint, "insecureSkipTLSVerification": insecure}))
    };
    for (endpoint, insecure, expected) in [
        ("https://a:6443", false, vec![]),
        ("HTTPS://a:6443", false, vec![]),
        ("http://a:6443", false, rejections("http")),
        ("http://a:6443", true, vec![]),
        ("ftp://a:6443", true, rejections("ftp")),
    ] {
        assert_eq!(
            validation_errors(&with_endpoint(endpoint, insecure)),
            expected,
            "{endpoint}"
        );
    }
    // Stored before the rule existed, or with verification off.
    let stored = with_endpoint("http://a:6443", false);
    let mut labelled = stored.clone();
    labelled["metadata"]["labels"] = json!({"a": "b"});
    assert_eq!(validate(&labelled, Some(&stored)), []);
    assert_eq!(
        validate(&with_endpoint("http://b:6443", false), Some(&stored)).len(),
        1
    );
    let insecure = with_endpoint("http://a:6443", true);
    assert_eq!(validate(&stored, Some(&insecure)).len(), 1);
}

#[test]
fn changed_references_and_connections_need_authorization() {
    let reference = json!({"namespace": "n", "name": "s"});
    let base = json!({"apiEndpoint": "https://a", "secretRef": reference,
        "impersonatorSecretRef": {"namespace": "n", "name": "i"}});
    let with = |change: Value| {
        let mut spec = base.clone();
        for (field, value) in change.as_object().unwrap() {
            spec[field] = value.clone();
        }
        cluster(spec)
    };
    let old = with(json!({}));
    let fields = |new: &Value, old: Option<&Value>| -> Vec<String> {
        let all = SECRETS.to_authorize(new, old).into_iter();
        all.map(|s| format!("{} {}/{}", s.field, s.namespace, s.name))
            .collect()
    };
    let (secret_ref, impersonator_ref) = ("spec.secretRef n/s", "spec.impersonatorSecretRef n/i");
    assert_eq!(fields(&old, None), [secret_ref, impersonator_ref]);
    for (change, expected) in [
        (json!({}), vec![]),
        (
            json!({"region": "r", "proxyURL": "", "insecureSkipTLSVerification": false}),
            vec![],
        ),
        (
            json!({"secretRef": {"namespace": "n", "name": "t"}}),
            vec!["spec.secretRef n/t"],
        ),
        (json!({"secretRef": null}), vec![]),
        (
            json!({"apiEndpoint": "https://b"}),
            vec![secret_ref, impersonator_ref],
        ),
        (
            json!({"proxyURL": "http://p"}),
            vec![secret_ref, impersonator_ref],
        ),
        (
            json!({"proxyHeader": {"a": "b"}}),
            vec![secret_ref, impersonator_ref],
        ),
        (
            json!({"insecureSkipTLSVerification": true}),
            vec![secret_ref, impersonator_ref],
        ),
    ] {
        assert_eq!(
            fields(&with(change.clone()), Some(&old)),
            expected,
            "{change}"
        );
    }
    assert_eq!(
        fields(&old, Some(&with(json!({"secretRef": null})))),
        [secret_ref]
    );
}

// proves: IMP-identity-validation
#[test]
fn annotations_about_uid_and_extras_are_validated() {
    let (uid, keys) = (
        "flotilla.io/impersonate-uid",
        "flotilla.io/impersonate-extra-keys",
    );
    for (annotation, value, detail) in [
        (uid, "true", None),
        (uid, "false", None),
        (uid, "yes", Some("must be true or false")),
        (keys, "", None),
        (keys, "scopes,example.org/project", None),
        (keys, "Scopes", Some("a key must be lower case")),
        (keys, "scopes,", Some("a key must not be empty")),
        (
            keys,
            "*",
            Some("a key must consist of printable ASCII characters other than '*'"),
        ),
    ] {
        let mut cluster = cluster(json!({}));
        cluster["metadata"]["annotations"] = json!({annotation: value});
        let expected = detail.map(|detail| {
            format!("metadata.annotations[{annotation}]: Invalid value: {value:?}: {detail}")
        });
        let expected: Vec<String> = expected.into_iter().collect();
        assert_eq!(validation_errors(&cluster), expected, "{value}");
    }
}

// proves: TLV-invalid, TLV-warning
#[test]
fn disabled_tls_validations_are_validated_and_warned_of() {
    let key = DISABLED_TLS_VALIDATIONS;
    for (value, valid) in [
        (json!("SubjectName"), true),
        (json!("ValidityPeriod,SubjectName"), true),
        (json!("*"), false),
        (json!(""), false),
    ] {
        let cluster = json!({"metadata": {"name": "m", "annotations": {key: value}}});
        let mut errors = Vec::new();
        validate_disabled_tls_validations(&cluster, &mut errors);
        let fields: Vec<&str> = errors.iter().map(|e| e.field.as_str()).collect();
        let field = format!("metadata.annotations[{key}]");
        let expected = [field.as_str()];
        assert_eq!(fields, &expected[usize::from(valid)..], "{value}");
        assert_eq!(warnings(&cluster).len(), usize::from(valid), "{value}");
    }
    assert!(warnings(&json!({"metadata": {"name": "m"}})).is_empty());
}

/// Who may have a member's token sent elsewhere needs the right to read it.
// proves: TLV-rights
#[test]
fn a_change_of_the_verification_uses_the_secrets_anew() {
    let cluster = |validations: &str| {
        json!({"metadata": {"annotations": {DISABLED_TLS_VALIDATIONS: validations}},
            "spec": {"secretRef": {"namespace": "n", "name": "s"}}})
    };
    let (old, new) = (cluster("SubjectName"), cluster("ValidityPeriod"));
    assert_eq!(SECRETS.to_authorize(&new, Some(&old)).len(), 1);
    assert!(SECRETS.to_authorize(&old, Some(&old)).is_empty());
}
