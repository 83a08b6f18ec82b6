//! Waiting for children, those included that lost their parent.

use std::io::{self, PipeReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use mcode_sandbox::ExitState;
use rustix::io::Errno;
use rustix::process::{WaitOptions, wait};

/// Memory of the thread that waits.
const STACK_BYTES: usize = 64 * 1024;

/// Waits for all children in a thread of its own. The pipe gives how the child with the number `first` ended, four
/// bytes for [`exit_state`], and ends when there are no children any more.
///
/// # Errors
/// When the system refuses.
pub(crate) fn reap(first: u32) -> io::Result<PipeReader> {
    let (reader, mut writer) = io::pipe()?;
    std::thread::Builder::new().name("reaper".into()).stack_size(STACK_BYTES).spawn(move || {
        loop {
            match wait(WaitOptions::empty()) {
                Ok(Some((pid, status))) if u32::try_from(pid.as_raw_nonzero().get()) == Ok(first) => {
                    writer.write_all(&status.as_raw().to_le_bytes()).ok();
                }
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    })?;
    Ok(reader)
}

/// What the four bytes mean.
pub(crate) fn exit_state(bytes: [u8; 4]) -> ExitState {
    let status = ExitStatus::from_raw(i32::from_le_bytes(bytes));
    ExitState { code: status.code(), signal: status.signal() }
}
