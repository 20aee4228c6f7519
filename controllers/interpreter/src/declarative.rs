//! Interprets resources by the Lua scripts of ResourceInterpreterCustomizations.

use std::sync::Arc;

use client::{Api, InformerFactory};
use karmada_api::resources::CUSTOMIZATIONS;
use machinery::{Gvk, Object};

use crate::config_manager::ConfigManager;
use crate::customizations::{CustomizationScript, ScriptIndex};
use crate::lua::{LuaArg, LuaEngine, LuaLimits};
use crate::native::Error;
use crate::operation::InterpreterOperation;
use crate::script_result::ScriptResult;

#[derive(Debug)]
pub(crate) struct DeclarativeInterpreter {
    engine: LuaEngine,
    pub(crate) config: Arc<ConfigManager<ScriptIndex>>,
}

impl DeclarativeInterpreter {
    /// Uses a fixed set of customizations.
    pub(crate) fn from_customizations(customizations: &[Object], limits: LuaLimits) -> Self {
        Self {
            engine: LuaEngine::new(limits),
            config: ConfigManager::from_objects(customizations),
        }
    }

    /// Watches the customizations of a control plane.
    pub(crate) fn watch(
        informers: &InformerFactory,
        api: &Arc<dyn Api>,
        limits: LuaLimits,
    ) -> Self {
        Self {
            engine: LuaEngine::new(limits),
            config: ConfigManager::watch(informers, api, &CUSTOMIZATIONS),
        }
    }

    pub(crate) fn hook_enabled(&self, kind: &Gvk, operation: InterpreterOperation) -> bool {
        !self.config.rules().find(kind, operation).is_empty()
    }

    /// Runs the scripts for an operation one after the other; `None` when there is none.
    pub(crate) async fn run_scripts(
        &self,
        operation: InterpreterOperation,
        kind: &Gvk,
        args: impl FnOnce() -> Vec<LuaArg>,
    ) -> Option<Result<Vec<ScriptResult>, Error>> {
        let table = Arc::clone(&*self.config.rules());
        let (last, others) = table.find(kind, operation).split_last()?;
        let args = args();
        let mut all = Vec::with_capacity(others.len() + 1);
        for rule in others {
            match self.run_script(rule, operation, args.clone()).await {
                Ok(returned) => all.push(returned),
                Err(error) => return Some(Err(error)),
            }
        }
        // Usually the only one: it takes the arguments without a copy.
        let returned = self.run_script(last, operation, args).await;
        Some(returned.map(|returned| {
            all.push(returned);
            all
        }))
    }

    async fn run_script(
        &self,
        rule: &CustomizationScript,
        operation: InterpreterOperation,
        args: Vec<LuaArg>,
    ) -> Result<ScriptResult, Error> {
        let values = self.engine.call(&rule.script, operation, args).await;
        ScriptResult::new(rule, operation, values)
    }
}
