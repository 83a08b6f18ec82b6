//! Ids as people give them: whole, the beginning of one, or `latest`.

use mcode_proto::v1;

use crate::connect::Client;
use crate::error::{ClientError, ErrorKind};

/// Most pages of a list that are looked through for the beginning of an id.
const PAGES_MAX: u32 = 10;

/// Rows of such a page; the daemon's limit.
const PAGE_ROWS: u32 = 500;

/// Hex digits of a whole id.
const HEX_WHOLE: usize = 32;

/// Fewest hex digits that are taken for the beginning of one.
const HEX_MIN: usize = 4;

/// A kind of id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Thread,
    Run,
    Approval,
    Question,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Thread, Self::Run, Self::Approval, Self::Question];

    const fn prefix(self) -> &'static str {
        match self {
            Self::Thread => "thr_",
            Self::Run => "run_",
            Self::Approval => "apr_",
            Self::Question => "qst_",
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Thread => "a thread",
            Self::Run => "a run",
            Self::Approval => "an approval",
            Self::Question => "a question",
        }
    }

    const fn plural(self) -> &'static str {
        match self {
            Self::Thread => "threads",
            Self::Run => "runs",
            Self::Approval => "approvals that wait",
            Self::Question => "questions that wait",
        }
    }

    const fn reason(self) -> &'static str {
        match self {
            Self::Thread => "THREAD_NOT_FOUND",
            Self::Run => "RUN_NOT_FOUND",
            Self::Approval | Self::Question => "APPROVAL_NOT_FOUND",
        }
    }

    /// What can be done with an id of this kind.
    const fn verb(self) -> &'static str {
        match self {
            Self::Thread => "mcode threads show",
            Self::Run => "mcode runs show",
            Self::Approval => "mcode approvals allow",
            Self::Question => "mcode approvals answer",
        }
    }

    const fn list(self) -> &'static str {
        match self {
            Self::Thread => "mcode threads list",
            Self::Run => "mcode runs list",
            Self::Approval | Self::Question => "mcode approvals list",
        }
    }
}

/// What was given.
#[derive(Debug, PartialEq, Eq)]
enum Given {
    /// An id, or what can not be one: the daemon says what it thinks of it.
    AsIs,
    Latest,
    /// The beginning of an id, its prefix included.
    Start(String),
}

fn read(kind: Kind, text: &str) -> Result<Given, ClientError> {
    if text == "latest" {
        return Ok(Given::Latest);
    }
    if let Some(other) = Kind::ALL.into_iter().find(|other| *other != kind && text.starts_with(other.prefix())) {
        let message = format!("{text} is {}, not {}", other.word(), kind.word());
        return Err(refused(kind, message).hint(format!("see: {} {text}", other.verb())));
    }
    let hex = text.strip_prefix(kind.prefix()).unwrap_or(text).to_ascii_lowercase();
    let is_start = (HEX_MIN..HEX_WHOLE).contains(&hex.len()) && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    Ok(if is_start { Given::Start(format!("{}{hex}", kind.prefix())) } else { Given::AsIs })
}

fn refused(kind: Kind, message: String) -> ClientError {
    ClientError::new(ErrorKind::User, kind.reason(), message)
}

/// The one id, or why there is not one.
fn only(kind: Kind, found: Vec<String>, what: &str) -> Result<String, ClientError> {
    let many = found.len();
    let mut found = found.into_iter();
    match (found.next(), found.next()) {
        (Some(id), None) => Ok(id),
        (None, _) => {
            let message = format!("there are no {} {what}", kind.plural());
            Err(refused(kind, message).hint(format!("list them with: {}", kind.list())))
        }
        (Some(first), Some(second)) => {
            let message = format!("there are {many} {} {what}, such as {first} and {second}", kind.plural());
            Err(refused(kind, message).hint("give more of the id"))
        }
    }
}

impl Client {
    /// The thread that is meant; `latest` is the one with the newest activity.
    ///
    /// # Errors
    /// When none or several are meant, the id is of another kind, or the daemon does not answer.
    pub async fn thread_id(&self, text: &str) -> Result<String, ClientError> {
        let page = async |page_token: String, page_size: u32| {
            let request = v1::ListThreadsRequest {
                page_size,
                page_token,
                include_archived: true,
                by_activity: true,
                ..Default::default()
            };
            let response = self.list_threads(request).await?;
            let ids = response.threads.into_iter().map(|thread| thread.thread_id).collect();
            Ok((ids, response.next_page_token))
        };
        find(Kind::Thread, text, page).await
    }

    /// The run that is meant; `latest` is the one that was started last.
    ///
    /// # Errors
    /// As [`Client::thread_id`].
    pub async fn run_id(&self, text: &str) -> Result<String, ClientError> {
        let page = async |page_token: String, page_size: u32| {
            let request = v1::ListRunsRequest { page_size, page_token, ..Default::default() };
            let response = self.list_runs(request).await?;
            Ok((response.runs.into_iter().map(|run| run.run_id).collect(), response.next_page_token))
        };
        find(Kind::Run, text, page).await
    }

    /// The approval that is meant, of those that wait; `latest` only when no other waits, since what runs must not
    /// depend on what came in a moment ago.
    ///
    /// # Errors
    /// As [`Client::thread_id`].
    pub async fn approval_id(&self, text: &str) -> Result<String, ClientError> {
        self.waiting_id(Kind::Approval, text).await
    }

    /// The question that is meant, as [`Client::approval_id`].
    ///
    /// # Errors
    /// As [`Client::thread_id`].
    pub async fn question_id(&self, text: &str) -> Result<String, ClientError> {
        self.waiting_id(Kind::Question, text).await
    }

    async fn waiting_id(&self, kind: Kind, text: &str) -> Result<String, ClientError> {
        let given = read(kind, text)?;
        if given == Given::AsIs {
            return Ok(text.to_owned());
        }
        let response = self.list_pending_approvals(v1::ListPendingApprovalsRequest::default()).await?;
        let ids: Vec<String> = match kind {
            Kind::Question => response.questions.into_iter().map(|question| question.question_id).collect(),
            _ => response.approvals.into_iter().map(|approval| approval.approval_id).collect(),
        };
        match given {
            Given::Start(start) => {
                only(kind, ids.into_iter().filter(|id| id.starts_with(&start)).collect(), &beginning(&start))
            }
            Given::Latest | Given::AsIs => only(kind, ids, "now"),
        }
    }
}

fn beginning(start: &str) -> String {
    format!("whose id begins with {start}")
}

/// Looks through a list, newest first; `page` gives the ids of a page and the token of the next.
async fn find(
    kind: Kind,
    text: &str,
    page: impl AsyncFn(String, u32) -> Result<(Vec<String>, String), ClientError>,
) -> Result<String, ClientError> {
    let start = match read(kind, text)? {
        Given::AsIs => return Ok(text.to_owned()),
        Given::Latest => {
            let (mut ids, _) = page(String::new(), 1).await?;
            ids.truncate(1);
            return only(kind, ids, "yet");
        }
        Given::Start(start) => start,
    };
    let (mut found, mut token) = (Vec::new(), String::new());
    for _ in 0..PAGES_MAX {
        let (ids, next) = page(token, PAGE_ROWS).await?;
        found.extend(ids.into_iter().filter(|id| id.starts_with(&start)));
        token = next;
        if token.is_empty() || found.len() > 1 {
            break;
        }
    }
    only(kind, found, &beginning(&start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_people_give_them() {
        let whole = format!("thr_{}", "0".repeat(32));
        for as_is in [whole.as_str(), "nope", "thr_", "thr_01z9", "abc", ""] {
            assert_eq!(read(Kind::Thread, as_is).unwrap(), Given::AsIs, "{as_is}");
        }
        assert_eq!(read(Kind::Thread, "latest").unwrap(), Given::Latest);
        for start in ["thr_019A", "019a"] {
            assert_eq!(read(Kind::Thread, start).unwrap(), Given::Start("thr_019a".into()));
        }
        let error = read(Kind::Thread, "run_019a").unwrap_err();
        assert_eq!((error.message.as_str(), error.exit_code()), ("run_019a is a run, not a thread", 2));
        assert_eq!(error.hint.as_deref(), Some("see: mcode runs show run_019a"));
    }

    #[tokio::test]
    async fn the_beginning_has_to_mean_one() {
        let page = async |token: String, size: u32| {
            let ids = ["run_0001a", "run_0001b", "run_0002a"].map(str::to_owned);
            assert!(size == 1 || size == PAGE_ROWS);
            Ok(match token.as_str() {
                "" => (ids[..2].to_vec(), "more".to_owned()),
                _ => (ids[2..].to_vec(), String::new()),
            })
        };
        assert_eq!(find(Kind::Run, "0002", page).await.unwrap(), "run_0002a");
        assert_eq!(find(Kind::Run, "latest", page).await.unwrap(), "run_0001a");
        let several = find(Kind::Run, "run_0001", page).await.unwrap_err();
        assert!(several.message.contains("2 runs") && several.message.contains("run_0001b"), "{}", several.message);
        let none = find(Kind::Run, "0003", page).await.unwrap_err();
        assert_eq!((none.reason.as_str(), none.exit_code()), ("RUN_NOT_FOUND", 2));
    }
}
