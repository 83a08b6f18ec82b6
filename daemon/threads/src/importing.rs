//! Threads that come from files, and from the histories of other coding agents.
//!
//! What comes is text that somebody else has written. It gets ids that it can not choose, is ended wherever it was at
//! work, and brings no grant, rule, approval or place at the top of lists; what it has cost is not booked. All of it is
//! looked through before the first of it is kept, and it is a thread when all of it is there (`store/importing.rs`).
//! Everything here waits for the disk, so it runs where that is allowed, and goes on to its end when whoever asked is
//! gone. Which files of other agents are read is decided by [`discover`] alone: a client names conversations, no paths.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use mcode_events::event::{Event, EventBody};
use mcode_events::{BlobError, Blobs, PlanOutcome};
use mcode_histories::foreign::{self, Discovery, Found, Maker, Reading, Report, discover};
use mcode_histories::own::FILE_BYTES_MAX;
use mcode_histories::{Contents, Identity, Importing, Limits, Place, ThreadFile};
use mcode_ids::{ProjectId, ThreadId};
use mcode_models::{Role, Wishes};
use mcode_store::{ImportKey, ImportRow, Staging, StoreError, ThreadRow};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};

use crate::error::ThreadError;
use crate::registry::Threads;

/// Files that are taken in at once; each may wait for its client.
pub(crate) const TAKEN_AT_ONCE: usize = 4;

/// The project of threads whose folder is not on this machine. A folder comes to it when the user calls its threads so.
pub const IMPORTED: &str = "imported";

/// An event as it is taken in: a plan that was approved elsewhere was not approved here, and would be part of each prompt.
fn unapproved(mut event: Event) -> Event {
    if let EventBody::PlanSettled { outcome, .. } = &mut event.body
        && *outcome == PlanOutcome::Approved
    {
        *outcome = PlanOutcome::Dropped;
    }
    event
}

/// Events and bodies between two looks whether the daemon ends.
const LOOK_EVERY: usize = 100;

/// The longest path that is looked for, in bytes.
const PATH_BYTES_MAX: usize = 4096;

/// What became of something that was to come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is a new thread.
    Made,
    /// It had come in before, just so; nothing was changed.
    Known,
    /// It had come in before and has changed since; nothing was changed.
    Grown,
}

/// A thread that came in, or that was there already.
#[derive(Debug, Clone, PartialEq)]
pub struct Brought {
    /// Which of both.
    pub outcome: Outcome,
    /// The thread.
    pub thread: ThreadRow,
    /// The name of its project.
    pub project: String,
    /// Whether the folder that it worked in is on this machine.
    pub here: bool,
    /// Whether it was at work when it was written, and was ended.
    pub was_at_work: bool,
    /// Pictures and outputs that were missing already where it comes from.
    pub missing: u64,
    /// What became of the records of another agent's history.
    pub report: Report,
    /// The thread of an earlier state of the same.
    pub earlier: Option<ThreadId>,
}

/// A conversation of another agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The conversation.
    pub found: Found,
    /// The thread that was made of it.
    pub thread_id: Option<ThreadId>,
    /// Whether it has changed since.
    pub grown: bool,
}

/// Where imports wait for each other.
#[derive(Debug)]
pub(crate) struct Imports {
    /// For each file that is taken in.
    taking: Arc<Semaphore>,
    /// For the one that is written.
    turn: Arc<Semaphore>,
}

impl Default for Imports {
    fn default() -> Self {
        let taking = Arc::new(Semaphore::new(TAKEN_AT_ONCE));
        Self { taking, turn: Arc::new(Semaphore::new(1)) }
    }
}

impl Threads {
    /// Makes a thread of a file in mcode's own form, whose pieces come in order.
    pub async fn import(&self, pieces: mpsc::Receiver<Vec<u8>>, again: bool) -> Result<Brought, ThreadError> {
        let taking = self.inner.imports.taking.clone().try_acquire_owned().map_err(|_| ThreadError::TooManyImports)?;
        let import = self.new_import(again);
        let folder = self.deps().spool.clone();
        let file = blocking(move || spool(&folder, pieces, FILE_BYTES_MAX)).await?;
        let turn = self.inner.imports.turn.clone().acquire_owned().await.map_err(|_| ThreadError::ShuttingDown)?;
        blocking(move || {
            let _held = (taking, turn);
            import.file(file)
        })
        .await
    }

    /// Takes away what imports of an earlier daemon have left, beside everything else. To be called before anything can be
    /// imported.
    pub async fn sweep_imports(&self) -> Result<(), ThreadError> {
        let left = self.deps().store.left_staged().await?;
        let store = self.deps().store.clone();
        tokio::spawn(async move {
            for thread_id in left {
                match store.sweep_staged(thread_id).await {
                    Ok(()) => {
                        tracing::warn!(%thread_id, "an import that an earlier daemon did not finish was taken away")
                    }
                    Err(error) => {
                        tracing::warn!(%thread_id, %error, "an unfinished import could not be taken away yet")
                    }
                }
            }
        });
        Ok(())
    }

    /// What another agent has left on this machine.
    pub async fn histories(&self, maker: Maker) -> Result<Discovery, ThreadError> {
        let places = self.deps().elsewhere.clone();
        blocking(move || Ok(discover(&places, Some(maker)))).await
    }

    /// Whether conversations have come in before.
    pub async fn listed(&self, found: Vec<Found>) -> Result<Vec<Listed>, ThreadError> {
        let mut all = Vec::with_capacity(found.len());
        for found in found {
            let key = key_of(&found);
            let known = self.deps().store.imports_of(key.key.clone()).await?;
            let thread_id = known.first().map(|known| known.thread_id);
            let grown = thread_id.is_some() && known.iter().all(|known| known.key != key);
            all.push(Listed { found, thread_id, grown });
        }
        Ok(all)
    }

    /// Makes a thread of a conversation that was found.
    pub async fn import_history(&self, found: Found, again: bool) -> Result<Brought, ThreadError> {
        let turn = self.inner.imports.turn.clone().acquire_owned().await.map_err(|_| ThreadError::ShuttingDown)?;
        let import = self.new_import(again);
        blocking(move || {
            let _held = turn;
            import.history(found)
        })
        .await
    }

    fn new_import(&self, again: bool) -> Import {
        Import { threads: self.clone(), handle: Handle::current(), again }
    }
}

/// The conversations that are meant: all, or those of these names or beginnings of names.
pub fn chosen(maker: Maker, found: Vec<Found>, ids: &[String]) -> Result<Vec<Found>, ThreadError> {
    let mut chosen: Vec<Found> = Vec::with_capacity(ids.len());
    for id in ids {
        let fits = |it: &&Found| !id.is_empty() && it.id.starts_with(id.as_str());
        let one = match found.iter().find(|it| it.id == *id) {
            Some(one) => one,
            None => match found.iter().filter(fits).collect::<Vec<_>>()[..] {
                [one] => one,
                [] => return Err(ThreadError::NotFound { what: "history", id: format!("{id} of {}", maker.title()) }),
                [..] => {
                    let message = format!("more than one conversation of {} begins with '{id}'", maker.title());
                    return Err(ThreadError::InvalidArgument { field: "ids", message });
                }
            },
        };
        if !chosen.contains(one) {
            chosen.push(one.clone());
        }
    }
    Ok(chosen)
}

/// The name of a conversation, and of the state that it is in.
fn key_of(found: &Found) -> ImportKey {
    ImportKey { key: found.key(), state: found.updated_at_ms.to_string() }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ThreadError> + Send + 'static,
) -> Result<T, ThreadError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| ThreadError::Store(Box::new(error)))?
}

/// Puts pieces into a file without a name, of at most so many bytes. It is gone when it is closed, however that happens.
fn spool(folder: &Path, mut pieces: mpsc::Receiver<Vec<u8>>, max: u64) -> Result<File, ThreadError> {
    let mut file = tempfile::tempfile_in(folder).map_err(unspooled)?;
    let mut bytes = 0u64;
    while let Some(piece) = pieces.blocking_recv() {
        bytes = bytes.saturating_add(piece.len() as u64);
        if bytes > max {
            return Err(refused(format!("it has more than {max} bytes, which is the most that is taken")));
        }
        file.write_all(&piece).map_err(unspooled)?;
    }
    Ok(file)
}

fn unspooled(error: io::Error) -> ThreadError {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    match error.kind() {
        StorageFull | QuotaExceeded | FileTooLarge => ThreadError::DiskFull,
        _ => refused(format!("it could not be put aside to be looked through: {error}")),
    }
}

fn refused(cause: impl ToString) -> ThreadError {
    ThreadError::NotImported { cause: cause.to_string() }
}

fn of_blob(error: BlobError) -> ThreadError {
    StoreError::Blob(error).into()
}

/// Where a thread belongs here.
struct Home {
    place: Place,
    project: String,
    here: bool,
}

/// One import, on a thread that may wait.
struct Import {
    threads: Threads,
    handle: Handle,
    again: bool,
}

impl Import {
    fn file(&self, file: File) -> Result<Brought, ThreadError> {
        let mut file = ThreadFile::open(file, Limits::DEFAULT, self.threads.deps().clock.now()).map_err(refused)?;
        let contents = file.contents().clone();
        let key = ImportKey { key: format!("mcode:{}", contents.thread_id), state: contents.content.clone() };
        let known = self.known(&key.key)?;
        if let Some(known) = known.iter().find(|known| known.key == key).filter(|_| !self.again) {
            return self.there(Outcome::Known, known);
        }
        let home = self.home(&contents.cwd)?;
        let mut staging = self.stage()?;
        let filled = self.fill(&mut staging, &mut file, &home);
        let Contents { was_at_work, missing, .. } = contents;
        let told = Told { was_at_work, missing: missing.len() as u64, report: Report::default() };
        self.end(staging, filled.map(|()| told), &key, home, known.first())
    }

    fn fill(&self, staging: &mut Staging, file: &mut ThreadFile<File>, home: &Home) -> Result<(), ThreadError> {
        let bodies = staging.bodies();
        for (body, count) in file.blobs().map_err(refused)?.zip(0..) {
            self.look(count)?;
            let (media_type, content) = body.map_err(refused)?;
            bodies.put(&content, &media_type).map_err(of_blob)?;
        }
        let identity = Identity::Fresh(staging.state().thread_id);
        let importing = Importing { identity, place: Some(home.place.clone()) };
        let events = file.events(&importing).map_err(refused)?;
        self.add(staging, events.map(|event| event.map_err(refused)))
    }

    fn history(&self, found: Found) -> Result<Brought, ThreadError> {
        let key = key_of(&found);
        let known = self.known(&key.key)?;
        if let Some(last) = known.first().filter(|_| !self.again) {
            let same = known.iter().find(|known| known.key == key);
            return match same {
                Some(same) => self.there(Outcome::Known, same),
                None => self.there(Outcome::Grown, last),
            };
        }
        let mut staging = self.stage()?;
        match self.read(&mut staging, &found) {
            Ok((told, home)) => self.end(staging, Ok(told), &key, home, known.first()),
            Err(error) => Err(give_up(staging, error)),
        }
    }

    fn read(&self, staging: &mut Staging, found: &Found) -> Result<(Told, Home), ThreadError> {
        let deps = self.threads.deps();
        let bodies = staging.bodies();
        let reading = Reading { ids: &*deps.ids, blobs: &bodies, now: deps.clock.now() };
        let mut imported = foreign::read(found, reading).map_err(refused)?;
        if imported.title.is_empty() {
            imported.title = format!("Imported from {}", found.maker.title());
        }
        let home = self.home(&imported.cwd)?;
        let report = imported.report.clone();
        let assigned = deps.models.for_role(Role::Build, &Wishes::default(), &deps.own_env);
        let stand_in = assigned.ok().flatten().map(|assigned| assigned.model).unwrap_or_default();
        let events = imported.into_events(staging.state().thread_id, &home.place, &stand_in);
        self.add(staging, events.into_iter().map(Ok))?;
        Ok((Told { was_at_work: report.interrupted_calls > 0, missing: 0, report }, home))
    }

    fn add(
        &self,
        staging: &mut Staging,
        events: impl Iterator<Item = Result<Event, ThreadError>>,
    ) -> Result<(), ThreadError> {
        for (event, count) in events.zip(0..) {
            self.look(count)?;
            staging.add(&unapproved(event?))?;
        }
        // Where a thread stands in lists is not for a file to say.
        if staging.state().pinned {
            let state = staging.state();
            let (thread_id, seq, at_ms) = (state.thread_id, state.last_seq.next(), state.updated_at_ms);
            let body = EventBody::PinnedChanged { pinned: false };
            staging.add(&Event { thread_id, seq, at_ms, run_id: None, turn_id: None, body })?;
        }
        Ok(())
    }

    /// Makes the thread, or leaves nothing of it.
    fn end(
        &self,
        mut staging: Staging,
        filled: Result<Told, ThreadError>,
        key: &ImportKey,
        home: Home,
        earlier: Option<&ImportRow>,
    ) -> Result<Brought, ThreadError> {
        let finished = filled.and_then(|told| Ok((staging.finish(key, self.again)?, told)));
        let Told { was_at_work, missing, report } = match finished {
            Ok((None, told)) => told,
            // Somebody else was faster.
            Ok((Some(known), _)) => {
                staging.give_up()?;
                return self.there(Outcome::Known, &known);
            }
            Err(error) => return Err(give_up(staging, error)),
        };
        let thread = self.handle.block_on(self.threads.known(staging.state().thread_id))?;
        let (outcome, earlier) = (Outcome::Made, earlier.map(|known| known.thread_id));
        let Home { project, here, .. } = home;
        tracing::info!(thread_id = %thread.thread_id, key = key.key, "a thread came in");
        Ok(Brought { outcome, thread, project, here, was_at_work, missing, report, earlier })
    }

    fn known(&self, key: &str) -> Result<Vec<ImportRow>, ThreadError> {
        Ok(self.handle.block_on(self.threads.deps().store.imports_of(key.to_owned()))?)
    }

    /// What came in before.
    fn there(&self, outcome: Outcome, known: &ImportRow) -> Result<Brought, ThreadError> {
        let thread = self.handle.block_on(self.threads.known(known.thread_id))?;
        let project = self.handle.block_on(self.threads.deps().store.project(thread.project_id))?;
        let (project, here) = (project.map(|project| project.name).unwrap_or_default(), !thread.root.is_empty());
        let (was_at_work, missing, report, earlier) = (false, 0, Report::default(), None);
        Ok(Brought { outcome, thread, project, here, was_at_work, missing, report, earlier })
    }

    fn stage(&self) -> Result<Staging, ThreadError> {
        let deps = self.threads.deps();
        Ok(deps.store.stage(ThreadId::from_uuid(deps.ids.next()), self.handle.clone())?)
    }

    /// The project of the folder, if that is here; else the one of all that came in without.
    fn home(&self, cwd: &str) -> Result<Home, ThreadError> {
        let deps = self.threads.deps();
        if is_looked_for(cwd) {
            match self.handle.block_on(crate::project::resolve(deps, cwd.to_owned())) {
                Ok(found) => {
                    let place = Place { project_id: found.project.project_id, cwd: cwd.to_owned(), root: found.root };
                    return Ok(Home { place, project: found.project.name, here: true });
                }
                Err(ThreadError::InvalidArgument { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let new = ProjectId::from_uuid(deps.ids.next());
        let project = self.handle.block_on(deps.store.named_project(IMPORTED.to_owned(), new))?;
        let cwd = if cwd.len() <= PATH_BYTES_MAX { cwd.to_owned() } else { String::new() };
        let place = Place { project_id: project.project_id, cwd, root: String::new() };
        Ok(Home { place, project: project.name, here: false })
    }

    fn look(&self, count: usize) -> Result<(), ThreadError> {
        let ends = count.is_multiple_of(LOOK_EVERY) && self.threads.is_ending();
        if ends { Err(ThreadError::ShuttingDown) } else { Ok(()) }
    }
}

/// What people are told of a thread that came in.
struct Told {
    was_at_work: bool,
    missing: u64,
    report: Report,
}

/// Leaves nothing of it; where even that fails, the next start does it.
fn give_up(staging: Staging, why: ThreadError) -> ThreadError {
    if let Err(error) = staging.give_up() {
        tracing::warn!(%error, "what was begun of an import could not be taken away yet");
    }
    why
}

/// Whether a folder of this name is looked for here. Names that lead to other machines are not: a file must not say whom
/// this one talks to.
fn is_looked_for(cwd: &str) -> bool {
    cwd.len() <= PATH_BYTES_MAX
        && Path::new(cwd).is_absolute()
        && !cwd.starts_with("//")
        && !cwd.starts_with(r"\\")
        && !cwd.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_aside_is_bounded_and_whole() {
        let dir = tempfile::tempdir().unwrap();
        let spooled = |pieces: &[&[u8]], max| {
            let (sender, receiver) = mpsc::channel(8);
            pieces.iter().for_each(|piece| sender.try_send(piece.to_vec()).unwrap());
            drop(sender);
            spool(dir.path(), receiver, max)
        };
        let mut file = spooled(&[b"ab", b"", b"c"], 3).unwrap();
        let mut text = String::new();
        io::Seek::rewind(&mut file).unwrap();
        io::Read::read_to_string(&mut file, &mut text).unwrap();
        assert_eq!(text, "abc");
        let error = spooled(&[b"ab", b"cd"], 3).unwrap_err().to_string();
        assert!(error.contains("more than 3 bytes"), "{error}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "it has no name");
        let gone = dir.path().join("none");
        assert!(spool(&gone, mpsc::channel(1).1, 3).unwrap_err().to_string().contains("put aside"));
    }

    #[test]
    fn a_conversation_is_named_by_the_beginning_of_its_name() {
        let found = |id: &str| Found {
            maker: Maker::Codex,
            id: id.into(),
            title: String::new(),
            cwd: String::new(),
            updated_at_ms: 0,
            messages: None,
            path: "/x".into(),
        };
        let all = || vec![found("abc"), found("abcd"), found("xyz")];
        let names = |ids: &[&str]| {
            let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
            chosen(Maker::Codex, all(), &ids).map(|all| all.into_iter().map(|it| it.id).collect::<Vec<_>>())
        };
        assert_eq!(names(&["x", "abc", "xyz"]).unwrap(), ["xyz", "abc"]);
        assert!(names(&["ab"]).unwrap_err().to_string().contains("more than one"));
        for none in ["q", ""] {
            let error = names(&[none]).unwrap_err();
            assert!(matches!(error, ThreadError::NotFound { what: "history", .. }), "{error}");
        }
    }

    #[test]
    fn names_that_lead_elsewhere_are_not_looked_for() {
        let here = std::env::temp_dir();
        assert!(is_looked_for(here.to_str().unwrap()));
        let long = format!("{}/{}", here.display(), "x".repeat(PATH_BYTES_MAX));
        for other in ["", "a/b", "//server/share", r"\\server\share", "/a\nb", long.as_str()] {
            assert!(!is_looked_for(other), "{other}");
        }
    }
}
