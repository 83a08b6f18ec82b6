//! From a project and the user's settings to a [`Policy`].
//!
//! Looks at the disk: git's folders are where the repository says, and what is named is resolved.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::policy::{Network, Policy};

/// Of the home folder: what holds secrets, or would run outside the sandbox.
const HIDDEN: [&str; 17] = [
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
];

/// Of the whole machine, for those who could read them.
const HIDDEN_SYSTEM: [&str; 4] = ["/etc/shadow", "/etc/gshadow", "/proc/kcore", "/proc/kmsg"];

/// In `~/.ssh`: no secrets, and without them git over SSH knows no host.
const SHOWN_SSH: [&str; 2] = ["known_hosts", "config"];

/// Of the home folder: caches of build tools, without which a first build fails.
const CACHES: [&str; 9] =
    [".cache", ".npm", ".bun/install/cache", "go/pkg", ".gradle", ".m2", ".yarn", ".nuget", ".local/share/pnpm"];

/// In cargo's folder.
const CACHES_CARGO: [&str; 3] = ["registry", "git", ".package-cache"];

/// Variables that name a cache as a whole.
const CACHE_VARIABLES: [&str; 3] = ["XDG_CACHE_HOME", "GOCACHE", "CARGO_TARGET_DIR"];

/// Start-up files of shells: of interest when somebody's home is the project.
const STARTUP_FILES: [&str; 8] =
    [".bashrc", ".bash_profile", ".bash_login", ".profile", ".zshrc", ".zshenv", ".zprofile", ".config/fish"];

/// Sockets through which other programs would act for the command, outside its sandbox.
const SOCKETS: [&str; 9] = [
    "/run/docker.sock",
    "/run/podman",
    "/run/containerd",
    "/run/crio",
    "/run/libvirt",
    "/run/systemd/private",
    "/run/systemd/notify",
    "/run/dbus/system_bus_socket",
    "/tmp/.X11-unix",
];

/// The same in the user's runtime folder.
const SOCKETS_USER: [&str; 8] =
    ["bus", "systemd", "docker.sock", "podman", "wayland-0", "wayland-1", "gnupg", "at-spi"];

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
    /// The user's number, where users have one.
    pub user_id: u32,
    /// A private folder for temporary files.
    pub temp: PathBuf,
    /// `[sandbox] network`.
    pub network: Network,
}

impl Grounds {
    /// The policy. What is not there is left out: it can neither be written nor read.
    #[must_use]
    pub fn policy(&self) -> Policy {
        let home = self.env.get("HOME").map(PathBuf::from).filter(|home| home.is_absolute()).and_then(resolved);
        let listed: Vec<PathBuf> = self.write.iter().filter_map(|entry| self.listed(entry, home.as_deref())).collect();
        let mut fixed = Vec::new();
        let mut write = vec![self.project_root.clone()];
        write.extend(self.add_dirs.iter().cloned().filter_map(resolved));
        write.extend(listed.iter().cloned());
        let named = write.clone();
        for root in &named {
            write.extend(protect(root, home.as_deref(), &mut fixed));
        }
        write.extend(resolved(self.temp.clone()));
        write.extend(self.caches(home.as_deref()));
        // A folder of the user's own choice is neither hidden nor out of reach.
        let chosen = |path: &PathBuf| !named.contains(path);
        let hidden = self.hidden(home.as_deref()).into_iter().filter(chosen).collect();
        let sockets = self.sockets().into_iter().filter(chosen).collect();
        let shown = home.map(|home| shown(&home.join(".ssh"))).unwrap_or_default();
        dedup(&mut write);
        fixed.sort();
        fixed.dedup();
        Policy {
            write,
            hidden,
            shown,
            fixed,
            sockets,
            network: self.network,
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

    fn sockets(&self) -> Vec<PathBuf> {
        let user = self.user_id;
        let runtime = PathBuf::from(format!("/run/user/{user}"));
        let of_user = SOCKETS_USER.iter().map(|name| runtime.join(name));
        let tmux = PathBuf::from(format!("/tmp/tmux-{user}"));
        let all = SOCKETS.iter().map(PathBuf::from).chain(of_user).chain([tmux]).chain(self.socket.clone());
        let mut found: Vec<PathBuf> = all.filter_map(resolved).collect();
        found.sort();
        found.dedup();
        found
    }
}

/// Adds to `fixed` what may not be written below a writable root; gives what must be writable beside it.
fn protect(root: &Path, home: Option<&Path>, fixed: &mut Vec<PathBuf>) -> Vec<PathBuf> {
    fixed.extend(there(root.join(".mcode")));
    if home == Some(root) {
        fixed.extend(STARTUP_FILES.iter().filter_map(|name| there(root.join(name))));
    }
    let git = root.join(".git");
    let Ok(kind) = git.symlink_metadata().map(|found| found.file_type()) else { return Vec::new() };
    if kind.is_dir() {
        protect_git(&git, fixed);
        return Vec::new();
    }
    let Some(common) = common_dir(&git) else { return Vec::new() };
    fixed.push(git);
    protect_git(&common, fixed);
    vec![common]
}

/// What git runs or obeys.
fn protect_git(git: &Path, fixed: &mut Vec<PathBuf>) {
    let hooks = git.join("hooks");
    if !hooks.exists() && git.join("HEAD").is_file() {
        // What is not there can not be fixed; git does as well with an empty folder.
        std::fs::create_dir(&hooks).ok();
    }
    fixed.extend(["hooks", "config", "config.worktree", "commondir"].iter().filter_map(|name| there(git.join(name))));
}

/// The repository that a worktree's `.git` file belongs to. The file can be written by anybody who works in the
/// worktree, so it is believed only when the repository names the worktree in return.
fn common_dir(git_file: &Path) -> Option<PathBuf> {
    let text = std::fs::read_to_string(git_file).ok()?;
    let named = text.strip_prefix("gitdir:")?.trim();
    let own = resolved(git_file.parent()?.join(named))?;
    let back = std::fs::read_to_string(own.join("gitdir")).ok()?;
    if resolved(PathBuf::from(back.trim()))? != resolved(git_file.to_path_buf())? {
        return None;
    }
    let worktrees = own.parent().filter(|folder| folder.file_name().is_some_and(|name| name == "worktrees"))?;
    let common = worktrees.parent()?.to_path_buf();
    (common.join("HEAD").is_file() && common.join("objects").is_dir()).then_some(common)
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
            ..Grounds::default()
        }
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
        let (_kept, root) = tree(&["home/p/a", "main/.git/HEAD", "main/.git/objects/", "main/.git/worktrees/p/", "tmp/"]);
        let own = root.join("main/.git/worktrees/p");
        std::fs::write(root.join("home/p/.git"), format!("gitdir: {}\n", own.display())).unwrap();
        assert_eq!(grounds(&root).policy().write, ["home/p", "tmp"].map(|name| root.join(name)));
        std::fs::write(own.join("gitdir"), format!("{}\n", root.join("home/p/.git").display())).unwrap();
        let policy = grounds(&root).policy();
        assert_eq!(policy.write, ["home/p", "main/.git", "tmp"].map(|name| root.join(name)));
        assert!(policy.fixed.contains(&root.join("home/p/.git")) && policy.fixed.contains(&root.join("main/.git/hooks")));
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
