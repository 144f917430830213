//! Each lie of a driver once, with few packets, for slow checkers.

use txq::Discipline;

use crate::drivers::run;
use crate::liar::Lie;

const LIES: [Lie; 15] = [
    Lie::Leaves(2),
    Lie::Tag,
    Lie::Exchanges(2),
    Lie::Sends(2),
    Lie::Drops(2),
    Lie::Everything,
    Lie::Half,
    Lie::Grows,
    Lie::Shrinks,
    Lie::Panics(2),
    Lie::PanicsOnTheWay,
    Lie::Returns(3),
    Lie::AllAtOnce,
    Lie::Shorter,
    Lie::Longer,
];

#[test]
fn each_lie_once() {
    for lie in LIES {
        for root in ["pfifo", "noqueue"] {
            run(lie, Some(4), root, Discipline::Combine, lie == Lie::Tag, 6);
        }
    }
}
