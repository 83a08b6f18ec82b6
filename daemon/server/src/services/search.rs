//! Looking for threads.

use std::collections::BTreeMap;

use mcode_ids::{ProjectId, ThreadId};
use mcode_proto::v1;
use mcode_threads::{Said, SearchFilter};
use tonic::Status;

use crate::convert::row;
use crate::services::Services;
use crate::status::{bad_field, of_thread};
use crate::{paging, request};

/// Longest query, in bytes.
const QUERY_BYTES_MAX: usize = 1000;

/// Words to look for, within their limit.
pub(crate) fn query(text: String) -> Result<String, Status> {
    if text.len() > QUERY_BYTES_MAX {
        return Err(bad_field("query", format!("it is longer than {QUERY_BYTES_MAX} bytes")));
    }
    Ok(text)
}

impl Services {
    /// The project that a request is about: the one it names, else that of the folder it names.
    pub(crate) async fn project_meant(&self, project_id: &str, cwd: String) -> Result<Option<ProjectId>, Status> {
        if !project_id.is_empty() {
            return request::id("project_id", project_id).map(Some);
        }
        if cwd.is_empty() {
            return Ok(None);
        }
        Ok(Some(self.deps.threads.project_of(cwd).await.map_err(of_thread)?.project.project_id))
    }

    pub(crate) async fn search(&self, message: v1::SearchThreadsRequest) -> Result<v1::SearchThreadsResponse, Status> {
        if message.query.trim().is_empty() {
            return Err(bad_field("query", "it is empty"));
        }
        let thread_id = match message.thread_id.as_str() {
            "" => None,
            id => Some(request::known_id("thread", id)?),
        };
        let offset = match message.page_token.as_str() {
            "" => 0,
            token => token.parse().map_err(|_| bad_field("page_token", "it is not a token of this list"))?,
        };
        let page_size = paging::size(message.page_size);
        let filter = SearchFilter {
            query: query(message.query)?,
            project_id: self.project_meant(&message.project_id, message.cwd).await?,
            thread_id,
            include_archived: message.include_archived,
            page_size,
            offset,
        };
        let found = self.deps.threads.search(filter).await.map_err(of_thread)?;
        let next_page_token = if found.more { (offset + page_size).to_string() } else { String::new() };
        let (hits, unindexed_threads) = (self.with_threads(found.hits).await?, found.behind);
        Ok(v1::SearchThreadsResponse { hits, next_page_token, unindexed_threads })
    }

    async fn with_threads(&self, found: Vec<Said>) -> Result<Vec<v1::SearchHit>, Status> {
        let mut known: BTreeMap<ThreadId, v1::Thread> = BTreeMap::new();
        let mut hits = Vec::new();
        for said in found {
            let thread = match known.get(&said.thread_id) {
                Some(thread) => thread.clone(),
                None => match self.deps.threads.known(said.thread_id).await {
                    Ok(thread) => known.entry(said.thread_id).or_insert(row::thread(&thread, false)).clone(),
                    // Deleted a moment ago.
                    Err(mcode_threads::ThreadError::NotFound { .. }) => continue,
                    Err(error) => return Err(of_thread(error)),
                },
            };
            hits.push(row::hit(said, thread));
        }
        Ok(hits)
    }
}
