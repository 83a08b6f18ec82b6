//! Domain to proto, with no decisions.

pub(crate) mod event;
pub(crate) mod row;
pub(crate) mod value;
