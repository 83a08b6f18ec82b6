//! The one place that starts OS processes.
//!
//! Every command runs in a process group of its own, with standard input closed unless asked for, output read through
//! a bounded [`Spool`], and an end that takes the whole group with it. Identity of a process is (pid, start time), so
//! that a reused pid is never killed. Absent on purpose: what may run (see `mcode-permissions`).

pub mod process;
