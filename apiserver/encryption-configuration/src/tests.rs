//! Tests of the validation of EncryptionConfigurations.

use super::{EncryptableResources, parse};

/// Keys of 32 and 16 bytes.
const KEY_OF_32_BYTES: &str = "c2VjcmV0IGlzIHNlY3VyZSwgb3IgaXMgaXQgc2VjdXI=";
const KEY_OF_16_BYTES: &str = "c2VjcmV0IGlzIHNlY3VyZQ==";

fn config(entries: &str) -> String {
    let entries = entries
        .replace("KEY", KEY_OF_32_BYTES)
        .replace("SHORT", KEY_OF_16_BYTES);
    format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n{entries}\n"
    )
}

fn identity_for(resources: &str) -> String {
    config(&format!(
        "- {{resources: [{resources}], providers: [{{identity: {{}}}}]}}"
    ))
}

fn providers(providers: &str) -> String {
    config(&format!(
        "- {{resources: [secrets], providers: [{providers}]}}"
    ))
}

fn parse_error(text: &str, scope: EncryptableResources) -> String {
    let error = parse(text, scope).unwrap_err();
    assert!(
        !error.contains(KEY_OF_32_BYTES) && !error.contains(KEY_OF_16_BYTES),
        "{error}"
    );
    error
}

#[test]
fn valid_configurations_are_accepted() {
    for text in [
        identity_for("secrets"),
        identity_for("secrets, configmaps, events, deployments.apps"),
        identity_for("'*.*'"),
        identity_for("'*.'"),
        identity_for("'*.apps', secrets"),
        identity_for("widgets.example.org, '*.example.com'"),
        identity_for("propagationpolicies.policy.karmada.io"),
        providers("{identity: null}"),
        providers("{aesgcm: {keys: [{name: a, secret: SHORT}, {name: b, secret: KEY}]}}"),
        providers("{secretbox: {keys: [{name: a, secret: KEY}]}}, {identity: {}}"),
        config(
            "- {resources: [secrets], providers: [{identity: {}}]}\n\
             - {resources: ['*.'], providers: [{identity: {}}]}\n\
             - {resources: ['*.*'], providers: [{identity: {}}]}",
        ),
        config(
            "- {resources: [secrets], providers: [{identity: {}}]}\n\
             - {resources: [secrets], providers: [{secretbox: {keys: [{name: a, secret: KEY}]}}]}",
        ),
    ] {
        let parsed = parse(&text, EncryptableResources::All);
        assert!(parsed.is_ok(), "{text}{parsed:?}");
    }
    for own in ["works.work.karmada.io", "'*.policy.karmada.io'", "'*.*'"] {
        assert!(
            parse(&identity_for(own), EncryptableResources::OwnGroups).is_ok(),
            "{own}"
        );
    }
}

#[test]
fn errors_have_the_path_of_their_field() {
    let table = [
        ("resources: [", "not YAML or JSON at line "),
        ("[]", "<root>: Invalid value: a list: must be an object"),
        (
            "{}",
            "apiVersion: Required value: must be apiserver.config.k8s.io/v1; kind: Required value: must be EncryptionConfiguration; resources: Required value: at least one resources is required",
        ),
        (
            &config("  []").replace("k8s.io/v1", "k8s.io/v2"),
            "apiVersion: Unsupported value: \"apiserver.config.k8s.io/v2\": supported values: \"apiserver.config.k8s.io/v1\"",
        ),
        (
            &config("- {resources: [secrets], providers: [{identity: {}}], extra: 1}"),
            "resources[0].extra: Forbidden: unknown field",
        ),
        (
            &config("- {resources: [], providers: []}"),
            "resources[0].resources: Required value: at least one resources[0].resources is required; resources[0].providers: Required value",
        ),
        (
            &identity_for("1"),
            "resources[0].resources[0]: Invalid value: 1: must be a string",
        ),
        (
            &identity_for("Secrets"),
            "resources[0].resources[0]: Invalid value: \"Secrets\": resource name should not contain capital letters",
        ),
        (
            &identity_for("'*'"),
            "resources[0].resources[0]: Invalid value: \"*\": use '*.' to encrypt all",
        ),
        (
            &identity_for("pods.events.k8s.io"),
            "resources[0].resources[0]: Invalid value: \"pods.events.k8s.io\": '*.events.k8s.io' objects",
        ),
        (
            &identity_for("ingresses.extensions"),
            "'extensions' group has been removed",
        ),
        (
            &identity_for("serviceipallocations"),
            "resources which do not have REST API/s",
        ),
        (
            &identity_for("'secrets.*'"),
            "encrypting the same resource across groups is not supported",
        ),
        (
            &identity_for("secrets, secrets"),
            "resources[0].resources: Invalid value: [\"secrets\",\"secrets\"]: the same resource cannot be specified multiple times",
        ),
        (
            &identity_for("secrets, '*.'"),
            "resources[0].resources: Invalid value: [\"secrets\",\"*.\"]: using overlapping resources",
        ),
        (&identity_for("'*.*', pods"), "using overlapping resources"),
        (
            &identity_for("secret"),
            "resources[0].resources[0]: Invalid value: \"secret\": Flotilla stores no such resource of that group",
        ),
        (
            &identity_for("deployments.app"),
            "resources[0].resources[0]: Invalid value: \"deployments.app\": there is no API group \"app\"",
        ),
        (
            &providers("{}"),
            "resources[0].providers[0]: Required value: provider does not contain any of the expected providers",
        ),
        (
            &providers("{identity: {}, aesgcm: {}}"),
            "resources[0].providers[0]: Forbidden: more than one provider",
        ),
        (
            &providers("{rot13: {}}"),
            "resources[0].providers[0].rot13: Forbidden: unknown field",
        ),
        (
            &providers("{kms: {}}"),
            "resources[0].providers[0].kms: Unsupported value: \"kms\": supported values: \"aesgcm\", \"secretbox\", \"identity\"",
        ),
        (
            &providers("{aescbc: {keys: [{name: a, secret: KEY}]}}"),
            "resources[0].providers[0].aescbc: Unsupported value",
        ),
        (
            &providers("{identity: {}}, {aesgcm: {}}"),
            "resources[0].providers[1].aesgcm.keys: Required value",
        ),
        (
            &providers("{aesgcm: KEY}"),
            "resources[0].providers[0].aesgcm: Invalid value: a string: must be an object",
        ),
        (
            &providers("{aesgcm: {keys: [KEY]}}"),
            "resources[0].providers[0].aesgcm.keys[0]: Invalid value: a string: must be an object",
        ),
        (
            &providers("{aesgcm: {keys: [{secret: KEY}]}}"),
            "resources[0].providers[0].aesgcm.keys[0].name: Required value",
        ),
        (
            &providers("{aesgcm: {keys: [{name: a}]}}"),
            "resources[0].providers[0].aesgcm.keys[0].secret: Required value",
        ),
        (
            &providers("{aesgcm: {keys: [{name: a, secret: '!KEY'}]}}"),
            "keys[0].secret: Invalid value: \"REDACTED\": secrets must be base64 encoded",
        ),
        (
            &providers("{aesgcm: {keys: [{name: a, secret: c2hvcnQ=}]}}"),
            "keys[0].secret: Invalid value: \"REDACTED\": secret is not of the expected length, got 5, expected one of [16 24 32]",
        ),
        (
            &providers("{secretbox: {keys: [{name: a, secret: SHORT}]}}"),
            "got 16, expected one of [32]",
        ),
        (
            &config(
                "- {resources: ['*.*'], providers: [{identity: {}}]}\n- {resources: [secrets], providers: [{identity: {}}]}",
            ),
            "resources[1].resources[0]: Invalid value: \"secrets\": it is masked by the earlier rule \"*.*\"",
        ),
    ];
    for (text, expected) in table {
        let error = parse_error(text, EncryptableResources::All);
        assert!(
            error.contains(expected),
            "{text}\nno {expected:?} in {error}"
        );
    }
}

/// Flotilla does not store these resources behind a kube-apiserver.
#[test]
fn resources_of_another_server_are_refused() {
    for resource in ["secrets", "'*.'", "deployments.apps", "widgets.example.org"] {
        let error = parse_error(&identity_for(resource), EncryptableResources::OwnGroups);
        assert!(
            error.starts_with("resources[0].resources[0]: Invalid value")
                && error.contains("behind another API server"),
            "{error}"
        );
    }
}
