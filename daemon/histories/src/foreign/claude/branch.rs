//! Which records of a file are the conversation: the branch that was written last.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::named_by;
use crate::foreign::ForeignError;
use crate::foreign::json_lines::{JsonLines, Line, Spot};
use crate::foreign::report::Report;
use crate::foreign::value::{is_true, list, some_text, text};

/// The records of a branch, in the order of the file, and what the conversation is called.
pub(super) struct Branch {
    pub(super) records: Vec<Spot>,
    pub(super) title: Option<String>,
}

/// A record that others may hang on.
struct Node {
    spot: Spot,
    uuid: String,
    parent: Option<String>,
    is_speech: bool,
    /// For what is only results of tools: the record of the call, where it says that.
    is_result: bool,
    caller: Option<String>,
    /// The answer that it is a piece of.
    answer: Option<String>,
}

/// Looks at every line. Records that do not belong to the branch are counted, lines that do not read are named.
pub(super) fn newest(lines: &mut JsonLines, report: &mut Report) -> Result<Branch, ForeignError> {
    let mut nodes: Vec<Node> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    let mut title: Option<(u8, String)> = None;
    while let Some((spot, line)) = lines.next()? {
        let place = || format!("line {}", spot.line);
        let record: Value = match line {
            Line::Wrong(why) => {
                report.damage(&place(), why);
                continue;
            }
            Line::Whole(line) => match serde_json::from_slice(line) {
                Ok(record) => record,
                Err(error) => {
                    report.damage(&place(), &error.to_string());
                    continue;
                }
            },
        };
        if let Some(named) = named_by(&record).filter(|named| title.as_ref().is_none_or(|title| named.0 >= title.0)) {
            title = Some(named);
            continue;
        }
        let Some(node) = node(spot, &record) else {
            match text(&record, "type") {
                "user" | "assistant" => report.damage(&place(), "a message has no uuid"),
                // What the program keeps beside the conversation.
                "" => report.leave_out("records without a type"),
                kind => report.leave_out(&format!("records of type {kind}")),
            }
            continue;
        };
        if is_true(&record, "isSidechain") {
            report.leave_out("records of subagents");
        } else if known.contains_key(&node.uuid) {
            report.leave_out("records that are there already");
        } else {
            known.insert(node.uuid.clone(), nodes.len());
            nodes.push(node);
        }
    }
    let records = on_branch(&nodes, &known, report);
    Ok(Branch { records, title: title.map(|(_, title)| title) })
}

fn node(spot: Spot, record: &Value) -> Option<Node> {
    let uuid = some_text(record, "uuid")?.to_owned();
    let message = record.get("message").unwrap_or(&Value::Null);
    let blocks = list(message, "content");
    let kind = text(record, "type");
    let is_result = kind == "user" && !blocks.is_empty() && blocks.iter().all(|it| text(it, "type") == "tool_result");
    let parent = some_text(record, "parentUuid").or(some_text(record, "logicalParentUuid"));
    Some(Node {
        spot,
        uuid,
        parent: parent.map(str::to_owned),
        is_speech: matches!(kind, "user" | "assistant"),
        is_result,
        caller: some_text(record, "sourceToolAssistantUUID").map(str::to_owned),
        answer: some_text(message, "id").filter(|_| kind == "assistant").map(str::to_owned),
    })
}

fn on_branch(nodes: &[Node], known: &HashMap<String, usize>, report: &mut Report) -> Vec<Spot> {
    let mut included: HashSet<usize> = HashSet::new();
    let mut next = nodes.iter().rposition(|node| node.is_speech);
    // A circle ends where it closes.
    while let Some(at) = next.filter(|at| included.insert(*at)) {
        next = nodes[at].parent.as_ref().and_then(|parent| known.get(parent).copied());
    }
    let mut answers: HashSet<&str> = included.iter().filter_map(|at| nodes[*at].answer.as_deref()).collect();
    let on = |included: &HashSet<usize>, uuid: Option<&String>| {
        uuid.and_then(|uuid| known.get(uuid)).is_some_and(|at| included.contains(at))
    };
    // Calls beside each other hang on one record each, and so do their results: only one of them is an ancestor.
    for (at, node) in nodes.iter().enumerate() {
        let beside = on(&included, node.parent.as_ref());
        let result = node.is_result && (beside || on(&included, node.caller.as_ref()));
        let piece = beside && node.answer.as_deref().is_some_and(|answer| answers.contains(answer));
        if (result || piece) && included.insert(at) {
            answers.extend(node.answer.as_deref());
        }
    }
    for (at, node) in nodes.iter().enumerate() {
        if node.is_speech && !included.contains(&at) {
            report.leave_out("records of other branches");
        }
    }
    let mut records: Vec<Spot> = included.into_iter().map(|at| nodes[at].spot).collect();
    records.sort_by_key(|spot| spot.line);
    records
}
