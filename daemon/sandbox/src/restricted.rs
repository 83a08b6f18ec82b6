//! Commands with fewer rights than their user has. Windows takes a token when a process is made and never later, and
//! the standard library has no way to give one, so a program of ours starts each command in its place: [`start`] makes
//! a token without privileges and without the groups of administrators, and [`run`] is what that program does.
//!
//! It holds back what an administrator may do and a user may not. Files and the network stay what they are for the
//! user: nobody should take it for a sandbox.

use std::ffi::c_void;
use std::io;
use std::mem::size_of;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::ptr::{null, null_mut};
use std::time::Duration;

use tokio::time::Instant;
use windows_sys::Win32::Foundation::{HANDLE, LUID, WAIT_OBJECT_0};
use windows_sys::Win32::Security::{
    CreateRestrictedToken, CreateWellKnownSid, DISABLE_MAX_PRIVILEGE, GetTokenInformation, LUID_AND_ATTRIBUTES,
    LookupPrivilegeValueW, PSID, SE_CHANGE_NOTIFY_NAME, SECURITY_MAX_SID_SIZE, SID_AND_ATTRIBUTES,
    TOKEN_ASSIGN_PRIMARY, TOKEN_DUPLICATE, TOKEN_PRIVILEGES, TOKEN_QUERY, TokenPrivileges, WELL_KNOWN_SID_TYPE,
    WinBuiltinAdministratorsSid, WinBuiltinBackupOperatorsSid, WinBuiltinPowerUsersSid,
};
use windows_sys::Win32::System::Console::{GetStdHandle, STD_ERROR_HANDLE, STD_INPUT_HANDLE, STD_OUTPUT_HANDLE};
use windows_sys::Win32::System::Environment::GetCommandLineW;
use windows_sys::Win32::System::Threading::{
    CreateEventW, CreateProcessAsUserW, GetCurrentProcess, GetExitCodeProcess, INFINITE, OpenEventW, OpenProcessToken,
    PROCESS_INFORMATION, STARTF_USESTDHANDLES, STARTUPINFOW, SYNCHRONIZATION_SYNCHRONIZE, WaitForSingleObject,
};

/// The first argument of the program that starts a command: what follows it is the command.
pub const RESTRICTED: &str = "--restricted";
/// Groups that a command does not act for, though its user may belong to them.
const GROUPS: [WELL_KNOWN_SID_TYPE; 3] =
    [WinBuiltinAdministratorsSid, WinBuiltinPowerUsersSid, WinBuiltinBackupOperatorsSid];
/// Room for the privileges of a token; there are some forty kinds.
const PRIVILEGES_BYTES: usize = 4096;
/// How long the starting program waits until it is in its job, without which what it starts could outlive it.
const RELEASE_MAX: Duration = Duration::from_secs(10);
/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Says to the program of this number that it may go on, for as long as it lives.
#[derive(Debug)]
pub(crate) struct Release(#[allow(dead_code, reason = "held for its drop")] OwnedHandle);

impl Release {
    #[allow(unsafe_code)]
    pub(crate) fn give(pid: u32) -> io::Result<Self> {
        let name = release_name(pid);
        // SAFETY: null attributes are allowed; the name ends with a zero and lives for the call.
        owned(unsafe { CreateEventW(null(), 1, 1, name.as_ptr()) }).map(Self)
    }
}

/// Waits until this process was put into its job, then runs the command on its command line with fewer rights and
/// returns how that ended.
///
/// # Errors
/// When the system refuses, or nobody says within ten seconds that this process may go on.
pub fn run() -> io::Result<u32> {
    wait_for_release()?;
    let line = command_line();
    let Some(command) = after_mode(&line) else { return Err(io::ErrorKind::InvalidInput.into()) };
    start(&lesser_token()?, command)
}

#[allow(unsafe_code)]
fn wait_for_release() -> io::Result<()> {
    let name = release_name(std::process::id());
    let until = Instant::now() + RELEASE_MAX;
    loop {
        // SAFETY: the name ends with a zero and lives for the call.
        match owned(unsafe { OpenEventW(SYNCHRONIZATION_SYNCHRONIZE, 0, name.as_ptr()) }) {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() > until => return Err(error),
            Err(_) => std::thread::sleep(LOOK_EVERY),
        }
    }
}

fn release_name(pid: u32) -> Vec<u16> {
    format!("Local\\mcode-restricted-{pid}\0").encode_utf16().collect()
}

/// This process's own command line, as it was given: programs read theirs by rules of their own, so it is not taken
/// apart and put together again.
#[allow(unsafe_code)]
fn command_line() -> Vec<u16> {
    // SAFETY: the system's pointer is to a string that ends with a zero and lives as long as the process.
    unsafe {
        let start = GetCommandLineW();
        let length = (0..).take_while(|at| *start.add(*at) != 0).count();
        std::slice::from_raw_parts(start, length).to_vec()
    }
}

/// What follows this program's name and [`RESTRICTED`].
fn after_mode(line: &[u16]) -> Option<&[u16]> {
    let space = |unit: &u16| *unit == u16::from(b' ') || *unit == u16::from(b'\t');
    let quote = u16::from(b'"');
    let rest = match line {
        [first, rest @ ..] if *first == quote => &rest[rest.iter().position(|unit| *unit == quote)? + 1..],
        _ => &line[line.iter().position(space)?..],
    };
    let rest = &rest[rest.iter().position(|unit| !space(unit))?..];
    let mode: Vec<u16> = RESTRICTED.encode_utf16().collect();
    let rest = rest.strip_prefix(mode.as_slice())?;
    Some(&rest[rest.iter().position(|unit| !space(unit))?..])
}

/// This process's token without privileges and groups that give rights over the system.
#[allow(unsafe_code)]
fn lesser_token() -> io::Result<OwnedHandle> {
    let mut raw: HANDLE = null_mut();
    // SAFETY: the pseudo handle needs no closing, and `raw` is a live place for the result.
    let opened = unsafe {
        OpenProcessToken(GetCurrentProcess(), TOKEN_DUPLICATE | TOKEN_QUERY | TOKEN_ASSIGN_PRIMARY, &raw mut raw)
    };
    done(opened)?;
    let token = owned(raw)?;
    let mut sids = GROUPS.map(|_| [0_u8; SECURITY_MAX_SID_SIZE as usize]);
    for (kind, sid) in GROUPS.into_iter().zip(&mut sids) {
        let mut size = SECURITY_MAX_SID_SIZE;
        // SAFETY: the buffer has the size that is said.
        done(unsafe { CreateWellKnownSid(kind, null_mut(), sid.as_mut_ptr().cast(), &raw mut size) })?;
    }
    let off: Vec<SID_AND_ATTRIBUTES> = sids
        .iter_mut()
        .map(|sid| SID_AND_ATTRIBUTES { Sid: sid.as_mut_ptr().cast::<c_void>() as PSID, Attributes: 0 })
        .collect();
    let less = privileges(&token)?;
    let mut lesser: HANDLE = null_mut();
    // SAFETY: the handle is valid, the list has as many entries as is said, and all of them live for the call.
    let made = unsafe {
        CreateRestrictedToken(
            token.as_raw_handle().cast(),
            DISABLE_MAX_PRIVILEGE,
            u32::try_from(off.len()).unwrap_or_default(),
            off.as_ptr(),
            // Named as well as meant by the flag, which not every system that calls itself Windows knows.
            u32::try_from(less.len()).unwrap_or_default(),
            less.as_ptr(),
            0,
            null(),
            &raw mut lesser,
        )
    };
    done(made)?;
    owned(lesser)
}

/// The privileges of a token but the one that lets everybody pass through folders.
#[allow(unsafe_code)]
fn privileges(token: &OwnedHandle) -> io::Result<Vec<LUID_AND_ATTRIBUTES>> {
    let (mut buffer, mut size) = ([0_u64; PRIVILEGES_BYTES / 8], 0);
    let (place, bytes) = (buffer.as_mut_ptr().cast(), u32::try_from(PRIVILEGES_BYTES).unwrap_or_default());
    // SAFETY: the handle is valid, and the buffer is as large as is said.
    let got =
        unsafe { GetTokenInformation(token.as_raw_handle().cast(), TokenPrivileges, place, bytes, &raw mut size) };
    done(got)?;
    let mut kept = LUID::default();
    // SAFETY: the name ends with a zero, and `kept` is a live place for the result.
    done(unsafe { LookupPrivilegeValueW(null(), SE_CHANGE_NOTIFY_NAME, &raw mut kept) })?;
    let list = buffer.as_ptr().cast::<TOKEN_PRIVILEGES>();
    // SAFETY: the system wrote so many entries into the buffer, which is aligned for them.
    let all = unsafe {
        let first = (&raw const (*list).Privileges).cast::<LUID_AND_ATTRIBUTES>();
        std::slice::from_raw_parts(first, usize::try_from((*list).PrivilegeCount).unwrap_or_default())
    };
    let is_kept = |luid: LUID| (luid.LowPart, luid.HighPart) == (kept.LowPart, kept.HighPart);
    Ok(all.iter().filter(|one| !is_kept(one.Luid)).copied().collect())
}

/// Starts the command with this token and this process's streams, and waits for its end.
#[allow(unsafe_code)]
fn start(token: &OwnedHandle, command: &[u16]) -> io::Result<u32> {
    let mut command: Vec<u16> = command.iter().copied().chain([0]).collect();
    // SAFETY: these take and give plain values.
    let streams =
        unsafe { [GetStdHandle(STD_INPUT_HANDLE), GetStdHandle(STD_OUTPUT_HANDLE), GetStdHandle(STD_ERROR_HANDLE)] };
    let about = STARTUPINFOW {
        cb: u32::try_from(size_of::<STARTUPINFOW>()).unwrap_or_default(),
        dwFlags: STARTF_USESTDHANDLES,
        hStdInput: streams[0],
        hStdOutput: streams[1],
        hStdError: streams[2],
        ..STARTUPINFOW::default()
    };
    let mut process = PROCESS_INFORMATION::default();
    // SAFETY: the token is valid, the command line ends with a zero and may be written, and the structures live for
    // the call. What is null is inherited.
    let started = unsafe {
        CreateProcessAsUserW(
            token.as_raw_handle().cast(),
            null(),
            command.as_mut_ptr(),
            null(),
            null(),
            1,
            0,
            null(),
            null(),
            &raw const about,
            &raw mut process,
        )
    };
    done(started)?;
    let (handle, _thread) = (owned(process.hProcess)?, owned(process.hThread)?);
    let mut code = 0;
    // SAFETY: the handle is valid and `code` is a live place for the result.
    unsafe {
        if WaitForSingleObject(handle.as_raw_handle().cast(), INFINITE) != WAIT_OBJECT_0 {
            return Err(io::Error::last_os_error());
        }
        done(GetExitCodeProcess(handle.as_raw_handle().cast(), &raw mut code))?;
    }
    Ok(code)
}

fn done(result: i32) -> io::Result<()> {
    if result == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[allow(unsafe_code)]
fn owned(handle: HANDLE) -> io::Result<OwnedHandle> {
    if handle.is_null() {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the handle was just given to us and nobody else closes it.
    Ok(unsafe { OwnedHandle::from_raw_handle(handle.cast()) })
}
