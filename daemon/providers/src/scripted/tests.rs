//! The script reacts to what the tools say.

use mcode_models::{ModelRequest, PromptMessage};

use super::{Scene, demo, next_scene};
use crate::testing::{request, tool_answer};

/// The scenes of a run in which each call is answered by `answer(tool, how often it was called before)`.
fn play(answer: impl Fn(&str, usize) -> (String, bool)) -> Vec<Scene> {
    let mut request: ModelRequest = request("demo/scripted");
    let mut scenes = Vec::new();
    let mut counts = std::collections::HashMap::new();
    for round in 0..10u128 {
        let scene = next_scene(&request);
        let answers = scene
            .calls
            .iter()
            .map(|(tool, _)| {
                let count = counts.entry(*tool).or_insert(0usize);
                let (text, is_error) = answer(tool, *count);
                *count += 1;
                let mut made = tool_answer(round, "id", &text);
                made.name = (*tool).to_owned();
                made.is_error = is_error;
                made
            })
            .collect::<Vec<_>>();
        let over = answers.is_empty();
        request.messages.push(PromptMessage::Tools(answers));
        scenes.push(scene);
        if over {
            return scenes;
        }
    }
    panic!("the script does not end: {scenes:?}");
}

const FAILED: &str = "FAILED: want 'Hello, Ada!', got 'Helo, Ada!'\nexit code 1";

fn tools(scenes: &[Scene]) -> Vec<&str> {
    scenes.iter().flat_map(|scene| scene.calls.iter().map(|(tool, _)| *tool)).collect()
}

#[test]
fn it_mends_the_fault_and_says_what_it_is() {
    let scenes = play(|tool, count| match (tool, count) {
        ("shell", 0) => (FAILED.into(), true),
        ("shell", _) => ("ok: Hello, Ada!".into(), false),
        _ => ("fine".into(), false),
    });
    assert_eq!(tools(&scenes), ["grep", "view", "shell", "edit", "shell"]);
    assert!(scenes[0].words.contains("scripted demo model"));
    assert!(scenes.last().unwrap().words.contains("the test passes now"));
    let (_, edit) = scenes.iter().flat_map(|scene| &scene.calls).find(|(tool, _)| *tool == "edit").unwrap();
    let source = demo::FILES[0].1;
    let (old, new) = (edit["old_string"].as_str().unwrap(), edit["new_string"].as_str().unwrap());
    assert_eq!(source.matches(old).count(), 1, "the edit names one place");
    assert!(source.replace(old, new).contains("'Hello, %s!\\n'"));
}

#[test]
fn it_stops_where_the_script_does_not_fit() {
    let denied = play(|tool, _| match tool {
        "edit" => ("Permission denied: edit greet.sh. Nothing was run.".into(), true),
        "shell" => (FAILED.into(), true),
        _ => ("fine".into(), false),
    });
    assert_eq!(tools(&denied), ["grep", "view", "shell", "edit"]);
    assert!(denied.last().unwrap().words.contains("Permission denied"));

    let still = play(|tool, _| if tool == "shell" { (FAILED.into(), true) } else { ("fine".into(), false) });
    assert!(still.last().unwrap().words.contains("still fails"));

    let passes =
        play(|tool, _| if tool == "shell" { ("ok: Hello, Ada!".into(), false) } else { ("fine".into(), false) });
    assert_eq!(tools(&passes), ["grep", "view", "shell"]);

    let refused =
        play(
            |tool, _| if tool == "shell" { ("Permission denied: shell".into(), true) } else { ("fine".into(), false) },
        );
    assert_eq!(tools(&refused), ["grep", "view", "shell"]);
}

#[test]
fn it_says_which_tool_it_misses() {
    let mut request = request("demo/scripted");
    request.tools.retain(|tool| tool.name != "edit");
    let scene = next_scene(&request);
    assert!(scene.calls.is_empty() && scene.words.contains("`edit`"));
}
