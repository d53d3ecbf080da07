//! Inventory: assets with what keeps them from being sold, and stock by SKU and location; and the connections.

use std::collections::HashMap;

use axum::extract::{Query, State};
use maud::{Markup, html};
use uuid::Uuid;

use super::page::{Refused, at_least, grouped, instant, page, span};
use super::session::Operator;
use crate::ops::standing::MOST_OTHERS;
use crate::ops::stock::{self, Lasting, Movement};
use crate::stock::assets::{self, Asset, Filter};
use crate::web::AppState;

pub(super) async fn inventory(
    State(state): State<AppState>,
    operator: Operator,
    Query(query): Query<HashMap<String, String>>,
) -> Result<Markup, Refused> {
    let text = |name: &str| query.get(name).map(|t| t.trim().to_owned()).filter(|t| !t.is_empty() && !t.contains('\0'));
    let (category, location, sku) = (text("category"), text("location"), text("sku"));
    let filter = Filter {
        category: category.clone(),
        location: location.clone(),
        after: text("after"),
        limit: stock::PAGE,
        ..Filter::default()
    };
    let assets = assets::list(&state.db, operator.shop(), &filter).await?;
    let after = (text("after_sku").unwrap_or_default(), text("after_location").unwrap_or_default());
    let pools = stock::pools(&state.watch, operator.shop(), sku.as_deref(), (&after.0, &after.1)).await?;
    let lasting = stock::lasting(&state.watch, operator.shop()).await?;
    let movements = match &sku {
        Some(sku) => stock::movements(&state.watch, operator.shop(), sku).await?,
        None => Vec::new(),
    };
    let full = |n: usize| i64::try_from(n).is_ok_and(|n| n >= stock::PAGE);
    Ok(page(
        &operator,
        "Inventory",
        "/ops/inventory",
        html! {
            (running_out(&lasting))
            h2 { "Assets" }
            form.row method="get" {
                div { label for="category" { "Category" } input id="category" name="category" value=[category.as_deref()]; }
                div { label for="location" { "Location" } input id="location" name="location" value=[location.as_deref()]; }
                button { "Show" }
            }
            @if assets.is_empty() { p.hint { "There are none." } } @else { div.scroll tabindex="0" { table {
                thead { tr { th { "Asset" } th { "Category" } th { "Location" } th.n { "Rank" } th { "Can it be sold now" } } }
                tbody { @for a in &assets { tr {
                    td.thing { (a.key) } td { (a.category) } td { (a.location) } td.n { (a.rank) } td { (why_not(a)) }
                } } }
            } } }
            @if let (true, Some(last)) = (full(assets.len()), assets.last()) {
                form.row method="get" {
                    input type="hidden" name="after" value=(last.key);
                    input type="hidden" name="category" value=(category.as_deref().unwrap_or_default());
                    input type="hidden" name="location" value=(location.as_deref().unwrap_or_default());
                    button.quiet { "More assets" }
                }
            }
            h2 { "Stock" }
            form.row method="get" { div { label for="sku" { "SKU" } input id="sku" name="sku" value=[sku.as_deref()]; } button { "Show" } }
            @if pools.is_empty() { p.hint { "There is none." } } @else { div.scroll tabindex="0" { table {
                thead { tr { th { "SKU" } th { "Location" } th.n { "On hand" } th.n { "Held" } th.n { "Pooled" } th.n { "Unpooled" } th.n { "Lacking" } } }
                tbody { @for p in &pools { tr {
                    td.thing { (p.sku) } td { (p.location) } td.n { (grouped(p.on_hand)) } td.n { (grouped(p.held)) } td.n { (grouped(p.pooled)) }
                    td.n { (grouped(p.on_hand - p.held - p.pooled)) }
                    td.n { @if p.shortfall > 0 { span.tag.bad { (grouped(p.shortfall)) } } @else { "–" } }
                } } }
            } } }
            @if let (true, Some(last)) = (full(pools.len()) && sku.is_none(), pools.last()) {
                form.row method="get" {
                    input type="hidden" name="after_sku" value=(last.sku); input type="hidden" name="after_location" value=(last.location);
                    button.quiet { "More stock" }
                }
            }
            @if let Some(sku) = &sku { (moved(sku, &movements)) }
        },
    ))
}

/// Categories that are being sold, the one first that will be empty first.
fn running_out(lasting: &[Lasting]) -> Markup {
    html! { @if !lasting.is_empty() {
        h2 { "Running out" }
        div.scroll tabindex="0" { table {
            thead { tr { th { "Category" } th.n { "Left" } th.n { "An hour" } th.n { "Empty in" } } }
            tbody { @for l in lasting { tr {
                td { (l.category) } td.n { (at_least(l.left, MOST_OTHERS)) } td.n { (format!("{:.1}", l.per_hour)) }
                td.n { @if l.left == 0 { span.tag.bad { "empty" } } @else { (span(l.lasts)) } }
            } } }
        } }
        p.hint { "At the pace of the shop's last " (grouped(stock::HOLDS_LOOKED_AT)) " holds, without those that were given back." }
    } }
}

fn moved(sku: &str, movements: &[Movement]) -> Markup {
    html! {
        h2 { "Movements of " (sku) }
        @if movements.is_empty() { p.hint { "None among the shop's last " (grouped(stock::MOVEMENTS_LOOKED_AT)) "." } } @else { div.scroll tabindex="0" { table {
            thead { tr { th { "When" } th { "Location" } th.n { "Units" } th { "Kind" } th { "Reference" } th { "By" } } }
            tbody { @for m in movements { tr {
                td { (instant(m.at)) } td { (m.location) } td.n { (grouped(m.delta.into())) } td { (m.kind) } td { (m.reference) } td { (m.actor) }
            } } }
        } } }
    }
}

/// What keeps an asset from being sold now.
fn why_not(asset: &Asset) -> Markup {
    let order = |id: Uuid| html! { a href={ "/ops/orders/" (id) } { (id) } };
    html! {
        @if let Some(id) = asset.bound_to { span.tag { "sold" } " to " (order(id)) }
        @else if let Some(id) = asset.held_by { span.tag.warn { "held" } " by " (order(id)) }
        @else if asset.status.code() != "ready" { span.tag.bad { (asset.status.code()) } }
        @else if let Some(at) = asset.available_from.filter(|at| *at > chrono::Utc::now()) { span.tag.warn { "not yet" } " from " (instant(at)) }
        @else { span.tag.good { "yes" } }
    }
}

/// What the connections to the database are used for.
pub(super) async fn connections(State(state): State<AppState>, operator: Operator) -> Result<Markup, Refused> {
    let sessions = stock::sessions(&state.watch).await?;
    let mut held = state.metrics.connection_seconds();
    held.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    Ok(page(
        &operator,
        "Connections",
        "/ops/connections",
        html! {
            h2 { "Held by transactions of this process" }
            @if held.is_empty() { p.hint { "None since it started." } } @else { div.scroll tabindex="0" { table {
                thead { tr { th { "Transaction" } th.n { "Seconds held" } th.n { "Times" } th.n { "Each" } } }
                tbody { @for h in &held { tr {
                    td { (h.name) } td.n { (span(h.seconds)) } td.n { (h.times) } td.n { (span(h.seconds / h.times.max(1.0))) }
                } } }
            } } }
            p.hint { "Since it started. Of workers see `onehold_transaction_seconds` at their own /metrics." }
            h2 { "Sessions of the database" }
            div.scroll tabindex="0" { table {
                thead { tr { th { "Program" } th { "Does" } th { "Waits for" } th.n { "How many" } th.n { "Longest" } } }
                tbody { @for s in &sessions { tr {
                    td { (s.program) } td { (s.state) } td { (s.waits_for.as_deref().unwrap_or("–")) } td.n { (grouped(s.n)) } td.n { (span(s.longest)) }
                } } }
            } }
        },
    ))
}
