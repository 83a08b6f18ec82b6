//! New ids for a thread that comes from a file, so that it can stand beside the one it was made from.

use mcode_ids::ThreadId;

/// Prefixes of the ids that are renamed. Projects are not: the caller says which it is.
const PREFIXES: [&str; 12] =
    ["thr_", "run_", "trn_", "stp_", "itm_", "tc_", "apr_", "qst_", "inp_", "prc_", "gol_", "chk_"];

/// Digits of an id.
const DIGITS: usize = 32;

/// Digits that stay, so that new ids sort by time as the old ones did: 48 bits of time, version, 12 more bits.
const DIGITS_KEPT: usize = 16;

/// Gives new ids for old ones: the same for the same, and none that a file could choose.
#[derive(Debug, Clone)]
pub(crate) struct Renamed {
    old: String,
    new: String,
}

impl Renamed {
    pub(crate) fn new(old: ThreadId, new: ThreadId) -> Self {
        Self { old: old.to_string(), new: new.to_string() }
    }

    /// The text with every id in it renamed, wherever it stands as a word.
    pub(crate) fn text(&self, text: &str) -> String {
        let bytes = text.as_bytes();
        let (mut out, mut kept, mut at) = (String::with_capacity(text.len()), 0, 0);
        while let Some(found) = memchr_underscore(bytes, at) {
            at = found + 1;
            let Some((from, to)) = id_around(bytes, found) else { continue };
            out.push_str(&text[kept..from]);
            out.push_str(&self.id(&text[from..to]));
            (kept, at) = (to, to);
        }
        out.push_str(&text[kept..]);
        out
    }

    fn id(&self, old: &str) -> String {
        let old = old.to_ascii_lowercase();
        if old == self.old {
            return self.new.clone();
        }
        let prefix = old.find('_').map_or(0, |at| at + 1);
        let mixed = blake3::Hasher::new().update(self.new.as_bytes()).update(old.as_bytes()).finalize().to_hex();
        // The digit after those that stay begins with the bits 10, as in every such id.
        format!("{}8{}", &old[..prefix + DIGITS_KEPT], &mixed[..DIGITS - DIGITS_KEPT - 1])
    }
}

fn memchr_underscore(bytes: &[u8], from: usize) -> Option<usize> {
    bytes[from..].iter().position(|byte| *byte == b'_').map(|at| from + at)
}

/// The id whose underscore is here.
fn id_around(bytes: &[u8], underscore: usize) -> Option<(usize, usize)> {
    let prefix = PREFIXES.iter().find(|prefix| bytes[..=underscore].ends_with(prefix.as_bytes()))?;
    let (from, digits) = (underscore + 1 - prefix.len(), underscore + 1);
    let begins = from == 0 || !(bytes[from - 1].is_ascii_alphanumeric() || bytes[from - 1] == b'_');
    let run = bytes[digits..].iter().take(DIGITS + 1).take_while(|byte| byte.is_ascii_hexdigit()).count();
    (begins && run == DIGITS).then_some((from, digits + DIGITS))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "thr_01900000000070008000000000000001";
    const NEW: &str = "thr_0190ffff000070008000000000000002";

    fn renamed() -> Renamed {
        Renamed::new(OLD.parse().unwrap(), NEW.parse().unwrap())
    }

    #[test]
    fn ids_are_renamed_wherever_they_are_words() {
        let call = "tc_01900000000070018000000000000abc";
        let text = format!("{{\"a\":\"{call}\",\"b\":\"see {call}, of {OLD}\"}}");
        let new = renamed().text(&text);
        assert!(!new.contains(call) && new.contains(NEW), "{new}");
        let ids: Vec<&str> = new.match_indices("tc_").map(|(at, _)| &new[at..at + 35]).collect();
        assert_eq!(ids[0], ids[1]);
        assert!(ids[0].starts_with("tc_0190000000007001"), "{}", ids[0]);
        ids[0].parse::<mcode_ids::ToolCallId>().unwrap();
        assert_eq!(new.len(), text.len());
    }

    #[test]
    fn what_only_looks_like_an_id_stays() {
        for text in [
            "run_0190",
            "rerun_01900000000070008000000000000001",
            "run_019000000000700080000000000000012",
            "prj_01900000000070008000000000000001",
            "_run_01900000000070008000000000000001",
            "run_",
            "한_글",
        ] {
            assert_eq!(renamed().text(text), text);
        }
    }

    #[test]
    fn capitals_are_the_same_id() {
        let (small, big) = ("run_0190000000007000800000000000abcd", "run_0190000000007000800000000000ABCD");
        assert_eq!(renamed().text(small), renamed().text(big));
    }
}
