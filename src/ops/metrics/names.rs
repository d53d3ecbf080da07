//! The help texts of what is counted in this process. Names and units follow Prometheus's conventions; every
//! label has a bounded set of values, and none names an order, a shop, a SKU or a key.

use metrics::{Unit, describe_counter, describe_histogram};

/// Tells the recorder what each name means.
pub(super) fn describe() {
    describe_counter!("onehold_http_requests_total", "Answered requests by route, method and status.");
    describe_histogram!("onehold_http_request_seconds", Unit::Seconds, "Time to answer a request, by route.");
    describe_counter!("onehold_transactions_total", "Transactions by name and how they ended.");
    describe_histogram!(
        "onehold_transaction_seconds",
        Unit::Seconds,
        "Time a transaction kept its connection, by name; its sum is connection time."
    );
    describe_counter!(
        "onehold_transaction_retries_total",
        "Transactions run again after a serialization failure or deadlock, by name."
    );
    describe_histogram!(
        "onehold_connection_wait_seconds",
        Unit::Seconds,
        "Time a transaction waited for a free connection and its begin."
    );
    describe_counter!("onehold_jobs_total", "Executions of jobs by queue and result: done, retry or dead.");
    describe_histogram!("onehold_job_seconds", Unit::Seconds, "Time an execution of a job took, by queue.");
    describe_counter!("onehold_decisions_total", "Orders decided, by outcome, and refusals by kind.");
    describe_counter!("onehold_payments_total", "Payment events worked on, by what became of them.");
    describe_counter!("onehold_holds_expired_total", "Orders whose holds the sweep expired.");
}
