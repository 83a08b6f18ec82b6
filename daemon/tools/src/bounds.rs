//! What a run may touch: one policy for its commands, which the kernel holds, and for the file tools, which hold it
//! themselves. What lies beyond it is asked of a person.

mod denied;
mod temp;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use mcode_ids::ThreadId;
use mcode_permissions::DeniedPaths;
use mcode_permissions::access::{Access, GUARDED, PLANS, Unconfined, is_plan};
use mcode_sandbox::{Denied, Grounds, Network, Policy, Watch};
pub use mcode_sandbox::{NetworkRule, Settings, Strength};
pub(crate) use temp::TempUse;
use tokio::sync::OnceCell;

/// Writable folders that are named to a model.
const NAMED_MAX: usize = 3;
/// Threads that are remembered as told what is not held; beyond it some are told again.
const TOLD_MAX: usize = 10_000;

/// Gives the settings as they now are.
pub type CurrentSettings = Arc<dyn Fn() -> Settings + Send + Sync>;

/// Where the daemon's own things are.
#[derive(Debug, Clone, Default)]
pub struct OwnPlaces {
    /// Folders that commands may not read: configuration with keys, the database, the log.
    pub private: Vec<PathBuf>,
    /// The socket that clients come to.
    pub socket: Option<PathBuf>,
    /// Holds a folder for temporary files of each thread. Private to this user.
    pub temp: PathBuf,
    /// Where what commands planted is moved to, a folder for each thread; beside `temp` when it is empty.
    pub aside: PathBuf,
    /// The socket of the proxy that reaches the hosts of the settings, where there is one.
    pub proxy: Option<PathBuf>,
}

/// What commands and file tools are held to, for all runs.
pub struct Bounds {
    settings: CurrentSettings,
    places: OwnPlaces,
    strength: OnceCell<Strength>,
    told: Mutex<BTreeSet<(ThreadId, Lack)>>,
    /// How many commands of each thread use its temporary files.
    temps: Mutex<BTreeMap<ThreadId, usize>>,
}

/// What a thread is told once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lack {
    /// Commands are not held at all.
    Sandbox,
    /// Not all that deny rules are about is held.
    Rules,
}

impl fmt::Debug for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bounds").field("places", &self.places).field("strength", &self.strength).finish_non_exhaustive()
    }
}

/// How far a run reaches.
#[derive(Debug, Clone, Default)]
pub struct Reach {
    /// The project's root, resolved.
    pub project_root: PathBuf,
    /// Further folders of the run.
    pub add_dirs: Vec<PathBuf>,
    /// The run only looks (modes plan and explore): its commands write nothing but temporary files.
    pub looking_only: bool,
    /// Commands have the network without asking for it.
    pub network: bool,
    /// What deny rules forbid, also to whatever a command starts.
    pub denied: DeniedPaths,
}

/// What a command asks for beyond the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Wish {
    /// Nothing.
    #[default]
    Nothing,
    /// The network.
    Network,
    /// To run outside.
    Outside,
}

impl Wish {
    /// The word by which the next daemon knows it.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Nothing => "",
            Self::Network => "network",
            Self::Outside => "outside",
        }
    }

    /// What a word means; an unknown one the most, so that nothing is written to such a command unasked.
    pub(crate) fn of_word(word: &str) -> Self {
        match word {
            "" => Self::Nothing,
            "network" => Self::Network,
            _ => Self::Outside,
        }
    }
}

/// What a command is held to.
#[derive(Debug)]
pub enum Hold {
    /// The kernel holds this; what it can not, is watched.
    Held {
        /// What it may touch.
        policy: Box<Policy>,
        /// How things were before it.
        watch: Box<Watch>,
        /// Its folder for temporary files.
        temp: TempUse,
        /// What of the deny rules is not held here, and what they cost, a sentence each; said once per thread.
        lacks: Vec<String>,
    },
    /// A person let this one run outside.
    LetOut,
    /// Nothing holds it, and why; said once per thread.
    Nothing(String),
}

impl Bounds {
    /// Where the temporary files of all threads are, a folder for each.
    #[must_use]
    pub fn temp_folder(&self) -> &Path {
        &self.places.temp
    }

    /// Bounds by these settings.
    #[must_use]
    pub fn new(settings: CurrentSettings, places: OwnPlaces) -> Arc<Self> {
        Arc::new(Self { settings, places, strength: OnceCell::new(), told: Mutex::default(), temps: Mutex::default() })
    }

    /// Bounds where it is known what the system holds.
    #[must_use]
    pub fn knowing(settings: CurrentSettings, places: OwnPlaces, strength: Strength) -> Arc<Self> {
        let strength = OnceCell::from(strength);
        Arc::new(Self { settings, places, strength, told: Mutex::default(), temps: Mutex::default() })
    }

    /// What this system really holds; tried out the first time, which takes some hundredths of a second.
    pub async fn strength(&self) -> &Strength {
        let tried = async {
            match mcode_env::files::create_private_dir(&self.places.temp) {
                Ok(()) => mcode_sandbox::self_test_in(&self.places.temp).await,
                Err(error) => Strength::None(format!("the folder for temporary files can not be made: {error}")),
            }
        };
        self.strength.get_or_init(|| tried).await
    }

    /// The same, if it is known already.
    #[must_use]
    pub fn known_strength(&self) -> Option<&Strength> {
        self.strength.get()
    }

    /// The settings as they now are.
    #[must_use]
    pub fn settings(&self) -> Settings {
        (self.settings)()
    }

    /// Whether this thread is told this for the first time.
    fn first_time(&self, thread: ThreadId, lack: Lack) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() >= TOLD_MAX {
            told.clear();
        }
        told.insert((thread, lack))
    }
}

/// The bounds of one call. Cheap to clone.
#[derive(Debug, Clone)]
pub struct CallBounds {
    bounds: Arc<Bounds>,
    thread: ThreadId,
    reach: Arc<Reach>,
    env: Arc<BTreeMap<String, String>>,
    policy: Arc<OnceLock<Option<Policy>>>,
    denied: Arc<OnceLock<Denied>>,
}

impl CallBounds {
    /// The bounds of a call of this thread; `env` tells where the user's home and caches are.
    #[must_use]
    pub fn new(bounds: Arc<Bounds>, thread: ThreadId, reach: Reach, env: Arc<BTreeMap<String, String>>) -> Self {
        Self { bounds, thread, reach: Arc::new(reach), env, policy: Arc::default(), denied: Arc::default() }
    }

    /// Whether file tools may read this resolved path. Blocking.
    #[must_use]
    pub fn may_read(&self, path: &Path) -> bool {
        self.policy().is_none_or(|policy| policy.may_read(path))
    }

    /// What is to be judged beside these effects: what of them lies beyond the sandbox, and the names that deny rules
    /// know a file by which has several. Blocking.
    #[must_use]
    pub fn beyond(&self, accesses: &[Access]) -> Vec<Access> {
        let mut found = self.by_other_names(accesses);
        found.extend(self.unconfined(accesses));
        found
    }

    fn unconfined(&self, accesses: &[Access]) -> Vec<Access> {
        if !accesses.iter().any(|access| matches!(access, Access::EditPath(_) | Access::ReadPath(_))) {
            return Vec::new();
        }
        let Some(policy) = self.policy() else { return Vec::new() };
        let plans = self.reach.project_root.join(PLANS);
        let beyond = accesses.iter().filter_map(|access| match access {
            Access::EditPath(path) if path.starts_with(&plans) && policy.write.contains(&self.reach.project_root) => {
                None
            }
            // Where commands only look, plans are still written; in which mode that is, permissions know.
            Access::EditPath(path) if self.reach.looking_only && is_plan(path, &self.reach.project_root) => None,
            Access::EditPath(path) if !policy.may_write(path) || guarded(path) => Some(Unconfined::Edit(path.clone())),
            Access::ReadPath(path) if !policy.may_read(path) => Some(Unconfined::Read(path.clone())),
            _ => None,
        });
        beyond.map(Access::Unconfined).collect()
    }

    /// What a command has to be given beyond the sandbox for its wish; nothing when it has it anyway.
    ///
    /// # Errors
    /// When the settings leave nothing to ask.
    pub fn wished(&self, wish: Wish) -> Result<Option<Access>, String> {
        let settings = self.bounds.settings();
        let off = settings.enabled == Some(false);
        match wish {
            Wish::Nothing => Ok(None),
            _ if off => Ok(None),
            Wish::Network if settings.network == NetworkRule::Allow => Ok(None),
            Wish::Network if settings.network == NetworkRule::Deny => {
                Err("the user's configuration keeps the network off ([sandbox] network = \"deny\")".to_owned())
            }
            Wish::Network => Ok(Some(Access::Unconfined(Unconfined::Network))),
            Wish::Outside => Ok(Some(Access::Unconfined(Unconfined::Command))),
        }
    }

    /// What a command is held to; its wish was granted. `shielded` as in [`CallContext`](crate::CallContext). Looks at the
    /// disk.
    ///
    /// # Errors
    /// When it must be held, and can not be.
    pub async fn command(&self, wish: Wish, shielded: bool) -> Result<Hold, String> {
        let hold = self.hold(wish).await?;
        // What was seen when it was judged may be otherwise by now.
        if shielded && !(matches!(hold, Hold::Held { .. }) && self.holds_all()) {
            return Err(
                "what deny rules name can not be held any more, as it could when this command was judged; nothing \
                        was run. Make the call again"
                    .to_owned(),
            );
        }
        Ok(hold)
    }

    async fn hold(&self, wish: Wish) -> Result<Hold, String> {
        let settings = self.bounds.settings();
        if settings.enabled == Some(false) {
            return Ok(Hold::Nothing("the configuration turns it off ([sandbox] enabled = false)".to_owned()));
        }
        if let Strength::None(reason) = self.bounds.strength().await {
            return match settings.enabled {
                Some(_) => Err(format!(
                    "the sandbox can not be held here ({reason}), and the configuration demands it ([sandbox] enabled = \
                     true), so nothing was run"
                )),
                None => Ok(Hold::Nothing(reason.clone())),
            };
        }
        if wish == Wish::Outside {
            return Ok(Hold::LetOut);
        }
        let this = self.clone();
        let policy = tokio::task::spawn_blocking(move || {
            let temp = TempUse::begin(&this.bounds, this.thread)?;
            let policy = this.command_policy(&settings, wish).with_denied(this.denied());
            let (policy, watch) = match this.reach.looking_only {
                true => (policy, Watch::nothing()),
                false => Watch::over(policy),
            };
            let lacks = this.lacks(&policy);
            Ok::<_, io::Error>(Hold::Held { policy: Box::new(policy), watch: Box::new(watch), temp, lacks })
        });
        policy.await.map_err(|error| error.to_string())?.map_err(|error| {
            format!("the folder for temporary files of commands can not be made: {error}; nothing was run")
        })
    }

    /// Whether this thread has not yet been told this.
    pub(crate) fn first_time(&self, lack: Lack) -> bool {
        self.bounds.first_time(self.thread, lack)
    }

    fn command_policy(&self, settings: &Settings, wish: Wish) -> Policy {
        let network = match settings.network {
            _ if self.reach.looking_only => Network::Deny,
            NetworkRule::Allow => Network::Allow,
            NetworkRule::Ask if wish == Wish::Network || self.reach.network => Network::Allow,
            NetworkRule::Ask | NetworkRule::Deny => match &self.bounds.places.proxy {
                Some(proxy) if !settings.hosts.is_empty() => Network::Proxy(proxy.clone()),
                _ => Network::Deny,
            },
        };
        let policy = Policy { network, ..self.grounds(settings, !self.reach.looking_only).policy() };
        if self.reach.looking_only { policy.looking_only() } else { policy }
    }

    /// The policy for the file tools.
    fn policy(&self) -> Option<&Policy> {
        let make = || {
            let settings = self.bounds.settings();
            // Windows has paths of two kinds, which do not compare.
            if settings.enabled == Some(false) || cfg!(windows) {
                return None;
            }
            Some(Grounds { files_only: true, ..self.grounds(&settings, false) }.policy())
        };
        self.policy.get_or_init(make).as_ref()
    }

    fn grounds(&self, settings: &Settings, make_missing: bool) -> Grounds {
        let temp = self.bounds.temp_of(self.thread);
        Grounds {
            project_root: self.reach.project_root.clone(),
            add_dirs: self.reach.add_dirs.clone(),
            write: settings.write.clone(),
            env: (*self.env).clone(),
            private: self.bounds.places.private.clone(),
            socket: self.bounds.places.socket.clone(),
            temp: temp.canonicalize().unwrap_or(temp),
            network: Network::Deny,
            make_missing,
            files_only: false,
        }
    }
}

fn guarded(path: &Path) -> bool {
    path.components().any(|part| GUARDED.iter().any(|name| part.as_os_str().eq_ignore_ascii_case(name)))
}

/// One line about a policy, for a model whose command may have failed because of it.
#[must_use]
pub fn summary(policy: &Policy) -> String {
    policy.summary(NAMED_MAX)
}
