//! `ModelService.GetUsage`.

use mcode_env::Zone;
use mcode_proto::v1;
use mcode_threads::{UsageFilter, UsageGroup, UsageRow};
use tonic::Status;

use crate::convert::row;
use crate::convert::value::millis;
use crate::paging;
use crate::request::id;
use crate::services::Services;
use crate::status::{bad_field, of_thread};

impl Services {
    /// Tokens and money, summed.
    pub(super) async fn usage(&self, request: v1::GetUsageRequest) -> Result<v1::GetUsageResponse, Status> {
        let report = self.deps.threads.usage(usage_filter(request)?).await.map_err(of_thread)?;
        let total = report.total;
        Ok(v1::GetUsageResponse {
            rows: report.page.rows.iter().map(usage_row).collect(),
            next_page_token: report.page.next.unwrap_or_default(),
            usage: Some(row::usage(&total.usage)),
            requests: total.requests,
            cost_nano_usd: total.cost_nanos,
            unpriced_tokens: total.unpriced_tokens,
        })
    }
}

fn usage_filter(request: v1::GetUsageRequest) -> Result<UsageFilter, Status> {
    let zone = match request.time_zone.as_str() {
        "" => Zone::utc(),
        text => Zone::parse(text).ok_or_else(|| bad_field("time_zone", format!("'{text}' names no time zone")))?,
    };
    let group = match v1::UsageGroup::try_from(request.group_by) {
        Ok(v1::UsageGroup::Unspecified | v1::UsageGroup::Thread) => UsageGroup::Thread,
        Ok(v1::UsageGroup::Model) => UsageGroup::Model,
        Ok(v1::UsageGroup::Day) => UsageGroup::Day(zone),
        Ok(v1::UsageGroup::Goal) => UsageGroup::Goal,
        Ok(v1::UsageGroup::Provider) => UsageGroup::Provider,
        Ok(v1::UsageGroup::Purpose) => UsageGroup::Purpose,
        Err(_) => return Err(bad_field("group_by", format!("{} is nothing to sum by", request.group_by))),
    };
    let given = |text: String| (!text.is_empty()).then_some(text);
    let project_id = given(request.project_id).map(|text| id("project_id", &text)).transpose()?;
    let thread_id = given(request.thread_id).map(|text| id("thread_id", &text)).transpose()?;
    Ok(UsageFilter {
        group,
        since_ms: request.since.as_ref().map_or(0, millis),
        until_ms: request.until.as_ref().map_or(i64::MAX, millis),
        project_id,
        thread_id,
        page_size: paging::size(request.page_size),
        page_token: paging::token(request.page_token),
    })
}

fn usage_row(sum: &UsageRow) -> v1::UsageRow {
    v1::UsageRow {
        key: sum.key.clone(),
        title: sum.title.clone(),
        deleted: sum.deleted,
        usage: Some(row::usage(&sum.sums.usage)),
        requests: sum.sums.requests,
        cost_nano_usd: sum.sums.cost_nanos,
        unpriced_tokens: sum.sums.unpriced_tokens,
    }
}
