//! What is told to have been used is what the servers told, to the token and the cent.

use std::collections::BTreeMap;

use mcode_client::v1;
use mcode_models::Catalogue;
use mcode_testkit::{RecordedRequest, Reply, Script, Usage};
use serde_json::{Value, json};

use crate::setup::{CHAT, MESSAGES, OWN, Stage, text};

/// What these tokens cost by the catalogue, in billionths of a dollar.
pub(crate) fn cost(model: &str, usage: &Usage) -> i64 {
    let info = Catalogue::bundled().info(&model.parse().unwrap());
    let mut pricing = info.pricing.unwrap();
    if let Some(long) =
        pricing.long.filter(|long| usage.input + usage.cache_read + usage.cache_write > long.above_tokens)
    {
        (pricing.input, pricing.output, pricing.cache_read) = (long.input, long.output, long.cache_read);
    }
    // Dollars per million tokens are thousands of billionths per token.
    let part = |tokens: u64, price: f64| tokens as f64 * price * 1_000.0;
    let sum = part(usage.input, pricing.input)
        + part(usage.output, pricing.output)
        + part(usage.cache_read, pricing.cache_read)
        + part(usage.cache_write, pricing.cache_write);
    sum.round() as i64
}

/// Figures of which no two requests have the same.
fn figures(request: &RecordedRequest) -> Usage {
    let number = request.number as u64;
    Usage {
        input: 1_003 + number,
        cache_read: 70_001 * number,
        cache_write: 211 + number,
        output: 97 * number,
        reasoning: 0,
    }
}

fn model_of(request: &RecordedRequest) -> &'static str {
    match request.model() {
        name if name.starts_with("claude") => MESSAGES,
        "one" => OWN,
        _ => CHAT,
    }
}

/// Sums by model of what the server told; money in billionths of a dollar.
fn told(stage: &Stage) -> BTreeMap<&'static str, (Usage, i64)> {
    let mut sums: BTreeMap<&'static str, (Usage, i64)> = BTreeMap::new();
    for request in stage.server.requests() {
        let (model, Some(usage)) = (model_of(&request), request.usage) else { continue };
        let (sum, money) = sums.entry(model).or_insert((Usage { input: 0, output: 0, ..Usage::default() }, 0));
        sum.input += usage.input;
        sum.output += usage.output;
        sum.cache_read += usage.cache_read;
        sum.cache_write += usage.cache_write;
        *money += if model == OWN { 0 } else { cost(model, &usage) };
    }
    sums
}

fn tokens(usage: &Value) -> Usage {
    let of = |key: &str| usage[key].as_u64().unwrap_or(0);
    Usage {
        input: of("input_tokens"),
        output: of("output_tokens"),
        cache_read: of("cache_read_tokens"),
        cache_write: of("cache_write_tokens"),
        reasoning: of("reasoning_tokens"),
    }
}

fn rows(report: &Value) -> BTreeMap<String, &Value> {
    report["rows"].as_array().unwrap().iter().map(|row| (text(&row["key"]), row)).collect()
}

#[test]
fn usage_is_what_the_servers_told() {
    let script = Script::new().fallback(|request| {
        let reply = Reply::text("said").usage(figures(request));
        match request.number {
            // Failed after the prompt was paid for.
            3 => Reply::overloaded_midstream("beg").usage(figures(request)),
            6 => reply.cut_after(900),
            9 => Reply::status(500),
            _ => reply,
        }
    });
    let stage = Stage::reached_by_itself(script);
    let mut threads = Vec::new();
    for (at, model) in [MESSAGES, CHAT, MESSAGES, OWN, MESSAGES, CHAT, OWN, MESSAGES].into_iter().enumerate() {
        let result = stage.ask(&["-m", model, "--output", "json", &format!("number {at}")]).ok().json();
        threads.push(text(&result["thread_id"]));
    }
    let last = threads.last().unwrap().clone();
    stage.ask(&["-t", &last, "more"]).ok();
    // What it cost is not forgotten with the thread.
    stage.mcode(&["threads", "delete", &threads[0], "--yes"]).ok();

    let sums = told(&stage);
    let by_model = stage.json(&["usage", "--by", "model"]);
    let by_model_rows = rows(&by_model);
    assert_eq!(by_model_rows.len(), sums.len());
    for (model, (usage, money)) in &sums {
        let row = by_model_rows[*model];
        assert_eq!((tokens(&row["usage"]), row["cost_nano_usd"].as_i64().unwrap()), (*usage, *money), "{model}");
        let dollars = row["usage"]["cost_usd"].as_f64().unwrap();
        assert!((dollars - *money as f64 / 1e9).abs() < 1e-9, "{dollars}");
    }
    let all: i64 = sums.values().map(|(_, money)| money).sum();
    assert_eq!(by_model["cost_nano_usd"].as_i64().unwrap(), all);
    assert_eq!(tokens(&by_model["usage"]), Usage { reasoning: 0, ..stage.server.usage() });
    // The model of the configuration has no price: that is said, and not taken for nothing.
    let own = sums[OWN].0;
    let unpriced = own.input + own.output + own.cache_read + own.cache_write;
    assert_eq!(by_model["unpriced_tokens"].as_u64().unwrap(), unpriced);
    let table = stage.mcode(&["usage", "--by", "model"]).ok().stdout;
    assert!(table.contains(&format!("no price known for {unpriced} tokens")), "{table}");

    for by in ["thread", "day", "provider", "purpose", "goal"] {
        let report = stage.json(&["usage", "--by", by]);
        let sum: i64 =
            report["rows"].as_array().unwrap().iter().map(|row| row["cost_nano_usd"].as_i64().unwrap_or(0)).sum();
        assert_eq!((sum, report["cost_nano_usd"].as_i64().unwrap()), (all, all), "{by}");
    }
    let by_thread = stage.json(&["usage", "--by", "thread"]);
    let by_thread = rows(&by_thread);
    assert_eq!(by_thread.len(), threads.len());
    assert_eq!((&by_thread[&threads[0]]["deleted"], &by_thread[&last]["deleted"]), (&json!(true), &json!(false)));
    assert_eq!(rows(&stage.json(&["usage", "--by", "purpose"])).into_keys().collect::<Vec<_>>(), ["work"]);
    // One thread: what the thread says of itself.
    let one = stage.json(&["usage", "--thread", &last]);
    let shown = stage.json(&["threads", "show", &last])["thread"]["usage"].clone();
    assert_eq!(tokens(&one["usage"]), tokens(&shown));
    assert_eq!(one["requests"].as_u64().unwrap(), by_thread[&last]["requests"].as_u64().unwrap());
    // Nothing is from before, and nothing from a week ago.
    assert_eq!(stage.json(&["usage", "--until", "1d"])["requests"], json!(0));
    assert_eq!(stage.json(&["usage", "--since", "7d"])["requests"], by_model["requests"]);
    // Pages.
    let first = stage.json(&["usage", "--by", "model", "--limit", "1"]);
    let second = stage.json(&[
        "usage",
        "--by",
        "model",
        "--limit",
        "5",
        "--page-token",
        first["next_page_token"].as_str().unwrap(),
    ]);
    assert_eq!(
        (first["rows"].as_array().unwrap().len(), second["rows"].as_array().unwrap().len()),
        (1, sums.len() - 1)
    );
    assert_eq!(second["next_page_token"].as_str().unwrap_or_default(), "");
    let here = stage.json(&["usage", "--here"]);
    assert_eq!(here["requests"], by_model["requests"]);
    let there = stage.mcode(&["usage", "--here", "--cwd", "/", "--output", "json"]).ok().json();
    assert_eq!(there["requests"], json!(0));
    stage.server.finish();
}

/// A request that is cancelled has cost what it had cost by then.
#[test]
fn what_is_cancelled_is_paid_for() {
    let reply = Reply::deltas("word ", 4_000).delay(5).usage(Usage {
        input: 777,
        cache_read: 5,
        cache_write: 3,
        output: 9,
        reasoning: 0,
    });
    let stage = Stage::new(Script::new().reply(reply));
    let run = stage.detach(&["talk"]);
    let (runtime, client) = stage.client();
    let request = v1::ListEventsRequest { thread_id: run.thread_id.clone(), page_size: 100, ..Default::default() };
    stage.daemon.wait_until("it has begun to speak", || {
        let page = runtime.block_on(client.list_events(request.clone())).unwrap();
        format!("{page:?}").contains("MessageCheckpointed")
    });
    stage.mcode(&["runs", "cancel", &run.run_id]).ok();
    let usage = stage.json(&["usage", "--thread", &run.thread_id]);
    assert_eq!(tokens(&usage["usage"]).input, 777, "{usage}");
}
