//! What differs within one file, as hunks that can be named by number.

use similar::{Algorithm, DiffOp, DiffTag, capture_diff_slices, group_diff_ops};

use crate::depot::Depot;
use crate::error::CheckpointError;
use crate::ids::SnapshotId;
use crate::node::Node;
use crate::path::TreePath;

/// Files of more bytes, on either side, are not compared line by line.
pub const DIFF_BYTES_MAX: usize = 1024 * 1024;
/// Files of more lines, on either side, are not compared line by line.
pub const DIFF_LINES_MAX: usize = 50_000;
/// Lines around a change that a hunk shows; changes that lie closer are one hunk.
const CONTEXT: usize = 3;
/// A zero byte among the first so many makes a file binary, as with git.
const BINARY_WITHIN: usize = 8000;

/// What differs within one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileDiff {
    /// The file.
    pub path: TreePath,
    /// What was there before.
    pub before: Option<Node>,
    /// What is there after.
    pub after: Option<Node>,
    /// How it differs.
    pub body: DiffBody,
}

/// How a file differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiffBody {
    /// Line by line. What is not there has no lines.
    Hunks(Vec<Hunk>),
    /// One side is not text.
    Binary,
    /// One side is larger than [`DIFF_BYTES_MAX`] or has more lines than [`DIFF_LINES_MAX`].
    TooLarge,
    /// There is no content to compare: a link, a folder, or something that is not kept. The nodes say what changed.
    NoContent,
}

/// Changes that lie close together, with some lines around them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hunk {
    /// Counted from 1.
    pub number: usize,
    /// First line before, from 1; 0 when there is none.
    pub old_start: usize,
    /// Lines before.
    pub old_lines: usize,
    /// First line after, from 1; 0 when there is none.
    pub new_start: usize,
    /// Lines after.
    pub new_lines: usize,
    /// The lines with ` `, `-` or `+` before them. Bytes that are no text are shown as replacement characters.
    pub text: String,
}

impl FileDiff {
    /// The unified form, with names and numbers; empty when there are no hunks.
    #[must_use]
    pub fn unified(&self) -> String {
        let DiffBody::Hunks(hunks) = &self.body else { return String::new() };
        if hunks.is_empty() {
            return String::new();
        }
        let name = |side: &str, node: &Option<Node>| match node {
            Some(_) => format!("{side}/{}", self.path),
            None => "/dev/null".to_owned(),
        };
        let mut text = format!("--- {}\n+++ {}\n", name("a", &self.before), name("b", &self.after));
        for hunk in hunks {
            let Hunk { old_start, old_lines, new_start, new_lines, .. } = hunk;
            text.push_str(&format!("@@ -{old_start},{old_lines} +{new_start},{new_lines} @@\n{}", hunk.text));
        }
        text
    }
}

impl Depot {
    /// What differs at a path between two snapshots.
    ///
    /// # Errors
    /// `NoChange` when nothing does; or when a snapshot or a content is missing or damaged.
    pub fn diff(&self, before: SnapshotId, after: SnapshotId, path: &TreePath) -> Result<FileDiff, CheckpointError> {
        let (before, after) = (self.node(before, path)?, self.node(after, path)?);
        self.diff_nodes(path, before, after)
    }

    pub(crate) fn diff_nodes(
        &self,
        path: &TreePath,
        before: Option<Node>,
        after: Option<Node>,
    ) -> Result<FileDiff, CheckpointError> {
        if before == after {
            return Err(CheckpointError::NoChange { path: path.clone() });
        }
        let body = match (self.side(before.as_ref())?, self.side(after.as_ref())?) {
            (Some(old), Some(new)) => compare(&old, &new),
            _ => DiffBody::NoContent,
        };
        Ok(FileDiff { path: path.clone(), before, after, body })
    }

    /// The content to compare; `None` where there is none to look at.
    fn side(&self, node: Option<&Node>) -> Result<Option<Vec<u8>>, CheckpointError> {
        match node {
            None => Ok(Some(Vec::new())),
            Some(Node::File { content, .. }) => self.content(content).map(Some),
            Some(_) => Ok(None),
        }
    }
}

fn compare(old: &[u8], new: &[u8]) -> DiffBody {
    if [old, new].iter().any(|side| side[..side.len().min(BINARY_WITHIN)].contains(&0)) {
        return DiffBody::Binary;
    }
    let Some(lines) = Lines::of(old, new) else { return DiffBody::TooLarge };
    let hunk = |(number, ops): (usize, &Vec<DiffOp>)| lines.hunk(number + 1, ops);
    DiffBody::Hunks(lines.hunks().iter().enumerate().map(hunk).collect())
}

/// Two contents by lines, and how one comes from the other. The same two always give the same hunks.
struct Lines<'a> {
    old: Vec<&'a [u8]>,
    new: Vec<&'a [u8]>,
    ops: Vec<DiffOp>,
}

impl<'a> Lines<'a> {
    /// `None` when there are too many.
    fn of(old: &'a [u8], new: &'a [u8]) -> Option<Self> {
        if old.len().max(new.len()) > DIFF_BYTES_MAX {
            return None;
        }
        let lines = |side: &'a [u8]| side.split_inclusive(|byte| *byte == b'\n').collect::<Vec<_>>();
        let (old, new) = (lines(old), lines(new));
        if old.len().max(new.len()) > DIFF_LINES_MAX {
            return None;
        }
        let ops = capture_diff_slices(Algorithm::Myers, &old, &new);
        Some(Self { old, new, ops })
    }

    fn hunks(&self) -> Vec<Vec<DiffOp>> {
        let grouped = group_diff_ops(self.ops.clone(), CONTEXT);
        grouped.into_iter().filter(|ops| ops.iter().any(|op| op.tag() != DiffTag::Equal)).collect()
    }

    fn hunk(&self, number: usize, ops: &[DiffOp]) -> Hunk {
        let mut text = String::new();
        let mut push = |sign: char, lines: &[&[u8]]| {
            for line in lines {
                text.push(sign);
                text.push_str(&String::from_utf8_lossy(line));
                if !line.ends_with(b"\n") {
                    text.push_str("\n\\ No newline at end of file\n");
                }
            }
        };
        for op in ops {
            let (old, new) = (op.old_range(), op.new_range());
            if op.tag() == DiffTag::Equal {
                push(' ', &self.old[old]);
            } else {
                push('-', &self.old[old]);
                push('+', &self.new[new]);
            }
        }
        let range = |ranges: Vec<std::ops::Range<usize>>| {
            let start = ranges.first().map_or(0, |range| range.start);
            let lines = ranges.last().map_or(0, |range| range.end) - start;
            (if lines == 0 { start } else { start + 1 }, lines)
        };
        let (old_start, old_lines) = range(ops.iter().map(DiffOp::old_range).collect());
        let (new_start, new_lines) = range(ops.iter().map(DiffOp::new_range).collect());
        Hunk { number, old_start, old_lines, new_start, new_lines, text }
    }
}

/// `new` with the hunks of these numbers as they were in `old`.
pub(crate) fn without_hunks(
    path: &TreePath,
    old: &[u8],
    new: &[u8],
    numbers: &[usize],
) -> Result<Vec<u8>, CheckpointError> {
    let no = |reason| CheckpointError::NotText { path: path.clone(), reason };
    if let DiffBody::Binary = compare(&old[..old.len().min(BINARY_WITHIN)], &new[..new.len().min(BINARY_WITHIN)]) {
        return Err(no("it is binary"));
    }
    let lines = Lines::of(old, new).ok_or_else(|| no("it is too large"))?;
    let hunks = lines.hunks();
    let mut undone = std::collections::HashSet::new();
    for number in numbers {
        let hunk = number.checked_sub(1).and_then(|at| hunks.get(at));
        let there = hunks.len();
        let ops = hunk.ok_or_else(|| CheckpointError::NoHunk { path: path.clone(), number: *number, there })?;
        let changes = ops.iter().filter(|op| op.tag() != DiffTag::Equal);
        undone.extend(changes.map(|op| (op.old_range().start, op.new_range().start)));
    }
    let mut content = Vec::with_capacity(old.len().max(new.len()));
    for op in &lines.ops {
        let back = op.tag() != DiffTag::Equal && undone.contains(&(op.old_range().start, op.new_range().start));
        let chosen = if back { &lines.old[op.old_range()] } else { &lines.new[op.new_range()] };
        chosen.iter().for_each(|line| content.extend_from_slice(line));
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hunks(old: &str, new: &str) -> Vec<Hunk> {
        match compare(old.as_bytes(), new.as_bytes()) {
            DiffBody::Hunks(hunks) => hunks,
            other => panic!("{other:?}"),
        }
    }

    fn numbered(count: usize) -> String {
        (1..=count).map(|line| format!("line {line}\n")).collect()
    }

    #[test]
    fn hunks_are_numbered_and_read_as_a_unified_diff() {
        let old = numbered(30);
        let new = old.replace("line 2\n", "line two\n").replace("line 25\n", "");
        let found = hunks(&old, &new);
        assert_eq!(found.iter().map(|hunk| hunk.number).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(found[0].text, " line 1\n-line 2\n+line two\n line 3\n line 4\n line 5\n");
        assert_eq!((found[1].old_start, found[1].old_lines, found[1].new_start, found[1].new_lines), (22, 7, 22, 6));
        assert_eq!(hunks("a", "b")[0].text, "-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n");
        assert_eq!((hunks("", "b\n")[0].old_start, hunks("", "b\n")[0].new_start), (0, 1));
    }

    #[test]
    fn chosen_hunks_are_undone_and_the_others_stay() {
        let old = numbered(40).replace("line 20\n", "\r\n\u{fffd}").into_bytes();
        let text = String::from_utf8(old.clone()).unwrap();
        let new =
            text.replace("line 3\n", "x\n").replace("line 38\n", "y\nz\n").replace("line 40\n", "line 40").into_bytes();
        let path: TreePath = "f".parse().unwrap();
        let all = without_hunks(&path, &old, &new, &[1, 2]).unwrap();
        assert_eq!(all, old);
        let first = String::from_utf8(without_hunks(&path, &old, &new, &[1]).unwrap()).unwrap();
        assert!(first.contains("line 3\n") && first.contains("y\nz\n") && first.ends_with("line 40"));
        assert_eq!(without_hunks(&path, &old, &new, &[]).unwrap(), new);
        for number in [0, 3] {
            let error = without_hunks(&path, &old, &new, &[number]).unwrap_err();
            assert!(matches!(error, CheckpointError::NoHunk { there: 2, .. }), "{error}");
        }
    }

    #[test]
    fn binary_and_large_files_have_no_hunks() {
        assert_eq!(compare(b"a\0b", b"a"), DiffBody::Binary);
        assert_eq!(compare(&vec![b'x'; DIFF_BYTES_MAX + 1], b"a"), DiffBody::TooLarge);
        assert_eq!(compare("\n".repeat(DIFF_LINES_MAX + 1).as_bytes(), b"a"), DiffBody::TooLarge);
        let path: TreePath = "f".parse().unwrap();
        assert!(matches!(without_hunks(&path, b"a\0b", b"a", &[1]), Err(CheckpointError::NotText { .. })));
        let large = vec![b'x'; DIFF_BYTES_MAX + 1];
        assert!(matches!(without_hunks(&path, &large, b"a", &[1]), Err(CheckpointError::NotText { .. })));
    }

    #[test]
    fn the_worst_of_what_is_compared_takes_no_minutes() {
        // Lines in another order: hardly anything is the same, and everything is somewhere.
        let line = |number: usize| format!("{:x}\n", number.wrapping_mul(0x9e37_79b9) % 9973);
        let old: String = (0..DIFF_LINES_MAX).map(line).collect();
        let new: String = (0..DIFF_LINES_MAX).map(|number| line(number * 31 + 7)).collect();
        let start = std::time::Instant::now();
        assert!(matches!(compare(old.as_bytes(), new.as_bytes()), DiffBody::Hunks(_)));
        assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
    }
}
