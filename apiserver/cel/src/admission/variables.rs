//! Declares the variables of admission: the request, its objects, its namespace, the
//! parameters of a binding, and the authorizer.

use std::sync::Arc;

use serde_json::Value as Json;

use crate::declarations::{Declaration, DeclaredKind, DeclaredListType, ObjectDeclaration};
use crate::environment::Environment;
use crate::value::{AUTHORIZER_TYPE, RESOURCE_CHECK_TYPE};

/// The numbers of the variables, in the order in which they are declared.
pub(super) const OBJECT: usize = 0;
pub(super) const OLD_OBJECT: usize = 1;
pub(super) const NAMESPACE_OBJECT: usize = 2;
pub(super) const REQUEST: usize = 3;
pub(super) const PARAMS: usize = 4;
pub(super) const AUTHORIZER: usize = 5;
pub(super) const REQUEST_RESOURCE: usize = 6;
/// The variables that a policy composes follow.
pub(super) const FIRST_COMPOSED: usize = 8;

const COMPOSED: &str = "variables";
const AUTHORIZER_NAMES: [&str; 2] = ["authorizer", "authorizer.requestResource"];

/// The variables that an expression may use besides the objects and the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeclaredAdmissionVariables {
    pub params: bool,
    pub authorizer: bool,
    /// The types that mutations construct.
    pub patch_types: bool,
}

/// The structural schemas of what a request contains, for checks of types. Values without one
/// are of any type.
#[derive(Clone, Copy, Debug, Default)]
pub struct AdmissionSchemas<'a> {
    pub object: Option<&'a Json>,
    pub params: Option<&'a Json>,
}

/// The environment of all variables; `composed` declares `variables`.
pub(super) fn environment(composed: bool, schemas: AdmissionSchemas<'_>) -> Environment {
    let declaration = |schema: Option<&Json>| {
        let declaration = schema.and_then(|schema| Declaration::from_schema(schema, false));
        Arc::new(declaration.unwrap_or(Declaration::ANY))
    };
    let opaque = |name| Arc::new(Declaration::unbounded(DeclaredKind::Opaque(name)));
    let mut environment = Environment::new()
        .with("object", declaration(schemas.object), false)
        .with("oldObject", declaration(schemas.object), false)
        .with("namespaceObject", Arc::new(namespace()), false)
        .with("request", Arc::new(request()), false)
        .with("params", declaration(schemas.params), false)
        .with(AUTHORIZER_NAMES[0], opaque(AUTHORIZER_TYPE), false)
        .with(AUTHORIZER_NAMES[1], opaque(RESOURCE_CHECK_TYPE), false);
    // Its fields are variables of their own, which are found by their qualified names.
    let fields = ObjectDeclaration {
        type_name: "kubernetes.variables",
        ..ObjectDeclaration::default()
    };
    let fields = Declaration::unbounded(DeclaredKind::Object(Arc::new(fields)));
    environment = environment.with(COMPOSED, Arc::new(fields), false);
    if !composed {
        environment.hide(&[COMPOSED]);
    }
    environment
}

/// The name of a composed variable in expressions.
pub(super) fn composed_name(name: &str) -> String {
    format!("{COMPOSED}.{name}")
}

/// The environment with the variables that an expression may use.
pub(super) fn restrict(
    environment: &Environment,
    declared: DeclaredAdmissionVariables,
) -> Environment {
    let mut environment = environment.clone();
    if !declared.params {
        environment.hide(&["params"]);
    }
    if !declared.authorizer {
        environment.hide(&AUTHORIZER_NAMES);
    }
    environment.set_patch_types(declared.patch_types);
    environment
}

fn text() -> Declaration {
    Declaration::unbounded(DeclaredKind::String)
}

fn list(element: Declaration) -> Declaration {
    Declaration::unbounded(DeclaredKind::List {
        element: Arc::new(element),
        list_type: DeclaredListType::Atomic,
    })
}

fn map(value: Declaration) -> Declaration {
    Declaration::unbounded(DeclaredKind::Map(Arc::new(value)))
}

fn request() -> Declaration {
    let kind = || {
        let fields = vec![("group", text()), ("version", text()), ("kind", text())];
        Declaration::named_object("kubernetes.GroupVersionKind", fields)
    };
    let resource = || {
        let fields = vec![("group", text()), ("version", text()), ("resource", text())];
        Declaration::named_object("kubernetes.GroupVersionResource", fields)
    };
    let user = vec![
        ("username", text()),
        ("uid", text()),
        ("groups", list(text())),
        ("extra", map(list(text()))),
    ];
    let fields = vec![
        ("kind", kind()),
        ("resource", resource()),
        ("subResource", text()),
        ("requestKind", kind()),
        ("requestResource", resource()),
        ("requestSubResource", text()),
        ("name", text()),
        ("namespace", text()),
        ("operation", text()),
        (
            "userInfo",
            Declaration::named_object("kubernetes.UserInfo", user),
        ),
        ("dryRun", Declaration::unbounded(DeclaredKind::Bool)),
        ("options", Declaration::ANY),
    ];
    Declaration::named_object("kubernetes.AdmissionRequest", fields)
}

fn namespace() -> Declaration {
    let time = || Declaration::unbounded(DeclaredKind::Timestamp);
    let int = || Declaration::unbounded(DeclaredKind::Int);
    let spec = vec![("finalizers", list(text()))];
    let condition = vec![
        ("status", text()),
        ("type", text()),
        ("lastTransitionTime", time()),
        ("message", text()),
        ("reason", text()),
    ];
    let condition = Declaration::named_object("kubernetes.NamespaceCondition", condition);
    let status = vec![("conditions", list(condition)), ("phase", text())];
    let metadata = vec![
        ("name", text()),
        ("generateName", text()),
        ("namespace", text()),
        ("labels", map(text())),
        ("annotations", map(text())),
        ("UID", text()),
        ("creationTimestamp", time()),
        ("deletionGracePeriodSeconds", int()),
        ("deletionTimestamp", time()),
        ("generation", int()),
        ("resourceVersion", text()),
        ("finalizers", list(text())),
    ];
    let fields = vec![
        (
            "metadata",
            Declaration::named_object("kubernetes.NamespaceMetadata", metadata),
        ),
        (
            "spec",
            Declaration::named_object("kubernetes.NamespaceSpec", spec),
        ),
        (
            "status",
            Declaration::named_object("kubernetes.NamespaceStatus", status),
        ),
    ];
    Declaration::named_object("kubernetes.Namespace", fields)
}
