//! The parts of the daemon and how they are put together.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mcode_config::{Change, ConfigHandle, Effective};
use mcode_endpoint::{Incoming, SocketPath};
use mcode_env::{Clock, Dirs, SystemClock, SystemIds};
use mcode_models::retry::RetryPolicy;
use mcode_permissions::RuleSet;
use mcode_providers::{Auth, AuthParts, Desk, Registry};
use mcode_sandbox::runner::find_program;
use mcode_sandbox::{Hosts, ProcessIdentity, kill_marked, kill_orphan};
use mcode_server::{About, ConfigChange, ConfigQuestion, ServerDeps};
use mcode_store::Store;
use mcode_text::chain;
use mcode_threads::Depots;
use mcode_threads::rules::own_rules;
use mcode_threads::space::{Place, PlaceOf};
use mcode_threads::spending::spent;
use mcode_threads::{Deps, Gates, Places, PlanShelf, RuleBook, Threads, Treasury, recovery};
use mcode_tools::ask::AskTool;
use mcode_tools::shell::{ProcessTable, shell_tools};
use mcode_tools::submit_plan::SubmitPlanTool;
use mcode_tools::tasks::TasksTool;
use mcode_tools::{Bounds, ToolSet};
use tokio_util::sync::CancellationToken;

use crate::key_command;
use crate::sandbox;
use crate::signals::Ending;

/// The program that tends commands.
const TOOLHOST: &str = "mcode-toolhost";
/// Where the tended commands' folders are, in the state directory.
const HOSTS_FOLDER: &str = "toolhosts";

/// The catalogue that was fetched last, in the data directory.
const CATALOGUE: &str = "catalogue.json";

/// How long calls may go on after the daemon was told to end.
const DRAIN_MAX: Duration = Duration::from_secs(3);

/// Opens the store, ends what a dead daemon left open, and serves until `shutdown`; runs are interrupted and recorded,
/// then calls end, for at most [`DRAIN_MAX`].
pub(crate) async fn serve(
    config: ConfigHandle,
    dirs: &Dirs,
    socket: &SocketPath,
    incoming: Incoming,
    shutdown: Ending,
) -> anyhow::Result<()> {
    mcode_providers::install_crypto();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let about = about(dirs, clock.as_ref());
    if let Err(error) = mcode_sandbox::adopt_orphans() {
        tracing::warn!(%error, "what commands leave behind without their host can not be taken in");
    }
    let orphans = tokio::spawn(mcode_sandbox::tend_orphans());
    let held = sandbox::sandbox(&config, dirs, socket.address());
    let bounds = Arc::clone(&held.bounds);
    let self_test = tokio::spawn(sandbox::try_out(Arc::clone(&bounds)));
    let auth = auth(&config, dirs, &clock);
    let models = models(&config, dirs, Arc::clone(&auth)).await?;
    let threads = Threads::new(deps(&config, dirs, clock, Arc::clone(&bounds), models.clone()).await?);
    take_up(&threads).await?;
    let tending = tokio::spawn(tend(threads.clone()));
    let (accepting, streams) = (CancellationToken::new(), CancellationToken::new());
    let deps = ServerDeps {
        threads: threads.clone(),
        models: Arc::new(models),
        about: Arc::new(about),
        change_config: change_config(config.clone()),
        config_faults: faults(config),
        sandbox: sandbox::tell(bounds),
        logins: Arc::new(Desk::new(Arc::clone(&auth))),
        accepting: accepting.clone(),
        streams: streams.clone(),
    };
    // Told by a signal or by a client: first the socket is given up, so that nobody comes to a daemon that is leaving;
    // then runs are interrupted and recorded; then those who watch have seen it and are let go.
    let ending = async {
        tokio::select! {
            () = shutdown.token.cancelled() => {
                threads.keep_processes(shutdown.keeps());
                accepting.cancel();
            }
            () = accepting.cancelled() => {}
        }
        auth.end_logins();
        threads.shut_down().await;
        streams.cancel();
        tokio::time::sleep(DRAIN_MAX).await;
        tracing::warn!("calls were cut off at the end");
    };
    let served = tokio::select! {
        result = mcode_server::serve(deps, incoming) => result,
        () = ending => Ok(()),
    };
    // A pair of tokens that an issuer is about to give is not given twice.
    auth.settle().await;
    tending.abort();
    self_test.abort();
    orphans.abort();
    drop(held);
    served.map_err(Into::into)
}

/// Closes, goes on with or takes away what an earlier daemon left unfinished.
async fn take_up(threads: &Threads) -> anyhow::Result<()> {
    let recovered = recovery::recover(threads.deps()).await?;
    if recovered != recovery::Recovered::default() {
        tracing::warn!(?recovered, "unfinished work of an earlier daemon was closed or gone on with");
    }
    threads.sweep_imports().await?;
    threads.wake_unfinished().await?;
    Ok(threads.wake_ephemeral().await?)
}

/// Looks after what is kept, for as long as the daemon runs.
async fn tend(threads: Threads) {
    tokio::join!(threads.keep_index(), threads.keep_plans(), threads.keep_to_policy());
}

/// What the daemon tells about itself.
fn about(dirs: &Dirs, clock: &dyn Clock) -> About {
    About {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started_at: clock.now(),
        database: dirs.database(),
        log_file: dirs.log_file(),
        executable: mcode_env::process::current_exe().unwrap_or_default(),
    }
}

/// The models, with the catalogue that was fetched last.
async fn models(config: &ConfigHandle, dirs: &Dirs, auth: Arc<Auth>) -> anyhow::Result<Registry> {
    let (config, file) = (current(config), dirs.data.join(CATALOGUE));
    let opened = move || Registry::new(config).with_auth(auth).keeping_catalogue(file);
    Ok(tokio::task::spawn_blocking(opened).await?)
}

/// The values in force, asked for whenever they are needed.
fn current(config: &ConfigHandle) -> Arc<dyn Fn() -> Arc<Effective> + Send + Sync> {
    let config = config.clone();
    Arc::new(move || config.current())
}

/// The logins of the user.
fn auth(config: &ConfigHandle, dirs: &Dirs, clock: &Arc<dyn Clock>) -> Arc<Auth> {
    Auth::new(AuthParts {
        config: current(config),
        folder: dirs.data.clone(),
        keyring: !mcode_env::process::disabled("keyring"),
        clock: Arc::clone(clock),
        run_command: key_command::runner(),
        own_env: mcode_env::process::vars(),
    })
}

async fn deps(
    config: &ConfigHandle,
    dirs: &Dirs,
    clock: Arc<dyn Clock>,
    bounds: Arc<Bounds>,
    models: Registry,
) -> anyhow::Result<Deps> {
    let (database, blobs, store_clock) = (dirs.database(), dirs.blobs(), Arc::clone(&clock));
    let store = tokio::task::spawn_blocking(move || Store::open(database, blobs, store_clock)).await??;
    let current = current(config);
    let processes = ProcessTable::new();
    let mut tools = mcode_tools::file_tools();
    let hosts = Hosts::new(toolhost(), dirs.state.join(HOSTS_FOLDER));
    processes.found(hosts.survivors().await).await;
    tools.extend(shell_tools(hosts, &processes));
    tools.push(Arc::new(AskTool));
    tools.push(Arc::new(TasksTool));
    tools.push(SubmitPlanTool::shared());
    let rules = RuleBook::open(Arc::clone(&current), store.clone(), Arc::clone(&clock), own_rules(dirs)).await?;
    let variable = |name| mcode_env::process::var(name).map(std::path::PathBuf::from);
    let (home, user_config) = (variable("HOME"), variable("XDG_CONFIG_HOME"));
    // Without a home there is nothing below a folder that is ours.
    let user = home.clone().or_else(|| variable("USERPROFILE")).unwrap_or_else(|| dirs.data.clone());
    let elsewhere = Places::of(&user, mcode_env::process::var);
    let depots = Depots::new(dirs.data.clone(), home, user_config.as_deref(), Arc::clone(&clock));
    let plans = PlanShelf::new(plans_folder(variable("MCODE_PLANS_DIR"), dirs));
    Ok(Deps {
        spool: dirs.data.clone(),
        elsewhere,
        places: places(dirs, bounds.temp_folder()),
        plans,
        depots,
        models: Arc::new(models),
        tools: Arc::new(ToolSet::new(tools)),
        rules,
        bounds,
        config: current,
        ids: Arc::new(SystemIds),
        titles: !mcode_env::process::disabled("titles"),
        retry: RetryPolicy::default(),
        gates: Arc::new(Gates::new(Arc::clone(&clock))),
        treasury: Arc::new(Treasury::new(spent(store.clone(), Arc::clone(&clock)))),
        reap_orphan: Arc::new(|pid, started_ticks| {
            Box::pin(async move {
                if kill_orphan(ProcessIdentity { pid, started_ticks }).await {
                    tracing::info!(pid, "a process of an earlier daemon was ended");
                }
            })
        }),
        reap_marked: Arc::new(|tool_call_ids| {
            let ids = tool_call_ids.iter().map(ToString::to_string).collect();
            Box::pin(async move {
                let ended = kill_marked(ids).await;
                if ended > 0 {
                    tracing::info!(ended, "unrecorded processes of an earlier daemon were ended");
                }
            })
        }),
        processes,
        going_on: Arc::default(),
        own_env: Arc::new(mcode_env::process::vars()),
        change_rule: change_rule(config.clone()),
        store,
        clock,
    })
}

/// Every place beside the database that is written.
fn places(dirs: &Dirs, temp: &Path) -> Vec<Place> {
    let place = |what, folder: PathBuf, prefix, of| Place { what, folder, prefix, of };
    let (data, state) = (&dirs.data, &dirs.state);
    vec![
        place("bodies", dirs.blobs(), "", PlaceOf::All),
        place("damaged bodies set aside", data.join("damaged-blobs"), "", PlaceOf::All),
        place("checkpoints", data.join("checkpoints"), "", PlaceOf::Depots),
        place("moved aside from projects", data.join("aside"), "", PlaceOf::Threads),
        place("data from before a restore", data.clone(), "before-restore-", PlaceOf::All),
        place("outputs of commands", state.join(HOSTS_FOLDER), "", PlaceOf::All),
        place("temporary files of commands", temp.to_path_buf(), "", PlaceOf::Threads),
        place("the daemon's log", state.clone(), "mcoded.log", PlaceOf::All),
    ]
}

/// Where plans are kept as files. The folder that a daemon works in says nothing, so only a whole path counts.
fn plans_folder(named: Option<PathBuf>, dirs: &Dirs) -> PathBuf {
    match named {
        Some(folder) if folder.is_absolute() => folder,
        Some(folder) => {
            tracing::warn!(folder = %folder.display(), "MCODE_PLANS_DIR is no absolute path: plans go to the folder for data");
            dirs.data.join("plans")
        }
        None => dirs.data.join("plans"),
    }
}

/// The program that tends commands: beside this one, else on the `PATH`. One that is not there is named by the first
/// command that needs it.
fn toolhost() -> PathBuf {
    let name = format!("{TOOLHOST}{}", std::env::consts::EXE_SUFFIX);
    let own = mcode_env::process::current_exe().unwrap_or_default();
    let own = own.canonicalize().unwrap_or(own);
    let beside = own.parent().map(|folder| folder.join(&name)).unwrap_or_default();
    if beside.is_file() {
        return beside;
    }
    let path = mcode_env::process::var("PATH").unwrap_or_default();
    let found = find_program(&name, Path::new("/"), &path);
    if found.is_none() {
        tracing::error!(program = %beside.display(), "the program that runs commands is not there; install it again");
    }
    found.unwrap_or(beside)
}

/// Adds a rule to its list in `[permissions]` of the user's file, or takes it out, and reads the file again.
fn change_rule(config: ConfigHandle) -> mcode_threads::deps::ChangeRule {
    Arc::new(move |change| {
        let (rule, key) = (&change.rule, format!("permissions.{}", change.effect.as_str()));
        let what = if change.add { "kept" } else { "removed" };
        let failed = |error: mcode_config::EditError| format!("the rule '{rule}' could not be {what}: {error}");
        let changed = config.change(|file| if change.add { file.push(&key, rule) } else { file.pull(&key, rule) });
        let (done, faults) = changed.map_err(failed)?;
        match faults.first() {
            None => Ok(done),
            Some(error) => Err(error.to_string()),
        }
    })
}

/// Changes the user's file and reads it again.
fn change_config(config: ConfigHandle) -> mcode_server::ChangeConfig {
    Arc::new(move |changes| {
        let changes: Vec<Change> = changes
            .into_iter()
            .map(|change| match change {
                ConfigChange::Set { key, value } => Change::Set { key, value },
                ConfigChange::Unset { key } => Change::Unset { key },
                ConfigChange::AddTables { key, tables } => Change::AddTables { key, tables },
            })
            .collect();
        let failed = |error: &dyn std::error::Error| format!("the configuration is left as it is: {}", chain(error));
        let (_, faults) = config.change(|file| file.change(&changes)).map_err(|error| failed(&error))?;
        match faults.first() {
            None => Ok(config.file().display().to_string()),
            Some(error) => Err(error.to_string()),
        }
    })
}

fn faults(config: ConfigHandle) -> mcode_server::ConfigFaults {
    Arc::new(move |question| {
        let errors = match question {
            ConfigQuestion::Reload => config.reload(),
            ConfigQuestion::Faults => config.errors(),
            ConfigQuestion::Blocking => return config.blocking_errors().iter().map(ToString::to_string).collect(),
        };
        let rule_errors = RuleSet::parse(&config.current().permissions).1;
        errors.iter().map(ToString::to_string).chain(rule_errors.iter().map(ToString::to_string)).collect()
    })
}
