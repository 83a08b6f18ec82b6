//! Plans, as the logs have them. An index of those events alone finds them; nothing else is kept of them that would have to
//! be kept true.

use mcode_events::event::{Event, EventBody};
use mcode_events::plan::{Plan, PlanOutcome};
use mcode_ids::{ProjectId, Seq, ThreadId, ToolCallId};
use rusqlite::{Row, ToSql, params};

use crate::error::ReadError;
use crate::projection::Page;
use crate::read::Reader;
use crate::row::{COLUMNS, EventRow};

/// Events in which the name of a plan is looked for.
const NAMED_MAX: u32 = 64;

/// Which plans to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlanFilter {
    /// Only of this project.
    pub project_id: Option<ProjectId>,
    /// Only of this thread.
    pub thread_id: Option<ThreadId>,
    /// How many at most.
    pub page_size: u32,
    /// Where to go on.
    pub page_token: Option<String>,
}

/// A plan as lists show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanRow {
    /// A thread that has it.
    pub thread_id: ThreadId,
    /// The project of that.
    pub project_id: ProjectId,
    /// The root of the work tree that the thread was made in; empty where that is not known.
    pub root: String,
    /// Its event.
    pub seq: Seq,
    /// When it was submitted, milliseconds since 1970 UTC.
    pub at_ms: i64,
    /// The plan.
    pub plan: Plan,
    /// What became of it; `None` while it waits for an answer.
    pub outcome: Option<PlanOutcome>,
    /// What was said about it.
    pub comment: String,
}

/// Where a plan is.
struct Place {
    log: String,
    at: i64,
    seq: i64,
}

impl Reader<'_> {
    /// Plans, newest first.
    pub(crate) fn plans(&self, filter: &PlanFilter) -> Result<Page<PlanRow>, ReadError> {
        let before = match &filter.page_token {
            None => (i64::MAX, "~".to_owned(), i64::MAX),
            Some(token) => {
                place_of(token).ok_or_else(|| ReadError::BadPageToken(token.chars().take(80).collect::<String>()))?
            }
        };
        let wanted = filter.page_size as usize;
        let places = self.places_of_plans(filter, before)?;
        let more = places.len() > wanted;
        let next = places.get(wanted.saturating_sub(1)).filter(|_| more);
        let next = next.map(|place| format!("{}:{}:{}", place.at, place.seq, place.log));
        let mut rows = Vec::new();
        for place in places.iter().take(wanted) {
            // One that is damaged is told when its thread is read.
            rows.extend(self.plan_at(place, filter.thread_id)?);
        }
        Ok(Page { rows, next })
    }

    /// The plan that a call has submitted.
    pub(crate) fn plan(&self, tool_call_id: ToolCallId) -> Result<Option<PlanRow>, ReadError> {
        let mut statement = self.connection.prepare_cached(
            "SELECT thread_id, at, seq FROM events
             WHERE kind = 'plan_submitted' AND instr(payload, ?1) > 0 ORDER BY at LIMIT ?2",
        )?;
        let named = params![format!("\"{tool_call_id}\""), NAMED_MAX];
        let places = statement.query_map(named, place)?.collect::<rusqlite::Result<Vec<_>>>()?;
        for place in &places {
            // A title may name another plan.
            if let Some(row) = self.plan_at(place, None)?.filter(|row| row.plan.tool_call_id == tool_call_id) {
                return Ok(Some(row));
            }
        }
        Ok(None)
    }

    fn places_of_plans(&self, filter: &PlanFilter, before: (i64, String, i64)) -> Result<Vec<Place>, ReadError> {
        let mut conditions = String::new();
        let mut values: Vec<Box<dyn ToSql>> =
            vec![Box::new(before.0), Box::new(before.1), Box::new(before.2), Box::new(i64::from(filter.page_size) + 1)];
        // Who has the events of this log, also when its own thread is gone.
        let holders = "SELECT 1 FROM threads WHERE (threads.thread_id = events.thread_id OR threads.thread_id IN
             (SELECT thread_id FROM lineage WHERE log = events.thread_id AND upto >= events.seq))";
        if let Some(project_id) = filter.project_id {
            values.push(Box::new(project_id.to_string()));
            let at = values.len();
            conditions.push_str(&format!(
                " AND EXISTS ({holders} AND (project_id = ?{at} OR project_id IN
                     (SELECT project_id FROM projects WHERE joined = ?{at})))"
            ));
        }
        if let Some(thread_id) = filter.thread_id {
            values.push(Box::new(thread_id.to_string()));
            let at = values.len();
            conditions.push_str(&format!(" AND EXISTS ({holders} AND threads.thread_id = ?{at})"));
        }
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT thread_id, at, seq FROM events
             WHERE kind = 'plan_submitted' AND (at, thread_id, seq) < (?1, ?2, ?3){conditions}
             ORDER BY at DESC, thread_id DESC, seq DESC LIMIT ?4"
        ))?;
        let rows = statement.query_map(rusqlite::params_from_iter(values), place)?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    fn plan_at(&self, place: &Place, of: Option<ThreadId>) -> Result<Option<PlanRow>, ReadError> {
        let holder = match of {
            Some(thread_id) => Some(thread_id),
            None => crate::lineage::holder(self.connection, &place.log, place.seq)?.and_then(|id| id.parse().ok()),
        };
        let (Some(thread_id), Ok(log)) = (holder, place.log.parse::<ThreadId>()) else { return Ok(None) };
        let Some(thread) = self.thread(thread_id)? else { return Ok(None) };
        let submitted = self.plan_events(log, place.seq - 1, "plan_submitted", 1)?.pop();
        let Some(Event { seq, at_ms, body: EventBody::PlanSubmitted { plan }, .. }) = submitted else {
            return Ok(None);
        };
        let mut row = PlanRow {
            thread_id,
            project_id: thread.project_id,
            root: thread.root,
            seq,
            at_ms,
            plan,
            outcome: None,
            comment: String::new(),
        };
        // A plan is settled before the next one of its thread is submitted.
        for event in self.plan_events(log, place.seq, "plan_settled", 1)? {
            if let EventBody::PlanSettled { tool_call_id, outcome, comment } = event.body
                && tool_call_id == row.plan.tool_call_id
            {
                (row.outcome, row.comment) = (Some(outcome), comment);
            }
        }
        Ok(Some(row))
    }

    /// The next events of a kind after one.
    fn plan_events(&self, log: ThreadId, after: i64, kind: &str, max: u32) -> Result<Vec<Event>, ReadError> {
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM events WHERE thread_id = ?1 AND seq > ?2 AND kind = '{kind}' ORDER BY seq LIMIT ?3"
        ))?;
        let rows = statement.query_map(params![log.to_string(), after, max], EventRow::read)?;
        let mut events = Vec::new();
        for row in rows {
            let row = row?;
            let seq = Seq::new(u64::try_from(row.seq).unwrap_or(0));
            events.extend(row.decode(log, seq, self.blobs).ok().map(|(event, _)| event));
        }
        Ok(events)
    }
}

fn place(row: &Row<'_>) -> rusqlite::Result<Place> {
    Ok(Place { log: row.get(0)?, at: row.get(1)?, seq: row.get(2)? })
}

fn place_of(token: &str) -> Option<(i64, String, i64)> {
    let mut parts = token.splitn(3, ':');
    let (at, seq) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    Some((at, parts.next()?.to_owned(), seq))
}
