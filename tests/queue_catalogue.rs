//! The wire formats outlive a release (case Q9): what stands here was in somebody's database, and is never
//! changed, only added to.

use onehold::queue::catalogue::{
    self, ApplyPayment, CONVERT, HOUSEKEEPING, Housekeeping, Job, REFILL, RESERVE, RefillPool, ReserveOrder, Task,
};
use onehold::queue::{Delivery, JobError, decode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::uuid;

fn delivered(payload: &str) -> Delivery {
    let payload = payload.as_bytes().to_vec();
    Delivery { id: "01".to_owned(), queue: "reserve", attempt: 1, max_attempts: 20, payload }
}

fn frozen<T: Job + Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(payload: &str, meaning: &T) {
    assert_eq!(&decode::<T>(&delivered(payload)).unwrap(), meaning);
    let written: serde_json::Value = serde_json::to_value(meaning).unwrap();
    assert_eq!(written, serde_json::from_str::<serde_json::Value>(payload).unwrap());
}

#[test]
fn names_of_queues_are_frozen() {
    assert_eq!(catalogue::ALL.map(|queue| queue.name), ["reserve", "convert", "housekeeping", "refill"]);
    assert_eq!(ReserveOrder::QUEUE, RESERVE);
    assert_eq!(ApplyPayment::QUEUE, CONVERT);
    assert_eq!(Housekeeping::QUEUE, HOUSEKEEPING);
    assert_eq!(RefillPool::QUEUE, REFILL);
}

#[test]
fn payloads_of_version_1_are_written_and_read() {
    let order = uuid!("0198f3a0-0000-7000-8000-000000000001");
    frozen(
        r#"{"v":1,"shop":1,"order":"0198f3a0-0000-7000-8000-000000000001"}"#,
        &ReserveOrder { v: 1, shop: 1, order },
    );
    frozen(
        r#"{"v":1,"shop":7,"provider":"stripe","event":"evt_1"}"#,
        &ApplyPayment { v: 1, shop: 7, provider: "stripe".to_owned(), event: "evt_1".to_owned() },
    );
    frozen(
        r#"{"v":1,"shop":7,"sku":"PSU \"750\"","location":"BER"}"#,
        &RefillPool { v: 1, shop: 7, sku: "PSU \"750\"".to_owned(), location: "BER".to_owned() },
    );
    for (name, task) in ["sweep", "requeue", "roll_up", "prune"].into_iter().zip(Task::ALL) {
        frozen(&format!(r#"{{"v":1,"task":"{name}"}}"#), &Housekeeping { v: 1, task });
        assert_eq!(task.name(), name);
    }
}

#[test]
fn a_field_that_a_later_release_adds_to_version_1_is_no_obstacle() {
    let read: Housekeeping = decode(&delivered(r#"{"v":1,"task":"sweep","since":"a later release"}"#)).unwrap();
    assert_eq!(read, Housekeeping { v: 1, task: Task::Sweep });
}

#[test]
fn a_newer_version_waits_for_a_newer_worker_and_nonsense_does_not_wait() {
    let newer = decode::<Housekeeping>(&delivered(r#"{"v":2,"task":{"name":"sweep"}}"#));
    assert!(matches!(newer, Err(JobError::Retry(_))), "{newer:?}");
    for nonsense in ["", "{}", r#"{"v":1,"task":"dance"}"#, r#"{"v":1}"#] {
        let read = decode::<Housekeeping>(&delivered(nonsense));
        assert!(matches!(read, Err(JobError::Dead(_))), "{nonsense}: {read:?}");
    }
}

#[test]
fn a_delivery_is_printed_without_its_payload() {
    let printed = format!("{:?}", delivered("a buyer's secret"));
    assert_eq!(printed, "job 01 of reserve (attempt 1 of 20)");
}
