//! Limits of a run (pure).

use mcode_events::run::{RunError, RunErrorKind, RunLimits, RunRecord};

/// The most steps of a run that set no limit of its own.
pub const STEPS_MAX: u32 = 1000;

/// Whether a run may begin another step; the error says which limit was reached and how to raise it.
pub fn check(limits: &RunLimits, run: &RunRecord) -> Result<(), RunError> {
    let max_steps = limits.max_steps.unwrap_or(STEPS_MAX).min(STEPS_MAX);
    if run.steps >= max_steps {
        let message = format!("the limit of {max_steps} steps was reached");
        return Err(reached("STEP_LIMIT", message, "--max-steps", "max_steps_per_run"));
    }
    check_spending(limits, run)
}

/// Whether a run may send another request within its step.
pub fn check_spending(limits: &RunLimits, run: &RunRecord) -> Result<(), RunError> {
    let tokens = run.usage.total_tokens();
    if let Some(max) = limits.max_tokens.filter(|max| tokens >= *max) {
        return Err(reached(
            "TOKEN_LIMIT",
            format!("the limit of {max} tokens was reached ({tokens} used)"),
            "--max-tokens",
            "max_tokens_per_run",
        ));
    }
    let cost = run.usage.cost_usd;
    if let Some(max) = limits.max_cost_usd.filter(|max| cost >= *max) {
        return Err(reached(
            "COST_LIMIT",
            format!("the limit of ${max:.2} was reached (${cost:.4} spent)"),
            "--max-cost",
            "max_cost_per_run",
        ));
    }
    Ok(())
}

fn reached(reason: &str, message: String, flag: &str, setting: &str) -> RunError {
    RunError {
        kind: RunErrorKind::Limit,
        reason: reason.to_owned(),
        message,
        hint: format!("raise it with {flag}, or {setting} under [limits] in config.toml, then go on with --thread"),
    }
}

#[cfg(test)]
mod tests {
    use mcode_env::{IdGen, SeededIds};
    use mcode_events::run::{ApprovalPolicy, RunOptions, RunStatus};
    use mcode_events::usage::Usage;
    use mcode_ids::RunId;

    use super::*;

    fn record(steps: u32, output_tokens: u64, cost_usd: f64) -> RunRecord {
        RunRecord {
            run_id: RunId::from_uuid(SeededIds::new(1).next()),
            options: RunOptions {
                model: String::new(),
                mode: String::new(),
                thinking: None,
                approval: ApprovalPolicy::Ask,
                interactive: false,
                limits: RunLimits::default(),
                cwd: String::new(),
                add_dirs: Vec::new(),
                answer_schema: None,
                trigger: Default::default(),
                model_given: false,
                detached: false,
                goal_id: None,
                kept: None,
                key_source: String::new(),
            },
            status: RunStatus::Running,
            started_at_ms: 0,
            ended_at_ms: None,
            error: None,
            steps,
            resumed: 0,
            parked: None,
            usage: Usage { output_tokens, cost_usd, ..Usage::default() },
        }
    }

    #[test]
    fn each_limit_is_named_when_reached() {
        let none = RunLimits::default();
        assert_eq!(check(&none, &record(STEPS_MAX - 1, 0, 0.0)), Ok(()));
        assert_eq!(check(&none, &record(STEPS_MAX, 0, 0.0)).unwrap_err().reason, "STEP_LIMIT");
        let steps = RunLimits { max_steps: Some(2), ..none };
        assert_eq!(check(&steps, &record(1, 0, 0.0)), Ok(()));
        assert_eq!(check(&steps, &record(2, 0, 0.0)).unwrap_err().message, "the limit of 2 steps was reached");
        let tokens = RunLimits { max_tokens: Some(10), ..none };
        assert_eq!(check(&tokens, &record(0, 9, 0.0)), Ok(()));
        assert_eq!(check(&tokens, &record(0, 10, 0.0)).unwrap_err().reason, "TOKEN_LIMIT");
        let cost = RunLimits { max_cost_usd: Some(0.5), ..none };
        assert_eq!(check(&cost, &record(0, 0, 0.49)), Ok(()));
        assert_eq!(check(&cost, &record(0, 0, 0.5)).unwrap_err().kind, RunErrorKind::Limit);
    }
}
