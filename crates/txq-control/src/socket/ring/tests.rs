use super::*;

fn frame(n: u32) -> Descriptor {
    Descriptor { offset: n, len: n + 1, priority: n + 2, flags: n + 3 }
}

struct Shared(Cursors, Vec<Slot>);

impl Shared {
    fn new(size: usize) -> Self {
        Self(Cursors::new(), (0..size).map(|_| Slot::default()).collect())
    }

    fn ring(&self) -> Ring<'_> {
        Ring::new(&self.0, &self.1)
    }
}

#[test]
fn frames_cross_in_order_and_across_the_end_of_the_cursors() {
    let shared = Shared::new(4);
    let ring = shared.ring();
    let near = u32::MAX - 5;
    shared.0.producer.cursor.store(near, Relaxed);
    shared.0.consumer.cursor.store(near, Relaxed);
    let (mut producer, mut consumer) =
        (Producer { head: near, tail: near }, Consumer { head: near, tail: near, rejected: 0 });
    for n in 0..20 {
        assert!(producer.room(ring).unwrap() > 0);
        producer.push(ring, frame(n));
        assert_eq!(consumer.pending(ring), Ok(0), "not published");
        assert!(!producer.publish(ring));
        assert_eq!(consumer.pending(ring), Ok(1));
        assert_eq!(consumer.pop(ring), frame(n));
        assert!(!consumer.publish(ring, 0));
    }
}

#[test]
fn a_side_that_waits_is_rung_once() {
    let shared = Shared::new(4);
    let ring = shared.ring();
    let (mut producer, mut consumer) = (Producer::default(), Consumer::default());
    assert_eq!(consumer.wait(ring), Ok(true));
    (0..4).for_each(|n| producer.push(ring, frame(n)));
    assert!(producer.publish(ring) && !producer.publish(ring));
    assert_eq!(producer.wait(ring), Ok(true));
    assert_eq!(consumer.wait(ring), Ok(false));
    // A quarter is free, and then all but the frame that is held.
    assert_eq!(consumer.pop(ring), frame(0));
    assert!(!consumer.publish(ring, 0));
    consumer.pop(ring);
    assert!(!consumer.publish(ring, 1));
    consumer.pop(ring);
    assert!(consumer.publish(ring, 1) && !consumer.publish(ring, 1));
    assert_eq!(producer.room(ring), Ok(2));
    assert_eq!(producer.wait(ring), Ok(false));
}

#[test]
fn a_cursor_that_cannot_be_is_found() {
    for (producer_at, consumer_at) in [(5, 0), (u32::MAX, 0), (0, 1), (0, u32::MAX), (1 << 31, 0)] {
        let shared = Shared::new(4);
        let ring = shared.ring();
        shared.0.producer.cursor.store(producer_at, Relaxed);
        shared.0.consumer.cursor.store(consumer_at, Relaxed);
        if producer_at != 0 {
            assert_eq!(Consumer::default().pending(ring), Err(Broken), "{producer_at}");
            assert_eq!(Consumer::default().wait(ring), Err(Broken), "{producer_at}");
        } else {
            assert_eq!(Producer::default().pending(ring), Err(Broken), "{consumer_at}");
        }
    }
    // Back, behind what was published before.
    let shared = Shared::new(4);
    let ring = shared.ring();
    let mut consumer = Consumer::default();
    shared.0.producer.cursor.store(3, Relaxed);
    assert_eq!(consumer.pending(ring), Ok(3));
    shared.0.producer.cursor.store(2, Relaxed);
    assert_eq!(consumer.refresh(ring), Err(Broken));
}
