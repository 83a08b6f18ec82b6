//! What a project is known by, wherever it lies and however it was cloned.
//!
//! The remote of its repository in one form for all forms of its address; without a remote the path of its main work tree;
//! outside a repository the path of the folder.

use std::path::{Path, PathBuf};

/// Largest settings of a repository that are read, in bytes.
const SETTINGS_BYTES_MAX: u64 = 1024 * 1024;

/// Largest file that leads to a repository's folder, in bytes.
const POINTER_BYTES_MAX: u64 = 4096;

/// The identity of the project at `root`. Blocking.
pub(crate) fn of(root: &Path) -> String {
    let Some(common) = common_dir(root) else { return format!("path:{}", root.display()) };
    let settings = read(&common.join("config"), SETTINGS_BYTES_MAX).unwrap_or_default();
    let main = match common.file_name() {
        Some(name) if name == ".git" => common.parent().unwrap_or(&common).to_path_buf(),
        _ => common,
    };
    match remote(&settings).and_then(|address| normal(&address, &main)) {
        Some(remote) => format!("git:{remote}"),
        None => format!("path:{}", main.display()),
    }
}

/// What tells this very folder from another at the same place, and is the same when it was moved; empty where nothing does.
/// Blocking.
pub(crate) fn folder(root: &Path) -> String {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let Ok(meta) = std::fs::metadata(root) else { return String::new() };
        // The number of a folder that is gone is given to another; when it was made is not.
        let born = meta.created().ok().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
        born.map_or_else(String::new, |born| format!("{}:{}", meta.ino(), born.as_nanos()))
    }
    #[cfg(not(unix))]
    {
        let _ = root;
        String::new()
    }
}

/// The folder that all work trees of a repository share.
fn common_dir(root: &Path) -> Option<PathBuf> {
    let git = root.join(".git");
    let meta = std::fs::metadata(&git).ok()?;
    let dir = if meta.is_dir() {
        git
    } else {
        let pointer = read(&git, POINTER_BYTES_MAX)?;
        root.join(pointer.strip_prefix("gitdir:")?.trim())
    };
    let common = match read(&dir.join("commondir"), POINTER_BYTES_MAX) {
        Some(path) => dir.join(path.trim()),
        None => dir,
    };
    std::fs::canonicalize(common).ok()
}

/// The content of a small file; a pipe or a device is none.
fn read(path: &Path, most: u64) -> Option<String> {
    let meta = std::fs::metadata(path).ok()?;
    if !meta.is_file() || meta.len() > most {
        return None;
    }
    std::fs::read(path).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// The address of the remote that a repository is known by: `origin`, else the first by name.
fn remote(settings: &str) -> Option<String> {
    let remotes = mcode_git::settings(settings).into_iter().filter(|it| it.section == "remote" && it.name == "url");
    let named = remotes.filter_map(|it| Some((it.subsection?, it.value))).filter(|(_, address)| !address.is_empty());
    named.min_by_key(|(name, _)| (name != "origin", name.clone())).map(|(_, address)| address)
}

/// One form for all forms of an address: `host/path`, without user, password, port and `.git`. Hosts know no case, paths do.
/// A local one is the path of the repository.
fn normal(address: &str, main: &Path) -> Option<String> {
    let address = address.trim();
    let (host, path) = match address.split_once("://") {
        Some((scheme, rest)) if !scheme.eq_ignore_ascii_case("file") => {
            let (authority, path) = rest.split_once('/')?;
            (host_of(authority)?, path)
        }
        Some((_, path)) => return local(Path::new(path), main),
        None => match address.split_once(':') {
            // `host:path` as ssh has it; a colon behind a slash, or one letter before it, is part of a local path.
            Some((host, path)) if !host.contains('/') && host.len() > 1 => (host_of(host)?, path),
            _ => return local(Path::new(address), main),
        },
    };
    let path = path.split(['?', '#']).next().unwrap_or(path).trim_matches('/');
    let path = path.strip_suffix(".git").unwrap_or(path).trim_end_matches('/');
    let pieces: Vec<&str> = path.split('/').filter(|piece| !piece.is_empty()).collect();
    (!pieces.is_empty()).then(|| format!("{host}/{}", pieces.join("/")))
}

fn host_of(authority: &str) -> Option<String> {
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?.0,
        None => host.split_once(':').map_or(host, |(host, _)| host),
    };
    (!host.is_empty()).then(|| host.trim_end_matches('.').to_ascii_lowercase())
}

fn local(path: &Path, main: &Path) -> Option<String> {
    let path = std::fs::canonicalize(main.join(path)).ok()?;
    Some(format!("file:{}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_forms_of_an_address_are_one() {
        let forms = [
            "git@github.com:Owner/Repo.git",
            "github.com:Owner/Repo",
            "ssh://git@github.com/Owner/Repo.git",
            "ssh://git@GitHub.com:22/Owner/Repo",
            "git+ssh://github.com/Owner/Repo.git/",
            "https://github.com/Owner/Repo",
            "https://github.com/Owner/Repo.git",
            "https://user:secret@github.com:443/Owner//Repo/",
            "https://token@GITHUB.COM/Owner/Repo.git#main",
            "http://github.com./Owner/Repo",
            "git://github.com/Owner/Repo.git",
            "  git@github.com:/Owner/Repo.git ",
        ];
        for form in forms {
            assert_eq!(normal(form, Path::new("/")).as_deref(), Some("github.com/Owner/Repo"), "{form}");
        }
        let other = ["git@github.com:owner/repo", "https://gitlab.com/Owner/Repo", "https://github.com/Owner/Repo2"];
        for form in other {
            assert_ne!(normal(form, Path::new("/")).as_deref(), Some("github.com/Owner/Repo"), "{form}");
        }
        assert_eq!(normal("ssh://git@[::1]:2222/a/b", Path::new("/")).as_deref(), Some("::1/a/b"));
        for nothing in
            ["", "https://", "https://github.com", "https://github.com/", "git@github.com:", "@:x", "https:///x"]
        {
            assert_eq!(normal(nothing, Path::new("/no/such/place")), None, "{nothing}");
        }
    }

    #[test]
    fn clones_and_work_trees_are_one_project() {
        let dir = tempfile::tempdir().unwrap();
        let base = std::fs::canonicalize(dir.path()).unwrap();
        let git = |args: &[&str]| {
            #[allow(clippy::disallowed_methods, reason = "a real git")]
            let done = std::process::Command::new("git").args(args).current_dir(&base).output().unwrap();
            assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
        };
        git(&["init", "-q", "one"]);
        let who = ["-c", "user.name=a", "-c", "user.email=a@b"];
        git(&[&["-C", "one"], &who[..], &["commit", "-q", "--allow-empty", "-m", "x"]].concat());
        git(&["-C", "one", "worktree", "add", "-q", "../tree"]);
        // Without a remote it is the main work tree.
        let path = format!("path:{}", base.join("one").display());
        assert_eq!((of(&base.join("one")), of(&base.join("tree"))), (path.clone(), path));
        // A clone is known by where it comes from.
        git(&["clone", "-q", "one", "two"]);
        assert_eq!(of(&base.join("two")), format!("git:file:{}", base.join("one").display()));
        git(&["-C", "one", "remote", "add", "upstream", "git@example.org:x/y.git"]);
        git(&["-C", "one", "remote", "add", "origin", "https://example.com/x/y.git"]);
        assert_eq!(
            (of(&base.join("one")), of(&base.join("tree"))),
            ("git:example.com/x/y".into(), "git:example.com/x/y".into())
        );
        // A folder that was moved is the same one, another at its place is not.
        let before = folder(&base.join("two"));
        std::fs::rename(base.join("two"), base.join("three")).unwrap();
        std::fs::create_dir(base.join("two")).unwrap();
        assert_eq!(folder(&base.join("three")), before);
        assert!(before.is_empty() || folder(&base.join("two")) != before);
    }

    #[test]
    fn odd_repositories_are_folders() {
        let dir = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(dir.path()).unwrap();
        let path = format!("path:{}", root.display());
        assert_eq!(of(&root), path);
        for pointer in ["", "gitdir: ", "gitdir: /no/such/place", "nonsense", "gitdir: ../../../../../../.."] {
            std::fs::write(root.join(".git"), pointer).unwrap();
            assert!(of(&root).starts_with("path:"), "{pointer}");
        }
        std::fs::remove_file(root.join(".git")).unwrap();
        std::fs::create_dir(root.join(".git")).unwrap();
        std::fs::write(root.join(".git/config"), vec![b'x'; 2 * 1024 * 1024]).unwrap();
        assert_eq!(of(&root), path);
    }
}
