//! The tools that change objects: each shows first what it will do, and does only that.

use anyhow::{bail, ensure};
use client::TaskGroup;
use karmada_api::well_known_keys::TAINT_UNSCHEDULABLE;

use super::inputs::{
    ApplyInput, CordonInput, PlanInput, ResourceInput, RolloutAction, RolloutChangeInput,
};
use super::server::{FleetServer, ToolAnswer};
use crate::cluster_taints::change_taints;
use crate::conflicts::retry_on_conflict;
use crate::cordon::cordon_change;
use crate::rollout::decisions::{ApprovalTarget, StagedTemplate};

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
        let content = self.plan_policies(&plan, tasks).await?.content()?;
        self.plans.take(&content, &input.token)?;
        let applied = retry_on_conflict(|| async {
            let planned = self.plan_policies(&plan, tasks).await?;
            ensure!(
                planned.content()? == content,
                "the policies, or what they would do, have changed meanwhile; plan them again"
            );
            planned.apply().await
        });
        Ok(applied.await?.join("\n").into())
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
        let decision = |staged: &StagedTemplate<'_>| match input.action {
            RolloutAction::Pause => staged.pausing(true),
            RolloutAction::Resume => staged.pausing(false),
            RolloutAction::Approve => staged.approval(ApprovalTarget {
                stage: input.stage.as_deref(),
                without_clusters: false,
            }),
        };
        let change = decision(&rollout.staged())?;
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
        let applied = rollout.apply_decision(|staged| {
            let change = decision(staged)?;
            ensure!(
                staged.content_of(&change)? == content,
                "the rollout has changed meanwhile; nothing was changed, show it again"
            );
            Ok(change)
        });
        Ok(applied.await?.into())
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
