//! The level of webhooks: rules that other servers keep.
//!
//! configurations ──► [`configurations`] ──► hook ──► [`gate`] ──► [`context`] ──[`Caller`]──► server ──► [`context`] ──► decision
//!
//! Invariants: one hook answers, and its failure is the answer; it has until its deadline,
//! and who waits for it holds up no other object ([`runtime::aside`]). A failure may pass:
//! whoever asked has to ask again.

mod configurations;
mod context;
mod gate;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use client::Api;
use client::webhook::Caller;
use machinery::Gvk;
use openapi::karmada::Dependency;
use openapi::karmada::binding::Component;
use openapi::karmada::resources::WEBHOOK_CONFIGURATIONS;
use runtime::{Informers, aside};
use serde_json::Value;

use crate::followed::Followed;
use crate::native::{Error, Replicas};
use crate::operation::Operation;
use configurations::Hook;
pub(crate) use configurations::Hooks;
use context::Answer;
pub(crate) use context::Question;

/// Applies a JSON patch.
pub type Apply = fn(&Value, &Value) -> Result<Value, String>;

/// What a level of webhooks needs from above.
#[derive(Clone)]
pub struct Outside {
    pub caller: Arc<dyn Caller>,
    pub apply: Apply,
}

pub(crate) struct Webhooks {
    outside: Outside,
    pub(crate) followed: Arc<Followed<Hooks>>,
}

impl fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.followed, f)
    }
}

/// What a hook has said.
pub(crate) struct Said {
    hook: Arc<Hook>,
    answer: Answer,
    /// What it was asked about.
    object: Value,
    apply: Apply,
}

impl Webhooks {
    /// Those of a control plane.
    pub(crate) fn follow(informers: &Informers, api: &Arc<dyn Api>, outside: Outside) -> Self {
        Self {
            outside,
            followed: Followed::follow(informers, api, &WEBHOOK_CONFIGURATIONS),
        }
    }

    pub(crate) fn answers(&self, kind: &Gvk, operation: Operation) -> bool {
        self.followed.rules().find(kind, operation).is_some()
    }

    /// `None` where no hook is asked for the operation.
    pub(crate) async fn ask<'a>(
        &self,
        operation: Operation,
        kind: &Gvk,
        question: impl FnOnce() -> Result<Question<'a>, Error>,
    ) -> Option<Result<Said, Error>> {
        let hook = self.followed.rules().find(kind, operation).cloned()?;
        let mut question = match question() {
            Ok(question) => question,
            Err(error) => return Some(Err(error)),
        };
        name(&mut question.object, kind);
        let answer = self.call(&hook, operation, kind, &question).await;
        Some(match answer {
            Ok(answer) => Ok(Said {
                hook,
                answer,
                object: question.object,
                apply: self.outside.apply,
            }),
            Err(why) => Err(failed(&hook, why)),
        })
    }

    async fn call(
        &self,
        hook: &Hook,
        operation: Operation,
        kind: &Gvk,
        question: &Question<'_>,
    ) -> Result<Answer, String> {
        let place = hook.place.as_ref();
        let place = place.map_err(|why| format!("could not get REST client: {why}"))?;
        let unmade = |why| format!("could not create ResourceInterpreterContext objects: {why}");
        if !hook.understands {
            let why =
                "webhook does not accept known ResourceInterpreterContext versions (v1alpha1)";
            return Err(unmade(why.to_owned()));
        }
        let uid = uuid::Uuid::new_v4().to_string();
        let body = question.body(&uid, kind, operation);
        let body = body.map_err(|e| unmade(e.to_string()))?;
        let uncalled = |why| format!("failed to call webhook: {why}");
        let turn = hook.gate.enter().await.map_err(uncalled)?;
        let call = self.outside.caller.call(place, body, hook.timeout);
        let ended = aside(tokio::time::timeout(hook.timeout, call)).await;
        turn.ended(ended.is_ok());
        let body = match ended {
            Ok(answered) => answered.map_err(uncalled)?,
            Err(_) => {
                let why = format!("no answer within {}s", hook.timeout.as_secs());
                return Err(uncalled(why));
            }
        };
        context::read(&uid, operation, &body)
    }
}

fn failed(hook: &Hook, why: String) -> Error {
    Error::Webhook {
        hook: hook.uid.clone(),
        why,
    }
}

/// Objects of lists do not say what they are.
fn name(object: &mut Value, kind: &Gvk) {
    if let Value::Object(fields) = object {
        let version = || kind.api_version().into();
        fields.entry("apiVersion").or_insert_with(version);
        fields.entry("kind").or_insert_with(|| (&*kind.kind).into());
    }
}

impl Said {
    fn told<T>(
        self,
        what: impl FnOnce(Answer, Value, Apply) -> Result<T, String>,
    ) -> Result<T, Error> {
        what(self.answer, self.object, self.apply).map_err(|why| failed(&self.hook, why))
    }

    pub(crate) fn replicas(self) -> Result<Replicas, Error> {
        self.told(|answer, _, _| answer.replicas())
    }

    pub(crate) fn components(self) -> Result<Vec<Component>, Error> {
        self.told(|answer, _, _| answer.components())
    }

    pub(crate) fn dependencies(self) -> Vec<Dependency> {
        self.answer.dependencies()
    }

    pub(crate) fn status(self) -> Option<Value> {
        self.answer.status()
    }

    pub(crate) fn healthy(self) -> Option<bool> {
        self.answer.healthy()
    }

    /// The object, as the hook wants it.
    pub(crate) fn object(self) -> Result<Value, Error> {
        self.told(Answer::patched)
    }
}
