//! The built-in rules: those of third-party kinds, then the native ones.

use jiff::Timestamp;
use karmada_api::DependentObjectReference;
use karmada_api::binding::Component;
use machinery::{Gvk, Object};
use serde_json::{Value, json};

use crate::native::pod_template::object_json;
use crate::native::{CollectedStatus, Error, NativeInterpreter, TemplateReplicas};
use crate::thirdparty::ThirdPartyInterpreter;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BuiltInInterpreter;

/// Applies a rule to the JSON of an object, if its kind is a third-party kind with rules.
fn apply_third_party_rule<T>(
    kind: &Gvk,
    object: &Object,
    what: &'static str,
    rule: impl FnOnce(&Value) -> Result<Option<T>, Error>,
) -> Result<Option<T>, Error> {
    if !ThirdPartyInterpreter.has_rules(kind) {
        return Ok(None);
    }
    rule(&object_json(object, what)?)
}

impl BuiltInInterpreter {
    pub(crate) fn replicas(
        &self,
        kind: &Gvk,
        template: &Object,
    ) -> Result<Option<TemplateReplicas>, Error> {
        match apply_third_party_rule(kind, template, "replicas", |t| {
            ThirdPartyInterpreter.replicas(kind, t)
        })? {
            None => NativeInterpreter.replicas(kind, template),
            replicas => Ok(replicas),
        }
    }

    /// No native kind has components.
    pub(crate) fn components(
        &self,
        kind: &Gvk,
        template: &Object,
    ) -> Result<Option<Vec<Component>>, Error> {
        apply_third_party_rule(kind, template, "components", |t| {
            ThirdPartyInterpreter.components(kind, t)
        })
    }

    pub(crate) fn dependencies(
        &self,
        kind: &Gvk,
        template: &Object,
    ) -> Result<Option<Vec<DependentObjectReference>>, Error> {
        let rule = |t: &Value| ThirdPartyInterpreter.dependencies(kind, t);
        match apply_third_party_rule(kind, template, "dependencies", rule)? {
            None => NativeInterpreter.dependencies(kind, template),
            dependencies => Ok(dependencies),
        }
    }

    pub(crate) fn priority_class(
        &self,
        kind: &Gvk,
        template: &Object,
    ) -> Result<Option<String>, Error> {
        NativeInterpreter.priority_class(kind, template)
    }

    pub(crate) fn revise_replica(
        &self,
        kind: &Gvk,
        mut copy: Value,
        replicas: i64,
    ) -> Result<Value, Error> {
        if let Some(revised) = ThirdPartyInterpreter.revise_replica(kind, &copy, replicas)? {
            return Ok(revised);
        }
        NativeInterpreter.revise_replica(kind, &mut copy, replicas)?;
        Ok(copy)
    }

    pub(crate) fn retain(
        &self,
        kind: &Gvk,
        mut desired: Value,
        observed: &Value,
    ) -> Result<Value, Error> {
        if let Some(retained) = ThirdPartyInterpreter.retain(kind, &desired, observed)? {
            return Ok(retained);
        }
        NativeInterpreter.retain(kind, &mut desired, observed)?;
        Ok(desired)
    }

    /// Whether a kind has a health rule.
    pub(crate) fn has_health_rule(&self, kind: &Gvk) -> bool {
        ThirdPartyInterpreter.has_health_rule(kind) || NativeInterpreter.has_health_rule(kind)
    }

    pub(crate) fn interpret_health(
        &self,
        kind: &Gvk,
        observed: &Object,
    ) -> Result<Option<bool>, Error> {
        match apply_third_party_rule(kind, observed, "health", |o| {
            ThirdPartyInterpreter.interpret_health(kind, o)
        })? {
            None => NativeInterpreter.interpret_health(kind, observed),
            healthy => Ok(healthy),
        }
    }

    pub(crate) fn reflect_status(
        &self,
        kind: &Gvk,
        observed: &Object,
    ) -> Result<Option<Value>, Error> {
        match apply_third_party_rule(kind, observed, "status", |o| {
            Ok(ThirdPartyInterpreter.reflect_status(kind, o))
        })? {
            None => NativeInterpreter.reflect_status(kind, observed),
            status => Ok(status),
        }
    }

    /// The aggregated status of a template.
    pub(crate) fn aggregate_status(
        &self,
        kind: &Gvk,
        template: &Object,
        items: &[CollectedStatus<'_>],
        now: Timestamp,
    ) -> Result<Option<Value>, Error> {
        match aggregate_third_party(kind, template, Some(items), now)? {
            None => NativeInterpreter.aggregate_status(kind, template, items, now),
            Some(mut result) => {
                let status = result.get_mut("status").map(Value::take);
                Ok(Some(status.unwrap_or_else(|| json!({}))))
            }
        }
    }

    /// The template with its aggregated status.
    pub(crate) fn with_aggregated_status(
        &self,
        kind: &Gvk,
        template: &Object,
        items: Option<&[CollectedStatus<'_>]>,
        now: Timestamp,
    ) -> Result<Option<Value>, Error> {
        if let Some(result) = aggregate_third_party(kind, template, items, now)? {
            return Ok(Some(result));
        }
        let items = items.unwrap_or_default();
        let Some(status) = NativeInterpreter.aggregate_status(kind, template, items, now)? else {
            return Ok(None);
        };
        let mut result = object_json(template, "template")?;
        if let Some(fields) = result.as_object_mut() {
            fields.insert("status".to_owned(), status);
        }
        Ok(Some(result))
    }
}

fn aggregate_third_party(
    kind: &Gvk,
    template: &Object,
    items: Option<&[CollectedStatus<'_>]>,
    now: Timestamp,
) -> Result<Option<Value>, Error> {
    apply_third_party_rule(kind, template, "status", |t| {
        ThirdPartyInterpreter.aggregate_status(kind, t, items, now)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::fixtures::object;

    // proves: CRD-before-native
    #[test]
    fn third_party_kind_without_a_rule_falls_back_to_native() {
        let (cron, deployment) = (
            Gvk::from_static("apps.kruise.io", "v1alpha1", "AdvancedCronJob"),
            Gvk::from_static("apps", "v1", "Deployment"),
        );
        let status = json!({"type": "Job", "odd": 1});
        let copy =
            object(json!({"metadata": {"name": "x"}, "spec": {"replicas": 2}, "status": status}));
        assert_eq!(
            BuiltInInterpreter.reflect_status(&cron, &copy).unwrap(),
            Some(status.clone())
        );
        assert_eq!(
            BuiltInInterpreter.interpret_health(&cron, &copy).unwrap(),
            None
        );
        assert_eq!(BuiltInInterpreter.replicas(&cron, &copy).unwrap(), None);
        assert_eq!(
            BuiltInInterpreter
                .replicas(&deployment, &copy)
                .unwrap()
                .unwrap()
                .count,
            2
        );
        let items = [CollectedStatus::new("a", Some(&status))];
        let now = Timestamp::UNIX_EPOCH;
        let result = BuiltInInterpreter
            .aggregate_status(&cron, &copy, &items, now)
            .unwrap();
        assert_eq!(result, Some(json!({"type": "Job", "odd": 1})));
        let result = BuiltInInterpreter
            .with_aggregated_status(&cron, &copy, Some(&items), now)
            .unwrap();
        assert_eq!(result.unwrap()["spec"], json!({"replicas": 2}));
        let empty = BuiltInInterpreter
            .with_aggregated_status(&cron, &copy, Some(&[]), now)
            .unwrap();
        assert_eq!(empty.unwrap()["status"]["type"], "");
        let none = BuiltInInterpreter
            .with_aggregated_status(&cron, &copy, None, now)
            .unwrap();
        assert_eq!(none.unwrap()["status"]["type"], "Job");
    }

    // proves: CRD-before-native
    #[test]
    fn third_party_kind_uses_its_own_rules() {
        let set = Gvk::from_static("apps.kruise.io", "v1alpha1", "CloneSet");
        let revised = BuiltInInterpreter
            .revise_replica(&set, json!({"spec": {}}), 3)
            .unwrap();
        assert_eq!(revised, json!({"spec": {"replicas": 3}}));
        let release = Gvk::from_static("helm.toolkit.fluxcd.io", "v2beta1", "HelmRelease");
        let observed = json!({"spec": {"suspend": true}});
        let retained = BuiltInInterpreter.retain(&release, json!({"spec": {"a": 1}}), &observed);
        assert_eq!(
            retained.unwrap(),
            json!({"spec": {"a": 1, "suspend": true}})
        );
        let broken = object(json!({"metadata": {"name": "x"}, "spec": {}}));
        let error = BuiltInInterpreter
            .replicas(&set, &broken)
            .unwrap_err()
            .to_string();
        assert_eq!(error, "spec.replicas: a number is needed");
        let job = Gvk::from_static("ray.io", "v1", "RayJob");
        assert_eq!(
            BuiltInInterpreter.components(&job, &broken).unwrap(),
            Some(Vec::new())
        );
    }
}
