//! One run against a thread that keeps its events in memory, with models that answer from a script.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mcode_agent::gates::Standing;
use mcode_agent::{
    AgentSignal, Gates, LiveLane, LiveRules, RunContext, RunOutcome, RunPort, RunSecrets, RunServices, RunSnapshots,
    Treasury, drive,
};
use mcode_env::{IdGen, ManualClock, SeededIds};
use mcode_events::blob::{BlobError, BlobRef, Blobs};
use mcode_events::run::{ApprovalPolicy, RunLimits, RunOptions, RunStatus};
use mcode_events::{Event, EventBody, NewEvent, Origin, Part, ThreadState};
use mcode_ids::{RunId, ThreadId, TurnId};
use mcode_models::budget::{Cap, CapScope};
use mcode_models::governor::{Limited, Priority};
use mcode_models::retry::RetryPolicy;
use mcode_models::{
    Access, Assigned, ListedModel, ModelError, ModelErrorKind, ModelInfo, ModelProvider, ModelRef, ModelRegistry,
    ModelRequest, ModelStream, Pricing, ResolvedModel, Response, Role, StopReason, StreamEvent, Wire, Wishes,
};
use mcode_permissions::RuleSet;
use mcode_tools::bounds::Settings;
use mcode_tools::{Bounds, FileLedger, OwnPlaces, ToolSet};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// How a model answers, by its name: `ok`, `quota` (used up), `endless`, `nokey` (can not be asked).
#[derive(Debug)]
struct Models;

#[derive(Debug)]
struct Speaker;

impl ModelProvider for Speaker {
    fn stream(&self, request: ModelRequest, _cancel: CancellationToken) -> ModelStream {
        match request.model.model.as_str() {
            "quota" => {
                Box::pin(futures::stream::iter([Err(ModelError::new(ModelErrorKind::Quota, "the credit is used up"))]))
            }
            "endless" => Box::pin(futures::stream::repeat_with(|| Ok(StreamEvent::TextDelta("x".repeat(1 << 20))))),
            name => {
                let origin = Origin { provider: "fake".into(), wire: "openai-chat".into(), model: name.into() };
                let response = Response {
                    parts: vec![Part::text(format!("said by {name}"))],
                    origin,
                    model: name.into(),
                    response_id: "r".into(),
                    stop: StopReason::Stop,
                    stop_raw: "stop".into(),
                    usage: None,
                };
                Box::pin(futures::stream::iter([Ok(StreamEvent::Finished(Box::new(response)))]))
            }
        }
    }
}

impl ModelRegistry for Models {
    fn resolve(&self, model: &str, _env: &BTreeMap<String, String>) -> Result<ResolvedModel, ModelError> {
        let model: ModelRef = model.parse().unwrap();
        if model.model == "nokey" {
            return Err(ModelError::new(ModelErrorKind::Auth, "there is no key for 'fake'"));
        }
        let access = Access {
            provider: model.provider.clone(),
            wire: Wire::OpenaiChat,
            base_url: "http://127.0.0.1:1".into(),
            key: None,
            key_source: None,
            key_place: mcode_models::KeyPlace::Usual,
            headers: BTreeMap::new(),
            network_env: BTreeMap::new(),
            identity_env: BTreeMap::new(),
            key_word: "none".into(),
            withheld: None,
            idle_timeout_ms: 1000,
        };
        // What costs nothing waits for no money.
        let pricing = Some(Pricing { input: 1.0, output: 1.0, ..Pricing::default() });
        let info = ModelInfo { pricing, ..ModelInfo::unknown(&model) };
        Ok(ResolvedModel { info, access, provider: Arc::new(Speaker) })
    }

    fn list(&self, _env: &BTreeMap<String, String>) -> Vec<ListedModel> {
        Vec::new()
    }

    fn for_role(
        &self,
        _role: Role,
        _wishes: &Wishes<'_>,
        _env: &BTreeMap<String, String>,
    ) -> Result<Option<Assigned>, ModelError> {
        Ok(None)
    }
}

#[derive(Debug)]
struct NoBlobs;

impl Blobs for NoBlobs {
    fn put(&self, _content: &[u8], _media_type: &str) -> Result<BlobRef, BlobError> {
        Err(BlobError::Missing("none is kept here".into()))
    }

    fn get(&self, hash: &str) -> Result<Vec<u8>, BlobError> {
        Err(BlobError::Missing(hash.to_owned()))
    }
}

/// Folds what the run records and answers it, as a thread does.
async fn keep(thread_id: ThreadId, mut signals: mpsc::Receiver<AgentSignal>, bodies: Arc<Mutex<Vec<EventBody>>>) {
    let mut state = ThreadState::new(thread_id);
    while let Some(signal) = signals.recv().await {
        match signal {
            AgentSignal::Record { events, reply } => {
                for NewEvent { run_id, turn_id, body } in events {
                    bodies.lock().unwrap().push(body.clone());
                    let seq = state.last_seq.next();
                    state.apply(&Event { thread_id, seq, at_ms: 1, run_id, turn_id, body });
                }
                reply.send(Ok(Arc::new(state.clone()))).ok();
            }
            AgentSignal::Audit { reply, .. } => drop(reply.send(Ok(()))),
            AgentSignal::TakeInputs { reply, .. } => drop(reply.send(Ok(Vec::new()))),
            other => panic!("{other:?}"),
        }
    }
}

/// What runs share.
#[derive(Clone)]
struct Shared {
    gates: Arc<Gates>,
    treasury: Arc<Treasury>,
}

fn shared() -> Shared {
    Shared {
        gates: Arc::new(Gates::new(Arc::new(ManualClock::default()))),
        treasury: Arc::new(Treasury::new(Arc::new(|_| Box::pin(async { Ok(0) })))),
    }
}

/// A run with this model and these to fall back to: how it ended, and what was recorded.
async fn run(model: &str, fallback: &[&str]) -> (RunOutcome, Vec<EventBody>) {
    run_among(shared(), Vec::new(), model, fallback).await
}

async fn run_among(
    Shared { gates, treasury }: Shared,
    caps: Vec<Cap>,
    model: &str,
    fallback: &[&str],
) -> (RunOutcome, Vec<EventBody>) {
    let ids = SeededIds::new(5);
    let (thread_id, run_id) = (ThreadId::from_uuid(ids.next()), RunId::from_uuid(ids.next()));
    let turn_id = TurnId::from_uuid(ids.next());
    let (sender, signals) = mpsc::channel(8);
    let bodies = Arc::new(Mutex::new(Vec::new()));
    let thread = tokio::spawn(keep(thread_id, signals, Arc::clone(&bodies)));
    let services = RunServices {
        port: RunPort::new(run_id, sender),
        models: Arc::new(Models),
        tools: Arc::new(ToolSet::new(Vec::new())),
        rules: LiveRules::new(|| Arc::new(RuleSet::default())),
        redactor: RunSecrets::default(),
        bounds: Bounds::new(Arc::new(Settings::default), OwnPlaces::default()),
        ledger: Arc::new(FileLedger::new([])),
        blobs: Arc::new(NoBlobs),
        clock: Arc::new(ManualClock::default()),
        ids: Arc::new(ids),
        live: LiveLane::default(),
        retry: RetryPolicy::default(),
        fallback: fallback.iter().map(|model| (*model).to_owned()).collect(),
        gates,
        treasury,
        caps,
        snapshots: Arc::new(RunSnapshots::new(None, String::new(), None)),
    };
    let options = RunOptions {
        model: model.to_owned(),
        mode: "build".into(),
        thinking: None,
        approval: ApprovalPolicy::Deny,
        interactive: false,
        limits: RunLimits::default(),
        cwd: "/".into(),
        add_dirs: Vec::new(),
        answer_schema: None,
        trigger: Default::default(),
        model_given: false,
        detached: false,
        goal_id: None,
        kept: None,
        key_source: String::new(),
    };
    let context = RunContext {
        thread_id,
        run_id,
        options,
        project_root: "/".into(),
        client_env: Arc::default(),
        tool_env: Arc::default(),
        umask: 0o077,
        cancel: CancellationToken::new(),
    };
    let outcome = drive(services, context, turn_id).await;
    thread.await.unwrap();
    let bodies = std::mem::take(&mut *bodies.lock().unwrap());
    (outcome, bodies)
}

fn answer(bodies: &[EventBody]) -> Option<String> {
    bodies.iter().find_map(|body| match body {
        EventBody::MessageFinished { message } => Some(message.text()),
        _ => None,
    })
}

#[tokio::test]
async fn a_fallback_that_can_not_be_asked_is_passed_over() {
    let (outcome, bodies) = run("fake/quota", &["fake/nokey", "fake/ok"]).await;
    assert_eq!(outcome.status, RunStatus::Done, "{:?}", outcome.error);
    assert_eq!(answer(&bodies).as_deref(), Some("said by ok"));
}

#[tokio::test]
async fn a_fallback_that_can_not_be_asked_does_not_hide_why_it_was_wanted() {
    let (outcome, _) = run("fake/quota", &["fake/nokey"]).await;
    let error = outcome.error.unwrap();
    assert_eq!((error.reason.as_str(), error.message.as_str()), ("MODEL_QUOTA", "the credit is used up"));
    let (outcome, _) = run("fake/nokey", &["fake/ok"]).await;
    assert_eq!(outcome.error.unwrap().reason, "MODEL_AUTH", "the model that was asked for counts");
}

#[tokio::test]
async fn an_answer_without_end_is_ended_and_not_asked_for_again() {
    let (outcome, bodies) = run("fake/endless", &[]).await;
    assert_eq!(outcome.status, RunStatus::Failed);
    let error = outcome.error.unwrap();
    assert!(error.message.contains("longer than 16 MB"), "{}", error.message);
    assert!(!error.hint.is_empty());
    assert!(!bodies.iter().any(|body| matches!(body, EventBody::Notice { .. })), "it was tried again");
    assert_eq!(answer(&bodies), None);
}

#[tokio::test]
async fn a_step_names_the_model_that_is_asked() {
    let shared = shared();
    let asked = |bodies: &[EventBody]| {
        bodies.iter().find_map(|body| match body {
            EventBody::StepStarted { model, .. } => Some(model.clone()),
            _ => None,
        })
    };
    let (_, bodies) = run_among(shared.clone(), Vec::new(), "fake/quota", &["fake/ok"]).await;
    assert_eq!(asked(&bodies).as_deref(), Some("fake/quota"));
    // It is out of reach now, and left out from the beginning.
    let (_, bodies) = run_among(shared, Vec::new(), "fake/quota", &["fake/ok"]).await;
    assert_eq!((asked(&bodies).as_deref(), answer(&bodies).as_deref()), (Some("fake/ok"), Some("said by ok")));
}

/// A request that waits for money holds up nobody at its provider.
#[tokio::test]
async fn who_waits_for_money_gives_the_turn_to_others() {
    let shared = shared();
    let caps = [Cap { scope: CapScope::Day, max: 100 }];
    let holding = shared.treasury.admit(&caps, 200, None, || ()).await.unwrap();
    let gate = shared.gates.gate(&Models.resolve("fake/ok", &BTreeMap::new()).unwrap());
    let enter = || shared.gates.enter(gate.clone(), Priority::Interactive, Duration::from_secs(300), 10).unwrap();
    // From now on one at a time asks the provider.
    let first = enter();
    assert_eq!(first.look().0, Standing::Go);
    first.limited(Limited { server_ms: Some(0), by_number: true, whole_account: false }, |_| 0);
    drop(first);
    let waits = tokio::spawn(run_among(shared.clone(), caps.to_vec(), "fake/ok", &[]));
    // Its turn has come before that of whoever comes later.
    let asks = async {
        while shared.treasury.waiting() == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), asks).await.expect("it asks for money");
    let next = enter();
    let goes = async {
        loop {
            let (standing, change) = next.look();
            if standing == Standing::Go {
                return;
            }
            change.await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), goes).await.expect("the turn is free while the run waits for money");
    drop((next, holding));
    let (outcome, bodies) = tokio::time::timeout(Duration::from_secs(20), waits).await.unwrap().unwrap();
    assert_eq!((outcome.status, answer(&bodies).as_deref()), (RunStatus::Done, Some("said by ok")));
}
