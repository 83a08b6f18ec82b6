//! What a call of a run may touch: by the rules, the mode and the run's policy, and by the sandbox.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use mcode_events::run::ApprovalPolicy;
use mcode_permissions::{Access, Category, DecideInput, Decision, Mode, Unconfined, Verdict};
use mcode_tools::{CallBounds, Reach, ToolSpec};

use crate::drive::{RunContext, RunServices};

/// The run's mode.
pub(crate) fn mode(context: &RunContext) -> Mode {
    Mode::of_log(&context.options.mode)
}

/// What a call of this tool may touch.
pub(crate) fn call_bounds(services: &RunServices, context: &RunContext, spec: &ToolSpec) -> CallBounds {
    let network = [Access::Unconfined(Unconfined::Network)];
    let add_dirs: Vec<PathBuf> = context.options.add_dirs.iter().map(Into::into).collect();
    let home = context.tool_env.get("HOME").map(Path::new);
    let reach = Reach {
        project_root: context.project_root.clone(),
        denied: services.rules.now().denied_paths(&context.project_root, &add_dirs, home),
        add_dirs,
        looking_only: mode(context) != Mode::Build,
        // A rule gives it to all commands. A run that allows everything gives it only to those that ask: the others, and
        // what they run of other people's code, do without.
        network: spec.category == Category::Execute
            && judged(services, context, spec, &network, (ApprovalPolicy::Ask, false)).verdict == Verdict::Allow,
    };
    CallBounds::new(Arc::clone(&services.bounds), context.thread_id, reach, Arc::clone(&context.tool_env))
}

/// What the rules, the mode and the run's policy say about these effects of a tool. `shielded` as in
/// [`mcode_tools::CallBounds::shields`].
pub(crate) fn decide(
    services: &RunServices,
    context: &RunContext,
    spec: &ToolSpec,
    accesses: &[Access],
    shielded: bool,
) -> Decision {
    judged(services, context, spec, accesses, (context.options.approval, shielded))
}

fn judged(
    services: &RunServices,
    context: &RunContext,
    spec: &ToolSpec,
    accesses: &[Access],
    (policy, shielded): (ApprovalPolicy, bool),
) -> Decision {
    let extra_dirs: Vec<PathBuf> = context.options.add_dirs.iter().map(Into::into).collect();
    services.rules.now().decide(&DecideInput { policy, shielded, ..input(context, spec, accesses, &extra_dirs) })
}

/// What is to be decided about these effects.
pub(crate) fn input<'a>(
    context: &'a RunContext,
    spec: &'a ToolSpec,
    accesses: &'a [Access],
    extra_dirs: &'a [PathBuf],
) -> DecideInput<'a> {
    DecideInput {
        tool: spec.name,
        category: spec.category,
        accesses,
        mode: mode(context),
        policy: context.options.approval,
        project_root: &context.project_root,
        extra_dirs,
        home: context.tool_env.get("HOME").map(Path::new),
        shielded: false,
    }
}
