//! Every subsequence of histories that hold all shapes gives a prompt that a strict wire accepts.

use std::collections::HashSet;
use std::sync::Arc;

use mcode_events::ease::Ease;
use mcode_events::message::{Message, Opaque, Origin, Part, Role};
use mcode_events::state::Entry;
use mcode_events::tool::{ToolCallStatus, ToolResult};
use mcode_ids::{ItemId, ToolCallId};
use serde_json::json;

use super::{INTERRUPTED, prompt_messages};
use crate::request::PromptMessage;

fn call_id(number: u128) -> ToolCallId {
    format!("tc_{number:032x}").parse().unwrap()
}

fn message(role: Role, parts: Vec<Part>) -> Arc<Entry> {
    let item_id: ItemId = format!("itm_{:032x}", 1).parse().unwrap();
    let origin = (role == Role::Assistant).then(|| Origin {
        provider: "anthropic".into(),
        wire: "anthropic".into(),
        model: "m".into(),
    });
    Arc::new(Entry::Message { message: Message { item_id, role, parts, origin }, turn_id: None })
}

fn text(words: &str) -> Part {
    Part::text(words)
}

fn call(number: u128) -> Part {
    Part::ToolCall {
        tool_call_id: call_id(number),
        provider_call_id: format!("toolu_{number}"),
        name: "shell".into(),
        arguments: json!({"command": "ls"}),
        opaque: None,
    }
}

fn result(number: u128, words: &str) -> Arc<Entry> {
    Arc::new(Entry::ToolResult {
        name: "shell".into(),
        result: ToolResult::text(call_id(number), ToolCallStatus::Done, words),
    })
}

/// What every wire demands of a prompt.
fn validate(messages: &[PromptMessage]) -> Result<(), String> {
    let mut answered = HashSet::new();
    for (index, message) in messages.iter().enumerate() {
        match message {
            PromptMessage::User(parts) => {
                if index > 0 && matches!(messages[index - 1], PromptMessage::User(_)) {
                    return Err(format!("{index}: two messages of the user in a row"));
                }
                check_parts(index, parts)?;
            }
            PromptMessage::Assistant { parts, .. } => {
                check_parts(index, parts)?;
                let calls: Vec<ToolCallId> = parts
                    .iter()
                    .filter_map(
                        |part| if let Part::ToolCall { tool_call_id, .. } = part { Some(*tool_call_id) } else { None },
                    )
                    .collect();
                let answers = match messages.get(index + 1) {
                    Some(PromptMessage::Tools(answers)) => answers.iter().map(|answer| answer.tool_call_id).collect(),
                    _ => Vec::new(),
                };
                if calls != answers {
                    return Err(format!("{index}: calls {calls:?} are answered by {answers:?}"));
                }
                if let Some(twice) = calls.iter().find(|id| !answered.insert(**id)) {
                    return Err(format!("{index}: {twice} stands twice"));
                }
            }
            PromptMessage::Tools(answers) => {
                if index == 0 || !matches!(messages[index - 1], PromptMessage::Assistant { .. }) {
                    return Err(format!("{index}: answers without a call"));
                }
                if answers.is_empty() || answers.iter().any(|answer| answer.text.is_empty()) {
                    return Err(format!("{index}: an empty answer"));
                }
            }
        }
    }
    Ok(())
}

fn check_parts(index: usize, parts: &[Part]) -> Result<(), String> {
    let empty_text = parts.iter().any(|part| matches!(part, Part::Text { text, .. } if text.trim().is_empty()));
    if parts.is_empty() || empty_text {
        return Err(format!("{index}: empty"));
    }
    Ok(())
}

fn whole() -> Vec<Arc<Entry>> {
    let signed = Part::Thinking { text: String::new(), opaque: Some(Opaque(json!({"signature": "s"}))) };
    let unsigned = Part::Thinking { text: "hm".into(), opaque: None };
    vec![
        message(Role::User, vec![text("go")]),
        message(Role::Assistant, vec![signed.clone(), text("I look"), call(1), call(2)]),
        result(2, "two"),
        message(Role::User, vec![text("faster")]),
        result(1, ""),
        message(Role::User, vec![text("  ")]),
        message(Role::Assistant, vec![text(""), unsigned]),
        message(Role::Assistant, vec![call(3)]),
        result(3, "three"),
        result(3, "three again"),
        message(Role::User, vec![text("and"), text("")]),
        message(Role::Assistant, vec![signed, call(3), text("done")]),
        result(9, "of nothing"),
    ]
}

#[test]
fn any_subsequence_gives_a_valid_prompt() {
    let whole = whole();
    for mask in 0u32..(1 << whole.len()) {
        let part: Vec<Arc<Entry>> = whole
            .iter()
            .enumerate()
            .filter(|(index, _)| mask & (1 << index) != 0)
            .map(|(_, entry)| Arc::clone(entry))
            .collect();
        let messages = prompt_messages(&part, &Ease::default());
        if let Err(fault) = validate(&messages) {
            panic!("mask {mask:b}: {fault}\n{messages:#?}");
        }
    }
}

#[test]
fn answers_stand_in_call_order_directly_after_the_call() {
    let messages = prompt_messages(&whole()[..5], &Ease::default());
    assert_eq!(messages.len(), 4);
    let PromptMessage::Tools(answers) = &messages[2] else { panic!("{messages:?}") };
    assert_eq!(answers[0].text, super::NO_OUTPUT);
    assert_eq!(answers[1].text, "two");
    assert!(!answers[0].is_error);
    assert_eq!(messages[3], PromptMessage::User(vec![text("faster")]));
}

#[test]
fn a_call_without_a_result_is_answered_with_an_error() {
    let messages = prompt_messages(&whole()[..2], &Ease::default());
    let PromptMessage::Tools(answers) = &messages[2] else { panic!("{messages:?}") };
    assert!(answers.iter().all(|answer| answer.is_error && answer.text == INTERRUPTED));
}

#[test]
fn a_kept_message_keeps_its_opaque_parts_and_their_maker() {
    let messages = prompt_messages(&whole()[..2], &Ease::default());
    let PromptMessage::Assistant { parts, origin } = &messages[1] else { panic!("{messages:?}") };
    assert!(matches!(&parts[0], Part::Thinking { opaque: Some(_), .. }));
    assert_eq!(origin.as_ref().unwrap().provider, "anthropic");
}

/// A long thread: turns of a question, a call with a long result, and an answer; the last turn has many steps.
fn long(turns: u128, steps: u128) -> Vec<Arc<Entry>> {
    let words = "word ".repeat(400);
    let mut history = Vec::new();
    for turn in 0..turns {
        history.push(message(Role::User, vec![text(&format!("question {turn}"))]));
        let steps = if turn + 1 == turns { steps } else { 1 };
        for step in 0..steps {
            history.push(message(Role::Assistant, vec![text("so"), call(turn * 100 + step)]));
            history.push(result(turn * 100 + step, &words));
        }
        history.push(message(Role::Assistant, vec![text(&"an answer ".repeat(20))]));
    }
    history
}

fn size(history: &[Arc<Entry>], ease: &Ease) -> usize {
    prompt_messages(history, ease).iter().map(|message| format!("{message:?}").len()).sum()
}

#[test]
fn whatever_is_left_out_gives_a_valid_prompt_with_the_first_and_the_last_word() {
    let history = long(4, 3);
    for messages in 0..=history.len() {
        for results in [0, messages, history.len()] {
            let ease = Ease { pictures: history.len(), results, messages };
            let prompt = prompt_messages(&history, &ease);
            if let Err(fault) = validate(&prompt) {
                panic!("{ease:?}: {fault}\n{prompt:#?}");
            }
            let said = format!("{prompt:?}");
            assert!(said.contains("question 0") && said.contains("question 3"), "{ease:?}: {said}");
            assert_eq!(said.contains(super::LEFT_OUT), messages > 0, "{ease:?}");
        }
    }
}

#[test]
fn each_time_a_good_part_goes_old_results_first_until_nothing_can_go() {
    for (turns, steps) in [(8, 1), (1, 12), (3, 5)] {
        let history = long(turns, steps);
        let (mut ease, mut before) = (Ease::default(), size(&history, &Ease::default()));
        let first = super::smaller(&history, &ease).unwrap();
        assert!(first.results > 0 && first.messages == 0, "{first:?}");
        let mut times = 0;
        while let Some(next) = super::smaller(&history, &ease) {
            let now = size(&history, &next);
            assert!(now < before, "{next:?}: {now} bytes after {before}");
            assert_eq!(next, next.and(ease), "nothing comes back");
            (ease, before, times) = (next, now, times + 1);
            assert!(times < 20, "{ease:?}");
        }
        assert!(
            before < size(&history, &Ease::default()) / 4,
            "{turns} turns of {steps} steps: {before} bytes are left"
        );
    }
    let short = [message(Role::User, vec![text(&"word ".repeat(1000))])];
    assert_eq!(super::smaller(&short, &Ease::default()), None, "what the user says is never left out");
}
