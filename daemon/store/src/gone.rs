//! Whether folders are where they were.
//!
//! A path on a mount that does not answer can hold whoever looks at it for good. So nobody of the store looks himself: a
//! thread of its own does, it is waited for within a limit, and what it has not seen by then counts as being there.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;

/// How long is waited for a look.
const LOOK: Duration = Duration::from_secs(2);

/// Looks that may be at work at once, those included that a dead mount holds for good; without one nothing is looked at.
const LOOKS_MAX: usize = 8;

/// Looks at folders.
#[derive(Debug, Clone)]
pub(crate) struct Looker {
    at_work: Arc<AtomicUsize>,
    within: Duration,
    look: fn(&Path) -> std::io::Result<()>,
}

impl Default for Looker {
    fn default() -> Self {
        let look = |path: &Path| std::fs::symlink_metadata(path).map(drop);
        Self { at_work: Arc::default(), within: LOOK, look }
    }
}

/// A look that ends, also when it ends in a panic.
struct AtWork(Arc<AtomicUsize>);

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Looker {
    /// Those of the paths of which it is certain that they lead nowhere. What may not be looked at, or does not answer in
    /// time, is not among them, nor what comes after it.
    pub(crate) async fn gone(&self, paths: Vec<String>) -> Vec<String> {
        if paths.is_empty() {
            return Vec::new();
        }
        if self.at_work.fetch_add(1, Ordering::SeqCst) >= LOOKS_MAX {
            self.at_work.fetch_sub(1, Ordering::SeqCst);
            return Vec::new();
        }
        let (at_work, look) = (AtWork(Arc::clone(&self.at_work)), self.look);
        let (told, answer) = oneshot::channel();
        // No task of the runtime: one that is held for good would hold the daemon's end too.
        let begun = std::thread::Builder::new().name("mcode-look".to_owned()).spawn(move || {
            let _at_work = at_work;
            let nowhere = |path: &String| {
                matches!(look(Path::new(path)), Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory))
            };
            let _ = told.send(paths.into_iter().filter(nowhere).collect::<Vec<_>>()).is_ok();
        });
        match begun {
            Ok(_) => tokio::time::timeout(self.within, answer).await.ok().and_then(Result::ok).unwrap_or_default(),
            Err(_) => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Condvar, Mutex};

    use super::*;

    /// Where a look at the path `/dead` waits, until the test ends.
    static DEAD: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

    fn look(path: &Path) -> std::io::Result<()> {
        if path == Path::new("/dead") {
            let answers = DEAD.0.lock().unwrap();
            drop(DEAD.1.wait_while(answers, |answers| !*answers).unwrap());
        }
        std::fs::symlink_metadata(path).map(drop)
    }

    fn paths(paths: &[&str]) -> Vec<String> {
        paths.iter().map(|path| (*path).to_owned()).collect()
    }

    #[tokio::test]
    async fn a_path_that_does_not_answer_is_not_gone_and_holds_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let (here, gone) = (dir.path().to_str().unwrap().to_owned(), dir.path().join("gone").display().to_string());
        let looker = Looker { look, within: Duration::from_millis(50), ..Looker::default() };
        assert_eq!(looker.gone(paths(&[&here, &gone])).await, std::slice::from_ref(&gone));
        let below = dir.path().join("file");
        std::fs::write(&below, "").unwrap();
        let below = below.join("x").display().to_string();
        assert_eq!(looker.gone(paths(&[&below])).await, [below]);
        for held in 1..=LOOKS_MAX {
            assert_eq!(looker.gone(paths(&["/dead", &gone])).await, [""; 0]);
            assert_eq!(looker.at_work.load(Ordering::SeqCst), held);
        }
        // With all of them held nothing is looked at any more, and no thread is begun.
        assert_eq!(looker.gone(paths(&[&gone])).await, [""; 0]);
        assert_eq!(looker.at_work.load(Ordering::SeqCst), LOOKS_MAX);
        *DEAD.0.lock().unwrap() = true;
        DEAD.1.notify_all();
        while looker.at_work.load(Ordering::SeqCst) > 0 {
            tokio::task::yield_now().await;
        }
        let patient = Looker { within: LOOK, ..looker };
        assert_eq!(patient.gone(paths(&[&gone])).await, [gone], "and when it answers again all is as before");
    }
}
