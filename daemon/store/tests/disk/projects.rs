//! Which project a folder belongs to.

use mcode_env::IdGen;
use mcode_ids::ProjectId;
use mcode_store::{Place, Store};

use crate::rig::Rig;

struct Places<'a> {
    rig: &'a Rig,
    store: Store,
}

impl Places<'_> {
    async fn project(&self, root: &str, identity: &str, folder: &str) -> ProjectId {
        let place = Place {
            project_id: ProjectId::from_uuid(self.rig.ids.next()),
            root: root.into(),
            identity: identity.into(),
            name: "x".into(),
            folder: folder.into(),
            now_ms: 5,
        };
        self.store.resolve_project(place).await.unwrap().project_id
    }
}

#[tokio::test]
async fn a_project_is_known_by_its_identity_wherever_it_lies() {
    let rig = Rig::new();
    let at = Places { store: rig.open(), rig: &rig };
    let first = at.project("/a", "git:h/x", "1").await;
    assert_eq!(at.project("/a", "git:h/x", "1").await, first, "however often it is asked for");
    assert_eq!(at.project("/clone", "git:h/x", "2").await, first);
    let other = at.project("/b", "path:/b", "3").await;
    assert_ne!(other, first);
    let page = at.store.projects(1, None).await.unwrap();
    assert_eq!(page.rows[0].project_id, other, "newest first");
    let next = at.store.projects(1, page.next.clone()).await.unwrap();
    assert_eq!((next.rows[0].project_id, next.next), (first, None));
    let row = at.store.project(first).await.unwrap().unwrap();
    assert_eq!((row.root.as_str(), row.identities), ("/a", vec!["git:h/x".to_owned()]));
}

#[tokio::test]
async fn a_remote_that_is_renamed_or_added_keeps_the_threads() {
    let rig = Rig::new();
    let at = Places { store: rig.open(), rig: &rig };
    let first = at.project("/a", "git:h/old", "1").await;
    at.project("/clone", "git:h/old", "2").await;
    assert_eq!(at.project("/a", "git:h/new", "1").await, first);
    assert_eq!(at.project("/clone", "git:h/old", "2").await, first, "a clone that still has the old name");
    assert_eq!(at.project("/later", "git:h/new", "9").await, first);
    // A repository that had no remote.
    let bare = at.project("/b", "path:/b", "3").await;
    assert_eq!(at.project("/b", "git:h/b", "3").await, bare);
    // One that turns out to be a clone of a known one: both are one from here on.
    let alone = at.project("/c", "path:/c", "4").await;
    assert_eq!(at.project("/c", "git:h/new", "4").await, first);
    assert_eq!(at.store.project(alone).await.unwrap().unwrap().project_id, first, "its threads are of the other now");
    assert_eq!(at.project("/c", "path:/c", "4").await, first);
}

#[tokio::test]
async fn another_folder_at_the_same_place_is_another_project() {
    let rig = Rig::new();
    let at = Places { store: rig.open(), rig: &rig };
    let first = at.project("/a", "git:h/x", "1").await;
    let other = at.project("/a", "git:h/y", "2").await;
    assert_ne!(first, other);
    assert_eq!(at.project("/a", "git:h/x", "3").await, first, "and the first one again, cloned anew");
    // Of a folder without a repository the path is all that there is.
    let plain = at.project("/p", "path:/p", "4").await;
    assert_eq!(at.project("/p", "path:/p", "5").await, plain);
}

#[tokio::test]
async fn a_folder_that_was_moved_is_found_again() {
    let rig = Rig::new();
    let at = Places { store: rig.open(), rig: &rig };
    let gone = rig.root.join("gone").to_string_lossy().into_owned();
    let there = rig.root.to_string_lossy().into_owned();
    let first = at.project(&gone, &format!("path:{gone}"), "1").await;
    assert_eq!(at.project("/new", "path:/new", "1").await, first);
    assert_ne!(at.project("/other", "path:/other", "2").await, first);
    // What is still where it was has not been moved: a copy of it, or a number that was given again.
    let here = at.project(&there, &format!("path:{there}"), "7").await;
    assert_ne!(at.project("/copy", "path:/copy", "7").await, here);
    assert_ne!(at.project("/x", "path:/x", "").await, at.project("/y", "path:/y", "").await);
}

#[tokio::test]
async fn the_user_says_what_a_folder_belongs_to_and_takes_it_back() {
    let rig = Rig::new();
    let at = Places { store: rig.open(), rig: &rig };
    let (a, b) = (at.project("/a", "git:h/a", "1").await, at.project("/b", "path:/b", "2").await);
    for root in ["/a", "/b"] {
        at.store.set_resource(root.into(), "team".into()).await.unwrap();
    }
    let team = at.project("/a", "git:h/a", "1").await;
    assert!(team != a && team != b);
    assert_eq!(at.project("/b", "path:/b", "2").await, team);
    assert_eq!(at.project("/clone", "git:h/a", "3").await, a, "only this folder was meant");
    for root in ["/a", "/b"] {
        at.store.set_resource(root.into(), String::new()).await.unwrap();
    }
    assert_eq!((at.project("/a", "git:h/a", "1").await, at.project("/b", "path:/b", "2").await), (a, b));
}

/// A folder on a mount that answers nobody, for as long as whoever should answer is there.
#[cfg(target_os = "linux")]
struct DeadMount {
    keeper: std::process::Child,
    path: std::path::PathBuf,
}

#[cfg(target_os = "linux")]
impl DeadMount {
    /// `None` where that is not allowed.
    fn at(path: &std::path::Path) -> Option<Self> {
        use std::io::Read;
        std::fs::create_dir(path).unwrap();
        let command = "exec 3<>/dev/fuse && mount -i -t fuse -o fd=3,rootmode=40000,user_id=0,group_id=0 dead \"$1\" \
                       && echo mounted && read -r _";
        let mut keeper = std::process::Command::new("sh")
            .args(["-c", command, "sh"])
            .arg(path)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0; 7];
        let mounted = keeper.stdout.as_mut().unwrap().read_exact(&mut said).is_ok() && &said == b"mounted";
        // Whoever should answer for the mount is there, and does not.
        let mount = Self { keeper, path: path.to_path_buf() };
        mounted.then_some(mount)
    }
}

#[cfg(target_os = "linux")]
impl Drop for DeadMount {
    fn drop(&mut self) {
        // With it goes the mount: all who wait are let go.
        self.keeper.kill().ok();
        self.keeper.wait().ok();
        std::process::Command::new("umount").arg("--lazy").arg(&self.path).output().ok();
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
#[allow(clippy::print_stderr)]
async fn a_former_root_on_a_dead_mount_holds_up_no_append() {
    let rig = Rig::new();
    let at = Places { store: rig.open(), rig: &rig };
    let dead = rig.root.join("dead");
    let root = dead.to_string_lossy().into_owned();
    let first = at.project(&root, &format!("path:{root}"), "1").await;
    let Some(mount) = DeadMount::at(&dead) else {
        eprintln!("SKIPPED: no mount that answers nobody can be made here");
        return;
    };
    let mut thread = rig.thread();
    let (said, other) = tokio::join!(
        async {
            for number in 0..20 {
                thread.say(&at.store, &number.to_string()).await.unwrap();
            }
            std::time::Instant::now()
        },
        async {
            let other = at.project("/new", "path:/new", "1").await;
            (other, std::time::Instant::now())
        },
    );
    assert!(said < other.1, "the appends waited for the look");
    assert_ne!(other.0, first, "what does not answer is not known to be gone");
    drop(mount);
    assert_eq!(at.project("/new", "path:/new", "1").await, other.0);
}
