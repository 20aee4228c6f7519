//! One function per target: it takes any bytes and panics if a property does not hold.

use client::remote::kubeconfig::KubeconfigLoadingRules;
use flotilla_http::audit::AuditPolicy;
use kubernetes_cel::{Environment, OutputType, Program};
use machinery::Gvk;
use machinery::quantity::Quantity;
use machinery::selector::{FieldSelector, LabelSelector};
use managed_fields::{
    FieldManager, FieldType, ManagedFields, ResetFields, VersionConversionError, VersionedConverter,
};
use serde_json::Value;

/// A selector that is accepted can be evaluated.
pub(crate) fn label_selector(bytes: &[u8]) {
    if let Some(selector) = parse(bytes, |text| LabelSelector::parse(text).ok()) {
        selector.matches(|key| (key == "a").then_some("b"));
        assert!(selector.is_everything() == selector.requirements().is_empty());
    }
}

/// Like [`label_selector`].
pub(crate) fn field_selector(bytes: &[u8]) {
    if let Some(selector) = parse(bytes, |text| FieldSelector::parse(text).ok()) {
        selector.matches(|field| (field == "metadata.name").then_some("a".into()));
        selector.exact_match("metadata.name");
    }
}

/// A quantity that is accepted has one sign.
pub(crate) fn quantity(bytes: &[u8]) {
    if let Some(quantity) = parse(bytes, |text| Quantity::parse(text).ok()) {
        assert_eq!(
            quantity.is_zero(),
            quantity.milli_value() == 0 && quantity.value() == 0
        );
        quantity.times(3);
    }
}

/// A decoded value is an object that JSON can hold.
pub(crate) fn protobuf_body(bytes: &[u8]) {
    if let Ok((_, object)) = openapi::protobuf::decode(bytes) {
        let text = object.to_string();
        let again: Value = machinery::json::from_str(&text).unwrap();
        assert_eq!(again.is_object(), object.is_object());
    }
}

/// The bytes are a document and a patch, one per line. A merge patch applied twice changes nothing
/// more; no patch changes the document if it fails.
pub(crate) fn patch(bytes: &[u8]) {
    let mut lines = bytes.splitn(2, |byte| *byte == b'\n');
    let mut next = || machinery::json::from_slice::<Value>(lines.next()?).ok();
    let (Some(document), Some(patch)) = (next(), next()) else {
        return;
    };
    if let Ok(patched) = patch::apply_json_patch(&document, &patch) {
        serde_json::to_string(&patched).unwrap();
    }
    let mut merged = document;
    patch::apply_merge_patch(&mut merged, &patch);
    let once = merged.clone();
    patch::apply_merge_patch(&mut merged, &patch);
    assert_eq!(merged, once);
}

/// A kubeconfig is loaded or refused.
pub(crate) fn kubeconfig(bytes: &[u8]) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    if let Err(error) = KubeconfigLoadingRules::from_file(file.path()).load() {
        assert!(!error.to_string().contains("hidden-token"), "{error}");
    }
}

/// An audit policy is accepted or refused with a reason.
pub(crate) fn audit_policy(bytes: &[u8]) {
    if let Ok(Err(message)) = std::str::from_utf8(bytes).map(AuditPolicy::parse) {
        assert!(!message.is_empty());
    }
}

/// The bytes are an expression and the value of its variable, one per line. What is compiled is
/// evaluated within the cost that an evaluation may have, the same way each time.
pub(crate) fn cel_expression(bytes: &[u8]) {
    let mut lines = bytes.splitn(2, |byte| *byte == b'\n');
    let Some(Ok(expression)) = lines.next().map(std::str::from_utf8) else {
        return;
    };
    let value = lines
        .next()
        .and_then(|line| machinery::json::from_slice(line).ok());
    let environment = Environment::new().with_any("self");
    let Ok(program) = Program::compile(expression, &environment) else {
        return;
    };
    let value = value.unwrap_or(Value::Null);
    let evaluate = || program.evaluate_json(&environment, &[Some(&value)]);
    let (first, second) = (evaluate(), evaluate());
    assert_eq!(first.cost, second.cost);
    assert_eq!(first.result, second.result);
    if let (Ok(result), true) = (&first.result, program.has_output(OutputType::Bool)) {
        assert!(result.is_boolean(), "{result}");
    }
}

/// Any accepted `managedFields` are written so that they read the same.
pub(crate) fn managed_fields(bytes: &[u8]) {
    let decoded = parse(bytes, |text| ManagedFields::decode_json(text).ok());
    let Some(decoded) = decoded else {
        return;
    };
    match decoded.encode_json() {
        Some(text) => {
            let again = ManagedFields::decode_json(&text).unwrap();
            assert!(again.same_ownership(&decoded), "{text}");
        }
        None => assert!(decoded.is_empty()),
    }
}

/// Objects of one version without a schema.
struct UntypedVersion;

impl VersionedConverter for UntypedVersion {
    fn field_type(&self, _: &str) -> Option<FieldType<'_>> {
        Some(FieldType::Deduced)
    }

    fn convert(&self, object: &Value, _: &str, _: &str) -> Result<Value, VersionConversionError> {
        Ok(object.clone())
    }
}

/// The bytes are a live object and an applied configuration, one per line. A configuration that
/// was applied changes nothing when it is applied again.
pub(crate) fn applied_configuration(bytes: &[u8]) {
    let mut lines = bytes.splitn(2, |byte| *byte == b'\n');
    let mut next = || machinery::json::from_slice::<Value>(lines.next()?).ok();
    let (Some(live), Some(config)) = (next(), next()) else {
        return;
    };
    let (gvk, reset_fields) = (Gvk::from_static("", "v1", "Thing"), ResetFields::default());
    let manager = FieldManager {
        converter: &UntypedVersion,
        gvk: &gvk,
        subresource: "",
        reset_fields: &reset_fields,
        now: jiff::Timestamp::UNIX_EPOCH,
    };
    let none = ManagedFields::default();
    let Ok(once) = manager.apply(&live, &config, none, "m", true) else {
        return;
    };
    let again = manager.apply(&once.object, &config, once.managed.clone(), "m", false);
    let again = again.unwrap();
    assert_eq!(again.object, once.object);
    assert!(again.managed.same_ownership(&once.managed));
}

fn parse<T>(bytes: &[u8], parser: impl Fn(&str) -> Option<T>) -> Option<T> {
    parser(std::str::from_utf8(bytes).ok()?)
}
