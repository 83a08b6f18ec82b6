//! From a project and the user's settings to a [`Policy`].
//!
//! Looks at the disk: git's folders are where the repository says, and what is named is resolved.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::git;
use crate::listening;
use crate::policy::{Network, Policy, Quotas, within};

/// Of the home folder: what holds secrets, or would run outside the sandbox.
pub const HIDDEN: [&str; 38] = [
    ".ssh",
    ".aws",
    ".azure",
    ".gnupg",
    ".kube",
    ".netrc",
    ".pgpass",
    ".git-credentials",
    ".password-store",
    ".mozilla",
    ".config/gcloud",
    ".config/google-chrome",
    ".config/chromium",
    ".config/mcode",
    ".local/share/keyrings",
    ".local/share/mcode",
    ".local/state/mcode",
    ".config/gh",
    ".config/hub",
    ".config/op",
    ".config/rclone",
    ".docker/config.json",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".npmrc",
    ".pypirc",
    ".vault-token",
    ".terraform.d",
    ".boto",
    ".s3cfg",
    ".thunderbird",
    ".bash_history",
    ".zsh_history",
    ".psql_history",
    ".mysql_history",
    "Library/Keychains",
    "Library/Cookies",
    "Library/Application Support/Google/Chrome",
];

/// Of the whole machine, for those who could read them. Nothing of `/proc`: what lies beside something hidden is named
/// one by one, and a command's own folder there does not exist yet. What must not be read of it takes capabilities
/// that are given up.
const HIDDEN_SYSTEM: [&str; 2] = ["/etc/shadow", "/etc/gshadow"];

/// In `~/.ssh`: no secrets, and without them git over SSH knows no host.
const SHOWN_SSH: [&str; 2] = ["known_hosts", "config"];

/// Of the home folder: caches of build tools, without which a first build fails.
const CACHES: [&str; 11] = [
    ".cache",
    ".npm",
    ".bun/install/cache",
    "go/pkg",
    ".gradle",
    ".m2",
    ".yarn",
    ".nuget",
    ".local/share/pnpm",
    "Library/Caches",
    "Library/pnpm",
];

/// Of those: what is run outside the sandbox by git's hooks.
const CACHES_FIXED: [&str; 1] = [".cache/pre-commit"];

/// In cargo's folder.
const CACHES_CARGO: [&str; 3] = ["registry", "git", ".package-cache"];

/// Variables that name a cache as a whole.
const CACHE_VARIABLES: [&str; 3] = ["XDG_CACHE_HOME", "GOCACHE", "CARGO_TARGET_DIR"];

/// Of the home folder: what is run or obeyed by itself. Of interest when somebody's home, or what holds it, is the
/// project.
const STARTUP: [&str; 27] = [
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".kshrc",
    ".config/fish",
    ".config/environment.d",
    ".pam_environment",
    ".xprofile",
    ".xinitrc",
    ".xsession",
    ".config/autostart",
    ".config/systemd",
    ".gitconfig",
    ".config/git",
    ".vimrc",
    ".config/nvim",
    ".tmux.conf",
    ".local/bin",
    "bin",
    ".cargo/bin",
    ".cargo/config.toml",
];

/// Sockets through which other programs would act for the command, outside its sandbox.
const SOCKETS: [&str; 12] = [
    "/run/docker.sock",
    "/run/podman",
    "/run/containerd",
    "/run/crio",
    "/run/libvirt",
    "/run/systemd/private",
    "/run/systemd/notify",
    "/run/dbus/system_bus_socket",
    "/run/snapd.socket",
    "/var/lib/lxd/unix.socket",
    "/var/snap/lxd/common/lxd/unix.socket",
    "/tmp/.X11-unix",
];

/// The same in the home folder.
const SOCKETS_HOME: [&str; 3] = [".docker/run", ".colima", ".rd"];

/// Most names of the user's runtime folder, all of which are out of reach.
const RUNTIME_NAMES_MAX: usize = 256;

/// What a policy is made from.
#[derive(Debug, Clone, Default)]
pub struct Grounds {
    /// The project's root, resolved.
    pub project_root: PathBuf,
    /// Further folders the run may work in.
    pub add_dirs: Vec<PathBuf>,
    /// `[sandbox] write`: absolute, below `~`, or below the project.
    pub write: Vec<String>,
    /// The command's environment: `HOME` and where caches are.
    pub env: BTreeMap<String, String>,
    /// The daemon's own folders.
    pub private: Vec<PathBuf>,
    /// The daemon's own socket.
    pub socket: Option<PathBuf>,
    /// A private folder for temporary files.
    pub temp: PathBuf,
    /// `[sandbox] network`.
    pub network: Network,
    /// Makes what is missing and can only be fixed when it is there: an empty `.git/hooks`. For commands that may write.
    pub make_missing: bool,
    /// For file tools, which connect to nothing: what listens at the moment is not looked for.
    pub files_only: bool,
}

impl Grounds {
    /// The policy. What is not there is left out: it can neither be written nor read.
    #[must_use]
    pub fn policy(&self) -> Policy {
        let home = self.env.get("HOME").map(PathBuf::from).filter(|home| home.is_absolute()).and_then(resolved);
        let listed: Vec<PathBuf> = self.write.iter().filter_map(|entry| self.listed(entry, home.as_deref())).collect();
        let (mut fixed, mut absent) = (Vec::new(), Vec::new());
        let mut write = vec![self.project_root.clone()];
        write.extend(self.add_dirs.iter().cloned().filter_map(resolved));
        write.extend(listed.iter().cloned());
        let named = write.clone();
        for root in &named {
            write.extend(protect(root, &named, self.make_missing, &mut fixed));
            let startup = home.iter().filter(|home| home.starts_with(root));
            let startup = startup.flat_map(|home| STARTUP.iter().map(move |name| home.join(name)));
            for path in startup.chain([root.join(".mcode")]) {
                // A link can not be fixed, only what it leads to.
                if !path.exists() || path.is_symlink() {
                    absent.push(path.clone());
                }
                fixed.extend(resolved(path));
            }
        }
        write.extend(resolved(self.temp.clone()));
        fixed.extend(CACHES_FIXED.iter().filter_map(|name| there(home.as_deref()?.join(name))));
        write.extend(self.caches(home.as_deref()));
        // A folder of the user's own choice is neither hidden nor out of reach.
        let chosen = |path: &PathBuf| !named.contains(path);
        let hidden = self.hidden(home.as_deref()).into_iter().filter(chosen).collect();
        let sockets = self.sockets(home.as_deref()).into_iter().filter(chosen).collect();
        let shown = home.as_deref().map(|home| shown(&home.join(".ssh"))).unwrap_or_default();
        dedup(&mut write);
        fixed.sort();
        fixed.dedup();
        let mut projects = named.clone();
        dedup(&mut projects);
        Policy {
            projects: projects.into_iter().filter(|path| Some(path) != home.as_ref()).collect(),
            write,
            hidden,
            absent,
            shown,
            fixed,
            pinned: Vec::new(),
            sockets,
            network: self.network.clone(),
            quotas: Quotas::here(&self.temp),
            temp: self.temp.clone(),
            without_namespaces: false,
        }
    }

    fn listed(&self, entry: &str, home: Option<&Path>) -> Option<PathBuf> {
        let path = match (entry.strip_prefix('~'), home) {
            (Some(rest), Some(home)) => home.join(rest.trim_start_matches('/')),
            (Some(_), None) => return None,
            (None, _) => self.project_root.join(entry),
        };
        resolved(path)
    }

    fn caches(&self, home: Option<&Path>) -> Vec<PathBuf> {
        let variable = |name: &str| self.env.get(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let cargo = variable("CARGO_HOME").or_else(|| Some(home?.join(".cargo")));
        let of_home = CACHES.iter().filter_map(|name| Some(home?.join(name)));
        let of_cargo = CACHES_CARGO.iter().filter_map(|name| Some(cargo.as_ref()?.join(name)));
        let go = variable("GOPATH").map(|path| path.join("pkg"));
        let whole = CACHE_VARIABLES.iter().filter_map(|name| variable(name));
        let found = of_home.chain(of_cargo).chain(go).chain(whole).filter_map(resolved);
        // A variable that names a home, or what holds one, is no cache.
        found.filter(|path| path.parent().is_some() && !home.is_some_and(|home| home.starts_with(path))).collect()
    }

    fn hidden(&self, home: Option<&Path>) -> Vec<PathBuf> {
        let of_home = HIDDEN.iter().filter_map(|name| Some(home?.join(name)));
        let all = of_home.chain(HIDDEN_SYSTEM.iter().map(PathBuf::from)).chain(self.private.iter().cloned());
        let mut found: Vec<PathBuf> = all.filter_map(resolved).collect();
        found.sort();
        found.dedup();
        found
    }

    fn sockets(&self, home: Option<&Path>) -> Vec<PathBuf> {
        let user = user_id();
        // All of the runtime folder, but for the agent that holds the user's keys and asks for itself.
        let runtime = PathBuf::from(format!("/run/user/{user}"));
        let names = runtime.read_dir().into_iter().flatten().flatten().take(RUNTIME_NAMES_MAX);
        let agent = self.env.get("SSH_AUTH_SOCK").map(PathBuf::from).unwrap_or_default();
        let of_user = names.map(|entry| entry.path()).filter(|path| !agent.starts_with(path));
        let of_home = SOCKETS_HOME.iter().filter_map(|name| Some(home?.join(name)));
        let tmux = PathBuf::from(format!("/tmp/tmux-{user}"));
        let all = SOCKETS.iter().map(PathBuf::from).chain(of_user).chain(of_home).chain([tmux]);
        let mut found: Vec<PathBuf> = all.chain(self.socket.clone()).filter_map(resolved).collect();
        // Whatever else listens now: a terminal multiplexer or an editor runs what it is told, wherever its socket is.
        let listening = if self.files_only { Vec::new() } else { listening::sockets() };
        let places = self.own_places();
        let own = |path: &PathBuf| within(path, &places) || agent == *path || within(path, &found);
        let others: Vec<PathBuf> = listening.into_iter().filter_map(resolved).filter(|path| !own(path)).collect();
        found.extend(others);
        found.sort();
        found.dedup();
        found
    }

    /// Where the commands of the project make sockets of their own.
    fn own_places(&self) -> Vec<PathBuf> {
        let places = std::iter::once(&self.project_root).chain(&self.add_dirs).chain([&self.temp]);
        places.cloned().filter_map(resolved).collect()
    }
}

/// Adds to `fixed` what may not be written below a writable root; gives what must be writable beside it.
fn protect(root: &Path, writable: &[PathBuf], make: bool, fixed: &mut Vec<PathBuf>) -> Option<PathBuf> {
    let pointer = root.join(".git");
    let kind = pointer.symlink_metadata().ok()?.file_type();
    let folder = if kind.is_dir() {
        pointer
    } else if kind.is_symlink() {
        // A link that leads outside may have been made by a command, so it opens nothing.
        pointer.canonicalize().ok().filter(|folder| within(folder, writable))?
    } else {
        fixed.push(pointer.clone());
        git::believed(&pointer).or_else(|| git::named(&pointer).filter(|folder| within(folder, writable)))?
    };
    if make {
        git::make_fixable(&folder);
    }
    let reach: Vec<PathBuf> = writable.iter().cloned().chain([folder.clone()]).collect();
    fixed.extend(git::obeyed(&folder, &reach));
    Some(folder)
}

/// The user's number, where users have one.
#[cfg(unix)]
fn user_id() -> u32 {
    rustix::process::getuid().as_raw()
}

#[cfg(not(unix))]
fn user_id() -> u32 {
    0
}

fn shown(ssh: &Path) -> Vec<PathBuf> {
    let public = std::fs::read_dir(ssh).into_iter().flatten().flatten().map(|entry| entry.path());
    let public = public.filter(|path| path.extension().is_some_and(|ending| ending == "pub"));
    SHOWN_SSH.iter().map(|name| ssh.join(name)).chain(public).filter_map(there).collect()
}

/// The path, if it is there and no symbolic link.
fn there(path: PathBuf) -> Option<PathBuf> {
    let found = path.symlink_metadata().ok()?;
    (!found.is_symlink()).then_some(path)
}

fn resolved(path: PathBuf) -> Option<PathBuf> {
    path.canonicalize().ok()
}

/// Drops what is named twice or lies below another; the order stays.
fn dedup(paths: &mut Vec<PathBuf>) {
    let all = paths.clone();
    let mut seen: Vec<PathBuf> = Vec::new();
    paths.retain(|path| {
        let below = all.iter().any(|other| other != path && path.starts_with(other));
        let again = seen.contains(path);
        seen.push(path.clone());
        !below && !again
    });
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn tree(names: &[&str]) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for name in names {
            let path = root.join(name);
            if name.ends_with('/') {
                std::fs::create_dir_all(&path).unwrap();
            } else {
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(&path, "x").unwrap();
            }
        }
        (folder, root)
    }

    fn grounds(root: &Path) -> Grounds {
        Grounds {
            project_root: root.join("home/p"),
            env: BTreeMap::from([("HOME".to_owned(), root.join("home").display().to_string())]),
            private: vec![root.join("data")],
            temp: root.join("tmp"),
            make_missing: true,
            ..Grounds::default()
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn whatever_listens_outside_the_project_is_out_of_reach() {
        let (_kept, root) = tree(&["home/p/", "tmp/", "else/"]);
        let bind = |name: &str| std::os::unix::net::UnixListener::bind(root.join(name)).unwrap();
        let _held = (bind("else/editor.sock"), bind("home/p/own.sock"), bind("tmp/own.sock"));
        let files = Grounds { files_only: true, ..grounds(&root) }.policy().sockets;
        assert!(!files.contains(&root.join("else/editor.sock")), "{files:?}");
        let sockets = grounds(&root).policy().sockets;
        assert!(sockets.contains(&root.join("else/editor.sock")), "{sockets:?}");
        assert!(!sockets.iter().any(|path| path.ends_with("own.sock")), "{sockets:?}");
    }

    #[test]
    fn a_project_in_a_home() {
        let (_kept, root) = tree(&[
            "home/p/.git/HEAD",
            "home/p/.git/config",
            "home/p/.mcode/config.toml",
            "home/.ssh/id_ed25519",
            "home/.ssh/id_ed25519.pub",
            "home/.cache/",
            "home/.aws/credentials",
            "data/mcode.db",
            "tmp/",
        ]);
        let policy = grounds(&root).policy();
        assert_eq!(policy.write, [root.join("home/p"), root.join("tmp"), root.join("home/.cache")]);
        let fixed = [".git/config", ".git/hooks", ".mcode"].map(|name| root.join("home/p").join(name));
        assert_eq!(policy.fixed, fixed);
        for hidden in ["home/.ssh", "home/.aws", "data"] {
            assert!(policy.hidden.contains(&root.join(hidden)), "{hidden}");
        }
        assert_eq!(policy.shown, [root.join("home/.ssh/id_ed25519.pub")]);
        std::fs::remove_dir(root.join("home/p/.git/hooks")).unwrap();
        let looked = Grounds { make_missing: false, ..grounds(&root) }.policy();
        assert!(!looked.fixed.contains(&root.join("home/p/.git/hooks")));
        assert!(!root.join("home/p/.git/hooks").exists(), "a look made something");
    }

    #[test]
    fn the_users_list_counts_from_the_project_and_wins_over_hiding() {
        let (_kept, root) = tree(&["home/p/", "home/.aws/x", "other/", "tmp/"]);
        let mut grounds = grounds(&root);
        grounds.write = vec![".".into(), "~/.aws".into(), "../../other".into(), "/no/such/folder".into()];
        let policy = grounds.policy();
        assert_eq!(policy.write, ["home/p", "home/.aws", "other", "tmp"].map(|name| root.join(name)));
        assert!(!policy.hidden.contains(&root.join("home/.aws")));
    }

    #[test]
    fn a_git_file_is_believed_only_when_the_repository_names_it() {
        let (_kept, root) =
            tree(&["home/p/a", "main/.git/HEAD", "main/.git/objects/", "main/.git/worktrees/p/", "tmp/"]);
        let own = root.join("main/.git/worktrees/p");
        std::fs::write(root.join("home/p/.git"), format!("gitdir: {}\n", own.display())).unwrap();
        assert_eq!(grounds(&root).policy().write, ["home/p", "tmp"].map(|name| root.join(name)));
        std::fs::write(own.join("gitdir"), format!("{}\n", root.join("home/p/.git").display())).unwrap();
        let policy = grounds(&root).policy();
        assert_eq!(policy.write, ["home/p", "main/.git", "tmp"].map(|name| root.join(name)));
        assert!(
            policy.fixed.contains(&root.join("home/p/.git")) && policy.fixed.contains(&root.join("main/.git/hooks"))
        );
    }

    #[test]
    fn unusual_places_of_a_repository() {
        let (_kept, root) =
            tree(&["home/p/hooks/", "home/p/real/HEAD", "home/p/real/config", "elsewhere/HEAD", "tmp/"]);
        let project = root.join("home/p");
        std::os::unix::fs::symlink("real", project.join(".git")).unwrap();
        std::os::unix::fs::symlink("../hooks", project.join("real/hooks")).unwrap();
        let policy = grounds(&root).policy();
        assert_eq!(policy.fixed, ["hooks", "real/config"].map(|name| project.join(name)));
        std::fs::remove_file(project.join(".git")).unwrap();
        std::os::unix::fs::symlink(root.join("elsewhere"), project.join(".git")).unwrap();
        let policy = grounds(&root).policy();
        assert_eq!((policy.write, policy.fixed), (vec![project, root.join("tmp")], Vec::new()));
    }

    #[test]
    fn repositories_below_are_fixed_too() {
        let (_kept, root) = tree(&["home/p/vendor/sub/.git/HEAD", "home/p/vendor/sub/.git/config", "tmp/"]);
        let sub = root.join("home/p/vendor/sub/.git");
        assert_eq!(grounds(&root).policy().with_repositories().fixed, ["config", "hooks"].map(|name| sub.join(name)));
        assert!(!root.join("home/p/.git").exists(), "a repository was made");
    }

    #[test]
    fn a_home_as_the_project_keeps_what_is_run_by_itself() {
        let (_kept, root) = tree(&["home/.bashrc", "home/.config/autostart/x", "dots/gitconfig", "tmp/"]);
        std::os::unix::fs::symlink("../dots/gitconfig", root.join("home/.gitconfig")).unwrap();
        let home = root.join("home");
        for project in [home.clone(), root.clone()] {
            let policy = Grounds { project_root: project.clone(), ..grounds(&root) }.policy();
            for path in ["home/.bashrc", "home/.config/autostart", "dots/gitconfig"] {
                assert!(policy.fixed.contains(&root.join(path)), "{path}");
            }
            assert!(policy.absent.contains(&home.join(".zshrc")) && policy.absent.contains(&project.join(".mcode")));
        }
    }

    #[test]
    fn a_cache_variable_that_names_a_home_is_no_cache() {
        let (_kept, root) = tree(&["home/p/", "tmp/"]);
        let mut grounds = grounds(&root);
        grounds.env.insert("GOCACHE".into(), "/".into());
        grounds.env.insert("XDG_CACHE_HOME".into(), root.join("home").display().to_string());
        assert_eq!(grounds.policy().write, ["home/p", "tmp"].map(|name| root.join(name)));
    }
}
