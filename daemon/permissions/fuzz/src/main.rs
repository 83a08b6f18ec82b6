//! Fuzz target: a hostile command against the command parser and the decision.
#![no_main]

mod check;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| check::check(data));
