//! Drivers that send through other devices, and finally through themselves: each packet is dropped after six passes, and
//! no thread waits for itself (T39).

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use txq::driver::{DeviceInfo, Driver, DriverQueue, NoCompletions, Status, Transmit, TxCx};
use txq::drop::DropReason;
use txq::packet::PacketList;
use txq::pool::{Backing, PoolConfig};
use txq::{Discipline, NetDev, Sender};

/// A driver that sends copies of all packets through another device.
#[derive(Clone, Default)]
pub(crate) struct Tunnel(pub(crate) Arc<Mutex<Option<Sender>>>);

impl Driver for Tunnel {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::new("tunnel")
    }

    fn open(&mut self, _: u16) -> io::Result<DriverQueue> {
        Ok(DriverQueue::new(self.clone(), NoCompletions))
    }
}

impl Transmit for Tunnel {
    fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
        // A driver that one thread enters twice finds its sender in use.
        let through = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut sender) = through else {
            while let Some(packet) = batch.pop_front() {
                cx.drop(packet, DropReason::NoMem);
            }
            return Status::Ok;
        };
        let mut on: PacketList = batch.iter().filter_map(|p| sender.packet(p.data()).ok()).collect();
        cx.sent_all(batch);
        let _ = sender.xmit_batch(&mut on);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        Status::Ok
    }
}

/// A driver that sends the packets themselves on.
#[derive(Clone, Default)]
struct Redirect(Tunnel);

impl Driver for Redirect {
    fn info(&self) -> DeviceInfo {
        self.0.info()
    }

    fn open(&mut self, _: u16) -> io::Result<DriverQueue> {
        Ok(DriverQueue::new(self.clone(), NoCompletions))
    }
}

impl Transmit for Redirect {
    fn start_xmit(&mut self, batch: &mut PacketList, _: &mut TxCx<'_>) -> Status {
        let Some(mut sender) = self.0.0.lock().unwrap_or_else(PoisonError::into_inner).take() else {
            return Status::Busy { retry: Some(std::time::Duration::ZERO) };
        };
        let mut on = PacketList::new();
        on.append(batch);
        let _ = sender.xmit_batch(&mut on);
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        Status::Ok
    }
}

fn device(driver: impl Driver + 'static, qdisc: &str, discipline: Discipline) -> NetDev {
    let pool = PoolConfig { room: 256, backing: Backing::Heap, ..Default::default() };
    NetDev::builder(driver).bql(None).qdisc(qdisc).discipline(discipline).pool_config(pool).build().unwrap()
}

/// The packet itself circulates between two devices, by the sender and by the workers; it is dropped after six passes.
#[test]
fn a_packet_does_not_go_round_for_ever() {
    for &discipline in Discipline::ALL {
        let drivers = [Redirect::default(), Redirect::default()];
        let devs = drivers.clone().map(|driver| device(driver, "pfifo", discipline));
        for (i, driver) in drivers.iter().enumerate() {
            *driver.0.0.lock().unwrap() = Some(devs[1 - i].sender("on"));
        }
        let mut sender = devs[0].sender("s");
        let packet = sender.packet(&[0; 60]).unwrap();
        let _ = sender.xmit(packet);
        let mut workers = devs.each_ref().map(|dev| dev.worker(0));
        for _ in 0..100 {
            for worker in &mut workers {
                worker.poll();
            }
        }
        let stats = devs.each_ref().map(|dev| dev.audit().unwrap());
        let looped = stats.iter().map(|s| s.dropped.get(DropReason::RecursionLimit)).sum::<u64>();
        assert_eq!(looped, 1, "{discipline}: {stats:?}");
        assert_eq!(stats.iter().map(|s| s.sent).sum::<u64>(), 7, "{discipline}: {stats:?}");
        drivers.iter().for_each(|driver| *driver.0.0.lock().unwrap() = None);
        drop((workers, sender));
        devs.iter().for_each(|dev| assert_eq!(dev.pool().in_use(), Default::default()));
    }
}

/// Without queues: at the second pass, the thread itself holds the entry.
#[test]
fn nobody_waits_for_himself() {
    for (a, b) in [("noqueue", "noqueue"), ("noqueue", "pfifo"), ("pfifo", "noqueue")] {
        let drivers = [Tunnel::default(), Tunnel::default()];
        let devs = [
            device(drivers[0].clone(), a, Discipline::Combine),
            device(drivers[1].clone(), b, Discipline::Llist),
        ];
        for (i, driver) in drivers.iter().enumerate() {
            *driver.0.lock().unwrap() = Some(devs[1 - i].sender("on"));
        }
        let mut sender = devs[0].sender("s");
        for _ in 0..3 {
            let packet = sender.packet(&[0; 60]).unwrap();
            let _ = sender.xmit(packet);
        }
        let mut workers = devs.each_ref().map(|dev| dev.worker(0));
        for _ in 0..10 {
            for worker in &mut workers {
                worker.poll();
            }
        }
        // A copy has no passes yet: with a queue in the circle it circulates, a quota at a time, and the devices stay alive.
        let ended = devs.each_ref().map(|dev| dev.audit().unwrap().dropped.total()).iter().sum::<u64>();
        assert!(ended == 3 || (a, b) != ("noqueue", "noqueue"), "{ended}");
        drivers.iter().for_each(|driver| *driver.0.lock().unwrap() = None);
    }
}

/// A chain of devices without queues sends: nothing is dropped where there is no loop.
#[test]
fn a_chain_is_not_a_loop() {
    let [first, second] = [Tunnel::default(), Tunnel::default()];
    let devs = [
        device(first.clone(), "noqueue", Discipline::Combine),
        device(second.clone(), "noqueue", Discipline::Combine),
    ];
    *first.0.lock().unwrap() = Some(devs[1].sender("on"));
    let threads: Vec<_> = (0..2).map(|_| (devs[0].sender("a"), devs[1].sender("b"))).collect();
    std::thread::scope(|scope| {
        for (mut a, mut b) in threads {
            scope.spawn(move || {
                for _ in 0..50 {
                    let packet = a.packet(&[0; 60]).unwrap();
                    let _ = a.xmit(packet);
                    let packet = b.packet(&[0; 60]).unwrap();
                    let _ = b.xmit(packet);
                }
            });
        }
    });
    let stats = devs.each_ref().map(|dev| dev.audit().unwrap());
    assert_eq!((stats[0].sent, stats[0].dropped.total()), (100, 0));
    assert_eq!(stats[1].accepted, 200);
    assert_eq!(stats[1].dropped.get(DropReason::RecursionLimit), 0);
    *first.0.lock().unwrap() = None;
}
