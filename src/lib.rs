//! Onehold: a worker fleet that sells things which exist once. One room per noun of the business;
//! `ARCHITECTURE.md` is the map.

#![warn(clippy::unwrap_used)]

pub mod allocator;
pub mod bench;
pub mod body;
pub mod config;
pub mod convert;
pub mod courier;
pub mod db;
pub mod demo;
pub mod ops;
pub mod orders;
pub mod payments;
pub mod queue;
pub mod reservations;
pub mod shops;
pub mod stock;
pub mod sweep;
pub mod traces;
pub mod web;
