//! Threads with their forks, in the order in which people look at them.

use std::collections::{BTreeMap, BTreeSet};

use mcode_ids::{ProjectId, ThreadId};
use rusqlite::{Row, params};

use crate::error::ReadError;
use crate::projection::{Page, ThreadRow};
use crate::read::Reader;

/// Threads that are put in order, the newest: what is older is no part of a tree.
pub const TREE_THREADS_MAX: u32 = 50_000;

/// Threads, each forked from the one before, that are gone up to find where a tree begins.
const ANCESTORS_MAX: u32 = 10_000;

/// Which threads to show with their forks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TreeFilter {
    /// Only those that share a beginning with this one, whatever else is asked for.
    pub thread_id: Option<ThreadId>,
    /// Only of this project.
    pub project_id: Option<ProjectId>,
    /// Archived ones too.
    pub include_archived: bool,
    /// How many at most.
    pub page_size: u32,
    /// Where to go on.
    pub page_token: Option<String>,
}

/// A thread in its place.
#[derive(Debug, Clone, PartialEq)]
pub struct TreeRow {
    /// The thread.
    pub thread: ThreadRow,
    /// How many of the list it was forked from, one from the other.
    pub depth: u32,
}

/// What the order is made of. Ids sort by time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Link {
    /// The last event that it shares with its parent.
    parted_at: i64,
    id: String,
}

impl Reader<'_> {
    pub(crate) fn tree(&self, filter: &TreeFilter) -> Result<Page<TreeRow>, ReadError> {
        let links = match filter.thread_id {
            Some(thread_id) => self.family(thread_id)?,
            None => self.links(filter)?,
        };
        let order = arranged(links);
        let from = match &filter.page_token {
            None => 0,
            // The order of what was shown does not change; only what a page ended with may have been deleted since.
            Some(token) => match order.iter().position(|(id, _)| id == token) {
                Some(at) => at + 1,
                None => return Err(ReadError::BadPageToken(token.chars().take(80).collect())),
            },
        };
        let more = order.len() > from + filter.page_size as usize;
        let mut rows = Vec::new();
        for (id, depth) in order.into_iter().skip(from).take(filter.page_size as usize) {
            let thread = id.parse().ok().map(|id| self.thread(id)).transpose()?.flatten();
            // One that was deleted a moment ago is left out.
            rows.extend(thread.map(|thread| TreeRow { thread, depth }));
        }
        let last = rows.last().map(|row: &TreeRow| row.thread.thread_id.to_string());
        Ok(Page { rows, next: last.filter(|_| more) })
    }

    fn links(&self, filter: &TreeFilter) -> Result<Vec<(Option<String>, Link)>, ReadError> {
        let mut statement = self.connection.prepare_cached(
            "SELECT parent, parent_seq, thread_id FROM threads
             WHERE ephemeral = 0 AND (?1 OR archived = 0)
               AND (?2 IS NULL OR project_id = ?2 OR project_id IN (SELECT project_id FROM projects WHERE joined = ?2))
             ORDER BY thread_id DESC LIMIT ?3",
        )?;
        let project = filter.project_id.map(|id| id.to_string());
        let rows = statement.query_map(params![filter.include_archived, project, TREE_THREADS_MAX], link)?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// The thread that this one comes from in the end, and all that comes from that.
    fn family(&self, thread_id: ThreadId) -> Result<Vec<(Option<String>, Link)>, ReadError> {
        let mut statement = self.connection.prepare_cached(
            "WITH RECURSIVE up (id, steps) AS (
                 SELECT thread_id, 0 FROM threads WHERE thread_id = ?1
                 UNION ALL
                 SELECT above.thread_id, steps + 1 FROM up
                 JOIN threads AS it ON it.thread_id = up.id
                 JOIN threads AS above ON above.thread_id = it.parent
                 WHERE steps < ?2
             ), family (id) AS (
                 SELECT * FROM (SELECT id FROM up ORDER BY steps DESC LIMIT 1)
                 UNION
                 SELECT thread_id FROM threads JOIN family ON parent = family.id
             )
             SELECT parent, parent_seq, thread_id FROM threads WHERE thread_id IN (SELECT id FROM family LIMIT ?3)",
        )?;
        let rows = statement.query_map(params![thread_id.to_string(), ANCESTORS_MAX, TREE_THREADS_MAX], link)?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }
}

fn link(row: &Row<'_>) -> rusqlite::Result<(Option<String>, Link)> {
    Ok((row.get(0)?, Link { parted_at: row.get(1)?, id: row.get(2)? }))
}

/// Ids in their order with their depth. A thread whose parent is not among them is at the top.
fn arranged(links: Vec<(Option<String>, Link)>) -> Vec<(String, u32)> {
    let known: BTreeSet<String> = links.iter().map(|(_, link)| link.id.clone()).collect();
    let mut forks: BTreeMap<String, Vec<Link>> = BTreeMap::new();
    let mut tops = Vec::new();
    for (parent, link) in links {
        match parent.filter(|parent| known.contains(parent)) {
            Some(parent) => forks.entry(parent).or_default().push(link),
            None => tops.push(link.id),
        }
    }
    tops.sort_unstable();
    // A stack, of which the last is next: the newest at the top, and forks in the order in which they left.
    let mut next: Vec<(String, u32)> = tops.into_iter().map(|id| (id, 0)).collect();
    let mut order = Vec::with_capacity(known.len());
    while let Some((id, depth)) = next.pop() {
        let mut children = forks.remove(&id).unwrap_or_default();
        children.sort_unstable_by(|a, b| b.cmp(a));
        next.extend(children.into_iter().map(|link| (link.id, depth + 1)));
        order.push((id, depth));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(parent: &str, parted_at: i64, id: &str) -> (Option<String>, Link) {
        ((!parent.is_empty()).then(|| parent.to_owned()), Link { parted_at, id: id.to_owned() })
    }

    #[test]
    fn forks_follow_their_parent_in_the_order_in_which_they_left() {
        let links =
            vec![entry("", 0, "a"), entry("a", 9, "b"), entry("a", 4, "c"), entry("c", 2, "d"), entry("", 0, "e")];
        let order: Vec<String> = arranged(links).iter().map(|(id, depth)| format!("{id}{depth}")).collect();
        assert_eq!(order, ["e0", "a0", "c1", "d2", "b1"]);
    }

    #[test]
    fn what_comes_from_a_thread_that_is_gone_is_at_the_top() {
        let order = arranged(vec![entry("gone", 3, "a"), entry("a", 1, "b")]);
        assert_eq!(order, [("a".to_owned(), 0), ("b".to_owned(), 1)]);
    }

    #[test]
    fn a_long_chain_needs_no_stack() {
        let links = (0..100_000)
            .map(|n| entry(&if n == 0 { String::new() } else { format!("{:06}", n - 1) }, 1, &format!("{n:06}")));
        let order = arranged(links.collect());
        assert_eq!((order.len(), order.last().map(|(_, depth)| *depth)), (100_000, Some(99_999)));
    }
}
