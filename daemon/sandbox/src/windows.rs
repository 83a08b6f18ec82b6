//! Job objects: everything a command starts belongs to its job, and ends when the job does.

use std::ffi::c_void;
use std::io::{self, Read};
use std::mem::size_of;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::os::windows::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};

use tokio::sync::mpsc;
use windows_sys::Win32::Foundation::{FILETIME, HANDLE};
use windows_sys::Win32::System::JobObjects::{
    AssignProcessToJobObject, CreateJobObjectW, JOB_OBJECT_LIMIT_ACTIVE_PROCESS, JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE,
    JOBOBJECT_BASIC_ACCOUNTING_INFORMATION, JOBOBJECT_EXTENDED_LIMIT_INFORMATION, JobObjectBasicAccountingInformation,
    JobObjectExtendedLimitInformation, QueryInformationJobObject, SetInformationJobObject, TerminateJobObject,
};
use windows_sys::Win32::System::Threading::{CREATE_NEW_PROCESS_GROUP, CREATE_NO_WINDOW, GetProcessTimes};

use crate::confine::Confined;
use crate::process::{ExitState, ProcessIdentity};
use crate::restricted::{RESTRICTED, Release};
use crate::runner::Start;

/// Most processes of one command at the same time: a fork bomb ends there.
const PROCESSES_MAX: u32 = 4096;
/// Chunks of output that wait for their reader.
const CHUNKS_WAITING_MAX: usize = 4;
/// Bytes read at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// No console window, and no console that could be asked for a password.
pub(crate) fn prepare(command: &mut Command, _umask: Option<u32>, _confined: Option<Confined>, _how: &Start) {
    command.creation_flags(CREATE_NO_WINDOW | CREATE_NEW_PROCESS_GROUP);
}

/// The command that runs a program, with fewer rights where that is wanted.
#[allow(clippy::disallowed_methods, reason = "the one place that starts processes comes here")]
pub(crate) fn begun(program: PathBuf, how: &Start) -> Command {
    let Some(by) = &how.restricted_by else { return Command::new(program) };
    let mut command = Command::new(by);
    command.arg(RESTRICTED).arg(program);
    command
}

/// Gives the command its arguments. What `cmd /S /C` runs is put between quotes and left as it is otherwise: `cmd`
/// takes off the outer ones and does not know the escapes that other programs do.
pub(crate) fn arguments(command: &mut Command, arguments: &[String]) {
    match arguments {
        [options @ .., run, script] if run == "/C" => {
            command.args(options).arg(run).raw_arg(format!("\"{script}\""));
        }
        _ => {
            command.args(arguments);
        }
    }
}

/// The reading end of a command's output. Anonymous pipes can not be read asynchronously here: a thread reads.
#[derive(Debug)]
pub(crate) struct Output {
    chunks: mpsc::Receiver<io::Result<Vec<u8>>>,
    rest: Vec<u8>,
}

impl Output {
    pub(crate) fn new(mut reader: io::PipeReader) -> io::Result<Self> {
        let (sender, chunks) = mpsc::channel(CHUNKS_WAITING_MAX);
        std::thread::Builder::new().name("command-output".into()).spawn(move || {
            loop {
                let mut chunk = vec![0; CHUNK_BYTES];
                let sent = match reader.read(&mut chunk) {
                    Ok(0) => return,
                    Ok(count) => {
                        chunk.truncate(count);
                        sender.blocking_send(Ok(chunk))
                    }
                    Err(error) => {
                        sender.blocking_send(Err(error)).ok();
                        return;
                    }
                };
                if sent.is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { chunks, rest: Vec::new() })
    }

    pub(crate) async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.rest.is_empty() {
            match self.chunks.recv().await {
                Some(chunk) => self.rest = chunk?,
                None => return Ok(0),
            }
        }
        let count = self.rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.rest[..count]);
        self.rest.drain(..count);
        Ok(count)
    }
}

/// A job that holds a command and all it starts. Closing the last handle ends them.
#[derive(Debug)]
pub(crate) struct Kin {
    identity: ProcessIdentity,
    job: Option<OwnedHandle>,
    #[allow(dead_code, reason = "held for its drop")]
    release: Option<Release>,
}

/// How hard to end a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Force {
    /// There is no signal that a windowless program would hear, so this does nothing.
    Ask,
    /// Ends the job.
    Kill,
}

impl Kin {
    #[allow(unsafe_code)]
    pub(crate) fn adopt(child: &tokio::process::Child) -> io::Result<Self> {
        let gone = || io::Error::other("the process ended before it was known");
        let (pid, process) = (child.id().ok_or_else(gone)?, child.raw_handle().ok_or_else(gone)?);
        // SAFETY: null attributes and name are allowed; the result is checked before it is owned.
        let raw = unsafe { CreateJobObjectW(std::ptr::null(), std::ptr::null()) };
        if raw.is_null() {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `raw` is a valid handle that nobody else owns.
        let job = unsafe { OwnedHandle::from_raw_handle(raw.cast()) };
        let mut limits = JOBOBJECT_EXTENDED_LIMIT_INFORMATION::default();
        limits.BasicLimitInformation.LimitFlags = JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE | JOB_OBJECT_LIMIT_ACTIVE_PROCESS;
        limits.BasicLimitInformation.ActiveProcessLimit = PROCESSES_MAX;
        let size = u32::try_from(size_of::<JOBOBJECT_EXTENDED_LIMIT_INFORMATION>()).unwrap_or_default();
        // SAFETY: the handle is valid, and the pointer and size describe one live structure of the named class.
        let set = unsafe {
            SetInformationJobObject(raw, JobObjectExtendedLimitInformation, (&raw const limits).cast::<c_void>(), size)
        };
        // SAFETY: both handles are valid for the length of the call.
        if set == 0 || unsafe { AssignProcessToJobObject(raw, process as HANDLE) } == 0 {
            return Err(io::Error::last_os_error());
        }
        let identity = ProcessIdentity { pid, started_ticks: started(process as HANDLE) };
        // Whatever starts it with fewer rights waits for this: now all that it starts belongs to the job.
        Ok(Self { identity, job: Some(job), release: Some(Release::give(pid)?) })
    }

    pub(crate) fn identity(&self) -> ProcessIdentity {
        self.identity
    }

    #[allow(unsafe_code)]
    pub(crate) fn members(&self) -> Vec<u32> {
        let Some(job) = &self.job else { return Vec::new() };
        let mut counts = JOBOBJECT_BASIC_ACCOUNTING_INFORMATION::default();
        let size = u32::try_from(size_of::<JOBOBJECT_BASIC_ACCOUNTING_INFORMATION>()).unwrap_or_default();
        // SAFETY: the handle is valid, and the pointer and size describe one live structure of the named class.
        let done = unsafe {
            QueryInformationJobObject(
                job.as_raw_handle().cast(),
                JobObjectBasicAccountingInformation,
                (&raw mut counts).cast::<c_void>(),
                size,
                std::ptr::null_mut(),
            )
        };
        if done != 0 && counts.ActiveProcesses > 0 { vec![self.identity.pid] } else { Vec::new() }
    }

    #[allow(unsafe_code)]
    pub(crate) fn signal(&self, force: Force) {
        let (Force::Kill, Some(job)) = (force, &self.job) else { return };
        // SAFETY: the handle is valid for the length of the call.
        if unsafe { TerminateJobObject(job.as_raw_handle().cast(), 1) } == 0 {
            tracing::warn!(error = %io::Error::last_os_error(), "a job could not be ended");
        }
    }
}

pub(crate) fn exit_state(status: ExitStatus) -> ExitState {
    ExitState { code: status.code(), signal: None }
}

/// Jobs close with the daemon that made them, so nothing that an earlier daemon started can still run.
pub(crate) fn still_runs(_identity: ProcessIdentity) -> bool {
    false
}

pub(crate) fn recorded(identity: ProcessIdentity) -> Kin {
    Kin { identity, job: None, release: None }
}

/// Creation time in units of 100 ns; 0 when it can not be had.
#[allow(unsafe_code)]
fn started(process: HANDLE) -> u64 {
    let mut times = [FILETIME { dwLowDateTime: 0, dwHighDateTime: 0 }; 4];
    let [created, exited, kernel, user] = &mut times;
    // SAFETY: the handle is valid and the four pointers are to live structures.
    if unsafe { GetProcessTimes(process, created, exited, kernel, user) } == 0 {
        return 0;
    }
    u64::from(created.dwHighDateTime) << 32 | u64::from(created.dwLowDateTime)
}
