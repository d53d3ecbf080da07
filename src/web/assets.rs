//! Assets over HTTP: what exists, described by whoever stocks the shop.

use axum::extract::{FromRequestParts, Path, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use uuid::Uuid;

use super::AppState;
use super::auth::{Authorised, Stock};
use super::input::{JsonBody, Params};
use super::paging::{Page, Paging};
use super::problem::{Code, Problem};
use crate::allocator::waiting;
use crate::stock::assets::{self, Asset, Deleted, Filter, Put};
use crate::stock::description::{self, Status};
use crate::stock::name;

pub(super) fn routes() -> Router<AppState> {
    Router::new().route("/v1/assets", get(list)).route("/v1/assets/{key}", get(read).put(put).delete(delete))
}

/// The asset's key in the path, normalised like any name; or why it is none.
struct Key(Result<String, String>);

impl<S: Send + Sync> FromRequestParts<S> for Key {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        Ok(Self(match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(text)) => name::check(&text).map_err(|fault| fault.to_string()),
            Err(_) => Err("must be UTF-8, percent-encoded".to_owned()),
        }))
    }
}

impl Key {
    /// What is no key is the key of nothing.
    fn of_something(self) -> Result<String, Problem> {
        self.0.map_err(|_| Problem::not_found())
    }
}

async fn put(
    caller: Authorised<Stock>,
    State(state): State<AppState>,
    Key(key): Key,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let key = key.map_err(|fault| Problem::new(Code::InvalidBody, format!("the asset's key in the path {fault}")))?;
    let described = description::check(&body).map_err(Problem::invalid_body)?;
    match waiting::put_asset(&state.db, caller.shop.id, &key, &described).await? {
        Put::Created(asset) => {
            Ok((StatusCode::CREATED, [(header::LOCATION, address(&key))], Json(asset)).into_response())
        }
        Put::Replaced(asset) => Ok(Json(asset).into_response()),
        Put::InUse(order) => Err(in_use(&key, order)),
    }
}

async fn read(caller: Authorised<Stock>, State(state): State<AppState>, key: Key) -> Result<Json<Asset>, Problem> {
    let found = assets::get(&state.db, caller.shop.id, &key.of_something()?).await?;
    found.map(Json).ok_or_else(Problem::not_found)
}

async fn delete(caller: Authorised<Stock>, State(state): State<AppState>, key: Key) -> Result<StatusCode, Problem> {
    let key = key.of_something()?;
    match assets::delete(&state.db, caller.shop.id, &key).await? {
        Deleted::Done => Ok(StatusCode::NO_CONTENT),
        Deleted::NoSuchAsset => Err(Problem::not_found()),
        Deleted::InUse(order) => Err(in_use(&key, order)),
    }
}

async fn list(
    caller: Authorised<Stock>,
    State(state): State<AppState>,
    params: Params,
) -> Result<Json<Page<Asset>>, Problem> {
    let params = params.only(&["category", "location", "status", "cursor", "limit"])?;
    let paging = Paging::of(&params)?;
    let status = params.text("status").map(|text| Status::from_code(text).ok_or(text));
    let filter = Filter {
        category: named(&params, "category")?,
        location: named(&params, "location")?,
        status: status.transpose().map_err(|_| Params::unfit("status", Status::MUST))?,
        after: paging.after.clone(),
        limit: paging.rows(),
    };
    let rows = assets::list(&state.db, caller.shop.id, &filter).await?;
    Ok(paging.page(rows, |asset| asset.key.clone()))
}

/// A name to filter by, under the rule by which it was kept.
fn named(params: &Params, parameter: &str) -> Result<Option<String>, Problem> {
    let checked = params.text(parameter).map(name::check).transpose();
    checked.map_err(|fault| Params::unfit(parameter, &fault.to_string()))
}

fn in_use(key: &str, order: Uuid) -> Problem {
    let detail = format!("order {order} holds or has bought asset {key:?}, and keeps what it was promised");
    Problem::new(Code::AssetInUse, detail).with("order", order.to_string())
}

fn address(key: &str) -> HeaderValue {
    let path = format!("/v1/assets/{}", utf8_percent_encode(key, NON_ALPHANUMERIC));
    // Percent-encoded, it is ASCII.
    HeaderValue::from_str(&path).unwrap_or_else(|_| HeaderValue::from_static("/v1/assets"))
}
