//! Checks of rights with the variable `authorizer` (`k8s.io/apiserver/pkg/cel/library/authz.go`).

use machinery::names::{validate_dns1123_label, validate_dns1123_subdomain};

use crate::authorization::{
    AuthorizationCheck, AuthorizationDecision, CheckedResource, CheckedTarget, CheckedUser,
};
use crate::error::EvalError;
use crate::function::DeclaredOverload;
use crate::meter::Meter;
use crate::value::{EvaluationResult, Opaque, Value};

pub(super) const OVERLOADS: &[DeclaredOverload] = &[
    (
        "authorizer_path",
        "<kubernetes.authorization.Authorizer>.path(string) kubernetes.authorization.PathCheck",
        path,
    ),
    (
        "authorizer_group",
        "<kubernetes.authorization.Authorizer>.group(string) kubernetes.authorization.GroupCheck",
        group,
    ),
    (
        "authorizer_serviceaccount",
        "<kubernetes.authorization.Authorizer>.serviceAccount(string,string) kubernetes.authorization.Authorizer",
        service_account,
    ),
    (
        "groupcheck_resource",
        "<kubernetes.authorization.GroupCheck>.resource(string) kubernetes.authorization.ResourceCheck",
        resource,
    ),
    (
        "resourcecheck_subresource",
        "<kubernetes.authorization.ResourceCheck>.subresource(string) kubernetes.authorization.ResourceCheck",
        subresource,
    ),
    (
        "resourcecheck_namespace",
        "<kubernetes.authorization.ResourceCheck>.namespace(string) kubernetes.authorization.ResourceCheck",
        namespace,
    ),
    (
        "resourcecheck_name",
        "<kubernetes.authorization.ResourceCheck>.name(string) kubernetes.authorization.ResourceCheck",
        name,
    ),
    (
        "authorizer_fieldselector",
        "<kubernetes.authorization.ResourceCheck>.fieldSelector(string) kubernetes.authorization.ResourceCheck",
        field_selector,
    ),
    (
        "authorizer_labelselector",
        "<kubernetes.authorization.ResourceCheck>.labelSelector(string) kubernetes.authorization.ResourceCheck",
        label_selector,
    ),
    (
        "pathcheck_check",
        "<kubernetes.authorization.PathCheck>.check(string) kubernetes.authorization.Decision",
        check,
    ),
    (
        "resourcecheck_check",
        "<kubernetes.authorization.ResourceCheck>.check(string) kubernetes.authorization.Decision",
        check,
    ),
    (
        "decision_errored",
        "<kubernetes.authorization.Decision>.errored() bool",
        errored,
    ),
    (
        "decision_error",
        "<kubernetes.authorization.Decision>.error() string",
        error,
    ),
    (
        "decision_allowed",
        "<kubernetes.authorization.Decision>.allowed() bool",
        allowed,
    ),
    (
        "decision_reason",
        "<kubernetes.authorization.Decision>.reason() string",
        reason,
    ),
];

/// The receiver of a call and its argument of type string.
fn opaque_and_text<'v>(arguments: &'v [Value<'_>]) -> Option<(&'v Opaque, &'v str)> {
    match arguments {
        [Value::Opaque(opaque), Value::String(text)] => Some((opaque, text.as_str())),
        _ => None,
    }
}

fn path<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    let Some((Opaque::Authorizer(user), path)) = opaque_and_text(arguments) else {
        return Err(EvalError::NoSuchOverload);
    };
    if path.trim().is_empty() {
        return Err(EvalError::new("path must not be empty"));
    }
    let target = CheckedTarget::Path(path.to_owned());
    Ok(Value::opaque(Opaque::TargetCheck(user.clone(), target)))
}

fn group<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    let Some((Opaque::Authorizer(user), group)) = opaque_and_text(arguments) else {
        return Err(EvalError::NoSuchOverload);
    };
    Ok(Value::opaque(Opaque::GroupCheck(
        user.clone(),
        group.to_owned(),
    )))
}

fn service_account<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    let [
        Value::Opaque(_),
        Value::String(namespace),
        Value::String(name),
    ] = arguments
    else {
        return Err(EvalError::NoSuchOverload);
    };
    let (namespace, name) = (namespace.as_str(), name.as_str());
    if validate_dns1123_subdomain(name).is_err() {
        return Err(EvalError::new("Invalid service account name"));
    }
    if validate_dns1123_label(namespace).is_err() {
        return Err(EvalError::new("Invalid service account namespace"));
    }
    let user = CheckedUser::ServiceAccount {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    Ok(Value::opaque(Opaque::Authorizer(user)))
}

fn resource<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    let Some((Opaque::GroupCheck(user, group), resource)) = opaque_and_text(arguments) else {
        return Err(EvalError::NoSuchOverload);
    };
    if resource.trim().is_empty() {
        return Err(EvalError::new("resource must not be empty"));
    }
    let target = CheckedTarget::Resource(CheckedResource {
        group: group.clone(),
        resource: resource.to_owned(),
        ..CheckedResource::default()
    });
    Ok(Value::opaque(Opaque::TargetCheck(user.clone(), target)))
}

/// The check of a resource with a further attribute.
fn narrowed<'a>(
    arguments: &[Value<'a>],
    set: impl FnOnce(&mut CheckedResource, String),
) -> EvaluationResult<'a> {
    let Some((Opaque::TargetCheck(user, CheckedTarget::Resource(resource)), text)) =
        opaque_and_text(arguments)
    else {
        return Err(EvalError::NoSuchOverload);
    };
    let mut resource = resource.clone();
    set(&mut resource, text.to_owned());
    let target = CheckedTarget::Resource(resource);
    Ok(Value::opaque(Opaque::TargetCheck(user.clone(), target)))
}

fn subresource<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    narrowed(arguments, |resource, text| resource.subresource = text)
}

fn namespace<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    narrowed(arguments, |resource, text| resource.namespace = text)
}

fn name<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    narrowed(arguments, |resource, text| resource.name = text)
}

fn field_selector<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    narrowed(arguments, |resource, text| resource.field_selector = text)
}

fn label_selector<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    narrowed(arguments, |resource, text| resource.label_selector = text)
}

fn check<'a>(arguments: &[Value<'a>], meter: &mut Meter<'_>) -> EvaluationResult<'a> {
    let Some((Opaque::TargetCheck(user, target), verb)) = opaque_and_text(arguments) else {
        return Err(EvalError::NoSuchOverload);
    };
    let check = AuthorizationCheck {
        user: user.clone(),
        verb: verb.to_owned(),
        target: target.clone(),
    };
    match meter.decision(&check) {
        Some(decision) => Ok(Value::opaque(Opaque::Decision(decision.clone()))),
        None => Err(EvalError::PendingAuthorization(Box::new(check))),
    }
}

fn decision<'v>(arguments: &'v [Value<'_>]) -> Result<&'v AuthorizationDecision, EvalError> {
    match arguments {
        [Value::Opaque(opaque)] => match &**opaque {
            Opaque::Decision(decision) => Ok(decision),
            _ => Err(EvalError::NoSuchOverload),
        },
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn errored<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    Ok(Value::Bool(decision(arguments)?.error.is_some()))
}

fn error<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    let error = decision(arguments)?.error.as_deref();
    Ok(Value::string(error.unwrap_or_default()))
}

fn allowed<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    Ok(Value::Bool(decision(arguments)?.allowed))
}

fn reason<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    Ok(Value::string(&*decision(arguments)?.reason))
}
