//! Interprets resources by the Lua scripts of ResourceInterpreterCustomizations.

use std::sync::Arc;

use client::Api;
use machinery::{Gvk, Object};
use openapi::karmada::resources::CUSTOMIZATIONS;
use flotilla_runtime::Informers;

use crate::customizations::{Rule, Table};
use crate::followed::Followed;
use crate::lua::{Arg, Engine, Limits};
use crate::native::Error;
use crate::operation::Operation;
use crate::returned::Returned;

#[derive(Debug)]
pub(crate) struct Customized {
    engine: Engine,
    pub(crate) followed: Arc<Followed<Table>>,
}

impl Customized {
    /// Uses a fixed set of customizations.
    pub(crate) fn fixed(customizations: &[Object], limits: Limits) -> Self {
        Self {
            engine: Engine::new(limits),
            followed: Followed::fixed(customizations),
        }
    }

    /// Watches the customizations of a control plane.
    pub(crate) fn follow(informers: &Informers, api: &Arc<dyn Api>, limits: Limits) -> Self {
        Self {
            engine: Engine::new(limits),
            followed: Followed::follow(informers, api, &CUSTOMIZATIONS),
        }
    }

    pub(crate) fn answers(&self, kind: &Gvk, operation: Operation) -> bool {
        !self.followed.rules().find(kind, operation).is_empty()
    }

    /// Runs the scripts for an operation one after the other; `None` when there is none.
    pub(crate) async fn ask(
        &self,
        operation: Operation,
        kind: &Gvk,
        args: impl FnOnce() -> Vec<Arg>,
    ) -> Option<Result<Vec<Returned>, Error>> {
        let table = Arc::clone(&*self.followed.rules());
        let (last, others) = table.find(kind, operation).split_last()?;
        let args = args();
        let mut all = Vec::with_capacity(others.len() + 1);
        for rule in others {
            match self.call(rule, operation, args.clone()).await {
                Ok(returned) => all.push(returned),
                Err(error) => return Some(Err(error)),
            }
        }
        // Usually the only one: it takes the arguments without a copy.
        let returned = self.call(last, operation, args).await;
        Some(returned.map(|returned| {
            all.push(returned);
            all
        }))
    }

    async fn call(
        &self,
        rule: &Rule,
        operation: Operation,
        args: Vec<Arg>,
    ) -> Result<Returned, Error> {
        let values = self.engine.call(&rule.script, operation, args).await;
        Returned::new(rule, operation, values)
    }
}
