//! One event of every kind, and small random numbers.

use mcode_events::event::{ApprovalOutcome, ApprovalRequest, Event, EventBody, Question};
use mcode_events::run::{ApprovalPolicy, RunLimits, ThinkingLevel};
use mcode_events::tool::FileVersion;
use mcode_events::{
    BlobRef, ChangedFile, Changes, Checkpoint, Delivery, Message, Opaque, Origin, Part, Plan, PlanOutcome, ResultPart,
    Role, RunError, RunErrorKind, RunOptions, RunStatus, TaskItem, TaskStatus, ToolCall, ToolCallStatus, ToolResult,
    Usage,
};
use mcode_ids::{RunId, Seq, ThreadId, TurnId};
use serde_json::json;

/// The id of some kind with this number in it.
pub fn id<T: std::str::FromStr>(prefix: &str, number: u64) -> T
where
    T::Err: std::fmt::Debug,
{
    format!("{prefix}0190000000007000800000000000{number:04x}").parse().expect("an id")
}

pub fn thread() -> ThreadId {
    id(ThreadId::PREFIX, 1)
}

pub fn run() -> RunId {
    id(RunId::PREFIX, 2)
}

pub fn turn() -> TurnId {
    id(TurnId::PREFIX, 3)
}

/// The event at `seq`, of the one run and turn of these tests.
pub fn event(seq: u64, body: EventBody) -> Event {
    let at_ms = 978_307_200_000 + i64::try_from(seq).unwrap();
    Event { thread_id: thread(), seq: Seq::new(seq), at_ms, run_id: Some(run()), turn_id: Some(turn()), body }
}

fn usage() -> Usage {
    Usage {
        input_tokens: 1200,
        output_tokens: 34,
        cache_read_tokens: 5000,
        cache_write_tokens: 600,
        reasoning_tokens: 7,
        cost_usd: 0.0125,
    }
}

fn options() -> RunOptions {
    RunOptions {
        model: "anthropic/claude-sonnet-4-5".into(),
        mode: "build".into(),
        thinking: Some(ThinkingLevel::High),
        approval: ApprovalPolicy::Ask,
        interactive: true,
        limits: RunLimits {
            max_steps: Some(50),
            max_tokens: Some(1_000_000),
            max_cost_usd: Some(2.5),
            max_time_ms: Some(600_000),
        },
        cwd: "/home/me/project".into(),
        add_dirs: vec!["/home/me/other".into()],
        answer_schema: Some(json!({"type": "object"})),
        trigger: Default::default(),
        model_given: false,
        detached: false,
        goal_id: None,
        kept: None,
        key_source: String::new(),
    }
}

fn blob() -> BlobRef {
    BlobRef { hash: "af13".repeat(16), size_bytes: 68, media_type: "image/png".into() }
}

/// Every kind of part that a message can have.
fn message() -> Message {
    Message {
        item_id: id("itm_", 4),
        role: Role::Assistant,
        parts: vec![
            Part::Thinking { text: "hm".into(), opaque: Some(Opaque(json!({"signature": "c2ln"}))) },
            Part::RedactedThinking { opaque: Opaque(json!({"data": "eHl6"})) },
            Part::text("I look at it.\n\u{1F980}"),
            Part::Media { blob: blob(), name: "shot.png".into() },
            Part::ToolCall {
                tool_call_id: id("tc_", 5),
                provider_call_id: "toolu_01".into(),
                name: "shell".into(),
                arguments: json!({"command": "cargo test"}),
                opaque: None,
            },
            Part::Provider { opaque: Opaque(json!({"type": "server_tool_use", "id": "srvtoolu_1"})) },
        ],
        origin: Some(Origin {
            provider: "anthropic".into(),
            wire: "anthropic".into(),
            model: "claude-sonnet-4-5".into(),
        }),
    }
}

fn result() -> ToolResult {
    ToolResult {
        tool_call_id: id("tc_", 5),
        status: ToolCallStatus::Failed,
        content: vec![
            ResultPart::Text { text: "1 failed\n[exit code 101]".into() },
            ResultPart::Media { blob: blob(), name: "plot.png".into() },
        ],
        preview: "exit 101 in 0.4 s".into(),
        exit_code: Some(101),
        files: vec![
            FileVersion { path: "/home/me/project/a.rs".into(), hash: Some("0b".repeat(32)) },
            FileVersion { path: "/home/me/project/gone.rs".into(), hash: None },
        ],
        diff: Some("--- a/a.rs\n+++ b/a.rs\n".into()),
    }
}

fn approval() -> ApprovalRequest {
    ApprovalRequest {
        approval_id: id("apr_", 6),
        tool_call_id: id("tc_", 5),
        tool: "shell".into(),
        arguments: json!({"command": "git push"}),
        preview: "git push".into(),
        why: "no rule decides it".into(),
        deadline_ms: Some(978_393_600_000),
        proposed_rule: Some("shell(git push)".into()),
        owners: Vec::new(),
    }
}

/// One of every kind, in the order of a life: what is begun is ended, and comes after what it needs.
pub fn one_of_each() -> Vec<EventBody> {
    let error = RunError {
        kind: RunErrorKind::Model,
        reason: "MODEL_OVERLOADED".into(),
        message: "anthropic is overloaded".into(),
        hint: "try again later".into(),
    };
    vec![
        EventBody::ThreadCreated {
            project_id: id("prj_", 7),
            cwd: "/home/me/project".into(),
            root: String::new(),
            title: "mend the tests".into(),
            model: "anthropic/claude-sonnet-4-5".into(),
            mode: "build".into(),
            ephemeral: false,
        },
        EventBody::ThreadForked { parent_id: id("thr_", 12), parent_seq: Seq::new(1), title: "mend the tests".into() },
        EventBody::TitleChanged { title: "mend all tests".into() },
        EventBody::ModeChanged { mode: "plan".into() },
        EventBody::ModelChanged { model: "openai/gpt-5".into() },
        EventBody::ArchivedChanged { archived: true },
        EventBody::PinnedChanged { pinned: true },
        EventBody::TagsChanged { tags: vec!["tests".into(), "later".into()] },
        EventBody::RunStarted { options: options() },
        EventBody::TurnStarted { turn_id: turn() },
        EventBody::InputQueued {
            input_id: id("inp_", 8),
            delivery: Delivery::Steer,
            parts: vec![Part::text("use the other file")],
        },
        EventBody::InputTaken { input_id: id("inp_", 8), delivered: true },
        EventBody::StepStarted { step_id: id("stp_", 9), model: "openai/gpt-5".into() },
        EventBody::MessageStarted { item_id: id("itm_", 10), role: Role::Assistant },
        EventBody::MessageCheckpointed { item_id: id("itm_", 10), text: "I lo".into(), thinking: "hm".into() },
        EventBody::MessageDiscarded {
            item_id: id("itm_", 10),
            status: RunStatus::Interrupted,
            text: "I lo".into(),
            reason: "the daemon ended while it ran".into(),
        },
        EventBody::MessageFinished { message: message() },
        EventBody::HistoryEased {
            model: "openai/gpt-5".into(),
            ease: mcode_events::Ease { pictures: 3, results: 5, messages: 2 },
        },
        EventBody::UsageRecorded {
            model: "openai/gpt-5".into(),
            usage: usage(),
            purpose: Default::default(),
            priced: false,
            goal_id: None,
        },
        EventBody::ToolCallStarted {
            call: ToolCall {
                tool_call_id: id("tc_", 5),
                name: "shell".into(),
                arguments: json!({"command": "cargo test"}),
            },
            item_id: id("itm_", 4),
        },
        EventBody::ApprovalRequested { request: approval() },
        EventBody::status(RunStatus::Waiting),
        EventBody::ApprovalResolved {
            approval_id: id("apr_", 6),
            outcome: ApprovalOutcome::AllowedAlways,
            by: "user".into(),
            reason: "go".into(),
        },
        EventBody::ToolCallBegun { tool_call_id: id("tc_", 5) },
        EventBody::RunResumed {},
        EventBody::QuestionAsked {
            question: Question {
                question_id: id("qst_", 11),
                tool_call_id: id("tc_", 5),
                question: "which one?".into(),
                options: vec!["a".into(), "b".into()],
                multiple: false,
            },
        },
        EventBody::QuestionAnswered { question_id: id("qst_", 11), answer: Some("a".into()) },
        EventBody::ProcessStarted {
            process_id: id("prc_", 12),
            tool_call_id: id("tc_", 5),
            pid: 4242,
            started_ticks: 987_654,
            command: "cargo test".into(),
            background: true,
        },
        EventBody::ProcessExited { process_id: id("prc_", 12), exit_code: Some(101), reason: "exit code 101".into() },
        EventBody::TasksChanged {
            items: vec![TaskItem {
                id: "1".into(),
                content: "run the tests".into(),
                status: TaskStatus::InProgress,
                active_form: Some("running the tests".into()),
            }],
        },
        EventBody::ToolCallFinished { name: "shell".into(), result: result() },
        EventBody::PlanSubmitted {
            plan: Plan {
                tool_call_id: id("tc_", 5),
                path: ".mcode/plans/mend.md".into(),
                title: "Mend it".into(),
                content: BlobRef { hash: "0f".repeat(32), size_bytes: 12, media_type: "text/markdown".into() },
            },
        },
        EventBody::PlanSettled { tool_call_id: id("tc_", 5), outcome: PlanOutcome::Changes, comment: "shorter".into() },
        EventBody::CheckpointTaken {
            checkpoint: Checkpoint {
                checkpoint_id: id("chk_", 13),
                root: "/elsewhere".into(),
                before: Some("0c".repeat(32)),
                snapshot: "0d".repeat(32),
                tool_call_id: Some(id("tc_", 5)),
                changes: Changes {
                    added: 1,
                    modified: 0,
                    deleted: 0,
                    files: vec![ChangedFile { path: "a.rs".into(), change: "added".into() }],
                },
            },
        },
        EventBody::FilesRestored { before: "0e".repeat(32), files: vec!["a.rs".into()], left: 2 },
        EventBody::Notice { level: "warning".into(), text: "the answer was cut".into() },
        EventBody::StepFinished { step_id: id("stp_", 9), status: RunStatus::Done, stop_reason: "tool_use".into() },
        EventBody::TurnFinished { turn_id: turn(), status: RunStatus::Failed },
        EventBody::RunFinished {
            status: RunStatus::Failed,
            error: Some(error),
            usage: usage(),
            structured: Some(json!({"ok": false})),
        },
        EventBody::Rewound {
            to_seq: Seq::new(1000),
            tasks: vec![TaskItem {
                id: "1".into(),
                content: "run the tests".into(),
                status: TaskStatus::InProgress,
                active_form: None,
            }],
        },
    ]
}

/// Small random numbers that a seed repeats.
pub struct Dice(pub u64);

impl Dice {
    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 8).unwrap() % bound.max(1)
    }
}
