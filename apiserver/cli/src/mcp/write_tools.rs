//! The tools that change objects: each shows first what it will do, and does only that.

use anyhow::bail;
use client::TaskGroup;
use karmada_api::well_known_keys::TAINT_UNSCHEDULABLE;

use super::inputs::{
    ApplyInput, CordonInput, PlanInput, ResourceInput, RolloutAction, RolloutChangeInput,
};
use super::server::{FleetServer, ToolAnswer};
use crate::cluster_taints::change_taints;
use crate::cordon::cordon_change;

impl FleetServer {
    pub(super) async fn apply_policies(
        &self,
        input: ApplyInput,
        tasks: &TaskGroup,
    ) -> anyhow::Result<ToolAnswer> {
        let plan = PlanInput {
            manifest: input.manifest,
            namespace: input.namespace,
        };
        let planned = self.plan_policies(&plan, tasks).await?;
        self.plans.take(&planned.content(), &input.token)?;
        Ok(planned.apply().await?.join("\n").into())
    }

    pub(super) async fn change_rollout(
        &self,
        input: RolloutChangeInput,
        tasks: &TaskGroup,
    ) -> anyhow::Result<ToolAnswer> {
        if input.stage.is_some() && input.action != RolloutAction::Approve {
            bail!("only an approval has a stage");
        }
        let resource = ResourceInput {
            resource: input.resource,
            namespace: input.namespace,
        };
        let rollout = self.read_rollout(resource, tasks).await?;
        let change = match input.action {
            RolloutAction::Pause => rollout.staged().pausing(true)?,
            RolloutAction::Resume => rollout.staged().pausing(false)?,
            RolloutAction::Approve => rollout.staged().approval(input.stage.as_deref())?,
        };
        let content = rollout.staged().content_of(&change)?;
        let Some(token) = input.token else {
            return Ok(ToolAnswer {
                data: format!(
                    "would be done: {}\n\n{}",
                    change.outcome,
                    rollout.status_text()?
                ),
                token: Some(self.plans.show(&content)),
            });
        };
        self.plans.take(&content, &token)?;
        rollout.apply(&change).await?;
        Ok(change.outcome.into())
    }

    pub(super) async fn cordon_cluster(
        &self,
        input: CordonInput,
        tasks: &TaskGroup,
    ) -> anyhow::Result<ToolAnswer> {
        let api = self.arguments.control.connect(tasks)?;
        let cluster = &input.cluster;
        let change = |taints| Ok(cordon_change(cluster, taints, !input.uncordon));
        let preview = change_taints(&*api, cluster, true, change).await?;
        let content = format!(
            "{TAINT_UNSCHEDULABLE}\n{}\n{cluster}\n{preview}",
            input.uncordon
        );
        let Some(token) = input.token else {
            return Ok(ToolAnswer {
                data: format!("would be done: {preview}"),
                token: Some(self.plans.show(&content)),
            });
        };
        self.plans.take(&content, &token)?;
        Ok(change_taints(&*api, cluster, false, change).await?.into())
    }
}
