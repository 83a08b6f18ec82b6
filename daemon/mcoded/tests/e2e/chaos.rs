//! Twenty threads at providers that fail in every way at random: nothing is lost, nothing is said twice, and no limit in
//! money is passed by more than one response.

use std::collections::HashMap;
use std::sync::Mutex;

use mcode_testkit::{RecordedRequest, Reply, Script, Usage};
use serde_json::{Value, json};

use crate::setup::{CHAT, MESSAGES, Stage, ask_words, of_type, text};

const THREADS: usize = 20;

/// Faults that one thread meets at most, so that it gives up on none of them.
const FAULTS_MAX: u32 = 4;

/// SplitMix64.
struct Chance(u64);

impl Chance {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }
}

/// A seed that differs from time to time; `MCODE_SEED` repeats one.
fn seed() -> u64 {
    let given = std::env::var("MCODE_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        u64::from(now.subsec_nanos()) ^ now.as_secs()
    });
    println!("MCODE_SEED={seed}");
    seed
}

/// The last line of what the user said: the thread's name.
fn name(request: &RecordedRequest) -> String {
    request.last_user_text().lines().last().unwrap_or_default().to_owned()
}

/// The turn of a thread: looks at a file, then says its name.
fn turn(request: &RecordedRequest) -> Reply {
    let reply = if request.tool_results().is_empty() {
        Reply::text(format!("{} looks", name(request))).then_tool_calls([("view", json!({"path": "f.txt"}))])
    } else {
        Reply::text(format!("{} is done", name(request)))
    };
    reply.usage(Usage { input: 1_000, cache_read: 200, cache_write: 30, output: 100, reasoning: 0 })
}

fn fault(kind: u64, reply: Reply, request: &RecordedRequest) -> Reply {
    let quota = json!({"error": {"type": "usage_limit_reached", "code": "usage_limit_reached", "message": "used up",
        "resets_in_seconds": 1}});
    match kind {
        0 => Reply::status(429).header("retry-after-ms", "150"),
        1 => Reply::status(429),
        2 => Reply::status(529),
        3 => Reply::overloaded_midstream(format!("{} begins", name(request))),
        4 => Reply::status(429).json(quota),
        5 => reply.stall_after(700),
        6 => Reply::status(500),
        7 => reply.hang_up(),
        _ => reply.cut_after(700),
    }
}

fn with_faults(seed: u64) -> Script {
    let (chance, met) = (Mutex::new(Chance(seed)), Mutex::new(HashMap::<String, u32>::new()));
    let decide = move |request: &RecordedRequest| {
        let reply = turn(request);
        let mut met = met.lock().unwrap();
        let met = met.entry(name(request)).or_default();
        let mut chance = chance.lock().unwrap();
        if *met >= FAULTS_MAX || chance.next(100) >= 40 {
            return reply;
        }
        *met += 1;
        fault(chance.next(9), reply, request)
    };
    Script::new().fallback(decide)
}

/// All threads at once; what each printed.
fn all_at_once(stage: &Stage, words: &[&str]) -> Vec<(String, mcode_testkit::Output)> {
    std::thread::scope(|scope| {
        let asked: Vec<_> = (0..THREADS)
            .map(|number| {
                let name = format!("thread-{number}");
                let model = if number % 2 == 0 { MESSAGES } else { CHAT };
                scope.spawn(move || {
                    let all = [&["-m", model, "--output", "json"], words, &[name.as_str()]].concat();
                    let output = stage.mcode(&ask_words(&all));
                    (name, output)
                })
            })
            .collect();
        asked.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn twenty_threads_lose_nothing_to_random_faults() {
    let timeouts = "[providers.anthropic]\nidle_timeout = \"700ms\"\n[providers.openai]\nidle_timeout = \"700ms\"\n";
    let stage = Stage::configured(with_faults(seed()), timeouts);
    let begun = std::time::Instant::now();
    for (name, output) in all_at_once(&stage, &["--yolo"]) {
        assert_eq!(output.code, 0, "{name}: {output:#?}");
        let result = output.json();
        assert_eq!((&result["status"], text(&result["text"])), (&json!("done"), format!("{name} is done")));
        let events = stage.events(&text(&result["thread_id"]));
        let said: Vec<&Value> =
            of_type(&events, "message_finished").into_iter().filter(|it| it["role"] == "assistant").collect();
        let said: Vec<String> = said.iter().map(|message| text(&message["text"])).collect();
        assert_eq!(said, [format!("{name} looks"), format!("{name} is done")], "each once, in order");
        for (start, end) in [("tool_call_started", "tool_call_finished"), ("step_started", "step_finished")] {
            assert_eq!(of_type(&events, start).len(), of_type(&events, end).len(), "{name} {start}");
        }
        assert_eq!(of_type(&events, "tool_call_started").len(), 1, "{name}: the tool ran once");
    }
    println!("{} requests in {:?}", stage.server.requests().len(), begun.elapsed());
    stage.server.finish();
}

/// The price of one response of the script in billionths of a dollar, the dearest way.
fn dearest(stage: &Stage) -> i64 {
    let each = stage.server.requests().into_iter().filter_map(|request| {
        let model = if request.model().starts_with("claude") { MESSAGES } else { CHAT };
        request.usage.map(|usage| crate::money::cost(model, &usage))
    });
    each.max().unwrap_or_default()
}

#[test]
fn a_daily_limit_is_never_passed_by_more_than_one_response() {
    const CAP_NANOS: i64 = 40_000_000;
    let config = "[limits]\nmax_cost_per_day = 0.04\n[providers.anthropic]\nidle_timeout = \"700ms\"\n\
                  [providers.openai]\nidle_timeout = \"700ms\"\n";
    let stage = Stage::configured(with_faults(seed()), config);
    let outputs = all_at_once(&stage, &["--yolo"]);
    let spent = stage.json(&["usage", "--by", "model"])["cost_nano_usd"].as_i64().unwrap();
    let most = dearest(&stage);
    assert!(spent >= CAP_NANOS, "there was room for more: {spent}");
    assert!(spent < CAP_NANOS + most, "{spent} of {CAP_NANOS}, and one response costs {most}");
    let refused: Vec<_> = outputs.iter().filter(|(_, output)| output.code != 0).collect();
    assert!(!refused.is_empty(), "{spent}");
    for (name, output) in refused {
        assert_eq!(output.code, 7, "{name}: {output:#?}");
        let error = &output.json()["error"];
        assert!(text(&error["message"]).contains("daily limit of $0.04"), "{error}");
        assert!(text(&error["hint"]).contains("[limits]"), "{error}");
    }
    // What was refused is not asked any more; a new run is refused before it begins.
    let requests = stage.server.requests().len();
    assert_eq!(stage.ask(&["one more"]).code, 7);
    assert_eq!(stage.server.requests().len(), requests);
    stage.server.finish();
}
