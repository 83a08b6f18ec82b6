//! Tools of others that are tools of ours: the same name and arguments, so that a model which goes on sees its own.
//!
//! A call is only taken for one of ours when all that it says can be said with ours; else it keeps its name.

use serde_json::{Map, Value, json};

use super::value::{list, some_text, text};

/// The longest name of a tool; longer ones no provider takes.
const NAME_BYTES_MAX: usize = 64;

/// One argument: its name there, its name here, what becomes of its value.
type Field = (&'static str, &'static str, fn(&Value) -> Option<Value>);

/// A tool of another agent and the one of ours that does the same.
struct Same {
    theirs: &'static [&'static str],
    ours: &'static str,
    /// Without these the call means nothing.
    needed: &'static [&'static str],
    fields: &'static [Field],
    /// Arguments that change how a result is shown, or who was asked, and nothing else.
    ignored: &'static [&'static str],
}

const SAME: &[Same] = &[
    Same {
        theirs: &["Read", "read", "view", "view_image"],
        ours: "view",
        needed: &["path"],
        fields: &[
            ("file_path", "path", string),
            ("filePath", "path", string),
            ("path", "path", string),
            ("offset", "offset", whole),
            ("limit", "limit", whole),
        ],
        ignored: &["showLineNumbers"],
    },
    Same {
        theirs: &["Write", "write", "write_file"],
        ours: "write",
        needed: &["path", "content"],
        fields: &[
            ("file_path", "path", string),
            ("filePath", "path", string),
            ("path", "path", string),
            ("content", "content", string),
        ],
        ignored: &["overwrite"],
    },
    Same {
        theirs: &["Edit", "edit", "MultiEdit", "string_replace_lsp"],
        ours: "edit",
        needed: &["path"],
        fields: &[
            ("file_path", "path", string),
            ("filePath", "path", string),
            ("path", "path", string),
            ("old_string", "old_string", string),
            ("oldString", "old_string", string),
            ("new_string", "new_string", string),
            ("newString", "new_string", string),
            ("replace_all", "replace_all", truth),
            ("replaceAll", "replace_all", truth),
            ("edits", "edits", edits),
        ],
        ignored: &[],
    },
    Same {
        theirs: &[
            "Bash",
            "bash",
            "shell",
            "shell_command",
            "exec_command",
            "local_shell",
            "container.exec",
            "execute_command",
        ],
        ours: "shell",
        needed: &["command"],
        fields: &[
            ("command", "command", command),
            ("cmd", "command", command),
            ("workdir", "cwd", string),
            ("working_directory", "cwd", string),
            ("cwd", "cwd", string),
            ("description", "description", string),
            ("run_in_background", "background", truth),
            ("background", "background", truth),
            ("timeout_ms", "timeout_s", milliseconds),
        ],
        ignored: &[
            "login",
            "tty",
            "tail",
            "env",
            "user",
            "type",
            "shell",
            "yield_time_ms",
            "max_output_tokens",
            "justification",
            "sandbox_permissions",
            "with_escalated_permissions",
            "prefix_rule",
            "dangerouslyDisableSandbox",
        ],
    },
    Same {
        theirs: &["Grep", "grep", "search_content"],
        ours: "grep",
        needed: &["pattern"],
        fields: &[
            ("pattern", "pattern", string),
            ("path", "path", string),
            ("glob", "glob", string),
            ("include", "glob", string),
            ("-i", "ignore_case", truth),
            ("-C", "context", whole),
            ("context", "context", whole),
            ("contextLines", "context", whole),
            ("multiline", "multiline", truth),
            ("output_mode", "mode", grep_mode),
        ],
        ignored: &["-n"],
    },
    Same {
        theirs: &["Glob", "glob"],
        ours: "glob",
        needed: &["pattern"],
        fields: &[("pattern", "pattern", string), ("path", "path", string)],
        ignored: &[],
    },
    Same {
        theirs: &["apply_patch", "patch"],
        ours: "apply_patch",
        needed: &["patch"],
        fields: &[("input", "patch", patch), ("patch", "patch", patch), ("patchText", "patch", patch)],
        ignored: &[],
    },
    Same {
        theirs: &["TodoWrite", "todowrite", "task_write", "update_plan"],
        ours: "tasks",
        needed: &["items"],
        fields: &[("todos", "items", tasks), ("tasks", "items", tasks), ("plan", "items", tasks)],
        ignored: &["explanation"],
    },
];

/// The name and arguments that a call has here.
pub(crate) fn ours(name: &str, arguments: Value) -> (String, Value) {
    let same = SAME.iter().find(|same| same.theirs.contains(&name));
    let mapped = same.and_then(|same| Some((same.ours.to_owned(), mapped(same, name, &arguments)?)));
    mapped.unwrap_or_else(|| (harmless(name), arguments))
}

fn mapped(same: &Same, name: &str, arguments: &Value) -> Option<Value> {
    let given = arguments.as_object()?;
    let mut mapped = Map::new();
    for (field, value) in given {
        if value.is_null() || same.ignored.contains(&field.as_str()) {
            continue;
        }
        // The one counts milliseconds and the other seconds.
        if same.ours == "shell" && field == "timeout" {
            let seconds = if name == "execute_command" { whole(value)? } else { milliseconds(value)? };
            mapped.insert("timeout_s".to_owned(), seconds);
            continue;
        }
        // Whether that counts from 0 or from 1 depends on the version.
        if name == "read" && field == "offset" {
            return None;
        }
        let (_, ours, convert) = same.fields.iter().find(|(theirs, ..)| theirs == field)?;
        mapped.insert((*ours).to_owned(), convert(value)?);
    }
    same.needed.iter().all(|field| mapped.contains_key(*field)).then_some(Value::Object(mapped))
}

/// A name that every provider takes.
pub(crate) fn harmless(name: &str) -> String {
    let plain = |char: char| if char.is_ascii_alphanumeric() || matches!(char, '_' | '-') { char } else { '_' };
    let name: String = name.chars().take(NAME_BYTES_MAX).map(plain).collect();
    if name.is_empty() { "tool".to_owned() } else { name }
}

fn string(value: &Value) -> Option<Value> {
    value.is_string().then(|| value.clone())
}

fn truth(value: &Value) -> Option<Value> {
    value.is_boolean().then(|| value.clone())
}

fn whole(value: &Value) -> Option<Value> {
    value.is_u64().then(|| value.clone())
}

fn milliseconds(value: &Value) -> Option<Value> {
    value.as_u64().map(|number| json!(number.div_ceil(1000).max(1)))
}

/// A command line, or the words of one.
fn command(value: &Value) -> Option<Value> {
    if value.is_string() {
        return Some(value.clone());
    }
    let words: Vec<&str> = value.as_array()?.iter().map(Value::as_str).collect::<Option<_>>()?;
    match words.as_slice() {
        [] => None,
        [shell, option, script] if is_shell(shell) && matches!(*option, "-c" | "-lc") => Some(json!(script)),
        words => Some(json!(words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "))),
    }
}

fn is_shell(word: &str) -> bool {
    matches!(word.rsplit('/').next(), Some("sh" | "bash" | "zsh"))
}

fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./=:,@%+".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

fn grep_mode(value: &Value) -> Option<Value> {
    match value.as_str()? {
        "content" => Some(json!("lines")),
        "files_with_matches" => Some(json!("files")),
        "count" => Some(json!("count")),
        _ => None,
    }
}

fn patch(value: &Value) -> Option<Value> {
    value.as_str().filter(|text| text.trim_start().starts_with("*** Begin Patch")).map(|_| value.clone())
}

fn edits(value: &Value) -> Option<Value> {
    let edit = |edit: &Value| {
        let mut ours = Map::new();
        for (field, value) in edit.as_object()? {
            let name = match field.as_str() {
                "old_string" | "oldString" => "old_string",
                "new_string" | "newString" => "new_string",
                "replace_all" | "replaceAll" => "replace_all",
                _ => return None,
            };
            ours.insert(name.to_owned(), value.clone());
        }
        Some(Value::Object(ours))
    };
    value.as_array()?.iter().map(edit).collect::<Option<Vec<_>>>().map(Value::Array)
}

fn tasks(value: &Value) -> Option<Value> {
    let task = |task: &Value| {
        let content = some_text(task, "content").or_else(|| some_text(task, "step"))?;
        let status = match text(task, "status") {
            "in_progress" => "in_progress",
            "completed" => "completed",
            "cancelled" => "cancelled",
            _ => "pending",
        };
        let mut ours = json!({"content": content, "status": status});
        if let Some(active) = some_text(task, "activeForm") {
            ours["active_form"] = json!(active);
        }
        Some(ours)
    };
    let items = value.is_array().then(|| list(&json!({"items": value}), "items").iter().map(task).collect())?;
    let items: Option<Vec<Value>> = items;
    items.map(Value::Array)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_means_the_same_is_ours() {
        for (name, arguments, ours_name, ours_arguments) in [
            (
                "Read",
                json!({"file_path": "/a", "offset": 3, "limit": 2}),
                "view",
                json!({"path": "/a", "offset": 3, "limit": 2}),
            ),
            ("read", json!({"filePath": "/a"}), "view", json!({"path": "/a"})),
            (
                "write_file",
                json!({"path": "a", "content": "", "overwrite": true}),
                "write",
                json!({"path": "a", "content": ""}),
            ),
            (
                "Edit",
                json!({"file_path": "a", "old_string": "x", "new_string": "y"}),
                "edit",
                json!({"path": "a", "old_string": "x", "new_string": "y"}),
            ),
            (
                "MultiEdit",
                json!({"file_path": "a", "edits": [{"old_string": "x", "new_string": "y"}]}),
                "edit",
                json!({"path": "a", "edits": [{"old_string": "x", "new_string": "y"}]}),
            ),
            (
                "Bash",
                json!({"command": "ls", "timeout": 1500, "description": "list"}),
                "shell",
                json!({"command": "ls", "timeout_s": 2, "description": "list"}),
            ),
            (
                "execute_command",
                json!({"command": "ls", "timeout": 30, "tail": 5}),
                "shell",
                json!({"command": "ls", "timeout_s": 30}),
            ),
            (
                "shell",
                json!({"command": ["bash", "-lc", "ls | wc"], "workdir": "/x"}),
                "shell",
                json!({"command": "ls | wc", "cwd": "/x"}),
            ),
            (
                "shell",
                json!({"command": ["git", "commit", "-m", "it's"]}),
                "shell",
                json!({"command": "git commit -m 'it'\\''s'"}),
            ),
            (
                "exec_command",
                json!({"cmd": "ls", "yield_time_ms": 10, "max_output_tokens": 5}),
                "shell",
                json!({"command": "ls"}),
            ),
            (
                "Grep",
                json!({"pattern": "x", "output_mode": "content", "-n": true, "-i": true}),
                "grep",
                json!({"pattern": "x", "mode": "lines", "ignore_case": true}),
            ),
            (
                "apply_patch",
                json!({"input": "*** Begin Patch\n*** End Patch"}),
                "apply_patch",
                json!({"patch": "*** Begin Patch\n*** End Patch"}),
            ),
            (
                "TodoWrite",
                json!({"todos": [{"content": "a", "status": "completed", "activeForm": "doing a", "id": "1"}]}),
                "tasks",
                json!({"items": [{"content": "a", "status": "completed", "active_form": "doing a"}]}),
            ),
            (
                "update_plan",
                json!({"explanation": "why", "plan": [{"step": "a", "status": "in_progress"}]}),
                "tasks",
                json!({"items": [{"content": "a", "status": "in_progress"}]}),
            ),
        ] {
            assert_eq!(ours(name, arguments), (ours_name.to_owned(), ours_arguments), "{name}");
        }
    }

    #[test]
    fn what_can_not_be_said_with_ours_stays_theirs() {
        for (name, arguments) in [
            ("Grep", json!({"pattern": "x", "head_limit": 5})),
            ("Read", json!({"file_path": 7})),
            ("Read", json!("file")),
            ("read", json!({"filePath": "/a", "offset": 3})),
            ("Bash", json!({})),
            ("shell", json!({"command": [1]})),
            ("apply_patch", json!({"input": "diff --git"})),
            ("TodoWrite", json!({"todos": [{"status": "pending"}]})),
            ("WebFetch", json!({"url": "x"})),
        ] {
            assert_eq!(ours(name, arguments.clone()), (name.to_owned(), arguments), "{name}");
        }
        assert_eq!(harmless("mcp__a.b/c d"), "mcp__a_b_c_d");
        assert_eq!(harmless(""), "tool");
        assert_eq!(harmless(&"x".repeat(200)).len(), NAME_BYTES_MAX);
    }
}
