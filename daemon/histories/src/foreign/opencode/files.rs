//! The older form: `session/<project>/<id>.json`, `message/<session>/<id>.json`, `part/<message>/<id>.json`.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{MESSAGES_MAX, Whole};
use crate::foreign::builder::Builder;
use crate::foreign::json_lines::json_file;
use crate::foreign::places::{changed_ms, files_below};
use crate::foreign::value::{moment, some_text, text};
use crate::foreign::{Discovery, FOUND_MAX, ForeignError, Found, Maker, title_of};

/// The largest file, in bytes; a picture in base64 stands in one.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The most files of a conversation.
const PARTS_MAX: usize = 1_000_000;

pub(super) fn discover(storage: &Path) -> Discovery {
    let mut discovery = Discovery::default();
    let files = files_below(&storage.join("session"), 1, 100_000, &is_json, &mut discovery.problems);
    let mut files: Vec<_> = files.into_iter().map(|path| (changed_ms(&path), path)).collect();
    files.sort_by(|one, other| other.cmp(one));
    for (changed_ms, path) in files.into_iter().take(FOUND_MAX) {
        let info = match json_file(&path, FILE_BYTES_MAX) {
            Ok(info) => info,
            Err(why) => {
                discovery.problems.push(format!("{}: {why}", path.display()));
                continue;
            }
        };
        let id = stem(&path);
        let messages = files_below(&storage.join("message").join(&id), 0, MESSAGES_MAX, &is_json, &mut Vec::new());
        if some_text(&info, "parentID").is_some() || messages.is_empty() {
            continue;
        }
        discovery.found.push(Found {
            maker: Maker::Opencode,
            title: title_of(text(&info, "title")),
            cwd: text(&info, "directory").to_owned(),
            updated_at_ms: info.get("time").and_then(|time| moment(time.get("updated"))).unwrap_or(changed_ms),
            messages: Some(messages.len() as u64),
            path: storage.to_path_buf(),
            id,
        });
    }
    discovery
}

pub(super) fn read(found: &Found, builder: &mut Builder<'_>) -> Result<(), ForeignError> {
    let missing = || ForeignError::Missing { id: found.id.clone(), path: found.path.clone() };
    // The name becomes part of a path.
    if !found.id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')) {
        return Err(missing());
    }
    let name = format!("{}.json", found.id);
    let sessions = files_below(&found.path.join("session"), 1, 100_000, &|file| file == name, &mut Vec::new());
    let info = sessions.first().ok_or_else(missing)?;
    let reverted = match json_file(info, FILE_BYTES_MAX) {
        Ok(info) => super::session(&info, builder),
        Err(why) => {
            builder.report.damage(&format!("session/{name}"), &why);
            None
        }
    };
    let mut messages = Vec::new();
    let mut problems = Vec::new();
    for path in files_below(&found.path.join("message").join(&found.id), 0, MESSAGES_MAX, &is_json, &mut problems) {
        match json_file(&path, FILE_BYTES_MAX) {
            Ok(info) => {
                let created = info.get("time").and_then(|time| moment(time.get("created"))).unwrap_or(0);
                messages.push((created, stem(&path), info));
            }
            Err(why) => builder.report.damage(&format!("message {}", stem(&path)), &why),
        }
    }
    messages.sort_by(|(at, id, _), (other_at, other_id, _)| (at, id).cmp(&(other_at, other_id)));
    let mut left = PARTS_MAX;
    for (_, id, info) in messages {
        if reverted.as_ref().is_some_and(|from| id >= *from) {
            builder.report.leave_out("messages that were taken back");
            continue;
        }
        let parts = parts(&found.path.join("part").join(&id), &mut left, builder);
        super::message(&id, &Whole { info, parts }, builder)?;
    }
    problems.iter().for_each(|problem| builder.report.damage("the folder", problem));
    Ok(())
}

fn parts(folder: &Path, left: &mut usize, builder: &mut Builder<'_>) -> Vec<Value> {
    let mut files: Vec<PathBuf> = files_below(folder, 0, *left, &is_json, &mut Vec::new());
    *left -= files.len();
    files.sort();
    let mut parts = Vec::with_capacity(files.len());
    for path in files {
        match json_file(&path, FILE_BYTES_MAX) {
            Ok(part) => parts.push(part),
            Err(why) => builder.report.damage(&format!("part {}", stem(&path)), &why),
        }
    }
    parts
}

fn is_json(name: &str) -> bool {
    name.ends_with(".json")
}

fn stem(path: &Path) -> String {
    path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
}
