//! Orders: finding them, and one order with all that happened to it and why.

use std::collections::HashMap;

use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use serde_json::Value;
use uuid::Uuid;

use super::page::{Refused, instant, page, span, token};
use super::session::Operator;
use super::work::job_rows;
use crate::ops::orders::{self as found, PAGE, Row, Wanted};
use crate::orders::{self, Event, Order, PaymentState, Status};
use crate::shops::Scope;
use crate::web::AppState;

const TROUBLE: [&str; 3] = ["refund_due", "mismatch", "late"];

pub(super) async fn list(
    State(state): State<AppState>,
    operator: Operator,
    Query(query): Query<HashMap<String, String>>,
) -> Result<Response, Refused> {
    let text = |name: &str| query.get(name).map(|text| text.trim()).filter(|text| !text.is_empty());
    let (q, status) = (text("q"), text("status"));
    let before = text("before").and_then(|id| id.parse().ok());
    let mut rows = match (q, status) {
        (Some(q), _) => found::search(&state.watch, operator.shop(), q).await?,
        (None, Some(s)) if TROUBLE.contains(&s) => {
            found::list(&state.watch, operator.shop(), &Wanted::Trouble(s.to_owned()), before).await?
        }
        (None, Some(s)) => {
            let status = Status::from_code(s).ok_or(Refused::Form("There is no such status.".to_owned()))?;
            found::list(&state.watch, operator.shop(), &Wanted::Status(status.code().to_owned()), before).await?
        }
        (None, None) => found::list(&state.watch, operator.shop(), &Wanted::All, before).await?,
    };
    if let (Some(_), [only]) = (q, rows.as_slice()) {
        return Ok(Redirect::to(&format!("/ops/orders/{}", only.id)).into_response());
    }
    let more = rows.len() > usize::try_from(PAGE).unwrap_or(usize::MAX);
    rows.truncate(usize::try_from(PAGE).unwrap_or(usize::MAX));
    let codes = Status::ALL.iter().map(|s| s.code()).chain(TROUBLE);
    Ok(page(&operator, "Orders", "/ops/orders", html! {
        form.row method="get" {
            div { label for="q" { "Id, reference, asset or payment id" } input id="q" name="q" value=[q] size="38"; }
            div { label for="status" { "Status" } select id="status" name="status" {
                option value="" { "any" }
                @for code in codes { option value=(code) selected[Some(code) == status] { (code) } }
            } }
            button { "Find" }
        }
        (table(&rows))
        @if let (true, Some(last)) = (more, rows.last()) {
            p { a href={ "/ops/orders?status=" (status.unwrap_or_default()) "&before=" (last.id) } { "Older" } }
        }
    }).into_response())
}

fn table(rows: &[Row]) -> Markup {
    html! {
        @if rows.is_empty() { p.notice { "There is no such order." } } @else {
            div.scroll tabindex="0" { table {
                thead { tr { th { "Placed" } th { "Order" } th { "Reference" } th { "Status" } th { "Money" } th { "Buyer" } } }
                tbody { @for row in rows { tr {
                    td { (instant(row.placed_at)) }
                    td { a href={ "/ops/orders/" (row.id) } { (row.id) } }
                    td { (row.reference.as_deref().unwrap_or("–")) }
                    td { (tag(&row.status)) } td { (tag(&row.payment_state)) }
                    td { (row.buyer.as_deref().unwrap_or("–")) }
                } } }
            } }
        }
    }
}

pub(super) fn tag(code: &str) -> Markup {
    let grade = match code {
        "reserved" | "converted" | "paid" | "held" | "Done" | "applied" => "good",
        "refused" | "mismatch" | "refund_due" | "Killed" => "bad",
        "late" | "expired" | "Failed" | "pending" => "warn",
        _ => "",
    };
    html! { span class={ "tag " (grade) } { (code) } }
}

pub(super) async fn order(
    State(state): State<AppState>,
    operator: Operator,
    Path(id): Path<String>,
) -> Result<Markup, Refused> {
    let id: Uuid = id.parse().map_err(|_| Refused::NotFound)?;
    let shop = operator.shop();
    let order = orders::read(&state.db, shop, id).await?.ok_or(Refused::NotFound)?;
    let events = orders::events(&state.db, shop, id).await?.ok_or(Refused::NotFound)?;
    let payments = found::payments(&state.watch, shop, id).await?;
    let jobs = found::jobs(&state.watch, shop, id, &payments).await?;
    let title = format!("Order {}", order.reference.clone().unwrap_or_else(|| id.to_string()));
    Ok(page(
        &operator,
        &title,
        "/ops/orders",
        html! {
            (head(&order))
            @if operator.may(Scope::Orders) { (actions(&operator, &order)) }
            h2 { "What happened" }
            (timeline(&order, &events))
            h2 { "Lines" }
            @for line in &order.lines {
                div.scroll tabindex="0" { table {
                    caption.hint { "Line " (line.line) ": " (line.quantity) " × "
                        @if let Some(stock) = &line.stock { (stock.sku) } @else { (line.asset.as_ref().map(wanted).unwrap_or_default()) } }
                    @for r in &line.reservations { tr {
                        td { (tag(&r.state)) }
                        td.thing { (r.asset.as_deref().or(r.sku.as_deref()).unwrap_or_default()) " at " (r.location) ", " (r.quantity) }
                        td { "until " (instant(r.expires_at)) }
                        td { (reason(&r.reason)) }
                    } }
                } }
            }
            h2 { "Payments" }
            @if payments.is_empty() { p.hint { "No payment event names this order." } }
            @for p in &payments {
                details { summary { (instant(p.received_at)) " " (p.provider) " " (p.kind) " " (tag(&p.state)) " " (p.outcome.as_deref().unwrap_or_default()) }
                    p { "Payment " (p.payment_id.as_deref().unwrap_or("–")) ", " (p.amount.map(|a| a.to_string()).unwrap_or_default()) " " (p.currency.as_deref().unwrap_or_default()) ", event " (p.event_id) ", means " (p.effect) }
                    pre { (p.payload) }
                    @if p.state == "pending" && operator.may(Scope::Orders) {
                        form method="post" action={ "/ops/orders/" (id) "/replay" } { (token(&operator))
                            input type="hidden" name="provider" value=(p.provider); input type="hidden" name="event" value=(p.event_id);
                            p.hint { "It is looked at again. An event is applied once, however often it is replayed." }
                            button { "Replay this event" } }
                    } }
            }
            h2 { "Jobs" }
            (job_rows(&jobs))
        },
    ))
}

fn head(order: &Order) -> Markup {
    html! { div.card { dl {
        dt { "Status" } dd { (tag(order.status.code())) @if order.waiting { " waiting for stock" } }
        dt { "Id" } dd { (order.id) }
        dt { "Placed" } dd { (instant(order.placed_at)) }
        @if let Some(at) = order.hold_expires_at { dt { "Hold lapses" } dd { (instant(at)) } }
        @if let Some(buyer) = &order.buyer { dt { "Buyer" } dd { (buyer) } }
        dt { "Money" } dd { (tag(order.payment.state.code())) " "
            @if let (Some(amount), Some(currency)) = (order.payment.amount, &order.payment.currency) { (amount) " " (currency) " (minor unit)" } }
        @if let Some(refusal) = &order.refusal { dt { "Why refused" } dd { (refused(refusal)) } }
        @if order.metadata.as_object().is_some_and(|m| !m.is_empty()) { dt { "Metadata" } dd { code { (order.metadata) } } }
    } } }
}

/// A refusal in words.
fn refused(refusal: &Value) -> Markup {
    let says = match refusal["kind"].as_str().unwrap_or_default() {
        "contended" => "There was something to sell, and someone was a moment faster.",
        "held" => "Everything that fits is held by other orders; it may lapse.",
        "unavailable" => "Nothing that fits can be had: buy more.",
        "limit" => "This buyer already holds as much as the shop allows.",
        _ => "",
    };
    html! {
        b { (refusal["kind"].as_str().unwrap_or("?")) } " (line " (refusal["line"]) "): " (says)
        @if let Some(seconds) = refusal["retry_after_seconds"].as_f64() { " Try again after " (span(seconds)) "." }
        @if let Some(reasons) = refusal["reasons"].as_array().filter(|r| !r.is_empty()) {
            " Ruled out: " @for r in reasons { (r["count"]) " × " (r["reason"].as_str().unwrap_or("?")) "; " }
        }
    }
}

/// What was asked for, in words.
fn wanted(asset: &Value) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let list = |value: &Value| value.as_array().into_iter().flatten().map(text).collect::<Vec<_>>().join(" or ");
    let mut parts = vec![text(&asset["category"])];
    if asset["locations"].is_array() {
        parts.push(format!("at {}", list(&asset["locations"])));
    }
    if asset["vendor"].is_string() {
        parts.push(format!("of {}", text(&asset["vendor"])));
    }
    for (name, conditions) in asset["attributes"].as_object().into_iter().flatten() {
        for (condition, value) in conditions.as_object().into_iter().flatten() {
            parts.push(match condition.as_str() {
                "eq" => format!("{name} {}", text(value)),
                "min" => format!("{name} at least {}", text(value)),
                "max" => format!("{name} at most {}", text(value)),
                "in" => format!("{name} {}", list(value)),
                other => format!("{name} {other} {}", text(value)),
            });
        }
    }
    parts.join(", ")
}

/// Why this one was taken, in words; all of it below.
fn reason(reason: &Value) -> Markup {
    let taken = &reason["taken"];
    html! { details { summary {
        @if reason["candidates"].is_number() {
            (reason["candidates"]) " candidates, " (reason["skipped"]) " skipped, " (reason["attempts"]) " attempts"
            @if let Some(lost) = reason["runner_up"]["lost_because"].as_str() {
                "; runner-up " (reason["runner_up"]["facts"]["asset"].as_str().unwrap_or("?")) " lost: " (lost)
            }
        } @else if let Some(tried) = reason["tried"].as_array() {
            (tried.len()) " locations tried; " (taken["quantity"]) " taken at " (taken["location"].as_str().unwrap_or("?"))
        } @else { "Why" }
    } pre { (serde_json::to_string_pretty(reason).unwrap_or_default()) } } }
}

fn timeline(order: &Order, events: &[Event]) -> Markup {
    let mut last = order.placed_at;
    let rows: Vec<_> = events
        .iter()
        .map(|event| {
            let after = (event.at - last).as_seconds_f64();
            last = event.at;
            (event, after)
        })
        .collect();
    html! { div.scroll tabindex="0" { table {
        thead { tr { th { "When" } th.n { "After" } th { "What" } th { "By" } th { "Particulars" } } }
        tbody { @for (event, after) in rows { tr {
            td { (instant(event.at)) } td.n { (span(after)) } td { (event.kind) } td { (event.actor) }
            td { @if event.kind == "refused" { (refused(&event.detail)) } @else {
                details { summary { (event.detail["reason"].as_str().unwrap_or("Show")) } pre { (serde_json::to_string_pretty(&event.detail).unwrap_or_default()) } } } }
        } } }
    } } }
}

/// What can be done to an order as it stands; each asks first.
fn actions(operator: &Operator, order: &Order) -> Markup {
    let path = format!("/ops/orders/{}", order.id);
    html! {
        @if matches!(order.status, Status::Placed | Status::Reserved) {
            details { summary { "Cancel…" } form method="post" action={ (path) "/cancel" } { (token(operator))
                p { "Its holds end and others can buy what it held. This cannot be undone." }
                label for="why" { "Reason" } input id="why" name="reason" maxlength="200" size="40";
                div { button.danger { "Cancel this order" } } } }
        }
        @if order.status == Status::Reserved {
            details { summary { "Extend…" } form method="post" action={ (path) "/extend" } { (token(operator))
                label for="seconds" { "Hold for so many seconds from now" }
                input id="seconds" name="hold_seconds" type="number" min="1" max="86400" value="600" required;
                div { button { "Extend the hold" } } } }
        }
        @if matches!(order.payment.state, PaymentState::Mismatch | PaymentState::RefundDue) {
            details { summary { "Mark refunded…" } form method="post" action={ (path) "/refunded" } { (token(operator))
                p { "Only says that the money was given back at the provider: no money moves by this." }
                label for="note" { "Note" } input id="note" name="reason" maxlength="200" size="40";
                div { button { "Mark as refunded" } } } }
        }
        @if order.status == Status::Converted {
            details { summary { "Release…" } form method="post" action={ (path) "/release" } { (token(operator))
                p { "The sale is undone: its bindings end and stock comes back. Money is not given back by this." }
                label for="why" { "Reason" } input id="why" name="reason" maxlength="200" size="40";
                label for="assets" { "Its assets become" }
                select id="assets" name="assets" { option value="maintenance" { "maintenance" } option value="ready" { "ready" } }
                div { button.danger { "Release this order" } } } }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::wanted;

    #[test]
    fn what_was_asked_for_is_told_in_words() {
        let asset = json!({"category": "dedicated-m", "locations": ["BER", "FRA"], "vendor": "Dell", "attributes":
            {"gpu": {"in": ["a", "b"]}, "raid": {"eq": true}, "ram_gb": {"min": 128, "max": 512}}});
        let words =
            "dedicated-m, at BER or FRA, of Dell, gpu a or b, raid true, ram_gb at most 512, ram_gb at least 128";
        assert_eq!(wanted(&asset), words);
        assert_eq!(wanted(&json!({"category": "box"})), "box");
    }
}
