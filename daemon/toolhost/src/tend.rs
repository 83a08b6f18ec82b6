//! Waiting for everything that can happen to a command, until nothing of it is left.

use std::io::{self, PipeReader, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::Duration;

use mcode_sandbox::KILL_GRACE;
use mcode_sandbox::hosted::folder::{Status, write_status};
use mcode_sandbox::hosted::output::OutputWriter;
use mcode_sandbox::hosted::wire::{Order, Report};
use mcode_sandbox::hosted::{Ended, INPUT_BYTES_MAX};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::begin::Beside;
use crate::bounds::{self, PROCESSES_MAX};
use crate::clock::{millis, now};
use crate::input::Input;
use crate::line::Line;
use crate::peer::is_welcome;
use crate::reaper::exit_state;

/// Bytes of output read at once.
const CHUNK_BYTES: usize = 64 * 1024;
/// Most that is read before something else is looked at; also what a pipe may hold when its command has ended.
const CHUNKS_MAX: usize = 16;
/// How often more output is told.
const TELL_EVERY: Duration = Duration::from_millis(20);
/// How long after the command's end it is looked whether that was all of it, so that both are told at once.
const GONE_WAIT: Duration = Duration::from_millis(2);
/// How often what does not die is killed again.
const KILL_AGAIN: Duration = Duration::from_millis(20);
/// How long the kernel may take to clear away what was killed.
const CLEAR_WAIT: Duration = Duration::from_secs(2);
/// How often the number of processes is looked at, where no limit of the kernel holds.
const COUNT_EVERY: Duration = Duration::from_millis(250);
/// How often it is looked whether a group still runs, where orphans do not come to this process.
const GROUP_LOOK: Duration = Duration::from_millis(200);

/// What the host waits for, beside the daemon.
#[derive(Debug)]
pub(crate) struct Sources {
    pub(crate) reaper: Option<PipeReader>,
    pub(crate) output: Option<OwnedFd>,
    pub(crate) listener: Option<UnixListener>,
}

/// How far the end of a command that has to end has come.
#[derive(Debug, Clone, Copy)]
enum Ending {
    /// It was asked to, and is killed then.
    Asked { kill_at: Duration },
    /// It is killed, again and again, until then.
    Killed { again_at: Duration, until: Duration },
}

/// A command that is tended.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) status: Status,
    pub(crate) sources: Sources,
    #[allow(dead_code, reason = "held for its drop")]
    beside: Beside,
    folder: PathBuf,
    line: Option<Line>,
    writer: OutputWriter,
    input: Input,
    buffer: Vec<u8>,
    began: Duration,
    deadline: Option<Duration>,
    /// Why it has to end, when it does not end by itself.
    reason: Option<Ended>,
    ending: Option<Ending>,
    /// Whether there is something to tell, and when something was told last.
    news: bool,
    told_at: Duration,
    /// Processes and threads of the machine at the beginning, when they have to be counted, and when they are next.
    count: Option<(u64, Duration)>,
}

/// What is ready.
#[derive(Debug, Default)]
struct Ready {
    reaper: bool,
    output: bool,
    listener: bool,
    line: bool,
    line_room: bool,
    input: bool,
}

impl Host {
    pub(crate) fn new(
        folder: PathBuf,
        status: Status,
        writer: OutputWriter,
        input: Input,
        sources: Sources,
        beside: Beside,
    ) -> Self {
        let began = now();
        let deadline = status.progress.limit.and_then(|limit| began.checked_add(limit));
        let base = if bounds::unlimited() { bounds::tasks() } else { None };
        Self {
            status,
            sources,
            beside,
            folder,
            line: None,
            writer,
            input,
            buffer: vec![0; CHUNK_BYTES],
            began,
            deadline,
            reason: None,
            ending: None,
            news: false,
            told_at: Duration::ZERO,
            count: base.map(|base| (base, began + COUNT_EVERY)),
        }
    }

    /// Tells a daemon all there is; the one before is let go.
    pub(crate) fn greet(&mut self, mut line: Line) {
        self.refresh();
        let tree = Report::Tree(self.status.tree);
        let sent = line.unblock().and_then(|()| line.send(&tree));
        let sent = sent.and_then(|()| line.send(&Report::Progress(self.status.progress.clone())));
        if sent.is_ok() {
            self.line = Some(line);
        }
    }

    /// Waits until all of it is gone and that is written down.
    pub(crate) fn tend(mut self) {
        while !self.status.progress.gone {
            let ready = self.wait().unwrap_or_default();
            self.handle(&ready);
        }
        // The daemon first: it waits.
        self.input.close();
        self.read_output();
        self.news = true;
        self.tell(true);
        self.refresh();
        write_status(&self.folder, &self.status).ok();
        if let Some(line) = self.line.take() {
            line.finish();
        }
    }

    fn handle(&mut self, ready: &Ready) {
        if ready.output {
            self.read_output();
        }
        if ready.reaper {
            self.reap();
        }
        if ready.listener
            && let Some(Ok((stream, _))) = self.sources.listener.as_ref().map(UnixListener::accept)
            && is_welcome(&stream)
        {
            self.greet(Line::new(stream));
        }
        if ready.line {
            self.obey();
        }
        if ready.line_room && self.line.as_mut().is_some_and(|line| line.flush().is_err()) {
            self.line = None;
        }
        if ready.input {
            self.input.feed();
            self.news = true;
        }
        self.keep_time();
        self.tell(false);
    }

    fn wait(&self) -> io::Result<Ready> {
        let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(5);
        let mut places = [None; 5];
        let line = self.line.as_ref();
        let room = if line.is_some_and(Line::is_behind) { PollFlags::OUT } else { PollFlags::empty() };
        let sources: [(Option<BorrowedFd<'_>>, PollFlags); 5] = [
            (self.sources.reaper.as_ref().map(AsFd::as_fd), PollFlags::IN),
            (self.sources.output.as_ref().map(AsFd::as_fd), PollFlags::IN),
            (self.sources.listener.as_ref().map(AsFd::as_fd), PollFlags::IN),
            (line.map(Line::fd), PollFlags::IN | room),
            (self.input.wanted(), PollFlags::OUT),
        ];
        for ((fd, flags), place) in sources.into_iter().zip(&mut places) {
            if let Some(fd) = fd {
                *place = Some(fds.len());
                fds.push(PollFd::from_borrowed_fd(fd, flags));
            }
        }
        let timeout = self.next_time().map(|at| at.saturating_sub(now()));
        let timeout = timeout.and_then(|wait| Timespec::try_from(wait).ok());
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Ready::default()),
            Err(error) => return Err(error.into()),
        }
        let got = |at: usize| places[at].map_or(PollFlags::empty(), |place| fds[place].revents());
        Ok(Ready {
            reaper: !got(0).is_empty(),
            output: !got(1).is_empty(),
            listener: !got(2).is_empty(),
            line: got(3).intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR),
            line_room: got(3).contains(PollFlags::OUT),
            input: !got(4).is_empty(),
        })
    }

    /// When something has to be done though nothing happens.
    fn next_time(&self) -> Option<Duration> {
        let tell = (self.news && self.line.is_some()).then(|| self.told_at + TELL_EVERY);
        let end = match self.ending {
            None => self.deadline.filter(|_| self.is_limited()),
            Some(Ending::Asked { kill_at }) => Some(kill_at),
            Some(Ending::Killed { again_at, .. }) => Some(again_at),
        };
        let count = self.count.map(|(_, at)| at);
        let group = self.sources.reaper.is_none().then(|| now() + GROUP_LOOK);
        [tell, end, count, group].into_iter().flatten().min()
    }

    /// Whether the time limit still holds: a foreground command has met it by ending; what it left behind lives on.
    fn is_limited(&self) -> bool {
        self.status.progress.ended.is_none() || self.status.progress.background
    }

    fn keep_time(&mut self) {
        let now = now();
        if self.ending.is_none() && self.is_limited() && self.deadline.is_some_and(|deadline| deadline <= now) {
            self.end(Ended::TimedOut(self.status.progress.limit.unwrap_or_default()));
        }
        match self.ending {
            Some(Ending::Asked { kill_at }) if kill_at <= now => self.kill(now + CLEAR_WAIT),
            Some(Ending::Killed { until, .. }) if until <= now => self.gone(),
            Some(Ending::Killed { again_at, until }) if again_at <= now => self.kill(until),
            _ => {}
        }
        if let Some((base, at)) = self.count
            && at <= now
        {
            self.count = Some((base, now + COUNT_EVERY));
            let many = bounds::tasks().is_some_and(|tasks| tasks > base + PROCESSES_MAX);
            if many && self.ending.is_none() && self.status.tree.members().len() as u64 > PROCESSES_MAX {
                self.reason = Some(Ended::Killed(format!("it had more than {PROCESSES_MAX} processes")));
                self.kill(now + CLEAR_WAIT);
            }
        }
        if !self.status.progress.gone && self.sources.reaper.is_none() && self.status.tree.members().is_empty() {
            self.gone();
        }
    }

    /// Asks it to end, and kills it if it does not.
    fn end(&mut self, reason: Ended) {
        if self.reason.is_none() {
            self.reason = Some(reason);
            self.status.tree.terminate();
            self.ending = Some(Ending::Asked { kill_at: now() + KILL_GRACE });
        }
    }

    fn kill(&mut self, until: Duration) {
        self.status.tree.kill();
        self.ending = Some(Ending::Killed { again_at: now() + KILL_AGAIN, until });
    }

    /// The command has ended, or the last of what it started.
    fn reap(&mut self) {
        let Some(reaper) = &mut self.sources.reaper else { return };
        let mut bytes = [0; 4];
        if reaper.read_exact(&mut bytes).is_err() {
            self.sources.reaper = None;
            // Where orphans come to this process, no children means that nothing is left.
            if cfg!(target_os = "linux") || self.status.tree.members().is_empty() {
                self.gone();
            }
            return;
        }
        self.read_output();
        self.ended(Ended::Exited(exit_state(bytes)));
        // Most times that was all of it, and it is told at once.
        let last = self.sources.reaper.as_ref().is_some_and(|reaper| {
            let mut fds = [PollFd::new(reaper, PollFlags::IN)];
            poll(&mut fds, Timespec::try_from(GONE_WAIT).ok().as_ref()).is_ok_and(|count| count > 0)
        });
        if last {
            self.reap();
            return;
        }
        self.tell(true);
        write_status(&self.folder, &self.status).ok();
    }

    /// Notes the end of the command; why it had to end goes before how it did.
    fn ended(&mut self, how: Ended) {
        let progress = &mut self.status.progress;
        if progress.ended.is_none() {
            progress.took_ms = millis(now().saturating_sub(self.began));
        }
        progress.ended = Some(self.reason.clone().unwrap_or(how));
        self.news = true;
    }

    fn gone(&mut self) {
        let how = self.status.progress.ended.clone().unwrap_or_else(|| Ended::Lost("its end was not seen".to_owned()));
        self.ended(how);
        self.status.progress.gone = true;
    }

    fn obey(&mut self) {
        let Some(line) = &mut self.line else { return };
        let Ok(orders) = line.orders() else {
            self.line = None;
            return;
        };
        for order in orders {
            match order {
                Order::Input(bytes) if self.input.waiting() + bytes.len() <= INPUT_BYTES_MAX => self.input.push(&bytes),
                Order::InputEnd => self.input.end(),
                Order::End(why) => self.end(Ended::Killed(why)),
                Order::Background => {
                    self.status.progress.background = true;
                    write_status(&self.folder, &self.status).ok();
                }
                // Who sends more than may wait, or begins anew, is not the daemon that was meant.
                Order::Input(_) | Order::Run(_) => {
                    self.line = None;
                    return;
                }
            }
            self.news = true;
        }
    }

    /// Takes what was printed, as much as may be read at once.
    fn read_output(&mut self) {
        for _ in 0..CHUNKS_MAX {
            let Some(output) = &self.sources.output else { return };
            match rustix::io::read(output, &mut self.buffer[..]) {
                Ok(count @ 1..) => {
                    self.writer.push(&self.buffer[..count]);
                    self.news = true;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // A terminal that nobody holds any more ends with an error.
                Ok(0) | Err(_) => self.sources.output = None,
            }
        }
    }

    /// Tells the daemon where the command stands, if that is news and not too soon.
    fn tell(&mut self, at_once: bool) {
        if !self.news || !at_once && now() < self.told_at + TELL_EVERY {
            return;
        }
        let Some(line) = &self.line else { return };
        if line.is_behind() && !at_once {
            return;
        }
        self.refresh();
        let report = Report::Progress(self.status.progress.clone());
        if self.line.as_mut().is_some_and(|line| line.send(&report).is_err()) {
            self.line = None;
        }
        self.news = false;
        self.told_at = now();
    }

    fn refresh(&mut self) {
        let progress = &mut self.status.progress;
        progress.age_ms = millis(now().saturating_sub(self.began));
        progress.output_bytes = self.writer.total();
        progress.input_taken = self.input.taken();
        progress.input_waiting = self.input.waiting() as u64;
        progress.input_open = self.input.is_open() && !progress.gone;
    }
}
