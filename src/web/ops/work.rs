//! Queues: their depths, what failed and why, and dead letters.

use axum::extract::{Path, State};
use maud::{Markup, html};

use super::orders::tag;
use super::page::{Refused, at_least, grouped, instant, page, span, token};
use super::session::Operator;
use crate::ops::jobs::{self, Job};
use crate::ops::standing::{self, MOST_JOBS};
use crate::queue::operate;
use crate::web::AppState;

pub(super) async fn queues(State(state): State<AppState>, operator: Operator) -> Result<Markup, Refused> {
    let depths = standing::queues(&state.watch).await?;
    let workers = standing::workers(&state.watch).await?;
    // Texts of failures and payloads can tell of other shops.
    let failures = if operator.installation { jobs::failures(&state.watch).await? } else { Vec::new() };
    let count = |n| at_least(n, MOST_JOBS);
    Ok(page(
        &operator,
        "Queues",
        "/ops/queues",
        html! {
            div.scroll tabindex="0" { table {
                thead { tr { th { "Queue" } th.n { "Due" } th.n { "Oldest" } th.n { "Later" } th.n { "Running" } th.n { "Dead" } th { "Actions" } } }
                tbody { @for d in &depths { tr {
                    td { a href={ "/ops/queues/" (d.queue) } { (d.queue) } @if d.paused { " " span.tag.warn { "paused" } } }
                    td.n { (count(d.ready)) } td.n { (span(d.oldest)) } td.n { (count(d.later)) } td.n { (count(d.running)) } td.n { (count(d.dead)) }
                    td { @if operator.installation {
                        @if d.paused { (ask(&operator, "Resume", &format!("/ops/queues/{}/resume", d.queue), "Workers begin its jobs again at once.")) }
                        @else { (ask(&operator, "Pause", &format!("/ops/queues/{}/pause", d.queue), "No worker begins another of its jobs; what runs goes on.")) }
                        @if d.dead > 0 { (ask(&operator, "Retry dead letters", &format!("/ops/queues/{}/retry", d.queue), "Up to 1,000 go back into the queue, the oldest first.")) }
                    } }
                } } }
            } }
            h2 { "Failures by text" }
            @if !operator.installation { p.hint { "Failures and jobs are shown to the installation's first key: they can tell of other shops." } }
            @else if failures.is_empty() { p.hint { "Nothing has failed lately." } }
            @else { div.scroll tabindex="0" { table {
                thead { tr { th { "Queue" } th { "Text" } th.n { "Dead" } th.n { "To be tried again" } th { "Last" } } }
                tbody { @for f in &failures { tr {
                    td { a href={ "/ops/queues/" (f.queue) } { (f.queue) } } td.long { (f.error) } td.n { (grouped(f.dead)) } td.n { (grouped(f.again)) } td { (instant(f.last)) }
                } } }
            } } p.hint { "Of the last 1,000 of each queue; more would be at least so many." } }
            h2 { "Workers" }
            div.scroll tabindex="0" { table {
                thead { tr { th { "Name" } th { "Queue" } th { "Release" } th.n { "Seen" } th.n { "Jobs in hand" } th { "Since" } } }
                tbody { @for w in &workers { tr {
                    td { (w.name) } td { (w.queue) } td { (w.release) } td.n { (span(w.silence)) " ago" } td.n { (grouped(w.running)) } td { @if let Some(at) = w.started_at { (instant(at)) } }
                } } }
            } }
        },
    ))
}

/// A button that asks first.
fn ask(operator: &Operator, name: &str, path: &str, means: &str) -> Markup {
    html! { details { summary { (name) "…" } form method="post" action=(path) { (token(operator)) p.hint { (means) } button { (name) } } } }
}

pub(super) async fn queue(
    State(state): State<AppState>,
    operator: Operator,
    Path(name): Path<String>,
) -> Result<Markup, Refused> {
    let queue = operate::queue(&name).ok_or(Refused::NotFound)?;
    if !operator.installation {
        return Err(Refused::Installation);
    }
    let dead = jobs::dead(&state.watch, queue.name).await?;
    Ok(page(
        &operator,
        &format!("Queue {}", queue.name),
        "/ops/queues",
        html! {
            p.hint { "After " (queue.max_attempts) " attempts a failing job is a dead letter. The last fifty:" }
            (job_rows(&dead))
        },
    ))
}

pub(super) fn job_rows(jobs: &[Job]) -> Markup {
    html! {
        @if jobs.is_empty() { p.hint { "There are none." } } @else { div.scroll tabindex="0" { table {
            thead { tr { th { "Job" } th { "Queue" } th { "Status" } th.n { "Attempts" } th { "Due" } th { "Last error" } } }
            tbody { @for job in jobs { tr {
                td { a href={ "/ops/jobs/" (job.id) } { (job.id) } } td { (job.queue) } td { (tag(&job.status)) }
                td.n { (job.attempts) " of " (job.max_attempts) } td { (instant(job.run_at)) } td.long { (job.error.as_deref().unwrap_or("–")) }
            } } }
        } } }
    }
}

pub(super) async fn job(
    State(state): State<AppState>,
    operator: Operator,
    Path(id): Path<String>,
) -> Result<Markup, Refused> {
    if !operator.installation {
        return Err(Refused::Installation);
    }
    let job = jobs::find(&state.watch, &id).await?.ok_or(Refused::NotFound)?;
    let path = format!("/ops/jobs/{}", job.id);
    Ok(page(
        &operator,
        &format!("Job {}", job.id),
        "/ops/queues",
        html! {
            div.card { dl {
                dt { "Queue" } dd { (job.queue) } dt { "Status" } dd { (tag(&job.status)) }
                dt { "Attempts" } dd { (job.attempts) " of " (job.max_attempts) } dt { "Due" } dd { (instant(job.run_at)) }
                @if let Some(at) = job.done_at { dt { "Ended" } dd { (instant(at)) } }
                @if let Some(worker) = &job.worker { dt { "Worker" } dd { (worker) } }
                @if let Some(error) = &job.error { dt { "Last error" } dd { (error) } }
            } }
            @if job.status == "Killed" {
                (ask(&operator, "Retry", &format!("{path}/retry"), "It goes back into its queue with all its attempts before it."))
                (ask(&operator, "Discard", &format!("{path}/discard"), "It is removed for good; housekeeping looks after its order."))
            }
            h2 { "Payload" } pre { (job.payload) }
        },
    ))
}
