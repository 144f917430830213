//! The program's function and the executor's wakers may call the socket: no lock of it is held then.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::{Context, Wake, Waker};

use quinn::AsyncUdpSocket;
use txq_quinn::{Class, Socket};

use crate::shaped::{Device, run};

/// Asks the socket for its counters, which takes each of its lanes, when it wakes and when it is dropped.
struct Asks(Arc<Socket>, Arc<AtomicUsize>);

impl Asks {
    fn ask(&self) {
        let _ = self.0.counts();
        self.1.fetch_add(1, Relaxed);
    }
}

impl Wake for Asks {
    fn wake(self: Arc<Self>) {
        self.ask();
    }
}

impl Drop for Asks {
    fn drop(&mut self) {
        self.ask();
    }
}

#[test]
fn the_programs_function_and_wakers_may_ask_the_socket() {
    let device = Device::new("127.0.0.1:0", "netem delay 200ms", 4);
    run(1, async {
        let (known, classified) = (Arc::new(OnceLock::<Weak<Socket>>::new()), Arc::new(Mutex::new(0)));
        let (asked, count) = (known.clone(), classified.clone());
        let classify = move |_| {
            let _ = asked.get().and_then(Weak::upgrade).map(|socket| socket.counts());
            *count.lock().unwrap() += 1;
            Class::new()
        };
        let socket = device.socket(|b| b.lanes(1).share(1000).classify(classify));
        let _ = known.set(Arc::downgrade(&socket));
        let contents = [0; 12_000];
        let transmit = quinn::udp::Transmit {
            destination: "127.0.0.1:9".parse().unwrap(),
            ecn: None,
            contents: &contents,
            segment_size: Some(1200),
            src_ip: None,
        };
        let asks = Arc::new(AtomicUsize::new(0));
        let mut pollers = [socket.clone().create_io_poller(), socket.clone().create_io_poller()];
        // The second poll of each replaces its waker, and the end of each wait drops or wakes the others'.
        for round in 0..6 {
            for poller in &mut pollers {
                let waker = Waker::from(Arc::new(Asks(socket.clone(), asks.clone())));
                if poller.as_mut().poll_writable(&mut Context::from_waker(&waker)).is_ready() {
                    let _ = socket.try_send(&transmit);
                }
                let _ = poller.as_mut().poll_writable(&mut Context::from_waker(&waker));
            }
            if round == 2 {
                // Buffers return, and wake the tasks.
                tokio::time::sleep(std::time::Duration::from_millis(300)).await;
            }
        }
        drop(pollers);
        assert_eq!(*classified.lock().unwrap(), 1);
        assert!(asks.load(Relaxed) > 4, "{asks:?}");
    });
    device.finish();
}
