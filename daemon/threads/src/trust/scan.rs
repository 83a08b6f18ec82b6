//! What a project has of its own.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::TrustItem;

/// Most things that are listed of one project; what is beyond is not used.
pub const ITEMS_MAX: usize = 500;
/// Largest file that is taken.
pub const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// How deep folders of commands, skills and plugins are looked into.
const DEPTH_MAX: usize = 8;
/// Longest description of an item.
const WHAT_CHARS_MAX: usize = 300;

/// Files of MCP servers.
const SERVERS: [&str; 2] = [".mcode/mcp.json", ".mcp.json"];
/// Files of hooks.
const HOOKS: [&str; 1] = [".mcode/hooks.json"];
/// Folders of files that are used one by one: kind, folder, how their names end.
const FOLDERS: [(&str, &str, &str); 6] = [
    ("command", ".mcode/commands", ".md"),
    ("command", ".claude/commands", ".md"),
    ("skill", ".mcode/skills", ""),
    ("skill", ".claude/skills", ""),
    ("skill", ".agents/skills", ""),
    ("plugin", ".mcode/plugins", ""),
];
/// The kind of files of variables.
const ENV_FILE: &str = "env file";
/// Files of variables, which other programs read.
const ENV_FILES: [&str; 4] = [".env", ".env.local", ".envrc", ".mcode/.env"];

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scan {
    /// Everything that would be run or used, in order.
    pub items: Vec<TrustItem>,
    /// What can not be read, and is not used.
    pub problems: Vec<String>,
    /// The project's configuration file as it was read.
    pub config: Option<(PathBuf, String)>,
}

impl Scan {
    /// What would be run or used. Files of variables are only told: mcode itself reads none of them.
    pub fn used(&self) -> impl Iterator<Item = &TrustItem> {
        self.items.iter().filter(|item| item.kind != ENV_FILE)
    }

    /// Names everything that would be run or used, to the byte.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for item in self.used() {
            for part in [&item.kind, &item.path, &item.name, &item.hash] {
                hasher.update(&(part.len() as u64).to_le_bytes());
                hasher.update(part.as_bytes());
            }
        }
        hasher.finalize().to_hex().to_string()
    }
}

/// Looks through the project at `root`. Blocking; follows no link out of it, and runs nothing.
#[must_use]
pub fn scan(root: &Path) -> Scan {
    let mut scanner = Scanner { root, found: Scan::default() };
    scanner.config();
    SERVERS.iter().for_each(|path| scanner.servers(path));
    HOOKS.iter().for_each(|path| scanner.hooks(path));
    FOLDERS.iter().for_each(|(kind, folder, end)| scanner.folder(kind, Path::new(folder), end, 0));
    ENV_FILES.iter().for_each(|path| scanner.env_file(path));
    let mut found = scanner.found;
    found.items.sort();
    found
}

struct Scanner<'a> {
    root: &'a Path,
    found: Scan,
}

impl Scanner<'_> {
    /// The text of a file of the project; `None` when there is none, or none that can be used.
    fn read(&mut self, path: &str) -> Option<String> {
        let file = self.root.join(path);
        fs::symlink_metadata(&file).ok()?;
        let text = self.bytes(&file).and_then(|bytes| String::from_utf8(bytes).map_err(|_| "it is no text".to_owned()));
        text.map_err(|problem| self.found.problems.push(format!("{path}: {problem}; it is not used"))).ok()
    }

    fn bytes(&self, file: &Path) -> Result<Vec<u8>, String> {
        let real = fs::canonicalize(file).map_err(|error| error.to_string())?;
        if !real.starts_with(self.root) {
            return Err("it leads out of the project".to_owned());
        }
        mcode_env::files::read_bounded(&real, FILE_BYTES_MAX).map_err(|error| error.to_string())
    }

    fn add(&mut self, kind: &str, path: &str, name: &str, what: String, content: &[u8]) {
        if self.found.items.len() >= ITEMS_MAX {
            let problem = format!("there are more than {ITEMS_MAX} things; the rest is not used");
            if !self.found.problems.contains(&problem) {
                self.found.problems.push(problem);
            }
            return;
        }
        self.found.items.push(TrustItem {
            kind: kind.to_owned(),
            path: path.to_owned(),
            name: name.to_owned(),
            what: what.chars().take(WHAT_CHARS_MAX).collect(),
            hash: blake3::hash(content).to_hex().to_string(),
        });
    }

    fn config(&mut self) {
        let path = ".mcode/config.toml";
        let Some(text) = self.read(path) else { return };
        let file = self.root.join(path);
        let what = match mcode_config::ProjectConfig::parse(&file, &text) {
            Ok(config) => {
                let rules = config.permissions.deny.len() + config.permissions.ask.len();
                let model = config.model.map(|model| format!(", model {model}")).unwrap_or_default();
                format!("settings: {rules} rules that tighten{model}")
            }
            Err(errors) => errors.first().map_or_else(|| "it is broken".to_owned(), |error| format!("broken: {error}")),
        };
        self.add("config", path, "", what, text.as_bytes());
        self.found.config = Some((file, text));
    }

    fn json(&mut self, path: &str) -> Option<(Value, String)> {
        let text = self.read(path)?;
        match serde_json::from_str(&text) {
            Ok(value) => Some((value, text)),
            Err(error) => {
                self.found.problems.push(format!("{path}: it is not JSON ({error}); it is not used"));
                None
            }
        }
    }

    fn servers(&mut self, path: &str) {
        let Some((value, text)) = self.json(path) else { return };
        let servers = ["mcpServers", "servers"].iter().find_map(|key| value.get(key)?.as_object());
        let Some(servers) = servers else {
            return self.add("MCP server", path, "", "a file without servers".to_owned(), text.as_bytes());
        };
        for (name, server) in servers {
            self.add("MCP server", path, name, started(server), server.to_string().as_bytes());
        }
    }

    /// Every command, wherever it stands in the file.
    fn hooks(&mut self, path: &str) {
        let Some((value, text)) = self.json(path) else { return };
        let mut commands = Vec::new();
        let mut stack = vec![(String::new(), value.get("hooks").unwrap_or(&value))];
        while let Some((place, value)) = stack.pop() {
            match value {
                Value::Object(fields) => {
                    if let Some(Value::String(command)) = fields.get("command") {
                        commands.push((place.clone(), command.clone()));
                    }
                    let below = |name: &str| if place.is_empty() { name.to_owned() } else { format!("{place}.{name}") };
                    stack.extend(fields.iter().map(|(name, value)| (below(name), value)));
                }
                Value::Array(list) => {
                    stack.extend(list.iter().enumerate().map(|(index, value)| (format!("{place}[{index}]"), value)));
                }
                _ => {}
            }
        }
        if commands.is_empty() {
            self.add("hook", path, "", "a file without commands".to_owned(), text.as_bytes());
        }
        for (place, command) in commands {
            // The whole file decides when a hook runs.
            self.add("hook", path, &place, format!("runs: {command}"), text.as_bytes());
        }
    }

    fn folder(&mut self, kind: &str, folder: &Path, end: &str, depth: usize) {
        if depth > DEPTH_MAX {
            return self.found.problems.push(format!("{}: too deep; it is not used", folder.display()));
        }
        let Ok(entries) = fs::read_dir(self.root.join(folder)) else { return };
        let names: BTreeSet<_> = entries.flatten().map(|entry| entry.file_name()).collect();
        for name in names {
            let path = folder.join(&name);
            let full = self.root.join(&path);
            let shown = path.to_string_lossy().into_owned();
            match fs::symlink_metadata(&full) {
                Ok(meta) if meta.is_dir() => self.folder(kind, &path, end, depth + 1),
                Ok(_) if !shown.ends_with(end) => {}
                Ok(_) => match self.bytes(&full) {
                    Ok(bytes) => self.add(kind, &shown, "", first_line(&bytes), &bytes),
                    Err(problem) => self.found.problems.push(format!("{shown}: {problem}; it is not used")),
                },
                Err(error) => self.found.problems.push(format!("{shown}: {error}; it is not used")),
            }
            if self.found.items.len() >= ITEMS_MAX {
                return;
            }
        }
    }

    /// Only names are told: the values may be secrets.
    fn env_file(&mut self, path: &str) {
        let Some(text) = self.read(path) else { return };
        let names: Vec<&str> = text
            .lines()
            .map(|line| line.trim().trim_start_matches("export "))
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| Some(line.split_once('=')?.0.trim()))
            .collect();
        let what = format!("sets {}; mcode itself does not read it", names.join(", "));
        self.add(ENV_FILE, path, "", what, text.as_bytes());
    }
}

/// What a server's entry would start, or where it would connect.
fn started(server: &Value) -> String {
    let text = |key: &str| server.get(key).and_then(Value::as_str);
    let quoted = |word: &Value| match word.as_str() {
        Some(word) if !word.is_empty() && !word.contains(char::is_whitespace) => word.to_owned(),
        Some(word) => format!("'{word}'"),
        None => word.to_string(),
    };
    let arguments = server.get("args").and_then(Value::as_array).into_iter().flatten().map(quoted);
    let line = text("command").map(str::to_owned).into_iter().chain(arguments).collect::<Vec<_>>().join(" ");
    let variables = server.get("env").and_then(Value::as_object).into_iter().flatten();
    let names: Vec<&str> = variables.map(|(name, _)| name.as_str()).collect();
    let env = if names.is_empty() { String::new() } else { format!(", with {}", names.join(", ")) };
    match (line.is_empty(), text("url")) {
        (false, _) => format!("runs: {line}{env}"),
        (true, Some(url)) => format!("connects to {url}"),
        (true, None) => "names no command and no URL".to_owned(),
    }
}

fn first_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let shell: Vec<&str> = text.lines().filter(|line| line.trim_start().starts_with("!`")).collect();
    if !shell.is_empty() {
        return format!("runs: {}", shell.join("; "));
    }
    text.lines()
        .map(|line| line.trim().trim_start_matches('#').trim())
        .find(|line| !matches!(*line, "" | "---"))
        .unwrap_or_default()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let file = root.join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    #[test]
    fn everything_that_would_be_run_or_used_is_listed() {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        assert_eq!(scan(&root), Scan::default());
        write(&root, ".mcode/config.toml", "model = \"x/y\"\n[permissions]\ndeny = [\"shell(rm *)\"]\n");
        let server =
            r#"{"mcpServers": {"evil": {"command": "sh", "args": ["-c", "touch /tmp/x"], "env": {"K": "v"}}}}"#;
        write(&root, ".mcode/mcp.json", server);
        write(&root, ".mcp.json", r#"{"mcpServers": {"far": {"url": "https://example.org/mcp"}}}"#);
        write(
            &root,
            ".mcode/hooks.json",
            r#"{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "touch y"}]}]}}"#,
        );
        write(&root, ".mcode/commands/a/b.md", "# Do it\n!`touch z`\n");
        write(&root, ".claude/skills/s/SKILL.md", "---\nname: s\n");
        write(&root, ".env", "# x\nexport A=secret\nB=2\n");
        let found = scan(&root);
        let told: Vec<String> = found
            .items
            .iter()
            .map(|item| format!("{} {} {}: {}", item.kind, item.path, item.name, item.what))
            .collect();
        assert_eq!(
            told,
            [
                "MCP server .mcode/mcp.json evil: runs: sh -c 'touch /tmp/x', with K",
                "MCP server .mcp.json far: connects to https://example.org/mcp",
                "command .mcode/commands/a/b.md : runs: !`touch z`",
                "config .mcode/config.toml : settings: 1 rules that tighten, model x/y",
                "env file .env : sets A, B; mcode itself does not read it",
                "hook .mcode/hooks.json Stop[0].hooks[0]: runs: touch y",
                "skill .claude/skills/s/SKILL.md : name: s",
            ]
        );
        assert_eq!(found.problems, Vec::<String>::new());
        let before = found.fingerprint();
        write(&root, ".env", "A=other\n");
        assert_eq!(scan(&root).fingerprint(), before);
        write(&root, ".mcode/hooks.json", "{}");
        assert_ne!(scan(&root).fingerprint(), before);
    }

    #[cfg(unix)]
    #[test]
    fn what_leads_out_or_is_no_file_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap().join("p");
        write(&root, ".mcode/x", "");
        fs::write(dir.path().join("out.toml"), "model = \"a/b\"\n").unwrap();
        std::os::unix::fs::symlink("../../out.toml", root.join(".mcode/config.toml")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", root.join(".env")).unwrap();
        write(&root, ".mcode/mcp.json", "{");
        write(&root, ".mcode/hooks.json", &"x".repeat(1024 * 1024 + 1));
        let found = scan(&root);
        assert_eq!((found.items.len(), found.problems.len()), (0, 4), "{found:#?}");
        assert!(found.config.is_none());
    }

    #[test]
    fn the_number_of_things_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        (0..ITEMS_MAX + 3).for_each(|number| write(&root, &format!(".mcode/commands/{number}.md"), "x"));
        write(&root, ".env", "A=1\n");
        let found = scan(&root);
        assert_eq!(found.items.len(), ITEMS_MAX);
        assert!(found.problems[0].contains("the rest is not used"), "{:?}", found.problems);
    }
}
