//! What a call of a run may touch: by the rules, the mode and the run's policy, and by the sandbox.

use std::sync::Arc;

use mcode_events::run::ApprovalPolicy;
use mcode_permissions::{Access, Category, DecideInput, Decision, Mode, Unconfined, Verdict};
use mcode_tools::{CallBounds, Reach, ToolSpec};

use crate::drive::{RunContext, RunServices};

fn mode(context: &RunContext) -> Mode {
    match context.options.mode.as_str() {
        "plan" => Mode::Plan,
        "explore" => Mode::Explore,
        _ => Mode::Build,
    }
}

/// What a call of this tool may touch.
pub(crate) fn call_bounds(services: &RunServices, context: &RunContext, spec: &ToolSpec) -> CallBounds {
    let network = [Access::Unconfined(Unconfined::Network)];
    let reach = Reach {
        project_root: context.project_root.clone(),
        add_dirs: context.options.add_dirs.iter().map(Into::into).collect(),
        looking_only: mode(context) != Mode::Build,
        // A rule gives it to all commands. A run that allows everything gives it only to those that ask: the others, and
        // what they run of other people's code, do without.
        network: spec.category == Category::Execute
            && judged(services, context, spec, &network, ApprovalPolicy::Ask).verdict == Verdict::Allow,
    };
    CallBounds::new(Arc::clone(&services.bounds), context.thread_id, reach, Arc::clone(&context.tool_env))
}

/// What the rules, the mode and the run's policy say about these effects of a tool.
pub(crate) fn decide(services: &RunServices, context: &RunContext, spec: &ToolSpec, accesses: &[Access]) -> Decision {
    judged(services, context, spec, accesses, context.options.approval)
}

fn judged(
    services: &RunServices,
    context: &RunContext,
    spec: &ToolSpec,
    accesses: &[Access],
    policy: ApprovalPolicy,
) -> Decision {
    let extra_dirs: Vec<std::path::PathBuf> = context.options.add_dirs.iter().map(Into::into).collect();
    services.rules.decide(&DecideInput {
        tool: spec.name,
        category: spec.category,
        accesses,
        mode: mode(context),
        policy,
        project_root: &context.project_root,
        extra_dirs: &extra_dirs,
        home: context.tool_env.get("HOME").map(std::path::Path::new),
    })
}
