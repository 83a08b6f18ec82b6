//! Looking after what is kept: [`check`] finds what is damaged, [`mend`] sets it aside, [`space`] tells what it takes and
//! gives back what is free, [`backup`] copies it;
//! [`retention`] tells which threads a policy lets go.

pub(crate) mod absent;
pub(crate) mod backup;
pub(crate) mod check;
pub(crate) mod logs;
pub(crate) mod mend;
pub(crate) mod retention;
pub(crate) mod space;
