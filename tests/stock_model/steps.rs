//! What can happen to stock, and random sequences of it.

use proptest::prelude::*;

#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) sku: usize,
    pub(super) quantity: i32,
    /// One location, or any.
    pub(super) location: Option<usize>,
    pub(super) split: bool,
}

/// One thing that happens. Orders are named by a number that is taken modulo how many there are.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Place(Vec<Line>),
    Pay(usize),
    Cancel(usize),
    Release(usize),
    Lapse(usize),
    Sweep,
    Receive(usize, usize, i32),
    Adjust(usize, usize, i32, bool),
    Refill(usize, usize),
    RollUp,
}

fn line() -> impl Strategy<Value = Line> {
    (0..3_usize, 1..7_i32, proptest::option::of(0..2_usize), any::<bool>())
        .prop_map(|(sku, quantity, location, split)| Line { sku, quantity, location, split })
}

fn step() -> impl Strategy<Value = Step> {
    let pool = || (0..3_usize, 0..2_usize);
    prop_oneof![
        5 => line().prop_map(|line| Step::Place(vec![line])),
        3 => proptest::collection::vec(line(), 2..5).prop_map(Step::Place),
        3 => (0..20_usize).prop_map(Step::Pay),
        2 => (0..20_usize).prop_map(Step::Cancel),
        1 => (0..20_usize).prop_map(Step::Release),
        2 => (0..20_usize).prop_map(Step::Lapse),
        1 => Just(Step::Sweep),
        3 => (pool(), 1..12_i32).prop_map(|((s, l), n)| Step::Receive(s, l, n)),
        2 => (pool(), 1..8_i32, any::<bool>()).prop_map(|((s, l), n, force)| Step::Adjust(s, l, -n, force)),
        1 => pool().prop_map(|(s, l)| Step::Refill(s, l)),
        1 => Just(Step::RollUp),
    ]
}

/// A pool's bound, and groups of steps; those of one group happen at once.
pub(super) fn sequence() -> impl Strategy<Value = (i32, Vec<Vec<Step>>)> {
    let alone = step().prop_map(|step| vec![step]);
    let together = proptest::collection::vec(step(), 2..6);
    (1..6_i32, proptest::collection::vec(prop_oneof![2 => alone, 1 => together], 4..16))
}
