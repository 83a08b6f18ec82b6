//! Decides whether a tool call may run: `deny > ask > allow`, then the mode and the run's policy. Pure.

pub mod access;
