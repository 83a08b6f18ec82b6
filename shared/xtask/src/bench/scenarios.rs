//! The scenarios: each starts its own daemon, home and model, and adds its figures.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use mcode_testkit::{ModelServer, Reply, Script, TestDaemon, Workspace};
use serde_json::json;

use super::process::{Cost, cpu, measure, median, ms, pss_mb, wakeups};
use super::table::Table;

type Scenario = fn(&Path, &mut Table) -> anyhow::Result<()>;

/// All of them, by name.
pub(super) const ALL: [(&str, Scenario); 9] = [
    ("version", version),
    ("hello", hello),
    ("cold start", cold_start),
    ("tool loop", tool_loop),
    ("shell loop", shell_loop),
    ("checkpoints", checkpoints),
    ("stream", stream),
    ("idle", idle),
    ("attach", attach),
];

/// Tool calls of one loop.
const LOOP_CALLS: usize = 30;
/// Folders of the large project, and files in each.
const LARGE_PROJECT: [usize; 2] = [2_500, 20];
/// Deltas of the long stream.
const STREAM_DELTAS: usize = 20_000;
/// Events of the long thread.
const LONG_THREAD_EVENTS: u64 = 10_000;

fn daemon(programs: &Path, server: &ModelServer) -> TestDaemon {
    let mut daemon = TestDaemon::prepare_with(PathBuf::from(programs));
    daemon.use_server(server);
    daemon.restart();
    daemon
}

fn hello_server() -> ModelServer {
    ModelServer::start_blocking(Script::new().fallback(|_| Reply::text("hello")))
}

fn times<T>(count: usize, mut one: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<Vec<T>> {
    (0..count).map(|_| one()).collect()
}

fn median_ms(costs: &[Cost], of: impl Fn(&Cost) -> Duration) -> anyhow::Result<f64> {
    median(costs.iter().map(|cost| ms(of(cost))).collect())
}

fn version(programs: &Path, table: &mut Table) -> anyhow::Result<()> {
    let home = TestDaemon::prepare_with(programs.to_path_buf());
    let version = home.mcode(&["--version"]).ok().stdout;
    let costs = times(31, || measure(&mut home.command(&home.user_home(), &["--version"]), version.trim_end()))?;
    table.add("mcode --version", median_ms(&costs, |cost| cost.wall), "ms", 10.0);
    Ok(())
}

fn hello(programs: &Path, table: &mut Table) -> anyhow::Result<()> {
    let server = hello_server();
    let daemon = daemon(programs, &server);
    let workspace = Workspace::with_files([("f.txt", "one\n")]);
    let ask = || measure(&mut daemon.command(&workspace.path(), &["ask", "say hello"]), "hello");
    times(3, ask)?;
    let before = cpu(daemon.pid())?;
    let costs = times(51, ask)?;
    let spent = cpu(daemon.pid())?.saturating_sub(before);
    table.add("ask hello, warm: wall", median_ms(&costs, |cost| cost.wall), "ms", 30.0);
    table.add("ask hello, warm: CPU of the client", median_ms(&costs, |cost| cost.cpu), "ms", 10.0);
    table.add("ask hello, warm: RSS of the client", median(costs.iter().map(|cost| cost.rss_mb).collect()), "MB", 15.0);
    table.add("CPU of the daemon per request", Ok(ms(spent) / costs.len() as f64), "ms", 8.0);
    let first = server.request(1).body_bytes as f64 / 1024.0;
    table.add("first request", Ok(first), "KB", 24.0);
    Ok(())
}

fn cold_start(programs: &Path, table: &mut Table) -> anyhow::Result<()> {
    let server = hello_server();
    let workspace = Workspace::new();
    let costs = times(7, || {
        let mut home = TestDaemon::prepare_with(programs.to_path_buf());
        home.use_server(&server);
        // The daemon that this starts is ended when `home` is dropped.
        measure(&mut home.command(&workspace.path(), &["ask", "say hello"]), "hello")
    })?;
    table.add("ask hello, no daemon yet: wall", median_ms(&costs, |cost| cost.wall), "ms", 150.0);
    Ok(())
}

/// Runs a loop of calls `rounds` times; gives the walls in seconds and the gaps between a reply's end and the next
/// request in milliseconds.
fn run_loop(programs: &Path, reply: impl Fn(usize) -> Reply, rounds: usize) -> anyhow::Result<(Vec<f64>, Vec<f64>)> {
    run_configured(programs, "", reply, rounds)
}

/// The same with this `config.toml`.
fn run_configured(
    programs: &Path,
    config: &str,
    reply: impl Fn(usize) -> Reply,
    rounds: usize,
) -> anyhow::Result<(Vec<f64>, Vec<f64>)> {
    let server = ModelServer::start_blocking(Script::new().allow_unused());
    let mut daemon = daemon(programs, &server);
    if !config.is_empty() {
        daemon.write_config(config);
        daemon.restart();
    }
    let workspace = Workspace::with_files([("f.txt", "one\ntwo\n")]);
    let mut walls = Vec::new();
    let mut gaps = Vec::new();
    for _ in 0..rounds {
        let done_before = server.requests().len();
        for call in 0..LOOP_CALLS {
            server.push(reply(call));
        }
        server.push(Reply::text("done"));
        let cost = measure(&mut daemon.command(&workspace.path(), &["ask", "--approve", "all", "go"]), "done")?;
        walls.push(cost.wall.as_secs_f64());
        let requests = server.requests().split_off(done_before);
        if requests.len() != LOOP_CALLS + 1 {
            bail!("{} requests instead of {}", requests.len(), LOOP_CALLS + 1);
        }
        for pair in requests.windows(2) {
            let ended = pair[0].replied_at.context("a reply without an end")?;
            gaps.push(ms(pair[1].at.saturating_sub(ended)));
        }
    }
    Ok((walls, gaps))
}

fn tool_loop(programs: &Path, table: &mut Table) -> anyhow::Result<()> {
    let (walls, gaps) =
        run_loop(programs, |call| Reply::tool_calls([("view", json!({"path": "f.txt", "limit": call + 1}))]), 5)?;
    table.add("end of a view call to the next request", median(gaps), "ms", 6.0);
    table.add("loop of 30 tool calls", median(walls), "s", 0.5);
    Ok(())
}

fn shell_loop(programs: &Path, table: &mut Table) -> anyhow::Result<()> {
    let (_, gaps) = run_loop(programs, echo, 3)?;
    let held = median(gaps)?;
    // Two processes are started (its host and the shell), seven commits made, and the project's files looked at twice.
    table.add("end of a shell echo call to the next request", Ok(held), "ms", 20.0);
    let (_, gaps) = run_configured(programs, "[sandbox]\nenabled = false\n", echo, 3)?;
    table.add("what the sandbox adds to that", Ok(held - median(gaps)?), "ms", 10.0);
    Ok(())
}

/// What the looks at the files of a large project add to a turn that changes one of them.
fn checkpoints(programs: &Path, table: &mut Table) -> anyhow::Result<()> {
    let [folders, files] = LARGE_PROJECT;
    let workspace = Workspace::with_files([("f.txt", "one\n")]);
    for folder in 0..folders {
        for file in 0..files {
            workspace.write(format!("f{folder}/file{file}.rs"), format!("fn f{file}() {{}} // {folder}\n").repeat(10));
        }
    }
    // Files that were changed just now are read again.
    std::thread::sleep(Duration::from_millis(2_100));
    let turn = |workspace: &Workspace| {
        let server = ModelServer::start_blocking(Script::new().allow_unused());
        let daemon = daemon(programs, &server);
        let costs = times(9, || {
            server.push(Reply::tool_calls([("shell", json!({"command": "echo more >> f.txt"}))]));
            server.push(Reply::text("done"));
            measure(&mut daemon.command(&workspace.path(), &["ask", "--approve", "all", "go"]), "done")
        })?;
        // The first reads the whole project.
        median_ms(&costs[1..], |cost| cost.wall)
    };
    let (small, large) = (turn(&Workspace::with_files([("f.txt", "one\n")]))?, turn(&workspace)?);
    let what = format!("a turn in a project of {} files, above one of a single file", folders * files);
    table.add(&what, Ok(large - small), "ms", 150.0);
    Ok(())
}

fn echo(call: usize) -> Reply {
    Reply::tool_calls([("shell", json!({"command": format!("echo {call}")}))])
}

fn stream(programs: &Path, table: &mut Table) -> anyhow::Result<()> {
    let server = ModelServer::start_blocking(Script::new().fallback(|_| Reply::deltas("tok ", STREAM_DELTAS)));
    let daemon = daemon(programs, &server);
    let workspace = Workspace::new();
    let mut walls = Vec::new();
    let mut cpus = Vec::new();
    let whole = "tok ".repeat(STREAM_DELTAS);
    for _ in 0..5 {
        let before = cpu(daemon.pid())?;
        let cost = measure(&mut daemon.command(&workspace.path(), &["ask", "talk"]), whole.trim_end())?;
        walls.push(cost.wall.as_secs_f64());
        cpus.push((cost.cpu + cpu(daemon.pid())?.saturating_sub(before)).as_secs_f64());
    }
    table.add("20,000 deltas: wall", median(walls), "s", 0.3);
    table.add("20,000 deltas: CPU of client and daemon", median(cpus), "s", 0.35);
    table.add("Pss of the daemon after that", pss_mb(daemon.pid()), "MB", 40.0);
    Ok(())
}

fn idle(programs: &Path, table: &mut Table) -> anyhow::Result<()> {
    /// What a daemon may still do after its last client left.
    const SETTLE: Duration = Duration::from_secs(3);
    const WATCH: Duration = Duration::from_secs(10);
    const THREADS: usize = 20;
    let server = hello_server();
    let daemon = daemon(programs, &server);
    std::thread::sleep(SETTLE);
    table.add("Pss of the idle daemon", pss_mb(daemon.pid()), "MB", 25.0);
    let workspace = Workspace::new();
    let ask = || measure(&mut daemon.command(&workspace.path(), &["ask", "say hello"]), "hello");
    times(5, ask)?;
    let before = pss_mb(daemon.pid())?;
    times(THREADS, ask)?;
    let each = (pss_mb(daemon.pid())? - before) / THREADS as f64;
    table.add("each further idle thread", Ok(each), "MB", 2.0);
    std::thread::sleep(SETTLE);
    let before = wakeups(daemon.pid())?;
    std::thread::sleep(WATCH);
    let woken = wakeups(daemon.pid())?.saturating_sub(before);
    table.add("wake-ups of the idle daemon in 10 s", Ok(woken as f64), "", 2.0);
    Ok(())
}

fn attach(programs: &Path, table: &mut Table) -> anyhow::Result<()> {
    const SCREENFUL: usize = 50;
    let calls = |step: usize| Reply::tool_calls((0..40).map(|_| ("view", json!({"path": "f.txt", "limit": step + 1}))));
    let server = ModelServer::start_blocking(Script::new().allow_unused());
    let daemon = daemon(programs, &server);
    let workspace = Workspace::with_files([("f.txt", "one\n")]);
    let mut thread = String::new();
    // Every call leaves at least three events.
    for _ in 0..20 {
        for step in 0..10 {
            server.push(calls(step));
        }
        server.push(Reply::text("done"));
        let mut arguments = vec!["ask", "--approve", "all", "--output", "json"];
        if !thread.is_empty() {
            arguments.extend(["--thread", &thread]);
        }
        arguments.push("go");
        let output = daemon.mcode_in(&workspace.path(), &arguments).ok().json();
        thread = output["thread_id"].as_str().context("no thread_id")?.to_owned();
        if last_seq(&daemon, &thread)? >= LONG_THREAD_EVENTS {
            break;
        }
    }
    let events = last_seq(&daemon, &thread)?;
    if events < LONG_THREAD_EVENTS {
        bail!("only {events} events could be made");
    }
    let walls = times(7, || first_lines(&daemon, &workspace.path(), &thread, SCREENFUL))?;
    table.add("first screenful of a thread of 10,000 events", median(walls), "ms", 100.0);
    Ok(())
}

fn last_seq(daemon: &TestDaemon, thread: &str) -> anyhow::Result<u64> {
    let shown = daemon.mcode(&["threads", "show", thread, "--output", "json"]).ok().json();
    let value = shown.get("thread").unwrap_or(&shown).get("last_seq").context("no last_seq")?;
    // Proto JSON writes 64-bit numbers as text.
    value.as_u64().or_else(|| value.as_str()?.parse().ok()).context("last_seq is not a number")
}

/// Milliseconds until `lines` lines of the thread have been printed.
fn first_lines(daemon: &TestDaemon, dir: &Path, thread: &str, lines: usize) -> anyhow::Result<f64> {
    use std::io::{BufRead, BufReader};
    let start = Instant::now();
    let mut command = daemon.command(dir, &["watch", thread, "--after", "0", "--output", "jsonl"]);
    let mut child = command.stderr(std::process::Stdio::null()).spawn().context("cannot start mcode")?;
    let stdout = child.stdout.take().context("no stdout")?;
    let seen = BufReader::new(stdout).lines().take(lines).filter(Result::is_ok).count();
    let wall = ms(start.elapsed());
    child.kill().ok();
    child.wait().ok();
    if seen == lines { Ok(wall) } else { bail!("watch printed {seen} lines and ended") }
}
