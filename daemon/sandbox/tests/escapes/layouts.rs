//! Unusual places of a repository: commands run in all of them, and what git obeys is fixed in all of them.

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use mcode_sandbox::{Denied, Grounds, Network, Policy, Strength, Watch, self_test};

use crate::stage::Stage;

fn told(watch: &Watch) -> Vec<PathBuf> {
    watch.changes().found.into_iter().map(|change| change.path).collect()
}

fn git(folder: &Path, arguments: &[&str]) {
    let mut command = Command::new("git");
    command.arg("-C").arg(folder).args([
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@b",
        "-c",
        "protocol.file.allow=always",
    ]);
    let output = command.args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn repository(folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    git(folder, &["init", "-q"]);
    git(folder, &["commit", "-q", "--allow-empty", "-m", "one"]);
    std::fs::write(folder.join(".git/hooks/pre-push"), "true").unwrap();
}

/// A layout: makes it below a folder, and gives the project and what git obeys there.
type Layout = (&'static str, fn(&Path) -> (PathBuf, Vec<PathBuf>));

const LAYOUTS: [Layout; 6] = [
    ("hooks are a link", |root| {
        let project = root.join("project");
        repository(&project);
        std::fs::rename(project.join(".git/hooks"), project.join("hooks")).unwrap();
        symlink("../hooks", project.join(".git/hooks")).unwrap();
        let obeyed = ["hooks/pre-push", ".git/config"].map(|name| project.join(name));
        (project, obeyed.to_vec())
    }),
    (".git is a link", |root| {
        let project = root.join("project");
        repository(&project);
        std::fs::rename(project.join(".git"), project.join("repository")).unwrap();
        symlink("repository", project.join(".git")).unwrap();
        let obeyed = ["repository/hooks/pre-push", "repository/config"].map(|name| project.join(name));
        (project, obeyed.to_vec())
    }),
    (".git is the file of a work tree", |root| {
        let (main, project) = (root.join("main"), root.join("project"));
        repository(&main);
        git(&main, &["worktree", "add", "-q", project.to_str().unwrap()]);
        let mut obeyed = ["hooks/pre-push", "config"].map(|name| main.join(".git").join(name)).to_vec();
        obeyed.push(project.join(".git"));
        (project, obeyed)
    }),
    (".git is the file of a submodule", |root| {
        let (module, above) = (root.join("module"), root.join("above"));
        repository(&module);
        repository(&above);
        git(&above, &["submodule", "--quiet", "add", module.to_str().unwrap(), "sub"]);
        let project = above.join("sub");
        let obeyed = [above.join(".git/modules/sub/config"), project.join(".git")];
        (project, obeyed.to_vec())
    }),
    ("a read-only folder of repositories", |root| {
        let project = root.join("project");
        repository(&project.join("one"));
        std::fs::set_permissions(&project, PermissionsExt::from_mode(0o555)).unwrap();
        let obeyed = ["one/.git/hooks/pre-push", "one/.git/config"].map(|name| project.join(name));
        (project, obeyed.to_vec())
    }),
    ("no repository", |root| {
        let project = root.join("project");
        std::fs::create_dir(&project).unwrap();
        (project, Vec::new())
    }),
];

fn policy(root: &Path, project: &Path) -> Policy {
    let grounds = Grounds {
        project_root: project.to_path_buf(),
        env: BTreeMap::from([("HOME".to_owned(), root.display().to_string())]),
        temp: root.join("temp"),
        network: Network::Deny,
        make_missing: true,
        ..Grounds::default()
    };
    grounds.policy().with_repositories()
}

#[tokio::test]
async fn commands_run_in_every_layout_and_what_git_obeys_is_fixed() {
    let Strength::Enforced { namespaces, .. } = self_test().await else { panic!("no sandbox") };
    for (name, make) in LAYOUTS {
        for alone in [false, true] {
            let kept = tempfile::tempdir().unwrap();
            let root = kept.path().canonicalize().unwrap();
            std::fs::create_dir(root.join("temp")).unwrap();
            let (project, obeyed) = make(&root);
            let mut policy = policy(&root, &project);
            policy.without_namespaces = alone;
            let listed = |folder: &Path| {
                let mut names: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
                names.sort();
                names
            };
            let (before, watch) = (listed(&project), Watch::begin(&policy));
            let stage = Stage::new();
            let run = async |script: String| {
                stage.shell(&format!("cd {}; {script}", project.display()), Some(policy.clone())).await.0
            };
            let output = run("echo hi; git status || true".to_owned()).await;
            assert!(output.starts_with("hi\n"), "{name}, alone {alone}: {output}");
            assert!(
                obeyed.is_empty() || name.contains("folder of") || output.contains("On branch"),
                "{name}: {output}"
            );
            assert_eq!(listed(&project), before, "{name}");
            assert_eq!(told(&watch), Vec::<PathBuf>::new(), "{name}");
            for path in &obeyed {
                let held = std::fs::read(path).unwrap();
                let output = run(format!("echo x >> {}", path.display())).await;
                let now = std::fs::read(path).unwrap();
                assert!(now == held || (alone || !namespaces), "{name}, {}: {output}", path.display());
                assert!(now == held || told(&watch).contains(path), "{name}, {}: not told", path.display());
            }
        }
    }
}

#[tokio::test]
async fn a_further_work_tree_is_not_told_and_one_of_a_planted_repository_is() {
    let kept = tempfile::tempdir().unwrap();
    let root = kept.path().canonicalize().unwrap();
    std::fs::create_dir(root.join("temp")).unwrap();
    let project = root.join("project");
    repository(&project);
    let policy = policy(&root, &project);
    let watch = Watch::begin(&policy);
    let run = async |script: &str| {
        let script = format!("cd {}; {script}", project.display());
        Stage::new().shell(&script, Some(policy.clone())).await.0
    };
    let output = run("git worktree add -q tree").await;
    assert!(project.join("tree/.git").is_file(), "{output}");
    assert_eq!(told(&watch), Vec::<PathBuf>::new());
    let output =
        run("mkdir p other; git init -q --bare p/q; echo 'gitdir: ../p/q' > other/.git; echo x > p/q/hooks/pre-push")
            .await;
    assert_eq!(told(&watch), ["other/.git", "p/q/hooks/pre-push"].map(|name| project.join(name)), "{output}");
}

#[tokio::test]
async fn a_link_to_hooks_that_is_replaced_is_told() {
    let kept = tempfile::tempdir().unwrap();
    let root = kept.path().canonicalize().unwrap();
    std::fs::create_dir(root.join("temp")).unwrap();
    let (project, _) = LAYOUTS[0].1(&root);
    let policy = policy(&root, &project);
    let watch = Watch::begin(&policy);
    let script = format!("cd {}; mkdir h; echo x > h/pre-push; ln -sfn ../h .git/hooks", project.display());
    let (output, _) = Stage::new().shell(&script, Some(policy)).await;
    assert!(told(&watch).contains(&project.join(".git/hooks")), "{:?}: {output}", told(&watch));
}

#[tokio::test]
async fn git_does_not_take_what_is_hidden_for_removed() {
    let Strength::Enforced { namespaces, .. } = self_test().await else { panic!("no sandbox") };
    for alone in [false, true] {
        let kept = tempfile::tempdir().unwrap();
        let root = kept.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("temp")).unwrap();
        let project = root.join("project");
        repository(&project);
        for name in ["keys/deep/k", "keys/l", "secret", "plain"] {
            std::fs::create_dir_all(project.join(name).parent().unwrap()).unwrap();
            std::fs::write(project.join(name), "of the user").unwrap();
        }
        git(&project, &["add", "-A"]);
        git(&project, &["commit", "-q", "-m", "two"]);
        let globs = ["keys/**", "secret"].map(|glob| format!("{}/{glob}", project.display()));
        let denied = Denied::of(&globs, &[], std::slice::from_ref(&project), alone);
        let mut policy = policy(&root, &project).with_denied(&denied);
        policy.without_namespaces = alone;
        let script = format!(
            "cd {}; cat keys/l secret keys/deep/k; echo x > keys/new; echo x > keys/l; echo more > plain; git add -A; \
             git add plain; git -c user.name=a -c user.email=a@b commit -qam three",
            project.display()
        );
        let (output, _) = Stage::new().shell(&script, Some(policy)).await;
        assert!(!output.contains("of the user"), "alone {alone}: {output}");
        let known = Command::new("git").arg("-C").arg(&project).args(["ls-files"]).output().unwrap();
        let known = String::from_utf8(known.stdout).unwrap();
        assert!(["keys/deep/k", "keys/l", "secret"].iter().all(|name| known.contains(name)), "alone {alone}: {known}");
        if namespaces && !alone {
            assert!(!project.join("keys/new").exists(), "{output}");
            assert_eq!(std::fs::read_to_string(project.join("keys/l")).unwrap(), "of the user", "{output}");
        }
    }
}
